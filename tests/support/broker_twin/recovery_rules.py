"""What Kafka and ours may make differently of a damaged log: for each a condition on what is seen of both, and why.

What was written without damage is known, so that it can be said which of the two is right.
"""

from __future__ import annotations

from typing import Any

from broker_twin.recovery import ENDED, UNREADABLE, Found
from kraftcore.core.batch import RecordBatch, iter_batches
from kraftcore.core.batch.layout import LENGTH_POSITION, OVERHEAD_BYTES
from kraftcore.errors import CorruptDataError

_NOWHERE = (-1, -1, -1)
_BEHIND = {
    "repeated",
    "next",
    "appended",
    "end after",
    "read after",
    "disk",
}  # what is seen once something was appended


def unexplained(found: Found) -> dict[str, list[tuple[str, Any, Any]]]:
    """The aspects of a difference for which there is no rule."""
    theirs, ours = found.theirs, found.ours
    if theirs["state"] == ENDED:
        return {}  # one log or checkpoint that it cannot load keeps the whole broker from starting
    if ours["state"] != theirs["state"]:
        # Ours takes a log offline in which bytes are damaged that had been durable, also in front of the log's start.
        # Kafka serves what it can around them, or cuts the log there.
        is_damaged = theirs["state"] == "online" and (_loses(found, theirs) or not _is_sound(theirs))
        return {} if is_damaged else found.aspects
    log = Truth(found, ours)
    left = {}
    for name, places in found.aspects.items():
        kept = [each for each in places if not _is_explained(found, log, name, *each)]
        if kept:
            left[name] = kept
    return left


class Truth:
    """What follows from the batches that a log still holds."""

    def __init__(self, found: Found, view: dict[str, Any]) -> None:
        self.start, self.end = view["start"][0], view["end"][0]
        self.batches: list[RecordBatch] = [
            batch
            for data in found.truth.values()
            for batch in iter_batches(data)
            if view["read"].get(str(batch.last_offset), UNREADABLE) != UNREADABLE
        ]

    def at_time(self, when: int) -> tuple[int, int, int]:
        """The first record that is not older."""
        for batch in self.batches:
            if batch.max_timestamp_ms >= when:
                for record in batch:
                    if record.timestamp_ms >= when and record.offset >= self.start:
                        return record.offset, record.timestamp_ms, batch.leader_epoch
        return _NOWHERE

    def epoch_of(self, offset: int) -> int:
        """The leader epoch of a record."""
        return next((each.leader_epoch for each in self.batches if offset <= each.last_offset), -1)

    def epoch_end(self, epoch: int) -> tuple[int, int, int]:
        """As OffsetForLeaderEpoch answers."""
        below = [each.leader_epoch for each in self.batches if each.leader_epoch <= epoch]
        above = [each.base_offset for each in self.batches if each.leader_epoch > epoch]
        if not below:
            return 0, epoch, max(self.start, min(above, default=self.end))
        return 0, max(below), min(above, default=self.end)


def _values(found: Found) -> dict[str, str]:
    return {
        str(record.offset): bytes(record.value or b"").hex()
        for data in found.truth.values()
        for batch in iter_batches(data)
        for record in batch
    }


def _loses(found: Found, view: dict[str, Any]) -> bool:
    """Whether something that was written at or behind the log's start is not read."""
    start = view["start"][0]
    return any(view["read"].get(offset) != value for offset, value in _values(found).items() if int(offset) >= start)


def _is_explained(found: Found, log: Truth, name: str, path: str, theirs: Any, ours: Any) -> bool:
    field = path.strip(".")
    if name == "disk" and field.endswith(".snapshot"):
        # Ours keeps snapshots of producers as long as their segments. Kafka removes those that are not above the log's
        # start (ProducerStateManager.truncateAndReload), and those of segments that were swapped.
        return True
    if name == "disk" and field.endswith(".log") and found.is_clean and _ends_torn(theirs, ours):
        return True  # after a stop in order Kafka leaves what a torn batch has left; ours cuts it
    if (field.endswith(".txnindex") and ours) or (name == "aborted" and set(theirs) < set(ours)):
        return True  # Kafka does without an index of aborted transactions that is gone; ours makes it anew
    if name == "aborted" and set(ours) < set(theirs) and not _are_there(found, set(theirs) - set(ours)):
        # Kafka names what begins in front of the next segment, even where that leaves a gap behind the records that it
        # sends (LocalLog.addAbortedTransactions); ours what begins in front of their end.
        return True
    if name == "producers" and field == "" and len(theirs) < len(ours) and all(each in ours for each in theirs):
        return True  # Kafka forgets producers whose snapshots are gone, after a stop in order; ours reads the batches
    if name in _BEHIND and _takes_again(found):
        return True  # and takes the last batch of such a producer once more: all that follows has other offsets
    if name == "times" and ours == log.at_time(int(field)):
        return True  # Kafka believes time indexes that are damaged, short or missing; ours makes them anew
    if name == "epochs" and ours == log.epoch_end(int(field)):
        return True  # Kafka believes the epochs' checkpoint; ours reads the batches
    if name == "start" and ours[0] == theirs[0] and ours[2] == log.epoch_of(ours[0]):
        return True  # the same
    return _keeps_more(found)


def _takes_again(found: Found) -> bool:
    """Whether Kafka appended a batch that it has, of a producer that ours alone remembers, after a stop in order."""
    if not found.is_clean or not found.ours.get("producers"):
        return False
    theirs = found.theirs
    forgotten = [str(each["producer_id"]) for each in found.ours["producers"] if each not in theirs["producers"]]
    taken = [theirs["repeated"][each] for each in forgotten if each in theirs["repeated"]]
    return any(code == "NONE" and offset >= theirs["end"][0] for code, offset in taken)


def _keeps_more(found: Found) -> bool:
    """Whether Kafka lost or spoilt something that ours has kept; ours lost nothing else, and serves nothing wrong."""
    values = _values(found)
    theirs = {offset for offset, value in found.theirs["read"].items() if values.get(offset) == value}
    ours = {offset for offset, value in found.ours["read"].items() if values.get(offset) == value}
    if not theirs <= ours or len(ours) < len(found.ours["read"]) or not _is_sound(found.ours):
        return False
    return theirs < ours or len(theirs) < len(found.theirs["read"]) or not _is_sound(found.theirs)


def _are_there(found: Found, transactions: set[tuple[int, int]]) -> bool:
    """Whether the first record of one of them is in the log."""
    return any(str(first) in found.theirs["read"] for first, _ in transactions)


def _ends_torn(theirs: str | None, ours: str | None) -> bool:
    """Whether Kafka's file is ours and the beginning of a batch behind it."""
    if not theirs or ours is None or not theirs.startswith(ours):
        return False
    rest = bytes.fromhex(theirs[len(ours) :])
    length = int.from_bytes(rest[LENGTH_POSITION : LENGTH_POSITION + 4], "big", signed=True)
    return len(rest) < OVERHEAD_BYTES or len(rest) < length + LENGTH_POSITION + 4


def _is_sound(view: dict[str, Any]) -> bool:
    """Whether its files hold batches and nothing else."""
    try:
        for data in view["disk"]["logs"].values():
            for _ in iter_batches(bytes.fromhex(data)):
                pass
    except CorruptDataError:
        return False
    return True
