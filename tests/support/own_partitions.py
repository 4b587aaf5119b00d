"""Partitions of a broker that no controller assigns: their logs are made, then they are there, or lead, or follow."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.plugins.broker.partition import Assignment, TopicPartition
from kraftcore.plugins.broker.replicas import HostedPartition, Replicas
from kraftcore.plugins.broker.work.disk_steps import run_here

NOBODYS = Assignment(-1, 0, 0, (), ())


def add(replicas: Replicas, name: TopicPartition, topic_id: Uuid | None) -> HostedPartition:
    """A new partition that has no role yet.

    Raises:
        KraftError: its log cannot be made.
    """
    _make(replicas, name, NOBODYS._replace(topic_id=topic_id, is_new=True))
    return run_here(replicas.add(name, topic_id))


def assign(replicas: Replicas, name: TopicPartition, assignment: Assignment) -> None:
    """One that leads or follows.

    Raises:
        KraftError: its log cannot be made, or used.
    """
    _make(replicas, name, assignment)
    run_here(replicas.assign(name, assignment, lambda: 0))


def _make(replicas: Replicas, name: TopicPartition, assignment: Assignment) -> None:
    for error in run_here(replicas.make({name: assignment}, lambda: 0)).values():
        raise error
