"""Damage to a node's directory, on a real disk: each kind has an error that names the way out, or does no harm.

docs/damage.md says what these tests show.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from random import Random

import pytest
import trio
from nodes import Lab, Values, run

from kraftcore.config import NodeConfig
from kraftcore.core.disk.os_files import OsFiles
from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.uuid import Uuid
from kraftcore.errors import CorruptDataError, DamagedLogError, KraftError, LocalError, StorageError
from kraftcore.node import open_node
from kraftcore.node.home import open_home
from kraftcore.node.repair import repair
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.storage.format import InitialVoter, format_directory, plan_format
from kraftcore.storage.meta_properties import META_PROPERTIES, read_meta_properties

LOG = "__cluster_metadata-0"
GARBAGE = b"\xff garbage \x00" * 10
SMALL = {
    "segment_bytes": 4096,
    "max_batch_bytes": 2048,
    "retention_bytes": 9000,
    "cleaning_period_ms": 20,
    "file_delete_delay_ms": 0,
    "election_timeout_ms": 100,
    "listeners": ["127.0.0.1:0"],
    "advertised_listeners": ["CONTROLLER://127.0.0.1:19999"],  # nobody connects: the voter entry stays the same
}


def config_of(directory: Path, **settings) -> NodeConfig:
    return NodeConfig(**{"node_id": 1, "directory": str(directory), "cluster_id": "abc", **SMALL, **settings})


async def fill(directory: Path, **settings) -> None:
    """Three snapshots of 60 values each, the log behind the last one in several segments."""
    async with open_node(config_of(directory, create="standalone", **settings), Values()) as node:
        await node.wait_leader()
        for number in range(180):
            await node.append(b"%d" % number + bytes(100))
            if number % 60 == 59:
                end_offset, _ = await node.snapshot_now()
        with trio.fail_after(60):
            while "retention_bytes" not in settings and node.status().log_start_offset < end_offset:
                await trio.sleep(0.01)
        for number in range(180, 240):
            await node.append(b"%d" % number + bytes(100))


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log starts where the only snapshot ends."""
    directory = tmp_path_factory.mktemp("filled") / "node"
    run(lambda: fill(directory))
    return directory


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log goes back to its beginning, beside three snapshots."""
    directory = tmp_path_factory.mktemp("whole") / "node"
    run(lambda: fill(directory, retention_bytes=-1))
    return directory


def copy(source: Path, folder: Path) -> Path:
    """As a backup is made: sizes, contents, times."""
    return Path(shutil.copytree(source, folder / "node"))


def pick(directory: Path, pattern: str, which: int = -1) -> Path:
    return sorted(directory.glob(pattern))[which]


def count_of(directory: Path, **settings) -> int:
    """Start it; how many values it has when it leads."""
    machine = Values()

    async def main():
        async with open_node(config_of(directory, **settings), machine) as node:
            with trio.fail_after(60):
                await node.wait_leader()
                await node.read_barrier()

    run(main)
    return len(machine.values)


def delete(*patterns: str):
    def harm(directory: Path) -> None:
        for pattern in patterns:
            for path in sorted(directory.glob(pattern)):
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    return harm


def delete_one(pattern: str, which: int = -1):
    return lambda directory: pick(directory, pattern, which).unlink()


def write(pattern: str, data: bytes = GARBAGE):
    def harm(directory: Path) -> None:
        path = pick(directory, pattern)
        path.chmod(0o600)
        path.write_bytes(data)

    return harm


def flip(pattern: str, which: int, position: int):
    def harm(directory: Path) -> None:
        path = pick(directory, pattern, which)
        path.chmod(0o600)
        data = bytearray(path.read_bytes())
        data[position] ^= 0x55
        path.write_bytes(data)

    return harm


def cut(pattern: str, which: int, size: int):
    def harm(directory: Path) -> None:
        path = pick(directory, pattern, which)
        path.chmod(0o600)
        os.truncate(path, path.stat().st_size - size)

    return harm


def test_nothing_is_damaged(filled: Path, whole: Path, tmp_path: Path):
    for number, source in enumerate((filled, whole)):
        assert count_of(copy(source, tmp_path / str(number))) == 240


# What was done; the error's file, and words of it; the values that are left after a repair, or None: it cannot be.
REFUSED = {
    "meta.properties deleted": (delete(META_PROPERTIES), META_PROPERTIES, "is missing, though", 240),
    "meta.properties garbage": (write(META_PROPERTIES), META_PROPERTIES, "names no cluster.id", 240),
    "meta.properties empty": (write(META_PROPERTIES, b""), META_PROPERTIES, "names no cluster.id", 240),
    "meta.properties cut": (
        write(META_PROPERTIES, b"version=1\ncluster"),
        META_PROPERTIES,
        "cluster.id is missing",
        240,
    ),
    "log folder deleted": (delete(LOG), LOG, "is missing; this node would forget", None),
    "segments deleted": (delete(f"{LOG}/*.log"), LOG, "all segments are missing", 180),
    "segments and listing deleted": (
        delete(f"{LOG}/*.log", f"{LOG}/kraftcore-segments"),
        LOG,
        "holds no segment",
        180,
    ),
    "first segment deleted": (delete_one(f"{LOG}/*.log", 0), LOG, "the log starts at offset", 180),
    "middle segment deleted": (delete_one(f"{LOG}/*.log", 1), "log", "starts at", range(180, 239)),
    "last segment deleted": (delete_one(f"{LOG}/*.log"), LOG, "segments are missing", range(180, 239)),
    "segment garbage": (flip(f"{LOG}/*.log", 0, 1500), "log", "checksum differs", range(180, 239)),
    "last segment garbage": (flip(f"{LOG}/*.log", -1, 300), "log", "checksum differs", range(180, 239)),
    "middle segment torn": (cut(f"{LOG}/*.log", 1, 30), "log", "ends within a batch", range(180, 239)),
    "last segment torn": (cut(f"{LOG}/*.log", -1, 30), "log", "ends within a batch", 239),
    "snapshot garbage": (write(f"{LOG}/*.checkpoint"), "checkpoint", "nothing else here holds", None),
    "snapshot empty": (write(f"{LOG}/*.checkpoint", b""), "checkpoint", "nothing else here holds", None),
    "snapshot flipped": (flip(f"{LOG}/*.checkpoint", -1, 5000), "checkpoint", "checksum", None),
    "snapshot cut": (cut(f"{LOG}/*.checkpoint", -1, 100), "checkpoint", "nothing else here holds", None),
    "snapshot deleted": (delete(f"{LOG}/*.checkpoint"), LOG, "but no snapshot is there", None),
    "quorum-state garbage": (write(f"{LOG}/quorum-state"), "quorum-state", "not a line of JSON", 240),
    "quorum-state empty": (write(f"{LOG}/quorum-state", b""), "quorum-state", "not a line of JSON", 240),
    "committed garbage": (write(f"{LOG}/kraftcore-committed"), "kraftcore-committed", "do not match", 240),
    "partition.metadata garbage": (write(f"{LOG}/partition.metadata"), "partition.metadata", "writes it anew", 240),
}


def test_a_torn_tail_that_was_committed_is_named_though_it_looks_like_a_crash(filled: Path, tmp_path: Path):
    directory = copy(filled, tmp_path)
    cut(f"{LOG}/*.log", -1, 30)(directory)
    delete(f"{LOG}/kraftcore-segments")(directory)
    with pytest.raises(CorruptDataError, match="is known to be committed, with epoch") as refused:
        count_of(directory)
    assert refused.value.path.endswith("kraftcore-committed")
    told = []
    assert repair(config_of(directory), told.append, execute=True)
    assert [each.what for each in told] == [str(refused.value)]
    assert "which were committed" in told[0].loses
    assert count_of(directory) == 239


@pytest.mark.parametrize("name", REFUSED)
def test_damage_is_named_with_its_way_out(filled: Path, tmp_path: Path, name: str):
    """It is told by open_node, and by repair, which mends what it can and says what that loses."""
    harm, path, words, left = REFUSED[name]
    directory = copy(filled, tmp_path)
    harm(directory)
    before = {each: each.stat().st_size for each in directory.rglob("*") if each.suffix in (".log", ".checkpoint")}
    with pytest.raises(CorruptDataError, match=words) as refused:
        count_of(directory)
    assert refused.value.path.endswith(path)
    assert "docs/damage.md" in str(refused.value) or name.startswith("partition")
    told = []
    assert not repair(config_of(directory), told.append)  # without execute: only told
    assert [each.what for each in told] == [str(refused.value)]
    assert before == {each: each.stat().st_size for each in directory.rglob("*") if each in before}
    assert repair(config_of(directory), told.append, execute=True, cluster_id="abc") == (left is not None)
    if left is None:
        assert told[-1].remedy is None
        with pytest.raises(CorruptDataError, match=words):
            count_of(directory)
    else:
        assert told[-1].remedy is not None
        found = count_of(directory)
        assert found == left if isinstance(left, int) else found in left
        assert (told[-1].loses == "nothing") == (found == 240) or re.search("voted|refused", told[-1].loses)


HARMLESS = {
    "indexes garbage": write(f"{LOG}/*.index"),
    "indexes deleted": delete(f"{LOG}/*index"),
    "time index garbage": write(f"{LOG}/*.timeindex"),
    "leader-epoch-checkpoint garbage": write(f"{LOG}/leader-epoch-checkpoint"),
    "partition.metadata deleted": delete(f"{LOG}/partition.metadata"),
    "listing garbage": write(f"{LOG}/kraftcore-segments"),
    "listing deleted": delete(f"{LOG}/kraftcore-segments"),
    "bootstrap.checkpoint garbage": write("bootstrap.checkpoint"),
    "bootstrap.checkpoint deleted": delete("bootstrap.checkpoint"),
    "quorum-state of the only voter deleted": delete(f"{LOG}/quorum-state"),
    "kraftcore-log garbage": write("kraftcore-log"),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_held_twice_does_no_harm(filled: Path, tmp_path: Path, name: str):
    directory = copy(filled, tmp_path)
    HARMLESS[name](directory)
    assert repair(config_of(directory), lambda damage: pytest.fail(damage.what))
    assert count_of(directory) == 240


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_damaged_snapshot_that_others_make_superfluous_is_set_aside(whole: Path, tmp_path: Path, caplog, which: int):
    directory = copy(whole, tmp_path)
    path = pick(directory, f"{LOG}/0*[1-9]-*.checkpoint", which)
    path.chmod(0o600)
    path.write_bytes(GARBAGE)
    assert count_of(directory) == 240
    assert path.with_name(path.name + ".damaged").exists() and not path.exists()
    assert f"renamed to {path.name}.damaged" in caplog.text


def test_all_snapshots_damaged_and_the_log_whole(whole: Path, tmp_path: Path):
    """Also the 0-0 checkpoint: the first voters are in the log."""
    directory = copy(whole, tmp_path)
    for path in (directory / LOG).glob("*.checkpoint"):
        path.chmod(0o600)
        path.write_bytes(GARBAGE)
    assert count_of(directory) == 240


def test_damage_below_a_snapshot_loses_nothing(whole: Path, tmp_path: Path):
    """The log begins anew behind the damage, for the snapshot holds what was before."""
    directory = copy(whole, tmp_path)
    flip(f"{LOG}/*.log", 0, 1500)(directory)
    with pytest.raises(DamagedLogError, match="checksum differs"):
        count_of(directory)
    told = []
    assert repair(config_of(directory), told.append, execute=True)
    assert [each.loses for each in told] == ["nothing: a snapshot up to 183 holds these records"]
    assert count_of(directory) == 240


def test_a_directory_of_another_node_or_cluster(filled: Path, tmp_path: Path):
    directory = copy(filled, tmp_path)
    with pytest.raises(LocalError, match="node id is 1, expected 2: configure node id 1, or give node 2 a folder"):
        count_of(directory, node_id=2)
    with pytest.raises(LocalError, match="cluster.id is abc, expected xyz: the folder is another cluster's"):
        count_of(directory, cluster_id="xyz")


def test_a_missing_log_of_an_observer_is_fetched_again(filled: Path, tmp_path: Path, caplog):
    directory = copy(filled, tmp_path)
    delete(LOG)(directory)

    async def main():
        config = config_of(directory, can_become_voter=False, bootstrap_servers=["127.0.0.1:1"])
        async with open_node(config, Values()):
            pass

    run(main)
    assert "holds no log any more; it is fetched again" in caplog.text


def test_a_voter_among_others_needs_its_vote(caplog):
    """On simulated disks: three voters; the first one's quorum-state goes. Repair costs it, and says so."""
    lab = Lab()

    async def main():
        async with lab.quorum() as nodes:
            await nodes[0].append(b"a")
            epoch = nodes[0].status().epoch
        disk, path = lab.disks[1], f"/data/{LOG}/quorum-state"
        disk.unlink(path)
        with pytest.raises(
            CorruptDataError, match="is missing: this node may have voted, and would vote again"
        ) as error:
            async with lab.node(1):
                pass
        assert error.value.path == path
        told = []
        assert repair(lab.config(1), told.append, execute=True, files=disk)
        assert "whom this node voted for" in told[0].loses
        async with lab.node(1) as first:
            assert first.status().epoch > epoch
            async with lab.node(2), lab.node(3):
                await first.read_barrier()
                assert lab.machines[1].values == [b"a"]

    run(main)


