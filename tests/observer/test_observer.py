"""Observers of our own quorums: what they mirror, what they hand out, and that nobody notices them."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from random import Random

import pytest
import trio
from nodes import Lab, Values, run

from kraftcore import ReplicaKey, observe
from kraftcore.admin import Timing
from kraftcore.core.batch import RecordBatch
from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.errors import CorruptDataError, LocalError, LockedError, NodeStoppedError, StorageError, UnreachableError
from kraftcore.node import Node, leaderless
from kraftcore.node.recovering import become_only_voter, look
from kraftcore.observer import Observer, Snapshot
from kraftcore.raft.quorum import Endpoint
from kraftcore.storage.meta_properties import MetaProperties, read_meta_properties, write_meta_properties
from kraftcore.testing import Cluster


@asynccontextmanager
async def watch(
    lab: Lab, disk: SimulatedDisk, directory: str = "/mirror", name: str = "watcher", **settings
) -> AsyncIterator[Observer]:
    async with (
        lab.network.transport(name) as transport,
        observe(
            ["n1:9093", "n2:9093", "n3:9093"],
            directory,
            transport=transport,
            files=disk,
            **{"timing": Timing(3000, 1000), **settings},
        ) as observer,
    ):
        yield observer


async def values(observer: Observer, count: int, from_offset: int | None = 0) -> list[bytes]:
    """The values of the first data records, snapshots included."""
    found: list[bytes] = []
    async for record in observer.records(from_offset):
        if not isinstance(record, Snapshot) and not record.is_control:
            found.append(record.value)
            if len(found) >= count:
                break
    return found


def log_of(disk: SimulatedDisk, directory: str) -> bytes:
    folder = f"{directory}/__cluster_metadata-0"
    names = sorted(name for name in disk.list_folder(folder) if name.endswith(".log"))
    return b"".join(disk.read_file(f"{folder}/{name}") for name in names)


def nobody_noticed(leader: Node) -> None:
    assert {seen.key.id for seen in leader.status().replicas} <= {1, 2, 3}


def test_an_observer_mirrors_the_log_and_hands_out_what_is_committed():
    async def main():
        lab, disk = Lab(), SimulatedDisk(Random(1))
        async with lab.quorum() as (leader, *_), watch(lab, disk) as observer:
            for number in range(5):
                await leader.append(b"%d" % number)
            assert await values(observer, 5) == [b"0", b"1", b"2", b"3", b"4"]
            appended = await leader.append(b"5")
            assert await values(observer, 1, appended.offset) == [b"5"]
            await observer.caught_up()
            nobody_noticed(leader)
            assert observer.voters == leader.status().voters
            assert observer.progress.leader_id == 1
            known = f"epoch {observer.progress.leader_epoch}, leader 1, high watermark {observer.high_watermark}"
            assert repr(observer) == f"<kraftcore.Observer of {observer.topic} in {observer.directory}: {known}>"
        assert repr(observer) == f"<kraftcore.Observer of {observer.topic} in {observer.directory}: stopped>"
        assert log_of(disk, "/mirror") == log_of(lab.disks[1], "/data")

    run(main)


def test_an_observer_started_at_the_end_hands_out_only_what_comes():
    async def main():
        lab, disk = Lab(), SimulatedDisk(Random(1))
        async with lab.quorum() as (leader, *_), watch(lab, disk) as observer:
            await leader.append(b"before")
            await observer.caught_up()
            while observer.high_watermark < leader.high_watermark:
                await observer.changed()
            got: list[list[bytes]] = []
            async with trio.open_nursery() as nursery:

                async def read() -> None:
                    got.append(await values(observer, 1, None))

                nursery.start_soon(read)
                await trio.sleep(0.1)
                await leader.append(b"after")
            assert got == [[b"after"]]

    run(main)


def test_a_mirror_goes_on_where_it_ended():
    async def main():
        lab, disk = Lab(), SimulatedDisk(Random(1))
        async with lab.quorum() as (leader, *_):
            await leader.append(b"first")
            async with watch(lab, disk) as observer:
                assert await values(observer, 1) == [b"first"]
                end = observer.progress.log_end_offset
            await leader.append(b"second")
            async with watch(lab, disk) as observer:
                assert observer.progress.log_end_offset == end
                assert await values(observer, 2) == [b"first", b"second"]

    run(main)


def test_an_observer_follows_a_new_leader():
    async def main():
        disk = SimulatedDisk(Random(1))
        async with (
            Cluster(3, Values) as cluster,
            cluster.network.transport("watcher") as transport,
            observe(["node-2:9095", "node-3:9096"], "/mirror", transport=transport, files=disk) as observer,
        ):
            first = await cluster.wait_leader()
            await first.append(b"1")
            assert await values(observer, 1) == [b"1"]
            await cluster.kill(first)
            second = await cluster.wait_leader()
            await second.append(b"2")
            assert await values(observer, 2) == [b"1", b"2"]
            assert observer.progress.leader_id == second.key.id

    run(main)


def test_a_snapshot_comes_first_where_the_leader_has_no_log_any_more():
    async def main():
        lab, disk = Lab(cleaning_period_ms=50, retention_bytes=1, segment_bytes=4096), SimulatedDisk(Random(1))
        async with lab.quorum() as (leader, *_):
            async with watch(lab, disk) as observer:
                await leader.append(b"seen")
                assert await values(observer, 1) == [b"seen"]
            old = log_of(disk, "/mirror")
            for number in range(20):
                await leader.append(b"%d" % number + b"x" * 1000)
            end_offset, epoch = await leader.snapshot_now()
            while leader.status().log_start_offset == 0:
                await trio.sleep(0.02)
            await leader.append(b"last")
            async with watch(lab, disk) as observer:
                items = []
                async for item in observer.batches():
                    items.append(item)
                    if isinstance(item, RecordBatch) and b"last" in item.values():
                        break
                first, *rest = items
                assert isinstance(first, Snapshot)
                assert (first.end_offset, first.epoch) == (end_offset, epoch)
                assert rest[0].base_offset == end_offset
                with first.open() as reader:
                    got = [value for value in reader.values() if value is not None]
                assert got[0] == b"seen"
                assert len(got) == 21
                records = [record async for record in _until(observer, b"last")]
                assert isinstance(records[0], Snapshot)
                assert [record.value for record in records[1:] if not record.is_control][:2] == got[:2]
                nobody_noticed(leader)
            name = f"__cluster_metadata-0/{end_offset:020d}-{epoch:010d}.checkpoint"
            assert disk.read_file(f"/mirror/{name}") == lab.disks[1].read_file(f"/data/{name}")
            assert not log_of(disk, "/mirror").startswith(old)
            assert log_of(lab.disks[1], "/data").endswith(log_of(disk, "/mirror"))

    run(main)


def test_snapshots_that_the_quorum_writes_are_copied_and_bound_the_mirror():
    async def main():
        lab, disk = Lab(), SimulatedDisk(Random(1))
        folder = "/__cluster_metadata-0/"

        def snapshots() -> list[str]:
            return sorted(name for name in disk.list_folder("/mirror" + folder) if name.endswith(".checkpoint"))

        async with lab.quorum() as (leader, *_):
            async with watch(lab, disk, retention_bytes=1, keeping_period_ms=50) as observer:
                for number in range(3):
                    await leader.append(b"%d" % number)
                    end_offset, epoch = await leader.snapshot_now()
                    name = f"{end_offset:020d}-{epoch:010d}.checkpoint"
                    while name not in snapshots():
                        await trio.sleep(0.01)
                assert disk.read_file("/mirror" + folder + name) == lab.disks[1].read_file("/data" + folder + name)
                while snapshots() != [name] or observer.progress.log_start_offset != end_offset:
                    await trio.sleep(0.01)
                nobody_noticed(leader)
                await leader.append(b"3")
                assert await values(observer, 4) == [b"0", b"1", b"2", b"3"]
            async with watch(lab, disk) as observer:
                assert await values(observer, 4) == [b"0", b"1", b"2", b"3"]
                assert observer.voters == leader.status().voters

    run(main)


async def _until(observer: Observer, value: bytes):
    async for record in observer.records():
        yield record
        if not isinstance(record, Snapshot) and record.value == value:
            return


def test_a_mirror_is_of_one_cluster_and_no_node_has_it():
    async def main():
        lab, disk = Lab(), SimulatedDisk(Random(1))
        async with lab.quorum() as (leader, *_):
            await leader.append(b"1")
            async with watch(lab, disk) as observer:
                assert observer.cluster_id == leader.cluster_id
                assert await values(observer, 1) == [b"1"]
                with pytest.raises(LockedError):
                    async with watch(lab, disk, name="another"):
                        pass
            with pytest.raises(LocalError, match="belongs to node 1"):
                async with watch(lab, lab.disks[1], "/data"):
                    pass
            write_meta_properties(disk, "/mirror", MetaProperties("somebody-elses-quorum", -1), datetime.now(UTC))
            with pytest.raises(LocalError, match="mirrors cluster somebody-elses-quorum"):
                async with watch(lab, disk):
                    pass

    run(main)


@pytest.mark.parametrize(
    ("servers", "nobody"),
    [
        ([], "there is nobody to ask, no other voter and no bootstrap server"),
        (["n4:9093"], "there is nobody to ask: the bootstrap servers are this node itself"),
    ],
)
def test_a_node_that_is_made_of_a_mirror_says_why_it_does_not_vote_and_goes_on_alone(
    servers, nobody, caplog, monkeypatch
):
    monkeypatch.setattr(leaderless, "FIRST_S", 0.01)

    async def main():
        lab, disk = Lab(), SimulatedDisk(Random(1))
        async with lab.quorum(1) as (leader,), watch(lab, disk) as observer:
            await leader.append(b"kept")
            assert await values(observer, 1) == [b"kept"]
        mirror = read_meta_properties(disk, "/mirror")
        write_meta_properties(disk, "/mirror", dataclasses.replace(mirror, node_id=1), datetime.now(UTC))
        voter, lab.disks[1] = read_meta_properties(lab.disks[1], "/data").directory_id, disk
        moved = {"directory": "/mirror", "listeners": ["CONTROLLER://n4:9093"], "create": None}
        moved["bootstrap_servers"] = servers
        async with lab.node(1, **moved):
            while "no leader has answered" not in caplog.text:
                await trio.sleep(0.01)
            own = read_meta_properties(disk, "/mirror").directory_id
            assert (
                f"s: {nobody}; this node is not voter 1, "
                f"which has directory {voter}, not {own}: its log is a copy, as an observer's mirror is, or its "
                "disk was replaced. Name nodes of the quorum in bootstrap_servers "
                "(controller.quorum.bootstrap.servers) for it to join them; if all voters are lost, let it go on "
                "alone: kraftcore storage recover-quorum (docs/damage.md, Restore)"
            ) in caplog.text
        become_only_voter(disk, "/mirror", 1, Endpoint("CONTROLLER", "n4", 9093))
        async with lab.node(1, **moved) as node:
            await node.wait_leader()
            await node.read_barrier()
            assert lab.machines[1].values == [b"kept"]
            assert [each.host for each in node.status().voters.get(1).endpoints] == ["n4"]

    run(main)


def test_a_mirror_becomes_the_only_voter():
    """The steps of docs/damage.md, Restore from an observer's mirror."""

    async def main():
        lab, disk = Lab(), SimulatedDisk(Random(1))
        async with lab.quorum(1) as (leader,), watch(lab, disk) as observer:
            await leader.append(b"kept")
            assert await values(observer, 1) == [b"kept"]
        mirror = read_meta_properties(disk, "/mirror")
        assert look(disk, "/mirror", 1).key == ReplicaKey(1)
        assert read_meta_properties(disk, "/mirror") == mirror  # looking gives no id
        after = become_only_voter(disk, "/mirror", 1, Endpoint("CONTROLLER", "n4", 9093))
        assert after.key.has_directory
        own = read_meta_properties(disk, "/mirror")
        assert (own.node_id, own.directory_id) == (1, after.key.directory_id)
        assert after.voters.keys == (after.key,)
        lab.disks[1] = disk
        async with lab.node(1, directory="/mirror", listeners=["CONTROLLER://n4:9093"], create=None) as node:
            await node.wait_leader()
            await node.read_barrier()
            assert lab.machines[1].values == [b"kept"]

    run(main)


