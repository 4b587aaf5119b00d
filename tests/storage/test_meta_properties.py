from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftcore.core.disk.os_files import OsFiles
from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.uuid import Uuid
from kraftcore.errors import CorruptDataError, LocalError, StorageError
from kraftcore.storage.meta_properties import (
    MetaProperties,
    ensure_directory_ids,
    load_folders,
    read_meta_properties,
    write_meta_properties,
)

GOLDEN_FILES = sorted((Path(__file__).resolve().parents[1] / "golden").rglob("meta.properties"))
NOON = datetime(2026, 3, 1, 12, 0, 5, tzinfo=UTC)
DIRECTORY = Uuid.from_string("CQ6IS1StQn2YarGcqPL8DQ")


@pytest.mark.parametrize("path", GOLDEN_FILES, ids=lambda path: "-".join(path.parts[-3:-1]))
def test_a_file_from_kafka_reads_and_is_rewritten_identically(path: Path) -> None:
    data = path.read_bytes()
    found = MetaProperties.decode(data)
    assert (found.version, found.directory_id is None, found.cluster_id is None) == (1, False, False)
    date = data.split(b"\n")[1].decode()
    written_at = datetime.strptime(date, "#%a %b %d %H:%M:%S UTC %Y").replace(tzinfo=UTC)
    assert found.encode(written_at) == data


def test_there_are_golden_files() -> None:
    assert len(GOLDEN_FILES) >= 10


def test_version_0_has_a_broker_id_and_may_lack_everything() -> None:
    found = MetaProperties.decode(b"broker.id=7\ncluster.id=abc\nnode.id=9\n")
    assert found == MetaProperties("abc", 7, None, 0)
    assert found.encode(NOON) == b"#\n#Sun Mar 01 12:00:05 UTC 2026\nbroker.id=7\nversion=0\ncluster.id=abc\n"
    assert MetaProperties.decode(b"version = 0 \n") == MetaProperties(None, None, None, 0)


def test_any_text_is_a_cluster_id() -> None:
    properties = MetaProperties(" my=cluster: é", 1, DIRECTORY)
    assert MetaProperties.decode(properties.encode(NOON)) == properties


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"version=2\nnode.id=1\ncluster.id=a", "version 2 is unknown"),
        (b"version=one", "version='one' is not a 32-bit integer"),
        (b"version=1\ncluster.id=a", "node.id is missing"),
        (b"version=1\nnode.id=1", "cluster.id is missing"),
        (b"version=1\nnode.id=4294967296\ncluster.id=a", "node.id='4294967296' is not a 32-bit"),
        (b"version=1\nnode.id=\xb2\ncluster.id=a", "is not a 32-bit"),
        (b"version=1\nnode.id=1\ncluster.id=a\ndirectory.id=xyz", "directory.id: 'xyz' is not a uuid"),
    ],
)
def test_a_bad_file_says_which_key_and_where(text: bytes, reason: str) -> None:
    with pytest.raises(CorruptDataError, match=rf"^/d/meta.properties: .*{reason}"):
        MetaProperties.decode(text, path="/d/meta.properties")


@given(st.binary(max_size=100), st.integers(0, 120), st.integers(0, 255))
def test_hostile_bytes_raise_only_the_documented_error(noise: bytes, at: int, value: int) -> None:
    flipped = bytearray(MetaProperties("abc", 7, DIRECTORY).encode(NOON))
    flipped[at % len(flipped)] = value
    for data in (noise, bytes(flipped), bytes(flipped[:at])):
        try:
            MetaProperties.decode(data)
        except CorruptDataError as error:
            assert error.reason


def test_needs_what_version_1_promises() -> None:
    with pytest.raises(LocalError, match=r"needs a cluster\.id and a node\.id"):
        MetaProperties(None, 1)
    with pytest.raises(LocalError, match="version 3 is unknown"):
        MetaProperties("a", 1, None, 3)


