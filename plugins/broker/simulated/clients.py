"""Scripted producers, consumers and administrators of simulated partitions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from random import Random
from typing import Any, Final, TypeAlias

from kraftcore.core.batch import Compression, build_batch, iter_batches
from kraftcore.core.uuid import Uuid
from kraftcore.metadata import PartitionKey
from kraftcore.metadata.configs import BROKER, TOPIC
from kraftcore.metadata.partition import NO_LEADER
from kraftcore.plugins.broker.simulated.process import LOOP_BYTES, VERSIONS
from kraftcore.plugins.broker.simulated.rules import PartitionRules
from kraftcore.plugins.controller.simulated.admins import Admin
from kraftcore.plugins.controller.simulated.rules import Rules
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.frames import decode_response, encode_request
from kraftcore.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kraftcore.protocol.messages.create_topics import CreateTopicsRequest
from kraftcore.protocol.messages.delete_records import DeleteRecordsRequest
from kraftcore.protocol.messages.delete_topics import DeleteTopicsRequest
from kraftcore.protocol.messages.elect_leaders import ElectLeadersRequest
from kraftcore.protocol.messages.fetch import FetchRequest, FetchResponse
from kraftcore.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kraftcore.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kraftcore.protocol.messages.produce import ProduceRequest
from kraftcore.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from kraftcore.protocol.registry import api_of
from kraftcore.protocol.schema import Request
from kraftcore.simulation.host import EPOCH_MS
from kraftcore.simulation.world import World

_NAMES: Final = ("one", "two", "three")
_ALL, _LEADER, _NONE = -1, 1, 0
_KEPT: Final = 64
_SHIFT_MS: Final = 200
_FORMER: Final = 16
_STALE: Final = 0.1  # share of the turns in which something of a former epoch arrives
_TWICE: Final = 0.3  # share of the sendings that are doubled
_ALL_RECORDS: Final = 0.1  # share of the deletions that take all there are
_COMMITS: Final = 0.6  # share of the transactions of which all is written
_GIVES_UP: Final = 0.02  # share of the turns in which it waits no longer
_CODECS: Final = (Compression.NONE, Compression.NONE, *Compression)
_HEAVY: Final = 0.07  # share of the batches that decompress to more than is looked at on the loop
_TOGETHER: Final = 0.15  # share of the requests that write to several partitions
_BY_TIME: Final = 0.5  # share of the questions for offsets
_TIMES_MS: Final = 20_000  # how far back
_WRITES_BEFORE: Final = 0.3  # share of the deletions that come right behind a batch
_BUMPS: Final = 0.8  # share of the failures after which it goes on in another epoch
_LATEST, _EARLIEST = -1, -2
_SET, _DELETE = 0, 1
_Part: TypeAlias = tuple[tuple[str, int], bytearray, Callable[[int], None]]
"""A partition, a batch for it, and what takes the partition's error."""
_FATAL: Final = {
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_RECORD,
}


