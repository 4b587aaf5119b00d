"""Who should lead next: the order of heirs, and that one file decides it."""

from __future__ import annotations

import re

import pytest
from project import ROOT
from scenario import Stage

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.raft.quorum import Voter, VoterSet
from kraftcore.raft.succession import end_epoch_backoff, preferred_candidates


def test_preferred_candidates_are_the_most_caught_up():
    voters = VoterSet(tuple(Voter(ReplicaKey(n)) for n in range(1, 5)))
    order = preferred_candidates(voters, 1, {2: 5, 3: None, 4: 9})
    assert [key.id for key in order] == [4, 2, 3]


@pytest.mark.parametrize(("position", "wanted"), [(0, 0), (1, 250), (2, 500), (None, 1000)])
def test_the_further_behind_in_the_list_the_longer_the_wait(position, wanted):
    preferred = [ReplicaKey(number, Uuid(bytes([number] * 16))) for number in (1, 2, 3)]
    own = ReplicaKey(9, Uuid()) if position is None else preferred[position]
    assert end_epoch_backoff(preferred, own, 1000) == wanted


def test_the_heir_is_the_most_caught_up_voter_that_fetches():
    stage = Stage()
    for command in ("add-nodes 3", "campaign 1", "stabilize"):
        stage.run(command)
    leader = stage.nodes[1].replica
    assert leader.preferred_successor == 2
    assert stage.nodes[2].replica.preferred_successor is None
    for command in ("isolate 2", "append 1 a", "stabilize"):
        stage.run(command)
    assert leader.preferred_successor == 3


def test_a_leader_to_whom_nobody_fetches_has_no_heir():
    stage = Stage()
    for command in ("add-nodes 3", "campaign 1"):
        stage.run(command)
    while stage.nodes[1].replica.role.value != "leader":
        stage.run("deliver n=1")
    assert stage.nodes[1].replica.preferred_successor is None


def test_only_one_file_decides_it():
    """Whoever makes a leader resign or hand over, or ranks heirs, does it in ``succession``."""
    deciding = re.compile(r"\b(?<!class )(Resigned|PendingTransfer|preferred_candidates|end_epoch_backoff)\(")
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in ("kraftcore", "plugins", "transports")
        for path in (ROOT / folder).rglob("*.py")
        if deciding.search(path.read_text())
    }
    assert found == {"kraftcore/raft/succession.py"}
