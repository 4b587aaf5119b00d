"""The demo's client: writes lines to the leader, over TCP, and keeps the acknowledgements.

Several lanes write at a time, each one batch after the other. A batch that was not acknowledged is sent again with the
same producer id and sequence, to the leader of that time: it is applied once, however often it was sent.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import trio

from kraftcore import __version__
from kraftcore.cli.demo.processes import DemoError, Member, Members
from kraftcore.core.uuid import METADATA_TOPIC_ID
from kraftcore.node.outbox import Outbox
from kraftcore.ports.transport import Address, Transport
from kraftcore.protocol.appending import append_answer, append_request
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.produce import ProduceRequest
from kraftcore.protocol.schema import Request
from kraftcore.protocol.topics import METADATA_TOPIC

TIMEOUT_MS = 5000
_LANES = 8
BATCH_BYTES = 256 * 1024
_RETRY_S = 0.01
_WINDOW_S = 1.0
_AGAIN = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ErrorCode.UNKNOWN_SERVER_ERROR,
}


class Acknowledged(NamedTuple):
    """Lines ``first`` to ``first + length - 1`` of the repeated input are at ``offset`` and after."""

    offset: int
    first: int
    length: int


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of the last second. Latencies are from sending a batch to its acknowledgement."""

    records_per_s: float
    p50_ms: float | None
    p99_ms: float | None


class Client:
    """Sends requests to replicas."""

    def __init__(self, transport: Transport) -> None:
        self._outbox = Outbox(transport, "kraftcore-demo", __version__, lambda text: None)

    async def ask(self, address: Address, request: Request, timeout_ms: int = TIMEOUT_MS) -> Any:
        """Send a request; returns the response, or a `Failure`."""
        answers: list[Any] = []
        arrived = trio.Event()

        def done(answer: Any) -> None:
            answers.append(answer)
            arrived.set()

        self._outbox.send(address.host, address.port, request, timeout_ms, done)
        await arrived.wait()
        return answers[0]


class Stream:
    """A client that writes lines to the leader, one after the other, and keeps the acknowledgements.

    Args:
        client: sends the requests.
        members: tell the leader.
        lines: the input, written over and over.

    Attributes:
        pace: records a second, or None for no limit.
        batch_records: most records in a batch.
        acknowledged: all acknowledgements, in order of arrival.
        records: number of acknowledged records.
        retries: how often a batch was sent again.
        latencies: seconds from a batch's sending to its acknowledgement, in order of arrival.
        is_idle: whether ``run`` has ended.
    """

    def __init__(self, client: Client, members: Members, lines: Sequence[bytes]) -> None:
        self._client = client
        self._members = members
        self._lines = lines
        self._next = 0
        self._due = 0.0
        self._stopping = False
        self.is_idle = False
        self._recent: deque[tuple[float, float, int]] = deque()
        self._watchers: list[Callable[[Member], None]] = []
        self.pace: float | None = None
        self.batch_records = 1
        self.acknowledged: list[Acknowledged] = []
        self.records = 0
        self.retries = 0
        self.latencies: list[float] = []

    async def run(self) -> None:
        """Write until ``stop``; returns when everything sent is acknowledged."""
        self._due = trio.current_time()
        async with trio.open_nursery() as nursery:
            for _ in range(_LANES):
                nursery.start_soon(self._run_lane)
        self.is_idle = True

    def stop(self) -> None:
        """Begin no more batches."""
        self._stopping = True

    @property
    def passed(self) -> float:
        """How many times the whole input was sent."""
        return self._next / len(self._lines)

    def figures(self) -> Figures:
        """Figures of the last second."""
        now = trio.current_time()
        while self._recent and self._recent[0][0] < now - _WINDOW_S:
            self._recent.popleft()
        latencies = [latency for _, latency, _ in self._recent]
        rate = sum(count for _, _, count in self._recent) / _WINDOW_S
        return Figures(rate, percentile_ms(latencies, 0.5), percentile_ms(latencies, 0.99))

    async def next_acknowledgement(self, *, not_from: Member) -> Member:
        """Wait until a replica other than ``not_from`` acknowledges a batch; returns that replica."""
        found: list[Member] = []
        event = trio.Event()

        def watch(member: Member) -> None:
            if member is not not_from and not found:
                found.append(member)
                event.set()

        self._watchers.append(watch)
        try:
            await event.wait()
        finally:
            self._watchers.remove(watch)
        return found[0]

    async def _run_lane(self) -> None:
        producer_id, sequence = random.getrandbits(63), 0
        while not self._stopping:
            first, values = self._take()
            if self.pace is not None:
                due = max(self._due, trio.current_time() - 0.05)
                self._due = due + len(values) / self.pace
                await trio.sleep_until(due)
            await self._write(first, values, producer_id, sequence)
            sequence += len(values)

    def _take(self) -> tuple[int, list[bytes]]:
        first, size = self._next, 0
        values: list[bytes] = []
        while len(values) < self.batch_records and (not values or size < BATCH_BYTES):
            values.append(self._lines[self._next % len(self._lines)])
            size += len(values[-1])
            self._next += 1
        return first, values

    async def _write(self, first: int, values: list[bytes], producer_id: int, sequence: int) -> None:
        request = append_request(
            values,
            topic=METADATA_TOPIC,
            topic_id=METADATA_TOPIC_ID,
            client_id=producer_id,
            sequence=sequence,
            timestamp_ms=time.time_ns() // 1_000_000,
            timeout_ms=TIMEOUT_MS,
        )
        start = trio.current_time()
        while True:
            leader = self._members.leader
            if leader is None:
                await trio.sleep(_RETRY_S)
                continue
            offset = await self._send(leader, request)
            if offset is not None:
                break
            self.retries += 1
            await trio.sleep(_RETRY_S)
        now = trio.current_time()
        self.acknowledged.append(Acknowledged(offset, first, len(values)))
        self.records += len(values)
        self.latencies.append(now - start)
        self._recent.append((now, now - start, len(values)))
        for watch in list(self._watchers):
            watch(leader)

    async def _send(self, leader: Member, request: ProduceRequest) -> int | None:
        answer = await self._client.ask(leader.address, request)
        if isinstance(answer, Failure):
            return None
        part = append_answer(answer)
        if part.error_code == ErrorCode.NONE:
            offset: int = part.base_offset
            return offset
        if part.error_code not in _AGAIN:
            error = ErrorCode.of(part.error_code)
            raise DemoError(f"node {leader.id} refuses a batch: {error.name} {part.error_message or ''}")
        return None


def percentile_ms(seconds: Sequence[float], share: float) -> float | None:
    """A percentile in milliseconds; None without values."""
    if not seconds:
        return None
    return sorted(seconds)[min(int(len(seconds) * share), len(seconds) - 1)] * 1000
