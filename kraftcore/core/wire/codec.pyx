"""Entry points of the wire codec: messages and whole frames."""

#   struct.pyx   message objects: values by offset             plan.pyx     schema + version -> C plan
#   decode.pyx   hostile bytes -> objects                      encode.pyx   objects -> bytes, values checked
#   codec.pyx    messages and whole frames, on top of these
#
# A frame is a header and a body without the four size bytes in front:
#   request   api_key int16, api_version int16, correlation_id int32, client_id nullable string, [tagged fields], body
#   response  correlation_id int32, [tagged fields], body
# The tagged fields are there in flexible versions; the client id is a plain (not compact) string in all of them.

from kraftcore.errors import LocalError, UnsupportedVersionError, WireError

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.ref cimport PyObject
from libc.stdint cimport int16_t, int32_t, uint8_t, uint32_t
from libc.string cimport memcpy

from kraftcore.core.bytes cimport (
    load_int16, read_uvarint32, store_int16, store_int32, store_uint32, write_uvarint32,
)
from kraftcore.core.wire.decode cimport Reader, decode_body, start_reading, stop_reading
from kraftcore.core.wire.encode cimport (
    Writer, encode_body, finish_writing, flush_part, reserve, start_writing, stop_writing,
)
from kraftcore.core.wire.plan cimport Codec, codec_of
from kraftcore.core.wire.struct cimport Struct

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object value, int *overflow) except? -1
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef Py_ssize_t LONGEST_FRAME = 0x7FFFFFFF
cdef Py_ssize_t REQUEST_ITEMS = 1_000_000  # an empty struct of three bytes is an object of more than a hundred
cdef enum:
    API_VERSIONS = 18


cdef bytes as_bytes(object data):
    # Records are windows of the input, so it must not change: anything but bytes is copied, once.
    if PyBytes_CheckExact(data):
        return <bytes>data
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    return bytes(memoryview(data))


cdef Codec codec_to_encode(Struct message, version):
    try:
        return codec_of(type(message), version)
    except KeyError:
        name = type(message).__name__
        raise LocalError(f"{name} has no version {version}; known are {_ranges(type(message))}") from None


cdef Codec codec_to_decode(cls, version):
    try:
        return codec_of(cls, version)
    except KeyError:
        raise UnsupportedVersionError(
            f"{cls.__name__} version {version} is not supported; known are {_ranges(cls)}"
        ) from None


def _ranges(cls):
    return ", ".join([f"{low}-{high}" for low, high in cls.schema.decodable_versions]) or "none"


def encode(Struct message not None, version):
    """Encode a message, record or header.

    Args:
        message: an instance of a class with a schema (not a struct nested in one).
        version: one of the versions the class knows, removed ones included.

    Returns:
        The body as bytes, without header or size.

    Raises:
        LocalError: unknown version, or a value that does not fit; the text names message, version and field.
    """
    cdef Codec codec = codec_to_encode(message, version)
    cdef Writer w
    start_writing(&w)
    try:
        encode_body(codec, message, &w)
        return finish_writing(&w)
    finally:
        stop_writing(&w)


def decode(cls not None, data, version):
    """Decode a message, record or header that fills ``data`` exactly.

    Args:
        cls: the message class.
        data: bytes-like. Fields of type records are read-only memoryviews of it, which keep it alive; if it is not a
            bytes object it is copied first.
        version: one of the versions the class knows, removed ones included.

    Raises:
        UnsupportedVersionError: the class has no such version.
        WireError: the bytes are not such a message; nothing larger than a small multiple of them was allocated.
    """
    return _decode(cls, as_bytes(data), version, 0, True)[0]


def decode_prefix(cls not None, data, version, Py_ssize_t position=0):
    """Decode a message that starts at ``position``; bytes may follow it.

    Returns:
        The message and the position behind it.

    Raises:
        LocalError: the position is outside the data.
        UnsupportedVersionError, WireError: as ``decode``.
    """
    return _decode(cls, as_bytes(data), version, position, False)


