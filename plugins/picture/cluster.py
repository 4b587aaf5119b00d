"""Brokers, topics and partitions in trouble, kept up to date by what each batch changes: nothing is counted anew.

Source of the kinds of trouble: KIP-841 (who may be in an ISR), KIP-966 (ELR), Kafka 4.3.1's metrics of a controller.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from enum import StrEnum
from itertools import islice
from typing import Any

from kraftcore.core.batch import Record, RecordBatch
from kraftcore.core.uuid import Uuid
from kraftcore.errors import CorruptDataError, RemoteProtocolError
from kraftcore.metadata import Broker, ConfigResource, Delta, Image, Partition, PartitionKey
from kraftcore.metadata.configs import BROKER, TOPIC
from kraftcore.plugins.picture.words import Event, ids, told
from kraftcore.protocol.control import ControlRecordType, decode_control_record
from kraftcore.protocol.log_contents import ContentsJudge
from kraftcore.protocol.metadata import MetadataRecordType, decode_metadata_record

EVENTS_MAX = 300
"""Events that are kept, the newest."""
TOLD_MAX = 100
"""Records of one batch that become events of their own; the others are counted."""
_STEP = 2_000  # partitions that are looked at in one go
_MIN_ISR = "min.insync.replicas"
_NOT_METADATA = "the log holds an application's own records, no cluster metadata"
Json = dict[str, Any]


class Trouble(StrEnum):
    """What is wrong with a partition, the worst first; a partition may be in several kinds."""

    OFFLINE = "offline"
    UNDER_MIN_ISR = "under min ISR"
    UNDER_REPLICATED = "under-replicated"


def troubles(partition: Partition, min_isr: int) -> frozenset[Trouble]:
    """What is wrong with a partition.

    Offline: it has no leader. Under min ISR: its ISR is smaller than ``min_isr``, or than its replicas if these are
    fewer (KIP-966). Under-replicated: its ISR is smaller than its replicas without those that are being added.
    """
    size, replicas = len(partition.isr), len(partition.replicas)
    found = set()
    if not partition.has_leader:
        found.add(Trouble.OFFLINE)
    if size < min(min_isr, replicas):
        found.add(Trouble.UNDER_MIN_ISR)
    if size < replicas - len(partition.adding):
        found.add(Trouble.UNDER_REPLICATED)
    return frozenset(found)


class ClusterPicture:
    """The cluster as its metadata log tells it.

    Attributes:
        image: all committed records that were taken in.
        end_offset: below it everything is in the image.
        events: the newest ones, oldest first.
        trouble: why the log is not understood; None while it is.
    """

    def __init__(self) -> None:
        self.events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self._numbers = 0
        self.restart()

    def restart(self) -> None:
        """Forget the cluster, for its log begins anew; the events stay."""
        self.image = Image()
        self.end_offset = 0
        self.trouble: str | None = None
        self._contents = ContentsJudge()
        self._kinds: dict[Trouble, dict[PartitionKey, int]] = {kind: {} for kind in Trouble}
        self._with_elr = 0

    # --- records in ---------------------------------------------------------------------------------------------------

    def load(self, batches: Iterable[RecordBatch], end_offset: int) -> Iterator[None]:
        """Take in a snapshot, which replaces everything below ``end_offset``; pauses after each step of work."""
        self.restart()
        at_ms = 0
        for batch in batches:
            if not batch.is_control and batch.producer_id < 0:  # else it is what nodes remember of clients
                at_ms = max(at_ms, batch.max_timestamp_ms)
                self._apply(batch)
                yield
        for topic_id in list(self.image.topics):
            yield from self._judge_topic(topic_id, at_ms)
        self.end_offset = end_offset

    def applied(self, batch: RecordBatch) -> None:
        """Take in a committed batch, the next one of the log."""
        if batch.is_control:
            self._tell(batch, {})
        elif self.trouble is None:
            self.image.mark(batch.base_offset)
            self._apply(batch)
            if self.trouble is None:
                delta = self.image.delta()
                self.image.forget_marks()
                self._follow(delta, batch.max_timestamp_ms)
                self._tell(batch, {key: each.before.name for key, each in delta.topics.items() if each.before})
        self.end_offset = batch.next_offset

    def _apply(self, batch: RecordBatch) -> None:
        if self.trouble is not None:
            return
        try:
            if self._contents.look(batch.values()) is False:
                raise CorruptDataError(_NOT_METADATA)
            self.image.apply_values(batch.values(), batch.base_offset)
        except (RemoteProtocolError, CorruptDataError) as error:
            self.restart()
            self.trouble = str(error)

    def _follow(self, delta: Delta, at_ms: int) -> None:
        for key, change in delta.partitions.items():
            self._with_elr -= change.before is not None and bool(change.before.elr)
            self._with_elr += change.after is not None and bool(change.after.elr)
            self._judge(key, change.after, at_ms)
        for resource, configs in delta.configs.items():
            before, after = (None if each is None else each.get(_MIN_ISR) for each in configs)
            if before != after:
                self._judge_again(resource, at_ms)

    def _judge_again(self, resource: ConfigResource, at_ms: int) -> None:
        if resource.type == TOPIC:
            topic = self.image.topics.by_name(resource.name)
            found = [] if topic is None else [topic.id]
        else:  # of all brokers, and so of all topics
            found = list(self.image.topics) if resource == (BROKER, "") else []
        for topic_id in found:
            min_isr = self._min_isr(topic_id)
            for number, partition in self.image.partitions.of_topic(topic_id):
                self._note(PartitionKey(topic_id, number), troubles(partition, min_isr), at_ms)

    def _judge_topic(self, topic_id: Uuid, at_ms: int) -> Iterator[None]:
        min_isr = self._min_isr(topic_id)
        for at, (number, partition) in enumerate(self.image.partitions.of_topic(topic_id)):
            self._with_elr += bool(partition.elr)
            self._note(PartitionKey(topic_id, number), troubles(partition, min_isr), at_ms)
            if at % _STEP == 0:
                yield

    def _judge(self, key: PartitionKey, partition: Partition | None, at_ms: int) -> None:
        found = frozenset[Trouble]() if partition is None else troubles(partition, self._min_isr(key.topic_id))
        self._note(key, found, at_ms)

    def _note(self, key: PartitionKey, found: frozenset[Trouble], at_ms: int) -> None:
        for kind, held in self._kinds.items():
            if kind in found:
                held.setdefault(key, at_ms)
            else:
                held.pop(key, None)

    def _min_isr(self, topic_id: Uuid) -> int:
        configs = self.image.configs
        topic = self.image.topics.get(topic_id)
        own = None if topic is None else configs.of(TOPIC, topic.name).get(_MIN_ISR)
        text = own or configs.of(BROKER, "").get(_MIN_ISR) or "1"
        return int(text) if text.isdecimal() else 1

    # --- events -------------------------------------------------------------------------------------------------------

    def _tell(self, batch: RecordBatch, gone: Mapping[Uuid, str]) -> None:
        def name_of(topic_id: Uuid) -> str:
            topic = self.image.topics.get(topic_id)
            return str(gone.get(topic_id, topic_id) if topic is None else topic.name)

        with suppress(RemoteProtocolError, CorruptDataError):  # what cannot be read is no event
            for record in islice(batch, TOLD_MAX):
                kind, data = _typed(record, is_control=batch.is_control)
                found = told(kind, data, name_of)
                if found is not None:
                    self._event(record.offset, record.timestamp_ms, kind, *found)
        if batch.count > TOLD_MAX:
            text = f"{batch.count - TOLD_MAX:,} more records in one batch"
            self._event(batch.last_offset, batch.max_timestamp_ms, "", text, False)

    def _event(self, offset: int, at_ms: int, kind: str, text: str, is_bad: bool) -> None:
        self._numbers += 1
        self.events.append(Event(self._numbers, offset, at_ms, kind, text, is_bad))

    # --- what is seen -------------------------------------------------------------------------------------------------

    def counts(self) -> dict[str, int]:
        """How many brokers, topics and partitions there are, and how many partitions in each kind of trouble."""
        partitions = self.image.partitions
        return {
            "brokers": len(self.image.brokers),
            "fencedBrokers": sum(each.is_fenced for each in self.image.brokers.values()),
            "topics": len(self.image.topics),
            "partitions": len(partitions),
            "offline": len(self._kinds[Trouble.OFFLINE]),
            "underMinIsr": len(self._kinds[Trouble.UNDER_MIN_ISR]),
            "underReplicated": len(self._kinds[Trouble.UNDER_REPLICATED]),
            "withElr": self._with_elr,
            "notLedByPreferred": partitions.not_preferred_count,
            "reassigning": partitions.reassigning_count,
        }

    def brokers(self) -> dict[str, Json]:
        """The registered brokers, by id."""
        return {
            str(broker.id): {
                "id": broker.id,
                "state": broker_state(broker),
                "epoch": broker.epoch,
                "rack": broker.rack or "",
                "listeners": ", ".join(f"{each.name}://{each.host}:{each.port}" for each in broker.listeners),
                "leads": self.image.partitions.leadership_count(broker.id),
            }
            for broker in self.image.brokers.values()
        }

    def troubled(self, limit: int) -> dict[str, Json]:
        """Partitions in trouble, the worst first, and those longest in trouble before others; at most ``limit``."""
        found: dict[PartitionKey, None] = {}
        for held in self._kinds.values():
            found.update(dict.fromkeys(islice((key for key in held if key not in found), limit - len(found))))
        rows = (self._row(key) for key in found)
        return {row["name"]: row for row in rows}

    def search(self, text: str, limit: int) -> Iterator[Json | None]:
        """Partitions whose name, ``topic-number``, has a text; None now and then, for a pause."""
        wanted, _, number = text.rpartition("-")
        exact = self.image.topics.by_name(wanted) if number.isdecimal() else None
        if exact is not None and self.image.partitions.get(exact.id, int(number)) is not None:
            yield self._row(PartitionKey(exact.id, int(number)))
            limit -= 1
        for at, topic in enumerate(list(self.image.topics.values())):
            if at % _STEP == 0:
                yield None
            if limit <= 0:
                return
            if text in topic.name and topic.id in self.image.topics:
                for part, _ in islice(self.image.partitions.of_topic(topic.id), limit):
                    limit -= 1
                    yield self._row(PartitionKey(topic.id, part))

    def _row(self, key: PartitionKey) -> Json:
        topic, partition = self.image.topics[key.topic_id], self.image.partitions.get(*key)
        assert partition is not None  # noqa: S101
        kinds = [kind for kind, held in self._kinds.items() if key in held]
        return {
            "name": f"{topic.name}-{key.partition_id}",
            "kinds": [kind.value for kind in kinds],
            "sinceMs": min((self._kinds[kind][key] for kind in kinds), default=0),
            "leader": partition.leader,
            "replicas": list(partition.replicas),
            "isr": list(partition.isr),
            "elr": list(partition.elr),
            "minIsr": min(self._min_isr(key.topic_id), len(partition.replicas)),
            "helps": self._helps(partition) if Trouble.OFFLINE in kinds else "",
        }

    def _helps(self, partition: Partition) -> str:
        """What gives a partition without a leader one again."""
        candidates = {*partition.isr, *partition.elr}
        if candidates:
            away = sorted(each for each in candidates if not self._is_active(each))
            return f"start broker {ids(away)}" if away else "an election is due"
        if partition.last_known_elr:
            return f"nobody is eligible; broker {ids(partition.last_known_elr)} was last, by an unclean election"
        return "nobody is eligible: only an unclean election helps, and may lose records"

    def _is_active(self, broker_id: int) -> bool:
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.is_active


def broker_state(broker: Broker) -> str:
    """``active``, ``fenced`` or ``in controlled shutdown``."""
    return "fenced" if broker.is_fenced else "in controlled shutdown" if broker.is_shutting_down else "active"


def _typed(record: Record, *, is_control: bool) -> tuple[str, Any]:
    """The name of a record's type, and its data."""
    if is_control:
        control = decode_control_record(record.key, record.value)
        known = control.type in set(ControlRecordType)
        return ControlRecordType(control.type).name if known else f"CONTROL_{control.type}", control.body
    data = decode_metadata_record(record.value or b"")[0]
    return MetadataRecordType(data.schema.api_key or 0).name, data
