"""Files of folders that are not on this machine's disk."""

from __future__ import annotations

import pytest
from pyarrow import fs

from kraftcore.errors import LocalError, StorageError
from kraftcore.plugins.spark import stores

SEGMENT = "bucket/node/__cluster_metadata-0/00000000000000000000.log"


@pytest.fixture
def bucket(monkeypatch):
    """A store whose URIs, as S3's, lose a slash at the end and what follows a question mark."""
    system = fs._MockFileSystem()
    system.create_dir(SEGMENT.rpartition("/")[0])
    with system.open_output_stream(SEGMENT) as file:
        file.write(b"x")

    def locate(path):
        return system, path.removeprefix("s3://").partition("?")[0].rstrip("/")

    monkeypatch.setattr(stores, "locate", locate)


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
