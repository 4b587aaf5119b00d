"""The leader's high watermark: up to where a majority of the voters has the log.

One object per leader epoch. Sources: KIP-595 (high watermark, own-epoch rule), Raft 5.4.2, KIP-853 (a leader outside
the voter set does not count itself), and Kafka's rule that the value never falls.
"""

# Voters by position in three parallel arrays; sets have 1 to 9 entries, so a scan beats a hash. With n voters in
# descending order of log end offset the value is that at index n // 2: so many voters, and it, have everything below.
# -1 is unknown and so sorts last.
#
# `update` relies on this: the current value was computed from the current arrays, so an offset that does not exceed it
# cannot raise it. Every change of the arrays therefore ends in `recompute`.

cimport cython
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, int64_t

from kraftcore.errors import LocalError

cdef enum:
    UNKNOWN = -1


@cython.final
@cython.auto_pickle(False)
cdef class Watermark:
    """High watermark over a voter set.

    A voter is its replica id, >= 0: a voter set has one entry per id. When another directory takes over an id,
    ``forget`` it.

    Args:
        epoch_start_offset: log end offset at the election, >= 0: the offset of the epoch's LeaderChange record.
        voters: ids of the voter set in force; the leader is one of them or not.
    Raises:
        LocalError: negative offset, or a voter set that ``set_voters`` would refuse.
    """

    cdef readonly int64_t epoch_start_offset
    cdef int64_t _value
    cdef Py_ssize_t _count
    cdef int32_t* _ids
    cdef int64_t* _offsets
    cdef int64_t* _sorted

    def __cinit__(self):
        self._value = UNKNOWN

    def __init__(self, int64_t epoch_start_offset, voters=()):
        if epoch_start_offset < 0:
            raise LocalError(f"epoch_start_offset {epoch_start_offset} is negative")
        self.epoch_start_offset = epoch_start_offset
        voters = tuple(voters)
        if voters:
            self.set_voters(voters)

    def __dealloc__(self):
        PyMem_Free(self._ids)
        PyMem_Free(self._offsets)
        PyMem_Free(self._sorted)

    cdef bint _recompute(self) noexcept:
        cdef Py_ssize_t i, j
        cdef int64_t offset
        for i in range(self._count):  # insertion sort, descending
            offset = self._offsets[i]
            j = i
            while j > 0 and self._sorted[j - 1] < offset:
                self._sorted[j] = self._sorted[j - 1]
                j -= 1
            self._sorted[j] = offset
        offset = self._sorted[self._count // 2]
        # Own-epoch rule: an older epoch's record is not committed by counting copies. Monotonic: a new voter may lag.
        if offset > self.epoch_start_offset and offset > self._value:
            self._value = offset
            return True
        return False

    def update(self, int32_t voter_id, int64_t log_end_offset):
        """Take over how far a voter's log reaches: a follower's fetch offset, or the leader's own flushed end.

        A lower offset than before is taken over too (the voter lost its disk); the high watermark stays.

        Args:
            voter_id: an id that is not a voter is an observer: ignored.
            log_end_offset: exclusive, >= 0.
        Returns:
            True if the high watermark rose.
        Raises:
            LocalError: negative offset; nothing is changed.
        """
        cdef Py_ssize_t i
        if log_end_offset < 0:
            raise LocalError(f"log end offset {log_end_offset} of voter {voter_id} is negative")
        for i in range(self._count):
            if self._ids[i] == voter_id:
                self._offsets[i] = log_end_offset
                if log_end_offset <= self._value or log_end_offset <= self.epoch_start_offset:
                    return False
                return self._recompute()
        return False

    def set_voters(self, voters, log_end_offsets=None):
        """Put another voter set in force (at once when it is appended, committed or not).

        Voters that stay keep their offsets; new ones are unknown, unless ``log_end_offsets`` has them.

        Args:
            voters: replica ids, >= 0, at least one, no id twice.
            log_end_offsets: id -> offset of replicas that were observers until now; other ids in it are ignored.
        Returns:
            True if the high watermark rose (a lagging voter left). It never falls.
        Raises:
            LocalError: empty set, duplicate or negative id, negative offset; nothing is changed.
        """
        cdef Py_ssize_t i, count
        cdef int32_t* ids
        cdef int64_t* offsets
        cdef int64_t* ordered
        wanted = [int(voter) for voter in voters]
        count = len(wanted)
        if count == 0:
            raise LocalError("a voter set needs at least one voter")
        if len(set(wanted)) != count:
            raise LocalError(f"voter set {wanted} has an id twice")
        if min(wanted) < 0 or max(wanted) > 0x7FFFFFFF:
            raise LocalError(f"voter set {wanted}: replica ids are 0 to 2147483647")
        known = dict(log_end_offsets or {})
        known.update({voter: offset for voter, offset in self.voters().items() if offset is not None})
        wanted_offsets = [known.get(voter, UNKNOWN) for voter in wanted]
        for voter, offset in zip(wanted, wanted_offsets):
            if voter in known and not 0 <= offset <= 0x7FFFFFFFFFFFFFFF:
                raise LocalError(f"log end offset {offset} of voter {voter} is out of range")
        ids = <int32_t*>PyMem_Malloc(count * sizeof(int32_t))
        offsets = <int64_t*>PyMem_Malloc(count * sizeof(int64_t))
        ordered = <int64_t*>PyMem_Malloc(count * sizeof(int64_t))
        if ids == NULL or offsets == NULL or ordered == NULL:
            PyMem_Free(ids)
            PyMem_Free(offsets)
            PyMem_Free(ordered)
            raise MemoryError
        for i in range(count):
            ids[i] = wanted[i]
            offsets[i] = wanted_offsets[i]
        PyMem_Free(self._ids)
        PyMem_Free(self._offsets)
        PyMem_Free(self._sorted)
        self._ids, self._offsets, self._sorted, self._count = ids, offsets, ordered, count
        return self._recompute()

    def forget(self, int32_t voter_id):
        """Make a voter's offset unknown again, as when its id now belongs to another directory."""
        cdef Py_ssize_t i
        for i in range(self._count):
            if self._ids[i] == voter_id:
                self._offsets[i] = UNKNOWN

    @property
    def value(self):
        """The high watermark (exclusive: below it is committed), or None until a record of this epoch is committed."""
        return None if self._value == UNKNOWN else self._value

    def voters(self):
        """Each voter's log end offset, None while unknown, in the order of ``set_voters``; a copy."""
        cdef Py_ssize_t i
        return {self._ids[i]: None if self._offsets[i] == UNKNOWN else self._offsets[i] for i in range(self._count)}

    def log_end_offset(self, int32_t voter_id):
        """A voter's log end offset; None while unknown or if it is not a voter."""
        cdef Py_ssize_t i
        for i in range(self._count):
            if self._ids[i] == voter_id:
                return None if self._offsets[i] == UNKNOWN else self._offsets[i]
        return None

    def __repr__(self):
        return f"Watermark(value={self.value}, epoch_start_offset={self.epoch_start_offset}, voters={self.voters()})"