class Talker:
    """A client that asks brokers, and believes what was committed of the metadata a while ago.

    Args:
        world: where it lives.
        number: in the network.
        rules: have what is committed.

    Attributes:
        world, number: as given.
        rng: its own.
        shape: draws how its requests look, not when they come or where they go.
        is_up: always.
        refuses: never.
        is_narrow: it asks for the first partition of each topic alone.
        is_plain: it compresses nothing, asks about one partition at a time, and about no times.
    """

    is_narrow = is_plain = False
    is_up = True
    refuses = False

    def __init__(self, world: World, number: int, rules: Rules) -> None:
        self.world = world
        self.number = number
        self.rng = Random(f"talker-{world.seed}-{number}")
        self.shape = Random(f"shape-{world.seed}-{number}")
        self._rules = rules
        self._leaders: dict[tuple[str, int], int] = {}
        self._correlation_id = 0
        self._waiting: dict[int, tuple[int, int, Callable[[Any], None]]] = {}

    @property
    def now_ms(self) -> int:
        """What its clock shows."""
        return EPOCH_MS + self.world.agenda.now // 1000

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
        found = sorted(each for each in self._leaders.items() if not self.is_narrow or each[0][1] == 0)
        return self.rng.choice(found) if found else None

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
    """Writes values that nobody else writes, with any acks and codec, now and then to several partitions at once.

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
        if found is None:
            return
        where, leader = found
        acks = self.rng.choice((_ALL, _ALL, _ALL, _LEADER, _NONE))
        if self.shape.random() < _TOGETHER and not self.is_plain:
            names = sorted(each for each, number in self._leaders.items() if number == leader)
            chosen = self.shape.sample(names, self.shape.randrange(1, len(names) + 1))
            self.write_all([self._part(each, acks) for each in chosen], leader, acks)
        else:
            self.produce(where, leader, acks)

    def produce(self, where: tuple[str, int], leader: int, acks: int = _ALL) -> None:
        """Send a batch to a partition's leader."""
        self.write_all([self._part(where, acks)], leader, acks)

    def _part(self, where: tuple[str, int], acks: int) -> _Part:
        topic = self._rules.reference.topics.by_name(where[0])

        def done(error: int) -> None:
            if acks == _ALL and not error and topic is not None:
                key = PartitionKey(topic.id, where[1])
                self.acknowledged[key] = self.acknowledged.get(key, 0) + 1

        return where, self.build(self.values()), done

    def values(self) -> list[bytes | None]:
        """Values for a batch."""
        rng = self.rng
        values: list[bytes | None] = []
        for _ in range(rng.choice((1, 1, 2, 5))):
            self._written += 1
            values.append(b"%d:%d:" % (self.number, self._written) + b"x" * rng.choice((0, 20, 500)))
        return values

    def build(self, values: list[bytes | None], *, is_heavy: bool = False, **more: Any) -> bytearray:
        """A batch, compressed or not, as ``build_batch`` makes it; some decompress to more than others."""
        shape = self.shape
        codec = shape.choice(_CODECS)
        if self.is_plain:
            codec = Compression.NONE
        elif is_heavy or shape.random() < _HEAVY:
            values = [*values[:-1], (values[-1] or b"") + bytes(LOOP_BYTES + shape.randrange(4 * LOOP_BYTES))]
            codec = codec or Compression.ZSTD
        return build_batch(values, timestamp_ms=self.now_ms, compression=codec, **more)

    def write(
        self, where: tuple[str, int], leader: int, acks: int, records: bytearray, done: Callable[[int], None]
    ) -> None:
        """Send a batch; ``done`` gets the error of its partition."""
        self.write_all([(where, records, done)], leader, acks)

    def write_all(self, parts: Sequence[_Part], leader: int, acks: int) -> None:
        """Send a batch to each of some partitions, in one request."""
        kind = ProduceRequest.TopicProduceData
        topics: dict[str, Any] = {}
        for (name, number), records, _ in parts:
            topic = topics.setdefault(name, kind(name=name, partition_data=[]))
            topic.partition_data.append(kind.PartitionProduceData(index=number, records=records))
        waiting = {where: done for where, _, done in parts}

        def done(answer: Any) -> None:
            for topic in answer.responses:
                for told in topic.partition_responses:
                    waiting[topic.name, told.index](told.error_code)

        self.ask(leader, ProduceRequest(acks=acks, timeout_ms=3000, topic_data=list(topics.values())), done)


class NumberingProducer(Producer):
    """Numbers its batches in each partition (KIP-98).

    Args:
        world: as for `Talker`.
        number: likewise.
        rules: likewise.
    """

    def __init__(self, world: World, number: int, rules: Rules) -> None:
        super().__init__(world, number, rules)
        self._producer_id = abs(number) * 1000
        self._epoch = 0
        self._sequences: dict[PartitionKey, int] = {}

    def next_batch(self, key: PartitionKey, *, transactional: bool = False) -> bytearray:
        """What it writes next to a partition."""
        values, sequence = self.values(), self._sequences.get(key, 0)
        self._sequences[key] = sequence + len(values)
        return self.build(
            values,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            transactional=transactional,
        )


