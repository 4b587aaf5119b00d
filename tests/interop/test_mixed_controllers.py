"""kraftcore nodes among Kafka's controllers: the changes and recoveries of KIP-853, with Kafka's own tools."""

from __future__ import annotations

import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka_lab import HOST, KafkaLab, KafkaNode, free_port, new_uuid, wait_for
from kafka_tools import KafkaTools
from partition_files import batches, check_equal, log_end

from kraftcore.config import SaslLogin
from kraftcore.core.batch import RecordBatch
from kraftcore.raft.control_records import voter_changes

RELUCTANT = {"kraftcore_reluctant": "true"}
AUTO_JOIN = {"controller_quorum_auto_join_enable": "true"}


def voters(lab: KafkaLab) -> set[tuple[int, str]]:
    found = lab.describe()
    return set() if found is None else {(each.key.id, str(each.key.directory_id)) for each in found.voters}


def key(node: KafkaNode) -> tuple[int, str]:
    return int(str(node.properties["node.id"])), node.directory_id


def wait_voters(lab: KafkaLab, *nodes: KafkaNode) -> None:
    wait_for(f"{[node.name for node in nodes]} to be the voters", lambda: voters(lab) == {key(node) for node in nodes})


def wait_leader(lab: KafkaLab, *nodes: KafkaNode) -> KafkaNode:
    def leads() -> KafkaNode | None:
        found = lab.describe()
        return next((node for node in nodes if found is not None and key(node)[0] == found.leader_id), None)

    return wait_for(f"one of {[node.name for node in nodes]} to lead", leads)


def wait_commits(lab: KafkaLab) -> int:
    """The active controller writes a record every half second: wait until two of them are committed."""
    begin = wait_for("a leader", lambda: lab.describe()).high_watermark

    def moved() -> int:
        found = lab.describe()
        return found.high_watermark if found is not None and found.high_watermark > begin + 1 else 0

    return wait_for("commits", moved)


def wait_committed(lab: KafkaLab) -> int:
    """Wait until the voters have everything; a leader of ours writes nothing of its own."""

    def done() -> int:
        found = lab.describe()
        ends = [-1] if found is None else [each.log_end_offset for each in found.voters]
        return min(ends) if found is not None and min(ends) >= found.high_watermark == found.end_offset else 0

    return wait_for("everything to be committed everywhere", done)


def observers(lab: KafkaLab) -> set[tuple[int, str]]:
    found = lab.describe()
    return set() if found is None else {(each.key.id, str(each.key.directory_id)) for each in found.observers}


def replace_disk(node: KafkaNode) -> tuple[int, str]:
    """The node dies, and begins again with an empty directory; returns what it was."""
    node.kill()
    before = key(node)
    shutil.rmtree(node.folder)
    node.format("--no-initial-controllers").start()
    assert key(node) != before
    return before


def log_of(node: KafkaNode) -> Path:
    return node.folder / "__cluster_metadata-0"


def add(lab: KafkaLab, node: KafkaNode) -> None:
    """Once it fetches and listens, make it a voter, with Kafka's tool."""
    node.wait_listening()
    wait_for(f"{node.name} to be seen", lambda: key(node) in observers(lab))
    change(lab, lambda: key(node) in voters(lab), "--command-config", node.config, "add-controller")


def remove(lab: KafkaLab, voter: tuple[int, str]) -> None:
    change(lab, lambda: voter not in voters(lab), "remove-controller", "-i", voter[0], "-d", voter[1])


def change(lab: KafkaLab, is_done: Callable[[], bool], *arguments: object) -> None:
    """A leader gives a change 2 s; on a slow machine that may not do, or do after it was answered."""

    def ask() -> bool:
        done = lab.tool("quorum", "--bootstrap-controller", lab.controllers, *arguments)
        assert done.status == 0 or "TimeoutException" in done.err or is_done(), done
        return done.status == 0 or is_done()

    wait_for(f"{arguments}", ask)


@pytest.fixture(scope="module")
def pair(kafka: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaLab]:
    """Two controllers of Kafka: 1, which began alone, and 2."""
    with KafkaLab(kafka, tmp_path_factory.mktemp("pair")) as lab:
        one = lab.controller(1).format("--standalone").start()
        lab.bootstrap = [one.address]
        two = lab.controller(2).format("--no-initial-controllers").start()
        add(lab, two)
        lab.bootstrap = [one.address, two.address]
        for node in (one, two):
            node.write(controller_quorum_bootstrap_servers=lab.controllers)
        yield lab


