"""Scripted producers, consumers and administrators of simulated partitions."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from kraftcore.core.batch import build_batch, iter_batches
from kraftcore.core.uuid import Uuid
from kraftcore.metadata import PartitionKey
from kraftcore.metadata.partition import NO_LEADER
from kraftcore.plugins.broker.simulated.process import VERSIONS
from kraftcore.plugins.controller.simulated.admins import Admin
from kraftcore.plugins.controller.simulated.rules import Rules
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.frames import decode_response, encode_request
from kraftcore.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kraftcore.protocol.messages.create_topics import CreateTopicsRequest
from kraftcore.protocol.messages.delete_topics import DeleteTopicsRequest
from kraftcore.protocol.messages.elect_leaders import ElectLeadersRequest
from kraftcore.protocol.messages.fetch import FetchRequest, FetchResponse
from kraftcore.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kraftcore.protocol.messages.produce import ProduceRequest
from kraftcore.protocol.registry import api_of
from kraftcore.protocol.schema import Request
from kraftcore.simulation.host import EPOCH_MS
from kraftcore.simulation.world import World

_NAMES: Final = ("one", "two", "three")
_ALL, _LEADER, _NONE = -1, 1, 0
_KEPT: Final = 64
_SHIFT_MS: Final = 200
_LATEST, _EARLIEST = -1, -2
_FATAL: Final = {
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_RECORD,
}


class Talker:
    """Somebody who asks brokers, and believes what was committed of the metadata a while ago.

    Args:
        world: where it lives.
        number: in the network.
        rules: have what is committed.

    Attributes:
        world, number: as given.
        rng: its own.
        is_up: always.
        refuses: never.
    """

    is_up = True
    refuses = False

    def __init__(self, world: World, number: int, rules: Rules) -> None:
        self.world = world
        self.number = number
        self.rng = Random(f"talker-{world.seed}-{number}")
        self._rules = rules
        self._leaders: dict[tuple[str, int], int] = {}
        self._correlation_id = 0
        self._waiting: dict[int, tuple[int, int, Callable[[Any], None]]] = {}

    def ask(self, number: int, request: Request, done: Callable[[Any], None]) -> None:
        """Ask a broker."""
        version, api_key = VERSIONS[type(request)], api_of(type(request))[0]
        self._correlation_id += 1
        self._waiting[self._correlation_id] = (api_key, version, done)
        if len(self._waiting) > _KEPT:
            del self._waiting[min(self._waiting)]
        frame = encode_request(request, version, self._correlation_id)
        self.world.network.request(self.number, number, 0, self._correlation_id, frame)

    def look(self) -> None:
        """Learn who leads."""
        if not self.world.calm and self.rng.random() < 0.5:
            return
        image = self._rules.reference
        self._leaders = {
            (topic.name, number): each.leader
            for topic in image.topics.values()
            for number, each in image.partitions.of_topic(topic.id)
            if each.leader != NO_LEADER
        }

    def _somewhere(self) -> tuple[tuple[str, int], int] | None:
        """A partition, and who is believed to lead it."""
        return self.rng.choice(sorted(self._leaders.items())) if self._leaders else None

    def receive_request(self, source: int, incarnation: int, correlation_id: int, frame: bytes) -> None:
        """Nobody asks it anything."""

    def receive_response(self, incarnation: int, correlation_id: int, frame: bytes) -> None:
        """An answer arrived; the first one counts."""
        found = self._waiting.pop(correlation_id, None)
        if found is not None:
            api_key, version, done = found
            done(decode_response(frame, api_key, version)[1])

    def receive_failure(self, incarnation: int, correlation_id: int, failure: Failure) -> None:
        """It is asked again, or not."""
        self._waiting.pop(correlation_id, None)


class Producer(Talker):
    """Writes values that nobody else writes, with any acks.

    Args:
        world: as for `Talker`.
        number: likewise.
        rules: likewise.

    Attributes:
        acknowledged: how many of its batches with acks=all were acknowledged, by topic id and number.
    """

    def __init__(self, world: World, number: int, rules: Rules) -> None:
        super().__init__(world, number, rules)
        self.acknowledged: dict[PartitionKey, int] = {}
        self._written = 0

    def act(self) -> None:
        """Produce to some partition."""
        self.look()
        found = self._somewhere()
        if found is not None:
            self.produce(*found, acks=self.rng.choice((_ALL, _ALL, _ALL, _LEADER, _NONE)))

    def produce(self, where: tuple[str, int], leader: int, acks: int = _ALL) -> None:
        """Send a batch to a partition's leader."""
        topic = self._rules.reference.topics.by_name(where[0])

        def done(error: int) -> None:
            if acks == _ALL and not error and topic is not None:
                key = PartitionKey(topic.id, where[1])
                self.acknowledged[key] = self.acknowledged.get(key, 0) + 1

        self.write(where, leader, acks, build_batch(self.values(), timestamp_ms=self.now_ms), done)

    @property
    def now_ms(self) -> int:
        """What its clock shows."""
        return EPOCH_MS + self.world.agenda.now // 1000

    def values(self) -> list[bytes | None]:
        """Values for a batch."""
        rng = self.rng
        values: list[bytes | None] = []
        for _ in range(rng.choice((1, 1, 2, 5))):
            self._written += 1
            values.append(b"%d:%d:" % (self.number, self._written) + b"x" * rng.choice((0, 20, 500)))
        return values

    def write(
        self, where: tuple[str, int], leader: int, acks: int, records: bytearray, done: Callable[[int], None]
    ) -> None:
        """Send a batch; ``done`` gets the error of its partition."""
        kind = ProduceRequest.TopicProduceData
        data = kind.PartitionProduceData(index=where[1], records=records)
        request = ProduceRequest(acks=acks, timeout_ms=3000, topic_data=[kind(name=where[0], partition_data=[data])])
        self.ask(leader, request, lambda answer: done(answer.responses[0].partition_responses[0].error_code))