def test_the_directory_id_comes_from_the_voters_if_nothing_else_knows_it(filled: Path, tmp_path: Path):
    directory = copy(filled, tmp_path)
    wanted = (directory / META_PROPERTIES).read_text()
    delete(META_PROPERTIES, "kraftcore-log")(directory)
    told = []
    with pytest.raises(LocalError, match="give --cluster-id"):
        repair(config_of(directory), told.append, execute=True)
    assert repair(config_of(directory), told.append, execute=True, cluster_id="abc")
    assert "of this node's entry among the voters" in told[-1].remedy
    given = {line for line in wanted.splitlines() if not line.startswith("#")}
    assert given == {line for line in (directory / META_PROPERTIES).read_text().splitlines() if line[:1] != "#"}
    delete(META_PROPERTIES)(directory)
    other = Uuid(bytes(range(16)))
    assert repair(config_of(directory), told.append, execute=True, cluster_id="abc", directory_id=other)
    assert f"directory.id={other}" in (directory / META_PROPERTIES).read_text()


def test_a_directory_that_is_formatted_again_begins_anew(filled: Path, tmp_path: Path):
    """Also with the same directory id, as storage format --initial-controllers may give it."""
    directory = copy(filled, tmp_path)
    files = OsFiles()
    old = read_meta_properties(files, str(directory))
    voters = [InitialVoter(1, "127.0.0.1", 19999, old.directory_id)]
    plan = plan_format(node_id=1, cluster_id="abc", voters=voters)
    delete(LOG, META_PROPERTIES)(directory)
    assert format_directory(files, str(directory), plan, metadata=True) == old
    assert count_of(directory) == 0
    assert (directory / "kraftcore-log").read_text() == f"{old.directory_id}\n"


