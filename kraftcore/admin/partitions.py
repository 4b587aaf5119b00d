"""Leaders and replicas of partitions: elections, reassignments, log directories.

Source: KIP-113, 183, 455, 460, 860; Kafka 4.3.1's client.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from kraftcore.admin.calls import Calls, all_told, by_topic, settle
from kraftcore.admin.router import raise_refusal, refusal
from kraftcore.errors import RefusedError
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from kraftcore.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from kraftcore.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from kraftcore.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from kraftcore.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from kraftcore.protocol.topics import TopicPartition


class ElectionType(IntEnum):
    """The kind of an election, with the protocol's numbers (KIP-460).

    PREFERRED is the first of the replicas, if it is in sync; UNCLEAN any replica, of partitions without a leader:
    records that it lacks are lost.
    """

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A reassignment under way.

    Attributes:
        replicas: broker ids of all replicas now, those being added and removed included.
        adding: ids of brokers that get a replica.
        removing: ids of brokers whose replica is removed once all others are in sync.
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class Replica(NamedTuple):
    """One broker's copy of a partition.

    Attributes:
        topic: its name.
        partition: its number, from 0.
        broker_id: id of the broker that has it.
    """

    topic: str
    partition: int
    broker_id: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}-{self.broker_id}"


@dataclass(frozen=True, slots=True)
class ReplicaPlace:
    """The directory of a replica on its broker.

    Attributes:
        log_dir: its directory; None if it is in no directory that works.
        future_log_dir: the directory that it is moved to; None if it is not moved.
    """

    log_dir: str | None
    future_log_dir: str | None


class PartitionCalls(Calls):
    """Calls about partitions; see ``AdminClient`` for the errors that all of them raise."""

    async def elect_leaders(
        self, election: ElectionType, partitions: Iterable[TopicPartition] | None = None
    ) -> Mapping[TopicPartition, bool]:
        """Elect leaders.

        Args:
            election: the kind of the election.
            partitions: to elect leaders of; None: all partitions.

        Returns:
            By partition whether a leader was elected; False: no election was needed. Where ``partitions`` is None,
            partitions that needed no election are left out.

        Raises:
            PartlyRefusedError: by partition. PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE,
                UNKNOWN_TOPIC_OR_PARTITION.
            RefusedError: CLUSTER_AUTHORIZATION_FAILED, or another for the request as a whole.
        """
        asked = None if partitions is None else tuple(dict.fromkeys(partitions))
        grouped = None
        if asked is not None:
            topic = ElectLeadersRequest.TopicPartitions
            grouped = [topic(topic=name, partitions=numbers) for name, numbers in by_topic(asked).items()]
        response = await self._router.call(
            "electLeaders",
            ElectLeadersRequest(election_type=election, topic_partitions=grouped, timeout_ms=self._timeout_ms),
            ElectLeadersResponse,
            lambda answer: raise_refusal(answer.error_code, None),
            min_version=0 if election is ElectionType.PREFERRED else 1,
        )
        told = {
            TopicPartition(result.topic, each.partition_id): _elected(each)
            for result in response.replica_election_results
            for each in result.partition_result
        }
        return settle(told if asked is None else all_told(asked, told))

    async def alter_reassignments(
        self,
        wanted: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> None:
        """Begin or cancel reassignments of replicas; each partition by itself.

        Args:
            wanted: broker ids by partition, the preferred leader first; None: cancel.
            allow_replication_factor_change: False: refuse a change of the number of replicas (KIP-860).

        Raises:
            PartlyRefusedError: by partition. INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR,
                NO_REASSIGNMENT_IN_PROGRESS, UNKNOWN_TOPIC_OR_PARTITION.
            RefusedError: CLUSTER_AUTHORIZATION_FAILED, or another for the request as a whole.
        """
        topic = AlterPartitionReassignmentsRequest.ReassignableTopic
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=self._timeout_ms,
            allow_replication_factor_change=allow_replication_factor_change,
            topics=[
                topic(
                    name=name,
                    partitions=[
                        topic.ReassignablePartition(
                            partition_index=number, replicas=_listed(wanted[TopicPartition(name, number)])
                        )
                        for number in numbers
                    ],
                )
                for name, numbers in by_topic(wanted).items()
            ],
        )
        response = await self._router.call(
            "alterPartitionReassignments",
            request,
            AlterPartitionReassignmentsResponse,
            lambda answer: raise_refusal(answer.error_code, answer.error_message),
            min_version=0 if allow_replication_factor_change else 1,
        )
        told = {
            TopicPartition(result.name, each.partition_index): refusal(each.error_code, each.error_message) or True
            for result in response.responses
            for each in result.partitions
        }
        settle(all_told(wanted, told))

    async def list_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> Mapping[TopicPartition, Reassignment]:
        """Reassignments under way, by partition.

        Args:
            partitions: to look at; None: all. Missing partitions, and those without a reassignment, are left out.

        Raises:
            RefusedError: CLUSTER_AUTHORIZATION_FAILED.
        """
        grouped = None
        if partitions is not None:
            topic = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
            grouped = [topic(name=name, partition_indexes=numbers) for name, numbers in by_topic(partitions).items()]
        response = await self._router.call(
            "listPartitionReassignments",
            ListPartitionReassignmentsRequest(timeout_ms=self._timeout_ms, topics=grouped),
            ListPartitionReassignmentsResponse,
            lambda answer: raise_refusal(answer.error_code, answer.error_message),
        )
        found = {
            TopicPartition(result.name, each.partition_index): Reassignment(
                tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
            )
            for result in response.topics
            for each in result.partitions
        }
        return dict(sorted(found.items()))

    async def describe_replica_log_dirs(self, replicas: Iterable[Replica]) -> Mapping[Replica, ReplicaPlace]:
        """The directories of replicas, by replica (KIP-113). Asks each broker. Only through brokers.

        Raises:
            LocalError: there is no such broker.
            RefusedError: CLUSTER_AUTHORIZATION_FAILED.
        """
        wanted = tuple(dict.fromkeys(replicas))
        places = dict.fromkeys(wanted, ReplicaPlace(None, None))
        topic = DescribeLogDirsRequest.DescribableLogDirTopic
        for broker_id, asked in _by_broker(wanted).items():
            response = await self._router.call(
                "describeReplicaLogDirs",
                DescribeLogDirsRequest(
                    topics=[topic(topic=name, partitions=numbers) for name, numbers in by_topic(asked).items()]
                ),
                DescribeLogDirsResponse,
                lambda answer: raise_refusal(answer.error_code, None),
                node_id=broker_id,
            )
            for found, log_dir, is_future in _places(broker_id, response):
                if found in places:
                    here = places[found]
                    places[found] = (
                        ReplicaPlace(here.log_dir, log_dir) if is_future else ReplicaPlace(log_dir, here.future_log_dir)
                    )
        return places

    async def alter_replica_log_dirs(self, wanted: Mapping[Replica, str]) -> None:
        """Move replicas to other directories of their brokers (KIP-113). Only through brokers.

        Args:
            wanted: by replica the directory, as in the broker's ``log.dirs``. A broker that does not have the replica
                yet will put it there.

        Raises:
            LocalError: there is no such broker; all others were asked.
            PartlyRefusedError: by replica. REPLICA_NOT_AVAILABLE: the broker does not have it yet. LOG_DIR_NOT_FOUND,
                KAFKA_STORAGE_ERROR, CLUSTER_AUTHORIZATION_FAILED.
        """
        log_dir = AlterReplicaLogDirsRequest.AlterReplicaLogDir

        async def ask(broker_id: int, asked: list[Replica]) -> Mapping[Replica, bool | RefusedError]:
            by_path: dict[str, list[Replica]] = defaultdict(list)
            for replica in asked:
                by_path[wanted[replica]].append(replica)
            response = await self._router.call(
                "alterReplicaLogDirs",
                AlterReplicaLogDirsRequest(
                    dirs=[
                        log_dir(
                            path=path,
                            topics=[
                                log_dir.AlterReplicaLogDirTopic(name=name, partitions=numbers)
                                for name, numbers in by_topic(there).items()
                            ],
                        )
                        for path, there in by_path.items()
                    ]
                ),
                AlterReplicaLogDirsResponse,
                lambda _: None,
                node_id=broker_id,
            )
            told = {
                Replica(result.topic_name, each.partition_index, broker_id): refusal(each.error_code, None) or True
                for result in response.results
                for each in result.partitions
            }
            return all_told(asked, told)

        settle(await self._of_each_node(_by_broker(wanted), ask))


def _by_broker(replicas: Iterable[Replica]) -> dict[int, list[Replica]]:
    grouped: dict[int, list[Replica]] = defaultdict(list)
    for each in replicas:
        grouped[each.broker_id].append(each)
    return grouped


def _listed(replicas: Sequence[int] | None) -> list[int] | None:
    return None if replicas is None else list(replicas)


def _elected(result: ElectLeadersResponse.ReplicaElectionResult.PartitionResult) -> bool | RefusedError:
    if result.error_code == ErrorCode.ELECTION_NOT_NEEDED:
        return False
    return refusal(result.error_code, result.error_message) or True


def _places(broker_id: int, response: DescribeLogDirsResponse) -> Iterable[tuple[Replica, str, bool]]:
    for result in response.results:
        if result.error_code == ErrorCode.NONE:
            for topic in result.topics:
                for each in topic.partitions:
                    yield Replica(topic.name, each.partition_index, broker_id), result.log_dir, each.is_future_key