class IdempotentProducer(Producer):
    """Numbers its batches, and sends each again until its fate is known: it is to be in the log once.

    Args:
        world: as for `Talker`.
        number: likewise.
        rules: likewise.
        on_numbered: told each batch that it sends for the first time.
    """

    def __init__(self, world: World, number: int, rules: Rules, on_numbered: Callable[[bytearray], None]) -> None:
        super().__init__(world, number, rules)
        self._on_numbered = on_numbered
        self._producer_id = abs(number) * 1000
        self._sequences: dict[PartitionKey, int] = {}
        self._pending: dict[PartitionKey, tuple[bytearray, int]] = {}  # what was sent, and how many records
        self._topic_ids: dict[str, Uuid] = {}

    def act(self) -> None:
        """See `Producer`."""
        self.look()
        found = self._somewhere()
        if found is not None:
            self.produce(*found)

    def produce(self, where: tuple[str, int], leader: int, acks: int = _ALL) -> None:
        """See `Producer`: what was sent before, if nobody knows what became of it."""
        topic = self._rules.reference.topics.by_name(where[0])
        if topic is None:
            return
        if self._topic_ids.setdefault(topic.name, topic.id) != topic.id:
            # Produce names topics: a broker that has the former one still would take the same numbers for a repetition.
            self._topic_ids[topic.name] = topic.id
            self._begin_anew()
        key = PartitionKey(topic.id, where[1])
        if key not in self._pending:
            values, sequence = self.values(), self._sequences.get(key, 0)
            records = build_batch(
                values,
                timestamp_ms=self.now_ms,
                producer_id=self._producer_id,
                producer_epoch=0,
                base_sequence=sequence,
            )
            self._pending[key] = (records, len(values))
            self._on_numbered(records)
        records, count = self._pending[key]
        producer_id = self._producer_id

        def done(error: int) -> None:
            pending = self._pending.get(key)
            if pending is None or pending[0] is not records:
                return
            if not error:
                del self._pending[key]
                self._sequences[key] = self._sequences.get(key, 0) + count
                self.acknowledged[key] = self.acknowledged.get(key, 0) + 1
            elif error in _FATAL and producer_id == self._producer_id:
                self._begin_anew()

        self.write(where, leader, _ALL, bytearray(records), done)

    def _begin_anew(self) -> None:
        """As a new producer."""
        self._producer_id += 1
        self._sequences.clear()
        self._pending.clear()


