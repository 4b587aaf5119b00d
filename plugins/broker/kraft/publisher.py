"""Carries out what the metadata log says of this broker's partitions, one state of it after the other."""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from kraftcore.errors import CorruptDataError, StorageError
from kraftcore.metadata import Image
from kraftcore.plugins.broker.catalogue import Catalogue, LocalChanges
from kraftcore.plugins.broker.core import Core
from kraftcore.plugins.broker.kraft.committed_image import CommittedImage
from kraftcore.plugins.broker.kraft.directories import DirectoryAssignments, ReplicaKey
from kraftcore.plugins.broker.kraft.image_cache import ImageCache
from kraftcore.plugins.broker.logdirs.names import is_legal
from kraftcore.plugins.broker.partition import Assignment, TopicPartition

_AT_ONCE = 20  # partitions between two looks at what else is to be done
_logger = logging.getLogger("kraftcore.broker")


class Publisher:
    """See the module text.

    Args:
        broker_id: ours.
        core: the partitions.
        committed: what the log says.
        cache: what clients are told.
        directories: told where replicas are.

    Attributes:
        offset: of the last record that took effect; -1: none.
    """

    def __init__(
        self,
        broker_id: int,
        core: Core,
        committed: CommittedImage,
        cache: ImageCache,
        directories: DirectoryAssignments,
    ) -> None:
        self.offset = -1
        self._core = core
        self._committed = committed
        self._cache = cache
        self._directories = directories
        self._catalogue = Catalogue(broker_id)

    async def begin(self) -> None:
        """Publish the first state: logs are opened, and folders that are none of our partitions' set aside."""
        await self._publish(self._load)

    async def publish(self) -> None:
        """Publish what came since, if anything did."""
        await self._publish(None)

    def _load(self) -> None:
        dirs = self._core.dirs
        dirs.load(self._core.now_ms())
        dirs.set_aside_strays(self._catalogue.held)

    async def _publish(self, first: Callable[[], None] | None) -> None:
        offset = self._committed.offset - 1
        image, delta = self._committed.take()
        changes = self._catalogue.begin(image) if delta is None else self._catalogue.follow(image, delta)
        if delta is None or changes.brokers:
            self._cache.show(image)
        configured = self._configure(image, changes)
        if first is not None:
            await trio.to_thread.run_sync(first)
        if not changes.is_empty:
            async with self._core.disk:
                await self._carry_out(changes)
            for name in configured:
                self._core.replicas.configure(name)
            self._core.refresh()
            self._core.groups.topics_deleted(changes.gone)
        self._directories.retry()
        self.offset = offset

    def _configure(self, image: Image, changes: LocalChanges) -> list[TopicPartition]:
        """Take over what is set for topics; returns the partitions for which it may be something else now."""
        table, held = self._core.topics, self._catalogue.held
        if changes.broker_configs:
            table.show_brokers(image)
            for topic in {name.topic for name in held}:
                table.show(topic, image)
            return list(held)
        for topic in changes.gone:
            table.forget(topic)
        found = []
        for topic in changes.topic_configs:
            table.show(topic, image)
            known = image.topics.by_name(topic)
            if known is not None:
                found += [TopicPartition(topic, number) for number, _ in image.partitions.of_topic(known.id)]
        return found

    async def _carry_out(self, changes: LocalChanges) -> None:
        count = 0
        for name, topic_id in changes.deletes.items():
            self._directories.forget(ReplicaKey(topic_id, name.partition))
            if self._core.replicas.topic_id(name) == topic_id:
                self._delete(name)
            count = await self._breathe(count)
        for assignments in (changes.leads, changes.follows):
            for name, assignment in assignments.items():
                self._assign(name, assignment)
                count = await self._breathe(count)

    async def _breathe(self, count: int) -> int:
        if count and count % _AT_ONCE == 0:
            await trio.lowlevel.checkpoint()
        return count + 1

    def _delete(self, name: TopicPartition) -> None:
        try:
            self._core.replicas.delete(name, self._core.now_ms())
        except StorageError as error:
            self._core.replicas.failed(name, error)

    def _assign(self, name: TopicPartition, assignment: Assignment) -> None:
        core = self._core
        replicas = core.replicas
        replicas.set_aside_earlier(name, assignment.topic_id)
        hosted = core.dirs.find(name)
        if is_legal(name) and not replicas.is_broken(name):
            if hosted is not None and hosted.topic_id != assignment.topic_id:
                core.dirs.set_aside(hosted.directory, name)
            self._obey(name, assignment)
        else:
            _logger.error("%s is offline here: its log cannot be used", name)
        if assignment.topic_id is not None:
            key = ReplicaKey(assignment.topic_id, name.partition)
            self._directories.note(key, replicas.directory_id(name), assignment.directory)

    def _obey(self, name: TopicPartition, assignment: Assignment) -> None:
        """Lead or follow; where a new log cannot be made it is tried in the next directory, as in Kafka."""
        core = self._core
        while True:
            usable = len(core.dirs.usable)
            try:
                core.replicas.assign(name, assignment, core.now_ms())
            except (StorageError, CorruptDataError) as error:
                _logger.error("%s cannot be served: %s", name, error)
                core.replicas.failed(name, error)
                if core.replicas.is_broken(name) or not 0 < len(core.dirs.usable) < usable:
                    return
            else:
                return
