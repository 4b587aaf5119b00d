"""Carries out on a broker's logs what the metadata log says of its partitions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Final

from kraftcore.core.uuid import Uuid
from kraftcore.errors import CorruptDataError, StorageError
from kraftcore.plugins.broker.logdirs import LogDirs
from kraftcore.plugins.broker.logdirs.names import is_legal
from kraftcore.plugins.broker.metadata.local_changes import LocalChanges
from kraftcore.plugins.broker.partition import Assignment, TopicPartition
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.plugins.broker.work.disk_steps import DiskSteps

AT_ONCE: Final = 200
"""Partitions whose logs are made together: one sync of a directory for all; the first are served before the last."""

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

    Logs are made, closed and set aside by threads, many at a time. No other flush or removal may be under way in a log.
    What a disk refuses is the partition's failure, or its directory's (``Replicas.failed``); the other partitions go
    on.

    Args:
        changes: the changes to carry out.
        replicas: the partitions.
        dirs: their logs.
        now_ms: the time, milliseconds since 1970.
        deleted: told of each partition that goes, with the id of its topic.
        assigned: told of each one that is to be led or followed from now on, also where its log cannot be used.
    """
    if changes.deletes:
        yield from _delete(changes.deletes, replicas, dirs, now_ms, deleted)
    for assignments in (changes.leads, changes.follows):
        for some in _chunks(assignments):
            yield from _assign(some, replicas, dirs, now_ms, assigned)
    if changes.deletes:
        yield from replicas.forget_gone()


def _chunks(assignments: Mapping[TopicPartition, Assignment]) -> Iterator[dict[TopicPartition, Assignment]]:
    entries = iter(assignments.items())
    while some := dict(islice(entries, AT_ONCE)):
        yield some


def _delete(
    deletes: Mapping[TopicPartition, Uuid],
    replicas: Replicas,
    dirs: LogDirs,
    now_ms: Callable[[], int],
    deleted: Callable[[TopicPartition, Uuid], None],
) -> DiskSteps[None]:
    for name, topic_id in deletes.items():
        deleted(name, topic_id)
    yield from replicas.delete([name for name, each in deletes.items() if replicas.topic_id(name) == each], now_ms)
    for name, topic_id in deletes.items():
        hosted = dirs.find(name)
        if hosted is None or hosted.topic_id == topic_id:
            yield from replicas.forget(name)  # it failed this moment, or never opened the log


def _assign(
    assignments: Mapping[TopicPartition, Assignment],
    replicas: Replicas,
    dirs: LogDirs,
    now_ms: Callable[[], int],
    assigned: Callable[[TopicPartition, Assignment], None],
) -> DiskSteps[None]:
    usable: dict[TopicPartition, Assignment] = {}
    for name, assignment in assignments.items():
        try:
            yield from replicas.set_aside_earlier(name, assignment.topic_id, is_new=assignment.is_new)
            if not replicas.is_broken(name):
                yield from _set_namesake_aside(dirs, name, assignment.topic_id)
        except StorageError as error:
            replicas.failed(name, error)
        if is_legal(name) and not replicas.is_broken(name):
            usable[name] = assignment
        else:
            _logger.error("%s is offline here: its log cannot be used", name)
    failures = yield from replicas.make(usable, now_ms)
    for name, assignment in assignments.items():
        if name in usable and name not in failures:
            try:
                yield from replicas.assign(name, assignment, now_ms)
            except (StorageError, CorruptDataError) as error:
                _logger.error("%s cannot be served: %s", name, error)
                replicas.failed(name, error)
        assigned(name, assignment)
        yield None


def _set_namesake_aside(dirs: LogDirs, name: TopicPartition, topic_id: Uuid | None) -> DiskSteps[None]:
    """Set aside the log of an earlier topic of the same name (KIP-516)."""
    hosted = dirs.find(name)
    if hosted is not None and hosted.topic_id != topic_id:
        yield from dirs.set_aside(hosted.directory, name)