class Consumer(Talker):
    """Reads partitions from where it is, and asks where they end."""

    def __init__(self, world: World, number: int, rules: Rules) -> None:
        super().__init__(world, number, rules)
        self._positions: dict[tuple[str, int], int] = {}

    def act(self) -> None:
        """Read on, or ask for an end."""
        self.look()
        found = self._somewhere()
        if found is None:
            return
        where, leader = found
        if self.rng.random() < 0.3:
            self._list(where, leader, _LATEST)
        else:
            self._fetch(where, leader)

    def _fetch(self, where: tuple[str, int], leader: int) -> None:
        topic = self._rules.reference.topics.by_name(where[0])
        if topic is None:
            return
        kind = FetchRequest.FetchTopic
        asked = kind.FetchPartition(
            partition=where[1], fetch_offset=self._positions.get(where, 0), partition_max_bytes=4000
        )
        request = FetchRequest(
            max_wait_ms=self.rng.choice((0, 300)),
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[kind(topic_id=topic.id, partitions=[asked])],
        )

        def done(answer: FetchResponse) -> None:
            for sent in answer.responses:
                for data in sent.partitions:
                    if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                        self._list(where, leader, _EARLIEST)
                    elif data.records:
                        *_, last = iter_batches(bytes(data.records), verify=False)
                        self._positions[where] = last.next_offset

        self.ask(leader, request, done)

    def _list(self, where: tuple[str, int], leader: int, timestamp: int) -> None:
        kind = ListOffsetsRequest.ListOffsetsTopic
        asked = kind.ListOffsetsPartition(partition_index=where[1], timestamp=timestamp)
        request = ListOffsetsRequest(replica_id=-1, topics=[kind(name=where[0], partitions=[asked])])

        def done(answer: ListOffsetsResponse) -> None:
            told = answer.topics[0].partitions[0]
            if timestamp == _EARLIEST and not told.error_code:
                self._positions[where] = told.offset

        self.ask(leader, request, done)


class TopicAdmin(Admin):
    """Makes, moves and deletes a few topics; with an odd seed also has other replicas lead all the time."""

    def act(self) -> None:
        """See `Admin`."""
        wishes = (self._make, self.reassign, self._remove, self._prefer, self._shift)
        weights = (6, 6, 1, 3, 6) if self.world.seed % 2 else (6, 6, 1, 6, 0)
        request = self.rng.choices(wishes, weights)[0]()
        if request is not None:
            self.send(request, _unheard)

    def set_register(self) -> Request | None:
        """See `Admin`."""
        return self._make() if self.topic() is None else super().set_register()

    def _make(self) -> Request:
        rng = self.rng
        kind = CreateTopicsRequest.CreatableTopic
        configs = {"unclean.leader.election.enable": "true"} if rng.random() < 0.25 else {}
        topic = kind(
            name=rng.choice(_NAMES),
            num_partitions=rng.choice((1, 2, 4)),
            replication_factor=rng.choice((2, 3, 3, 3)),
            configs=[kind.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        return CreateTopicsRequest(topics=[topic], timeout_ms=10_000)

    def _remove(self) -> Request | None:
        name = self.topic()
        if name is None:
            return None
        return DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=name)], timeout_ms=10_000)

    def _shift(self) -> Request | None:
        """Have another one of the replicas lead, while producers write: soon after it comes first it is elected."""
        found = self._partition()
        topic = None if found is None else self._rules.reference.topics.by_name(found[0])
        row = None if found is None or topic is None else self._rules.reference.partitions.get(topic.id, found[1])
        if found is None or row is None:
            return None
        kind = AlterPartitionReassignmentsRequest.ReassignableTopic
        partition = kind.ReassignablePartition(partition_index=found[1], replicas=[*row.replicas[1:], row.replicas[0]])
        self.world.agenda.after_ms(_SHIFT_MS, lambda: self.send(self._prefer(), _unheard))
        return AlterPartitionReassignmentsRequest(
            topics=[kind(name=found[0], partitions=[partition])], timeout_ms=10_000
        )

    def _prefer(self) -> Request:
        return ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=10_000)


def _unheard(answer: Any) -> None:
    """What became of it shows in the log."""
