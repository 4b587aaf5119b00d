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
from dataclasses import dataclass
from pathlib import Path

from bench.harness import Missing
from bench.peers.nodes.cluster import Cluster, Command, Load, Place
from bench.peers.nodes.control import Answer, split
from kraftcore.core.uuid import Uuid
from kraftcore.protocol.frames import decode_response, encode_request
from kraftcore.protocol.messages.fetch import FetchRequest, FetchResponse

MAIN = "kafka.tools.TestRaftServer"
TOPIC_ID = Uuid((2).to_bytes(16, "big"))
"""TestRaftServer's."""
FETCH_API_KEY, FETCH_VERSION = 1, 17
HEAP = "-Xmx512m"
RATE = 400_000
"""Records/s asked for under load: the most it sustains on two cores; asked for more, latency grows until it fails."""
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


def command(java: str, class_path: str, rate: int, record_bytes: int = 100) -> Command:
    """Make a node's command line; its files are written on the way."""

    def make(place: Place) -> list[str]:
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
        options += ["--throughput", str(rate), "--record-size", str(record_bytes)]
        return [java, HEAP, "-cp", f"{place.folder}:{class_path}", MAIN, *options]

    return make


@dataclass(frozen=True)
class Seen:
    """What a Fetch told: the epoch, and the high watermark (the leader's only; None from others, or not known yet)."""

    epoch: int
    high_watermark: int | None


def fetch(address: str, offset: int, epoch: int) -> Seen:
    """Ask a node for the high watermark, as an observer that has the log up to ``offset``.

    Raises:
        OSError: it is not there.
    """
    topic = FetchRequest.FetchTopic
    partition = topic.FetchPartition(partition=0, fetch_offset=offset, last_fetched_epoch=epoch, partition_max_bytes=1)
    topics = [topic(topic_id=TOPIC_ID, partitions=[partition])]
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1, topics=topics)
    with socket.create_connection(split(address), timeout=1.0) as connection:
        connection.sendall(encode_request(request, FETCH_VERSION, 1, "bench", size_prefix=True))
        with connection.makefile("rb") as file:
            frame = file.read(int.from_bytes(file.read(4), "big"))
    if not frame:
        raise ConnectionError("the node closed the connection")
    _, response = decode_response(frame, FETCH_API_KEY, FETCH_VERSION)
    assert isinstance(response, FetchResponse)
    if response.error_code or not response.responses:
        return Seen(-1, None)
    answer = response.responses[0].partitions[0]
    known = answer.error_code == 0 and answer.high_watermark >= 0
    return Seen(answer.current_leader.leader_epoch, answer.high_watermark if known else None)


class KafkaCluster(Cluster):
    """TestRaftServer three times; what other nodes answer on their control address is observed from outside."""

    known = Seen(0, 0)

    def _connect(self) -> None:
        self.wait_until(lambda: [fetch(address, 0, 0) for address in self.places[0].peers])

    def leader(self) -> int | None:
        for index, address in enumerate(self.places[0].peers):
            seen = self._look(address)
            if seen.high_watermark is not None:
                self.known = seen
                return index
        return None

    def _look(self, address: str) -> Seen:
        assert self.known.high_watermark is not None
        return fetch(address, self.known.high_watermark, self.known.epoch)

    def ready(self) -> int:
        return self.wait_until(self.leader)

    def load(self, load: Load, warm_s: float, measure_s: float) -> Answer:
        leader = self.ready()
        time.sleep(warm_s + WARM_S)
        begin, first = time.perf_counter(), self._committed(leader)
        time.sleep(max(measure_s, REPORT_S))
        end, last = time.perf_counter(), self._committed(leader)
        answer: Answer = {"calls": (last - first) / load.batch, "errors": 0, "seconds": end - begin}
        reports = re.findall(r"([\d.]+) p75 ([\d.]+) p99", self._output(leader).read_text())
        if not reports:
            raise Missing(f"{MAIN} reported no latency")
        answer["p99_us"] = float(reports[-1][1]) * 1e3
        return answer

    def _committed(self, leader: int) -> int:
        if self.leader() != leader or self.known.high_watermark is None:
            raise Missing("the leader lost its office under the load")
        return self.known.high_watermark

    def prober(self, index: int, timeout_ms: int) -> Callable[[], bool]:
        address = self.places[0].peers[index]
        before = self.known.epoch

        def probe() -> bool:
            # A leader tells a high watermark only after it committed a record of its own epoch.
            seen = self._look(address)
            return seen.high_watermark is not None and seen.epoch > before

        return probe
