from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftcore.core.disk.os_files import OsFiles
from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.uuid import Uuid
from kraftcore.errors import CorruptDataError, LocalError, StorageError
from kraftcore.protocol.election_state import ElectionState, ReplicaKey
from kraftcore.storage.quorum_state import QuorumStateFile, decode_election_state, encode_election_state

GOLDEN_FILES = sorted((Path(__file__).resolve().parents[1] / "golden").rglob("quorum-state"))
DIRECTORY = Uuid.from_string("cUuSPfwUqbDWiRVx9TPXVg")

# Written by Kafka 4.3.1 in different situations.
SAMPLES = [
    (
        b'{"leaderId":1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}',
        ElectionState(1, 1, None, 1),
    ),
    (
        b'{"leaderId":3,"leaderEpoch":3,"votedId":3,"votedDirectoryId":"cUuSPfwUqbDWiRVx9TPXVg","data_version":1}',
        ElectionState(3, 3, ReplicaKey(3, DIRECTORY), 1),
    ),
    (
        b'{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,"currentVoters":[],"data_version":0}',
        ElectionState(1, 1),
    ),
    (
        (
            b'{"clusterId":"","leaderId":2,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,'
            b'"currentVoters":[{"voterId":1},{"voterId":2},{"voterId":3}],"data_version":0}'
        ),
        ElectionState(2, 2, voter_ids=(1, 2, 3)),
    ),
]

ids = st.integers(0, (1 << 31) - 1)
keys = st.builds(ReplicaKey, ids, st.builds(Uuid, st.binary(min_size=16, max_size=16)))
voter_ids = st.lists(ids, max_size=7).map(tuple)
epochs, leaders, votes = ids, st.none() | ids, st.none() | keys
states = st.builds(ElectionState, epochs, leaders, votes, st.just(0), voter_ids) | st.builds(
    ElectionState, epochs, leaders, votes, st.just(1)
)


@pytest.mark.parametrize(("text", "state"), SAMPLES)
def test_byte_for_byte_as_kafka(text: bytes, state: ElectionState) -> None:
    assert decode_election_state(text) == state
    assert encode_election_state(state) == text


@pytest.mark.parametrize("path", GOLDEN_FILES, ids=lambda path: "-".join(path.parts[-4:-2]))
def test_a_file_from_kafka_is_rewritten_identically(path: Path) -> None:
    data = path.read_bytes()
    assert encode_election_state(decode_election_state(data)) == data


def test_there_are_golden_files() -> None:
    assert len(GOLDEN_FILES) >= 7


@given(states)
def test_each_version_keeps_what_it_can_hold(state: ElectionState) -> None:
    voted = state.voted_key
    if voted is not None and state.kraft_version == 0:
        voted = ReplicaKey(voted.id)
    assert decode_election_state(encode_election_state(state)) == replace(state, voted_key=voted)


def test_unknown_keys_and_further_lines_are_ignored() -> None:
    text = SAMPLES[1][0].replace(b"{", b'{"future":[1,{"a":null}],') + b"\nanything"
    assert decode_election_state(text) == SAMPLES[1][1]
    assert decode_election_state(SAMPLES[2][0].replace(b"[]", b"null")) == SAMPLES[2][1]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b'"data_version":1', b'"data_version":2', "data_version 2 is unknown"),
        (b'"data_version":1', b'"data_version":-1', "data_version -1 is unknown"),
        (b'"data_version":1', b'"data_version":true', "data_version is True, not a 32-bit integer"),
        (b',"data_version":1', b"", "the key data_version is missing"),
        (b'"leaderEpoch":3,', b"", "the key leaderEpoch is missing"),
        (b'"leaderEpoch":3', b'"leaderEpoch":"3"', "leaderEpoch is '3'"),
        (b'"leaderEpoch":3', b'"leaderEpoch":3.0', "leaderEpoch is 3.0"),
        (b'"leaderEpoch":3', b'"leaderEpoch":2147483648', "not a 32-bit integer"),
        (b'"leaderEpoch":3', b'"leaderEpoch":-1', "epoch -1 is not in 0"),
        (b'"votedId":3', b'"votedId":-2', r"voted_key\.id -2"),
        (b"cUuSPfwUqbDWiRVx9TPXVg", b"nope", "votedDirectoryId: 'nope' is not a uuid"),
        (b'"cUuSPfwUqbDWiRVx9TPXVg"', b"7", "votedDirectoryId is 7, not a string"),
        (b"}", b"", "not a line of JSON"),
        (b"}", b"}x", "not a line of JSON"),
    ],
)
def test_a_bad_file_is_refused_with_the_reason(old: bytes, new: bytes, reason: str) -> None:
    with pytest.raises(CorruptDataError, match=f"^/q: .*{reason}"):
        decode_election_state(SAMPLES[1][0].replace(old, new), path="/q")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "not a line of JSON"),
        (b"[]", "holds a JSON list"),
        (b"\xff", "not a line of JSON"),
        (b"[" * 100_000, "not a line of JSON"),
        (b'{"data_version":' + b"9" * 5000 + b"}", "not a line of JSON"),
        (SAMPLES[3][0].replace(b'"clusterId":"",', b""), "the key clusterId is missing"),
        (SAMPLES[3][0].replace(b"[", b"{").replace(b"]", b"}"), "not a line of JSON"),
        (SAMPLES[3][0].replace(b'{"voterId":2}', b"2"), "currentVoters holds 2"),
        (SAMPLES[2][0].replace(b"[]", b"7"), "currentVoters is 7"),
    ],
)
def test_other_damage(text: bytes, reason: str) -> None:
    with pytest.raises(CorruptDataError, match=reason):
        decode_election_state(text)


