"""Asks a quorum who is there, and remembers who was last seen when.

Everything is found through the quorum. Its leader lists voters and observers with their directory ids (DescribeQuorum,
KIP-836, KIP-853); controllers say where controllers listen (DescribeCluster, KIP-919): Kafka's all of those that have
registered in the metadata log, ours the voters and themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import trio

from kraftcore.admin import AdminClient, ClusterDescription, QuorumDescription, ReplicaProgress
from kraftcore.config.addresses import parse_address
from kraftcore.errors import KraftError
from kraftcore.plugins.autopilot.model import Replica, State
from kraftcore.ports.transport import Address
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.raft.quorum import Endpoint

PATIENCE_S = 2  # with one node
Place = tuple[str, int]


class Watcher:
    """Looks at one quorum, again and again: what it saw before counts where a new leader knows nothing yet.

    Args:
        client: connected to the quorum's controllers.
        controllers: ``host:port`` of controllers, also of such as are to stand by; each is asked by itself.
        clock: seconds that never fall; None: trio's.

    Attributes:
        cluster_id: None before the first look.
    """

    def __init__(
        self,
        client: AdminClient,
        controllers: Iterable[str],
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._client = client
        self._given = [parse_address(each) for each in controllers]
        self._clock = clock or trio.current_time
        self._seen_ms: dict[ReplicaKey, int] = {}
        self.cluster_id: str | None = None

    def now_ms(self) -> int:
        """The clock that times in a `State` are on."""
        return int(self._clock() * 1000)

    async def look(self) -> State:
        """The quorum now.

        Raises:
            KraftError: what ``AdminClient.describe_quorum`` raises.
        """
        quorum = await self._client.describe_quorum()
        now_ms = self.now_ms()
        voters = {place_of(at) for endpoints in quorum.endpoints.values() for at in endpoints}
        places = {(at.host, at.port) for at in self._given} | voters
        answers = await self._ask_all(places)
        listed = {(node.host, node.port) for found in answers.values() for node in found.nodes}
        answers |= await self._ask_all(listed - places)
        for found in answers.values():
            self.cluster_id = self.cluster_id or found.cluster_id
        endpoints = _endpoints(quorum, answers.values())
        times = _times(quorum, now_ms)
        self._remember(quorum, times, now_ms)

        def replica(seen: ReplicaProgress) -> Replica:
            at = quorum.endpoints.get(seen.key.id) if seen in quorum.voters else None
            at = at or endpoints.get(seen.key.id, ())
            return Replica(
                seen.key,
                self._seen_ms[seen.key],
                times(seen.last_caught_up_ms),
                max(quorum.lag(seen), 0),
                at,
                any(place_of(each) in answers for each in at),
            )

        return State(
            quorum.leader_id,
            quorum.high_watermark >= 0,
            tuple(map(replica, quorum.voters)),
            tuple(map(replica, quorum.observers)),
        )

    async def _ask_all(self, places: Iterable[Place]) -> dict[Place, ClusterDescription]:
        found: dict[Place, ClusterDescription] = {}

        async def ask(place: Place) -> None:
            with trio.move_on_after(PATIENCE_S), suppress(KraftError):  # no answer: that is what there is to know
                found[place] = await self._client.describe_cluster_from(str(Address(*place)))

        async with trio.open_nursery() as nursery:
            for place in places:
                nursery.start_soon(ask, place)
        return found

    def _remember(self, quorum: QuorumDescription, times: Any, now_ms: int) -> None:
        seen_ms = {}
        for seen in (*quorum.voters, *quorum.observers):
            before = self._seen_ms.get(seen.key)
            told = now_ms if seen.key.id == quorum.leader_id and seen in quorum.voters else times(seen.last_fetch_ms)
            known = [at for at in (before, told) if at is not None]
            seen_ms[seen.key] = max(known, default=now_ms)  # the threshold begins to run
        self._seen_ms = seen_ms


def place_of(endpoint: Endpoint) -> Place:
    """Where an endpoint is."""
    return endpoint.host, endpoint.port


def _times(quorum: QuorumDescription, now_ms: int) -> Callable[[int | None], int | None]:
    # The leader's times are by its clock, and its own last fetch is its present.
    leader = quorum.leader
    fetches = [seen.last_fetch_ms for seen in (*quorum.voters, *quorum.observers) if seen.last_fetch_ms is not None]
    present = leader.last_fetch_ms if leader is not None and leader.last_fetch_ms is not None else None
    leader_now_ms = max(fetches, default=0) if present is None else present

    def here(time_ms: int | None) -> int | None:
        return None if time_ms is None else now_ms - max(leader_now_ms - time_ms, 0)

    return here


def _endpoints(quorum: QuorumDescription, answers: Iterable[ClusterDescription]) -> dict[int, tuple[Endpoint, ...]]:
    """Where controllers listen. Answers give no listener names; the voters' endpoints, which have them, say which
    listener the answers are about."""
    nodes = {node.id: (node.host, node.port) for found in answers for node in found.nodes}
    named = {place_of(at): at.name for endpoints in quorum.endpoints.values() for at in endpoints}
    leader = quorum.endpoints.get(quorum.leader_id, ())
    names = [named[place] for place in nodes.values() if place in named]
    names += [at.name for at in leader]
    if not names:
        return {}
    return {node_id: (Endpoint(names[0], *place),) for node_id, place in nodes.items()}