class Folders:
    """Formatted folders on a simulated disk."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk(random.Random(1))

    def format(self, name: str, properties: MetaProperties | bytes | None) -> str:
        self.disk.make_folder(name)
        if isinstance(properties, MetaProperties):
            write_meta_properties(self.disk, name, properties, NOON)
        elif properties is not None:
            self.disk.replace_file(f"{name}/meta.properties", properties)
        return name


@pytest.fixture
def folders() -> Folders:
    return Folders()


def test_folders_of_one_node_agree(folders: Folders) -> None:
    first = folders.format("/a", MetaProperties("abc", 7, DIRECTORY))
    second = folders.format("/b", MetaProperties("abc", 7))
    empty = folders.format("/c", None)
    found = load_folders(folders.disk, [first, second, empty, "/missing"], metadata_folder=first)
    found.verify()
    found.verify(cluster_id="abc", node_id=7)
    assert (found.cluster_id, found.node_id) == ("abc", 7)
    assert found.unformatted == (empty, "/missing")
    complete = ensure_directory_ids(folders.disk, found, NOON, randbytes=random.Random(2).randbytes)
    given_id = complete.properties[second].directory_id
    assert given_id not in (None, DIRECTORY)
    assert complete.properties[first].directory_id == DIRECTORY
    assert load_folders(folders.disk, [first, second, empty, "/missing"], metadata_folder=first) == complete


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (MetaProperties("xyz", 7), r"/b/meta.properties: cluster.id is xyz, expected abc"),
        (MetaProperties("abc", 8), r"/b/meta.properties: node id is 8, expected 7"),
        (MetaProperties("abc", 7, DIRECTORY), r"is used by /a and by /b"),
        (MetaProperties("abc", 7, Uuid(bytes(15) + b"\x02")), r"/b/meta.properties: directory.id \S+ is reserved"),
    ],
)
def test_folders_that_do_not_belong_together_are_refused(folders: Folders, other: MetaProperties, reason: str) -> None:
    folders.format("/a", MetaProperties("abc", 7, DIRECTORY))
    folders.format("/b", other)
    with pytest.raises(LocalError, match=reason):
        load_folders(folders.disk, ["/a", "/b"]).verify()


def test_expectations_of_the_caller(folders: Folders) -> None:
    folders.format("/a", MetaProperties("abc", 7, DIRECTORY))
    found = load_folders(folders.disk, ["/a"])
    with pytest.raises(LocalError, match="expected other"):
        found.verify(cluster_id="other")
    with pytest.raises(LocalError, match="expected 3"):
        found.verify(node_id=3)
    with pytest.raises(LocalError, match="only 0 is allowed"):
        found.verify(require_version_0=True)
    with pytest.raises(LocalError, match=r"no readable meta\.properties in /none"):
        load_folders(folders.disk, ["/none"]).verify()
    with pytest.raises(LocalError, match="at least one folder"):
        load_folders(folders.disk, [])


def test_a_failed_folder_is_only_fatal_if_it_is_the_metadata_folder(folders: Folders) -> None:
    folders.format("/a", MetaProperties("abc", 7, DIRECTORY))
    folders.format("/b", b"version=9")
    load_folders(folders.disk, ["/a", "/b"], metadata_folder="/a").verify()
    with pytest.raises(LocalError, match=r"metadata folder /b cannot be used.*version 9"):
        load_folders(folders.disk, ["/a"], metadata_folder="/b").verify()


def test_a_metadata_log_in_another_folder_is_refused(folders: Folders) -> None:
    folders.format("/a", MetaProperties("abc", 7, DIRECTORY))
    folders.format("/b", None)
    folders.disk.make_folder("/b/__cluster_metadata-0")
    with pytest.raises(LocalError, match="/b holds a metadata log, but the metadata folder is /a"):
        load_folders(folders.disk, ["/b"], metadata_folder="/a")


@pytest.mark.parametrize("seed", range(8))
def test_a_crash_leaves_the_old_file_or_the_new_one(seed: int) -> None:
    old, new = MetaProperties("abc", 7), MetaProperties("abc", 7, DIRECTORY)
    disk = SimulatedDisk(random.Random(seed), record=True)
    disk.make_folder("/d")
    write_meta_properties(disk, "/d", old, NOON)
    before = len(disk.trace)
    write_meta_properties(disk, "/d", new, NOON)
    for count in range(before, len(disk.trace) + 1):
        restarted = SimulatedDisk.replay(disk.trace, random.Random(seed * 100 + count), count=count).crash()
        found = read_meta_properties(restarted, "/d")
        assert found in (old, new)
        assert found == new or count < len(disk.trace)


def test_on_a_real_disk(tmp_path: Path) -> None:
    properties = MetaProperties("abc", 7, DIRECTORY)
    write_meta_properties(OsFiles(), str(tmp_path), properties, NOON)
    assert read_meta_properties(OsFiles(), str(tmp_path)) == properties
    assert [path.name for path in tmp_path.iterdir()] == ["meta.properties"]
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "meta.properties").mkdir()
    with pytest.raises(StorageError):
        read_meta_properties(OsFiles(), str(tmp_path / "folder"))
