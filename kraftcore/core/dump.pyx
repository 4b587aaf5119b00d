"""Record batches as lines of text: byte for byte those of Kafka's DumpLogSegments, or JSON.

Lenient where Kafka's tool is: for a wrong checksum ``isvalid: false`` is printed and the records all the same, and
offsets need not rise. Damage that stops Kafka's tool stops this one, after the same text.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kraftcore.core.bytes cimport load_int16, load_int32, read_uvarint32, read_varint
from kraftcore.core.batch.check cimport corrupt_batch, decompress_records
from kraftcore.core.wire.decode cimport Reader, decode_body, start_reading, stop_reading
from kraftcore.core.batch.header cimport (
    BATCH_COUNT, BATCH_HEADER_SIZE, BATCH_OK, BATCH_OVERHEAD,
    COMPRESSION_MASK, CONTROL, DELETE_HORIZON, MAGIC_V2, TIMESTAMP_LOG_APPEND, TRANSACTIONAL, BatchFault, BatchHeader,
    crc_matches, read_header,
)
from kraftcore.core.wire.plan cimport Codec, codec_of
from kraftcore.core.batch.record cimport FaultPlace, RecordView, scan_record
from kraftcore.core.wire.struct cimport Struct
from kraftcore.core.wire.text cimport (
    JsonForm, Text, free_text, is_utf8, json_form, put, put_base64, put_byte, put_bytes, put_json_string, put_signed,
    put_struct, put_unsigned, put_utf8,
)

from kraftcore.core.batch.compression import DEFAULT_MAX_DECOMPRESSED_BYTES as _DEFAULT_MAX_BYTES
from kraftcore.errors import CorruptDataError, UnsupportedVersionError, WireError

cdef enum:
    PREFIX = 17                # up to and including magic: read by Kafka before the rest of a batch
    LEAST_LENGTH = 14          # length of the smallest batch of any format
    FLUSH_BYTES = 1 << 17
    FRAME_VERSION = 1

cdef const char *CODECS[5]
CODECS[:] = [b"none", b"gzip", b"snappy", b"lz4", b"zstd"]


@cython.final
@cython.internal
@cython.auto_pickle(False)
cdef class RecordForm:
    # How one type and version of metadata record is decoded and printed.
    cdef Codec codec
    cdef JsonForm form
    cdef bytes head            # {"type":"TOPIC_RECORD","version":0,"data":


@cython.final
@cython.internal
@cython.auto_pickle(False)
cdef class ControlForm:
    cdef Codec codec
    cdef object message_class
    cdef bytes label           # " KRaftVersion "
    cdef bytes name            # KRAFT_VERSION
    cdef int highest


@cython.final
@cython.auto_pickle(False)
cdef class BatchPrinter:
    """Prints the batches of one file, in pieces of any size.

    Args:
        write: called with bytes of text, whole lines or not, up to a few hundred KiB each.
        deep: also a line per record.
        contents: with ``deep``, keys and values too.
        skip_metadata: leave out all of a record but key and value, and the contents of control records.
        as_json: one JSON object a line instead of Kafka's text.
        metadata_records: called with a record type, returns (name, class) or raises UnsupportedVersionError; values are
            then decoded as metadata records. None: values are text.
        control_records: type -> (name, label, class) of the control records that are known.
        max_decompressed_bytes: the most that one compressed batch may decompress to.

    Attributes:
        batches, records: how many were printed.
        jumps: gaps in record offsets: offset before the gap (-1 at the start) -> offset behind it.
    """

    cdef object write
    cdef bint deep, contents, skip_metadata, as_json
    cdef object metadata_records
    cdef dict forms            # type << 32 | version -> RecordForm
    cdef dict controls         # type -> ControlForm
    cdef Text text
    cdef int64_t last_offset
    cdef int64_t max_bytes
    cdef readonly int64_t batches
    cdef readonly int64_t records
    cdef readonly dict jumps

    def __init__(
        self, write, *, bint deep=False, bint contents=False, bint skip_metadata=False, bint as_json=False,
        metadata_records=None, control_records=None, int64_t max_decompressed_bytes=_DEFAULT_MAX_BYTES,
    ):
        cdef ControlForm control
        self.write = write
        self.deep = deep
        self.contents = contents
        self.skip_metadata = skip_metadata
        self.as_json = as_json
        self.metadata_records = metadata_records
        self.forms = {}
        self.controls = {}
        self.jumps = {}
        self.last_offset = -1
        self.max_bytes = max_decompressed_bytes
        for number, (name, label, cls) in (control_records or {}).items():
            control = ControlForm.__new__(ControlForm)
            control.name = name.encode()
            control.label = f" {label} ".encode()
            control.message_class = cls
            control.highest = cls.schema.versions[1]
            # Kafka 4.3.1 reads every control record as version 0, whatever the body states.
            control.codec = codec_of(cls, 0)
            self.controls[number] = control

    def __dealloc__(self):
        free_text(&self.text)

    def feed(self, bytes data not None, int64_t position, int64_t end):
        """Print the batches that are whole in ``data``.

        Args:
            data: a piece of the file that starts with a batch.
            position: where in the file it starts.
            end: where the file, or the part of it to print, ends.

        Returns:
            (consumed, needed): bytes of ``data`` printed; and how many bytes the next batch takes, 0 if there is no
            further batch before ``end``: what is left then is no whole batch.

        Raises:
            CorruptDataError: damage that cannot be printed, at its position in the file; the text before was written.
        """
        cdef const uint8_t *start = <const uint8_t *>PyBytes_AS_STRING(data)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
        cdef Py_ssize_t at = 0
        cdef int64_t needed = 0
        cdef int64_t left
        cdef int32_t length
        try:
            while True:
                left = end - position - at
                if left <= PREFIX:
                    break
                needed = PREFIX
                if size - at < PREFIX:
                    break
                length = load_int32(start + at + 8)
                if length < LEAST_LENGTH:
                    raise CorruptDataError(f"batch length {length} is below {LEAST_LENGTH}", position=position + at)
                needed = <int64_t>length + BATCH_OVERHEAD
                if needed > left:
                    needed = 0
                    break
                if size - at < needed:
                    break
                self.print_batch(data, start + at, <Py_ssize_t>needed, position + at)
                at += <Py_ssize_t>needed
                needed = 0
        finally:
            self.flush()
        return at, needed

    cdef int flush(self) except -1:
        if self.text.size:
            piece = PyBytes_FromStringAndSize(<const char *>self.text.start, self.text.size)
            self.text.size = 0
            self.write(piece)
        return 0

    # ---- batches

    cdef int print_batch(self, bytes data, const uint8_t *p, Py_ssize_t size, int64_t position) except -1:
        cdef BatchHeader header
        if p[16] < MAGIC_V2:
            raise CorruptDataError(
                f"record format {p[16]} is not supported: Kafka wrote it before 0.11; convert the log with Kafka 3.x",
                position=position,
            )
        if size < BATCH_HEADER_SIZE:
            raise CorruptDataError(f"a batch of {size} bytes is shorter than its header of 61", position=position)
        read_header(p, size, &header)  # faults are printed; the rest is set here
        header.size = <int32_t>size
        header.last_offset = <int64_t>(<uint64_t>header.base_offset + <uint64_t><int64_t>header.last_offset_delta)
        if self.as_json:
            self.put_batch_json(p, &header, position)
        else:
            self.put_batch_line(p, &header, position)
        self.batches += 1
        if self.deep:
            if header.count < 0:
                raise corrupt_batch(BATCH_COUNT, p, size, position, NULL)
            if header.count:
                self.print_records(data, p, &header, position)
        return 0

    cdef int put_batch_line(self, const uint8_t *p, const BatchHeader *header, int64_t position) except -1:
        cdef Text *text = &self.text
        cdef int codec = header.attributes & COMPRESSION_MASK
        put(text, b"baseOffset: ")
        put_signed(text, header.base_offset)
        put(text, b" lastOffset: ")
        put_signed(text, header.last_offset)
        put(text, b" count: ")
        put_signed(text, header.count)
        put(text, b" baseSequence: ")
        put_signed(text, header.base_sequence)
        put(text, b" lastSequence: ")
        put_signed(text, last_sequence(header))
        put(text, b" producerId: ")
        put_signed(text, header.producer_id)
        put(text, b" producerEpoch: ")
        put_signed(text, header.producer_epoch)
        put(text, b" partitionLeaderEpoch: ")
        put_signed(text, header.leader_epoch)
        put(text, b" isTransactional: true" if header.attributes & TRANSACTIONAL else b" isTransactional: false")
        put(text, b" isControl: true" if header.attributes & CONTROL else b" isControl: false")
        if header.attributes & DELETE_HORIZON:
            put(text, b" deleteHorizonMs: OptionalLong[")
            put_signed(text, header.base_timestamp)
            put_byte(text, c"]")
        else:
            put(text, b" deleteHorizonMs: OptionalLong.empty")
        if codec > 4:
            raise CorruptDataError(f"unknown compression type {codec}", position=position)
        put(text, b" position: ")
        put_signed(text, position)
        put(text, b" LogAppendTime: " if header.attributes & TIMESTAMP_LOG_APPEND else b" CreateTime: ")
        put_signed(text, header.max_timestamp)
        put(text, b" size: ")
        put_signed(text, header.size)
        put(text, b" magic: ")
        put_unsigned(text, p[16])
        put(text, b" compresscodec: ")
        put(text, CODECS[codec])
        put(text, b" crc: ")
        put_unsigned(text, header.crc)
        return put(text, b" isvalid: true\n" if crc_matches(p, header) else b" isvalid: false\n")

    cdef int put_batch_json(self, const uint8_t *p, const BatchHeader *header, int64_t position) except -1:
        cdef Text *text = &self.text
        cdef int codec = header.attributes & COMPRESSION_MASK
        put(text, b'{"kind":"batch","baseOffset":')
        put_signed(text, header.base_offset)
        put(text, b',"lastOffset":')
        put_signed(text, header.last_offset)
        put(text, b',"count":')
        put_signed(text, header.count)
        put(text, b',"baseSequence":')
        put_signed(text, header.base_sequence)
        put(text, b',"lastSequence":')
        put_signed(text, last_sequence(header))
        put(text, b',"producerId":')
        put_signed(text, header.producer_id)
        put(text, b',"producerEpoch":')
        put_signed(text, header.producer_epoch)
        put(text, b',"partitionLeaderEpoch":')
        put_signed(text, header.leader_epoch)
        put(text, b',"isTransactional":true' if header.attributes & TRANSACTIONAL else b',"isTransactional":false')
        put(text, b',"isControl":true' if header.attributes & CONTROL else b',"isControl":false')
        put(text, b',"deleteHorizonMs":')
        if header.attributes & DELETE_HORIZON:
            put_signed(text, header.base_timestamp)
        else:
            put(text, b"null")
        put(text, b',"position":')
        put_signed(text, position)
        put(text, b',"timestampType":"LogAppendTime"' if header.attributes & TIMESTAMP_LOG_APPEND
            else b',"timestampType":"CreateTime"')
        put(text, b',"maxTimestamp":')
        put_signed(text, header.max_timestamp)
        put(text, b',"size":')
        put_signed(text, header.size)
        put(text, b',"magic":')
        put_unsigned(text, p[16])
        put(text, b',"compression":')
        if codec > 4:
            put_unsigned(text, codec)
        else:
            put_byte(text, c'"')
            put(text, CODECS[codec])
            put_byte(text, c'"')
        put(text, b',"crc":')
        put_unsigned(text, header.crc)
        return put(text, b',"isValid":true}\n' if crc_matches(p, header) else b',"isValid":false}\n')

    # ---- records

    cdef int print_records(self, bytes data, const uint8_t *p, const BatchHeader *header, int64_t position) except -1:
        cdef const uint8_t *start = p + BATCH_HEADER_SIZE
        cdef const uint8_t *end = p + header.size
        cdef bytes plain = data
        cdef FaultPlace place
        cdef RecordView view
        cdef int32_t i
        cdef Py_ssize_t mark
        if header.attributes & COMPRESSION_MASK:
            plain = decompress_records(p, header, position, self.max_bytes)
            start = <const uint8_t *>PyBytes_AS_STRING(plain)
            end = start + PyBytes_GET_SIZE(plain)
            # Kafka decompresses a batch as a whole before it prints anything of it.
            p = start
            for i in range(header.count):
                check_record(start, p, end, i, i == header.count - 1, &view, &place, position, header.size)
                p = view.end
        p = start
        for i in range(header.count):
            check_record(start, p, end, i, i == header.count - 1, &view, &place, position, header.size)
            mark = self.text.size
            try:
                self.print_record(plain, header, &view, position)
            except BaseException:
                if self.as_json:
                    self.text.size = mark  # whole objects only; the text form ends where Kafka's does
                raise
            p = view.end
            if self.text.size > FLUSH_BYTES:
                self.flush()
        return 0

    cdef int print_record(
        self, bytes source, const BatchHeader *header, const RecordView *view, int64_t position
    ) except -1:
        cdef Text *text = &self.text
        cdef bint control = header.attributes & CONTROL
        cdef int64_t offset = <int64_t>(<uint64_t>header.base_offset + <uint64_t><int64_t>view.offset_delta)
        if offset != self.last_offset + 1:
            self.jumps[self.last_offset] = offset
        self.last_offset = offset
        self.records += 1
        if self.as_json:
            if control and self.skip_metadata:
                return 0
            put(text, b'{"kind":"record"')
        if not self.skip_metadata:
            self.put_metadata(header, view, offset)
            if control:
                self.put_control(source, view, position)
        if self.contents and not control:
            if self.as_json:
                self.put_contents_json(source, view, offset)
            else:
                self.put_contents(source, view, offset)
        return put(text, b"}\n" if self.as_json else b"\n")

    cdef int put_metadata(self, const BatchHeader *header, const RecordView *view, int64_t offset) except -1:
        cdef Text *text = &self.text
        cdef int64_t timestamp = header.max_timestamp
        cdef int32_t sequence = -1
        if not header.attributes & TIMESTAMP_LOG_APPEND:
            timestamp = <int64_t>(<uint64_t>header.base_timestamp + <uint64_t>view.timestamp_delta)
        if header.base_sequence >= 0:
            sequence = add_sequence(header.base_sequence, view.offset_delta)
        if self.as_json:
            put(text, b',"offset":')
            put_signed(text, offset)
            put(text, b',"timestamp":')
            put_signed(text, timestamp)
            put(text, b',"keySize":')
            put_signed(text, view.key_size)
            put(text, b',"valueSize":')
            put_signed(text, view.value_size)
            put(text, b',"sequence":')
            put_signed(text, sequence)
            put(text, b',"headerKeys":[')
        else:
            put(text, b"| offset: ")
            put_signed(text, offset)
            put(text, b" LogAppendTime: " if header.attributes & TIMESTAMP_LOG_APPEND else b" CreateTime: ")
            put_signed(text, timestamp)
            put(text, b" keySize: ")
            put_signed(text, view.key_size)
            put(text, b" valueSize: ")
            put_signed(text, view.value_size)
            put(text, b" sequence: ")
            put_signed(text, sequence)
            put(text, b" headerKeys: [")
        self.put_header_keys(view)
        return put_byte(text, c"]")

    cdef int put_header_keys(self, const RecordView *view) except -1:
        cdef const uint8_t *p = view.headers
        cdef int32_t i, size
        for i in range(view.header_count):  # lengths were checked by scan_record
            if i:
                put_byte(&self.text, c",")
            p = read_varint(p, view.end, &size)
            if self.as_json:
                put_json_text(&self.text, p, size)
            else:
                put_utf8(&self.text, p, size)
            p = read_varint(p + size, view.end, &size)
            p += max(size, 0)
        return 0

    cdef int put_contents(self, bytes source, const RecordView *view, int64_t offset) except -1:
        cdef Text *text = &self.text
        cdef bint bare = self.skip_metadata  # then the line starts here
        if view.key_size >= 0 and self.metadata_records is None:
            put(text, b"| key: " if bare else b" key: ")
            put_utf8(text, view.key, view.key_size)
            bare = False
        if view.value_size >= 0 or self.metadata_records is not None:
            put(text, b"| payload: " if bare else b" payload: ")
            if self.metadata_records is None:
                return put_utf8(text, view.value, view.value_size)
            problem = self.put_metadata_record(source, view)
            if problem is not None:
                put(text, b"Error at ")
                put_signed(text, offset)
                put(text, b", skipping. ")
                raw = (<str>problem).encode()
                put_bytes(text, PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))
        return 0

    cdef int put_contents_json(self, bytes source, const RecordView *view, int64_t offset) except -1:
        cdef Text *text = &self.text
        cdef Py_ssize_t mark
        put_json_member(text, b"key", view.key, view.key_size)
        if self.metadata_records is None:
            return put_json_member(text, b"payload", view.value, view.value_size)
        mark = text.size
        put(text, b',"payload":')
        problem = self.put_metadata_record(source, view)
        if problem is not None:
            text.size = mark
            put(text, b',"error":')
            raw = (<str>problem).encode()
            put_json_string(text, <const uint8_t *>PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))
            put_json_member(text, b"payload", view.value, view.value_size)
        return 0

    cdef object put_metadata_record(self, bytes source, const RecordView *view):
        # Appends the record as JSON; or appends nothing and returns why not, in the words of Kafka's reader.
        cdef Text *text = &self.text
        cdef Py_ssize_t mark = text.size
        cdef uint32_t[3] head
        cdef const uint8_t *p = view.value
        cdef const uint8_t *end = p + max(view.value_size, 0)
        cdef RecordForm form
        cdef Reader reader
        cdef int i
        for i in range(3):
            p = read_uvarint32(p, end, &head[i])
            if p == NULL:
                return f"Error while reading {FRAME_PARTS[i]}"
            if head[i] > 0x7FFF and <int32_t>head[i] > 0:
                return f"Value for {FRAME_PARTS[i]} was too large."
            if i == 0 and head[0] == 0:
                return (
                    "Could not deserialize metadata record with frame version 0. "
                    "Note that upgrades from the preview release of KRaft in 2.8 to newer versions are not supported."
                )
            if i == 0 and head[0] != FRAME_VERSION:
                return (
                    "Could not deserialize metadata record due to unknown frame version "
                    f"{<int16_t>head[0]}(only frame version 1 is supported)"
                )
        found = self.forms.get(<uint64_t>head[1] << 32 | head[2])
        if found is None:
            try:
                found = self.record_form(head[1], head[2])
            except UnsupportedVersionError:
                return (
                    "org.apache.kafka.common.errors.UnsupportedVersionException: "
                    f"Unknown metadata id {<int16_t>head[1]}"
                )
        form = <RecordForm>found
        start_reading(&reader, source)
        reader.start = reader.p = p
        reader.end = end
        try:
            record = decode_body(form.codec, &reader, False)
            if reader.p != end:
                return f"Found {end - reader.p} byte(s) of garbage after {<int16_t>head[1]}"
            put_bytes(text, PyBytes_AS_STRING(form.head), PyBytes_GET_SIZE(form.head))
            put_struct(text, <Struct>record, form.form)
            put_byte(text, c"}")
            return None
        except WireError:
            text.size = mark
            return f"Failed to deserialize record with type {<int16_t>head[1]}"
        finally:
            stop_reading(&reader)

    cdef RecordForm record_form(self, uint32_t record_type, uint32_t version):
        cdef RecordForm form = RecordForm.__new__(RecordForm)
        name, cls = self.metadata_records(record_type)
        # Kafka reads a version it does not know as the highest it knows.
        known = min(version, cls.schema.versions[1])
        form.codec = codec_of(cls, known)
        form.form = json_form(cls, known)
        form.head = f'{{"type":"{name}","version":{<int16_t>version},"data":'.encode()
        if len(self.forms) < 1000:
            self.forms[<uint64_t>record_type << 32 | version] = form
        return form

    cdef int put_control(self, bytes source, const RecordView *view, int64_t position) except -1:
        cdef Text *text = &self.text
        cdef int number
        cdef ControlForm control
        cdef Reader reader
        if view.key_size < 4:
            raise CorruptDataError(f"control record key of {view.key_size} bytes, want 4", position=position)
        if load_int16(view.key) < 0:
            raise CorruptDataError(f"control record key of version {load_int16(view.key)}", position=position)
        number = load_int16(view.key + 2)
        if number == 0 or number == 1:
            if view.value_size < 6 or load_int16(view.value) < 0:
                raise CorruptDataError("damaged end-of-transaction marker", position=position)
            name = b"COMMIT" if number else b"ABORT"
            put(text, b',"controlType":"' if self.as_json else b" endTxnMarker: ")
            put(text, name)
            put(text, b'","coordinatorEpoch":' if self.as_json else b" coordinatorEpoch: ")
            return put_signed(text, load_int32(view.value + 2))
        found = self.controls.get(number)
        if found is None:
            put(text, b',"controlType":' if self.as_json else b" controlType: UNKNOWN(")
            put_signed(text, number)
            return 0 if self.as_json else put_byte(text, c")")
        control = <ControlForm>found
        if view.value_size < 0:
            raise CorruptDataError(f"{control.name.decode()} control record without a value", position=position)
        start_reading(&reader, source)
        reader.start = reader.p = view.value
        reader.end = view.value + view.value_size
        try:
            message = decode_body(control.codec, &reader, False)
        except WireError as error:
            raise CorruptDataError(f"bad control record: {error}", position=position) from None
        finally:
            stop_reading(&reader)
        version = max(0, min(message.version, control.highest))
        if self.as_json:
            put(text, b',"controlType":"')
            put(text, <const char *>control.name)
            put(text, b'","data":')
        else:
            put(text, <const char *>control.label)
        return put_struct(text, <Struct>message, json_form(control.message_class, version))


FRAME_PARTS = ("frame version", "type", "version")


cdef int check_record(
    const uint8_t *start, const uint8_t *p, const uint8_t *end, int32_t index, bint last, RecordView *view,
    FaultPlace *place, int64_t position, Py_ssize_t size
) except -1:
    cdef BatchFault fault = scan_record(start, p, end, view, place)
    if fault == BATCH_OK and last and view.end != end:
        raise CorruptDataError(
            f"{end - view.end} bytes follow the last record that the batch declares", position=position
        )
    if fault != BATCH_OK:
        raise CorruptDataError(
            f"record {index} of the batch is damaged (byte {place.at} of its records)", position=position
        )
    return 0


cdef int put_json_text(Text *text, const uint8_t *p, Py_ssize_t size) except -1:
    cdef bytes clean
    if is_utf8(p, size):
        return put_json_string(text, p, size)
    clean = PyBytes_FromStringAndSize(<const char *>p, size).decode("utf-8", "replace").encode()
    return put_json_string(text, <const uint8_t *>PyBytes_AS_STRING(clean), PyBytes_GET_SIZE(clean))


cdef int put_json_member(Text *text, const char *name, const uint8_t *p, Py_ssize_t size) except -1:
    # Text where the bytes are UTF-8; else base64 under the name + "Base64".
    cdef bint plain = size < 0 or is_utf8(p, size)
    put(text, b',"')
    put(text, name)
    put(text, b'":' if plain else b'Base64":"')
    if size < 0:
        return put(text, b"null")
    if plain:
        return put_json_string(text, p, size)
    put_base64(text, p, size)
    return put_byte(text, c'"')


cdef int32_t add_sequence(int32_t sequence, int32_t delta) noexcept:
    # Wraps to 0 after 2**31 - 1.
    if sequence > 0x7FFFFFFF - delta:
        return <int32_t>(<uint32_t>delta - (0x7FFFFFFF - <uint32_t>sequence) - 1)
    return sequence + delta


cdef int32_t last_sequence(const BatchHeader *header) noexcept:
    if header.base_sequence == -1:
        return -1
    return add_sequence(header.base_sequence, header.last_offset_delta)
