"""A follower that receives a snapshot: what may come instead of the chunk it asked for."""

from __future__ import annotations

import random

import pytest
from scenario import FOLDER, Stage, directory

from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.uuid import Uuid
from kraftcore.errors import InvariantError
from kraftcore.protocol import control
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from kraftcore.raft import events
from kraftcore.raft.installing import installing, verifying
from kraftcore.raft.snapshot_fetch import begin_fetch
from kraftcore.storage.snapshot_batches import SnapshotWriter, verify_and_close
from kraftcore.storage.snapshots import RawSnapshotWriter, SnapshotId, SnapshotStore

_Topic = FetchSnapshotResponse.TopicSnapshot
_Partition = _Topic.PartitionSnapshot


def asking():
    """A stage on which 3 has just sent FetchSnapshot to 1; the request's number, and what 1 answers."""
    stage = Stage()
    for command in ("add-nodes 2 observers=1", "isolate 3", "campaign 1", "stabilize", "append 1 a", "stabilize"):
        stage.run(command)
    for command in ("snapshot 1", "join 3", "timeout 3"):
        stage.run(command)
    node = stage.nodes[3]
    for _ in range(100):
        found = [
            number
            for number, sent in node.replica.state.in_flight.items()
            if isinstance(sent.message, FetchSnapshotRequest)
        ]
        if found:
            stage.queue.clear()
            return stage, node, found[0]
        stage.run("tick 50")
        stage.run("deliver")
    raise AssertionError("host 3 does not ask for the snapshot")


def answer(error=0, end=4, epoch=1, size=10, position=0, data=b"0123456789", top=0, leader_epoch=1):
    if top:
        return FetchSnapshotResponse(error_code=top)
    told = _Partition(
        index=0,
        error_code=error,
        snapshot_id=_Partition.SnapshotId(end_offset=end, epoch=epoch),
        current_leader=_Partition.LeaderIdAndEpoch(leader_id=1, leader_epoch=leader_epoch),
        size=size,
        position=position,
        unaligned_records=data,
    )
    return FetchSnapshotResponse(topics=[_Topic(name="__cluster_metadata", partitions=[told])])


def parts(node):
    return [name for name in node.disk.list_folder("/n/__cluster_metadata-0") if name.endswith(".part")]


@pytest.mark.parametrize(
    "message",
    [
        answer(error=ErrorCode.SNAPSHOT_NOT_FOUND),
        answer(error=ErrorCode.POSITION_OUT_OF_RANGE),
        answer(end=-1),
        answer(epoch=2),
        answer(end=9),
        answer(position=5),
        answer(top=ErrorCode.UNKNOWN_SERVER_ERROR),  # Kafka 4.3.1 cannot say the first two in any other way
        answer(size=10),  # whole, and no snapshot at all
    ],
    ids=[
        "not found",
        "out of range",
        "no id",
        "other epoch",
        "other end",
        "other position",
        "unknown error",
        "damaged",
    ],
)
def test_what_is_of_no_use_is_dropped_and_fetched_anew(message):
    stage, node, request = asking()
    assert len(parts(node)) == 1
    stage.lines = []
    node.handle(events.Answered(request, message))
    assert parts(node) == []
    assert node.store.ids == ()
    assert node.log.log_end_offset == 0
    stage.run("pass 300")
    assert node.store.ids == ((4, 1),)
    assert node.replica.high_watermark == 4
    assert sorted(node.replica.voters.ids) == [1, 2]


def snapshot_of_twins():
    """The bytes of a sound snapshot whose voters are two of one id."""
    disk = SimulatedDisk(random.Random(1))
    disk.make_folder("/twins")
    store = SnapshotStore(disk, "/twins")
    voters = [control.voter(1, directory(number), [("CONTROLLER", "n1", 9093)]) for number in (1, 2)]
    with SnapshotWriter(store.create(SnapshotId(4, 1)), now_ms=0, kraft_version=1, voters=voters) as writer:
        writer.append([b"state"], 0)
        writer.freeze(0)
    reader = store.open(SnapshotId(4, 1))
    data = reader.read_at(0, reader.size)
    reader.close()
    return bytes(data)


def test_a_snapshot_whose_voters_make_no_set_is_of_no_use():
    """It would be read at each start."""
    stage, node, request = asking()
    data = snapshot_of_twins()
    stage.lines = []
    node.handle(events.Answered(request, answer(size=len(data), data=data)))
    assert "two voters share an id" in "\n".join(stage.lines)
    assert node.store.ids == ()
    stage.run("pass 300")
    assert node.store.ids == ((4, 1),)
    assert sorted(node.replica.voters.ids) == [1, 2]


USELESS = {
    "not found": answer(error=ErrorCode.SNAPSHOT_NOT_FOUND),
    "no id": answer(end=-1),
    "other epoch": answer(epoch=2),
    "other position": answer(position=5),
    "unknown error": answer(top=ErrorCode.UNKNOWN_SERVER_ERROR),
    "nothing": answer(size=1000, data=b""),
    "damaged": answer(size=10),
}


