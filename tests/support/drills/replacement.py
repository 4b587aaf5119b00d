"""Kafka's controllers are replaced by ours one by one while brokers and clients are at work, and ours by Kafka's."""

from __future__ import annotations

from collections.abc import Callable
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
        _replace_all(cluster, CONTROLLERS, dict.fromkeys(OURS, lab.kraftcore))
        cluster.check()
        leader = cluster.active()
        leader.kill()
        cluster.make_topic("made-by-ours", 3)
        leader.start().wait_listening()
        cluster.load.wait_progress()
        _replace_all(cluster, OURS, dict.fromkeys(LAST, lab.controller))
        return cluster.check()


def _replace_all(cluster: Cluster, old: tuple[int, ...], new: dict[int, Callable[..., KafkaNode]]) -> None:
    """A broker that has lost the active controller asks those in its file alone: before the last of them goes, each
    broker begins anew with a file that names the new ones."""
    *first, last = zip(_active_last(cluster, old), new.items(), strict=True)
    for leaving, (number, make) in first:
        _join(cluster, make(number, **CONTROLLER))
        _leave(cluster, leaving)
        cluster.load.wait_progress()
    leaving, (number, make) = last
    _join(cluster, make(number, **CONTROLLER))
    for each, broker in cluster.brokers.items():
        broker.stop()
        broker.start()
        cluster.wait_broker(each)
    _leave(cluster, leaving)
    cluster.load.wait_progress()
    voters = _voters(cluster.lab)
    if voters != set(new):
        raise Broken(f"the voters are {voters}, not {set(new)}")


def _active_last(cluster: Cluster, numbers: tuple[int, ...]) -> list[int]:
    active = int(str(cluster.active().properties["node.id"]))
    return [number for number in numbers if number != active] + [active]


def _voters(lab: KafkaLab) -> set[int]:
    found = lab.describe()
    return set() if found is None else {each.key.id for each in found.voters}


def _change(cluster: Cluster, is_done: bool, number: int, *arguments: object) -> None:
    """Add or remove a voter; a leader gives that 2 s, and whether it did is seen at the voters."""

    def ask() -> bool:
        lab = cluster.lab
        lab.tool("quorum", "--bootstrap-controller", lab.controllers, *arguments)
        return (number in _voters(lab)) == is_done

    wait_for(f"{arguments}", ask, timeout_s=CHANGE_S)


def _join(cluster: Cluster, node: KafkaNode) -> None:
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
    _write_files(cluster)


def _leave(cluster: Cluster, number: int) -> None:
    lab = cluster.lab
    leaving = cluster.controllers.pop(number)
    _change(cluster, False, number, "remove-controller", "-i", number, "-d", leaving.directory_id)
    lab.bootstrap.remove(leaving.address)
    leaving.stop()
    del lab.nodes[number]
    _write_files(cluster)


def _write_files(cluster: Cluster) -> None:
    """Whoever starts anew finds the quorum by those that vote now."""
    for each in (*cluster.controllers.values(), *cluster.brokers.values()):
        each.write(controller_quorum_bootstrap_servers=cluster.lab.controllers)
