"""The partitions that this broker has a replica of, and how requests find them.

A partition is here from its first assignment until it is deleted. Its log may be on disk before: after a restart
nothing is served until the controller says what to do with it.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kraftcore.core.uuid import LOST_DIRECTORY, Uuid
from kraftcore.errors import CorruptDataError, KraftError, StorageError
from kraftcore.plugins.broker.logdirs import HostedLog, LogDirs
from kraftcore.plugins.broker.logdirs.directory import Directory
from kraftcore.plugins.broker.logdirs.logdirs import Wanted
from kraftcore.plugins.broker.metadata.cache import MetadataCache
from kraftcore.plugins.broker.partition import Assignment, IsrProposal, Partition, PartitionEffects, TopicPartition
from kraftcore.plugins.broker.partition.state import PartitionSettings, refused
from kraftcore.plugins.broker.work.disk_steps import DiskSteps
from kraftcore.plugins.broker.work.keyed_queue import KeyedQueue
from kraftcore.protocol.error_codes import ErrorCode

_logger = logging.getLogger("kraftcore.broker")

TellDirectory: TypeAlias = Callable[[TopicPartition, Uuid, Uuid], bool]
"""Tells the controller in which log directory a partition is, unless it knows; whether it knows, or need not.

Called with the partition, its topic's id and the id of the directory (KIP-858).
"""


def nobody_to_tell(name: TopicPartition, topic_id: Uuid, directory_id: Uuid) -> bool:
    """The `TellDirectory` of a broker without a KRaft controller."""
    return True


def _log(error: Exception) -> None:
    _logger.error("a request that waited for a commit could not be answered", exc_info=error)


@dataclass(slots=True)
class HostedPartition:
    """A partition and the log directory of its log.

    Attributes:
        hosted: the log, in its directory.
        partition: the replica's state: role, leader epoch, high watermark.
        has_id: whether the controller named the topic by its id in the last assignment; the leader is then asked for
            the partition by that id.
    """

    hosted: HostedLog
    partition: Partition
    has_id: bool = True


class Replicas:
    """The partitions of which this broker has a replica, by topic and number.

    Args:
        broker_id: id of this broker.
        dirs: the log directories.
        cache: the partitions of the cluster, as the controller announced them.
        settings_of: called with a topic's name; the settings of its partitions.
        compares_ids: whether clients are refused a log that belongs to another topic id than the announced one; under
            control requests such a log is kept and served, as by Kafka 3.9.1.
        proposals: gets the changes of ISRs that are to be sent to the controller.
        unsynced: gets the partitions whose logs are to be synced, see ``Partition.owes_sync``.
        on_directory_failure: called with a log directory that is used no more.
        tell_directory: see `TellDirectory`.
        on_error: called with what a waiter raised; the other waiters are answered all the same.

    Attributes:
        all: the partitions that were assigned to this broker, and not deleted since.
        moving_to: ids of the directories that the controller is told of before partitions have moved there.
    """

    def __init__(
        self,
        broker_id: int,
        dirs: LogDirs,
        cache: MetadataCache,
        settings_of: Callable[[str], PartitionSettings],
        *,
        compares_ids: bool = False,
        proposals: KeyedQueue[TopicPartition, IsrProposal] | None = None,
        unsynced: KeyedQueue[TopicPartition, None] | None = None,
        on_directory_failure: Callable[[Directory], None] = lambda directory: None,
        tell_directory: TellDirectory = nobody_to_tell,
        on_error: Callable[[Exception], None] = _log,
    ) -> None:
        self.all: dict[TopicPartition, HostedPartition] = {}
        self.moving_to: dict[TopicPartition, Uuid] = {}
        self._watchers: list[Callable[[Collection[TopicPartition]], None]] = []
        self._proposals = KeyedQueue() if proposals is None else proposals
        self._unsynced = KeyedQueue() if unsynced is None else unsynced
        self._tell_directory = tell_directory
        self._compares_ids = compares_ids
        self._on_directory_failure = on_directory_failure
        self._on_error = on_error
        self._broker_id = broker_id
        self._dirs = dirs
        self._cache = cache
        self._settings_of = settings_of
        self._damage: dict[TopicPartition, str] = {}
        self._unmade: set[TopicPartition] = set()  # assigned to this broker; their logs could not be made

    # --- finding ------------------------------------------------------------------------------------------------------

    def find(self, name: TopicPartition) -> Partition:
        """A partition for a client or a follower.

        Raises:
            RefusedError: KAFKA_STORAGE_ERROR; NOT_LEADER_OR_FOLLOWER for one that others have; else
                UNKNOWN_TOPIC_OR_PARTITION.
        """
        if self.is_offline(name):
            raise refused(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {name} cannot be used")
        found = self.all.get(name)
        if found is not None:
            return found.partition
        if self._cache.knows(*name):
            raise refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker has no replica of {name}")
        raise refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} is not known here")

    def is_announced_leader(self, name: TopicPartition) -> bool:
        """Whether the controller announced this broker as a partition's leader, be its log open or not."""
        known = self._cache.partition(*name)
        return known is not None and known.leader == self._broker_id

    def is_coming(self, name: TopicPartition) -> bool:
        """Whether the controller announced this broker as leader of a partition that it does not lead yet."""
        replica = self.all.get(name)
        if replica is not None and replica.partition.leading is not None:
            return self._compares_ids and self._cache.ids.get(name.topic) != replica.hosted.topic_id
        return self.is_announced_leader(name) and not self.is_offline(name)

    def has_all_of(self, topic: str) -> bool:
        """Whether each partition of a topic that is announced to be here is here, online or offline."""
        for number, state in self._cache.topics.get(topic, {}).items():
            if self._broker_id in state.replicas:
                name = TopicPartition(topic, number)
                if name not in self.all and not self.is_offline(name):
                    return False
        return True

    def announced(self, name: TopicPartition) -> Partition:
        """A partition for a client: one that the broker has not been told to lead or follow is refused.

        Raises:
            RefusedError: UNKNOWN_TOPIC_OR_PARTITION, and as ``find``.
        """
        self.check_announced(name)
        return self.find(name)

    def check_announced(self, name: TopicPartition) -> None:
        """Refuse a partition that was not announced, or whose log is another topic's than the announced one.

        Raises:
            RefusedError: UNKNOWN_TOPIC_OR_PARTITION; NOT_LEADER_OR_FOLLOWER where a topic was made anew and the log of
                the deleted one is not set aside yet.
        """
        if not self._cache.knows(*name):
            raise refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} is not known here")
        self._check_topic(name)

    def of_present_topic(self, name: TopicPartition) -> Partition:
        """A partition by its name, unless its log is that of a topic that was deleted and made anew since (KIP-516).

        Raises:
            RefusedError: NOT_LEADER_OR_FOLLOWER, while that log is not set aside yet; and as ``find``.
        """
        self._check_topic(name)
        return self.find(name)

    def _check_topic(self, name: TopicPartition) -> None:
        if self._compares_ids:
            ours, theirs = self.topic_id(name), self._cache.ids.get(name.topic)
            if ours is not None and theirs is not None and ours != theirs:
                raise refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the log of {name} is that of a deleted topic")

    def topic_id(self, name: TopicPartition) -> Uuid | None:
        """The topic id of a partition's log, assigned or not; None: there is no log, or it has no topic id."""
        hosted = self._dirs.find(name)
        return None if hosted is None else hosted.topic_id

    def is_broken(self, name: TopicPartition) -> bool:
        """Whether a partition's log is there and cannot be used."""
        return self._dirs.is_broken(name)

    def is_offline(self, name: TopicPartition) -> bool:
        """Whether a partition of this broker cannot be served: its log cannot be used, or could not be made."""
        return self.is_broken(name) or name in self._unmade

    def is_damaged(self, name: TopicPartition) -> bool:
        """Whether a partition's log cannot be used, and the directory of the log can."""
        directory = self._dirs.directory_of_broken(name)
        return directory is not None and directory.failure is None

    def set_aside_earlier(
        self, name: TopicPartition, topic_id: Uuid | None, *, is_new: bool = False
    ) -> DiskSteps[None]:
        """Set a log aside that cannot be used and belongs to another topic of this name than the one with this id.

        One that is damaged is renamed. What a directory that failed has is passed over; what was not opened there is an
        earlier topic's if the replica is new. Source: Kafka 4.3.1, ReplicaManager.getOrCreatePartition.
        """
        directory = self._dirs.directory_of_broken(name)
        if directory is None:
            return
        if directory.failure is None:
            found = directory.broken_topic_id(name)
            if found is not None and found != topic_id:
                yield from self._dirs.set_aside(directory, name)
            return
        hosted = directory.logs.get(name)
        if is_new if hosted is None else hosted.topic_id != topic_id:
            self._let_go(name)
            yield from self._dirs.forget_failed(name)

    def directory_id(self, name: TopicPartition) -> Uuid | None:
        """In which log directory a partition's log is, for the controller (KIP-858).

        Returns:
            The directory's id, also if it failed; ``LOST_DIRECTORY`` if the log alone cannot be used: the controller
            then has others lead it, as for a directory that is offline. None: there is no log, or the directory has no
            id.
        """
        broken = self._dirs.directory_of_broken(name)
        if broken is not None:
            return LOST_DIRECTORY if broken.failure is None else broken.id
        hosted = self._dirs.find(name)
        if hosted is None:
            return None
        is_moving = self._dirs.future(name) is not None
        return self.moving_to.get(name, hosted.directory.id) if is_moving else hosted.directory.id

    # --- changing -----------------------------------------------------------------------------------------------------

    def make(
        self, assignments: Mapping[TopicPartition, Assignment], now_ms: Callable[[], int]
    ) -> DiskSteps[dict[TopicPartition, KraftError]]:
        """Make the logs of partitions that are assigned to this broker and have none, all together; before ``add``.

        A log that cannot be made is tried in the other directories, as in Kafka; where that fails, too, it is offline.

        Returns:
            The partitions that cannot be served, and why.
        """
        left = {
            name: Wanted(each.topic_id, each.directory, each.is_new)
            for name, each in assignments.items()
            if name not in self.all and self._dirs.find(name) is None
        }
        failures: dict[TopicPartition, KraftError] = {}
        while left:
            usable = len(self._dirs.usable)
            found = yield from self._dirs.create_all(left, now_ms())
            failed = {name: each for name, each in found.items() if isinstance(each, KraftError)}
            for name in left.keys() - failed.keys():
                failures.pop(name, None)
                self._unmade.discard(name)
            failures.update(failed)
            self._unmade.update(name for name, error in failed.items() if isinstance(error, StorageError))
            # All partitions of a directory that failed have one error, which counts once.
            for name, error in {id(error): (name, error) for name, error in failed.items()}.values():
                self.failed(name, error)
            if not 0 < len(self._dirs.usable) < usable:
                break
            left = {name: left[name] for name in failed if not self.is_broken(name)}
        for name, error in failures.items():
            _logger.error("%s cannot be served: %s", name, error)
        return failures

    def assign(self, name: TopicPartition, assignment: Assignment, now_ms: Callable[[], int]) -> DiskSteps[None]:
        """The controller says what becomes of a partition whose log is here: lead it, or follow its leader.

        No flush or removal may be under way in a log. An assignment of an older partition epoch than the known one is
        passed over.

        Raises:
            StorageError: its log cannot be used; see ``failed``.
        """
        known = self.all.get(name)
        if known is not None and assignment.partition_epoch < known.partition.partition_epoch:
            _logger.warning("%s is at partition epoch %d already", name, known.partition.partition_epoch)
            return
        replica = yield from self.add(name, assignment.topic_id)
        partition = replica.partition
        if self.is_broken(name):  # its directory failed while a thread waited for the disk
            raise StorageError(errno.EIO, f"the log of {name} failed meanwhile", replica.hosted.directory.path)
        if assignment.leader == self._broker_id:
            self.carry_out(name, partition.become_leader(assignment, now_ms()))
        else:
            self.carry_out(name, partition.become_follower(assignment))

    def add(self, name: TopicPartition, topic_id: Uuid | None) -> DiskSteps[HostedPartition]:
        """Add a partition that is assigned to this broker; its log has been made (``make``).

        Args:
            name: of the partition.
            topic_id: of its topic; None: it has none.

        Raises:
            StorageError: the disk failed, or before, when the log was to be made.
        """
        found = self.all.get(name)
        if found is None:
            hosted = self._dirs.find(name)
            if hosted is None:
                raise StorageError(errno.EIO, f"the log of {name} could not be made")
            self._unmade.discard(name)
            is_eligible = self._cache.is_eligible
            partition = Partition(
                name,
                self._broker_id,
                hosted.log,
                self._settings_of(name.topic),
                hosted.high_watermark,
                is_eligible,
                hosted.producers,
            )
            found = self.all[name] = HostedPartition(hosted, partition)
        found.has_id = topic_id is not None
        yield from self.assign_topic_id(found, topic_id)
        return found

    def configure(self, name: TopicPartition) -> None:
        """The settings of a partition changed."""
        replica = self.all.get(name)
        if replica is not None:
            replica.partition.settings = self._settings_of(name.topic)
            replica.hosted.directory.reconfigure(replica.hosted)

    def assign_topic_id(self, replica: HostedPartition, topic_id: Uuid | None) -> DiskSteps[None]:
        """Store a topic id with the log of a partition that has none."""
        hosted = replica.hosted
        if topic_id is not None and hosted.topic_id is None:
            yield from hosted.directory.assign_topic_id(hosted, topic_id)
        replica.partition.can_propose = hosted.topic_id is not None

    def delete(
        self, names: Collection[TopicPartition], now_ms: Callable[[], int]
    ) -> DiskSteps[dict[TopicPartition, KraftError]]:
        """Delete partitions, whether they were assigned or are on disk alone; fine where there is none.

        Of a directory that failed nothing is touched: what it has of the partitions is forgotten until the next start.
        Nobody is served by them any more from the first step on. It yields what threads may do: see ``disk_threads``.

        Returns:
            Those whose log could not be deleted, as its directory failed.
        """
        for name in names:
            self._let_go(name)
            yield from self._dirs.forget_failed(name)
            yield None
        found = {name: directory for name in names if (directory := self._dirs.directory_of(name)) is not None}
        failed = yield from self._dirs.delete_all(names, now_ms)
        for directory, error in failed.items():
            self.directory_failed(directory, error)
        return {name: failed[directory] for name, directory in found.items() if directory in failed}

    def forget(self, name: TopicPartition) -> DiskSteps[None]:
        """Forget a partition that failed here and was deleted, or whose log could not be made."""
        self._unmade.discard(name)
        yield from self._dirs.forget_failed(name)

    def forget_gone(self) -> DiskSteps[None]:
        """See ``Directory.forget_gone``: what ends one or more deletions."""
        for directory in self._dirs.usable:
            if directory.stores_gone:
                try:
                    yield directory.forget_gone
                except StorageError as error:
                    self.directory_failed(directory, error)

    def _let_go(self, name: TopicPartition) -> None:
        """Stop a partition, and remove it from ``all``."""
        found = self.all.pop(name, None)
        self._damage.pop(name, None)
        self._unmade.discard(name)
        self.moving_to.pop(name, None)
        if found is not None:
            self.carry_out(name, found.partition.stop())

    def switch_to(self, name: TopicPartition, future: HostedLog, wall_ms: int) -> HostedLog:
        """A move ends: the log in the other directory, which holds what the partition's own does, becomes its log.

        Nothing may be under way in either of them, nor be made durable before ``Directory.sync_names``.

        Returns:
            Its log before, still open, which is no partition's any more.

        Raises:
            StorageError: the other directory failed; nothing has moved.
        """
        replica = self.all[name]
        partition, before = replica.partition, replica.hosted
        for entry in before.log.epoch_entries():
            if future.log.last_epoch is None or entry.epoch > future.log.last_epoch:
                future.log.assign_epoch_start_offset(entry.epoch, entry.start_offset)  # without records as yet
        future.directory.promote(future)
        del before.directory.logs[name]
        future.directory.reconfigure(future)
        future.high_watermark = partition.high_watermark
        future.producers.expire(wall_ms)
        future.producers.committed(partition.high_watermark)
        partition.use(future.log, future.producers)
        replica.hosted = future
        self.moving_to.pop(name, None)
        return before

    # --- effects ------------------------------------------------------------------------------------------------------

    def carry_out(self, name: TopicPartition, effects: PartitionEffects) -> None:
        """Carry out the effects of an event of a partition."""
        self.carry_out_all([(name, effects)])

    def carry_out_all(self, wanted: Iterable[tuple[TopicPartition, PartitionEffects]]) -> None:
        """Carry out the effects of events of partitions; watchers are called once, with all that changed."""
        changed: list[TopicPartition] = []
        for name, effects in wanted:
            for waiter, error in effects.ended:
                try:
                    waiter.end(error)
                except Exception as raised:
                    self._on_error(raised)
            if effects.proposal is not None:
                self._proposals.put(name, effects.proposal)
            if effects.has_changed:
                changed.append(name)
            if effects.needs_sync:
                self._unsynced.put(name, None)
        if changed:
            self.changed(changed)

    def watch(self, changed: Callable[[Collection[TopicPartition]], None]) -> None:
        """Have a function called with partitions of which more can be read, or whose role or epoch changed."""
        self._watchers.append(changed)

    def changed(self, names: Collection[TopicPartition]) -> None:
        """Call those that ``watch`` with these partitions."""
        for watcher in self._watchers:
            watcher(names)

    def store_high_watermarks(self) -> None:
        """Hand the high watermarks to the directories, which write them."""
        for replica in self.all.values():
            replica.hosted.high_watermark = replica.partition.high_watermark

    def failed(self, name: TopicPartition, error: KraftError) -> ErrorCode:
        """Something of a partition's log failed: what its clients are told.

        After a failed read or write the whole directory is used no more (``StorageError``). A batch that is damaged is
        an error for the request that reads it, and for no other: as in Kafka (ReplicaManager.readFromLog) the partition
        goes on. A log that cannot be opened is offline.
        """
        replica = self.all.get(name)
        if isinstance(error, StorageError):
            directory = self._dirs.holding(error.filename) if replica is None else replica.hosted.directory
            if directory is not None:
                self.directory_failed(directory, error)
        elif replica is not None and isinstance(error, CorruptDataError):
            if self._damage.get(name) != str(error):  # clients read it again and again: one line is enough
                self._damage[name] = str(error)
                _logger.error("%s holds a damaged batch; reading it is answered CORRUPT_MESSAGE: %s", name, error)
            return ErrorCode.CORRUPT_MESSAGE
        return ErrorCode.KAFKA_STORAGE_ERROR

    def cannot_write(self, name: TopicPartition, error: KraftError) -> ErrorCode:
        """A log could not be synced, or part of it not removed: what its clients are told.

        It takes nothing more. If it is damaged, its files are shorter than they were, say, the partition is offline.
        """
        if isinstance(error, CorruptDataError):
            self.damaged(name, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return self.failed(name, error)

    def damaged(self, name: TopicPartition, error: CorruptDataError) -> None:
        """A damaged log cannot be synced, or brought in line with its leader's: its partition is offline.

        The controller has others lead it (``directory_id``).
        Source: Kafka 4.3.1, AbstractFetcherThread.doTruncate, markPartitionFailed.
        """
        hosted = self._dirs.find(name)
        if hosted is None or self.is_broken(name):
            return
        hosted.directory.take_offline(name, error)
        if name in self.all:
            self.carry_out(name, self.all[name].partition.stop())
        if hosted.topic_id is not None:
            self._tell_directory(name, hosted.topic_id, LOST_DIRECTORY)

    def directory_failed(self, directory: Directory, error: KraftError) -> None:
        """Use a log directory no more: the partitions in it are offline from now on."""
        if directory.failure is None:
            _logger.critical("log directory %s failed, its partitions are offline: %s", directory.path, error)
            directory.failure = error
            self._on_directory_failure(directory)
        for each in [each for each in directory.logs if each in self.all]:
            self.carry_out(each, self.all[each].partition.stop())