@pytest.mark.parametrize("message", USELESS.values(), ids=USELESS)
def test_what_is_of_no_use_is_not_asked_for_again_at_once(message):
    stage, node, request = asking()
    stage.lines = []
    node.handle(events.Answered(request, message))
    lines = list(stage.lines)
    stage.run("stabilize")
    assert not [line for line in lines + stage.lines if line.startswith("3 -> 1 FetchSnapshotRequest")]


def test_a_damaged_snapshot_is_fetched_again_with_growing_pauses():
    """The leader's copy stays damaged; once it has another one, that is taken."""
    stage, node, _ = asking()
    leader = stage.nodes[1]
    (name,) = [name for name in leader.disk.list_folder(FOLDER) if name.endswith("4-0000000001.checkpoint")]
    path = f"{FOLDER}/{name}"
    whole = leader.disk.read_file(path)
    leader.disk.replace_file(path, whole[:-1] + bytes([whole[-1] ^ 1]))
    stage.lines = []
    stage.run("pass 10000")
    asked = [line for line in stage.lines if line.startswith("3 -> 1 FetchSnapshotRequest")]
    assert 8 < len(asked) < 20
    assert [line for line in stage.lines if "snapshot 4-1 is of no use" in line]
    assert node.replica.role.value == "follower"
    leader.disk.replace_file(path, whole)
    stage.run("pass 1100")
    assert node.store.ids == ((4, 1),)


def test_chunks_add_up():
    _stage, node, request = asking()
    node.handle(events.Answered(request, answer(size=1000)))
    assert len(parts(node)) == 1
    (sent,) = [
        sent.message for sent in node.replica.state.in_flight.values() if isinstance(sent.message, FetchSnapshotRequest)
    ]
    assert sent.topics[0].partitions[0].position == 10


def test_a_leader_that_is_gone_leaves_no_part():
    stage, node, _ = asking()
    stage.run("begin 3 leader=2 epoch=7")
    assert parts(node) == []
    assert node.replica.epoch == 7