cdef tuple _decode(object cls, bytes data, version, Py_ssize_t position, bint whole):
    cdef Codec codec = codec_to_decode(cls, version)
    cdef Reader r
    if not 0 <= position <= PyBytes_GET_SIZE(data):
        raise LocalError(f"position {position} is outside the {len(data)} bytes")
    start_reading(&r, data)
    r.p += position
    try:
        message = decode_body(codec, &r, whole)
        return message, r.p - r.start
    finally:
        stop_reading(&r)


cdef int int_of(value, int bits, str what) except? -1:
    cdef int overflow = 0
    cdef long long number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow != 0 or number >> bits != 0 and number >> bits != -1:
        raise LocalError(f"the {what} {value} does not fit an int{bits + 1}")
    return <int>number


cdef int put_header(Writer *w, Codec codec, int32_t correlation_id, object client_id) except -1:
    cdef const char *text
    cdef Py_ssize_t size
    if codec.is_response:
        store_int32(w.p, correlation_id)
        w.p += 4
        if codec.header_version >= 1:
            w.p[0] = 0
            w.p += 1
        return 0
    store_int16(w.p, <int16_t>codec.api_key)
    store_int16(w.p + 2, <int16_t>codec.version)
    store_int32(w.p + 4, correlation_id)
    w.p += 8
    if codec.header_version == 0:  # ControlledShutdown v0 alone
        return 0
    if client_id is None:
        store_int16(w.p, -1)
        w.p += 2
    else:
        try:
            text = PyUnicode_AsUTF8AndSize(<str?>client_id, &size)
        except UnicodeEncodeError:
            raise LocalError("the client id holds lone surrogates, which UTF-8 cannot carry") from None
        if size > 0x7FFF:
            raise LocalError(f"the client id has {size} bytes, the limit is 32767")
        reserve(w, size + 3)
        store_int16(w.p, <int16_t>size)
        memcpy(w.p + 2, text, size)
        w.p += 2 + size
    if codec.header_version >= 2:
        w.p[0] = 0
        w.p += 1
    return 0


@cython.final
@cython.auto_pickle(False)
cdef class _Route:
    # How to read one api key and version: the header, and the body (None: a version we do not know).
    cdef Codec header
    cdef Codec body


