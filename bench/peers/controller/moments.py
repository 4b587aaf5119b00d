"""Single events: large requests, a broker that goes and comes back, starts, takeovers, a million partitions."""

from __future__ import annotations

import signal
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path

from bench.peers.controller.nodes import (
    BROKERS,
    MEBIBYTE,
    NO_SNAPSHOTS,
    Contender,
    Node,
    Quorum,
    is_listening,
    wait_until,
)
from bench.peers.controller.sizes import Found, Sample, Sizes, events, median_ms
from bench.peers.controller.wire import Broker, Client, Frame, Observer, Topic, Unexpected, create, placed, refuse
from kraftcore.core.uuid import Uuid
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.alter_partition import AlterPartitionRequest
from kraftcore.protocol.messages.create_topics import CreateTopicsRequest
from kraftcore.protocol.messages.describe_quorum import DescribeQuorumRequest
from kraftcore.protocol.messages.elect_leaders import ElectLeadersRequest
from kraftcore.protocol.records.partition_change_record import PartitionChangeRecord

TRY_PAUSE_S = 0.005
FIRST_ANSWER_S = 600.0
SETTLE_S = 1.0
LARGE_HEAP = "4g"
"""Of Kafka's JVM, where the partitions of a million do not fit into its default of 1 GiB."""
PREFERRED = 0
CHANGE = PartitionChangeRecord.schema.api_key


def bulk(contender: Contender, folder: Path, sizes: Sizes, wanted: set[str]) -> Found:
    """Large CreateTopics, one request at a time."""
    with Quorum(contender, folder) as quorum:
        quorum.brokers()
        kinds: list[tuple[str, int, Callable[[], list[Topic]]]] = [
            (
                "create-topics-1000",
                sizes.topics,
                lambda: [placed(quorum.name(), BROKERS[:1], 1) for _ in range(sizes.topics)],
            ),
            (
                "create-topic-9999p",
                sizes.wide,
                lambda: [Topic(name=quorum.name(), num_partitions=sizes.wide, replication_factor=3)],
            ),
        ]
        for name, size, topics in kinds:
            if name not in wanted:
                continue
            took, used = [], []
            for number in range(sizes.bulk + sizes.warm_events):
                frame = Frame(CreateTopicsRequest(topics=topics(), timeout_ms=120_000))
                before, begun = quorum.leader.cpu_s(), time.perf_counter()
                raw = quorum.client.raw(frame.raw)
                seconds = time.perf_counter() - begun
                for topic in frame.decode(raw).topics:
                    refuse(topic.error_code, f"topic {topic.name}")
                if number >= sizes.warm_events:
                    took.append(seconds / size)
                    used.append(quorum.leader.cpu_s() - before)
            note = f"{1e6 * statistics.mean(used) / size:.3g} us of processor each"
            note += f", a request of {size} {median_ms(took) * size:.0f} ms, at most {1e3 * max(took) * size:.0f}"
            yield name, Sample(took, len(took), note)


def fence(contender: Contender, folder: Path, sizes: Sizes, wanted: set[str]) -> Found:
    """A broker that leads everything is fenced, comes back, gets back into every ISR, and is elected again."""
    with Quorum(contender, folder) as quorum:
        brokers = quorum.brokers()
        topics: list[tuple[Uuid, int]] = []
        left = sizes.fenced
        while left:
            count = min(left, 1000)
            topics.append((create(quorum.client, [placed(quorum.name(), BROKERS, count)])[0], count))
            left -= count
        observer = Observer(quorum.leader.port)
        try:
            drill = FenceDrill(quorum, brokers, topics, observer)
            runs = [drill.round() for _ in range(sizes.slices + sizes.warm_events)][sizes.warm_events :]
        finally:
            observer.close()
    for number, (name, what) in enumerate(
        (
            ("fence", f"fencing of the leader of {sizes.fenced} partitions, to the last change readable"),
            ("fence-return", "unfencing, all ISRs, and the election"),
            ("fence-elect", "the election alone, to the last change readable"),
        )
    ):
        if name in wanted:
            yield name, events([times[number] for times in runs], what)


