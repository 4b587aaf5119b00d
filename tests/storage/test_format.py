"""Formatting: decisions, the files, and what a crash in the middle leaves. Kafka's tool is the judge in tests/cli."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.uuid import Uuid
from kraftcore.errors import LocalError, StorageError
from kraftcore.protocol.features import LATEST_PRODUCTION, METADATA_VERSION, MetadataVersion
from kraftcore.protocol.metadata import decode_metadata_record
from kraftcore.storage.bootstrap import read_bootstrap_checkpoint
from kraftcore.storage.format import InitialVoter, format_directory, parse_initial_voters, plan_format
from kraftcore.storage.meta_properties import read_meta_properties
from kraftcore.storage.scram import parse_scram
from kraftcore.storage.snapshot_batches import SnapshotReader
from kraftcore.storage.snapshots import BOOTSTRAP_SNAPSHOT_ID, SnapshotStore

IDS = [Uuid.random(Random(number).randbytes) for number in range(4)]
ALICE = "SCRAM-SHA-256=[name=alice,password=secret]"
VOTERS = (InitialVoter(1, "a.example", 9093, IDS[1]), InitialVoter(2, "::1", 9094, IDS[2]))


def plan(**settings):
    return plan_format(**{"node_id": 1, "cluster_id": "c", "voters": VOTERS, **settings})


def disk() -> SimulatedDisk:
    return SimulatedDisk(Random(1))


def write(files, made, **settings):
    return format_directory(
        files, "/data", made, randbytes=Random(3).randbytes, clock_ms=lambda: 1_700_000_000_000, **settings
    )


def store(files) -> SnapshotStore:
    return SnapshotStore(files, "/data/__cluster_metadata-0")


# --- voters as text ---------------------------------------------------------------------------------------------------

voters = st.builds(
    InitialVoter,
    st.integers(0, 2**31 - 1),
    st.sampled_from(["localhost", "10.0.0.1", "c1.example.com", "::1", "fe80::1%eth0"]),
    st.integers(0, 65535),
    st.sampled_from(IDS),
)


@given(st.lists(voters, min_size=1, max_size=5, unique_by=lambda each: each.node_id))
def test_voters_are_read_as_they_are_written(chosen):
    by_id = tuple(sorted(chosen, key=lambda each: each.node_id))
    assert parse_initial_voters(",".join(map(str, chosen))) == by_id


@given(st.text() | st.text("0123456789@:[],.ab"))
def test_any_text_is_voters_or_refused(text):
    with suppress(LocalError):
        assert parse_initial_voters(text)


# --- decisions --------------------------------------------------------------------------------------------------------


def test_the_latest_stable_release_is_the_default():
    made = plan()
    assert made.metadata_version is LATEST_PRODUCTION
    assert plan(unstable=True).metadata_version is max(MetadataVersion)
    assert made.own_voter == VOTERS[0]
    assert plan(node_id=9).own_voter is None
    assert [each.node_id for each in plan(voters=reversed(VOTERS)).voters] == [1, 2]


def test_records_are_metadata_version_first_then_features_by_name_then_credentials():
    credential = parse_scram(ALICE)
    records = plan(scram=[credential]).records
    names = [record.name for record in records]
    assert names[0] == METADATA_VERSION
    assert names[1:-1] == sorted(names[1:-1])
    assert "kraft.version" not in names
    assert records[-1] is credential
    assert "stored_key" not in repr(plan(scram=[credential]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"node_id": -1}, "must be >= 0"),
        ({"features": {"colour": 1}}, "Unsupported feature: colour"),
        ({"features": {"kraft.version": 9}}, "kraft.version"),
        ({"features": {"kraft.version": 0}}, "Cannot set kraft.version to 0"),
        ({"features": {"kraft.version": 1}, "dynamic": False, "voters": None}, "Cannot set kraft.version to 1"),
        ({"features": {METADATA_VERSION: 1}}, "No MetadataVersion with feature level 1"),
        ({"features": {METADATA_VERSION: 20}, "release": LATEST_PRODUCTION}, "to avoid ambiguity"),
        (
            {"release": MetadataVersion.from_level(10), "scram": [parse_scram("SCRAM-SHA-256=[name=a,password=b]")]},
            "3.5",
        ),
    ],
)
def test_contradictions_are_refused(settings, message):
    with pytest.raises(LocalError, match=message):
        plan(**settings)


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_metadata_directory_gets_the_voters_and_its_own_id():
    files = disk()
    assert write(files, plan()).directory_id == IDS[1]
    assert read_meta_properties(files, "/data").directory_id == IDS[1]
    with SnapshotReader(store(files).open(BOOTSTRAP_SNAPSHOT_ID)) as reader:
        assert reader.kraft_version == 1
        assert [voter.voter_id for voter in reader.voters] == [1, 2]
        assert reader.voters[1].endpoints[0].host == "0:0:0:0:0:0:0:1"  # as Java writes it
    names = [decode_metadata_record(value)[0].name for value in read_bootstrap_checkpoint(files, "/data")]
    assert names == [record.name for record in plan().records]


def test_other_directories_and_static_voters_get_no_checkpoint():
    files = disk()
    used = Uuid.random(Random(3).randbytes)
    other = write(files, plan(), metadata=False, used=[used])
    assert other.directory_id not in {*IDS, used}
    assert not files.exists("/data/__cluster_metadata-0")
    static = disk()
    write(static, plan(voters=None, dynamic=False))
    assert list(store(static).ids) == []


def test_a_formatted_directory_stays_as_it_is():
    files = disk()
    before = write(files, plan())
    with pytest.raises(LocalError, match="already formatted"):
        write(files, plan(cluster_id="other"))
    assert read_meta_properties(files, "/data") == before


@pytest.mark.parametrize("mode", ["lost", "kept", "torn", "mixed"])
def test_a_crash_at_any_moment_leaves_a_directory_that_can_be_formatted(mode):
    reference = disk()
    write(reference, plan())
    total = reference.operations
    assert total > 10
    for moment in range(total):
        files = disk()
        files.inject("any", after=moment)
        with pytest.raises(StorageError):
            write(files, plan())
        survivor = files.crash(mode)
        if read_meta_properties(survivor, "/data") is None:
            write(survivor, plan())
        assert read_meta_properties(survivor, "/data").directory_id == IDS[1]
        assert len(read_bootstrap_checkpoint(survivor, "/data")) == len(plan().records)
        with SnapshotReader(store(survivor).open(BOOTSTRAP_SNAPSHOT_ID)) as reader:
            assert len(reader.voters) == 2
