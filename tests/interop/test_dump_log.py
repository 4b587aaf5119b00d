"""Kafka's kafka-dump-log reads what we write, and prints what ours prints."""

from __future__ import annotations

from pathlib import Path

import pytest
from dump_cases import INPUT, LOG, METADATA_LOG
from kafka_tools import KafkaTools

from kraftcore.cli import main
from kraftcore.core.batch import iter_batches
from kraftcore.core.disk.os_files import OsFiles
from kraftcore.core.uuid import Uuid
from kraftcore.protocol.control import voter
from kraftcore.storage.bootstrap import write_bootstrap_checkpoint, write_initial_voters
from kraftcore.storage.snapshot_batches import SnapshotWriter
from kraftcore.storage.snapshots import SnapshotId, SnapshotStore

VOTERS = [voter(1, Uuid(bytes(range(16))), [("CONTROLLER", "::1", 9093)]), voter(2)]


@pytest.fixture
def written(tmp_path: Path) -> list[str]:
    """Snapshots and a bootstrap checkpoint with the records of a golden log."""
    files = OsFiles()
    values = [
        value
        for batch in iter_batches(METADATA_LOG.read_bytes())
        if not batch.is_control
        for value in batch.values()
        if value is not None
    ]
    store = SnapshotStore(files, str(tmp_path))
    with SnapshotWriter(
        store.create(SnapshotId(432, 3)),
        now_ms=1_700_000_000_000,
        last_contained_log_timestamp_ms=1_699_999_999_999,
        kraft_version=1,
        voters=VOTERS,
        batch_bytes_max=1000,
    ) as writer:
        writer.append(values, 1_700_000_000_001)
        writer.freeze(1_700_000_000_002)
    write_initial_voters(store, VOTERS, lambda: 5)
    write_bootstrap_checkpoint(files, str(tmp_path), values[:3], lambda: 6)
    for name in ("rich", "records", "odd"):
        (tmp_path / name).mkdir()
        (tmp_path / name / LOG).write_bytes((INPUT / name / LOG).read_bytes())
    snapshots = [SnapshotId(432, 3).file_name, SnapshotId(0, 0).file_name, "bootstrap.checkpoint"]
    return [*snapshots, *(f"{name}/{LOG}" for name in ("rich", "records", "odd"))]


@pytest.mark.parametrize("flag", ["--cluster-metadata-decoder", "--print-data-log"])
def test_kafka_prints_the_same(
    flag: str,
    written: list[str],
    tmp_path: Path,
    kafka: KafkaTools,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.chdir(tmp_path)
    arguments = [flag, "--files", ",".join(written)]
    assert main(["dump-log", *arguments]) == 0
    ours = capfdbinary.readouterr().out.decode()
    assert ours.count("\n") > 500
    assert "isvalid: false" not in ours
    # Python's text mode turns the carriage returns of values into newlines, in what Kafka printed.
    assert ours.replace("\r\n", "\n").replace("\r", "\n") == kafka.dump_log(*arguments, cwd=tmp_path)