class FenceDrill:
    """Goes through it again and again, and knows the epochs that this leaves behind."""

    def __init__(
        self, quorum: Quorum, brokers: list[Broker], topics: list[tuple[Uuid, int]], observer: Observer
    ) -> None:
        self.quorum, self.brokers, self.topics, self.observer = quorum, brokers, topics, observer
        self.count = sum(count for _, count in topics)
        self.epoch = self.leader_epoch = 0

    def round(self) -> tuple[float, float, float]:
        """Seconds of the fencing, of the whole return, and of the election."""
        client, first = self.quorum.client, self.brokers[0]
        start = self.observer.settle()
        begun = time.perf_counter()
        if not client.call(first.beat(fence=True)).is_fenced:
            raise Unexpected("the broker is not fenced")
        fenced = self.observer.wait(start, self.count + 1) - begun
        self.expect(start, self.count)
        self.epoch += 1
        self.leader_epoch += 1
        returns = [self.returned(topic, count) for topic, count in self.topics]
        elect = Frame(ElectLeadersRequest(election_type=PREFERRED, topic_partitions=None, timeout_ms=120_000))
        start = self.observer.settle()
        begun = time.perf_counter()
        if client.call(first.beat()).is_fenced:
            raise Unexpected("the broker stays fenced")
        answers = [client.raw(frame.raw) for frame in returns]
        begun_election = time.perf_counter()
        elected = elect.decode(client.raw(elect.raw))
        end = self.observer.wait(start, 2 * self.count + 1)
        for frame, answer in zip(returns, answers, strict=True):
            for partition in frame.decode(answer).topics[0].partitions:
                refuse(partition.error_code, "AlterPartition")
        refuse(elected.error_code, "ElectLeaders")
        self.expect(start, 2 * self.count)
        self.epoch += 2
        self.leader_epoch += 1
        return fenced, end - begun, end - begun_election

    def expect(self, start: int, changes: int) -> None:
        self.observer.settle()
        found = self.observer.kinds(start)
        if found[CHANGE] != changes:
            raise Unexpected(f"{found[CHANGE]} changes of partitions instead of {changes}")

    def returned(self, topic: Uuid, count: int) -> Frame:
        """AlterPartition by the present leader that takes everybody into each ISR."""
        data = AlterPartitionRequest.TopicData
        member = data.PartitionData.BrokerState
        members = [member(broker_id=each.id, broker_epoch=each.epoch) for each in self.brokers]
        partitions = [
            data.PartitionData(
                partition_index=index,
                leader_epoch=self.leader_epoch,
                partition_epoch=self.epoch,
                new_isr_with_epochs=members,
            )
            for index in range(count)
        ]
        leader = self.brokers[1]
        topics = [data(topic_id=topic, partitions=partitions)]
        return Frame(AlterPartitionRequest(broker_id=leader.id, broker_epoch=leader.epoch, topics=topics))


class Probe(threading.Thread):
    """Tries to make a topic on one node until that succeeds; ``at`` is when."""

    def __init__(self, node: Node, prefix: str, done: threading.Event) -> None:
        super().__init__(daemon=True)
        self.node, self.prefix, self.done = node, prefix, done
        self.at: float | None = None
        self.last = "nobody listens"

    def run(self) -> None:
        client, tries = None, 0
        while not self.done.is_set():
            tries += 1
            try:
                client = client or Client(self.node.port, 60)
                topics = [placed(f"{self.prefix}-{self.node.node_id}-{tries}", BROKERS[:1], 1)]
                answer = client.call(CreateTopicsRequest(topics=topics, timeout_ms=30_000))
                error = answer.topics[0].error_code
                if not error:
                    self.at = time.perf_counter()
                    self.done.set()
                    break
                self.last = ErrorCode(error).name
            except OSError as error:
                if client is not None:
                    client.close()
                client, self.last = None, repr(error)
            time.sleep(TRY_PAUSE_S)
        if client is not None:
            client.close()


def first_success(nodes: list[Node], prefix: str) -> float:
    """When a topic could be made on any of them.

    Raises:
        Unexpected: a node ended, or none could within ten minutes.
    """
    done = threading.Event()
    probes = [Probe(node, prefix, done) for node in nodes]
    for each in probes:
        each.start()
    end = time.monotonic() + FIRST_ANSWER_S
    try:
        while not done.wait(0.5):
            for node in nodes:
                node.check()
            if time.monotonic() > end:
                raise Unexpected(f"no topic could be made: {[each.last for each in probes]}")
    finally:
        done.set()
        for each in probes:
            each.join(65)
    return min(each.at for each in probes if each.at is not None)


