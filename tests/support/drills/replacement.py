"""Kafka's controllers are replaced by ours one by one while brokers and clients are at work, and ours by Kafka's."""

from __future__ import annotations

from pathlib import Path

from broken import Broken
from kafka_lab import KafkaLab, KafkaNode, wait_for
from kafka_tools import KafkaTools

from drills.cluster import CONTROLLER, CONTROLLERS, Cluster
from drills.verdict import Verdict

OURS, LAST = (4, 5, 6), (7, 8, 9)
CHANGE_S = 120


def replace_and_return(kafka: KafkaTools, folder: Path) -> Verdict:
    """Move from three controllers of Kafka to three of ours and to three new ones of Kafka.

    Every step is an operator's: a controller joins, becomes a voter, an old one is removed, and stopped; the active one
    goes last of all, by which a voter of ours comes to lead among Kafka's.

    Raises:
        Broken: something acknowledged is lost, a client saw more than a retriable error, or the images differ.
    """
    with Cluster(kafka, folder, make=lambda lab: lab.controller) as cluster:
        lab = cluster.lab
        for old, new in zip(_active_last(cluster, CONTROLLERS), OURS, strict=True):
            _replace(cluster, old, lab.kraftcore(new, **CONTROLLER))
            cluster.load.wait_progress()
        _expect_voters(cluster, OURS)
        cluster.check()
        leader = cluster.active()
        leader.kill()
        cluster.make_topic("made-by-ours", 3)
        leader.start().wait_listening()
        cluster.load.wait_progress()
        _every_broker_again(cluster)
        for old, new in zip(_active_last(cluster, OURS), LAST, strict=True):
            _replace(cluster, old, lab.controller(new, **CONTROLLER))
            cluster.load.wait_progress()
        _expect_voters(cluster, LAST)
        return cluster.check()


def _active_last(cluster: Cluster, numbers: tuple[int, ...]) -> list[int]:
    active = int(str(cluster.active().properties["node.id"]))
    return [number for number in numbers if number != active] + [active]


def _voters(lab: KafkaLab) -> set[int]:
    found = lab.describe()
    return set() if found is None else {each.key.id for each in found.voters}


def _expect_voters(cluster: Cluster, numbers: tuple[int, ...]) -> None:
    voters = _voters(cluster.lab)
    if voters != set(numbers):
        raise Broken(f"the voters are {voters}, not {numbers}")


def _change(cluster: Cluster, is_done: bool, number: int, *arguments: object) -> None:
    """Add or remove a voter; a leader gives that 2 s, and whether it did is seen at the voters."""

    def ask() -> bool:
        lab = cluster.lab
        lab.tool("quorum", "--bootstrap-controller", lab.controllers, *arguments)
        return (number in _voters(lab)) == is_done

    wait_for(f"{arguments}", ask, timeout_s=CHANGE_S)


def _replace(cluster: Cluster, old: int, node: KafkaNode) -> None:
    lab = cluster.lab
    number = int(str(node.properties["node.id"]))
    cluster.controllers[number] = node
    node.write(controller_quorum_bootstrap_servers=lab.controllers)
    node.format("--no-initial-controllers").start().wait_listening()

    def watches() -> bool:
        found = lab.describe()
        return found is not None and number in {each.key.id for each in found.observers}

    wait_for(f"{node.name} to watch", watches)
    _change(cluster, True, number, "--command-config", node.config, "add-controller")
    lab.bootstrap.append(node.address)
    leaving = cluster.controllers.pop(old)
    _change(cluster, False, old, "remove-controller", "-i", old, "-d", leaving.directory_id)
    lab.bootstrap.remove(leaving.address)
    leaving.stop()
    del lab.nodes[old]
    # Whoever starts anew finds the quorum by those that are left.
    for each in (*cluster.controllers.values(), *cluster.brokers.values()):
        each.write(controller_quorum_bootstrap_servers=lab.controllers)


def _every_broker_again(cluster: Cluster) -> None:
    """Brokers find controllers by their files: each is restarted once with the new ones."""
    for number, broker in cluster.brokers.items():
        broker.stop()
        broker.start()
        cluster.wait_broker(number)