def test_a_voter_of_ours(pair: KafkaLab) -> None:
    """It is added, commits need it, its vote elects a Kafka leader, and it is removed."""
    one, two = pair.nodes[1], pair.nodes[2]
    ours = pair.kraftcore(3, **RELUCTANT).format("--no-initial-controllers").start().wait_listening()
    add(pair, ours)
    wait_voters(pair, one, two, ours)

    leader = wait_leader(pair, one, two)
    other = two if leader is one else one
    other.kill()
    wait_for("a leader that writes what it cannot commit", lambda: nothing_commits_without(pair, ours))
    wait_commits(pair)

    other.start().wait_listening()
    wait_commits(pair)
    leader = wait_leader(pair, one, two)
    leader.kill()
    other = two if leader is one else one
    assert wait_leader(pair, other, ours) is other
    end = wait_commits(pair)
    leader.start().wait_listening()
    remove(pair, key(ours))
    wait_voters(pair, one, two)
    wait_for("it to watch", lambda: key(ours) in observers(pair))
    end = wait_commits(pair)
    ours.stop()
    check_equal(map(log_of, (one, two, ours)), end)


@pytest.mark.deep
def test_several_listeners_under_a_kafka_leader(pair: KafkaLab) -> None:
    """Kafka writes a voter's listeners in the order of their hashes: a voter of ours knows its entry all the same."""
    names = ("CONTROLLER", "SECOND", "THIRD", "FOURTH")
    where = ",".join(f"{name}://{HOST}:{free_port()}" for name in names)
    ours = pair.kraftcore(
        9,
        **RELUCTANT,
        listeners=where,
        advertised_listeners=where,
        controller_listener_names=",".join(names),
        listener_security_protocol_map=",".join(f"{name}:PLAINTEXT" for name in names),
        controller_quorum_fetch_timeout_ms=1000,
    )
    ours.port = int(where.split(",")[0].rpartition(":")[2])
    ours.format("--no-initial-controllers").start().wait_listening()
    add(pair, ours)
    before = wait_commits(pair)
    wait_for("ten idle records", lambda: wait_commits(pair) >= before + 10)
    found = (RecordBatch(data) for at, data in batches(log_of(ours)).items() if at >= before)
    changes = [change for batch in found if batch.is_control for change in voter_changes(batch)]
    assert changes == []
    remove(pair, key(ours))
    ours.stop()


def nothing_commits_without(lab: KafkaLab, node: KafkaNode) -> bool:
    """While a node stands still the active controller goes on writing, in vain; False if it gave up before it did."""
    wait_commits(lab)
    node.signal(signal.SIGSTOP)
    try:
        before = after = lab.describe()
        while before is not None and after is not None:
            assert after.high_watermark <= before.high_watermark + 1  # that was acknowledged already
            if after.end_offset > before.high_watermark + 2:
                return True
            time.sleep(0.1)
            after = lab.describe()
    finally:
        node.signal(signal.SIGCONT)
    return False


@pytest.mark.deep
def test_auto_join(pair: KafkaLab) -> None:
    """A node of ours makes itself a voter; with a new disk it takes its old entry out first."""
    one, two = pair.nodes[1], pair.nodes[2]
    ours = pair.kraftcore(4, **AUTO_JOIN, **RELUCTANT).format("--no-initial-controllers").start()
    wait_voters(pair, one, two, ours)
    replace_disk(ours)
    wait_voters(pair, one, two, ours)
    end = wait_commits(pair)
    ours.stop()
    remove(pair, key(ours))
    check_equal(map(log_of, (one, two, ours)), end)


@pytest.mark.deep
def test_failed_disks_and_nodes(pair: KafkaLab) -> None:
    """A disk of ours is replaced; then our node by one of Kafka, and that by one of ours."""
    one, two = pair.nodes[1], pair.nodes[2]
    ours = pair.kraftcore(5, **RELUCTANT).format("--no-initial-controllers").start()
    add(pair, ours)
    before = replace_disk(ours)
    wait_for("the new disk to be seen", lambda: key(ours) in observers(pair))
    command = ["--bootstrap-controller", pair.controllers, "--command-config", ours.config, "add-controller"]
    assert "DuplicateVoterException" in pair.tool("quorum", *command).err  # as KIP-853 has it, Kafka refuses it
    remove(pair, before)
    add(pair, ours)
    wait_voters(pair, one, two, ours)

    ours.kill()
    kafka = pair.controller(6).format("--no-initial-controllers").start()
    add(pair, kafka)
    remove(pair, key(ours))
    wait_voters(pair, one, two, kafka)

    kafka.kill()
    ours = pair.kraftcore(7, **RELUCTANT).format("--no-initial-controllers").start()
    add(pair, ours)
    remove(pair, key(kafka))
    wait_voters(pair, one, two, ours)
    end = wait_commits(pair)
    remove(pair, key(ours))
    ours.stop()
    check_equal(map(log_of, (one, two, ours)), end)


