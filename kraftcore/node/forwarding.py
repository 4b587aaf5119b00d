"""What a follower asks of the leader for its callers, and what the leader answers.

Kafka's own messages carry it: Produce with the batch to append, answered when it is committed; ListOffsets for the
latest offset, answered after a read barrier. A Kafka producer that is pointed at the leader works as well.

Forwarded proposals are numbered (``sessions``), so that asking again after a timeout or a change of leaders applies
them once. A client number has one proposal in flight; so there are as many numbers as forwards at a time, reused.

They have a connection of their own (`FORWARDS`): on the consensus's, an answer would wait behind the leader's answer to
a Fetch, which waits for news; and a Fetch, without which nothing is committed, behind that to a proposal.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import trio

from kraftcore.core.batch import RecordBatch, validate_batch
from kraftcore.errors import (
    KraftError,
    LocalError,
    NodeStoppedError,
    NotLeaderError,
    OutcomeUnknownError,
    OverloadedError,
    RefusedError,
    RemoteProtocolError,
)
from kraftcore.node.driver import Ticket
from kraftcore.node.inbox import Respond
from kraftcore.node.outbox import FORWARDS
from kraftcore.node.proposals import AppendedMany, Proposal, ProposalQueue
from kraftcore.protocol.appending import append_answer, append_request
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kraftcore.protocol.messages.produce import ProduceRequest, ProduceResponse
from kraftcore.protocol.schema import Request
from kraftcore.raft.roles import Leader

if TYPE_CHECKING:
    from kraftcore.node.node import Node

LATEST = -1  # ListOffsets: the high watermark
_RETRY_S = 0.02


class Forwarder:
    """The follower's side."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._free: list[tuple[int, int]] = []  # (client number, next sequence)

    async def append(self, values: list[bytes], client: tuple[int, int] | None) -> AppendedMany:
        """Have the leader append, wherever it is; asks again until it is done, or the caller gives up."""
        node = self._node
        if client is not None:
            return await self._append(values, *client)
        number, sequence = self._free.pop() if self._free else (random.getrandbits(63), 0)
        # Given back only after success: a number whose last proposal is still about must not be used again.
        found = await self._append(values, number, sequence)
        if sequence + len(values) < node.sequence_limit:
            self._free.append((number, sequence + len(values)))
        return found

    async def _append(self, values: list[bytes], number: int, sequence: int) -> AppendedMany:
        node = self._node
        node.check_running()
        proposal = Proposal(values, 0, True, number, sequence)
        key = (number, sequence)
        node.applier.expected[key] = proposal
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._see_through, values, number, sequence, proposal)
                with suppress(KraftError):  # raised below, where no group is put around it
                    await proposal.wait()
                nursery.cancel_scope.cancel()
        finally:
            if node.applier.expected.get(key) is proposal:
                del node.applier.expected[key]
        found: AppendedMany = proposal.result()
        return found

    async def _see_through(self, values: list[bytes], number: int, sequence: int, proposal: Proposal) -> None:
        try:
            await self._ask_until_done(values, number, sequence, proposal)
        except KraftError as error:
            proposal.fail(error)

    async def _ask_until_done(self, values: list[bytes], number: int, sequence: int, proposal: Proposal) -> None:
        node = self._node
        while not proposal.done:
            if node.is_leader:
                try:
                    found = await node.propose(Proposal(values, node.size_of(values), True, number, sequence))
                except (NotLeaderError, OutcomeUnknownError, OverloadedError):
                    await trio.sleep(_RETRY_S)
                    continue
                proposal.succeed(found)
                return
            request = append_request(
                values,
                topic=node.config.topic,
                topic_id=node.config.topic_id,
                client_id=number,
                sequence=sequence,
                timestamp_ms=node.now_ms(),
                timeout_ms=node.config.request_timeout_ms,
            )
            part = await self._ask_leader(request, append_answer)
            if part is None:
                continue
            if part.error_code == ErrorCode.NONE:
                # Committed; applied here soon, unless a snapshot takes the place of the records.
                await node.wait_applied(part.base_offset + len(values))
                session = node.applier.sessions.find(number)
                known = session is not None and session.offset == part.base_offset
                results = session.results if known and session is not None else None
                proposal.succeed(AppendedMany(part.base_offset, results))
                return
            if part.error_code not in _ASK_AGAIN:
                name = ErrorCode.of(part.error_code).name
                proposal.fail(RefusedError(name, part.error_message or ""))
                return
            await trio.sleep(_RETRY_S)

    async def barrier(self) -> int:
        """Ask the leader for the offset to apply before reading; asks again until somebody answers."""
        node = self._node
        while True:
            if node.is_leader:
                try:
                    return await node.local_barrier()
                except NotLeaderError:
                    await trio.sleep(_RETRY_S)
                    continue
            topic = ListOffsetsRequest.ListOffsetsTopic
            wanted = topic.ListOffsetsPartition(partition_index=0, timestamp=LATEST)
            request = ListOffsetsRequest(replica_id=-1, topics=[topic(name=node.config.topic, partitions=[wanted])])
            part = await self._ask_leader(request, _offset_answer)
            if part is not None:
                if part.error_code == ErrorCode.NONE:
                    return int(part.offset)
                await trio.sleep(_RETRY_S)

    async def _ask_leader(self, request: Request, read: Callable[[Any], Any]) -> Any:
        """What ``read`` finds in the leader's answer; None after a pause if there is none now."""
        node = self._node
        node.check_running()
        endpoint = node.leader_endpoint
        if endpoint is None:
            with trio.move_on_after(_RETRY_S):
                await node.wait_leader()
            await trio.lowlevel.checkpoint()
            return None
        answer = await node.ask(endpoint.host, endpoint.port, request, node.config.request_timeout_ms, FORWARDS)
        if not isinstance(answer, Failure):
            with suppress(RemoteProtocolError):  # an answer to something else is none
                return read(answer)
        await trio.sleep(_RETRY_S)
        return None