@cython.final
@cython.auto_pickle(False)
cdef class FrameCodec:
    """Requests and responses with their headers.

    Args:
        request_header: class of the request header.
        response_header: class of the response header.
        find: called with (api_key, is_response), returns the message class, or None for an unknown key. Asked
            once for each api key, version and direction.
    """

    cdef object request_header
    cdef object response_header
    cdef object find
    cdef dict routes

    def __init__(self, request_header not None, response_header not None, find not None):
        self.request_header = request_header
        self.response_header = response_header
        self.find = find
        self.routes = {}

    cdef _Route route(self, int api_key, int version, bint is_response):
        cdef long key = ((<long>(api_key & 0xFFFF)) << 17) | (version & 0xFFFF) << 1 | is_response
        known = self.routes.get(key)
        if known is not None:
            return <_Route>known
        cls = self.find(api_key, is_response)
        if cls is None:
            raise UnsupportedVersionError(f"api key {api_key} (version {version}) is not known")
        cdef _Route made = _Route.__new__(_Route)
        header = self.response_header if is_response else self.request_header
        made.header = codec_of(header, cls.schema.header_version(version))
        try:
            made.body = codec_of(cls, version)
        except KeyError:
            return made  # not cached: a peer may try 65,536 of them
        self.routes[key] = made
        return made

    cdef _Route request_route(self, bytes frame):
        cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(frame)
        if PyBytes_GET_SIZE(frame) < 4:
            raise WireError(
                f"needs 4 bytes of api key and version, {len(frame)} in the frame",
                message_name=self.request_header.__name__,
            )
        return self.route(load_int16(p), load_int16(p + 2), False)

    def decode_request_header(self, frame):
        """Decode the header alone; works for every version of a known api, supported or not.

        Returns:
            The request header and the position of the body.

        Raises:
            UnsupportedVersionError: unknown api key.
            WireError: the header is damaged, or has more than a million tagged fields.
        """
        cdef bytes data = as_bytes(frame)
        cdef _Route route = self.request_route(data)
        cdef Reader r
        start_reading(&r, data)
        r.items_left = REQUEST_ITEMS
        try:
            header = decode_body(route.header, &r, False)
            return header, r.p - r.start
        finally:
            stop_reading(&r)

    def decode_request(self, frame):
        """Decode a request: header and body. Bytes behind them are ignored, as by Kafka's brokers: librdkafka sends
        some.

        Returns:
            The header and the message. The message is None for an ApiVersions request of an unknown version: its body
            cannot be read, and its sender must be told the known versions (KIP-511).

        Raises:
            UnsupportedVersionError: unknown api key, or unknown version of any other api.
            WireError: the frame is damaged, or its lists and unknown tagged fields have more than a million items.
        """
        cdef bytes data = as_bytes(frame)
        cdef _Route route = self.request_route(data)
        cdef Reader r
        start_reading(&r, data)
        r.items_left = REQUEST_ITEMS
        try:
            header = decode_body(route.header, &r, False)
            if route.body is None:
                if load_int16(r.start) == API_VERSIONS:
                    return header, None
                codec_to_decode(self.find(load_int16(r.start), False), load_int16(r.start + 2))
            return header, decode_body(route.body, &r, False)
        finally:
            stop_reading(&r)

    def decode_response(self, frame, api_key, version):
        """Decode a response to a request of this api key and version.

        Returns:
            The header and the message.

        Raises:
            UnsupportedVersionError: unknown api key or version.
            WireError: the frame is damaged.
        """
        cdef bytes data = as_bytes(frame)
        cdef _Route route = self.route(int_of(api_key, 15, "api key"), int_of(version, 15, "version"), True)
        cdef Reader r
        if route.body is None:
            codec_to_decode(self.find(api_key, True), version)
        start_reading(&r, data)
        try:
            header = decode_body(route.header, &r, False)
            return header, decode_body(route.body, &r, True)
        finally:
            stop_reading(&r)

    def encode_request(self, Struct message not None, version, correlation_id, client_id=None, *,
                       bint size_prefix=False):
        """Encode a request with its header.

        Args:
            message: the request.
            version: its version; the header's follows from it.
            correlation_id: any int32; the response brings it back.
            client_id: a str, or None.
            size_prefix: put the four size bytes in front, as TCP needs them.

        Returns:
            The frame as bytes.

        Raises:
            LocalError: not a request, unknown version, or a value that does not fit.
        """
        return self.encode_frame(message, version, correlation_id, client_id, size_prefix, False, False)

    def encode_request_parts(self, Struct message not None, version, correlation_id, client_id=None, *,
                             bint size_prefix=False):
        """As ``encode_request``, but a list of buffers to send one after the other.

        Records of 4 KiB and more are not copied: the list holds them as they are, so they must not change until it
        was sent.
        """
        return self.encode_frame(message, version, correlation_id, client_id, size_prefix, False, True)

    def encode_response(self, Struct message not None, version, correlation_id, *, bint size_prefix=False):
        """Encode a response with its header.

        Args:
            message: the response.
            version: that of the request.
            correlation_id: that of the request.
            size_prefix: put the four size bytes in front, as TCP needs them.

        Returns:
            The frame as bytes.

        Raises:
            LocalError: not a response, unknown version, or a value that does not fit.
        """
        return self.encode_frame(message, version, correlation_id, None, size_prefix, True, False)

    def encode_response_parts(self, Struct message not None, version, correlation_id, *,
                              bint size_prefix=False):
        """As ``encode_response``, but a list of buffers to send one after the other (see ``encode_request_parts``)."""
        return self.encode_frame(message, version, correlation_id, None, size_prefix, True, True)

    cdef object encode_frame(self, Struct message, version, correlation_id, object client_id,
                             bint size_prefix, bint is_response, bint split):
        cdef Codec codec = codec_to_encode(message, version)
        cdef Writer w
        cdef list parts = [] if split else None
        cdef Py_ssize_t size
        if codec.header_version < 0 or codec.is_response != is_response:
            raise LocalError(f"{codec.name} is no {'response' if is_response else 'request'}")
        start_writing(&w)
        try:
            if split:
                w.parts = <PyObject *>parts
            if size_prefix:
                w.p += 4
            put_header(&w, codec, <int32_t>int_of(correlation_id, 31, "correlation id"), client_id)
            encode_body(codec, message, &w)
            size = w.flushed + (w.p - w.start)
            if size > LONGEST_FRAME:
                raise LocalError(f"{codec.name} v{version}: the frame of {size} bytes does not fit a 32-bit size")
            if not split:
                if size_prefix:
                    store_uint32(w.start, <uint32_t>(size - 4))
                return finish_writing(&w)
            flush_part(&w)
            if size_prefix:  # the first part is still unshared
                store_uint32(<uint8_t *>PyBytes_AS_STRING(parts[0]), <uint32_t>(size - 4))
            return parts
        finally:
            stop_writing(&w)


