"""Forwarding: a follower sends its callers' appends and read barriers to the leader, which answers them.

Kafka's own messages are used: Produce with the batch to append, answered when it is committed; ListOffsets for the
latest offset, answered after a read barrier. A Kafka producer that is pointed at the leader works as well.

Forwarded proposals are numbered (``executor.client_numbers``), so that sending them again applies them once.

Forwarded requests have a connection of their own (`FORWARDS`), since responses keep the order of requests: on the
consensus's connection the answer to a proposal would wait behind the answer to a delayed Fetch, and the answer to a
Fetch, without which nothing is committed, behind the answer to a proposal.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Protocol

import trio

from kraftcore.config import NodeConfig
from kraftcore.core.batch import RecordBatch, validate_batch
from kraftcore.errors import (
    KraftError,
    LocalError,
    NodeStoppedError,
    NotLeaderError,
    OutcomeUnknownError,
    OverloadedError,
    RemoteProtocolError,
    SequenceError,
)
from kraftcore.executor.client_numbers import ClientNumbers
from kraftcore.executor.executor import Executor, size_of
from kraftcore.executor.proposals import AppendedMany, Proposal
from kraftcore.executor.sessions import SEQUENCE_MAX, digest_of, digest_of_values
from kraftcore.node.registry import Access, RequestContext, RequestHandler
from kraftcore.node.waiting import TaskProposal
from kraftcore.protocol.appending import append_answer, append_refusal, append_request
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kraftcore.protocol.messages.produce import ProduceRequest, ProduceResponse
from kraftcore.protocol.schema import Request
from kraftcore.raft.quorum import Endpoint

LATEST = -1  # the timestamp by which ListOffsets asks for the high watermark
_RETRY_S = 0.02


class ForwardingNode(Protocol):
    """The members of a follower's node that are used to ask the leader."""

    executor: Executor

    @property
    def is_leader(self) -> bool:
        """Whether the node leads."""
        ...

    @property
    def leader_endpoint(self) -> Endpoint | None:
        """Where the leader listens."""
        ...

    def check_running(self) -> None:
        """Raise `NodeStoppedError` if the node stops or has stopped."""
        ...

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        ...

    def stopped_error(self) -> NodeStoppedError:
        """The error for calls that wait when the node stops."""
        ...

    def spawn(self, function: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        """Run a task until the node ends."""
        ...

    async def propose(self, proposal: TaskProposal) -> Any:
        """Append a proposal here, and wait for its end."""
        ...

    async def local_barrier(self) -> int:
        """Confirm here that this node leads."""
        ...

    async def wait_applied(self, offset: int) -> None:
        """Wait until everything below ``offset`` is applied here."""
        ...

    async def wait_leader(self) -> int:
        """Wait until a leader is known."""
        ...

    async def ask_leader(self, endpoint: Endpoint, request: Request) -> Any:
        """Send a forwarded request to the leader; returns the response, or a `Failure`."""
        ...


class Forwarder:
    """The follower's side: sends appends and read barriers to the leader."""

    def __init__(self, node: ForwardingNode, config: NodeConfig) -> None:
        self._node = node
        self._config = config
        self.numbers = ClientNumbers(lambda: random.getrandbits(63))

    async def append(self, values: list[bytes], client: tuple[int, int] | None) -> AppendedMany:
        """Have the leader append records; asks again until they are committed, or the caller gives up."""
        if client is not None:
            return await self._append(values, *client)
        number, sequence = self.numbers.take()
        found = await self._append(values, number, sequence)
        self.numbers.give_back(number, sequence + len(values))  # only after success
        return found

    async def _append(self, values: list[bytes], number: int, sequence: int) -> AppendedMany:
        node = self._node
        node.check_running()
        proposal = TaskProposal(values, 0, True, number, sequence)
        key = (number, 0, sequence, digest_of_values(values))
        expected = node.executor.applier.expected
        expected[key] = proposal
        scope = trio.CancelScope()
        try:
            # A task of the node's own, so that an exception that interrupts the caller's wait reaches the caller as is.
            node.spawn(self._see_through, scope, values, number, sequence, proposal)
            found: AppendedMany = await proposal.wait()
        finally:
            scope.cancel()
            if expected.get(key) is proposal:
                del expected[key]
        return found

    async def _see_through(
        self, scope: trio.CancelScope, values: list[bytes], number: int, sequence: int, proposal: Proposal
    ) -> None:
        try:
            with scope:
                await self._ask_until_done(values, number, sequence, proposal)
        except KraftError as error:
            proposal.fail(error)
        finally:
            if not proposal.done:  # the node ends, and its tasks were cancelled
                proposal.fail(self._node.stopped_error())

    async def _ask_until_done(self, values: list[bytes], number: int, sequence: int, proposal: Proposal) -> None:
        node = self._node
        while not proposal.done:
            if node.is_leader:
                try:
                    found = await node.propose(TaskProposal(values, size_of(values), True, number, sequence))
                except (NotLeaderError, OutcomeUnknownError, OverloadedError):
                    await trio.sleep(_RETRY_S)
                    continue
                proposal.succeed(found)
                return
            request = append_request(
                values,
                topic=self._config.topic,
                topic_id=self._config.topic_id,
                client_id=number,
                sequence=sequence,
                timestamp_ms=node.now_ms(),
                timeout_ms=self._config.request_timeout_ms,
            )
            part = await self._ask_leader(request, append_answer)
            if part is None:
                continue
            if part.error_code == ErrorCode.NONE:
                # Committed; applied here soon, unless a snapshot takes the place of the records.
                await node.wait_applied(part.base_offset + len(values))
                session = node.executor.applier.sessions.find(number)
                known = session is not None and session.offset == part.base_offset
                results = session.results if known and session is not None else None
                proposal.succeed(AppendedMany(part.base_offset, results))
                return
            if part.error_code not in _ASK_AGAIN:
                refusal = append_refusal(part)
                if isinstance(refusal, SequenceError):  # this node's sessions then say more than the answer
                    await node.wait_applied(await self.barrier())
                    last = sequence + len(values) - 1
                    node.executor.applier.sessions.admit(number, 0, sequence, last, digest_of_values(values))
                raise refusal
            await trio.sleep(_RETRY_S)

    async def barrier(self) -> int:
        """Ask the leader for the offset to apply before reading; asks again until a leader answers."""
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
            request = ListOffsetsRequest(replica_id=-1, topics=[topic(name=self._config.topic, partitions=[wanted])])
            part = await self._ask_leader(request, _offset_answer)
            if part is not None:
                if part.error_code == ErrorCode.NONE:
                    return int(part.offset)
                await trio.sleep(_RETRY_S)

    async def _ask_leader(self, request: Request, read: Callable[[Any], Any]) -> Any:
        """Return what ``read`` finds in the leader's answer; None, after a pause, if no leader answered."""
        node = self._node
        node.check_running()
        endpoint = node.leader_endpoint
        if endpoint is None:
            with trio.move_on_after(_RETRY_S):
                await node.wait_leader()
            await trio.lowlevel.checkpoint()
            return None
        answer = await node.ask_leader(endpoint, request)
        if not isinstance(answer, Failure):
            with suppress(RemoteProtocolError):  # a wrong answer counts as none
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
    """The leader's side: answers forwarded appends and read barriers.

    Args:
        executor: takes the proposals.
        look: called after a proposal was handed to the executor.
        config: of the node.
        ask_barrier: confirms that this node leads, and calls back with an error and the offset to apply.
    """

    def __init__(
        self,
        executor: Executor,
        look: Callable[[], None],
        config: NodeConfig,
        ask_barrier: Callable[[Callable[[ErrorCode, int], None]], None],
    ) -> None:
        self._executor = executor
        self._look = look
        self._config = config
        self._ask_barrier = ask_barrier

    @property
    def handlers(self) -> tuple[RequestHandler, ...]:
        """The handlers of Produce and ListOffsets."""
        return (
            RequestHandler(ListOffsetsRequest, self.on_list_offsets, Access("DESCRIBE", "TOPIC", self._topic)),
            RequestHandler(ProduceRequest, self.on_produce, Access("WRITE", "TOPIC", self._topic)),
        )

    def _topic(self, _: Request) -> tuple[str, ...]:
        return (self._config.topic,)

    def on_produce(self, request: ProduceRequest, context: RequestContext) -> ProduceResponse | None:
        """Append a batch; answered when it is committed."""
        config = self._config
        for topic in request.topic_data:
            for part in topic.partition_data:
                ours = topic.topic_id == config.topic_id if context.version >= 13 else topic.name == config.topic
                if not ours or part.index != 0 or len(request.topic_data) != 1 or len(topic.partition_data) != 1:
                    return _produced(request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                if request.transactional_id is not None or request.acks == 0:
                    return _produced(request, ErrorCode.INVALID_REQUEST)
                return self._append(request, part.records, context)
        return _produced(request, ErrorCode.INVALID_REQUEST)

    def _append(self, request: ProduceRequest, records: Any, context: RequestContext) -> ProduceResponse | None:
        try:
            batch: RecordBatch = validate_batch(records or b"")
            if batch.is_control or batch.size != len(records):
                raise LocalError("one data batch is wanted")
            values = [value for value in batch.values() if value]
            if len(values) < batch.count:
                raise LocalError("a record may not be empty")
            number, first = batch.producer_id, batch.base_sequence
            if number >= 0 and not (batch.producer_epoch >= 0 and 0 <= first <= SEQUENCE_MAX - batch.count):
                raise LocalError(f"producer epoch {batch.producer_epoch} or sequence {first} is out of range")
            proposal = self._executor.join(
                TaskProposal, values, number, first, batch.producer_epoch, digest_of(batch.raw)
            )
        except RemoteProtocolError as error:
            return _produced(request, ErrorCode.CORRUPT_MESSAGE, str(error))
        except (NotLeaderError, NodeStoppedError):
            return _produced(request, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        except OverloadedError as error:
            return _produced(request, ErrorCode.THROTTLING_QUOTA_EXCEEDED, str(error))
        except SequenceError as error:
            return _produced(request, ErrorCode[error.error], error.message)
        except LocalError as error:
            return _produced(request, ErrorCode.INVALID_RECORD, str(error))
        proposal.add_done_callback(lambda done: context.answer(_outcome(request, done)))
        self._look()
        return None

    def on_list_offsets(self, request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse | None:
        """Answer with the high watermark, after a read barrier."""
        topic_type = ListOffsetsResponse.ListOffsetsTopicResponse

        def answered(error: ErrorCode, offset: int) -> ListOffsetsResponse:
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
            return ListOffsetsResponse(topics=found)

        asked = [(topic.name, part.timestamp) for topic in request.topics for part in topic.partitions]
        if asked != [(self._config.topic, LATEST)]:
            return answered(ErrorCode.INVALID_REQUEST, -1)
        self._ask_barrier(lambda error, offset: context.answer(answered(error, offset)))
        return None


def _outcome(request: ProduceRequest, proposal: Proposal) -> ProduceResponse:
    try:
        offset = proposal.result().offset
    except NotLeaderError:
        return _produced(request, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    except (OutcomeUnknownError, NodeStoppedError) as error:
        return _produced(request, ErrorCode.REQUEST_TIMED_OUT, str(error))
    except SequenceError as error:
        return _produced(request, ErrorCode[error.error], error.message)
    except KraftError as error:
        return _produced(request, ErrorCode.INVALID_RECORD, str(error))
    return _produced(request, ErrorCode.NONE, offset=offset)


def _produced(request: ProduceRequest, error: ErrorCode, message: str = "", offset: int = -1) -> ProduceResponse:
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
    return ProduceResponse(responses=responses)
