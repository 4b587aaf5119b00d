"""Records ``tests/golden/nights``: six days of a real Kafka 4.3.1, in two minutes.

    python tests/support/record_nights.py FOLDER

A controller and three brokers see a clock that is set forward, so that what happens each night at two happens at two.
The monotonic clock, by which brokers are fenced, is left as it is. FOLDER gets what ``tests/golden/nights`` holds, but
for random ids and milliseconds. It needs gcc, and what the interoperation tests need.
"""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, OffsetSpec
from kafka_lab import KafkaLab, KafkaNode, wait_for
from kafka_tools import KafkaTools

CLUSTER_ID = "nights-of-a-real-kafkA"
LEADING, FOLLOWING, FLAKY = 11, 12, 13
_SHIFTED = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static volatile long *ahead_s;
__attribute__((constructor)) static void begin(void) {
  ahead_s = mmap(0, sizeof(long), PROT_READ, MAP_SHARED, open(getenv("CLOCK_AHEAD"), O_RDONLY), 0);
}
int clock_gettime(clockid_t clock, struct timespec *now) {
  int failed = syscall(SYS_clock_gettime, clock, now);
  if (!failed && clock == CLOCK_REALTIME) now->tv_sec += *ahead_s;
  return failed;
}
"""


class Clock:
    """The time of the day that nodes see, which only goes forward."""

    def __init__(self, folder: Path) -> None:
        source, self.library, file = folder / "clock.c", folder / "clock.so", folder / "ahead"
        source.write_text(_SHIFTED)
        subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", self.library, source], check=True)
        file.write_bytes(bytes(8))
        with file.open("r+b") as handle:
            self._ahead_s = mmap.mmap(handle.fileno(), 8)
        self.environment = {"LD_PRELOAD": str(self.library), "CLOCK_AHEAD": str(file)}

    @property
    def now_ms(self) -> int:
        return round((time.time() + struct.unpack("q", self._ahead_s[:])[0]) * 1000)

    def set(self, day: int, at: str) -> None:
        """Go to a moment of November 2026, ``HH:MM:SS`` in UTC, and let the nodes come to rest there."""
        wanted = datetime.fromisoformat(f"2026-11-{day:02}T{at}+00:00").timestamp()
        before = struct.unpack("q", self._ahead_s[:])[0]
        ahead = round(wanted - time.time())
        assert before == 0 or ahead > before, f"{day} {at} is past"
        self._ahead_s[:] = struct.pack("q", ahead)
        print(f"November {day}, {at}", flush=True)
        time.sleep(2)


class Nights:
    """What operators and the nights do to the cluster."""

    def __init__(self, lab: KafkaLab, clock: Clock) -> None:
        self.lab, self.clock = lab, clock
        clock.set(16, "09:00:00")
        (controller,) = lab.start_quorum(
            [1], broker_session_timeout_ms=12000, metadata_max_idle_interval_ms=0,
            metadata_log_max_snapshot_interval_ms=0,
        )  # fmt: skip
        self.controller = controller
        self.brokers: dict[int, KafkaNode] = {}
        for one in (LEADING, FOLLOWING, FLAKY):
            self.brokers[one] = lab.broker(one, replica_lag_time_max_ms=3000).format().start()
        for broker in self.brokers.values():
            broker.wait_listening()
        self.wait("brokers to be let in", lambda: self._count() == 3)

    def tool(self, name: str, *arguments: object) -> str:
        bootstrap = self.brokers[LEADING].address
        done = self.lab.tool(name, "--bootstrap-server", bootstrap, *arguments)
        assert done.status == 0, done
        return done.out

    def _count(self) -> int:
        return len(confluent_kafka.Producer({"bootstrap.servers": self.brokers[LEADING].address}).list_topics().brokers)

    def partitions(self, *topics: str) -> list[Any]:
        """What the first broker knows of some topics' partitions."""
        client = confluent_kafka.Producer({"bootstrap.servers": self.brokers[LEADING].address})
        known = client.list_topics(timeout=20).topics
        return [partition for topic in topics for partition in known[topic].partitions.values()]

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        wait_for(what, condition)
        time.sleep(1)

    def topic(self, name: str, *arguments: object) -> None:
        self.tool("topics", "--create", "--topic", name, *arguments)

    def set(self, topic: str, text: str, how: str = "--add-config") -> None:
        self.tool("configs", "--alter", "--entity-type", "topics", "--entity-name", topic, how, text)

    def produce(self, topics: tuple[str, ...], count: int = 30) -> None:
        """Records to all partitions of topics, each acknowledged by the leader."""

        def told(error: object, _: object) -> None:
            assert error is None, error

        servers = ",".join(broker.address for broker in self.brokers.values())
        producer = confluent_kafka.Producer({"bootstrap.servers": servers, "acks": 1})
        for topic in topics:
            for partition in producer.list_topics(topic, timeout=20).topics[topic].partitions:
                for number in range(count):
                    producer.produce(
                        topic, b"record %d" % number, partition=partition, timestamp=self.clock.now_ms,
                        on_delivery=told,
                    )  # fmt: skip
        assert producer.flush(60) == 0
        time.sleep(1)

    def end(self, topic: str) -> int:
        """The end offset of a topic's first partition."""
        client = AdminClient({"bootstrap.servers": self.brokers[LEADING].address})
        (found,) = client.list_offsets({confluent_kafka.TopicPartition(topic, 0): OffsetSpec.latest()}).values()
        return int(found.result().offset)

    def behind(self, is_behind: bool, topics: tuple[str, ...]) -> None:
        """Wait until the flaky broker is out of the ISRs, or in all of them again."""
        self.wait(
            f"broker {FLAKY} to be {'out of' if is_behind else 'in'} the ISRs",
            lambda: all((FLAKY in one.isrs) != is_behind for one in self.partitions(*topics) if FLAKY in one.replicas),
        )

    def falls_behind(self, day: int, at: str, late: str, topics: tuple[str, ...]) -> None:
        """The flaky broker does nothing for a while, though producers go on."""
        self.clock.set(day, at)
        self.brokers[FLAKY].signal(SIGSTOP)
        self.produce(topics)
        self.clock.set(day, late)
        self.behind(True, topics)

    def night(self, day: int, minutes: int, topics: tuple[str, ...]) -> None:
        """A backup keeps the flaky broker's disk busy from two on."""
        self.falls_behind(day, "02:00:00", "02:00:50", topics)
        self.clock.set(day, f"02:{minutes}:00")
        self.brokers[FLAKY].signal(SIGCONT)
        self.behind(False, topics)


