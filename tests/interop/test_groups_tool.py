"""``kraftcore groups`` beside Kafka's kafka-consumer-groups, on a broker of Kafka and on one of ours.

What reads is run twice and compared; what writes is done by Kafka's tool to ``zebra`` and by ours to ``okapi``.
"""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_lab import KafkaLab, KraftcoreNode, ToolResult, wait_for
from kafka_tools import KafkaTools
from tool_pair import Ours, alike

pytestmark = pytest.mark.deep

NAMES = ("zebra", "okapi")
BROKER = 10
AT_ONCE = {
    "group_initial_rebalance_delay_ms": 0,
    "offsets_topic_num_partitions": 3,
    "offsets_topic_replication_factor": 1,
}
Both = Callable[..., ToolResult]


def commit(consumer: Consumer, *offsets: TopicPartition) -> None:
    told = consumer.commit(offsets=list(offsets), asynchronous=False)
    assert [each.error for each in told or ()] == [None] * len(offsets)


class Busy:
    """A group ``busy`` of two members, one of them static, that have read a little of ``read``."""

    def __init__(self, servers: str) -> None:
        self._stop = threading.Event()
        self._stable = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(servers,))
        self._thread.start()

    def _run(self, servers: str) -> None:
        settings = {"bootstrap.servers": servers, "group.id": "busy", "enable.auto.commit": False}
        members = [
            Consumer({**settings, "client.id": "one"}),
            Consumer({**settings, "client.id": "two", "group.instance.id": "static"}),
        ]
        for each in members:
            each.subscribe(["read"])
        while not self._stop.is_set():
            for each in members:
                each.poll(0.05)
            if not self._stable.is_set() and all(each.assignment() for each in members):
                first = members[0].assignment()[0]
                commit(members[0], TopicPartition("read", first.partition, 3))
                self._stable.set()
        for each in members:
            each.close()

    def wait_stable(self) -> None:
        assert self._stable.wait(120)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


