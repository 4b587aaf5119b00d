"""Who answers: the nodes that were named, and those that these name, asked side by side to describe their cluster."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import trio

from kraftcore.admin.results import ClusterDescription
from kraftcore.errors import UnreachableError
from kraftcore.ports.transport import Address

_LANE: Final = 1  # connections of their own: an answer that a node still owes must not hold up this one
_RESCUE: Final = (
    'if the disks of a majority are lost for good: kraftcore storage recover-quorum, see "When most voters are lost" '
    "in docs/operating.md"
)


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of asking one node.

    Attributes:
        description: its answer; None: there is none that can be used.
        trouble: why there is none, for people; else empty.
        is_alive: whether the node answered at all.
    """

    description: ClusterDescription | None
    trouble: str
    is_alive: bool


Ask = Callable[[Address], Awaitable[Reply]]
"""Asks one node to describe its cluster."""


@dataclass(frozen=True, slots=True)
class SurveyedNode:
    """One node of a `Survey`.

    Attributes:
        address: ``host:port`` that was asked.
        id: node id; None: no node that answers says which node listens there.
        answers: whether it answered within the survey.
        trouble: why it does not answer, or what is wrong with its answer; empty: nothing.
        unreachable_since_ms: when this client first asked without an answer and has got none since, milliseconds since
            1970; None: it answers.
        leader_id: the active controller that it names; through brokers None.
    """

    address: str
    id: int | None
    answers: bool
    trouble: str
    unreachable_since_ms: int | None
    leader_id: int | None

    def __str__(self) -> str:
        who = self.address if self.id is None else f"node {self.id} ({self.address})"
        if self.unreachable_since_ms is not None:
            since = datetime.fromtimestamp(self.unreachable_since_ms / 1000, UTC).strftime("%H:%M:%S UTC")
            return f"{who} does not answer, since {since} or longer: {self.trouble}"
        return f"{who} answers{': ' if self.trouble else ''}{self.trouble}"


@dataclass(frozen=True, slots=True)
class Survey:
    """Who answered, and what follows from that.

    Attributes:
        through_controllers: whether controllers were asked; False: brokers.
        nodes: all that were asked, by id.
        members: ids of the voters, if ``are_voters``; else of the nodes that those who answer list.
        are_voters: whether ``members`` is the voter set that a leader told this client; nodes that are no leader do not
            tell who votes.
    """

    through_controllers: bool
    nodes: tuple[SurveyedNode, ...]
    members: tuple[int, ...]
    are_voters: bool

    @property
    def answering(self) -> tuple[int, ...]:
        """Ids of the members that answer."""
        alive = {node.id for node in self.nodes if node.answers}
        return tuple(each for each in self.members if each in alive)

    @property
    def majority(self) -> int | None:
        """How many members have to be there for a leader to be elected; None: brokers were asked, or nobody answers."""
        return len(self.members) // 2 + 1 if self.through_controllers and self.members else None

    @property
    def is_hopeless(self) -> bool:
        """Whether nothing can be answered until other nodes come back."""
        if self.majority is not None:
            return len(self.answering) < self.majority
        return not any(node.answers for node in self.nodes)

    @property
    def leaders(self) -> tuple[int, ...]:
        """Ids of the active controllers that those who answer name; one that does not answer itself is among them."""
        return tuple(sorted({node.leader_id for node in self.nodes if node.leader_id is not None}))

    def leads_elsewhere(self, address: str) -> bool:
        """Whether the node at an address does not answer, and one that does answer is named as the leader."""
        is_silent = any(node.address == address and not node.answers for node in self.nodes)
        return is_silent and any(node.answers and node.id in self.leaders for node in self.nodes)

    @property
    def finding(self) -> str:
        """What the cluster lacks, in one sentence."""
        if not any(node.answers for node in self.nodes):
            return "none of the nodes that were asked answers, so nobody says who else there is"
        if not self.members:
            return "who answers is no node that can help here"
        ids, answering = _listed(self.members), self.answering
        kind = "voters" if self.are_voters else "controllers" if self.through_controllers else "brokers"
        who = f"node {answering[0]}" if len(answering) == 1 else f"nodes {_listed(answering)}" if answering else "none"
        there = f"{who} of the {kind} {ids} {'answer' if len(answering) > 1 else 'answers'}"
        if self.majority is None:
            return f"{there}; if the request goes on to a controller, it is the controllers that have not answered"
        if self.is_hopeless:
            return f"{there}; a majority of {self.majority} is needed: no leader can be elected"
        leaders = [each for each in self.leaders if each in answering]
        if leaders:
            return f"{there}, and node {_listed(leaders)} leads"
        return f"{there}, a majority; none of them knows a leader that answers: an election is to be expected"

    @property
    def advice(self) -> str:
        """What to do; empty: nothing."""
        silent = [node for node in self.nodes if not node.answers]
        if not any(node.answers for node in self.nodes):
            return "start one of these nodes (kraftcore server start FILE), or name others"
        if not self.members:
            return "name controllers in --bootstrap-controller, brokers in --bootstrap-server"
        if self.majority is None:
            start = f"start {_some(len(silent), silent)}; " if silent else ""
            return f"{start}ask the controllers: kraftcore quorum --bootstrap-controller HOST:PORT describe --status"
        if not self.is_hopeless:
            return ""
        dead = [node for node in silent if node.id in self.members]
        missing = self.majority - len(self.answering)
        return f"start {_some(missing, dead)} (kraftcore server start FILE), again if it hangs; {_RESCUE}"

    @property
    def lines(self) -> tuple[str, ...]:
        """All of it for people, a line for each node, for the finding, and for the advice."""
        return tuple(filter(None, (*map(str, self.nodes), self.finding, self.advice)))


