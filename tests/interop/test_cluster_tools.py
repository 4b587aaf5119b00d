"""``kraftcore topics``, ``configs``, ``elect-leaders``, ``reassign``, ``acls`` beside Kafka's tools.

Kafka's brokers, on a controller of Kafka's and on one of ours. What reads is run twice and compared; what writes is
done by Kafka's tool to what is called ``zebra`` and by ours to what is called ``okapi``, and the names are put out.
"""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from kafka_lab import KafkaLab, ToolResult, wait_for
from kafka_tools import KafkaTools
from project import ROOT
from tool_pair import Ours, alike

from kraftcore import admin
from kraftcore.admin import TopicPartition

BROKERS = (11, 12, 13)
LOST = 13
NAMES = ("zebra", "okapi")
PATIENCE_S = 60
UNDER = "--under-replicated-partitions"
READS = re.compile("--(describe|list|verify)( |$)")
Both = Callable[..., ToolResult]


@pytest.fixture(scope="module", params=["kafka", "kraftcore"])
def lab(
    request: pytest.FixtureRequest, kafka: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaLab]:
    """A controller and three brokers in racks, with an authorizer that allows the anonymous everything."""
    allowed = {
        "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super_users": "User:ANONYMOUS",
    }
    with KafkaLab(kafka, tmp_path_factory.mktemp("lab")) as lab:
        lab.start_quorum([1], make=lab.kraftcore if request.param == "kraftcore" else None, **allowed)
        for number in BROKERS:
            second = lab.folder / f"second-{number}"
            node = lab.broker(number, broker_rack=f"rack-{number % 2}", **allowed)
            node.write(log_dirs=f"{node.folder},{second}").format().start()
        for number in BROKERS:
            lab.nodes[number].wait_listening()
        wait_for("three brokers", lambda: len(_run(lab, lambda client: client.list_endpoints())) == 3)
        where = f"--bootstrap-server {_servers(lab)}"
        for name in ("read", "quiet.one"):
            made = _kafka(lab, f"topics {where} --create --topic {name} --replica-assignment 11:12,12:13,13:11")
            assert made.status == 0, made
        wait_for("everybody to know the topics", lambda: _is_settled(lab))
        yield lab


def _is_settled(lab: KafkaLab) -> bool:
    for number in BROKERS:
        where = f"--bootstrap-server {lab.nodes[number].address} --describe"
        if _kafka(lab, f"topics {where}").out.count("Leader: 1") < 6 or _kafka(lab, f"topics {where} {UNDER}").out:
            return False
    return True


def _servers(lab: KafkaLab) -> str:
    return ",".join(lab.nodes[number].address for number in BROKERS)


def _run(lab: KafkaLab, work: Callable[[admin.AdminClient], Any]) -> Any:
    async def main() -> Any:
        async with admin.connect(bootstrap_servers=[lab.nodes[number].address for number in BROKERS]) as client:
            return await work(client)

    return trio.run(main)


def _kafka(lab: KafkaLab, line: str) -> ToolResult:
    return lab.tool(*shlex.split(line))