class IdempotentProducer(NumberingProducer):
    """Numbers its batches, and sends each again until its fate is known: it is to be in the log once, in its order.

    As Kafka's client it has up to five batches of a partition on their way, and goes on in a new epoch when one cannot
    follow those before. Requests of its former epochs are still on their way then.

    Args:
        world: as for `Talker`.
        number: likewise.
        rules: likewise.
        on_numbered: told each batch that it sends for the first time.
        in_flight: batches of a partition at a time, at most 5.
    """

    def __init__(
        self, world: World, number: int, rules: Rules, on_numbered: Callable[[bytearray], None], in_flight: int = 1
    ) -> None:
        super().__init__(world, number, rules)
        self._on_numbered = on_numbered
        self._in_flight = in_flight
        self._pending: dict[PartitionKey, deque[bytearray]] = {}
        self._former: deque[tuple[tuple[str, int], bytearray]] = deque(maxlen=_FORMER)
        self._topic_ids: dict[str, Uuid] = {}

    def act(self) -> None:
        """See `Producer`."""
        self.look()
        found = self._somewhere()
        if found is not None:
            self.produce(*found)
        if self._former and not self.world.calm and self.rng.random() < _STALE:
            where, records = self.rng.choice(self._former)
            if where in self._leaders:
                self.write(where, self._leaders[where], _ALL, bytearray(records), _unheard)

    def produce(self, where: tuple[str, int], leader: int, acks: int = _ALL) -> None:
        """See `Producer`: batches that were sent before without an answer, and another batch."""
        topic = self._rules.reference.topics.by_name(where[0])
        if topic is None:
            return
        if self._topic_ids.setdefault(topic.name, topic.id) != topic.id:
            # Produce names topics: a broker that has the former one still would take the same numbers for a repetition.
            self._topic_ids[topic.name] = topic.id
            self._begin_anew()
        key = PartitionKey(topic.id, where[1])
        pending = self._pending.setdefault(key, deque())
        if len(pending) < self._in_flight:
            pending.append(self._next(key))
        repeats = self._in_flight > 1 and not self.world.calm and self.rng.random() < _TWICE
        for sent in (*pending, *pending) if repeats else tuple(pending):
            self._send(where, leader, key, sent)

    def _next(self, key: PartitionKey) -> bytearray:
        records = self.next_batch(key)
        self._on_numbered(records)
        return records

    def _send(self, where: tuple[str, int], leader: int, key: PartitionKey, sent: bytearray) -> None:
        def done(error: int) -> None:
            pending = self._pending.get(key)
            if pending is None or not any(each is sent for each in pending):
                return  # its fate was known
            is_first = pending[0] is sent
            if not error:
                # A leader that took this batch has those before it.
                while pending.popleft() is not sent:
                    self.acknowledged[key] = self.acknowledged.get(key, 0) + 1
                self.acknowledged[key] = self.acknowledged.get(key, 0) + 1
            elif error in _FATAL and (is_first or error != ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
                self._go_on(where, pending)

        self.write(where, leader, _ALL, bytearray(sent), done)

    def _go_on(self, where: tuple[str, int], pending: Iterable[bytearray]) -> None:
        """In another epoch (KIP-360), or as a new producer."""
        self._former += [(where, sent) for sent in pending]
        if self._in_flight > 1 and self.rng.random() < _BUMPS:
            self._epoch += 1
            self._sequences.clear()
            self._pending.clear()
        else:
            self._begin_anew()

    def _begin_anew(self) -> None:
        """As a new producer."""
        self._producer_id += 1
        self._epoch = 0
        self._sequences.clear()
        self._pending.clear()


class TransactionalProducer(NumberingProducer):
    """Writes transactions where leaders of Kafka take them, and ends them: its own coordinator, which forgets nothing.

    Each marker has an epoch of its own, in which the next transaction begins (KIP-890): what comes late of an earlier
    one is fenced. A transaction whose partition a broker of kraftcore leads waits until one of Kafka leads again.

    Args:
        world: as for `Talker`.
        number: likewise.
        rules: likewise.
        watch: told what is numbered and decided.
        theirs: brokers of Kafka.
    """

    def __init__(self, world: World, number: int, rules: Rules, watch: PartitionRules, theirs: Collection[int]) -> None:
        super().__init__(world, number, rules)
        self._watch = watch
        self._theirs = theirs
        self._left = 0  # batches to be begun in this transaction
        self._pending: dict[PartitionKey, tuple[tuple[str, int], bytearray]] = {}
        self._former: deque[tuple[tuple[str, int], bytearray]] = deque(maxlen=_FORMER)
        self._topic_ids: dict[str, Uuid] = {}  # of this transaction
        self._members: dict[PartitionKey, tuple[str, int]] = {}
        self._outcome: bool | None = None  # decided: commit

    def act(self) -> None:
        """Begin a transaction, go on with it, or end it."""
        self.look()
        rng, calm = self.rng, self.world.calm
        if self._former and not calm and rng.random() < _STALE:
            self._write_at(*rng.choice(self._former), _unheard)
        if self._outcome is not None:
            self._end()
            return
        if self._members and (not self._left or rng.random() < _GIVES_UP or calm):
            if not self._pending or calm or rng.random() < _GIVES_UP:
                self._decide(is_commit=not self._pending and rng.random() < _COMMITS)
                return
        elif not self._members:
            self._left = 0 if calm else rng.randrange(1, 6)
        if self._left:
            self._begin_batch()
        for key, (where, records) in list(self._pending.items()):
            self._write_at(where, records, partial(self._written_at, key, records))

    def _begin_batch(self) -> None:
        found = self._somewhere()
        topic = None if found is None else self._rules.reference.topics.by_name(found[0][0])
        if found is None or topic is None or found[1] not in self._theirs:
            return
        key = PartitionKey(topic.id, found[0][1])
        if key in self._pending:
            return
        if self._topic_ids.setdefault(topic.name, topic.id) != topic.id:
            # Produce names topics: what is sent to the former one would have the same numbers.
            self._decide(is_commit=False)
            return
        self._left -= 1
        records = self.next_batch(key, transactional=True)
        self._members[key] = found[0]
        self._pending[key] = (found[0], records)
        self._watch.numbered(records)

    def _write_at(self, where: tuple[str, int], records: bytearray, done: Callable[[int], None]) -> None:
        leader = self._leaders.get(where)
        if leader is not None:  # a broker of kraftcore refuses
            self.write(where, leader, _ALL, bytearray(records), done)

    def _written_at(self, key: PartitionKey, records: bytearray, error: int) -> None:
        pending = self._pending.get(key)
        if pending is None or pending[1] is not records:
            return
        if not error:
            del self._pending[key]
        elif error in _FATAL and self._outcome is None:
            self._decide(is_commit=False)

    def _decide(self, *, is_commit: bool) -> None:
        self._former += self._pending.values()
        self._pending.clear()
        self._epoch += 1
        self._outcome = is_commit
        self._watch.decided(self._producer_id, self._epoch, is_commit=is_commit)
        self._end()

    def _end(self) -> None:
        """Send the markers that are missing."""
        for key, where in list(self._members.items()):
            topic = self._rules.reference.topics.by_name(where[0])
            if topic is None or topic.id != key.topic_id:
                del self._members[key]  # it was deleted
                continue
            leader = self._leaders.get(where)
            if leader in self._theirs and leader is not None:
                self._mark(key, where, leader, self._epoch, is_commit=bool(self._outcome))
        if not self._members:
            self._outcome = None
            self._sequences.clear()
            self._topic_ids.clear()

    def _mark(self, key: PartitionKey, where: tuple[str, int], leader: int, epoch: int, *, is_commit: bool) -> None:
        kind = WriteTxnMarkersRequest.WritableTxnMarker
        marker = kind(
            producer_id=self._producer_id,
            producer_epoch=epoch,
            transaction_result=is_commit,
            topics=[kind.WritableTxnMarkerTopic(name=where[0], partition_indexes=[where[1]])],
        )

        def done(answer: Any) -> None:
            error = answer.markers[0].topics[0].partitions[0].error_code
            if error in (ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH) and epoch == self._epoch:
                self._members.pop(key, None)

        self.ask(leader, WriteTxnMarkersRequest(markers=[marker]), done)


class Consumer(Talker):
    """Reads partitions from where it is, asks where they end, and goes on at some time's first record.

    Args:
        world: as for `Talker`.
        number: likewise.
        rules: likewise.
        isolation: 1: it reads what is committed of transactions alone.
    """

    def __init__(self, world: World, number: int, rules: Rules, isolation: int = 0) -> None:
        super().__init__(world, number, rules)
        self._isolation = isolation
        self._positions: dict[tuple[str, int], int] = {}

    def act(self) -> None:
        """Read on, or ask for an end."""
        self.look()
        found = self._somewhere()
        if found is None:
            return
        where, leader = found
        if self.rng.random() < 0.3:
            is_by_time = self.shape.random() < _BY_TIME and not self.is_plain
            self._list(where, leader, self.now_ms - self.shape.randrange(_TIMES_MS) if is_by_time else _LATEST)
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
            isolation_level=self._isolation,
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
        topics = [kind(name=where[0], partitions=[asked])]
        request = ListOffsetsRequest(replica_id=-1, isolation_level=self._isolation, topics=topics)

        def done(answer: ListOffsetsResponse) -> None:
            told = answer.topics[0].partitions[0]
            if timestamp != _LATEST and not told.error_code and told.offset >= 0:
                self._positions[where] = told.offset

        self.ask(leader, request, done)


class RecordsAdmin(Producer):
    """Deletes the first records of partitions (DeleteRecords), now and then right behind a batch that takes long."""

    def __init__(self, world: World, number: int, rules: Rules) -> None:
        super().__init__(world, number, rules)
        self._starts: dict[tuple[str, int], int] = {}

    def act(self) -> None:
        """Delete some of what is committed, or now and then all of it."""
        self.look()
        found = self._somewhere()
        if found is None or self.world.calm:
            return
        where, leader = found
        if self.shape.random() < _WRITES_BEFORE and not self.is_plain:
            self.write(where, leader, _LEADER, self.build(self.values(), is_heavy=True), _unheard)
        kind = DeleteRecordsRequest.DeleteRecordsTopic
        offset = -1 if self.rng.random() < _ALL_RECORDS else self._starts.get(where, 0) + self.rng.randrange(1, 30)
        asked = kind.DeleteRecordsPartition(partition_index=where[1], offset=offset)

        def done(answer: Any) -> None:
            self._starts[where] = max(answer.topics[0].partitions[0].low_watermark, 0)

        self.ask(leader, DeleteRecordsRequest(topics=[kind(name=where[0], partitions=[asked])], timeout_ms=1000), done)


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

    def throttle(self) -> None:
        """Throttle replicas of a topic, or no more, as leaders or as followers, until all faults have ended."""
        rng, topic = self.rng, self.topic()
        limited = None if self.world.calm else rng.choice(("leader", "follower", "follower"))
        kind = IncrementalAlterConfigsRequest.AlterConfigsResource
        of_brokers, of_topic = kind(resource_type=BROKER), kind(resource_type=TOPIC, resource_name=topic or "")
        for side in ("leader", "follower"):
            rate = rng.choice(("0", "100", "1000")) if side == limited else None
            listed = rng.choice((None, "*", "*", "*"))
            for resource, what, value in ((of_brokers, "rate", rate), (of_topic, "replicas", listed)):
                name, operation = f"{side}.replication.throttled.{what}", _DELETE if value is None else _SET
                resource.configs.append(kind.AlterableConfig(name=name, config_operation=operation, value=value))
        resources = [of_brokers] if topic is None else [of_brokers, of_topic]
        self.send(IncrementalAlterConfigsRequest(resources=resources), _unheard)

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
