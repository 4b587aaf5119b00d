"""The history of a value that records in the log change: which one is in force at which offset.

A replica keeps two of them, one for the voter set and one for kraft.version. Both take effect when they are appended,
committed or not, and a truncation brings the earlier value back (KIP-853, "Voters Set" and "Internal Listener").
"""

# An entry at offset o is in force from o until the next entry. Below the first entry the initial value is in force
# (static voters, kraft.version 0), until `compact_to` drops entries: from then on what lies below the first kept entry
# is unknown. The newest entry is also kept in fields: nearly every call asks for it, and a look-up in the SortedDict is
# several Python calls.

from types import GenericAlias

cimport cython
from libc.stdint cimport INT64_MIN, int64_t
from sortedcontainers import SortedDict

from kraftcore.errors import InvariantError, LocalError


# The 0-0 checkpoint counts as "before the log": its voter set enters the history here.
BOOTSTRAP_OFFSET = -1


@cython.final
@cython.auto_pickle(False)
cdef class History:
    """Values by the offset from which they are in force, oldest first.

    Generic over the value, which should be immutable: it is handed out as is.

    Args:
        initial: in force below the first entry, for example the static voter set.
    """

    cdef object _entries  # SortedDict: offset -> value
    cdef int64_t _latest_offset  # INT64_MIN: no entry
    cdef object _latest
    cdef bint _compacted
    cdef readonly object initial

    __class_getitem__ = classmethod(GenericAlias)

    def __init__(self, initial):
        self._entries = SortedDict()
        self.initial = initial
        self._compacted = False
        self._refresh()

    cdef int _refresh(self) except -1:
        if self._entries:
            offset, self._latest = self._entries.peekitem()
            self._latest_offset = offset
        else:
            self._latest_offset = INT64_MIN
            self._latest = self.initial
        return 0

    @property
    def latest(self):
        """The value in force at the end of the log, committed or not."""
        return self._latest

    @property
    def latest_offset(self):
        """The offset of the newest entry (-1: from the 0-0 checkpoint); None while there is only the initial value."""
        return None if self._latest_offset == INT64_MIN else self._latest_offset

    def add(self, int64_t offset, value):
        """Append an entry.

        Args:
            offset: of the record that carries the value; -1 for the 0-0 checkpoint; for a snapshot its end offset - 1.
            value: in force from there on.
        Raises:
            LocalError: ``offset`` is below -1 or not above the newest entry; the history is unchanged.
        """
        if offset < -1:
            raise LocalError(f"history entry at offset {offset}: the lowest possible is -1 (the 0-0 checkpoint)")
        if offset <= self._latest_offset:
            raise LocalError(
                f"history entry at offset {offset}: must be above the newest one, {self._latest_offset}; truncate first"
            )
        self._entries[offset] = value
        self._latest_offset = offset
        self._latest = value

    def at(self, int64_t offset):
        """The value in force at ``offset``: that of the last entry at or below it.

        Raises:
            LocalError: a snapshot replaced that part of the history (see ``compact_to``).
        Complexity: O(1) at or above the newest entry, else O(log n).
        """
        cdef Py_ssize_t index
        if offset >= self._latest_offset:
            return self._latest
        index = self._entries.bisect_right(offset)
        if index:
            return self._entries.values()[index - 1]
        if self._compacted:
            raise LocalError(
                f"history at offset {offset} is gone: it starts at {self._entries.keys()[0]}, kept for a snapshot"
            )
        return self.initial

    def last_committed(self, int64_t high_watermark):
        """The newest value whose record is committed.

        Args:
            high_watermark: exclusive; 0 while it is unknown: then only the 0-0 checkpoint and the initial value count.
        Raises:
            LocalError: as ``at``.
        """
        return self.at(high_watermark - 1 if high_watermark > INT64_MIN else high_watermark)

    def uncommitted(self, int64_t high_watermark):
        """Entries at or above the high watermark, oldest first, as (offset, value) pairs in a tuple."""
        if high_watermark > self._latest_offset:
            return ()
        return tuple([(offset, self._entries[offset]) for offset in self._entries.irange(high_watermark)])

    def truncate_to(self, int64_t offset):
        """Forget entries at or above ``offset``, the new log end offset; earlier values are in force again.

        Returns:
            True if an entry was dropped.
        Raises:
            LocalError: that would drop the entry kept for a snapshot: ``clear`` and load it again. Unchanged then.
        """
        cdef Py_ssize_t keep
        if offset > self._latest_offset:
            return False
        keep = self._entries.bisect_left(offset)
        if keep == 0 and self._compacted:
            raise LocalError(
                f"history cannot be truncated to offset {offset}: nothing is known below {self._entries.keys()[0]}, "
                "kept for a snapshot; clear it and load the snapshot"
            )
        for key in list(self._entries.keys()[keep:]):
            del self._entries[key]
        self._refresh()
        return True

    def compact_to(self, int64_t offset):
        """Forget what a snapshot replaced: of the entries below ``offset`` only the last, in force there, stays.

        Kafka also drops that one when an entry sits exactly at ``offset``; truncating that entry then loses the voter
        set of the snapshot, so it is kept here.

        Args:
            offset: the snapshot's (exclusive) end offset.
        Returns:
            How many entries were dropped.
        """
        cdef Py_ssize_t drop = self._entries.bisect_left(offset) - 1
        if drop < 0:
            return 0
        for key in list(self._entries.keys()[:drop]):
            del self._entries[key]
        self._compacted = True
        return drop

    def clear(self):
        """Back to the initial value alone, as before loading a snapshot."""
        self._entries.clear()
        self._compacted = False
        self._refresh()

    def check_invariants(self):
        """Raise InvariantError unless the cached newest entry and the order hold (for tests; O(n))."""
        keys = list(self._entries)
        if keys != sorted(set(keys)) or (keys and keys[0] < -1):
            raise InvariantError(f"history offsets out of order: {keys}")
        expected = self._entries.peekitem() if keys else (None, self.initial)
        if (self.latest_offset, self._latest) != expected:
            raise InvariantError(f"history's newest entry is {(self.latest_offset, self._latest)}, expected {expected}")
        if self._compacted and not keys:
            raise InvariantError("a compacted history must keep an entry")

    def __len__(self):
        return len(self._entries)

    def __iter__(self):
        """(offset, value) of every entry, oldest first, without the initial value; a copy, safe against changes."""
        return iter(list(self._entries.items()))

    def __repr__(self):
        return f"History(initial={self.initial!r}, entries={dict(self._entries)!r})"
