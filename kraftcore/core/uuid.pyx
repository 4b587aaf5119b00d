"""Kafka's 16-byte identifier."""

# The standard library's uuid.UUID takes 1.5 us to build and prints another text form; a
# decoded Fetch holds one or two of them, so they cost what an int costs here.

from os import urandom

from kraftcore.errors import LocalError

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeASCII
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memset

from kraftcore.core.bytes cimport load_int64, store_int64

cdef const char *ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
cdef uint8_t[128] VALUES  # of each ASCII letter of the alphabet; 255 elsewhere
memset(VALUES, 255, 128)
cdef int _index
for _index in range(64):
    VALUES[<int>ALPHABET[_index]] = <uint8_t>_index

cdef uint64_t RESERVED = 100  # high = 0 and low below this: never drawn at random


@cython.final
@cython.freelist(64)
cdef class Uuid:
    """A 128-bit id as Kafka uses it for clusters, directories and topics; immutable, hashable.

    Ordered as Kafka orders them: both halves as signed 64-bit numbers, the high one first. ``str()`` is Kafka's text
    form: 22 characters of URL-safe base64 without padding.

    Args:
        data: the 16 bytes as they stand on the wire; the zero uuid when left out.

    Attributes:
        high: the first eight bytes as an unsigned number.
        low: the last eight bytes as an unsigned number.

    Raises:
        LocalError: not 16 bytes.
    """

    def __init__(self, bytes data not None = bytes(16)):
        if PyBytes_GET_SIZE(data) != 16:
            raise LocalError(f"a uuid has 16 bytes, not {len(data)}")
        cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(data)
        self.high = <uint64_t>load_int64(p)
        self.low = <uint64_t>load_int64(p + 8)

    @staticmethod
    def from_string(str text not None):
        """Read Kafka's text form.

        Args:
            text: 22 characters of URL-safe base64, with or without two ``=`` of padding. The last character holds four
                bits too many; Kafka ignores them, so texts can differ and name the same uuid.

        Raises:
            LocalError: anything else.
        """
        cdef Py_ssize_t size, i
        cdef const char *letters
        cdef uint8_t[24] digits
        cdef uint8_t[16] data
        if not text.isascii():
            raise LocalError(f"{text!r} is not a uuid: want 22 characters of URL-safe base64")
        letters = PyUnicode_AsUTF8AndSize(text, &size)
        if size == 24 and letters[22] == c"=" and letters[23] == c"=":
            size = 22
        if size != 22:
            raise LocalError(f"{text!r} is not a uuid: want 22 characters of URL-safe base64")
        for i in range(22):
            digits[i] = VALUES[<int>letters[i]]
            if digits[i] > 63:
                raise LocalError(f"{text!r} is not a uuid: {text[i]!r} is no URL-safe base64 character")
        digits[22] = digits[23] = 0
        for i in range(5):
            data[3 * i] = <uint8_t>(digits[4 * i] << 2 | digits[4 * i + 1] >> 4)
            data[3 * i + 1] = <uint8_t>(digits[4 * i + 1] << 4 | digits[4 * i + 2] >> 2)
            data[3 * i + 2] = <uint8_t>(digits[4 * i + 2] << 6 | digits[4 * i + 3])
        data[15] = <uint8_t>(digits[20] << 2 | digits[21] >> 4)
        return uuid_from(data)

    @staticmethod
    def random(randbytes=urandom):
        """Draw a version-4 uuid, again while it is reserved or its text starts with ``-``, as Kafka does.

        A leading ``-`` would read as an option on a command line.

        Args:
            randbytes: called with 16 for each draw, returns that many bytes; give a seeded one for replayable runs.
        """
        cdef Uuid drawn
        cdef bytearray data
        while True:
            data = bytearray(randbytes(16))
            if len(data) != 16:
                raise LocalError(f"randbytes(16) returned {len(data)} bytes")
            data[6] = data[6] & 0x0F | 0x40
            data[8] = data[8] & 0x3F | 0x80
            drawn = Uuid(bytes(data))
            if not drawn.is_reserved and not str(drawn).startswith("-"):
                return drawn

    @property
    def is_reserved(self):
        """True for the hundred lowest values: the topic ids and directory ids with a meaning of their own."""
        return self.high == 0 and self.low < RESERVED

    def __bytes__(self):
        cdef uint8_t[16] data
        store_uuid(data, self)
        return PyBytes_FromStringAndSize(<char *>data, 16)

    def __str__(self):
        cdef char[22] text
        cdef uint64_t high = self.high, low = self.low
        cdef int i
        for i in range(10):
            text[i] = ALPHABET[high >> (58 - 6 * i) & 63]
        text[10] = ALPHABET[(high << 2 | low >> 62) & 63]
        for i in range(10):
            text[11 + i] = ALPHABET[low >> (56 - 6 * i) & 63]
        text[21] = ALPHABET[low << 4 & 63]
        return PyUnicode_DecodeASCII(text, 22, NULL)

    def __repr__(self):
        return f"Uuid.from_string({str(self)!r})"

    def __bool__(self):
        return self.high != 0 or self.low != 0

    def __hash__(self):
        cdef uint64_t mixed = (self.high ^ self.low >> 1) * <uint64_t>0x9E3779B97F4A7C15
        cdef Py_hash_t result = <Py_hash_t>(mixed ^ mixed >> 32)
        return -2 if result == -1 else result

    def __reduce__(self):
        return Uuid, (self.__bytes__(),)

    def __eq__(self, other):
        if not isinstance(other, Uuid):
            return NotImplemented
        return self.high == (<Uuid>other).high and self.low == (<Uuid>other).low

    def __lt__(self, other):
        if not isinstance(other, Uuid):
            return NotImplemented
        return compare(self, <Uuid>other) < 0

    def __le__(self, other):
        if not isinstance(other, Uuid):
            return NotImplemented
        return compare(self, <Uuid>other) <= 0

    def __gt__(self, other):
        if not isinstance(other, Uuid):
            return NotImplemented
        return compare(self, <Uuid>other) > 0

    def __ge__(self, other):
        if not isinstance(other, Uuid):
            return NotImplemented
        return compare(self, <Uuid>other) >= 0


cdef int compare(Uuid a, Uuid b) noexcept:
    cdef int64_t left = <int64_t>a.high, right = <int64_t>b.high
    if left == right:
        left = <int64_t>a.low
        right = <int64_t>b.low
    return (left > right) - (left < right)


cdef Uuid uuid_from(const uint8_t *data):
    cdef Uuid made = Uuid.__new__(Uuid)
    made.high = <uint64_t>load_int64(data)
    made.low = <uint64_t>load_int64(data + 8)
    return made


cdef void store_uuid(uint8_t *p, Uuid value) noexcept:
    store_int64(p, <int64_t>value.high)
    store_int64(p + 8, <int64_t>value.low)


ZERO_UUID = Uuid()
METADATA_TOPIC_ID = Uuid(bytes(15) + b"\x01")  # of __cluster_metadata
MIGRATING_DIRECTORY = Uuid()
UNASSIGNED_DIRECTORY = Uuid(bytes(15) + b"\x01")
LOST_DIRECTORY = Uuid(bytes(15) + b"\x02")
