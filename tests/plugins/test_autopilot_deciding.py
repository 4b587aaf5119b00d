"""The autopilot's decisions: what it must never propose, and what it must do about each failure."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kraftcore.core.uuid import Uuid
from kraftcore.plugins.autopilot import Action, Decision, Policy, Replica, State, decide
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.raft.quorum import Endpoint

NOW = 1_000_000
POLICY = Policy(dead_after_ms=60_000)


def key(node_id: int, directory: int = 0) -> ReplicaKey:
    return ReplicaKey(node_id, Uuid(bytes([1, directory, *[node_id] * 14])))


def at(node_id: int) -> tuple[Endpoint, ...]:
    return (Endpoint("CONTROLLER", f"c{node_id}", 9093),)


def replica(node_id: int, silent_s: float = 0, directory: int = 0, behind_s: float | None = 0, **more) -> Replica:
    caught_up_ms = None if behind_s is None else NOW - int(behind_s * 1000)
    fetched_ms = NOW - int(silent_s * 1000)
    return Replica(key(node_id, directory), fetched_ms, caught_up_ms, **{"endpoints": at(node_id), **more})


def changes(*voters: Replica, observers: tuple[Replica, ...] = (), policy: Policy = POLICY) -> list[Decision]:
    return decide(State(1, True, voters, observers), NOW, policy)


def only(decisions: list[Decision]) -> tuple[Action, ReplicaKey | None]:
    (found,) = decisions
    return found.action, found.key


def test_nothing_is_done_where_all_is_well():
    assert changes(replica(1), replica(2), replica(3), observers=(replica(4), replica(10, endpoints=()))) == []


def test_a_dead_voter_is_removed_after_the_threshold_and_not_before():
    assert changes(replica(1), replica(2), replica(3, 59)) == []
    assert only(changes(replica(1), replica(2), replica(3, 61))) == (Action.REMOVE, key(3))


def test_a_dead_voter_stays_where_the_majority_would_be_lost():
    (held,) = changes(replica(1), replica(2, 30), replica(3, 61))
    assert (held.action, held.key) == (Action.HOLD, key(3))
    assert "of the 2 left 1 are alive, 2 have to be" in held.reason


def test_a_dead_voter_stays_where_too_few_would_be_left_unless_another_is_ready():
    policy = Policy(min_voters=3)
    dead = (replica(1), replica(2), replica(3, 61))
    assert only(changes(*dead, policy=policy))[0] is Action.HOLD
    assert only(changes(*dead, observers=(replica(4),), policy=policy)) == (Action.REMOVE, key(3))


def test_a_silent_voter_that_answers_is_not_dead():
    (held,) = changes(replica(1), replica(2), replica(3, 61, answers=True))
    assert (held.action, held.key) == (Action.HOLD, key(3))
    assert "answers" in held.reason


def test_a_missing_voter_is_added_when_one_is_ready():
    (added,) = changes(replica(1), replica(2), observers=(replica(5), replica(4)))
    assert (added.action, added.key, added.endpoints) == (Action.ADD, key(4), at(4))


def test_who_is_not_ready_is_not_added():
    for observer in (
        replica(4, silent_s=6),
        replica(4, behind_s=6),
        replica(4, behind_s=None),
        replica(4, endpoints=()),
        Replica(ReplicaKey(4), NOW, NOW, endpoints=at(4)),
    ):
        assert {each.action for each in changes(replica(1), replica(2), observers=(observer,))} == {Action.HOLD}
    chosen = Policy(candidates=frozenset({5}))
    held, total = changes(replica(1), replica(2), observers=(replica(4),), policy=chosen)
    assert (held.action, held.key, held.reason) == (
        Action.HOLD,
        key(4),
        "it may not join: it is not among the candidates",
    )
    assert (total.key, total.reason) == (None, "2 of 3 voters, and no controller is ready to join")


def test_a_replaced_disk_goes_first_and_its_node_joins_again():
    old, new = replica(3, 10), replica(3, directory=1)
    decided = changes(replica(1), replica(2), old, observers=(new,))
    assert only(decided) == (Action.REMOVE, key(3))
    assert only(changes(replica(1), replica(2), observers=(new,))) == (Action.ADD, key(3, 1))


def test_a_replaced_disk_waits_until_it_has_caught_up_and_the_old_one_is_silent():
    late = replica(3, directory=1, behind_s=None)
    assert changes(replica(1), replica(2), replica(3, 10), observers=(late,)) == []
    (held,) = changes(replica(1), replica(2), replica(3), observers=(replica(3, directory=1),))
    assert (held.action, held.key) == (Action.HOLD, key(3))
    assert "two nodes" in held.reason


def test_voters_beyond_the_wanted_number_go_one_by_one_and_never_the_leader():
    five = [replica(n, lag=9 if n == 2 else 0) for n in range(1, 6)]
    assert only(changes(*five)) == (Action.REMOVE, key(2))
    assert only(changes(*(each for each in five if each.key.id != 2))) == (Action.REMOVE, key(5))
    assert only(changes(replica(1), replica(2), policy=Policy(voters=1))) == (Action.REMOVE, key(2))


def test_nothing_is_changed_before_the_leader_is_settled_or_at_kraft_version_0():
    voters = (replica(1), replica(2), replica(3, 61))
    (held,) = decide(State(1, False, voters), NOW, POLICY)
    assert held.action is Action.HOLD
    nameless = tuple(Replica(ReplicaKey(each.key.id), each.last_fetch_ms) for each in voters)
    (held,) = decide(State(1, True, nameless), NOW, POLICY)
    assert "kraft.version" in held.reason


SILENCE = st.sampled_from([0, 1, 4, 6, 30, 59, 61, 500])


@st.composite
def quorums(draw: st.DrawFn) -> State:
    count = draw(st.integers(1, 7))
    voters = tuple(
        replica(
            number,
            draw(SILENCE),
            behind_s=draw(SILENCE),
            lag=draw(st.integers(0, 100)),
            answers=draw(st.booleans()),
        )
        for number in range(1, count + 1)
    )
    observers = tuple(
        replica(
            draw(st.integers(1, 9)),
            draw(SILENCE),
            directory=draw(st.integers(0, 2)),
            behind_s=draw(st.none() | SILENCE),
            endpoints=draw(st.sampled_from([(), at(9)])),
        )
        for _ in range(draw(st.integers(0, 4)))
    )
    taken = {voter.key for voter in voters}
    others = {each.key: each for each in observers if each.key not in taken}  # a leader knows each replica key once
    return State(draw(st.integers(1, count)), True, voters, tuple(others.values()))


policies = st.builds(
    Policy,
    voters=st.integers(1, 7),
    min_voters=st.integers(1, 5),
    candidates=st.none() | st.frozensets(st.integers(1, 9)),
)


def alive(state: State, policy: Policy, replicas) -> set[ReplicaKey]:
    """An independent count of who is there: the leader, and who fetched a moment ago."""
    fresh = {each.key for each in replicas if NOW - each.last_fetch_ms <= policy.alive_within_ms}
    return fresh | {each.key for each in state.voters if each.key.id == state.leader_id and each in replicas}


@given(quorums(), policies)
def test_no_proposal_can_lose_the_majority(state, policy):
    decided = decide(state, NOW, policy)
    proposed = [each for each in decided if each.action is not Action.HOLD]
    assert len(proposed) <= 1
    assert decided[: len(proposed)] == proposed
    for decision in proposed:
        if decision.action is Action.ADD:
            (new,) = (each for each in state.observers if each.key == decision.key)
            after = (*state.voters, new)
            assert new.key.id not in {voter.key.id for voter in state.voters}
            assert new.endpoints
            assert len(after) <= policy.voters
        else:
            after = tuple(each for each in state.voters if each.key != decision.key)
            assert len(after) == len(state.voters) - 1
            assert decision.key.id != state.leader_id
        assert 2 * len(alive(state, policy, after)) > len(after)


@given(quorums(), policies)
def test_nobody_who_may_be_alive_is_removed_as_dead(state, policy):
    for decision in decide(state, NOW, policy):
        if decision.action is Action.REMOVE and len(state.voters) <= policy.voters:
            (gone,) = (voter for voter in state.voters if voter.key == decision.key)
            replaced = any(
                each.key.id == gone.key.id and NOW - each.last_fetch_ms <= policy.alive_within_ms
                for each in state.observers
            )
            silent_ms = NOW - gone.last_fetch_ms
            assert silent_ms > (policy.alive_within_ms if replaced else policy.dead_after_ms)


@given(quorums(), policies)
def test_following_the_decisions_ends(state, policy):
    """Each change is one step to the wanted set: nothing that was removed comes back, nothing is done twice."""
    voters, observers = list(state.voters), list(state.observers)
    done = set()
    for _ in range(20):
        found = decide(State(state.leader_id, True, tuple(voters), tuple(observers)), NOW, policy)
        change = next((each for each in found if each.action is not Action.HOLD), None)
        if change is None:
            return
        assert (change.action, change.key) not in done
        done.add((change.action, change.key))
        if change.action is Action.ADD:
            moved = next(each for each in observers if each.key == change.key)
            observers.remove(moved)
            voters.append(moved)
        else:
            voters = [each for each in voters if each.key != change.key]
    raise AssertionError("it never ends")
