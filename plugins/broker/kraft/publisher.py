"""Carries out the changes that the metadata log brings to this broker's partitions, one image after the other."""

from __future__ import annotations

from collections.abc import Callable

import trio

from kraftcore.core.uuid import Uuid
from kraftcore.metadata import Image
from kraftcore.plugins.broker.broker_parts import BrokerParts
from kraftcore.plugins.broker.kraft.committed_image import CommittedImage
from kraftcore.plugins.broker.kraft.directories import DirectoryAssignments
from kraftcore.plugins.broker.metadata.carrying_out import carry_out
from kraftcore.plugins.broker.metadata.local_changes import Catalogue, LocalChanges
from kraftcore.plugins.broker.partition import Assignment, TopicPartition
from kraftcore.plugins.broker.work.disk_threads import run_in_threads
from kraftcore.protocol.topics import PartitionKey


class Publisher:
    """Carries out the changes that each new metadata image brings to this broker's partitions.

    Args:
        broker_id: id of this broker.
        parts: the parts of this broker.
        committed: the metadata as far as it is committed.
        directories: tells the controller which log directory holds which replica.
    """

    def __init__(
        self,
        broker_id: int,
        parts: BrokerParts,
        committed: CommittedImage,
        directories: DirectoryAssignments,
    ) -> None:
        self._parts = parts
        self._committed = committed
        self._directories = directories
        self._catalogue = Catalogue(broker_id)

    async def begin(self) -> None:
        """Publish the first image: open the logs, and set folders aside that belong to no partition of this broker."""
        await self._publish(self._load)

    async def publish(self) -> None:
        """Publish the changes since the last image, if there are any."""
        await self._publish(None)

    def _load(self, changes: LocalChanges) -> None:
        self._parts.dirs.load(self._parts.now_ms(), changes.directories, self._catalogue.held)

    async def _publish(self, first: Callable[[LocalChanges], None] | None) -> None:
        offset = self._committed.end_offset - 1
        image, delta = self._committed.take()
        changes = self._catalogue.begin(image) if delta is None else self._catalogue.follow(image, delta)
        configured = self._configure(image, changes)
        self._parts.replication.show(image, changes, self._catalogue.held)
        if first is not None:
            await trio.to_thread.run_sync(first, changes)
        if not changes.is_empty:
            async with self._parts.disk:
                await self._carry_out(changes)
            for name in configured:
                self._parts.replicas.configure(name)
            self._parts.refresh()
            self._parts.groups.topics_deleted(changes.gone)
        self._directories.retry()
        self._committed.applied_offset = offset
        self._parts.leadership_wait.settled()

    def _configure(self, image: Image, changes: LocalChanges) -> list[TopicPartition]:
        """Take over the configurations of topics; returns the partitions whose settings may have changed."""
        table, held = self._parts.topics, self._catalogue.held
        for topic in changes.gone.values():
            table.forget(topic)
        if changes.broker_configs:
            table.show_brokers(image)
            for topic in {name.topic for name in held}:
                table.show(topic, image)
            return list(held)
        found = []
        for topic in changes.topic_configs:
            table.show(topic, image)
            known = image.topics.by_name(topic)
            if known is not None:
                found += [TopicPartition(topic, number) for number, _ in image.partitions.of_topic(known.id)]
        return found

    async def _carry_out(self, changes: LocalChanges) -> None:
        parts = self._parts
        await run_in_threads(
            carry_out(changes, parts.replicas, parts.dirs, parts.now_ms, self._deleted, self._assigned)
        )

    def _deleted(self, name: TopicPartition, topic_id: Uuid) -> None:
        self._directories.forget(PartitionKey(topic_id, name.partition))

    def _assigned(self, name: TopicPartition, assignment: Assignment) -> None:
        self._parts.leadership_wait.led(name)
        if assignment.topic_id is not None:
            key = PartitionKey(assignment.topic_id, name.partition)
            self._directories.note(key, self._parts.replicas.directory_id(name), assignment.directory)
