"""The transition table: every pair of role and cause, and the diagram drawn from it."""

from __future__ import annotations

from itertools import product

import pytest
from project import ROOT
from scenario import Stage

from kraftcore.errors import InvariantError
from kraftcore.raft.roles import TRANSITIONS, Cause, Follower, Role, Unattached, draw_transitions
from kraftcore.simulation.planted import FAULTS as PLANTED

# What the sources say (Kafka 4.3.1 QuorumState, KIP-996), written down independently of the table.
ALLOWED = """
unattached ELECTION_TIMEOUT prospective
unattached NEEDED prospective
follower NEEDED prospective
follower FETCH_TIMEOUT prospective
follower LEADER_UNREACHABLE prospective
prospective PRE_VOTE_WON candidate
prospective PRE_VOTE_LOST follower
prospective PRE_VOTE_LOST unattached
candidate VOTE_WON leader
candidate ELECTION_TIMEOUT prospective
leader QUORUM_LOST resigned
leader STEP_DOWN resigned
resigned ELECTION_TIMEOUT unattached
resigned ELECTION_TIMEOUT prospective
"""


def allowed():
    triples = {tuple(line.split()) for line in ALLOWED.split("\n") if line}
    triples |= {(role.value, "HIGHER_EPOCH", "unattached") for role in Role}
    return triples | {(role.value, "LEADER_FOUND", "follower") for role in Role}


@pytest.mark.parametrize(("role", "cause"), list(product(Role, Cause)), ids=lambda value: value.name.lower())
def test_every_pair(role, cause):
    wanted = {target for source, name, target in allowed() if (source, name) == (role.value, cause.name)}
    assert {target.value for target in TRANSITIONS.get((role, cause), ())} == wanted


def test_what_is_not_in_the_table_is_refused():
    stage = Stage()
    stage.run("add-nodes 3")
    state = stage.nodes[1].replica.state
    assert isinstance(state.role, Unattached)
    before = (state.role, state.epoch)
    with pytest.raises(InvariantError, match="unattached cannot become unattached"):
        state.become(Unattached(None), Cause.ELECTION_TIMEOUT)
    with pytest.raises(InvariantError, match="cannot fall"):
        state.epoch = 5
        state.become(Follower(2, (), 0, 0), Cause.LEADER_FOUND, 4)
    state.epoch = before[1]
    assert state.role is before[0]


def test_every_role_can_be_reached_and_left():
    graph = {role: set() for role in Role}
    for (role, _), targets in TRANSITIONS.items():
        graph[role] |= targets
    reached, todo = set(), [Role.UNATTACHED]
    while todo:
        role = todo.pop()
        if role not in reached:
            reached.add(role)
            todo += graph[role]
    assert reached == set(Role)
    assert all(graph.values())


def test_the_diagram_names_every_move():
    text = draw_transitions()
    assert text.startswith("stateDiagram-v2\n    [*] --> unattached")
    for line in ALLOWED.split("\n"):
        if line:
            source, cause, target = line.split()
            assert f"    {source} --> {target}: {Cause[cause].value}" in text


def test_the_documentation_shows_the_table_as_it_is():
    assert draw_transitions() in (ROOT / "docs" / "consensus.md").read_text()


def test_the_documentation_lists_every_planted_fault():
    text = (ROOT / "docs" / "consensus.md").read_text()
    assert all(f"| `{name}` |" in text for name in PLANTED)