def restart(contender: Contender, folder: Path, sizes: Sizes, wanted: set[str]) -> Found:
    """A clean stop, and the start from the log to the first topic that can be made."""
    with Quorum(contender, folder, properties=NO_SNAPSHOTS) as quorum:
        quorum.brokers()
        quorum.fill(sizes.stored)
        quorum.client.close()
        node, took, memory, used = quorum.leader, [], [], []
        for trial in range(sizes.slices):
            node.stop()
            begun = time.perf_counter()
            node.start()
            took.append(first_success([node], f"restart-{trial}") - begun)
            used.append(node.cpu_s())
            time.sleep(SETTLE_S)
            memory.append(node.resident_bytes())
        note = f"{sizes.stored} partitions, {node.log_bytes() / MEBIBYTE:.1f} MiB of log, "
        note += f"{statistics.median(used):.2f} s of processor, {statistics.median(memory) / MEBIBYTE:.0f} MiB resident"
        yield "restart-log/100k", events(took, note)


def failover(contender: Contender, folder: Path, sizes: Sizes, wanted: set[str]) -> Found:
    """SIGKILL of the active one of three, to the first topic that can be made on another."""
    with Quorum(contender, folder, size=3, properties=NO_SNAPSHOTS) as quorum:
        quorum.brokers()
        quorum.fill(sizes.stored)
        took, memory = [], []
        for trial in range(sizes.trials):
            wait_until("all three have the whole log", lambda: have_the_same_log(quorum), every_s=0.2)
            create(quorum.client, [placed(f"before-{trial}", BROKERS[:1], 1)])
            time.sleep(2 * SETTLE_S)
            dead = quorum.leader
            memory.append(dead.resident_bytes())
            others = [node for node in quorum.nodes if node is not dead]
            begun = time.perf_counter()
            dead.stop(signal.SIGKILL)
            took.append(first_success(others, f"failover-{trial}") - begun)
            quorum.client.close()
            dead.start()
            wait_until("the killed one is back", lambda: is_listening(dead.port), every_s=0.1)  # noqa: B023  (called at once)
            quorum.connect()
        note = f"{sizes.stored} partitions, default timeouts, {statistics.median(memory) / MEBIBYTE:.0f} MiB resident"
        yield "failover/100k", events(took, note)


def have_the_same_log(quorum: Quorum) -> bool:
    topic = DescribeQuorumRequest.TopicData
    asked = [topic(topic_name="__cluster_metadata", partitions=[topic.PartitionData(partition_index=0)])]
    voters = quorum.client.call(DescribeQuorumRequest(topics=asked)).topics[0].partitions[0].current_voters
    return len(voters) == 3 and len({voter.log_end_offset for voter in voters}) == 1


def load(contender: Contender, folder: Path, sizes: Sizes, wanted: set[str]) -> Found:
    """A cluster as large as they come: how long it takes to make, and what it weighs."""
    with Quorum(contender, folder, properties=NO_SNAPSHOTS, heap=LARGE_HEAP) as quorum:
        quorum.brokers()
        before = quorum.leader.resident_bytes()
        begun, used = time.perf_counter(), quorum.leader.cpu_s()
        quorum.fill(sizes.loaded)
        seconds, used = time.perf_counter() - begun, quorum.leader.cpu_s() - used
        time.sleep(SETTLE_S)
        resident = quorum.leader.resident_bytes()
        log = quorum.leader.log_bytes()
    note = f"{sizes.loaded} partitions of three replicas in topics of 1,000, {log / MEBIBYTE:.0f} MiB of log"
    if "load-1m" in wanted:
        yield "load-1m", Sample([seconds], 1, f"{note}, {used:.1f} s of processor")
    if "load-1m-memory" in wanted:
        text = f"{note}; before it {before / MEBIBYTE:.0f} MiB"
        yield "load-1m-memory", Sample([resident / MEBIBYTE], 1, text)
