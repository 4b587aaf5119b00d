"""``kraftcore metadata``: a backup of a live quorum, a new quorum that goes on from it, and what differs."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path

import pytest
from project import ROOT
from server_quorum import ServerQuorum, note, server_quorum

from kraftcore.cli import main
from kraftcore.cli.metadata_restore import restored_values
from kraftcore.cli.metadata_states import read_directory
from kraftcore.core.uuid import UNASSIGNED_DIRECTORY, Uuid
from kraftcore.metadata import Image
from kraftcore.metadata.configs import BROKER, TOPIC
from kraftcore.protocol.metadata import encode_metadata_record
from kraftcore.protocol.records.client_quota_record import ClientQuotaRecord
from kraftcore.protocol.records.config_record import ConfigRecord
from kraftcore.protocol.records.partition_change_record import PartitionChangeRecord
from kraftcore.protocol.records.partition_record import PartitionRecord
from kraftcore.protocol.records.register_broker_record import RegisterBrokerRecord
from kraftcore.protocol.records.topic_record import TopicRecord
from kraftcore.protocol.records.user_scram_credential_record import UserScramCredentialRecord

Capture = pytest.CaptureFixture[str]
ORDERS, BILLS = Uuid.random(), Uuid.random()


def partition(topic_id: Uuid, number: int) -> bytes:
    record = PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=[1, 2],
        isr=[1, 2],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=[Uuid.random(), Uuid.random()],
    )
    return encode_metadata_record(record, 1)


def topic(name: str, topic_id: Uuid) -> bytes:
    return encode_metadata_record(TopicRecord(name=name, topic_id=topic_id), 0)


def config(kind: int, resource: str, name: str, value: str) -> bytes:
    record = ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)
    return encode_metadata_record(record, 0)


def credential(name: str, key: bytes) -> bytes:
    record = UserScramCredentialRecord(
        name=name, mechanism=1, salt=b"salt", stored_key=key, server_key=key, iterations=4096
    )
    return encode_metadata_record(record, 0)


def broker(number: int) -> bytes:
    record = RegisterBrokerRecord(broker_id=number, incarnation_id=Uuid.random(), broker_epoch=number, fenced=True)
    return encode_metadata_record(record, 3)


def first_records() -> list[bytes]:
    quota = ClientQuotaRecord(
        entity=[ClientQuotaRecord.EntityData(entity_type="user", entity_name="alice")],
        key="producer_byte_rate",
        value=1024.0,
    )
    return [
        broker(1),
        broker(2),
        topic("orders", ORDERS),
        *(partition(ORDERS, number) for number in range(2)),
        config(TOPIC, "orders", "retention.ms", "3600000"),
        config(BROKER, "", "ssl.keystore.password", "the-first-secret"),
        encode_metadata_record(quota, 0),
        credential("alice", b"alices-first-key"),
    ]


def later_records() -> list[bytes]:
    change = PartitionChangeRecord(partition_id=1, topic_id=ORDERS, leader=2, isr=[2])
    return [
        topic("bills", BILLS),
        *(partition(BILLS, number) for number in range(3)),
        encode_metadata_record(change, 1),
        config(TOPIC, "orders", "retention.ms", "1000"),
        config(TOPIC, "bills", "cleanup.policy", "compact"),
        config(BROKER, "", "ssl.keystore.password", "the-second-secret"),
        credential("alice", b"alices-second-key"),
    ]


def run(capture: Capture, *arguments: object) -> tuple[int, str, str]:
    capture.readouterr()
    status = main(["metadata", *map(str, arguments)])
    out, err = capture.readouterr()
    return status, out, err


def back_up(capture: Capture, servers: str, directory: Path) -> dict[str, object]:
    status, out, err = run(
        capture, "backup", "--bootstrap-controller", servers, "--directory", directory, "--output", "json"
    )
    assert status == 0, err
    found = json.loads(out)
    assert isinstance(found, dict)
    return found


def test_a_backup_becomes_another_quorum(tmp_path: Path, capsys: Capture) -> None:
    """Three new controllers, with new ports and directory ids, have what was committed, and go on.

    Who holds what the old quorum committed after the backup lets go of it.
    """
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    with server_quorum(tmp_path / "old") as quorum:
        quorum.append(first_records(), client_id=1)
        found = back_up(capsys, ",".join(quorum.addresses), tmp_path / "backups")
        file = Path(str(found["file"]))
        assert (found["clusterId"], found["existed"]) == (quorum.cluster_id, False)
        assert file.name == f"{found['endOffset']:020d}-{found['epoch']:010d}.checkpoint"
        quorum.append(later_records(), client_id=2)
        # The controllers themselves write as time goes by: brokers that never came are fenced already.
        status, out, _ = run(capsys, "diff", file, ",".join(quorum.addresses))
        assert status == 1
        assert f"topic bills is new: id {BILLS}, partitions 3" in out
        assert "partition orders-1 changed: isr [1,2] -> [2]; leader 1 -> 2; leader_epoch 0 -> 1" in out
        assert "configuration topic orders changed: retention.ms 3600000 -> 1000" in out
        assert (
            "configuration broker (default) changed: ssl.keystore.password (not shown) -> (not shown), another" in out
        )
        assert "credential alice, SCRAM-SHA-256 changed: secret (not shown) -> (not shown), another one" in out
        assert "-secret" not in out
        status, out, _ = run(capsys, "diff", ",".join(quorum.addresses), file, "--output", "json")
        lines = [json.loads(line) for line in out.splitlines()]
        assert {"kind": "topic", "name": "bills", "before": {"id": str(BILLS)}, "after": None} in lines
        assert [each["name"] for each in lines if each["kind"] == "partition"] == [
            *(f"bills-{number}" for number in range(3)),
            "orders-1",
        ]
        assert "-secret" not in out
        observe = ["observe", "--directory", str(tmp_path / "mirror"), "--output", "none", "--once"]
        assert main([*observe, "--bootstrap-controller", ",".join(quorum.addresses)]) == 0
        assert names(tmp_path / "mirror") == {"orders", "bills"}
    restored = ServerQuorum(tmp_path / "new")
    try:
        given = ["--initial-controllers", restored.initial]
        for number, properties in restored.files.items():
            status, _, err = run(capsys, "restore", file, "--config", properties, *given)
            assert (status, "is formatted already: restore into an empty directory" in err) == (1, True)
            shutil.rmtree(tmp_path / "new" / f"d{number}")
            status, out, err = run(capsys, "restore", file, "--config", properties, *given)
            assert status == 0, err
            assert f"its log goes on from offset {found['endOffset']}" in out
        snapshots = {path.read_bytes() for path in (tmp_path / "new").glob("d*/*/*-0001*.checkpoint")}
        assert len(snapshots) == 1  # of three nodes, byte for byte
        assert main(["storage", "info", "--config", str(restored.files[1])]) == 0
        for number in restored.files:
            restored.start(number)
        restored.append([note("goes on")], client_id=3)
        assert restored.voters() == {1, 2, 3}
        status, out, _ = run(capsys, "diff", file, ",".join(restored.addresses))
        assert status == 1
        lines = [line for line in out.splitlines()[2:] if not line.startswith("controller ")]
        assert lines == ["configuration topic notes is new: note goes on"]
        assert main([*observe, "--bootstrap-controller", ",".join(restored.addresses)]) == 0
        assert names(tmp_path / "mirror") == {"orders"}
    finally:
        restored.close()


def test_a_backup_says_what_is_wrong_with_it(tmp_path: Path, capsys: Capture) -> None:
    with server_quorum(tmp_path) as quorum:
        quorum.append(first_records(), client_id=1)
        file = Path(str(back_up(capsys, ",".join(quorum.addresses), tmp_path / "backups")["file"]))
    whole = file.read_bytes()
    file.chmod(0o600)
    file.write_bytes(whole[:-10])
    status, _, err = run(capsys, "diff", file, file)
    assert (status, file.name in err) == (1, True)
    file.write_bytes(whole.replace(b"orders", b"ORDERS"))
    status, _, err = run(capsys, "diff", file, file)
    assert (status, "checksum" in err) == (1, True)
    file.write_bytes(whole)
    renamed = file.with_name("00000000000000000001-0000000001.checkpoint")
    file.rename(renamed)
    status, _, err = run(capsys, "diff", renamed, renamed)
    assert (status, f"this backup is {file.name}, and was renamed" in err) == (1, True)
    renamed.rename(tmp_path / "yesterday")
    status, _, err = run(capsys, "diff", tmp_path / "yesterday", renamed.parent)
    assert (status, "give the file its own name again" in err) == (1, True)
    status, _, err = run(capsys, "diff", tmp_path / "nowhere", "h1:9093")
    assert (status, "is not there: give a snapshot's file, a directory" in err) == (2, True)


def test_two_moments_of_a_log(tmp_path: Path, capsys: Capture) -> None:
    """What the records between two offsets did, in a directory that is in use and stays as it is."""
    with server_quorum(tmp_path) as quorum:
        quorum.append(first_records(), client_id=1)
        quorum.append([topic("bills", BILLS)], client_id=2)
        directory = tmp_path / f"d{quorum.leader()}"
        end = read_directory(str(directory)).end_offset
        before = next(offset for offset in range(end) if names(directory, offset + 1) >= {"orders", "bills"})
        assert names(directory, before) == {"orders"}
        status, out, _ = run(capsys, "diff", f"{directory}@{before}", f"{directory}@{before + 1}")
        assert (status, out.splitlines()[2:]) == (1, [f"topic bills is new: id {BILLS}"])
        status, out, _ = run(capsys, "diff", f"{directory}@{before}", f"{directory}@{before}")
        assert (status, out.splitlines()[2:]) == (0, ["Nothing differs."])
        status, _, err = run(capsys, "diff", directory, f"{directory}@{end + 100_000}")
        assert (status, "the log ends at offset" in err) == (1, True)
        assert quorum.runs(quorum.leader())


def names(directory: Path, offset: int | None = None) -> set[str]:
    return {each.name for each in read_directory(str(directory), offset).image.topics.values()}


def test_a_restore_without_brokers_keeps_who_is_in_sync() -> None:
    """No broker is registered, no partition has a leader; whoever was in sync can lead, whatever its directories."""
    image = Image()
    image.apply_values(first_records())
    restored = Image()
    restored.apply_values(restored_values(image, without_brokers=True))
    assert (dict(image.brokers) != {}, dict(restored.brokers)) == (True, {})
    found = restored.partitions.get(ORDERS, 0)
    assert (found.leader, found.leader_epoch, found.partition_epoch, found.isr) == (-1, 1, 1, (1, 2))
    assert found.directories == (UNASSIGNED_DIRECTORY,) * 2
    assert dict(restored.configs) == dict(image.configs)
    with_brokers = Image()
    with_brokers.apply_values(restored_values(image, without_brokers=False))
    assert dict(with_brokers.brokers) == dict(image.brokers)
    assert with_brokers.partitions.get(ORDERS, 0) == image.partitions.get(ORDERS, 0)


def test_restoring_asks_who_shall_vote(tmp_path: Path, capsys: Capture) -> None:
    quorum = ServerQuorum(tmp_path)
    shutil.rmtree(tmp_path / "d1")
    file = tmp_path / "00000000000000000001-0000000001.checkpoint"
    shutil.copy(next((tmp_path / "d2").glob("*/*.checkpoint")), file)  # of Kafka's format, and no backup
    status, _, err = run(capsys, "restore", file, "--config", quorum.files[1])
    assert (status, "Who shall vote?" in err) == (1, True)
    status, _, err = run(capsys, "restore", file, "--config", quorum.files[1], "--standalone")
    assert (status, "does not say of which cluster it is: give --cluster-id" in err) == (1, True)
    others = f"7@h7:9093:{Uuid.random()}"
    status, _, err = run(capsys, "restore", file, "--config", quorum.files[1], "--initial-controllers", others)
    assert (status, "Node 1 is not among --initial-controllers" in err) == (1, True)
    assert not (tmp_path / "d1").exists()
    given = ["--config", quorum.files[1], "--standalone", "--cluster-id", quorum.cluster_id]
    quorum.rewrite(1, {"log.dirs": f"{tmp_path}/d1,{tmp_path}/more"})
    assert run(capsys, "restore", file, *given)[0] == 0
    (tmp_path / "d1" / "meta.properties").unlink()  # killed before the end
    assert run(capsys, "restore", file, *given)[0] == 0
    with closing(quorum):
        quorum.start(1)
        assert quorum.leader() == 1


def test_the_page_shows_the_commands() -> None:
    text = (ROOT / "docs" / "damage.md").read_text()
    for command in ("backup --bootstrap-controller", "restore BACKUP.checkpoint", "diff"):
        assert f"kraftcore metadata {command}" in text