def test_a_mirror_that_cannot_be_read_is_let_go():
    """And says what is damaged, each time: nobody holds the directory."""

    async def main():
        lab, disk = Lab(), SimulatedDisk(Random(1))
        async with lab.quorum():
            async with watch(lab, disk) as observer:
                await observer.caught_up()
            disk.replace_file("/mirror/__cluster_metadata-0/quorum-state", b"garbage")
            for _ in range(2):
                with pytest.raises(CorruptDataError, match="quorum-state"):
                    async with watch(lab, disk):
                        pass

    run(main)


def test_another_cluster_behind_the_address_ends_the_observer():
    """The mirror is known, so nobody asks for the cluster at start; the quorum refuses the first Fetch."""

    async def main():
        lab, disk = Lab(), SimulatedDisk(Random(1))
        async with lab.quorum(), watch(lab, disk) as observer:
            await observer.caught_up()
        write_meta_properties(disk, "/mirror", MetaProperties("somebody-elses-quorum", -1), datetime.now(UTC))
        with pytest.raises(NodeStoppedError, match="this is another cluster"):
            async with watch(lab, disk, timing=Timing(50, 50)) as observer, lab.node(1), lab.node(2):
                await observer.caught_up()

    run(main)


def test_a_new_mirror_needs_a_quorum_and_an_old_one_waits_for_it():
    async def main():
        lab, disk = Lab(), SimulatedDisk(Random(1))
        quick = Timing(200, 100)
        with pytest.raises(UnreachableError):
            async with watch(lab, disk, timing=quick):
                pass
        async with lab.quorum() as (leader, *_):
            await leader.append(b"1")
            async with watch(lab, disk) as observer:
                assert await values(observer, 1) == [b"1"]
        async with watch(lab, disk, timing=quick) as observer:
            assert observer.progress.log_end_offset > 0
            assert observer.high_watermark == 0  # nobody says yet what of it is committed
            async with lab.node(1), lab.node(2):
                assert await values(observer, 1) == [b"1"]

    run(main)


def test_readers_are_told_when_the_observer_ends():
    async def main():
        lab, disk = Lab(), SimulatedDisk(Random(1))
        ends: list[str] = []
        async with lab.quorum(), trio.open_nursery() as nursery:

            async def read(observer: Observer) -> None:
                with pytest.raises(NodeStoppedError) as error:
                    await values(observer, 1000)
                ends.append(str(error.value))

            async with watch(lab, disk) as observer:
                nursery.start_soon(read, observer)
                await observer.caught_up()
        assert ends == ["the observer stopped: it was closed"]

    run(main)


def test_a_machine_without_room_for_a_temporary_mirror_says_so(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")

    async def main():
        with pytest.raises(StorageError, match="/nowhere"):
            async with observe(["n1:9093"], transport=Lab().network.transport("watcher")):
                pass

    run(main)


def test_a_failing_disk_ends_the_observer():
    async def main():
        lab, disk = Lab(), SimulatedDisk(Random(1))
        with pytest.raises(NodeStoppedError):
            async with lab.quorum() as (leader, *_), watch(lab, disk) as observer:
                await observer.caught_up()
                disk.crash("lost")
                await leader.append(b"1")
                await values(observer, 1)

    run(main)
