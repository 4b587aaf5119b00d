"""The committed offsets of a shard's groups.

What is read is committed in both senses: a change is seen when its record is. What is decided about (does an offset
exist that must be deleted?) looks at everything that was appended.
"""

from __future__ import annotations

from collections.abc import Iterator

from kraftcore.plugins.broker.groups.effects import NEVER, Committed, Write
from kraftcore.plugins.broker.groups.group import CONSUMER, Group, State
from kraftcore.plugins.broker.partition import TopicPartition


class Offsets:
    """See the module text.

    Attributes:
        committed: by group and partition.
        unstable: partitions whose offset an open transaction may change, by group.
    """

    def __init__(self) -> None:
        self.committed: dict[str, dict[TopicPartition, Committed]] = {}
        self.unstable: dict[str, set[TopicPartition]] = {}
        # The last change of each that was appended, and is not committed yet.
        self._appended: dict[str, dict[TopicPartition, tuple[Write, Committed | None]]] = {}

    def appended(self, write: Write) -> None:
        """Its records are in the log."""
        for group, part, value in write.changes:
            self._appended.setdefault(group, {})[part] = (write, value)

    def settled(self, write: Write) -> None:
        """Its records are committed."""
        for group, part, value in write.changes:
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
        """A group's offsets with all that was appended."""
        waiting = self._appended.get(group, {})
        for part, value in self.committed.get(group, {}).items():
            if part not in waiting:
                yield part, value
        for part, (_, change) in waiting.items():
            if change is not None:
                yield part, change

    @property
    def groups(self) -> set[str]:
        """Ids of all groups that have some."""
        return {*self.committed, *self._appended}

    def has_any(self, group: str) -> bool:
        """Whether a group has some."""
        return next(self.latest(group), None) is not None

    def expired(self, group: Group, retention_ms: int, now_ms: int) -> tuple[list[TopicPartition], bool]:
        """What of a group's offsets is to be deleted, and whether nothing is left then.

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
