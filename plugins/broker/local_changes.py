"""Carries out on a broker's logs what the metadata log says of its partitions."""

from __future__ import annotations

import logging
from collections.abc import Callable

from kraftcore.core.uuid import Uuid
from kraftcore.errors import CorruptDataError, StorageError
from kraftcore.plugins.broker.catalogue import LocalChanges
from kraftcore.plugins.broker.disk_steps import DiskSteps
from kraftcore.plugins.broker.logdirs import LogDirs
from kraftcore.plugins.broker.logdirs.names import is_legal
from kraftcore.plugins.broker.partition import Assignment, TopicPartition
from kraftcore.plugins.broker.replicas import Replicas

_logger = logging.getLogger("kraftcore.broker")


def carry_out(
    changes: LocalChanges,
    replicas: Replicas,
    dirs: LogDirs,
    now_ms: Callable[[], int],
    deleted: Callable[[TopicPartition, Uuid], None],
    assigned: Callable[[TopicPartition, Assignment], None],
) -> DiskSteps[None]:
    """Delete, lead, follow, in this order: a pause after each partition, where others may be served.

    Logs are made, closed and set aside by threads. No other flush or removal may be under way in a log. What a disk
    refuses is the partition's failure, or its directory's (``Replicas.failed``); the other partitions go on.

    Args:
        changes: what is to be done.
        replicas: the partitions.
        dirs: their logs.
        now_ms: the time.
        deleted: told of each partition that goes, with the id of its topic.
        assigned: told of each one that is to be led or followed from now on, also where its log cannot be used.
    """
    for name, topic_id in changes.deletes.items():
        deleted(name, topic_id)
        try:
            if replicas.topic_id(name) == topic_id:
                yield from replicas.delete(name, now_ms)
        except StorageError as error:
            replicas.failed(name, error)
        hosted = dirs.find(name)
        if hosted is None or hosted.topic_id == topic_id:
            yield from replicas.forget(name)  # it failed this moment, or never opened the log
        yield None
    if changes.deletes:
        yield from replicas.forget_gone()
    for assignments in (changes.leads, changes.follows):
        for name, assignment in assignments.items():
            try:
                yield from replicas.set_aside_earlier(name, assignment.topic_id, is_new=assignment.is_new)
                if not replicas.is_broken(name):
                    yield from _set_namesake_aside(dirs, name, assignment.topic_id)
            except StorageError as error:
                replicas.failed(name, error)
            if is_legal(name) and not replicas.is_broken(name):
                yield from _assign(name, assignment, replicas, dirs, now_ms)
            else:
                _logger.error("%s is offline here: its log cannot be used", name)
            assigned(name, assignment)
            yield None


def _assign(
    name: TopicPartition, assignment: Assignment, replicas: Replicas, dirs: LogDirs, now_ms: Callable[[], int]
) -> DiskSteps[None]:
    """Lead or follow; where a new log cannot be made it is tried in the next directory, as in Kafka."""
    while True:
        usable = len(dirs.usable)
        try:
            yield from replicas.assign(name, assignment, now_ms)
        except (StorageError, CorruptDataError) as error:
            _logger.error("%s cannot be served: %s", name, error)
            replicas.failed(name, error)
            if replicas.is_broken(name) or not 0 < len(dirs.usable) < usable:
                return
        else:
            return


def _set_namesake_aside(dirs: LogDirs, name: TopicPartition, topic_id: Uuid | None) -> DiskSteps[None]:
    """Nothing of an earlier topic of that name is shown (KIP-516)."""
    hosted = dirs.find(name)
    if hosted is not None and hosted.topic_id != topic_id:
        yield from dirs.set_aside(hosted.directory, name)
