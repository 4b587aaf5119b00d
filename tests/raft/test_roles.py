"""The transition table: every pair of role and cause, and the diagram drawn from it."""

from __future__ import annotations

import re
from itertools import product

import pytest
from project import ROOT
from scenario import Stage
from scenario_node import Fixed, directory

from kraftcore.errors import InvariantError
from kraftcore.protocol.election_state import ElectionState, ReplicaKey
from kraftcore.raft.replica import Replica
from kraftcore.raft.roles import TRANSITIONS, Cause, EpochRule, Follower, Role, Unattached, draw_transitions
from kraftcore.raft.transitions import become
from kraftcore.simulation.planted import FAULTS as PLANTED

# What the sources say (Kafka 4.3.1 QuorumState, KIP-996), written down independently of the table.
ALLOWED = """
start LED SAME resigned
start VOTED_FOR_ITSELF SAME candidate
start LEADER_SAVED SAME follower
start NO_LEADER_SAVED NOT_LOWER unattached
unattached SOLE_VOTER SAME prospective
resigned SOLE_VOTER SAME prospective
unattached HIGHER_EPOCH HIGHER unattached
follower HIGHER_EPOCH HIGHER unattached
prospective HIGHER_EPOCH HIGHER unattached
candidate HIGHER_EPOCH HIGHER unattached
leader HIGHER_EPOCH HIGHER unattached
resigned HIGHER_EPOCH HIGHER unattached
unattached LEADER_FOUND NOT_LOWER follower
prospective LEADER_FOUND NOT_LOWER follower
candidate LEADER_FOUND NOT_LOWER follower
follower LEADER_FOUND HIGHER follower
leader LEADER_FOUND HIGHER follower
resigned LEADER_FOUND HIGHER follower
unattached ELECTION_TIMEOUT SAME prospective
unattached NEEDED SAME prospective
follower NEEDED SAME prospective
follower FETCH_TIMEOUT SAME prospective
follower LEADER_UNREACHABLE SAME prospective
prospective PRE_VOTE_WON NEXT candidate
prospective PRE_VOTE_LOST SAME follower
prospective PRE_VOTE_LOST SAME unattached
candidate VOTE_WON SAME leader
candidate ELECTION_TIMEOUT SAME prospective
leader QUORUM_LOST SAME resigned
leader STEP_DOWN SAME resigned
resigned ELECTION_TIMEOUT NEXT unattached
"""
ROWS = [line.split() for line in ALLOWED.split("\n") if line]
# The epochs that each rule lets follow epoch 5; None: the one that follows by itself.
EPOCHS = {"SAME": {None, 5}, "NEXT": {None, 6}, "HIGHER": {6, 7}, "NOT_LOWER": {None, 5, 6, 7}}


def name_of(role):
    return "start" if role is None else role.value


@pytest.mark.parametrize(
    ("role", "cause"), list(product((None, *Role), Cause)), ids=lambda value: getattr(value, "name", "start").lower()
)
def test_every_pair(role, cause):
    wanted = {(rule, target) for source, name, rule, target in ROWS if (source, name) == (name_of(role), cause.name)}
    row = TRANSITIONS.get((role, cause))
    found = set() if row is None else {(row.epoch.name, target.value) for target in row.next_roles}
    assert found == wanted
    assert row is None or (row.role, row.cause) == (role, cause)


@pytest.mark.parametrize("rule", EpochRule)
def test_every_rule_of_epochs(rule):
    allowed = set()
    for named in (None, 4, 5, 6, 7):
        try:
            settled = rule.settle(5, named)
        except InvariantError:
            continue
        allowed.add(named)
        assert settled == (named or (6 if rule is EpochRule.NEXT else 5))
    assert allowed == EPOCHS[rule.name]