def _offset_answer(answer: ListOffsetsResponse) -> Any:
    found = [part for topic in answer.topics for part in topic.partitions]
    if len(found) != 1:
        raise RemoteProtocolError(f"the answer to a read barrier is about {len(found)} partitions, not one")
    return found[0]


_ASK_AGAIN = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ErrorCode.BROKER_NOT_AVAILABLE,
}


class LeaderSide:
    """The leader's side."""

    def __init__(self, node: Node, queue: ProposalQueue) -> None:
        self._node = node
        self._queue = queue
        self._running: dict[tuple[int, int], Proposal] = {}  # numbered, asked for from outside, not done

    @property
    def handlers(self) -> dict[type[Request], Respond]:
        """What this answers."""
        return {ListOffsetsRequest: self.on_list_offsets, ProduceRequest: self.on_produce}

    def on_produce(self, request: ProduceRequest, version: int, ticket: Ticket) -> None:
        """Append a batch; answered when it is committed."""
        node = self._node
        for topic in request.topic_data:
            for part in topic.partition_data:
                ours = topic.topic_id == node.config.topic_id if version >= 13 else topic.name == node.config.topic
                if not ours or part.index != 0 or len(request.topic_data) != 1 or len(topic.partition_data) != 1:
                    self._answer_produce(ticket, request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                    return
                if request.transactional_id is not None or request.acks == 0:
                    self._answer_produce(ticket, request, ErrorCode.INVALID_REQUEST)
                    return
                self._append(request, part.records, ticket)
                return
        self._answer_produce(ticket, request, ErrorCode.INVALID_REQUEST)

    def _append(self, request: ProduceRequest, records: Any, ticket: Ticket) -> None:
        node = self._node
        try:
            batch: RecordBatch = validate_batch(records or b"")
            if batch.is_control or batch.size != len(records):
                raise LocalError("one data batch is wanted")
            values = [value for value in batch.values() if value]
            if len(values) < batch.count:
                raise LocalError("a record may not be empty")
            key = (batch.producer_id, batch.base_sequence)
            proposal = self._running.get(key) if batch.producer_id >= 0 else None
            if proposal is None:
                if self._queue.is_full:
                    raise OverloadedError(f"{self._queue.bytes_in_flight} bytes are in flight")
                proposal = Proposal(values, node.size_of(values), True, *key)  # it came compressed, perhaps
                self._submit(proposal, key)
            proposal.add_done_callback(lambda done: self._produced(ticket, request, done))
        except RemoteProtocolError as error:
            self._answer_produce(ticket, request, ErrorCode.CORRUPT_MESSAGE, str(error))
        except (NotLeaderError, NodeStoppedError):
            self._answer_produce(ticket, request, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        except OverloadedError as error:
            self._answer_produce(ticket, request, ErrorCode.THROTTLING_QUOTA_EXCEEDED, str(error))
        except LocalError as error:
            self._answer_produce(ticket, request, ErrorCode.INVALID_RECORD, str(error))

    def _submit(self, proposal: Proposal, key: tuple[int, int]) -> None:
        """Append a proposal; a numbered one only if it cannot be in the log already."""
        node = self._node
        if proposal.producer_id >= 0:
            # What an earlier leader appended and this one has not applied would be appended a second time.
            role = node.replica.state.role
            if not isinstance(role, Leader) or node.applier.offset <= role.epoch_start_offset:
                raise node.not_leader("it has not applied its predecessors' records yet")
            self._running[key] = proposal

            def forget(_: Proposal) -> None:
                self._running.pop(key, None)

            proposal.add_done_callback(forget)
        try:
            node.submit(proposal)
        except KraftError:
            self._running.pop(key, None)
            raise

    def _produced(self, ticket: Ticket, request: ProduceRequest, proposal: Proposal) -> None:
        try:
            offset = proposal.result().offset
        except NotLeaderError:
            self._answer_produce(ticket, request, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        except (OutcomeUnknownError, NodeStoppedError) as error:
            self._answer_produce(ticket, request, ErrorCode.REQUEST_TIMED_OUT, str(error))
        except KraftError as error:
            self._answer_produce(ticket, request, ErrorCode.INVALID_RECORD, str(error))
        else:
            self._answer_produce(ticket, request, ErrorCode.NONE, offset=offset)

    def _answer_produce(
        self, ticket: Ticket, request: ProduceRequest, error: ErrorCode, message: str = "", offset: int = -1
    ) -> None:
        topic_type = ProduceResponse.TopicProduceResponse
        responses = [
            topic_type(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    topic_type.PartitionProduceResponse(
                        index=part.index, error_code=error, base_offset=offset, error_message=message or None
                    )
                    for part in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
        ticket.answer(ProduceResponse(responses=responses))

    def on_list_offsets(self, request: ListOffsetsRequest, version: int, ticket: Ticket) -> None:
        """Answer with the high watermark, after a read barrier."""
        topic_type = ListOffsetsResponse.ListOffsetsTopicResponse

        def answer(error: ErrorCode, offset: int) -> None:
            found = [
                topic_type(
                    name=topic.name,
                    partitions=[
                        topic_type.ListOffsetsPartitionResponse(
                            partition_index=part.partition_index, error_code=error, offset=offset
                        )
                        for part in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
            ticket.answer(ListOffsetsResponse(topics=found))

        asked = [(topic.name, part.timestamp) for topic in request.topics for part in topic.partitions]
        if asked != [(self._node.config.topic, LATEST)]:
            answer(ErrorCode.INVALID_REQUEST, -1)
        else:
            self._node.ask_barrier(answer)
