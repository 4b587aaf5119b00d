"""The committed offsets of a shard's groups.

Clients read an offset once its record is committed. A decision, such as whether an offset exists that must be deleted,
looks at all records that were appended.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from kraftcore.plugins.broker.groups.effects import NEVER, Committed, Write
from kraftcore.plugins.broker.groups.group import CONSUMER, Group, State
from kraftcore.plugins.broker.partition import TopicPartition

OpenOffsets = dict[tuple[str, TopicPartition], tuple[int, Committed] | None]
"""What an open transaction commits, by group and partition: its place in the order of the log, and the offset. None:
nothing any more, as a later commit replaced it."""
_WRITTEN = 2**62  # places of new records begin here, behind those of all that were read


class Offsets:
    """The committed offsets of the groups of one shard.

    Args:
        committed: the committed offsets, by group and partition.
        open_transactions: the offsets in open transactions, by producer id.

    Attributes:
        committed: as given.
        unstable: partitions whose offset an open transaction may change, by group.
    """

    def __init__(
        self, committed: dict[str, dict[TopicPartition, Committed]], open_transactions: dict[int, OpenOffsets]
    ) -> None:
        self.committed = committed
        self.unstable: dict[str, set[TopicPartition]] = {}
        self._open = open_transactions
        self._places = count(_WRITTEN)
        # Producer ids of the open transactions that change an offset.
        self._holders: dict[tuple[str, TopicPartition], set[int]] = {}
        for producer_id, changes in open_transactions.items():
            for group, part in changes:
                self._hold(producer_id, group, part)
        # The last appended change of each offset that is not committed yet.
        self._appended: dict[str, dict[TopicPartition, tuple[Write, Committed | None]]] = {}

    def _hold(self, producer_id: int, group: str, part: TopicPartition) -> None:
        self._holders.setdefault((group, part), set()).add(producer_id)
        self.unstable.setdefault(group, set()).add(part)

    def _release(self, producer_id: int, group: str, part: TopicPartition) -> None:
        holders = self._holders[group, part]
        holders.discard(producer_id)
        if not holders:
            del self._holders[group, part]
            parts = self.unstable[group]
            parts.discard(part)
            if not parts:
                del self.unstable[group]

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Take over or drop the offsets of a transaction whose marker is committed."""
        for (group, part), change in self._open.pop(producer_id, {}).items():
            self._release(producer_id, group, part)
            if change is None or not is_commit:
                continue
            place, value = change
            self.committed.setdefault(group, {})[part] = value
            for other in self._holders.get((group, part), ()):
                before = self._open[other][group, part]
                if before is not None and before[0] < place:
                    self._open[other][group, part] = None

    def forget_group(self, group: str) -> None:
        """Drop a deleted group's offsets in open transactions."""
        for part in self.unstable.pop(group, ()):
            for producer_id in self._holders.pop((group, part)):
                del self._open[producer_id][group, part]

    def appended(self, write: Write) -> None:
        """Note a write whose records are in the log."""
        if write.producer is not None:
            producer_id = write.producer[0]
            changes = self._open.setdefault(producer_id, {})
            for group, part, value in write.changes:
                changes[group, part] = None if value is None else (next(self._places), value)
                self._hold(producer_id, group, part)
            return
        for group, part, value in write.changes:
            self._appended.setdefault(group, {})[part] = (write, value)
            for producer_id in list(self._holders.get((group, part), ())):
                if value is None:  # the transactions change it no more, as in Kafka 4.3.1: OffsetMetadataManager.replay
                    del self._open[producer_id][group, part]
                    self._release(producer_id, group, part)
                else:
                    self._open[producer_id][group, part] = None  # what is behind it in the log counts

    def settled(self, write: Write) -> None:
        """Take over the offsets of a committed write; those of a transaction count when the transaction ends."""
        for group, part, value in () if write.producer is not None else write.changes:
            waiting = self._appended.get(group, {})
            found = waiting.get(part)
            if found is not None and found[0] is write:
                del waiting[part]
                if not waiting:
                    del self._appended[group]
            if value is not None:
                self.committed.setdefault(group, {})[part] = value
            else:
                self._forget(group, part)

    def _forget(self, group: str, part: TopicPartition) -> None:
        offsets = self.committed.get(group)
        if offsets is not None:
            offsets.pop(part, None)
            if not offsets:
                del self.committed[group]

    def latest(self, group: str) -> Iterator[tuple[TopicPartition, Committed]]:
        """A group's offsets as of all appended records."""
        waiting = self._appended.get(group, {})
        for part, value in self.committed.get(group, {}).items():
            if part not in waiting:
                yield part, value
        for part, (_, change) in waiting.items():
            if change is not None:
                yield part, change

    def latest_of(self, group: str, part: TopicPartition) -> Committed | None:
        """A group's offset of a partition as of all appended records; None: there is none."""
        waiting = self._appended.get(group, {}).get(part)
        return self.committed.get(group, {}).get(part) if waiting is None else waiting[1]

    @property
    def groups(self) -> set[str]:
        """The ids of all groups that have offsets."""
        return {*self.committed, *self._appended}

    def has_any(self, group: str) -> bool:
        """Whether a group has offsets."""
        return next(self.latest(group), None) is not None

    def expired(self, group: Group, retention_ms: int, now_ms: int) -> tuple[list[TopicPartition], bool]:
        """The partitions whose offsets have expired, and whether the group has no other offsets.

        Offsets of an empty group are kept for the retention since it became empty; of a group with members, those of
        topics that nobody subscribes to, since they were committed; of a group that nobody joins, since then, too
        (KIP-211, KIP-496).
        """
        gone: list[TopicPartition] = []
        is_all = True
        since: int | None = None
        if group.protocol_type is not None:
            if group.state is State.EMPTY:
                since = group.state_since_ms if group.state_since_ms >= 0 else None
            elif group.protocol_type != CONSUMER or group.subscribed_topics is None or group.state is not State.STABLE:
                return [], not self.has_any(group.id)
        unstable = self.unstable.get(group.id, ())
        for part, value in self.latest(group.id):
            begin = value.commit_ms if since is None else since
            is_over = now_ms - begin >= retention_ms if value.expire_ms == NEVER else now_ms >= value.expire_ms
            if is_over and part not in unstable and not group.is_subscribed(part.topic):
                gone.append(part)
            else:
                is_all = False
        return gone, is_all and not unstable