@pytest.fixture(scope="module", params=["kafka", "kraftcore"])
def place(
    request: pytest.FixtureRequest, kafka: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[KafkaLab, str]]:
    """A broker, and groups on it."""
    with KafkaLab(kafka, tmp_path_factory.mktemp("lab")) as lab:
        lab.start_quorum([1])
        if request.param == "kafka":
            node = lab.broker(BROKER, **AT_ONCE).format().start()
        else:
            node = lab.add(KraftcoreNode, BROKER, "broker", "PLAINTEXT", **AT_ONCE).format().start()
        at = node.wait_listening().address
        admin = AdminClient({"bootstrap.servers": at})
        counts = {"read": 3, **dict.fromkeys(NAMES, 2)}

        def has_topics() -> bool:
            wanted = [
                NewTopic(name, count, 1, config={"retention.ms": "-1"})
                for name, count in counts.items()
                if name not in known()
            ]
            for future in admin.create_topics(wanted).values() if wanted else ():
                future.exception()
            return {*counts} <= known()

        def known() -> set[str]:
            return {*admin.list_topics(timeout=60).topics}

        wait_for("topics", has_topics)
        producer = Producer({"bootstrap.servers": at})
        for name, count in counts.items():
            for number in range(10 * count):
                producer.produce(name, b"v", partition=number % count, timestamp=1000 * (1 + number // count))
        assert producer.flush(60) == 0
        for name in NAMES:
            consumer = Consumer({"bootstrap.servers": at, "group.id": name, "enable.auto.commit": False})
            commit(consumer, TopicPartition(name, 0, 4), TopicPartition(name, 1, 7))
            consumer.close()
        busy = Busy(at)
        try:
            busy.wait_stable()
            yield lab, at
        finally:
            busy.stop()


@pytest.fixture
def both(place: tuple[KafkaLab, str], capsys: pytest.CaptureFixture[str]) -> Both:
    """Run a line by both tools, hold what they say against each other, and return what ours said."""
    lab, at = place
    ours = Ours(capsys)

    def run(line: str, shows: str = "") -> ToolResult:
        words = shlex.split(line.replace("$B", f"--bootstrap-server {at}"))
        theirs = lab.tool("groups", *(word.replace("NAME", NAMES[0]) for word in words))
        mine = ours("groups", *(word.replace("NAME", NAMES[1]) for word in words))
        theirs, mine = (
            ToolResult(each.status, each.out.replace(*NAMES), each.err.replace(*NAMES)) for each in (theirs, mine)
        )
        if theirs.status == 0 and "Exception" in theirs.error_line:
            theirs.err = ""  # a stack trace, of what stdout says
        alike(theirs, mine)
        assert shows in mine.out + mine.err, mine
        return mine

    return run


def test_what_there_is(both: Both) -> None:
    both("$B --list", "okapi")
    both("$B --list --state", "Stable")
    both("$B --list --state stable --type", "Classic")
    both("$B --list --type consumer")
    for action in ("", "--verbose", "--offsets", "--members", "--members --verbose", "--state", "--state --verbose"):
        both(f"$B --describe --group busy {action}", "busy")
    both("$B --describe --all-groups", "okapi")
    both("$B --describe --group zebra", "has no active members")
    both("$B --describe --group okapi --members", "GROUP")
    both("$B --describe --group nobody", "GroupIdNotFoundException")


def test_wrong_usage(both: Both) -> None:
    both("--list", 'Missing required argument "[bootstrap-server]"')
    both("$B --list --describe --group a", "[list]")
    both("$B --describe --group a --members --state", "takes at most one")
    both("$B --describe --group a --state stable", "does not take a value")
    both("$B --delete --group a --topic b", "does not support")
    both("$B --reset-offsets --group a --dry-run --execute", "only accepts one of")
    both("$B --reset-offsets --group a --to-latest --dry-run", "One of the reset scopes")
    both("$B --reset-offsets --group a --topic b --to-latest --to-earliest --dry-run", "can't be used with")
    both("$B --delete-offsets --group a --all-groups --topic b", "can't be used with")
    both("$B --reset-offsets --group NAME --topic NAME:x --to-latest --dry-run", "Invalid partition")
    both("$B --delete-offsets --group NAME --topic NAME:9999999999", "Invalid partition")
    both("$B --delete-offsets --group NAME --topic NAME:", "expected topic name and partitions")
    both("$B --delete-offsets --group NAME --group nobody --topic NAME", "Found multiple arguments for option group")
    both("$B --reset-offsets --group NAME --topic read:0 --shift-by 1 --dry-run", "no current committed offset")


def test_offsets_are_reset(both: Both, tmp_path: Path) -> None:
    reset = "$B --reset-offsets --group NAME"
    plan = tmp_path / "plan.csv"
    plan.write_text("zebra,zebra,0,2\nokapi,okapi,0,2\n")
    both(f"{reset} --topic NAME --to-earliest", "WARN")
    both(f"{reset} --topic NAME --to-latest --dry-run", "10")
    both(f"{reset} --topic NAME:1 --shift-by -3 --execute", "4")
    both(f"{reset} --all-topics --to-current --export --dry-run", "okapi,1,4")
    both(f"{reset} --topic NAME --to-datetime 1970-01-01T00:00:04.500Z --dry-run", "4")
    both(f"{reset} --topic NAME --by-duration P1DT2H --dry-run", "is empty")
    both(f"{reset} --all-topics --to-offset 99 --execute", "10")
    both("$B --describe --group NAME")
    both(f"{reset} --topic NAME:0, --to-latest --dry-run", "10")
    both(f"{reset} --group nobody --from-file {plan} --dry-run", "No reset plan for group nobody found")
    both(f"{reset} --topic nothing --to-latest --dry-run", "does not host")
    both(f"{reset} --topic NAME:7 --to-latest --dry-run", 'The partitions "okapi-7" do not exist')
    both("$B --reset-offsets --group busy --topic read --to-latest --execute", "current state is Stable")
    both("$B --reset-offsets --group newNAME --topic NAME --to-latest --execute", "newokapi")
    both("$B --describe --group newNAME", "newokapi")


def test_offsets_and_groups_are_deleted(both: Both) -> None:
    both("$B --delete-offsets --group NAME --topic NAME:0", "Successful")
    both("$B --delete-offsets --group NAME --topic NAME --topic nothing")
    both("$B --delete-offsets --group busy --topic read", "partition-level")
    both("$B --delete-offsets --group nobody --topic read", "does not exist")
    both("$B --delete --group busy --group newNAME", "GroupNotEmptyException")
    both("$B --delete --group NAME")
    both("$B --delete --group nobody", "GroupIdNotFoundException")
