"""The engine of an attached process: every append is the leader's to make, and those of a moment go there together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import trio

from kraftcore.config import NodeConfig
from kraftcore.errors import KraftError
from kraftcore.executor.executor import size_of
from kraftcore.executor.proposals import AppendedMany, Group, Proposal, ProposalQueue
from kraftcore.node.engine import Engine
from kraftcore.node.forwarding import Forwarder, ForwardingNode
from kraftcore.node.home import Home
from kraftcore.node.waiting import TaskProposal, WaitingRoom
from kraftcore.ports.transport import Transport
from kraftcore.state_machine import StateMachine


class AttachedEngine(Engine):
    """Runs an observer without a name, whose callers append as with ``forward=True``.

    Args:
        config, home, machine, transport, nursery, end: as for `Engine`.
        directory: of the node that it is attached to, for people.
    """

    forwarder: Gatherer

    def __init__(
        self,
        config: NodeConfig,
        home: Home,
        machine: StateMachine,
        transport: Transport,
        nursery: trio.Nursery,
        end: Callable[[], object],
        directory: str,
    ) -> None:
        super().__init__(config, home, ((), ()), machine, transport, (), nursery, end)
        self.label = self._announcer.label = f"attached to {directory}"
        self.queue = ProposalQueue(config.max_batch_bytes, config.max_bytes_in_flight)
        self.room = WaitingRoom(self.queue)
        self.forwarder = Gatherer(self, config, self.queue, self.room)

    def submit(self, proposal: Proposal) -> None:
        """See the base class."""
        self.check_running()
        self.forwarder.submit(proposal)


class Gatherer(Forwarder):
    """Forwards what callers append meanwhile in one batch, in the order of their calls; one batch is on its way.

    Args:
        node: as for `Forwarder`.
        config: likewise.
        queue: of the proposals.
        room: for callers that wait until the queue is not full.
    """

    def __init__(self, node: ForwardingNode, config: NodeConfig, queue: ProposalQueue, room: WaitingRoom) -> None:
        super().__init__(node, config)
        self._queue = queue
        self._room = room
        self._is_running = False

    async def append(self, values: list[bytes], client: tuple[int, int] | None) -> AppendedMany:
        """See the base class."""
        if client is not None:  # a client has one proposal in flight: there is nothing to gather
            return await super().append(values, client)
        self._node.check_running()
        if self._queue.is_full:
            await self._room.wait()
        proposal: TaskProposal[AppendedMany] = TaskProposal(values, size_of(values), True)
        self.submit(proposal)
        return await proposal.wait()

    def submit(self, proposal: Proposal) -> None:
        """Take a proposal in.

        Raises:
            OverloadedError, LocalError: see ``ProposalQueue.add``.
        """
        self._queue.add(proposal)
        if not self._is_running:
            self._is_running = True
            self._node.spawn(self._run)

    async def _run(self) -> None:
        try:
            while (group := self._queue.next_group()) is not None:
                await self._forward(group)
        finally:
            self._is_running = False
            if self._queue.pending:  # the node ends, and this task was cancelled
                self._queue.end(self._node.stopped_error)

    async def _forward(self, group: Group) -> None:
        queue, first = self._queue, group.proposals[0]
        client = None if first.producer_id < 0 else (first.producer_id, first.sequence)
        try:
            found = await super().append(_values_of(group.proposals), client)
        except KraftError as error:
            refusal = error
            queue.refused(group, lambda: refusal)
        except BaseException:
            queue.refused(group, self._node.stopped_error)
            raise
        else:
            queue.appended(group, found.offset, 0)
            queue.settle(found.offset, 0)
            queue.release(group)
            group.succeed(found.results, found.offset)


def _values_of(proposals: Sequence[Proposal]) -> list[bytes]:
    values: list[Any] = []
    for proposal in proposals:
        if proposal.many:
            values.extend(proposal.values)
        else:
            values.append(proposal.values)
    return values
