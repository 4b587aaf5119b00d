"""A partition of ``__consumer_offsets``, read from its beginning.

The last record of each key counts, so a log that was compacted, and one that never was, come to the same. Offsets that
are part of a transaction count from its commit marker on, and where another commit came after them they do not.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from kraftcore.core.batch import RecordBatch
from kraftcore.errors import KraftError
from kraftcore.plugins.broker.groups.effects import Committed, Entry
from kraftcore.plugins.broker.groups.group import Group
from kraftcore.plugins.broker.groups.offsets import OpenOffsets
from kraftcore.plugins.broker.groups.records import GroupName, OffsetName, read_committed, read_group, read_key
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.broker.producers import Marker

_logger = logging.getLogger("kraftcore.broker")


@dataclass(slots=True)
class Loaded:
    """What a partition's records come to.

    Attributes:
        groups: by id; also those that only have offsets.
        offsets: by group and partition.
        open: offsets in transactions that had not ended, by producer id, group and partition; None: deleted there,
            or changed by a later commit.
        modern: ids of groups of other protocols (KIP-848, KIP-932, KIP-1071).
    """

    groups: dict[str, Group] = field(default_factory=dict)
    offsets: dict[str, dict[TopicPartition, Committed]] = field(default_factory=dict)
    open: dict[int, OpenOffsets] = field(default_factory=dict)
    modern: set[str] = field(default_factory=set)


class Loader:
    """Takes batches in order; ``finish`` says what they come to.

    Args:
        name: of the partition, for messages.
    """

    def __init__(self, name: TopicPartition) -> None:
        self._name = name
        # By key: (offset, value). Keys stay bytes until the end: of a million commits a few thousand are left.
        self._latest: dict[bytes, tuple[int, bytes | None]] = {}
        self._open: dict[int, dict[bytes, tuple[int, bytes | None]]] = {}
        self._began: dict[int, int] = {}  # first offset of each open transaction
        self._holders: dict[bytes, int] = {}  # how many open transactions change a key
        self.records = 0

    def add(self, batch: RecordBatch) -> None:
        """The next batch.

        Raises:
            CorruptBatchError: it is damaged.
        """
        if batch.is_control:
            self._end_transaction(batch)
            return
        latest, is_open = self._latest, batch.is_transactional
        if is_open:
            latest = self._open.setdefault(batch.producer_id, {})
            self._began.setdefault(batch.producer_id, batch.base_offset)
        for record in batch:
            self.records += 1
            if record.key is not None:
                if record.value is None and record.key in self._holders:
                    self._delete_open(record.key)
                if is_open and record.key not in latest:
                    self._holders[record.key] = self._holders.get(record.key, 0) + 1
                latest[record.key] = (record.offset, record.value)

    def _delete_open(self, key: bytes) -> None:
        """What is deleted is no part of open transactions any more (Kafka 4.3.1, OffsetMetadataManager.replay)."""
        del self._holders[key]
        for changes in self._open.values():
            changes.pop(key, None)

    def _end_transaction(self, batch: RecordBatch) -> None:
        changes = self._open.pop(batch.producer_id, {})
        self._began.pop(batch.producer_id, None)
        for key in changes:
            left = self._holders[key] - 1
            if left:
                self._holders[key] = left
            else:
                del self._holders[key]
        for record in batch:
            marker = Marker.read(batch, record)
            if marker is not None and marker.is_commit:
                for key, (offset, value) in changes.items():
                    before = self._latest.get(key)
                    if before is None or before[0] < offset:
                        self._latest[key] = (offset, value)

    def open_from(self, end: int) -> int:
        """Where the first transaction that has not ended begins; ``end`` if there is none."""
        return min(self._began.values(), default=end)

    def needed_from(self, end: int) -> int:
        """Where the first record stands that counts, or may when a transaction ends; no more than ``end``."""
        live = (offset for offset, value in self._latest.values() if value is not None)
        return min(end, self.open_from(end), min(live, default=end))

    def live(self, end: int) -> list[Entry]:
        """The last record of each key that stands below an offset, tombstones left out."""
        return [(key, value) for key, (offset, value) in self._latest.items() if offset < end and value is not None]

    def movable(self, keys: Iterable[bytes], end: int) -> list[Entry]:
        """Of these keys, the last records that stand below an offset and can be written again at the end.

        Left out are tombstones, and keys that an open transaction changes: what it holds counts only if it stands
        behind all else.
        """
        found = ((key, *self._latest[key]) for key in keys if key not in self._holders)
        return [(key, value) for key, offset, value in found if offset < end and value is not None]

    def finish(self, now_ms: int) -> Loaded:
        """What is left."""
        loaded = Loaded()
        for key, (_, value) in self._latest.items():
            if value is None:
                continue
            try:
                self._take(loaded, key, value)
            except KraftError as error:
                # Somebody else wrote it, or a newer Kafka: the rest is needed all the same.
                _logger.warning("%s: a record is left out: key %s: %s", self._name, key.hex(), error)
        groups = set(loaded.offsets)
        for producer_id, changes in self._open.items():
            for key, (offset, value) in changes.items():
                before = self._latest.get(key)
                is_over = value is None or (before is not None and before[0] > offset)
                try:
                    name = read_key(key)
                    change = None if is_over else (offset, read_committed(value or b""))
                except KraftError as error:
                    _logger.warning("%s: a record is left out: key %s: %s", self._name, key.hex(), error)
                    continue
                if isinstance(name, OffsetName):
                    loaded.open.setdefault(producer_id, {})[name.group, name.part] = change
                    groups.add(name.group)
        for group in groups:
            if group not in loaded.groups and group not in loaded.modern:
                loaded.groups[group] = Group(group, now_ms)
        return loaded

    def _take(self, loaded: Loaded, key: bytes, value: bytes) -> None:
        name = read_key(key)
        if isinstance(name, OffsetName):
            loaded.offsets.setdefault(name.group, {})[name.part] = read_committed(value)
        elif isinstance(name, GroupName):
            if name.is_classic:
                loaded.groups[name.group] = read_group(name.group, value)
            else:
                loaded.modern.add(name.group)
