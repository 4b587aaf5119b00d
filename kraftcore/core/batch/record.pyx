"""One record, as Python sees it. record.pxd shows the bytes and walks them."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.buffer cimport PyObject_CheckBuffer
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t

from kraftcore.core.bytes cimport read_varint, write_varint

from kraftcore.errors import LocalError

__all__ = ["Record"]

cdef tuple NO_HEADERS = ()


cdef bytes as_bytes(object data, str what):
    if data is None or PyBytes_CheckExact(data):
        return <bytes>data
    if not PyObject_CheckBuffer(data):
        raise TypeError(f"{what} must be bytes-like or None, not {type(data).__name__}")
    return bytes(data)


cdef tuple decode_headers(const RecordView *view):
    cdef tuple headers = PyTuple_New(view.header_count)
    cdef const uint8_t *p = view.headers
    cdef const uint8_t *end = view.end
    cdef int32_t size, i
    cdef object pair, name, value
    for i in range(view.header_count):
        p = read_varint(p, end, &size)
        # Decoding cannot fail for any bytes, and encoding gives the same bytes back.
        name = PyUnicode_DecodeUTF8(<const char *>p, size, b"surrogateescape")
        p += size
        p = read_varint(p, end, &size)
        value = None
        if size >= 0:
            value = PyBytes_FromStringAndSize(<const char *>p, size)
            p += size
        pair = (name, value)
        Py_INCREF(pair)
        PyTuple_SET_ITEM(headers, i, pair)
    return headers


cdef bytes number(Py_ssize_t value):
    cdef uint8_t room[5]
    if value > 0x7FFFFFFF:
        raise LocalError(f"{value} is beyond the 2 GiB that a record can hold")
    return PyBytes_FromStringAndSize(<char *>room, write_varint(room, <int32_t>value) - room)


cdef bytes encode_headers(object headers):
    cdef list parts = []
    cdef object item, name
    cdef bytes raw
    headers = tuple(headers)
    parts.append(number(len(headers)))
    for item in headers:
        try:
            name, item = item
        except (TypeError, ValueError):
            raise LocalError(f"a header is a pair (key, value), not {item!r}") from None
        if isinstance(name, str):
            try:
                raw = (<str>name).encode("utf-8", "surrogateescape")
            except UnicodeEncodeError as error:
                raise LocalError(f"header key {name!r}: {error.reason}") from None
        elif name is None:
            raise LocalError("a header key cannot be None")
        else:
            raw = as_bytes(name, "header key")
        parts.append(number(len(raw)))
        parts.append(raw)
        raw = as_bytes(item, "header value")
        if raw is None:
            parts.append(b"\x01")
        else:
            parts.append(number(len(raw)))
            parts.append(raw)
    return b"".join(parts)


cdef Record make_record(
    const RecordView *view, int64_t offset, int64_t timestamp_ms, int64_t stored_ms, int32_t sequence, int32_t size
):
    cdef Record record = Record.__new__(Record)
    record.offset = offset
    record.timestamp_ms = timestamp_ms
    record.stored_ms = stored_ms
    record.sequence = sequence
    record.size = size
    record.attributes = view.attributes
    if view.key_size >= 0:
        record.key = PyBytes_FromStringAndSize(<const char *>view.key, view.key_size)
    if view.value_size >= 0:
        record.value = PyBytes_FromStringAndSize(<const char *>view.value, view.value_size)
    if view.header_count > 0:
        record.headers = decode_headers(view)
    return record


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class Record:
    """A record: the producer's key, value, headers and time, and the offset in the log. Immutable.

    Args:
        value: bytes-like, or None for a null value (a tombstone in compacted topics).
        key: bytes-like, or None for a null key.
        headers: pairs (key, value). A key is a str, or bytes; a value is bytes-like or None.
        timestamp_ms: milliseconds since 1970, or -1 for none.

    Attributes:
        offset: in the log, -1 before the record is appended.
        timestamp_ms: of the producer, or of the leader's append if the batch says so; -1 for none.
        key, value: bytes or None.
        headers: tuple of pairs (str, bytes or None). Keys that are not UTF-8 keep their bytes as lone surrogates
            (``surrogateescape``), so they never fail to decode and encode to the same bytes again.
        sequence: the producer's number for this record, or -1.
        size: bytes of the record inside the batch, its length prefix included; 0 before it is in a batch.
        attributes: the record's own attribute byte; Kafka always writes 0.
    """

    def __cinit__(self):
        self.headers = NO_HEADERS

    def __init__(self, value=None, key=None, headers=(), *, int64_t timestamp_ms=-1):
        self.value = as_bytes(value, "value")
        self.key = as_bytes(key, "key")
        self.headers = NO_HEADERS
        if headers:
            self.headers = _normal_headers(headers)
        self.timestamp_ms = self.stored_ms = timestamp_ms
        self.offset = -1
        self.sequence = -1
        self.size = 0
        self.attributes = 0

    @property
    def key_size(self):
        """Length of the key in bytes; -1 for a null key."""
        return -1 if self.key is None else len(self.key)

    @property
    def value_size(self):
        """Length of the value in bytes; -1 for a null value."""
        return -1 if self.value is None else len(self.value)

    def __eq__(self, other):
        if not isinstance(other, Record):
            return NotImplemented
        cdef Record that = <Record>other
        return (
            self.offset == that.offset and self.timestamp_ms == that.timestamp_ms and self.key == that.key
            and self.value == that.value and self.headers == that.headers and self.sequence == that.sequence
            and self.attributes == that.attributes
        )

    def __hash__(self):
        return hash((self.offset, self.timestamp_ms, self.key, self.value, self.headers, self.sequence))

    def __repr__(self):
        return (
            f"Record(offset={self.offset}, timestamp_ms={self.timestamp_ms}, key={self.key!r}, value={self.value!r}, "
            f"headers={self.headers!r}, sequence={self.sequence})"
        )

    def __reduce__(self):
        return _restore, (
            self.offset, self.timestamp_ms, self.stored_ms, self.key, self.value, self.headers, self.sequence,
            self.size, self.attributes,
        )


cdef tuple _normal_headers(object headers):
    # Through the encoding, so that a record given by hand equals the one read back.
    cdef bytes encoded = encode_headers(headers)
    cdef RecordView view
    cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(encoded)
    view.end = p + PyBytes_GET_SIZE(encoded)
    view.headers = read_varint(p, view.end, &view.header_count)
    return decode_headers(&view)


def _restore(int64_t offset, int64_t timestamp_ms, int64_t stored_ms, bytes key, bytes value, tuple headers,
             int32_t sequence, int32_t size, int attributes):
    cdef Record record = Record.__new__(Record)
    record.offset = offset
    record.timestamp_ms = timestamp_ms
    record.stored_ms = stored_ms
    record.key = key
    record.value = value
    record.headers = headers
    record.sequence = sequence
    record.size = size
    record.attributes = attributes
    return record
