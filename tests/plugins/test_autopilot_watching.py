"""What the autopilot remembers between two looks, and what becomes of refusals."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import trio

from kraftcore.admin import ClusterDescription, NodeAddress, QuorumDescription, ReplicaProgress
from kraftcore.core.uuid import Uuid
from kraftcore.errors import RefusedError, UnreachableError
from kraftcore.plugins.autopilot import Action, Pilot, Policy, Watcher
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.raft.quorum import Endpoint

LEADER_CLOCK = 5_000_000_000


def key(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, Uuid(bytes([1, node_id] * 8)))


class Quorum:
    """Stands for the client: three voters, a controller that watches, a broker; by a leader's clock of its own."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.leader_id = 1
        self.fetched_s: dict[int, float | None] = dict.fromkeys((1, 2, 3, 4, 10), 0.0)
        self.silent: set[int] = set()
        self.changes: list[tuple[Any, ...]] = []
        self.refusal: RefusedError | None = None

    def _seen(self, node_id: int) -> ReplicaProgress:
        age_s = self.fetched_s[node_id]
        present = LEADER_CLOCK + int(self.now_s * 1000)
        then = None if age_s is None else present - int(age_s * 1000)
        return ReplicaProgress(key(node_id), 50 if then else -1, then, then)

    async def describe_quorum(self) -> QuorumDescription:
        voters = tuple(self._seen(node_id) for node_id in (1, 2, 3))
        endpoints = {node_id: (Endpoint("RAFT", f"c{node_id}", 9093),) for node_id in (1, 2, 3)}
        return QuorumDescription(self.leader_id, 7, 50, voters, (self._seen(4), self._seen(10)), endpoints)

    async def describe_cluster_from(self, address: str) -> ClusterDescription:
        node_id = int(address.removeprefix("c").partition(":")[0])
        if node_id in self.silent:
            raise UnreachableError("no", last_failure="nobody", outcome_unknown=False)
        listed = (1, 2, 3, 4) if node_id == 4 else (1, 2, 3)
        return ClusterDescription("it", self.leader_id, tuple(NodeAddress(n, f"c{n}", 9093) for n in listed))

    async def remove_voter(self, *change: Any, cluster_id: str) -> None:
        assert cluster_id == "it"
        self.changes.append(change)
        if self.refusal is not None:
            raise self.refusal


def watcher_of(quorum: Quorum, controllers: Iterable[str] = ("c1:9093", "c4:9093")) -> Watcher:
    return Watcher(quorum, controllers, lambda: quorum.now_s)  # type: ignore[arg-type]


def test_times_are_on_our_clock_and_endpoints_are_found():
    async def main():
        quorum = Quorum()
        quorum.fetched_s[3] = 7.0
        quorum.silent = {3}
        watcher = watcher_of(quorum)
        state = await watcher.look()
        assert [voter.last_fetch_ms for voter in state.voters] == [100_000, 100_000, 93_000]
        assert [voter.answers for voter in state.voters] == [True, True, False]
        observer, broker = state.observers
        assert observer.endpoints == (Endpoint("RAFT", "c4", 9093),)
        assert broker.endpoints == ()
        assert watcher.cluster_id == "it"

    trio.run(main)


def test_a_standby_that_is_in_no_list_has_to_be_named():
    async def main():
        state = await watcher_of(Quorum(), ["c1:9093"]).look()
        assert state.observers[0].endpoints == ()

    trio.run(main)


def test_silence_is_remembered_through_changes_of_leader():
    """A new leader has never heard of a voter that is dead: the time before counts all the same."""

    async def main():
        quorum = Quorum()
        watcher = watcher_of(quorum)
        quorum.fetched_s[3] = 50.0
        await watcher.look()
        quorum.leader_id, quorum.fetched_s[3] = 2, None
        quorum.now_s += 20
        state = await watcher.look()
        assert state.voters[2].last_fetch_ms == 50_000

        fresh = watcher_of(quorum)  # this one has not seen it: its threshold begins now
        assert (await fresh.look()).voters[2].last_fetch_ms == 120_000
        quorum.now_s += 30
        assert (await fresh.look()).voters[2].last_fetch_ms == 120_000

    trio.run(main)


def test_a_pilot_acts_only_when_told_to_and_survives_refusals():
    async def main():
        quorum = Quorum()
        quorum.silent = {3}
        quorum.fetched_s[3] = 61.0
        policy = Policy()
        only_looks = Pilot(quorum, watcher_of(quorum), policy)  # type: ignore[arg-type]
        found = await only_looks.step()
        assert (found.decisions[0].action, found.applied, quorum.changes) == (Action.REMOVE, None, [])
        pilot = Pilot(quorum, watcher_of(quorum), policy, apply=True)  # type: ignore[arg-type]
        quorum.refusal = RefusedError("REQUEST_TIMED_OUT", "another change")
        found = await pilot.step()
        assert (found.applied, found.error) == (False, "REQUEST_TIMED_OUT: another change")
        quorum.refusal = None
        found = await pilot.step()
        assert (found.applied, found.error) == (True, "")
        assert quorum.changes[-1] == (3, key(3).directory_id)

    trio.run(main)


def test_a_quorum_without_a_leader_is_said_and_nothing_is_done():
    async def main():
        quorum = Quorum()

        async def nobody() -> QuorumDescription:
            raise UnreachableError("nobody leads", last_failure="c1: no leader", outcome_unknown=False)

        quorum.describe_quorum = nobody  # type: ignore[method-assign]
        found = await Pilot(quorum, watcher_of(quorum), Policy(), apply=True).step()  # type: ignore[arg-type]
        assert (found.state, found.decisions, found.applied) == (None, (), None)
        assert "nobody leads; c1: no leader" in found.error

    trio.run(main)