def test_what_is_not_in_the_table_is_refused():
    stage = Stage()
    stage.run("add-nodes 3")
    state = stage.nodes[1].replica.state
    assert isinstance(state.role, Unattached)
    before = (state.role, state.epoch)
    with pytest.raises(InvariantError, match="unattached cannot become unattached"):
        become(state, Unattached(None), Cause.ELECTION_TIMEOUT)
    with pytest.raises(InvariantError, match="unattached cannot become unattached"):
        become(state, Unattached(None), Cause.NO_LEADER_SAVED)  # it has started already
    state.epoch = 5
    with pytest.raises(InvariantError, match="epoch 5 cannot become 4"):
        become(state, Follower(2, (), 0, 0), Cause.LEADER_FOUND, 4)
    with pytest.raises(InvariantError, match="epoch 5 cannot become 5"):
        become(state, Unattached(None), Cause.HIGHER_EPOCH, 5)
    state.epoch = before[1]
    assert state.role is before[0]


def test_the_first_role_is_in_the_table_too():
    stage = Stage()
    stage.run("add-nodes 3")
    node = stage.nodes[1]
    replica = Replica(node.config, node.log, node.store, Fixed(1))
    with pytest.raises(InvariantError, match="a replica that starts cannot become unattached"):
        become(replica.state, Unattached(None), Cause.HIGHER_EPOCH, 1)
    become(replica.state, Unattached(None), Cause.NO_LEADER_SAVED)


STARTS = {
    "nothing saved": (None, "unattached", 0),
    "led": (ElectionState(3, leader_id=1), "resigned", 3),
    "voted for itself": (ElectionState(3, voted_key=ReplicaKey(1, directory(1))), "candidate", 3),
    "voted for another": (ElectionState(3, voted_key=ReplicaKey(2, directory(2))), "unattached", 3),
    "followed": (ElectionState(3, leader_id=2), "follower", 3),
    "followed a stranger": (ElectionState(3, leader_id=9), "unattached", 3),
    "the log is newer": (ElectionState(2, leader_id=2), "unattached", 4),
    "voted for itself, the log is newer": (ElectionState(2, voted_key=ReplicaKey(1, directory(1))), "unattached", 4),
    "voted for itself, won and wrote": (ElectionState(4, voted_key=ReplicaKey(1, directory(1))), "resigned", 4),
}


@pytest.mark.parametrize(("saved", "role", "epoch"), STARTS.values(), ids=STARTS)
def test_the_first_role_follows_from_what_was_saved(saved, role, epoch):
    stage = Stage()
    stage.run("add-nodes 3 log1=1,4" if epoch == 4 else "add-nodes 3")
    stage.run("crash 1")
    node = stage.nodes[1]
    node.state = saved
    stage.run("restart 1")
    assert (node.replica.role.value, node.replica.epoch) == (role, epoch)


def test_a_higher_epoch_is_entered_in_one_place():
    """No other file of the consensus names the causes that lead to one."""
    naming = re.compile(r"Cause\.(HIGHER_EPOCH|LEADER_FOUND)\b")
    found = {path.name: len(naming.findall(path.read_text())) for path in (ROOT / "kraftcore" / "raft").glob("*.py")}
    assert {name: count for name, count in found.items() if count and name != "roles.py"} == {"epochs.py": 2}


def test_every_role_can_be_reached_and_left():
    graph = {role: set() for role in (None, *Role)}
    for row in TRANSITIONS.values():
        graph[row.role] |= row.next_roles - {row.role}
    reached, todo = set(), [None]
    while todo:
        role = todo.pop()
        if role not in reached:
            reached.add(role)
            todo += graph[role]
    assert reached == {None, *Role}
    assert all(graph.values())


def test_the_diagram_names_every_move():
    lines = draw_transitions().split("\n")
    assert lines[0] == "stateDiagram-v2"
    assert len(lines) == len(ROWS) + 1
    for source, cause, rule, target in ROWS:
        arrow = f"    {'[*]' if source == 'start' else source} --> {target}: {Cause[cause].value}"
        if rule != "SAME" and cause != "HIGHER_EPOCH":
            arrow += f" ({EpochRule[rule].value})"
        assert arrow in lines
    # Mermaid ends a label at either of them.
    assert not [line for line in lines[1:] if set(":;") & set(line.split(": ", 1)[1])]


def test_the_documentation_shows_the_table_as_it_is():
    assert draw_transitions() in (ROOT / "docs" / "consensus.md").read_text()


def test_the_documentation_lists_every_planted_fault():
    text = (ROOT / "docs" / "consensus.md").read_text()
    assert all(f"| `{name}` |" in text for name in PLANTED)
