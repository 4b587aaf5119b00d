"""Which directory holds which replica, told to a controller that may not be able to hold it yet."""

from types import SimpleNamespace

import trio
import trio.testing
from broker_rig import until

from kraftcore.core.uuid import UNASSIGNED_DIRECTORY, Uuid
from kraftcore.plugins.broker.kraft.directories import DirectoryAssignments
from kraftcore.plugins.broker.kraft.directory_requests import MAX_PER_REQUEST, DirectoryRequests
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.features import MetadataVersion
from kraftcore.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsResponse
from kraftcore.protocol.topics import PartitionKey

A, KEY = Uuid(bytes(15) + b"\x11"), PartitionKey(Uuid(bytes(15) + b"\x12"), 0)


def image(is_supported):
    """The metadata of a cluster, at a metadata.version that holds directories or the one before."""
    level = MetadataVersion.V3_7_IV2 if is_supported else MetadataVersion.V3_7_IV0
    return SimpleNamespace(features=SimpleNamespace(metadata_version_or_minimum=level))


def test_it_is_told_when_the_metadata_can_hold_it():
    asked = []
    is_supported = False

    class Controllers:
        async def send_to_controller(self, request):
            asked.append(request)
            kind = AssignReplicasToDirsResponse.DirectoryData
            (directory,) = request.directories
            (topic,) = directory.topics
            parts = [kind.TopicData.PartitionData(partition_index=each.partition_index) for each in topic.partitions]
            told = kind(id=directory.id, topics=[kind.TopicData(topic_id=topic.topic_id, partitions=parts)])
            return AssignReplicasToDirsResponse(directories=[told])

    async def main():
        nonlocal is_supported
        async with trio.open_nursery() as nursery:
            assignments = DirectoryAssignments(1, lambda: 7, Controllers(), lambda: image(is_supported))
            nursery.start_soon(assignments.run)
            assignments.note(KEY, A, UNASSIGNED_DIRECTORY)
            for _ in range(3):
                assignments.retry()
                await trio.testing.wait_all_tasks_blocked()
            assert not asked
            is_supported = True
            assignments.retry()
            await until(lambda: asked)
            assert asked[0].directories[0].id == A
            await trio.testing.wait_all_tasks_blocked()
            assignments.retry()
            await trio.testing.wait_all_tasks_blocked()
            assert len(asked) == 1
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_refused_replicas_hold_up_no_others():
    """As many as one request holds are refused each time: those behind them have their turn all the same."""
    total = MAX_PER_REQUEST + 10
    requests = DirectoryRequests(1, lambda: 1, lambda *line: None, lambda: image(True))
    topic, here = Uuid(bytes(15) + b"\7"), Uuid(bytes(15) + b"\10")
    for number in range(total):
        requests.note(PartitionKey(topic, number), here, Uuid(bytes(15) + b"\11"))
    kind = AssignReplicasToDirsResponse.DirectoryData
    told = set()
    for _ in range(2):
        request = requests.take()
        told.update(key.partition_id for key in request.told)
        partitions = [
            kind.TopicData.PartitionData(
                partition_index=key.partition_id,
                error_code=ErrorCode.NONE
                if key.partition_id >= MAX_PER_REQUEST
                else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
            for key in request.told
        ]
        topics = [kind.TopicData(topic_id=topic, partitions=partitions)]
        requests.answered(request, AssignReplicasToDirsResponse(directories=[kind(id=here, topics=topics)]))
    assert told == set(range(total))
    assert {key.partition_id for key in requests.take().told} == set(range(MAX_PER_REQUEST))


def test_who_waits_for_the_controller_is_held_up_by_silence_alone():
    requests = DirectoryRequests(1, lambda: 1, lambda *line: None, lambda: image(is_supported))
    is_supported = True
    assert requests.is_answered
    requests.note(KEY, A, UNASSIGNED_DIRECTORY)
    request = requests.take()
    requests.answered(request, Failure.TIMED_OUT)
    assert not requests.is_answered
    is_supported = False
    assert requests.is_answered
    is_supported = True
    requests.answered(request, AssignReplicasToDirsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    assert requests.is_answered
    assert requests.has_more
    requests.note(KEY, A, UNASSIGNED_DIRECTORY)
    assert not requests.is_answered
    requests.forget(KEY)
    assert requests.is_answered