@pytest.mark.deep
def test_a_wrong_cluster_id(pair: KafkaLab) -> None:
    """The node says so and stays up, and the quorum does not see it."""
    ours = pair.kraftcore(8, **AUTO_JOIN)
    ours.cluster_id = new_uuid()
    ours.format("--no-initial-controllers").start()
    reason = f"INCONSISTENT_CLUSTER_ID: this node belongs to cluster {ours.cluster_id}"
    wait_for("the reason", lambda: [event for event in ours.events("log") if reason in event["text"]])
    assert ours.process is not None
    assert ours.process.poll() is None
    assert key(ours) not in observers(pair)
    ours.stop()


def let_lead(lab: KafkaLab, wanted: KafkaNode, *others: KafkaNode) -> None:
    """Of three voters: one stands still while the leader and ``wanted`` commit, then the leader dies."""
    leader = wait_leader(lab, wanted, *others)
    if leader is wanted:
        return
    behind = next(node for node in others if node is not leader)
    behind.signal(signal.SIGSTOP)
    try:
        wait_commits(lab)
        leader.kill()
    finally:
        behind.signal(signal.SIGCONT)
    assert wait_leader(lab, wanted, behind) is wanted, "who lacks what is committed is not elected"
    leader.start().wait_listening()


def create_topic(lab: KafkaLab, broker: KafkaNode, name: str, replicas: int) -> None:
    create = ("--create", "--if-not-exists", "--topic", name, "--partitions", 2, "--replication-factor", replicas)
    wait_for(f"topic {name}", lambda: lab.tool("topics", "--bootstrap-server", broker.address, *create).status == 0)


def in_sync(lab: KafkaLab, broker: KafkaNode, name: str) -> int:
    """Replicas in sync of all partitions of a topic, as a broker knows them."""
    found = lab.tool("topics", "--bootstrap-server", broker.address, "--describe", "--topic", name).out
    return sum(len(ids.split(",")) for ids in re.findall(r"Isr: (\S+)", found))


def test_a_voter_of_ours_leads(pair: KafkaLab) -> None:
    """Among Kafka's controllers, under their brokers, of which one comes meanwhile; then it goes, and Kafka leads."""
    one, two = pair.nodes[1], pair.nodes[2]
    ours = pair.kraftcore(10, kraftcore_offers_log=None).format("--no-initial-controllers").start().wait_listening()
    add(pair, ours)
    pair.bootstrap = [node.address for node in (one, two, ours)]
    first = pair.broker(20).format().start().wait_listening()
    create_topic(pair, first, "before", 1)

    let_lead(pair, ours, one, two)
    create_topic(pair, first, "during", 1)
    second = pair.broker(21).format().start().wait_listening()
    create_topic(pair, first, "on-both", 2)
    wait_for("the new broker to follow", lambda: in_sync(pair, first, "on-both") == 4)
    second.stop()  # a controlled shutdown, which a leader of ours decides
    wait_for("it to be out of sync", lambda: in_sync(pair, first, "on-both") == 2)
    assert wait_leader(pair, ours) is ours

    ours.stop()
    wait_leader(pair, one, two)
    second.start().wait_listening()
    create_topic(pair, first, "after", 2)
    for name, count in (("before", 2), ("during", 2), ("on-both", 4), ("after", 4)):
        wait_for(f"{name} to be in sync", lambda name=name, count=count: in_sync(pair, second, name) == count)
    ours.start().wait_listening()
    end = wait_commits(pair)
    for node in (first, second):
        node.stop()
    pair.bootstrap = [one.address, two.address]
    remove(pair, key(ours))
    ours.stop()
    check_equal(map(log_of, (one, two, ours)), end)


