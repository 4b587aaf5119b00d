"""Kafka's own raft, through the load generator that Kafka brings for it: kafka.tools.TestRaftServer, three JVMs.

Its leader appends records at a given rate from within, so there is no closed loop and no call to await. What was
committed is read off the high watermark by Fetch, commit latency from the line it prints every 5 s; that histogram ends
at 250 ms.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from bench.harness import Missing
from bench.peers.nodes.cluster import Cluster, Load, Place
from bench.peers.nodes.control import Answer, split
from kraftcore.core.uuid import Uuid
from kraftcore.protocol.frames import decode_response, encode_request
from kraftcore.protocol.messages.fetch import FetchRequest, FetchResponse

MAIN = "kafka.tools.TestRaftServer"
TOPIC_ID = Uuid((2).to_bytes(16, "big"))
"""TestRaftServer's."""
FETCH_API_KEY, FETCH_VERSION = 1, 17
FETCH_TIMEOUT_S = 1.0
HEAP = "-Xmx512m"
RATE = 400_000
"""Records/s asked for under load: about what two cores sustain. With more, latency grows until it fails."""
RATE_MIN = 50_000
IDLE_RATE = 1
"""The least it can be told to append."""
FAILOVER_RATE = 1000
WARM_S = 8.0
"""Besides the plan's: the just-in-time compiler needs it."""
REPORT_S = 5.5
"""It reports its latency every 5 s."""
LOGGING = """\
rootLogger.level=WARN
rootLogger.appenderRef.c.ref=C
appender.c.type=Console
appender.c.name=C
appender.c.layout.type=PatternLayout
appender.c.layout.pattern=%m%n
"""


@dataclass(frozen=True)
class Seen:
    """What a Fetch told: the epoch, and the high watermark (the leader's only; None from others, or not known yet)."""

    epoch: int
    high_watermark: int | None


START = Seen(0, 0)


def fetch(address: str, known: Seen) -> Seen:
    """Ask a node for the high watermark.

    Args:
        address: ``host:port`` of the node.
        known: asked before; what comes after it is fetched, so that little is sent.
    Raises:
        OSError: it is not there.
    """
    with socket.create_connection(split(address), timeout=FETCH_TIMEOUT_S) as connection:
        epoch = known.epoch
        while (seen := _exchange(connection, known, epoch)).epoch > epoch and seen.high_watermark is None:
            epoch = seen.epoch  # a Fetch in an older epoch than the node's is refused
    return seen


def _exchange(connection: socket.socket, known: Seen, leader_epoch: int) -> Seen:
    topic = FetchRequest.FetchTopic
    partition = topic.FetchPartition(
        partition=0,
        current_leader_epoch=leader_epoch,
        fetch_offset=known.high_watermark or 0,
        last_fetched_epoch=known.epoch,
        partition_max_bytes=1,
    )
    topics = [topic(topic_id=TOPIC_ID, partitions=[partition])]
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1, topics=topics)
    connection.sendall(encode_request(request, FETCH_VERSION, 1, "bench", size_prefix=True))
    with connection.makefile("rb") as file:
        frame = file.read(int.from_bytes(file.read(4), "big"))
    if not frame:
        raise ConnectionError("the node closed the connection")
    _, response = decode_response(frame, FETCH_API_KEY, FETCH_VERSION)
    assert isinstance(response, FetchResponse)
    if not response.responses:
        return Seen(-1, None)
    answer = response.responses[0].partitions[0]
    told = answer.error_code == 0 and answer.high_watermark >= 0
    return Seen(answer.current_leader.leader_epoch, answer.high_watermark if told else None)


@dataclass(frozen=True)
class KafkaCommand:
    """Makes a node's command line; its files are written on the way.

    Attributes:
        rate: records/s that a leader appends.
    """

    java: str
    class_path: str
    rate: int
    record_bytes: int = 100

    def __call__(self, place: Place) -> list[str]:
        place.folder.mkdir()
        (place.folder / "log4j2.properties").write_text(LOGGING)
        properties = place.folder / "server.properties"
        voters = ",".join(f"{number}@{address}" for number, address in enumerate(place.peers, 1))
        lines = {
            "process.roles": "controller",
            "node.id": place.index + 1,
            "listeners": f"CONTROLLER://{place.peers[place.index]}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": voters,
            "log.dirs": place.folder / "data",
        }
        properties.write_text("".join(f"{name}={text}\n" for name, text in lines.items()))
        (place.folder / "data").mkdir()
        options = ["--config", str(properties), "--replica-directory-id", str(Uuid.random())]
        options += ["--throughput", str(self.rate), "--record-size", str(self.record_bytes)]
        return [self.java, HEAP, "-cp", f"{place.folder}:{self.class_path}", MAIN, *options]


class KafkaCluster(Cluster):
    """TestRaftServer three times; what other nodes answer on their control address is observed from outside."""

    known = START

    def _connect(self) -> None:
        self.wait_until(lambda: [fetch(address, START) for address in self.places[0].peers])

    def leader(self) -> int | None:
        for index, address in enumerate(self.places[0].peers):
            try:
                seen = fetch(address, self.known)
            except OSError:  # too busy to answer, or gone: another may lead
                continue
            if seen.high_watermark is not None:
                self.known = seen
                return index
        return None

    def ready(self) -> int:
        return self.wait_until(self.leader)

    def load(self, load: Load, warm_s: float, measure_s: float) -> Answer:
        """Watch what the generator does; at a lower rate if the leader loses its office under this one."""
        while True:
            try:
                return self._watch(load, warm_s + WARM_S, max(measure_s, REPORT_S))
            except Missing:
                command = self.command
                if not isinstance(command, KafkaCommand) or command.rate <= RATE_MIN:
                    raise
                self.stop()
                self.known = START
                self.start(replace(command, rate=command.rate // 2))

    def _watch(self, load: Load, warm_s: float, measure_s: float) -> Answer:
        leader = self.ready()
        time.sleep(warm_s)
        begin, first = time.perf_counter(), self._committed(leader)
        time.sleep(measure_s)
        end, last = time.perf_counter(), self._committed(leader)
        reports = re.findall(r"([\d.]+) p75 ([\d.]+) p99", self._output(leader).read_text())
        if not reports:
            raise Missing(f"{MAIN} reported no latency")
        p99_us = float(reports[-1][1]) * 1e3
        return {"calls": (last - first) / load.batch, "errors": 0, "seconds": end - begin, "p99_us": p99_us}

    def _committed(self, leader: int) -> int:
        if self.leader() != leader or self.known.high_watermark is None:
            raise Missing("the leader lost its office under the load")
        return self.known.high_watermark

    def prober(self, index: int, timeout_ms: int) -> Callable[[], bool]:
        address, known = self.places[0].peers[index], self.known

        def probe() -> bool:
            # A leader tells a high watermark only after it committed a record of its own epoch.
            seen = fetch(address, known)
            return seen.high_watermark is not None and seen.epoch > known.epoch

        return probe
