"""Counters as a workload: clients append values, once or until they know the outcome, and decisions.

same state                  state machines with the same records applied are equal; snapshots restore that very state
acknowledged                records that a client was told to be committed are in the history, once; records proposed
                            again under the same numbers may be there twice, and are applied once
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from kraftcore.core.batch import RecordBatch
from kraftcore.errors import InvariantError, KraftError, NotLeaderError
from kraftcore.executor.decisions import Decision
from kraftcore.executor.executor import size_of
from kraftcore.executor.proposals import Proposal
from kraftcore.executor.sessions import digest_of_values
from kraftcore.simulation.checks import Seen, Violation
from kraftcore.simulation.host import Host
from kraftcore.simulation.machine import PLACED, Machine
from kraftcore.simulation.workload import Workload
from kraftcore.simulation.world import World

RECORDS_MAX = 3  # in a proposal
RETRYING_CLIENTS = 8


@dataclass(slots=True)
class Operation:
    """A batch a client proposed.

    Attributes:
        number: unique in the run.
        offset: where it was appended, -1 until it is known to be committed.
        epoch: in which leader epoch; None if the client cannot know.
        acknowledged: whether the client was told that it is committed.
        client: the client's number and the sequence of its first record, if it may be proposed again.
        values: its records.
    """

    number: int
    offset: int = -1
    epoch: int | None = -1
    acknowledged: bool = False
    client: tuple[int, int] | None = None
    values: Sequence[bytes] = ()


class Counters(Workload):
    """A workload of clients that append values to counters, and the rules that their answers must obey."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._appends = 0
        self._asking: dict[int, Operation] = {}
        self._next_sequence = [0] * RETRYING_CLIENTS
        self._operations: list[Operation] = []
        self._data_crcs: set[tuple[int, int]] = set()
        self._numbered: dict[tuple[int, int], int] = {}

    def schedule(self) -> None:
        """See `Workload`."""
        self.world.every(self.world.options.append_every, self.ask)

    def make_machine(self, host: Host) -> Machine:
        """See `Workload`."""
        return Machine(partial(self.world.checker.applied, host), self._took)

    # --- clients ------------------------------------------------------------------------------------------------------

    def ask(self) -> None:
        """See `Workload`."""
        world, rng, options = self.world, self.world.rng, self.world.options
        host = world.leader() if rng.random() < 0.9 else world.somebody()
        if host is None:
            return
        self._appends += 1
        values = [
            b"%c%d:%d" % (97 + rng.randrange(20), self._appends, number) + b"x" * rng.randrange(options.value_bytes)
            for number in range(1 + rng.randrange(RECORDS_MAX))
        ]
        operation = Operation(self._appends, values=values)
        if options.retries and rng.random() < options.retries:
            client = self._appends % RETRYING_CLIENTS
            before = self._asking.get(client)
            if before is not None and not before.acknowledged:
                return  # a client has one proposal in flight
            self._asking[client] = operation
            operation.client = (client, self._next_sequence[client])
            self._next_sequence[client] += len(values)
            self._ask(host, operation)
        elif options.decisions and rng.random() < options.decisions:
            host.perform(host.incarnation, self._decide, host, Placed(self, host, operation, values))
        else:
            self._hand_in(host, operation, values)

    def _ask(self, host: Host | None, operation: Operation) -> None:
        rng = self.world.rng
        if host is not None:
            self._hand_in(host, operation, operation.values, is_forwarded=rng.random() < 0.5)
        self.world.agenda.after_ms(100 + rng.random() * 3000, self._ask_again, operation)

    def _ask_again(self, operation: Operation) -> None:
        if not operation.acknowledged and not self.world.is_over:
            self._ask(self.world.leader() if self.world.rng.random() < 0.7 else self.world.somebody(), operation)

    def _hand_in(
        self, host: Host, operation: Operation, values: Sequence[bytes], *, is_forwarded: bool = False
    ) -> None:
        # Forwarded: the client asked another node, which asks this one.
        numbers = (-1, -1) if operation.client is None else operation.client
        proposal = Proposal(values, size_of(values), True, *numbers)
        proposal.add_done_callback(partial(self._ended, host, operation))
        host.perform(host.incarnation, self._join if is_forwarded else self._propose, host, proposal)

    def _propose(self, host: Host, proposal: Proposal) -> None:
        executor = host.executor
        if self.world.options.gathers or proposal.producer_id >= 0:
            try:
                executor.add(proposal)
            except KraftError as refused:
                proposal.fail(refused)
        else:
            executor.queue.add(proposal)
            executor.propose(host.clock_ms())

    def _join(self, host: Host, asked: Proposal) -> None:
        try:
            digest = digest_of_values(asked.values)
            running = host.executor.join(Proposal, asked.values, asked.producer_id, asked.sequence, digest=digest)
        except KraftError as refused:
            asked.fail(refused)
        else:
            running.add_done_callback(partial(_follow, asked))

    def _decide(self, host: Host, decision: Decision) -> None:
        try:
            host.executor.decide(decision)
        except NotLeaderError as refused:
            decision.failed(refused)

    def _ended(self, host: Host, operation: Operation, proposal: Proposal) -> None:
        try:
            offset = proposal.result().offset
        except KraftError:
            return  # refused, or nobody knows
        self.acknowledge(host, operation, offset)

    def acknowledge(self, host: Host, operation: Operation, offset: int) -> None:
        """Tell a client that its records are committed, the first at ``offset``."""
        if operation.acknowledged or self.world.is_over:
            return  # it was asked for at more than one host
        operation.offset = offset
        # Of what was retried, the first one counts: perhaps that of an earlier leader.
        operation.epoch = host.executor.applier.epoch if operation.client is None else None
        operation.acknowledged = True
        found = self._holding(operation)
        if found is None:
            raise Violation(
                "acknowledged",
                f"operation {operation.number} at {operation.offset} in epoch {operation.epoch} is not in the history",
            )
        self._operations.append(operation)
        self.answered += 1
        checker = self.world.checker
        checker.acknowledged_end = max(checker.acknowledged_end, found.next_offset)

    # --- rules --------------------------------------------------------------------------------------------------------

    def committed(self, batch: RecordBatch) -> None:
        """See `Workload`."""
        if batch.producer_id >= 0:
            return  # see ``_took``
        if (batch.crc, batch.size) in self._data_crcs:
            raise Violation("acknowledged", f"the batch at {batch.base_offset} is in the history twice")
        self._data_crcs.add((batch.crc, batch.size))

    def _took(self, batch: RecordBatch) -> None:
        if batch.producer_id >= 0 and not self.world.is_over:
            numbers = (batch.producer_id, batch.base_sequence)
            first = self._numbered.setdefault(numbers, batch.base_offset)
            if first != batch.base_offset:
                raise Violation("acknowledged", f"proposal {numbers} is applied at {first} and at {batch.base_offset}")

    def _holding(self, operation: Operation) -> Seen | None:
        found = self.world.checker.holding(operation.offset)
        return None if found is None or operation.epoch not in (None, found.epoch) else found

    def check_end(self) -> None:
        """See `Workload`."""
        for operation in self._operations:
            if self._holding(operation) is None:
                raise Violation("acknowledged", f"operation {operation.number} at {operation.offset} is lost")


class Placed(Decision):
    """Records that say for which offset they were decided, so that the state machine can compare."""

    may_split = True

    def __init__(self, counters: Counters, host: Host, operation: Operation, values: Sequence[bytes]) -> None:
        self._counters = counters
        self._host = host
        self._operation = operation
        self._values = values
        self._offset = -1

    def decide(self, next_offset: int, leader_epoch: int) -> Sequence[bytes]:
        """See `Decision`."""
        self._offset = next_offset
        return [PLACED + (next_offset + at).to_bytes(8) + value for at, value in enumerate(self._values)]

    def appended(self, offset: int) -> None:
        """See `Decision`."""
        if offset != self._offset:
            raise InvariantError(f"decided for {self._offset}, appended at {offset}")

    def committed(self) -> None:
        """See `Decision`."""
        if self._values:
            self._counters.acknowledge(self._host, self._operation, self._offset)


def _follow(asked: Proposal, running: Proposal) -> None:
    try:
        found = running.result()
    except KraftError as error:
        asked.fail(error)
    else:
        asked.succeed(found)
