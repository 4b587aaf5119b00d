"""Log directories of brokers: assignments, failures, cordons (KIP-858, KIP-1066)."""

from __future__ import annotations

from collections.abc import Sequence

from kraftcore.core.uuid import Uuid
from kraftcore.metadata import Broker, Partition, PartitionKey
from kraftcore.plugins.controller.decision import Api, Context, ControllerResult, Record, Refusal
from kraftcore.plugins.controller.requester import check_epoch
from kraftcore.plugins.controller.updates import PartitionUpdates
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.features import MetadataVersion
from kraftcore.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from kraftcore.protocol.records.broker_registration_change_record import BrokerRegistrationChangeRecord
from kraftcore.protocol.schema import Request

_ONLINE_VERSION, _CORDONED_VERSION = 2, 3
_Answer = AssignReplicasToDirsResponse.DirectoryData


def offline(context: Context, broker: Broker, failed: Sequence[Uuid]) -> list[Record]:
    """The records for a heartbeat's failed directories: changes of the partitions in them, then of the broker.

    As in Kafka, a partition counts as in a directory if any of its replicas is assigned there, the broker's own or not.

    When the last directory fails, the list of online directories is empty, which readers of the record take for no
    change; so Kafka's controllers, and this one, write the record again at every heartbeat.
    """
    newly = [directory for directory in broker.directories if directory in failed]
    if not newly:
        return []
    updates = PartitionUpdates(context, without=broker.id)
    for directory in newly:
        replicas = context.image.partitions.with_replica(broker.id)
        updates.refresh(item for item in replicas if directory in item[1].directories)
    left = [directory for directory in broker.directories if directory not in failed]
    change = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, log_dirs=left)
    return [*updates.records, (change, _ONLINE_VERSION)]


def cordoned(broker: Broker, directories: Sequence[Uuid]) -> list[Record]:
    """The record for a heartbeat's cordoned directories, if they changed; a broker's first list is always written."""
    known = broker.cordoned_directories
    if known is not None and set(known) == set(directories):
        return []
    change = BrokerRegistrationChangeRecord(
        broker_id=broker.id, broker_epoch=broker.epoch, cordoned_log_dirs=list(directories)
    )
    return [(change, _CORDONED_VERSION)]


def assign(context: Context, request: AssignReplicasToDirsRequest, version: int) -> ControllerResult:
    """Assign a broker's replicas to its directories, as it asks.

    Replicas in a directory that is not online leave the ISR; those changes come after all assignments.
    """
    image = context.image
    if image.features.metadata_version_or_minimum < MetadataVersion.V3_7_IV2:
        raise Refusal(ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet.")
    broker = check_epoch(context, request.broker_id, request.broker_epoch)
    updates = PartitionUpdates(context)
    lost: dict[PartitionKey, Partition] = {}
    answer = AssignReplicasToDirsResponse()
    for wanted in request.directories:
        is_online = broker.has_online_directory(wanted.id)
        result = _Answer(id=wanted.id)
        answer.directories.append(result)
        for topic in wanted.topics:
            topic_result = _Answer.TopicData(topic_id=topic.topic_id)
            result.topics.append(topic_result)
            is_known = topic.topic_id in image.topics
            for each in topic.partitions:
                key = PartitionKey(topic.topic_id, each.partition_index)
                partition = image.partitions.get(*key) if is_known else None
                error = ErrorCode.NONE
                if not is_known:
                    error = ErrorCode.UNKNOWN_TOPIC_ID
                elif partition is None:
                    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif broker.id not in partition.replicas:
                    error = ErrorCode.NOT_LEADER_OR_FOLLOWER
                else:
                    updates.change(*key, partition, directory=(broker.id, wanted.id))
                    if not is_online:
                        lost[key] = partition
                topic_result.partitions.append(
                    _Answer.TopicData.PartitionData(partition_index=each.partition_index, error_code=error)
                )
    records = updates.records
    if lost:
        leaving = PartitionUpdates(context, without=broker.id)
        leaving.refresh(lost.items())
        records += leaving.records
    return ControllerResult(answer, records, is_atomic=False)


def _refuse_assign(
    request: AssignReplicasToDirsRequest, version: int, error: ErrorCode, message: str | None
) -> AssignReplicasToDirsResponse:
    return AssignReplicasToDirsResponse(error_code=error)


APIS: dict[type[Request], Api] = {AssignReplicasToDirsRequest: Api(assign, _refuse_assign)}
