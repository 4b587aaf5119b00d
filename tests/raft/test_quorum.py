"""Voter sets and majorities, held against naive twins."""

from __future__ import annotations

import pickle
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftcore.core.uuid import Uuid
from kraftcore.errors import LocalError
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.raft.quorum import (
    Endpoint,
    Tally,
    Voter,
    VoterSet,
    majority,
)

keys = st.builds(ReplicaKey, st.integers(0, 6), st.sampled_from([Uuid(), *(Uuid(bytes([n] * 16)) for n in (7, 8))]))
voter_sets = st.lists(keys, min_size=1, max_size=7, unique_by=lambda key: key.id).map(
    lambda found: VoterSet(tuple(Voter(key) for key in found))
)


@given(st.integers(0, 50))
def test_majority_is_the_smallest_number_of_which_two_always_meet(count):
    assert 2 * majority(count) > count
    assert count == 0 or 2 * (majority(count) - 1) <= count


def all_majorities(voters):
    return [set(chosen) for chosen in combinations(voters.keys, voters.majority)]


@given(voter_sets, keys)
def test_majorities_of_sets_one_voter_apart_overlap(voters, key):
    """Why one change may be in flight: Ongaro's dissertation, 4.1."""
    if key.id not in voters.ids:
        after = voters.with_voter(Voter(key))
        assert set(voters.keys) ^ set(after.keys) == {key}
        assert all(a & b for a in all_majorities(voters) for b in all_majorities(after))
        assert after.without(key) == voters
    else:
        with pytest.raises(LocalError, match="share an id"):
            voters.with_voter(Voter(key))


@given(voter_sets, keys)
def test_a_voter_is_known_by_id_and_directory(voters, key):
    entry = voters.get(key.id)
    naive = entry is not None and (not entry.key.has_directory or entry.key.directory_id == key.directory_id)
    assert voters.is_voter(key) == naive
    assert voters.is_only_voter(key) == (naive and len(voters) == 1)


@given(voter_sets, st.lists(st.tuples(st.integers(0, 8), st.booleans()), max_size=12))
def test_tally_counts_the_last_answer_of_each_voter(voters, answers):
    tally = Tally(voters)
    last = {}
    for voter_id, granted in answers:
        assert tally.record(voter_id, granted) == (voter_id in voters.ids)
        if voter_id in voters.ids:
            last[voter_id] = granted
    granted = sum(last.values())
    assert tally.won == (2 * granted > len(voters))
    assert tally.lost == (2 * (granted + len(voters) - len(last)) <= len(voters))
    assert tally.unanswered == sorted(voters.ids - last.keys())


def test_the_last_voter_and_other_directories_cannot_be_removed():
    one = VoterSet((Voter(ReplicaKey(1, Uuid(bytes([1] * 16)))),))
    with pytest.raises(LocalError, match="cannot remove"):
        one.without(one.keys[0])
    with pytest.raises(LocalError, match="cannot remove"):
        one.with_voter(Voter(ReplicaKey(2))).without(ReplicaKey(1))
    with pytest.raises(LocalError, match="cannot update"):
        one.with_updated(Voter(ReplicaKey(1, Uuid(bytes([2] * 16)))))


@given(voter_sets)
def test_a_voter_set_can_be_pickled(voters):
    again = pickle.loads(pickle.dumps(voters))
    assert again == voters
    assert again.ids == voters.ids


def test_words_for_people():
    assert str(Endpoint("CONTROLLER", "::1", 9093)) == "CONTROLLER://[::1]:9093"
    assert str(Endpoint("", "127.0.0.1", 9093)) == "127.0.0.1:9093"
    assert str(ReplicaKey(3)) == "ReplicaKey(id=3, directoryId=<undefined>)"