@pytest.fixture
def both(lab: KafkaLab, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Both:
    """Run a line by both tools, hold what they say against each other, and return what ours said.

    What only reads is repeated until both say the same, and what is to be shown: brokers learn of changes later.
    $B and $C stand for where brokers and controllers are, NAME for what each tool calls its own, <<...>> for a file.
    """
    ours = Ours(capsys)

    def spelled(line: str, name: str) -> str:
        for number, content in enumerate(re.findall(r"<<(.*?)>>", line)):
            path = tmp_path / f"{number}.json"
            path.write_text(content.replace("NAME", name))
            line = line.replace(f"<<{content}>>", str(path), 1)
        line = line.replace("$B", f"--bootstrap-server {_servers(lab)}")
        return line.replace("$C", f"--bootstrap-controller {lab.controllers}").replace("NAME", name)

    def once(line: str, shows: str, between: Callable[[], object]) -> ToolResult:
        theirs = _hidden(_kafka(lab, spelled(line, NAMES[0])))
        between()
        mine = _hidden(ours(*shlex.split(spelled(line, NAMES[1]))))
        alike(theirs, mine)
        assert shows in mine.out, mine
        return mine

    def run(line: str, shows: str = "", between: Callable[[], object] = lambda: None) -> ToolResult:
        end = time.monotonic() + (PATIENCE_S if READS.search(line) else 0)
        while True:
            try:
                return once(line, shows, between)
            except AssertionError:
                if time.monotonic() >= end:
                    raise

    return run


def _hidden(result: ToolResult) -> ToolResult:
    """Without what differs by chance: names, ids, directories, the order of a hash table within a line."""

    def steady(text: str) -> str:
        text = re.sub("|".join(NAMES), "NAME", text)
        text = re.sub(r"TopicId: \S+", "TopicId: ID", text)
        text = re.sub(r"(broker|second)-(\d+\")", r"directory-\2", text)
        return re.sub(r"(?<=operations \[).*(?=])", lambda found: ", ".join(sorted(found[0].split(", "))), text)

    return ToolResult(result.status, steady(result.out), steady(result.err))


TOPICS_READ = """
--list
--list --exclude-internal
--list --topic 'qui.*'
--list --topic read --topic quiet.one
--describe
--describe --topic read
--describe --topic 'read,quiet.one' --partition-size-limit-per-response 2
--describe --topic nosuch
--describe --topic nosuch --if-exists
--describe --topic '[x'
--describe --topics-with-overrides
--describe --under-replicated-partitions
--describe --at-min-isr-partitions
--describe --under-min-isr-partitions
--describe --unavailable-partitions
--describe --topic-id AAAAAAAAAAAAAAAAAAAAAA
--describe --topic-id AAAAAAAAAAAAAAAAAAAAAQ
--describe --topic-id AAAAAAAAAAAAAAAAAAAAAQ --if-exists
--describe --if-exists --topic read --topic-id AAAAAAAAAAAAAAAAAAAAAQ
--create --topic read
--create --topic read --if-not-exists
--create --topic x --replica-assignment 11:11
--create --topic x --replica-assignment 11:12,11
--create --topic x --replica-assignment 11:a
--create --topic x --replica-assignment 99
--create --topic x --replication-factor 9
--create --topic x --replication-factor 40000
--create --topic x --partitions 0
--create --topic x --config a
--create --topic x --config a=b
--create --topic x --config retention.ms=b
--create --topic x!
--create --topic ..
--alter --topic read --partitions 1
--alter --topic read --partitions 3
--alter --topic read --partitions 5 --replica-assignment 11,12,13,11
--alter --topic nosuch --partitions 5
--delete --topic nosuch
--delete --topic nosuch --if-exists
"""
TOPICS_WRONG = """
topics $B --delete
topics $B
topics --list
topics $B --list --create
topics $B --list --partitions 1
topics $B --create --topic x --replica-assignment 1 --partitions 1
topics $B --alter --topic x
topics $B --describe --if-exists
topics $B --describe --under-replicated-partitions --topics-with-overrides
topics $B --list --if-exists
topics $B --list --if-not-exists
topics $B --create --topic x --exclude-internal
topics $B --list --nothing
topics $B --list --topic
configs $B
configs --describe --topic read
configs $B $C --describe --topic read
configs $B --describe
configs $B --describe --entity-type nosuch
configs $B --describe --entity-type topics --entity-type users
configs $B --describe --topic read --entity-type topics
configs $B --describe --entity-type topics --entity-type topics
configs $B --describe --topic read --add-config a=b
configs $B --describe --broker x
configs $B --describe --entity-type broker-loggers
configs $B --describe --entity-type topics --entity-default
configs $B --alter --topic read
configs $B --alter --topic read --add-config a=b --add-config-file x
configs $B --alter --topic read --add-config nosuch
configs $B --alter --topic read --add-config 'a b=c'
configs $B --alter --entity-type brokers --add-config a=b
configs $B --alter --entity-type topics --add-config a=b
configs $B --describe --nothing
elect-leaders $B
elect-leaders --election-type preferred --all-topic-partitions
elect-leaders $B --election-type nosuch --all-topic-partitions
elect-leaders $B --election-type preferred
elect-leaders $B --election-type preferred --topic read
elect-leaders $B --election-type preferred --partition 1 --all-topic-partitions
elect-leaders $B --election-type preferred --all-topic-partitions --topic read --partition 0
elect-leaders $B --election-type preferred --path-to-json-file <<nothing>>
elect-leaders $B --election-type preferred --path-to-json-file <<{"topics": []}>>
reassign $B
reassign --list
reassign $B $C --list
reassign $B --list --execute
reassign $B --execute --timeout 5 --timeout 6 --reassignment-json-file <<{}>>
reassign $B --execute
reassign $B --generate --broker-list 11
reassign $C --verify --reassignment-json-file <<{}>>
reassign $B --list --throttle 5
reassign $B --verify --additional --reassignment-json-file <<{}>>
acls --list
acls $B $C --list
acls $B
acls $B --list --add
acls $B --list --allow-principal User:a
acls $B --add --producer --operation Read --topic a
acls $B --add --principal User:a --topic a
acls $B --add --producer --allow-principal User:a
acls $B --add --idempotent --allow-principal User:a --topic a
acls $B --add --consumer --topic a --allow-principal User:a
acls $B --add --allow-principal User:a
acls $B --add --topic a
acls $B --add --topic a --allow-principal User:a --resource-pattern-type any
acls $B --list --nothing
"""
CONFIGS_READ = """
$B --describe --topic read
$B --describe --entity-type topics --entity-name read --all
$B --describe --entity-type topics
$B --describe --topic nosuch
$B --describe --topic nosuch --all
$B --describe --topic x!
$B --describe --broker 11
$B --describe --broker 11 --all
$B --describe --broker 99
$B --describe --broker-defaults
$B --describe --entity-type brokers
$B --describe --entity-type brokers --entity-default --all
$C --describe --broker 1
$C --describe --entity-type brokers
$C --describe --topic read
$B --describe --client-metrics nosuch
$B --describe --group nosuch
$B --describe --user nosuch
$B --alter --topic nosuch --add-config retention.ms=1
$B --alter --topic read --add-config retention.ms=x
$B --alter --topic read --add-config nosuch=x
$B --alter --topic read --delete-config segment.bytes
$B --alter --topic read --delete-config segment.bytes,,retention.ms,
$B --describe --topic read --topic quiet.one
$B --alter --user u --add-config producer_byte_rate=x
$B --alter --user u --delete-config producer_byte_rate
$B --alter --user u --add-config 'SCRAM-SHA-512=[iterations=99,password=x]'
$B --alter --user u --add-config 'SCRAM-SHA-512=[pass=x]'
$B --alter --user u --add-config 'SCRAM-SHA-512=[password=x],producer_byte_rate=1'
$B --alter --user-defaults --add-config 'SCRAM-SHA-512=[password=x]'
$B --alter --user u --delete-config SCRAM-SHA-512
$B --alter --ip nosuch.invalid --add-config connection_creation_rate=10
$B --alter --broker-logger 11 --add-config nosuch.x=DEBUG
$B --alter --client-metrics sub --add-config interval.ms=1
"""


def lines(text: str, prefix: str = "") -> list[str]:
    return [prefix + line for line in text.strip().splitlines()]


@pytest.mark.parametrize("line", lines(TOPICS_READ, "topics $B "))
def test_topics_are_shown_and_refused_the_same(both: Both, line: str) -> None:
    both(line)


@pytest.mark.parametrize("line", lines(CONFIGS_READ, "configs "))
def test_configurations_are_shown_and_refused_the_same(both: Both, line: str) -> None:
    both(line)


@pytest.mark.parametrize("line", lines(TOPICS_WRONG))
def test_wrong_usage_is_said_the_same(both: Both, line: str) -> None:
    assert both(line).status == 1


def test_a_topic_comes_changes_and_goes(both: Both, lab: KafkaLab) -> None:
    config = "--config retention.ms=1000 --config cleanup.policy=compact,delete"
    both(f"topics $B --create --topic NAME --replica-assignment 11:12,12:13 {config}")
    both("topics $B --describe --topic NAME", shows="retention.ms=1000")
    both("topics $B --create --topic NAME")
    both("topics $B --alter --topic NAME --partitions 3 --replica-assignment 11:12,12:13,13:11")
    both("topics $B --describe --topic NAME", shows="PartitionCount: 3")
    both("configs $B --alter --topic NAME --add-config 'retention.ms=5000,cleanup.policy=[compact,delete]'")
    both("configs $B --alter --topic NAME --add-config-file <<segment.bytes=1048576>>")
    both("configs $B --describe --topic NAME", shows="segment.bytes=1048576")
    both("configs $B --alter --topic NAME --delete-config retention.ms --delete-config segment.bytes")
    both("configs $C --alter --topic NAME --add-config retention.ms=77")
    both("configs $B --describe --topic NAME", shows="retention.ms=77 ")
    both("topics $B --delete --topic NAME")
    wait_for("the topics to go", lambda: not {*NAMES} & {*_names(lab)})


def _names(lab: KafkaLab) -> list[str]:
    return [topic.name for topic in _run(lab, lambda client: client.list_topics())]


def test_quotas_and_credentials_are_set_and_shown(both: Both) -> None:
    for line in lines(
        """
        --alter --user NAME --add-config producer_byte_rate=1024
        --alter --user NAME --add-config consumer_byte_rate=1e7
        --alter --user NAME --client app --add-config request_percentage=0.5
        --alter --entity-type clients --entity-default --entity-type users --entity-name NAME --add-config request_percentage=200
        --alter --client-defaults --add-config producer_byte_rate=123456789
        --alter --ip 127.0.0.9 --add-config connection_creation_rate=10
        --alter --ip-defaults --add-config connection_creation_rate=12
        --alter --user NAME --add-config 'SCRAM-SHA-256=[iterations=5000,password=se,cret]'
        --alter --user NAME --add-config 'SCRAM-SHA-512=[password=secret]'
        """  # noqa: E501
    ):
        assert "Completed updating" in both(f"configs $B {line.strip()}").out
    for line in lines(
        """
        --describe --user NAME
        --describe --user NAME --client app
        --describe --entity-type users --entity-name NAME --entity-type clients
        --describe --entity-type users
        --describe --entity-type clients
        --describe --entity-type users --entity-type clients
        --describe --client-defaults
        --describe --entity-type ips
        --describe --ip 127.0.0.9
        """
    ):
        both(f"configs $B {line.strip()}", shows="configs for ")
    both("configs $B --describe --user NAME", shows="SCRAM-SHA-256=iterations=5000")
    for keys in ("SCRAM-SHA-256,SCRAM-SHA-512", "producer_byte_rate"):
        both(f"configs $B --alter --user NAME --delete-config {keys}")
    both("configs $B --describe --user NAME", shows="user-principal 'NAME' are consumer_byte_rate=1.0E7\n")


def test_other_resources_are_changed_and_shown(both: Both) -> None:
    both("configs $B --alter --client-metrics NAME --add-config 'interval.ms=1000,metrics=[org.a,org.b]'")
    both("configs $B --describe --client-metrics NAME", shows="metrics=org.a,org.b")
    both("configs $B --describe --entity-type client-metrics")
    both("configs $B --alter --group NAME --add-config consumer.session.timeout.ms=50000")
    both("configs $B --describe --group NAME", shows="=50000 ")
    both("configs $B --describe --entity-type groups")
    both("configs $B --describe --group NAME --all")
    both("configs $B --alter --broker-defaults --add-config log.cleaner.threads=2")
    both("configs $B --describe --broker-defaults", shows="log.cleaner.threads=2")
    both("configs $B --alter --broker-defaults --delete-config log.cleaner.threads")
    both("configs $B --alter --broker 11 --add-config follower.replication.throttled.rate=77")
    both("configs $B --describe --broker 11")
    both("configs $B --alter --broker 11 --delete-config follower.replication.throttled.rate")
    both("configs $B --alter --broker-logger 11 --add-config kafka.server=DEBUG")
    both("configs $B --alter --broker-logger 11 --delete-config kafka.server")


@pytest.mark.parametrize("where", ["$B", "$C"])
def test_access_control_entries_come_and_go(both: Both, where: str) -> None:
    allow = "--add --allow-principal User:NAME"
    for line in lines(
        f"""
        {allow} --operation Read --operation DescribeConfigs --topic NAME
        {allow} --operation Read --topic NAME
        {allow} --producer --topic NAME-p --transactional-id NAME-t
        {allow} --producer --idempotent --topic NAME-i
        {allow} --consumer --topic NAME-c --group NAME-g
        {allow} --producer --consumer --topic NAME-b --group NAME-b
        {allow} --deny-principal User:eve --deny-host 127.0.0.9 --operation Write --topic NAME- --resource-pattern-type prefixed
        {allow} --cluster --operation Alter
        {allow} --delegation-token NAME --operation Describe
        {allow} --user-principal User:NAME --operation CreateTokens
        """  # noqa: E501
    ):
        assert "Acl" in both(f"acls {where} {line.strip()}").out.replace("ACL", "Acl")
    both(f"acls {where} --list --principal User:okapi", shows="NAME-g")
    for line in (
        "--topic NAME",
        "--topic NAME-x --resource-pattern-type match",
        "--group NAME-g --principal User:NAME",
    ):
        both(f"acls {where} --list {line}")
    both(f"acls {where} --add --allow-principal User:NAME --operation Create --group NAME-g")
    both(f"acls {where} --add --allow-principal NAME --operation Read --group NAME-g")
    both(f"acls {where} --list --resource-pattern-type nosuch --topic NAME")
    both(f"acls {where} --remove --allow-principal User:NAME --operation Read --topic NAME --force")
    for resource in ("--topic NAME", "--topic NAME-p", "--topic NAME-i", "--topic NAME-c", "--topic NAME-b"):
        both(f"acls {where} --remove {resource} --force")
    for resource in ("--group NAME-g", "--group NAME-b", "--transactional-id NAME-t", "--delegation-token NAME"):
        both(f"acls {where} --remove {resource} --force")
    both(f"acls {where} --remove --topic NAME- --resource-pattern-type prefixed --force")
    both(f"acls {where} --remove --user-principal User:NAME --force")
    both(f"acls {where} --remove --cluster --allow-principal User:NAME --operation Alter --force")
    both(f"acls {where} --remove --cluster --allow-principal User:NAME --operation IdempotentWrite --force")
    wait_for("entries to go", lambda: "NAME" not in _entries(both, where))


def _entries(both: Both, where: str) -> str:
    return both(f"acls {where} --list").out


def plan(topic: str, *replicas: list[int], **more: object) -> str:
    partitions = [{"topic": topic, "partition": number, "replicas": each} for number, each in enumerate(replicas)]
    return "<<" + json.dumps({"version": 1, "partitions": [{**each, **more} for each in partitions]}) + ">>"


@pytest.mark.deep
def test_replicas_move_to_other_brokers(both: Both, lab: KafkaLab) -> None:
    both("topics $B --create --topic NAME --replica-assignment 11:12,12:13")
    both("topics $B --describe --topic NAME", shows="Replicas: 12,13")
    wanted = plan("NAME", [12, 11], [13, 11])
    both(f"reassign $B --verify --reassignment-json-file {wanted} --preserve-throttles", shows="rather than 13,11.")
    execute = f"reassign $B --execute --reassignment-json-file {wanted} --throttle 100000000"
    started = both(execute, between=lambda: _wait_moved(lab))
    assert "Successfully started partition reassignments for NAME-0,NAME-1" in started.out
    both("reassign $B --list", shows="No partition reassignments found.")
    both("reassign $C --list", shows="No partition reassignments found.")
    both("topics $B --describe --topic NAME", shows="Replicas: 13,11\tIsr: 11")
    both("configs $B --describe --topic NAME", shows="follower.replication.throttled.replicas=1:11")
    both(
        f"reassign $B --verify --reassignment-json-file {wanted}",
        shows="Reassignment of partition NAME-1 is completed.",
    )
    wait_for("throttles to go", lambda: "throttled" not in both("configs $B --describe --topic NAME").out)
    both(f"reassign $B --cancel --reassignment-json-file {wanted} --preserve-throttles")
    one = "--topic NAME --partition 0"
    assert "Successfully completed" in both(f"elect-leaders $B --election-type preferred {one}").out
    assert "Valid replica already elected" in both(f"elect-leaders $B --election-type preferred {one}").out
    both(f"elect-leaders $B --election-type unclean {one}")
    both("elect-leaders $B --election-type preferred --topic NAME --partition 9")
    one = '<<{"partitions":[{"topic":"NAME","partition":1}]}>>'
    both(f"elect-leaders $B --election-type PREFERRED --path-to-json-file {one}")
    both("elect-leaders $B --election-type preferred --all-topic-partitions")
    both("topics $B --delete --topic NAME")


def _wait_moved(lab: KafkaLab) -> None:
    wait_for("replicas to have moved", lambda: not _run(lab, lambda client: client.list_reassignments()))


@pytest.mark.deep
def test_replicas_move_to_other_directories(both: Both, lab: KafkaLab) -> None:
    both("topics $B --create --topic NAME-d --replica-assignment 11")
    both("topics $B --describe --topic NAME-d", shows="Leader: 11")
    there = plan("NAME-d", [11], log_dirs=[str(lab.folder / "second-11")])
    begin = "--execute --replica-alter-log-dirs-throttle 1000000"
    moved = both(f"reassign $B {begin} --reassignment-json-file {there}", between=lambda: _wait_moved(lab))
    assert "Successfully started moving log directory" in moved.out
    wait_for("both to have moved", lambda: all("completed successfully" in _verified(lab, name) for name in NAMES))
    both(f"reassign $B --verify --reassignment-json-file {there}", shows="completed successfully")
    both("topics $B --delete --topic NAME-d")


def _verified(lab: KafkaLab, topic: str) -> str:
    path = lab.folder / "directories.json"
    path.write_text(plan(f"{topic}-d", [11], log_dirs=[str(lab.folder / "second-11")])[2:-2])
    where = f"--bootstrap-server {_servers(lab)}"
    return _kafka(lab, f"reassign {where} --verify --preserve-throttles --reassignment-json-file {path}").out


@pytest.mark.parametrize(
    "line",
    [
        f"--execute --reassignment-json-file {plan('nosuch', [11])}",
        f"--execute --reassignment-json-file {plan('read', [99, 11])}",
        f"--execute --reassignment-json-file {plan('read', [11, 11])}",
        f"--execute --reassignment-json-file {plan('read', [])}",
        f"--execute --reassignment-json-file {plan('read', [11], [12], [13], [11])}",
        f"--execute --reassignment-json-file {plan('read', [11], log_dirs=['a', 'b'])}",
        f"--execute --disallow-replication-factor-change --reassignment-json-file {plan('read', [11])}",
        '--execute --reassignment-json-file <<{"version":1,"partitions":[]}>>',
        '--execute --reassignment-json-file <<{"version":2,"partitions":[]}>>',
        f"--verify --preserve-throttles --reassignment-json-file {plan('nosuch', [11])}",
        f"--verify --preserve-throttles --reassignment-json-file {plan('read', [11, 13])}",
        f"--verify --reassignment-json-file {plan('read', [11, 13], log_dirs=['any', '/x'])}",
        f"--cancel --preserve-throttles --reassignment-json-file {plan('read', [11, 13])}",
        '--generate --broker-list 11,12, --topics-to-move-json-file <<{"topics":[{"topic":"nosuch"}]}>>',
        '--generate --broker-list 11,11 --topics-to-move-json-file <<{"topics":[{"topic":"read"}]}>>',
        '--generate --broker-list 11,12 --topics-to-move-json-file <<{"topics":[{"topic":"nosuch"}]}>>',
        '--generate --broker-list 11 --topics-to-move-json-file <<{"topics":[{"topic":"read"}]}>>',
        '--generate --broker-list 11,12 --topics-to-move-json-file <<{"topics":[{"topic":"read"},{"topic":"read"}]}>>',
    ],
)
def test_reassignments_are_refused_the_same(both: Both, lab: KafkaLab, line: str) -> None:
    both(f"reassign $B {line}")


@pytest.mark.deep
def test_proposals_have_the_same_form_and_keep_the_rules(
    lab: KafkaLab, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "topics.json"
    path.write_text('{"version": 1, "topics": [{"topic": "read"}, {"topic": "quiet.one"}]}')
    line = f"reassign --bootstrap-server {_servers(lab)} --generate --topics-to-move-json-file {path}"
    line += " --broker-list 11,12,13"
    theirs, mine = _kafka(lab, line), Ours(capsys)(*shlex.split(line))
    assert theirs.out.splitlines()[:2] == mine.out.splitlines()[:2]
    for result in (theirs, mine):
        proposed = json.loads(result.out.splitlines()[-1])
        assert list(proposed) == ["version", "partitions"]
        assert [(each["topic"], each["partition"]) for each in proposed["partitions"]] == [
            (name, number) for name in ("quiet.one", "read") for number in range(3)
        ]
        for each in proposed["partitions"]:
            assert list(each) == ["topic", "partition", "replicas", "log_dirs"]
            assert len(set(each["replicas"])) == 2
            assert {number % 2 for number in each["replicas"]} == {0, 1}  # one in each rack


def test_the_client_gives_typed_answers_and_errors(lab: KafkaLab) -> None:
    async def work(client: admin.AdminClient) -> None:
        created = await client.create_topics([admin.NewTopic("typed", 2, 1, configs={"retention.ms": "5"})])
        assert (created["typed"].partitions, created["typed"].replication_factor) == (2, 1)
        with pytest.raises(admin.PartlyRefusedError) as refused:
            await client.create_topics([admin.NewTopic("typed"), admin.NewTopic("typed-2", 1, 1)])
        assert refused.value.error == "TOPIC_ALREADY_EXISTS"
        assert isinstance(refused.value.results["typed-2"], admin.CreatedTopic)
        await client.create_partitions({"typed": admin.NewPartitions(3)})
        with trio.fail_after(60):
            while True:
                with suppress(admin.PartlyRefusedError):  # a broker that does not know it yet
                    if len((await client.describe_topics(["typed"]))["typed"].partitions) == 3:
                        break
                await trio.sleep(0.1)
        (found,) = (await client.describe_topics_by_id([created["typed"].id])).values()
        assert found.name == "typed"
        await client.delete_topics(ids=[created["typed"].id])
        await client.delete_topics(["typed-2"])
        with pytest.raises(admin.PartlyRefusedError) as refused:
            await client.delete_topics(ids=[created["typed"].id])
        assert refused.value.error == "UNKNOWN_TOPIC_ID"

    _run(lab, work)


def _manual() -> list[tuple[str, str]]:
    """The commands to a cluster's brokers that docs/operating.md shows with their output."""
    page = (ROOT / "docs" / "operating.md").read_text()
    blocks = re.findall(r"(?:^ {4}.*\n|^\n(?= {4}))+", page, flags=re.MULTILINE)
    text = "\n".join(line[4:] for block in blocks if "    $ " in block for line in block.splitlines())
    shown = (each.partition("\n") for each in text.split("$ kraftcore ")[1:])
    return [(line, output) for line, _, output in shown if "--bootstrap-server" in line]


def test_the_manual_shows_what_is_printed(
    lab: KafkaLab, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def words(text: str) -> list[str]:
        return re.sub(r'"/[^"]*"', "DIRECTORY", re.sub(r"TopicId: \S+", "TopicId: ID", text)).split()

    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "operating.md").read_text()
    plan_json = re.search(r'^ {4}({"version": 1, .*})$', page, flags=re.MULTILINE)
    assert plan_json is not None
    Path("plan.json").write_text(plan_json[1])
    ours = Ours(capsys)
    shown = _manual()
    assert {line.split()[0] for line, _ in shown} == {"topics", "configs", "elect-leaders", "reassign", "acls"}
    for line, output in shown:
        arguments = shlex.split(line.replace("127.0.0.1:9092", lab.nodes[11].address))
        end = time.monotonic() + (PATIENCE_S if READS.search(line) else 0)
        while words((printed := ours(*arguments)).out) != words(output) and time.monotonic() < end:
            pass
        assert words(printed.out) == words(output), printed
        assert printed.status == 0


@pytest.mark.deep
def test_what_a_lost_broker_leaves_is_shown_the_same(
    both: Both, lab: KafkaLab, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last test of a lab: a broker is killed, its partitions have no leader, and replicas that go to it wait."""
    both("topics $B --create --topic NAME-l --replica-assignment 11:12,13:12")
    both("topics $B --create --topic NAME-s --replica-assignment 13")
    both("topics $B --describe --topic NAME-s", shows="Leader: 13\tReplicas: 13\tIsr: 13")
    lab.nodes[LOST].kill()
    both("topics $B --describe --topic NAME-s", shows="Leader: none")
    both("topics $B --describe --unavailable-partitions", shows="NAME-s")
    both("topics $B --describe --under-replicated-partitions", shows="NAME-l")
    both("topics $B --describe --under-min-isr-partitions", shows="NAME-s")
    both("topics $B --describe --at-min-isr-partitions", shows="NAME-l")
    both("elect-leaders $B --election-type preferred --topic NAME-l --partition 1")
    both("elect-leaders $B --election-type unclean --topic NAME-s --partition 0")
    both("configs $B --describe --broker 13", shows="doesn't exist")
    both(f"reassign $B --execute --reassignment-json-file {plan('read', [13, 11])}")

    async def begin(client: admin.AdminClient) -> None:
        await client.alter_reassignments({TopicPartition(f"{name}-l", 0): [11, LOST] for name in NAMES})

    _run(lab, begin)
    both("topics $B --describe --topic NAME-l", shows="Adding Replicas: 13\tRemoving Replicas: 12")
    both("reassign $B --list", shows="NAME-l-0: replicas: 11,13,12. adding: 13. removing: 12.")
    both("reassign $C --list", shows="NAME-l-0: replicas: 11,13,12. adding: 13. removing: 12.")
    to_lost = plan("NAME-l", [11, LOST])
    both(f"reassign $B --verify --reassignment-json-file {to_lost}", shows="is still in progress")
    both(f"reassign $B --execute --reassignment-json-file {plan('read', [11, 12])}")
    cancelled = both(f"reassign $C --cancel --preserve-throttles --reassignment-json-file {to_lost}")
    assert "Successfully cancelled partition reassignment for: NAME-l-0" in cancelled.out
    both("reassign $B --list", shows="No partition reassignments found.")
    both("cluster unregister $B --id 99")
    gone = Ours(capsys)("cluster", "unregister", "--bootstrap-controller", lab.controllers, "--id", LOST)
    assert (gone.status, gone.out) == (0, f"Broker {LOST} is no longer registered.\n"), gone
    both(f"cluster unregister $B --id {LOST}")
