"""A node with several directories: they must be one node's, as Kafka's MetaPropertiesEnsemble asks."""

from __future__ import annotations

import shutil
from contextlib import closing

import pytest
from nodes import Values, run

from kraftcore.cli import main
from kraftcore.config import NodeConfig
from kraftcore.core.disk.os_files import OsFiles
from kraftcore.errors import LocalError
from kraftcore.node import open_node
from kraftcore.node.home import open_home
from kraftcore.storage.meta_properties import META_PROPERTIES, read_meta_properties

FILE = (
    "process.roles=controller\nnode.id=1\ncontroller.listener.names=C\nlisteners=C://127.0.0.1:0\n"
    "controller.quorum.bootstrap.servers=127.0.0.1:9093\nlog.dirs={0}/a,{0}/b,{0}/c/\n"
)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "c.properties"
    path.write_text(FILE.format(tmp_path))
    assert main(["storage", "format", "-c", str(path), "-t", "abc", "--standalone"]) == 0
    return path


def starts(file, **overrides):
    async def main():
        async with open_node(NodeConfig.from_properties(file, **overrides), Values()) as node:
            await node.wait_leader()

    run(main)


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("cluster.id=abc", "cluster.id=xyz", "cluster.id is xyz, expected abc: the folder is another cluster's"),
        ("node.id=1", "node.id=2", "node id is 2, expected 1"),
    ],
)
def test_directories_that_disagree_are_refused(file, old, new, text):
    starts(file)
    other = file.parent / "b" / META_PROPERTIES
    other.write_text(other.read_text().replace(old, new))
    with pytest.raises(LocalError, match=f"{other}: {text}"):
        starts(file)


def test_a_copied_directory_is_refused(file):
    shutil.rmtree(file.parent / "c")
    shutil.copytree(file.parent / "b", file.parent / "c")
    with pytest.raises(LocalError, match="is used by .*/b and by .*/c: one is a copy"):
        starts(file)


def test_a_log_in_another_directory_than_the_metadata_directory_is_refused(file):
    with pytest.raises(LocalError, match=r"/a holds a metadata log, but the metadata folder is .*/b"):
        starts(file, properties={"metadata.log.dir": f"{file.parent}/b"})


def test_a_directory_that_is_not_formatted_is_refused_unless_they_are_made_here(file):
    shutil.rmtree(file.parent / "b")
    with pytest.raises(LocalError, match=r"/b is not formatted: format it \(kraftcore storage format "):
        starts(file)
    starts(file, create="standalone")


def test_a_directory_that_cannot_be_read_is_left_out(file, caplog):
    """Kafka goes on without it, too; only the metadata directory is needed."""
    (file.parent / "b" / META_PROPERTIES).write_text("version=9")
    starts(file)
    assert "b/meta.properties: version 9 is unknown" in caplog.text


def test_directories_without_an_id_get_one(file):
    other = file.parent / "b" / META_PROPERTIES
    lines = [line for line in other.read_text().splitlines() if not line.startswith("directory.id")]
    other.write_text("\n".join(lines))
    files, config = OsFiles(), NodeConfig.from_properties(file)
    with closing(open_home(files, config)) as home:
        given = read_meta_properties(files, str(file.parent / "b")).directory_id
        assert given not in (None, home.key.directory_id)