@pytest.mark.parametrize("error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH])
def test_a_leader_that_leads_no_more_is_left_alone_for_a_moment(error):
    _stage, node, request = asking()
    node.handle(events.Answered(request, answer(error=error)))
    assert node.replica.role.value == "follower"
    assert node.store.ids == ()


def test_a_full_disk_is_noted_and_tried_again():
    stage, node, request = asking()
    node.disk.capacity = node.disk.used_bytes
    stage.lines = []
    node.handle(events.Answered(request, answer(size=1000)))
    assert any("cannot write snapshot" in line for line in stage.lines)
    assert parts(node) == []
    node.disk.capacity = None
    stage.run("pass 300")
    assert node.store.ids == ((4, 1),)


def test_an_impossible_snapshot_is_refused():
    _, node, _ = asking()
    role = node.replica.state.role
    role.snapshot.part.close()
    role.snapshot = None
    state = node.replica.state
    assert not begin_fetch(state, role, (0, 0))
    assert not begin_fetch(state, role, (5, node.replica.epoch + 1))
    state.high_watermark = 9
    assert not begin_fetch(state, role, (5, 1))
    assert role.snapshot is None


@pytest.mark.parametrize(
    "message",
    [answer(top=ErrorCode.INCONSISTENT_CLUSTER_ID), answer(error=ErrorCode.INVALID_REQUEST)],
    ids=["top level", "partition"],
)
def test_an_unexpected_error_is_noted_and_the_chunk_asked_for_again(message):
    stage, node, request = asking()
    stage.lines = []
    node.handle(events.Answered(request, message))
    assert any("FetchSnapshotResponse from n1:9093 is refused" in line for line in stage.lines)
    assert len(parts(node)) == 1
    stage.run("pass 300")
    assert node.store.ids == ((4, 1),)


def test_a_chunk_that_nobody_waits_for_is_ignored():
    stage, node, request = asking()
    node.replica.state.role.drop_snapshot()
    stage.lines = []
    node.handle(events.Answered(request, answer()))
    assert node.store.ids == ()
    assert not any("note" in line for line in stage.lines)


def test_a_snapshot_that_is_here_already_is_not_copied_again():
    stage = Stage()
    for command in ("add-nodes 3", "campaign 1", "stabilize", "append 1 a", "stabilize", "snapshot 2"):
        stage.run(command)
    node = stage.nodes[2]
    role = node.replica.state.role
    assert begin_fetch(node.replica.state, role, (4, 1))
    assert node.replica.state.out.snapshot == events.InstallSnapshot(4, 1, None)
    effects = node.replica.handle(events.SnapshotInstalled(4, 1), stage.now)
    assert role.snapshot is None
    assert effects.restore == (4, 1)


def test_no_room_for_a_snapshot_is_noted():
    _, node, _ = asking()
    role = node.replica.state.role
    role.drop_snapshot()
    node.disk.inject("open", path=".part")
    assert not begin_fetch(node.replica.state, role, (4, 1))
    assert "cannot receive snapshot 4-1" in node.replica.state.out.notes[-1]


def test_our_own_snapshot_makes_older_voter_sets_superfluous():
    stage = Stage()
    for command in ("add-nodes 3", "campaign 1", "stabilize", "update-voter 1 2 epoch=1 port=9", "stabilize"):
        stage.run(command)
    state = stage.nodes[1].replica.state
    before = len(state.voter_sets)
    stage.run("snapshot 1")
    assert len(state.voter_sets) < before
    assert state.voters.get(2).endpoints[0].port == 9
    assert state.voters_at(state.log.log_end_offset) == (1, state.voters)
    assert state.voters.get(2).key.directory_id != Uuid()


def received():
    """As ``asking``; the snapshot is whole and waits to be verified."""
    stage, node, _ = asking()
    node.holds_snapshots = True
    stage.run("pass 3000")
    assert isinstance(node.wanted, events.VerifySnapshot)
    return stage, node


def counted(monkeypatch):
    """What of a snapshot's file was read back, synced or renamed from now on."""
    done = []
    for name in ("read_back", "sync", "freeze"):
        original = getattr(RawSnapshotWriter, name)

        def call(self, original=original, name=name):
            done.append(name)
            return original(self)

        monkeypatch.setattr(RawSnapshotWriter, name, call)
    return done


def test_nothing_waits_for_the_disk_while_a_snapshot_is_taken_in(monkeypatch):
    """Verifying and installing are effects: what the replica itself does leaves the disk alone."""
    stage, node, _ = asking()
    node.holds_snapshots = True
    done = counted(monkeypatch)
    stage.run("pass 3000")
    assert (done, node.log.log_end_offset, node.store.ids) == ([], 0, ())
    node.go_on()  # it is verified
    assert isinstance(node.wanted, events.InstallSnapshot)
    assert (done, node.log.log_end_offset, node.store.ids) == (["read_back", "read_back", "sync"], 0, ())
    node.go_on()
    assert done == ["read_back", "read_back", "sync", "freeze"]
    assert (node.log.log_start_offset, node.store.ids) == (4, ((4, 1),))
    assert node.replica.high_watermark == 4


def test_while_it_is_verified_life_goes_on():
    """Votes are given, nothing is fetched, and the fetch timer stands still; a later leader ends it."""
    stage, node = received()
    stage.lines = []
    stage.run("tick 60000")
    assert node.replica.role.value == "follower"
    stage.run("vote 3 from=2 epoch=1 last=9@1 pre=1")
    assert stage.lines == ["3 -> outside VoteResponse leader_id=1 leader_epoch=1 vote_granted=True"]
    stage.run("begin 3 leader=2 epoch=7")
    assert node.replica.epoch == 7
    assert len(parts(node)) == 1  # it is still being read
    node.go_on()
    assert parts(node) == []
    assert node.wanted is None
    assert node.store.ids == ()
    stage.run("pass 300")


def test_while_it_is_installed_events_wait():
    stage, node = received()
    node.go_on()
    assert node.executor.is_installing
    epoch = node.replica.epoch
    node.handle(events.Tick())
    stage.run("begin 3 leader=2 epoch=7")
    assert node.replica.epoch == epoch
    assert node.executor.due_ms is None
    node.go_on()
    assert not node.executor.is_installing
    assert node.replica.epoch == 7
    assert node.replica.high_watermark == 4
    node.executor.check_invariants()


@pytest.mark.parametrize("operation", ["sync", "rename"])
def test_a_snapshot_that_the_disk_does_not_take_is_fetched_again(operation):
    stage, node = received()
    node.disk.inject(operation, path=".checkpoint")
    stage.lines = []
    node.go_on()
    if node.wanted is not None:
        node.go_on()
    assert [line for line in stage.lines if "snapshot 4-1 is of no use" in line]
    assert parts(node) == []
    node.holds_snapshots = False
    stage.run("pass 1000")
    assert node.store.ids == ((4, 1),)


@pytest.mark.parametrize("steps", range(5))
@pytest.mark.parametrize("mode", ["kept", "lost"])
def test_a_crash_between_any_two_steps_loses_nothing(steps, mode):
    """Verify, sync, rename, cut: the next start has the log as it was, or the snapshot in its place."""
    stage, node = received()
    todo = [verifying(node.wanted, verify_and_close)]
    for _ in range(steps):
        try:
            next(todo[-1])
        except StopIteration as end:
            node.executor.verified(stage.now, end.value)
            todo.append(installing(node.wanted, node.log, node.store, stage.now))
            next(todo[-1])
    stage.run(f"crash 3 {mode}")
    stage.run("restart 3")
    assert parts(node) == []
    installed = steps > 2
    assert (node.store.ids, node.log.log_start_offset) == ((((4, 1),), 4) if installed else ((), 0))
    node.holds_snapshots = False
    stage.run("pass 1000")
    assert node.store.ids == ((4, 1),)
    assert node.replica.high_watermark >= 4


def test_an_installation_that_nobody_asked_for_is_a_bug():
    stage, node, _ = asking()
    node.replica.state.role.drop_snapshot()
    with pytest.raises(InvariantError, match="did not ask for it"):
        node.replica.handle(events.SnapshotInstalled(4, 1), stage.now)