@given(st.sampled_from([sample[0] for sample in SAMPLES]), st.integers(0, 200), st.integers(0, 255), st.booleans())
def test_hostile_bytes_raise_only_the_documented_error(text: bytes, at: int, value: int, cut: bool) -> None:
    data = bytearray(text)
    data[at % len(data)] = value
    try:
        state = decode_election_state(bytes(data[:at] if cut else data))
    except CorruptDataError:
        return
    assert state.epoch >= 0


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"epoch": -1}, "epoch -1"),
        ({"epoch": 1 << 31}, "epoch 2147483648"),
        ({"leader_id": -1}, "leader_id -1"),
        ({"voted_key": ReplicaKey(1 << 31)}, "voted_key.id 2147483648"),
        ({"kraft_version": -1}, "kraft_version -1"),
        ({"voter_ids": (1, -1)}, "a voter id -1"),
        ({"kraft_version": 1, "voter_ids": (1,)}, "at kraft.version 0 only"),
    ],
)
def test_numbers_out_of_range_are_refused(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(LocalError, match=reason):
        ElectionState(**arguments)


def test_no_file_means_no_state(tmp_path: Path) -> None:
    assert QuorumStateFile(OsFiles(), str(tmp_path / "quorum-state")).read() is None
    with pytest.raises(StorageError):
        QuorumStateFile(OsFiles(), str(tmp_path)).read()


def test_an_absurdly_large_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "quorum-state"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(CorruptDataError, match="too many"):
        QuorumStateFile(OsFiles(), str(path)).read()


def test_write_replaces_and_leaves_nothing_behind(tmp_path: Path) -> None:
    file = QuorumStateFile(OsFiles(), str(tmp_path / "quorum-state"))
    for _, state in SAMPLES:
        file.write(state)
        assert file.read() == state
    assert [path.name for path in tmp_path.iterdir()] == ["quorum-state"]
    with pytest.raises(LocalError, match=r"kraft\.version 2, only for 0 and 1"):
        file.write(replace(SAMPLES[0][1], kraft_version=2))
    assert file.read() == SAMPLES[-1][1]


@pytest.mark.parametrize("seed", range(12))
def test_a_written_vote_survives_every_crash(seed: int) -> None:
    rng = random.Random(seed)
    disk = SimulatedDisk(rng, record=True)
    disk.make_folder("/q")
    file = QuorumStateFile(disk, "/q/quorum-state")
    written: list[tuple[int, ElectionState | None]] = [(len(disk.trace), None)]
    for epoch in range(1, 6):
        state = ElectionState(epoch, None, ReplicaKey(rng.randrange(3), DIRECTORY), 1)
        file.write(state)
        written.append((len(disk.trace), state))
    for count in range(len(disk.trace) + 1):
        restarted = SimulatedDisk.replay(disk.trace, random.Random(rng.random()), count=count).crash()
        if not restarted.exists("/q"):
            assert count < written[0][0]
            continue
        found = QuorumStateFile(restarted, "/q/quorum-state").read()
        durable = max((index for index, (end, _) in enumerate(written) if end <= count), default=0)
        assert found in [state for _, state in written[durable : durable + 2]]


def test_a_failed_sync_is_an_error_and_keeps_the_old_state() -> None:
    disk = SimulatedDisk(random.Random(3))
    disk.make_folder("/q")
    file = QuorumStateFile(disk, "/q/quorum-state")
    file.write(ElectionState(1, 1))
    disk.inject("sync", path="quorum-state")
    with pytest.raises(StorageError):
        file.write(ElectionState(2, None, ReplicaKey(2, DIRECTORY), 1))
    assert file.read() == ElectionState(1, 1)
    assert QuorumStateFile(disk.crash(), "/q/quorum-state").read() == ElectionState(1, 1)