@pytest.mark.parametrize("others", [{}, {"create": "join", "bootstrap_servers": ["127.0.0.1:1"]}])
def test_a_log_without_meta_properties_is_not_begun_anew(filled: Path, tmp_path: Path, others: dict):
    """Whatever ``create`` says: as another node, with another directory id, it would never lead again."""
    directory = copy(filled, tmp_path)
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    lost = directory / META_PROPERTIES
    lost.unlink()
    with pytest.raises(CorruptDataError, match="is missing, though this directory holds a log"):
        count_of(directory, **{"create": "standalone", **others})
    lost.write_bytes(before[lost])
    assert before.keys() == {path for path in directory.rglob("*") if path.is_file() and path.name != ".lock"}
    assert count_of(directory) == 240


@pytest.mark.parametrize("mode", [None, "lost", "kept", "torn", "mixed"])
def test_a_directory_that_was_left_half_formatted_is_begun_anew(mode: str | None):
    """The disk fails once while a node formats itself, at each moment; or the power goes then."""
    config = config_of(Path("/n"), create="standalone")
    moment = 0
    while True:
        disk = SimulatedDisk(Random(moment))
        fault = disk.inject("any", after=moment)
        with suppress(StorageError):
            open_home(disk, config).close()
        if not fault.hits:
            break
        disk.clear_faults()
        open_home(disk if mode is None else disk.crash(mode), config).close()
        moment += 1
    assert moment > 20


