"""The image: the state of a cluster that the records of its metadata log give."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from kraftcore.errors import LocalError, MetadataRecordError
from kraftcore.metadata.acls import Acls
from kraftcore.metadata.cluster import Brokers, Controllers
from kraftcore.metadata.configs import Configs
from kraftcore.metadata.delta import Delta
from kraftcore.metadata.features import Features
from kraftcore.metadata.frozen import FrozenImage
from kraftcore.metadata.journal import Change, Journal, Part
from kraftcore.metadata.partitions import Partitions
from kraftcore.metadata.producer_ids import ProducerIds
from kraftcore.metadata.quotas import Quotas
from kraftcore.metadata.scram import Scram
from kraftcore.metadata.tokens import Tokens
from kraftcore.metadata.topics import Topics
from kraftcore.protocol.features import MetadataVersion
from kraftcore.protocol.metadata import MetadataRecordType, decode_metadata_record
from kraftcore.protocol.records.clear_elr_record import ClearElrRecord
from kraftcore.protocol.records.register_broker_record import RegisterBrokerRecord
from kraftcore.protocol.records.remove_topic_record import RemoveTopicRecord
from kraftcore.protocol.records.topic_record import TopicRecord
from kraftcore.protocol.records.unregister_broker_record import UnregisterBrokerRecord
from kraftcore.protocol.schema import MetadataRecord

_CHUNK = 4096  # values that are applied at a time


class _Place(NamedTuple):
    # A position in the changes of the mappings, and in those of the table of partitions.
    journal: int
    partitions: int


class _Transaction(NamedTuple):
    # An open transaction: the position before it, and its records so far with their offsets. The list is shared with
    # later values of the same transaction: `size` is how many records belong to this one.
    place: _Place
    records: list[tuple[MetadataRecord, int]]
    size: int


class _Mark(NamedTuple):
    offset: int
    place: _Place
    transaction: _Transaction | None


class Image:
    """The state of a KRaft cluster: takes records, can be read, and can be rolled back.

    Args:
        ahead: records of a metadata transaction (KIP-868) take effect at once, as the active controller needs it, and
            an AbortTransaction record takes them back. Otherwise they are held back until EndTransaction.

    Attributes:
        features, brokers, controllers, topics, partitions, configs, quotas, producer_ids, acls, scram, tokens: the
            parts, read-only.
        registration_offsets: offset of the newest registration record of each broker, as far as `apply` was given
            offsets. Snapshots do not have them: see `date_registrations`.
    """

    def __init__(self, *, ahead: bool = False) -> None:
        self._journal = Journal()
        self._marks: list[_Mark] = []
        self._ahead = ahead
        self._transaction: _Transaction | None = None
        self.features = Features(self._journal)
        self.brokers = Brokers(self._journal)
        self.controllers = Controllers(self._journal)
        self.topics = Topics(self._journal)
        self.partitions = Partitions()
        self.configs = Configs(self._journal)
        self.quotas = Quotas(self._journal)
        self.producer_ids = ProducerIds(self._journal)
        self.acls = Acls(self._journal)
        self.scram = Scram(self._journal)
        self.tokens = Tokens(self._journal)
        self.registration_offsets: Part[int, int] = Part(self._journal)
        self._handlers: dict[int | None, Callable[[Any], object]] = self._make_handlers()

    @property
    def in_transaction(self) -> bool:
        """Whether a metadata transaction is open."""
        return self._transaction is not None

    # --- records in -----------------------------------------------------------------------------------------------

    def apply(self, record: MetadataRecord, offset: int = -1) -> None:
        """Apply a record.

        Args:
            record: of any type of Kafka 4.3.1.
            offset: its offset in the log, or that of its snapshot; -1 if it does not matter.

        Raises:
            MetadataRecordError: the record does not fit; the image is as before.
        """
        kind = record.schema.api_key
        if kind in _TRANSACTIONS:
            _TRANSACTIONS[kind](self, record)
            return
        transaction = self._transaction
        if transaction is None or self._ahead:
            self._apply(kind, record, offset)
        if transaction is not None:
            transaction.records.append((record, offset))
            self._transaction = transaction._replace(size=transaction.size + 1)

    def apply_values(self, values: Iterable[bytes | None], offset: int = -1) -> None:
        """Apply encoded records, one after the other.

        Partitions go straight into their table, without objects.

        Args:
            values: of the metadata log or a snapshot.
            offset: of the first one; -1 if it does not matter.

        Raises:
            MetadataRecordError, UnsupportedVersionError, WireError: of the first record that cannot be applied; all
                records before it are applied.
        """
        taken = 0
        rest = iter(values)
        while chunk := list(islice(rest, _CHUNK)):
            at = 0
            while at < len(chunk):
                if self._transaction is None:
                    at = self.partitions.take(chunk, at)
                    if at == len(chunk):
                        break
                record = decode_metadata_record(chunk[at] or b"")[0]
                self.apply(record, -1 if offset < 0 else offset + taken + at)
                at += 1
            taken += len(chunk)

    def _apply(self, kind: int | None, record: MetadataRecord, offset: int) -> None:
        handler = self._handlers.get(kind)
        if handler is None:
            raise MetadataRecordError(record, "the image does not know this type")
        handler(record)
        if offset >= 0 and isinstance(record, RegisterBrokerRecord):
            self.registration_offsets.put(record.broker_id, offset)

    def date_registrations(self, offset: int) -> None:
        """Set the offset of all registrations to ``offset``, a snapshot's last, for their own are not known."""
        for broker_id in self.brokers:
            self.registration_offsets.put(broker_id, offset)

    def _make_handlers(self) -> dict[int | None, Callable[[Any], object]]:
        kind = MetadataRecordType
        return {
            kind.REGISTER_BROKER_RECORD: self.brokers.on_register,
            kind.UNREGISTER_BROKER_RECORD: self._on_unregister,
            kind.FENCE_BROKER_RECORD: self.brokers.on_fence,
            kind.UNFENCE_BROKER_RECORD: self.brokers.on_unfence,
            kind.BROKER_REGISTRATION_CHANGE_RECORD: self.brokers.on_change,
            kind.REGISTER_CONTROLLER_RECORD: self.controllers.on_register,
            kind.TOPIC_RECORD: self._on_topic,
            kind.REMOVE_TOPIC_RECORD: self._on_remove_topic,
            kind.PARTITION_RECORD: self.partitions.on_partition,
            kind.PARTITION_CHANGE_RECORD: self.partitions.on_change,
            kind.CLEAR_ELR_RECORD: self._on_clear_elr,
            kind.CONFIG_RECORD: self.configs.on_config,
            kind.CLIENT_QUOTA_RECORD: self.quotas.on_quota,
            kind.PRODUCER_IDS_RECORD: self.producer_ids.on_producer_ids,
            kind.ACCESS_CONTROL_ENTRY_RECORD: self.acls.on_entry,
            kind.REMOVE_ACCESS_CONTROL_ENTRY_RECORD: self.acls.on_remove,
            kind.USER_SCRAM_CREDENTIAL_RECORD: self.scram.on_credential,
            kind.REMOVE_USER_SCRAM_CREDENTIAL_RECORD: self.scram.on_remove,
            kind.DELEGATION_TOKEN_RECORD: self.tokens.on_token,
            kind.REMOVE_DELEGATION_TOKEN_RECORD: self.tokens.on_remove,
            kind.FEATURE_LEVEL_RECORD: self.features.on_feature_level,
            # A NoOp record changes nothing (KIP-835).
            kind.NO_OP_RECORD: _nothing,
            # Records for the migration from ZooKeeper; Kafka 4 reads them and keeps nothing.
            kind.ZK_MIGRATION_STATE_RECORD: _nothing,
        }

    def _on_unregister(self, record: UnregisterBrokerRecord) -> None:
        self.brokers.on_unregister(record)
        self.registration_offsets.drop(record.broker_id)

    def _on_topic(self, record: TopicRecord) -> None:
        self.topics.on_topic(record)
        self.partitions.add_topic(record.topic_id)

    def _on_remove_topic(self, record: RemoveTopicRecord) -> None:
        topic = self.topics.on_remove(record)
        self.partitions.remove_topic(topic.id)
        self.configs.drop_topic(topic.name)

    def _on_clear_elr(self, record: ClearElrRecord) -> None:
        if not record.topic_name:
            for topic_id in self.topics:
                self.partitions.clear_elr(topic_id)
            return
        topic = self.topics.by_name(record.topic_name)
        if topic is None:
            raise MetadataRecordError(record, f"there is no topic {record.topic_name}")
        self.partitions.clear_elr(topic.id)

    # --- records out ----------------------------------------------------------------------------------------------

    def freeze(self) -> FrozenImage:
        """The present state, to be read while this image changes; see `FrozenImage`."""
        return FrozenImage(self)

    def records(self, metadata_version: MetadataVersion | None = None) -> Iterator[tuple[MetadataRecord, int]]:
        """The records of a snapshot of the present state, in Kafka's order, each with its version.

        See `FrozenImage.values`, also for the errors.
        """
        return self.freeze().records(metadata_version)

    # --- transactions ---------------------------------------------------------------------------------------------

    def _on_begin(self, record: MetadataRecord) -> None:
        if self._transaction is not None:
            raise MetadataRecordError(record, "a metadata transaction is open already")
        if self._ahead:
            self._note_changes()
        self._transaction = _Transaction(self._place, [], 0)

    def _on_end(self, record: MetadataRecord) -> None:
        transaction = self._need_transaction(record)
        if not self._ahead:
            self._apply_all(transaction.records)
        self._transaction = None
        self._rest()

    def _on_abort(self, record: MetadataRecord) -> None:
        transaction = self._need_transaction(record)
        if self._ahead:
            self._journal.take_back(transaction.place.journal)
            self.partitions.take_back(transaction.place.partitions)
        self._transaction = None
        self._rest()

    def _need_transaction(self, record: MetadataRecord) -> _Transaction:
        if self._transaction is None:
            raise MetadataRecordError(record, "no metadata transaction is open")
        return self._transaction

    def _apply_all(self, records: Iterable[tuple[MetadataRecord, int]]) -> None:
        # All or nothing.
        self._note_changes()
        start = self._place
        try:
            for record, offset in records:
                self._apply(record.schema.api_key, record, offset)
        except MetadataRecordError:
            self._undo_to(start)
            self._rest()
            raise

    # --- going back -----------------------------------------------------------------------------------------------

    @property
    def _place(self) -> _Place:
        return _Place(self._journal.position, self.partitions.position)

    def _note_changes(self) -> None:
        self._journal.is_on = True
        self.partitions.note_changes()

    def _undo_to(self, place: _Place) -> None:
        self._journal.undo_to(place.journal)
        self.partitions.undo_to(place.partitions)

    def _rest(self) -> None:
        # No rollback is possible any more.
        if not self._marks and (self._transaction is None or not self._ahead):
            self._journal.switch_off()
            self.partitions.switch_off()

    def mark(self, offset: int) -> None:
        """Note the present state as the state that all records below ``offset`` give.

        From the first mark on changes are noted, and kept in memory until they are `committed`.

        Raises:
            LocalError: there is a mark at a higher offset.
        """
        if self._marks and offset < self._marks[-1].offset:
            raise LocalError(f"a mark at {offset} behind the one at {self._marks[-1].offset}")
        self._note_changes()
        self._marks.append(_Mark(offset, self._place, self._transaction))

    def committed(self, offset: int) -> None:
        """Forget the changes below the newest mark at or below ``offset``: they are never rolled back."""
        marks = self._marks
        kept = 0
        while kept + 1 < len(marks) and marks[kept + 1].offset <= offset:
            kept += 1
        del marks[:kept]
        if marks:
            base = marks[0]
            place = base.place if base.transaction is None else base.transaction.place
            self._journal.forget_below(place.journal)
            self.partitions.forget_below(place.partitions)

    def roll_back(self, offset: int | None = None) -> int:
        """Go back to a mark; the marks above it are dropped.

        Args:
            offset: of the mark; None: of the lowest mark, which is the committed state.

        Returns:
            The mark's offset.

        Raises:
            LocalError: there is no such mark.
        """
        at = self._mark_at(offset)
        mark = self._marks[at]
        self._undo_to(mark.place)
        del self._marks[at + 1 :]
        self._transaction = mark.transaction
        if mark.transaction is not None:
            del mark.transaction.records[mark.transaction.size :]
        return mark.offset

    def _mark_at(self, offset: int | None) -> int:
        for at in range(len(self._marks) - 1, -1, -1):
            if self._marks[at].offset == offset:
                return at
        if offset is None and self._marks:
            return 0
        raise LocalError("there is no mark" if offset is None else f"there is no mark at {offset}")

    def delta(self, until: int | None = None) -> Delta:
        """The changes since the lowest mark.

        Args:
            until: offset of a mark to stop at; None: up to now. Applied records of an open transaction are included.

        Raises:
            LocalError: there is no mark, or none at this offset.
        """
        start = self._marks[self._mark_at(None)].place
        end = self._place if until is None else self._marks[self._mark_at(until)].place
        changes = self._journal.changes(start.journal, end.journal)

        def of(part: Part[Any, Any]) -> dict[Any, Change[Any]]:
            return changes.get(id(part), {})

        return Delta(
            features=of(self.features),
            brokers=of(self.brokers),
            controllers=of(self.controllers),
            topics=of(self.topics),
            partitions=self.partitions.changes(start.partitions, end.partitions),
            configs=of(self.configs),
            quotas=of(self.quotas),
            acls=of(self.acls),
            scram=of(self.scram),
            tokens=of(self.tokens),
            next_producer_id=next(iter(of(self.producer_ids).values()), None),
        )

    def forget_marks(self) -> None:
        """Drop all marks: changes are not noted any more."""
        self._marks.clear()
        self._rest()

    def run_ahead(self) -> None:
        """Let records of transactions take effect at once from now on, for this node leads. See ``ahead``.

        The records so far of an open transaction take effect, too; the new leader ends or aborts it.
        """
        if not self._ahead and self._transaction is not None:
            place = self._place
            self._apply_all(self._transaction.records)
            self._transaction = self._transaction._replace(place=place)
        self._ahead = True

    def follow(self) -> int | None:
        """Go back to the committed state, without an open transaction's records: this node does not lead any more.

        Returns:
            The offset up to which the image has the log, or None without marks.
        """
        offset = self.roll_back() if self._marks else None
        if self._ahead and self._transaction is not None:
            self._undo_to(self._transaction.place)
        self._ahead = False
        self.forget_marks()
        return offset


def _nothing(record: MetadataRecord) -> None:
    pass


_TRANSACTIONS: dict[int | None, Callable[[Image, MetadataRecord], None]] = {
    MetadataRecordType.BEGIN_TRANSACTION_RECORD: Image._on_begin,
    MetadataRecordType.END_TRANSACTION_RECORD: Image._on_end,
    MetadataRecordType.ABORT_TRANSACTION_RECORD: Image._on_abort,
}