@pytest.mark.deep
def test_voters_log_in_with_scram(kafka: KafkaTools, tmp_path: Path) -> None:
    """Ours at Kafka's controllers and they at ours, whoever leads. Kafka's can be the first only alone: who has no
    quorum yet knows no credentials there."""
    mechanism = "SCRAM-SHA-512"
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    guarded = {
        "listener_security_protocol_map": "CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "sasl_enabled_mechanisms": mechanism,
        "sasl_mechanism_controller_protocol": mechanism,
        f"listener_name_controller_{mechanism.lower()}_sasl_jaas_config": (
            f'{module} required username="node" password="secret";'
        ),
    }
    with KafkaLab(kafka, tmp_path) as lab:
        lab.connection = {"sasl": SaslLogin(mechanism=mechanism, username="node", password="secret")}
        one = lab.controller(1, **guarded).format(
            "--standalone", "--add-scram", f"{mechanism}=[name=node,password=secret]"
        )
        one.start().wait_listening()
        lab.bootstrap = [one.address]
        two = lab.controller(2, **guarded, **AUTO_JOIN).format("--no-initial-controllers").start()
        ours = lab.kraftcore(3, kraftcore_offers_log=None, **guarded, **AUTO_JOIN)
        ours.format("--no-initial-controllers").start()
        wait_voters(lab, one, two, ours)
        lab.bootstrap = [node.address for node in (one, two, ours)]
        for node in (one, two, ours):  # as it would be from now on
            node.write(controller_quorum_bootstrap_servers=lab.controllers)
        wait_commits(lab)
        let_lead(lab, ours, one, two)
        wait_commits(lab)
        ours.kill()
        wait_leader(lab, one, two)
        ours.start().wait_listening()
        end = wait_commits(lab)
        wait_for("ours to follow", lambda: end in range(log_end(log_of(ours)) + 1))
        ours.stop()
        check_equal(map(log_of, (one, two, ours)), end)
    strangers = re.findall("did not log in", ours.output.read_text())
    assert not strangers


@pytest.mark.deep
def test_our_quorum_grows(kafka: KafkaTools, tmp_path: Path) -> None:
    """It begins as one node of ours; Kafka joins, leads, loses its disk; then every node moves to another listener."""
    with KafkaLab(kafka, tmp_path) as lab:
        first = lab.kraftcore(1, **RELUCTANT).format("--standalone").start().wait_listening()
        lab.bootstrap = [first.address]
        theirs = lab.controller(2, **AUTO_JOIN)
        theirs.cluster_id = new_uuid()
        theirs.format("--no-initial-controllers").start()
        wait_for("Kafka to say why", lambda: "INCONSISTENT_CLUSTER_ID" in theirs.output.read_text())
        assert key(theirs) not in observers(lab)
        theirs.cluster_id = lab.cluster_id
        replace_disk(theirs)
        wait_voters(lab, first, theirs)
        wait_leader(lab, theirs)  # ours handed over
        wait_commits(lab)
        last = lab.kraftcore(3, **AUTO_JOIN).format("--no-initial-controllers").start()
        wait_voters(lab, first, theirs, last)

        replace_disk(theirs)
        wait_voters(lab, first, theirs, last)
        end = wait_committed(lab)
        check_equal(map(log_of, (first, theirs, last)), end)
        roll_listeners(lab, [first, theirs, last])


def roll_listeners(lab: KafkaLab, nodes: list[KafkaNode]) -> None:
    """KIP-853, upgrading controller listener: add one, make it the default, take the old one away."""
    old = {node.name: node.port for node in nodes}
    new = {node.name: free_port() for node in nodes}
    steps = [{"CONTROLLER": old, "EXTRA": new}, {"EXTRA": new, "CONTROLLER": old}, {"EXTRA": new}]
    for step in steps:
        for node in nodes:
            listeners = {name: ports[node.name] for name, ports in step.items()}
            where = ",".join(f"{name}://{HOST}:{port}" for name, port in listeners.items())
            node.stop()
            node.port = next(iter(listeners.values()))
            servers = ",".join(f"{HOST}:{each.port}" for each in nodes)
            node.write(
                listeners=where,
                advertised_listeners=where,
                controller_listener_names=",".join(listeners),
                listener_security_protocol_map="CONTROLLER:PLAINTEXT,EXTRA:PLAINTEXT",
                controller_quorum_bootstrap_servers=servers,
            )
            node.start().wait_listening()
            lab.bootstrap = servers.split(",")
            wait_endpoints(lab, node, set(listeners.items()))
    end = wait_committed(lab)
    check_equal(map(log_of, nodes), end)


def wait_endpoints(lab: KafkaLab, node: KafkaNode, wanted: set[tuple[str, int]]) -> None:
    """Wait until the leader has a voter's listeners, by name and port."""

    def told() -> bool:
        found = lab.describe()
        known = () if found is None else found.endpoints.get(key(node)[0], ())
        return {(each.name, each.port) for each in known} == wanted

    wait_for(f"{wanted} of {node.name}", told)