class SurveyedError(UnreachableError):
    """No node answered in time, and who answers was looked up.

    Attributes:
        survey: who answered.
    """

    def __init__(self, message: str, *, last_failure: str, outcome_unknown: bool, survey: Survey) -> None:
        self.survey = survey
        super().__init__(message, last_failure=last_failure, outcome_unknown=outcome_unknown, findings=survey.lines)


class Surveyor:
    """Takes surveys for one client, and remembers since when nodes have not answered.

    Args:
        named: addresses that the client was given.
        ask: asks one node.
        through_controllers: whether these are controllers.

    Attributes:
        voters: the voter set, as a leader last told it; empty before.
    """

    def __init__(self, named: Iterable[Address], ask: Ask, *, through_controllers: bool) -> None:
        self.voters: frozenset[int] = frozenset()
        self._named = tuple(named)
        self._ask = ask
        self._through_controllers = through_controllers
        self._silent_since_ms: dict[Address, int] = {}

    async def survey(self, known: Mapping[int, Address], patience_s: float) -> Survey:
        """Ask all nodes side by side.

        Args:
            known: where nodes are, by id, as the cluster has told before; asked besides those that were named.
            patience_s: how long to wait for answers in all.
        """
        ids = {address: node_id for node_id, address in known.items()}
        replies: dict[Address, Reply | None] = {}

        async def ask(address: Address) -> None:
            begun_ms = time.time_ns() // 1_000_000
            self._silent_since_ms.setdefault(address, begun_ms)
            reply = replies[address] = await self._ask(address._replace(lane=_LANE))
            if reply.is_alive:
                self._silent_since_ms.pop(address, None)
            if reply.description is not None:
                for node in reply.description.nodes:
                    place = Address(node.host, node.port)
                    ids[place] = node.id
                    begin(place)

        def begin(address: Address) -> None:
            if address not in replies:
                replies[address] = None
                nursery.start_soon(ask, address)

        with trio.move_on_after(patience_s):
            async with trio.open_nursery() as nursery:
                for address in (*self._named, *known.values()):
                    begin(address)
        nodes = [self._node(address, ids.get(address), reply, patience_s) for address, reply in replies.items()]
        listed = sorted(self.voters) if self.voters else sorted(set(ids.values()))
        return Survey(
            self._through_controllers,
            tuple(sorted(nodes, key=lambda node: (-1 if node.id is None else node.id, node.address))),
            tuple(listed),
            bool(self.voters),
        )

    def _node(self, address: Address, node_id: int | None, reply: Reply | None, patience_s: float) -> SurveyedNode:
        if reply is None:
            reply = Reply(None, f"no answer for {patience_s:g} s", is_alive=False)
        # Another survey of the same time may have had an answer.
        since_ms = None if reply.is_alive else self._silent_since_ms.get(address, time.time_ns() // 1_000_000)
        found = reply.description
        leader_id = found.controller_id if found is not None and self._through_controllers else None
        return SurveyedNode(str(address), node_id, reply.is_alive, reply.trouble, since_ms, leader_id)


def _listed(ids: Iterable[int]) -> str:
    return ", ".join(map(str, ids))


def _some(count: int, nodes: Iterable[SurveyedNode]) -> str:
    """So many of the nodes: ``node 2``, ``node 2 or 3``, ``2 of the nodes 2, 3, 4``."""
    names = [node.address if node.id is None else str(node.id) for node in nodes]
    if count == 1:
        return f"node {' or '.join(names)}"
    return f"the nodes {', '.join(names)}" if count == len(names) else f"{count} of the nodes {', '.join(names)}"
