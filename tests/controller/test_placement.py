"""Striped, rack-aware placement, and topic names."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftcore.plugins.controller.decision import Refusal
from kraftcore.plugins.controller.placement import UsableBroker, place
from kraftcore.plugins.controller.topic_names import what_is_wrong
from kraftcore.protocol.error_codes import ErrorCode


class First:
    """No randomness: begin at the front, leave the order."""

    def randrange(self, stop):
        return 0

    def shuffle(self, values):
        pass

    def randbytes(self, count):
        return bytes(count)


def cluster(*racks: tuple[str | None, str]) -> list[UsableBroker]:
    """Brokers numbered from 0: a rack and one letter a broker, ``u`` unfenced, ``f`` fenced."""
    every = [(rack, state == "f") for rack, states in racks for state in states]
    return [UsableBroker(number, rack, is_fenced) for number, (rack, is_fenced) in enumerate(every)]


def test_racks_and_brokers_take_turns():
    """The example in Kafka's own description: racks A, B, C of three brokers each."""
    brokers = cluster(("a", "uuu"), ("b", "uuu"), ("c", "uuu"))
    assert place(brokers, 3, 3, First()) == [(0, 3, 6), (4, 7, 1), (8, 2, 5)]


def test_more_replicas_than_racks():
    brokers = cluster(("a", "uu"), ("b", "uu"))
    assert place(brokers, 2, 3, First()) == [(0, 2, 1), (3, 1, 2)]


def test_fenced_brokers_come_last_and_never_lead():
    brokers = cluster((None, "fuf"))
    for replicas in place(brokers, 5, 3, random.Random(1)):
        assert replicas[0] == 1
        assert sorted(replicas) == [0, 1, 2]
    assert place(brokers, 1, 1, First()) == [(1,)]


def test_a_rack_of_fenced_brokers_lends_a_follower():
    brokers = cluster(("a", "f"), ("b", "u"))
    assert place(brokers, 2, 2, First()) == [(1, 0), (1, 0)]


@pytest.mark.parametrize(
    ("brokers", "factor", "why"),
    [
        (cluster((None, "u")), 0, "Invalid replication factor 0: the replication factor must be positive."),
        (cluster((None, "ff")), 1, "All brokers are currently fenced, or have all their log directories cordoned."),
        ([], 1, "All brokers are currently fenced, or have all their log directories cordoned."),
        (
            cluster((None, "uf")),
            3,
            "The target replication factor of 3 cannot be reached because only 2 broker(s) are registered or some "
            "brokers have all their log directories cordoned.",
        ),
    ],
)
def test_what_cannot_be_placed(brokers, factor, why):
    with pytest.raises(Refusal) as refused:
        place(brokers, 1, factor, First())
    assert (refused.value.code, refused.value.text) == (ErrorCode.INVALID_REPLICATION_FACTOR, why)


@given(
    st.lists(st.tuples(st.sampled_from([None, "a", "b", "c"]), st.booleans()), min_size=1, max_size=12),
    st.integers(0, 40),
    st.integers(0, 2**32),
    st.data(),
)
def test_every_placement_is_sound(states, partitions, seed, data):
    brokers = [UsableBroker(number, *state) for number, state in enumerate(states)]
    fenced = {broker.id for broker in brokers if broker.is_fenced}
    factor = data.draw(st.integers(1, len(brokers)))
    if len(fenced) == len(brokers):
        return
    placed = place(brokers, partitions, factor, random.Random(seed))
    assert placed == place(brokers, partitions, factor, random.Random(seed))
    assert len(placed) == partitions
    rack_of = {broker.id: broker.rack for broker in brokers}
    sizes = Counter(rack_of.values())
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        assert replicas[0] not in fenced
        used = Counter(rack_of[replica] for replica in replicas)
        if factor >= len(sizes):
            assert len(used) == len(sizes)  # every rack has one before any has two


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 2**32))
def test_equal_racks_share_leaders_and_replicas_evenly(racks, per_rack, seed):
    """One round of as many partitions as there are brokers."""
    brokers = cluster(*((name, "u" * per_rack) for name in "abcd"[:racks]))
    total = racks * per_rack
    placed = place(brokers, racks * total, racks, random.Random(seed))[:total]
    by_rack = Counter(brokers[replicas[0]].rack for replicas in placed)
    assert max(by_rack.values()) - min(by_rack.values()) <= 1
    assert all(len({brokers[replica].rack for replica in replicas}) == racks for replicas in placed)


BAD = "contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("a b", f"'a b' {BAD}"),
        ("ä", f"'ä' {BAD}"),
        ("a\n", f"'a\n' {BAD}"),
        ("t" * 250, f"the length of '{'t' * 250}' is longer than the max allowed length 249"),
        ("\U0001f600" * 125, f"the length of '{chr(0x1F600) * 125}' is longer than the max allowed length 249"),
    ],
)
def test_illegal_names(name, why):
    assert what_is_wrong(name) == f"Topic name is invalid: {why}"


@pytest.mark.parametrize("name", ["a", "...", "t" * 249, "A.b_c-9", "__consumer_offsets"])
def test_legal_names(name):
    assert what_is_wrong(name) is None
