"""Files of folders that are not on this machine's disk."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote

import pytest
from pyarrow import fs

from kraftcore.errors import LocalError, StorageError
from kraftcore.plugins.spark import stores
from kraftcore.plugins.spark.source import Settings

SEGMENT = "bucket/node/__cluster_metadata-0/00000000000000000000.log"
ODD_SEGMENT = "odd/b[1] 50%20?*/__cluster_metadata-0/00000000000000000000.log"


@pytest.fixture
def bucket(monkeypatch):
    """A store whose URIs, as pyarrow reads those of S3, lose a slash at the end and may not hold just any sign."""
    system = fs._MockFileSystem()
    for segment in (SEGMENT, ODD_SEGMENT):
        system.create_dir(segment.rpartition("/")[0])
        with system.open_output_stream(segment) as file:
            file.write(b"x")

    def from_uri(uri):
        assert not set(uri) & set(" []?")
        return system, unquote(uri.removeprefix("s3://")).rstrip("/")

    monkeypatch.setattr(stores, "fs", SimpleNamespace(**{**vars(fs), "FileSystem": SimpleNamespace(from_uri=from_uri)}))


@pytest.mark.parametrize("path", ["s3://odd", "s3://odd/b[1] 50%20?*", f"s3://{ODD_SEGMENT}"])
def test_names_in_a_store_are_taken_as_they_stand(path, bucket):
    (file,) = stores.Inventory().files([path])
    assert file.path == f"s3://{ODD_SEGMENT}"
    assert stores.Source(file.path).read(0, 9) == b"x"


@pytest.mark.parametrize("path", ["s3://bucket", "s3://bucket/node/", f"s3://{SEGMENT}"])
def test_files_of_a_store_keep_its_scheme(path, bucket):
    (file,) = stores.Inventory().files([path])
    assert (file.path, file.size) == (f"s3://{SEGMENT}", 1)


def test_a_uri_with_settings_is_refused(bucket):
    with pytest.raises(LocalError, match="settings in a URI"):
        stores.Inventory().files(["s3://bucket/node?region=x"])


def test_a_properties_file_that_cannot_be_read_is_not_taken_for_none(tmp_path):
    (tmp_path / "meta.properties").mkdir()
    (tmp_path / "00000000000000000000.log").touch()
    with pytest.raises(StorageError, match=r"meta\.properties"):
        stores.Inventory().files([str(tmp_path)])


def test_a_path_that_exists_is_no_pattern(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    odd = ["b[1]", "a*", "a?", "[c]", "**", "~"]
    for name in ("b1", "ab", "ac", "c", *odd):
        Path(name).mkdir()
        Path(name, "x[2]").touch()
    for name in odd:
        for path in (name, f"{name}/x[2]", str(tmp_path / name)):
            assert list(stores.expand([path])) == [str(tmp_path / path)]
            assert stores.from_anywhere(path) == str(tmp_path / path)
        assert Settings({"path": name}).unread([]) == [str(tmp_path / name)]
    assert list(stores.expand(["~/b[1]"])) == [str(tmp_path / "b[1]")]
    assert list(stores.expand(["b[12]"])) == [str(tmp_path / "b1")]
    with pytest.raises(LocalError, match=r"b\[2\]: there is no such"):
        list(stores.expand(["b[2]"]))


def test_a_glob_does_not_make_one_of_the_folders_it_stands_in(tmp_path, monkeypatch):
    home = tmp_path / "b[1]"
    for folder in (home / "x1", tmp_path / "b1" / "x1"):
        folder.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    assert list(stores.expand(["~/x*"])) == [str(home / "x1")]
    elsewhere = [stores.from_anywhere("~/x*")]
    monkeypatch.chdir(home)
    elsewhere += [stores.from_anywhere("./x*"), stores.from_anywhere("x1/../x[1-3]")]
    monkeypatch.chdir(os.sep)
    assert [list(stores.expand([path])) for path in elsewhere] == [[str(home / "x1")]] * 3