def test_an_empty_directory_without_create_is_refused_with_what_to_set(tmp_path: Path):
    for directory, what in ((tmp_path, "is empty"), (tmp_path / "none", "is not there")):
        with pytest.raises(
            LocalError,
            match=rf"{what}. Of a node that ran before, it is gone: .*\(kraftcore storage format "
            rf'--no-initial-controllers; docs/damage.md, Lost disks\). Of a new node: .* set create .* to "standalone"',
        ):
            open_home(OsFiles(), config_of(directory))
        assert not list(tmp_path.iterdir())


def test_repair_of_what_is_no_nodes_directory(tmp_path: Path):
    with pytest.raises(LocalError, match="is not there"):
        repair(config_of(tmp_path / "none"), print)
    with pytest.raises(LocalError, match="is not formatted: there is nothing to repair"):
        repair(config_of(tmp_path), print)


def test_a_backup_brings_back_a_quorum_of_one(tmp_path: Path):
    """A copy of the whole directory of a stopped node; what came after the copy is lost."""

    async def append(directory: Path, value: bytes) -> ReplicaKey:
        machine = Values()
        async with open_node(config_of(directory, create="standalone"), machine) as node:
            await node.wait_leader()
            await node.append(value)
            values.append(list(machine.values))
            return node.key

    values: list[list[bytes]] = []
    directory, backup = tmp_path / "node", tmp_path / "backup"
    keys = [trio.run(append, directory, b"before")]
    shutil.copytree(directory, backup)
    keys.append(trio.run(append, directory, b"lost"))
    shutil.rmtree(directory)
    shutil.copytree(backup, directory)
    keys.append(trio.run(append, directory, b"after"))
    assert values == [[b"before"], [b"before", b"lost"], [b"before", b"after"]]
    assert len(set(keys)) == 1


