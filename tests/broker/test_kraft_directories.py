"""Which directory holds which replica, told to a controller that may not be able to hold it yet."""

import trio
import trio.testing
from broker_rig import until

from kraftcore.core.uuid import UNASSIGNED_DIRECTORY, Uuid
from kraftcore.plugins.broker.kraft.directories import DirectoryAssignments
from kraftcore.plugins.broker.kraft.directory_requests import ReplicaKey
from kraftcore.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsResponse

A, KEY = Uuid(bytes(15) + b"\x11"), ReplicaKey(Uuid(bytes(15) + b"\x12"), 0)


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
            assignments = DirectoryAssignments(1, lambda: 7, Controllers(), lambda: is_supported)
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