@cython.final
@cython.auto_pickle(False)
cdef class RecordCodec:
    """Values of metadata records: frame version, type and version as unsigned varints, then the body.

    Args:
        find: called with a record type, returns its class or raises UnsupportedVersionError.
    """

    cdef object find
    cdef dict codecs

    def __init__(self, find not None):
        self.find = find
        self.codecs = {}

    cdef Codec codec(self, uint32_t record_type, uint32_t version):
        cdef object key = (<unsigned long>record_type) << 32 | version
        known = self.codecs.get(key)
        if known is None:
            cls = self.find(record_type)
            if version > 0x7FFF:
                raise UnsupportedVersionError(f"{cls.__name__} version {version} is not supported")
            known = codec_to_decode(cls, <int>version)
            self.codecs[key] = known
        return <Codec>known

    def decode(self, value):
        """Decode a metadata record.

        Args:
            value: bytes-like, the value of a data record in the metadata log.

        Returns:
            The record and its version.

        Raises:
            UnsupportedVersionError: a frame version other than 1, an unknown record type or version.
            WireError: damaged bytes, or bytes left over.
        """
        cdef bytes data = as_bytes(value)
        cdef uint32_t[3] head
        cdef const uint8_t *p
        cdef int i
        cdef Codec codec
        cdef Reader r
        start_reading(&r, data)
        p = r.p
        for i in range(3):
            p = read_uvarint32(p, r.end, &head[i])
            if p == NULL:
                raise WireError(
                    "the frame of a metadata record ends too early or holds a bad varint", position=r.p - r.start
                )
            r.p = p
            if i == 0 and head[0] != 1:
                raise UnsupportedVersionError(f"metadata record frame version {head[0]} is not supported; known is 1")
        codec = self.codec(head[1], head[2])
        try:
            return decode_body(codec, &r, True), codec.version
        finally:
            stop_reading(&r)

    def encode(self, Struct record not None, version):
        """Encode a metadata record with its frame.

        Raises:
            LocalError: not a metadata record, unknown version, or a value that does not fit.
        """
        cdef Codec codec = codec_to_encode(record, version)
        cdef Writer w
        if codec.api_key < 0 or codec.header_version >= 0:
            raise LocalError(f"{codec.name} is no metadata record")
        start_writing(&w)
        try:
            w.p[0] = 1
            w.p = write_uvarint32(w.p + 1, <uint32_t>codec.api_key)
            w.p = write_uvarint32(w.p, <uint32_t>codec.version)
            encode_body(codec, record, &w)
            return finish_writing(&w)
        finally:
            stop_writing(&w)