def record(lab: KafkaLab, clock: Clock) -> KafkaNode:
    """Everything that happens; returns the controller, stopped."""
    nights = Nights(lab, clock)
    busy = ("payments", "clicks")
    nights.topic("payments", "--replica-assignment", "11:12:13,12:11:13,11:12:13,12:11:13")
    nights.topic("audit", "--partitions", 2, "--replication-factor", 2)
    nights.topic("clicks", "--replica-assignment", "12:13", "--config", "min.insync.replicas=1")
    nights.set("payments", "min.insync.replicas=2")
    clock.set(16, "09:30:00")
    nights.set("payments", "retention.ms=604800000")

    nights.night(17, 24, busy)
    clock.set(17, "10:15:00")
    nights.set("payments", "retention.ms=86400000")
    clock.set(17, "15:00:00")
    nights.tool("topics", "--alter", "--topic", "payments", "--partitions", 6,
                "--replica-assignment", "11:12:13,12:11:13,11:12:13,12:11:13,11:12:13,12:11:13")  # fmt: skip

    nights.night(18, 31, busy)
    clock.set(18, "11:00:00")
    nights.tool("topics", "--delete", "--topic", "audit")
    clock.set(18, "11:02:00")
    nights.topic("audit", "--partitions", 3, "--replication-factor", 2)
    clock.set(18, "16:40:00")
    nights.set("payments", "retention.ms=3600000")

    nights.night(19, 38, busy)
    clock.set(19, "08:20:00")
    nights.set("payments", "retention.ms", "--delete-config")
    clock.set(19, "11:30:00")
    nights.tool("topics", "--alter", "--topic", "clicks", "--partitions", 3,
                "--replica-assignment", "12:13,12:13,12:13")  # fmt: skip
    clock.set(19, "15:10:00")
    nights.tool("topics", "--delete", "--topic", "audit")
    clock.set(19, "15:12:00")
    nights.topic("audit", "--partitions", 3, "--replication-factor", 2)

    nights.night(20, 45, busy)
    clock.set(20, "14:01:30")
    nights.set("payments", "min.insync.replicas=3")
    clock.set(20, "14:04:50")
    nights.brokers[FLAKY].stop()
    nights.behind(True, busy)
    clock.set(20, "14:12:00")
    nights.brokers[FLAKY].start().wait_listening()
    nights.behind(False, busy)
    clock.set(20, "14:20:00")
    nights.set("payments", "min.insync.replicas=2")

    nights.falls_behind(21, "02:00:00", "02:00:50", busy)
    clock.set(21, "02:20:00")
    nights.produce(("clicks",))  # what the flaky broker never gets
    before = nights.end("clicks")
    clock.set(21, "02:40:00")
    nights.brokers[FOLLOWING].kill()
    nights.brokers[FLAKY].signal(SIGCONT)
    nights.wait("nobody to lead clicks", lambda: all(one.leader == -1 for one in nights.partitions("clicks")))
    clock.set(21, "02:55:00")
    nights.tool("elect-leaders", "--election-type", "unclean", "--topic", "clicks", "--partition", 0)
    nights.wait("clicks-0 to be led", lambda: any(one.leader == FLAKY for one in nights.partitions("clicks")))
    print(f"clicks-0 lost {before - nights.end('clicks')} of {before} records", flush=True)
    clock.set(21, "03:10:00")
    nights.brokers[FOLLOWING].start().wait_listening()
    nights.wait("broker 12 to catch up", lambda: all(FOLLOWING in one.isrs for one in nights.partitions(*busy)))
    time.sleep(5)
    clock.set(21, "03:20:00")
    nights.tool("elect-leaders", "--election-type", "preferred", "--all-topic-partitions")
    time.sleep(2)
    nights.controller.stop()
    return nights.controller


def dump(kafka: KafkaTools, node: Path) -> None:
    """Keep what Kafka's own tool prints of each file, as beside all golden data."""
    (node / "dump").mkdir()
    for path in sorted(one for one in node.rglob("*") if one.suffix in (".log", ".checkpoint")):
        printed = kafka.dump_log("--cluster-metadata-decoder", "--files", path.relative_to(node), cwd=node)
        (node / "dump" / f"{path.name}.txt").write_text(printed)


def main() -> None:
    target = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        clock = Clock(folder)
        kafka = KafkaTools()
        with KafkaLab(kafka, folder) as lab:
            lab.cluster_id = CLUSTER_ID
            lab.jvm = ["env", *(f"{name}={value}" for name, value in clock.environment.items()), *lab.jvm]
            controller = record(lab, clock)
        node = target / "c1"
        shutil.rmtree(node, ignore_errors=True)
        node.mkdir(parents=True)
        shutil.copytree(controller.folder / "__cluster_metadata-0", node / "__cluster_metadata-0")
        shutil.copy(controller.folder / "meta.properties", node)
        for path in node.rglob("*.checkpoint"):
            path.chmod(0o644)  # Kafka's are for reading alone
        dump(kafka, node)


if __name__ == "__main__":
    main()
