"""Watch any KRaft quorum, Kafka's or ours, from outside: mirror its log, iterate over what is committed.

    async with kraftcore.observe(["127.0.0.1:9093"]) as observer:
        async for record in observer.records(types={"TopicRecord", "RemoveTopicRecord"}):
            print(record)

An observer has no name: its Fetch requests carry the replica id -1, which leaders serve without remembering it. So it
is neither voter nor listed among the quorum's observers, and nothing of it is left when it ends.
"""

from kraftcore.namespace import listing
from kraftcore.observer.observer import Observer, Progress
from kraftcore.observer.opening import observe
from kraftcore.observer.records import ObservedRecord, Snapshot
from kraftcore.observer.streams import Batches, Records
from kraftcore.storage.snapshot_batches import SnapshotReader
from kraftcore.storage.snapshots import SnapshotId

__all__ = [
    "Batches",
    "ObservedRecord",
    "Observer",
    "Progress",
    "Records",
    "Snapshot",
    "SnapshotId",
    "SnapshotReader",
    "observe",
]
__dir__ = listing(__all__)