def test_all_voters_come_back_from_copies_of_one_stop(tmp_path: Path):
    lab = Lab(election_timeout_ms=100)
    lab.disks = dict.fromkeys((1, 2, 3), OsFiles())

    async def live(value: bytes) -> list[bytes]:
        folders = {number: str(tmp_path / "live" / str(number)) for number in (1, 2, 3)}
        async with AsyncExitStack() as stack:
            for number, folder in folders.items():
                node = await stack.enter_async_context(lab.node(number, directory=folder))
            with trio.fail_after(60):
                while len(node.status().voters) < 3:
                    await trio.sleep(0.01)
                await node.append(value, forward=True)
                await node.read_barrier()
            return list(lab.machines[3].values)

    async def main():
        assert await live(b"before") == [b"before"]
        shutil.copytree(tmp_path / "live", tmp_path / "copies")
        assert await live(b"lost") == [b"before", b"lost"]
        shutil.rmtree(tmp_path / "live")
        shutil.copytree(tmp_path / "copies", tmp_path / "live")
        assert await live(b"after") == [b"before", b"after"]

    run(main)


def test_a_damaged_voter_is_replaced_by_itself_with_an_empty_directory():
    """The others hold everything: the old directory's entry is removed, the new one is added (KIP-853)."""
    lab = Lab(auto_join=False)

    async def main():
        async with lab.quorum() as nodes:
            old = nodes[2].key
            for number in range(5):
                await nodes[0].append(b"%d" % number)
        async with lab.node(1) as first, lab.node(2) as second:
            lab.disks[3] = SimulatedDisk(Random(9))
            async with lab.node(3) as third:
                with trio.fail_after(60):
                    leader_id = await first.wait_leader()
                    leader = {1: first, 2: second}[leader_id]
                    await leader.read_barrier()
                    await leader.remove_voter(3, old.directory_id)
                    while True:
                        try:
                            await leader.add_voter(3, third.key.directory_id, third.config.advertise(third.endpoints))
                            break
                        except KraftError as error:
                            assert "REQUEST_TIMED_OUT" in str(error)  # it has not caught up
                            await trio.sleep(0.01)
                    await third.read_barrier()
                assert third.key != old
                assert lab.machines[3].values == [b"%d" % number for number in range(5)]

    run(main)
