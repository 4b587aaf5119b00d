"""The demo's acts, in order, and their outcome."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import trio

from kraftcore.cli.demo.check import Finding, check_replica, log_end
from kraftcore.cli.demo.processes import DemoError, Member, Members
from kraftcore.cli.demo.screen import Screen
from kraftcore.cli.demo.stream import Client, Figures, Stream, percentile_ms
from kraftcore.errors import CorruptDataError
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.add_raft_voter import AddRaftVoterRequest
from kraftcore.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from kraftcore.protocol.schema import Request
from kraftcore.transports.tcp import TcpTransport

VOTERS = 3
PLACES = 4
PACE = 5_000
_PACED_BATCH = 20
_FULL_BATCH = 1_000
_TICK_S = 0.1
_WAIT_S = 30.0
_POLL_S = 0.02


@dataclass
class Outcome:
    """The demo's outcome.

    Attributes:
        findings: of each replica's directory.
        problems: faults, in words; empty if there are none.
        figures: for machines.
    """

    findings: list[Finding] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)


class Story:
    """One run.

    Args:
        directory: empty; gets the replicas' folders.
        lines: the input, at least one.
        screen: shows the run.
        pause_s: time between two acts.
        pace: records a second in all acts but the last.
    """

    def __init__(self, directory: str, lines: Sequence[bytes], screen: Screen, pause_s: float, pace: int) -> None:
        self._directory = directory
        self._lines = lines
        self._screen = screen
        self._pause_s = pause_s
        self._pace = pace
        self._all = Members(directory, PLACES, VOTERS, self._changed)
        self._news = trio.Event()
        self._stream: Stream | None = None
        self._outcome = Outcome()

    # --- for the screen -----------------------------------------------------------------------------------------------

    @property
    def members(self) -> list[Member]:
        """The replicas that were started so far."""
        return [member for member in self._all if member.state != "stopped" or member.status is not None]

    @property
    def records(self) -> int:
        """Number of records acknowledged so far."""
        return self._stream.records if self._stream is not None else 0

    def figures(self) -> Figures:
        """Figures of the last second."""
        return self._stream.figures() if self._stream is not None else Figures(0, None, None)

    def _changed(self, member: Member) -> None:
        news, self._news = self._news, trio.Event()
        news.set()

    async def _run_screen(self) -> None:
        while True:
            self._screen.tick(self)
            await trio.sleep(_TICK_S)

    # --- the acts -----------------------------------------------------------------------------------------------------

    async def run(self) -> Outcome:
        """Run all acts.

        Raises:
            DemoError: the demo cannot go on.
        """
        async with TcpTransport(log=lambda text: None) as transport, trio.open_nursery() as nursery:
            self._nursery = nursery
            self._client = Client(transport)
            nursery.start_soon(self._run_screen)
            await self._begin()
            stream = self._stream = Stream(self._client, self._all, self._lines)
            stream.pace, stream.batch_records = self._pace, _PACED_BATCH
            nursery.start_soon(stream.run)
            await trio.sleep(self._pause_s)
            await self._add_a_voter()
            await trio.sleep(self._pause_s)
            killed = await self._kill_the_leader()
            await trio.sleep(self._pause_s)
            await self._bring_back(killed)
            await trio.sleep(self._pause_s)
            removed = await self._remove_a_voter(other_than=killed)
            await trio.sleep(self._pause_s)
            await self._full_speed()
            await self._end()
            nursery.cancel_scope.cancel()
        self._verify(removed)
        return self._outcome

    async def _begin(self) -> None:
        for member in list(self._all)[:VOTERS]:
            self._nursery.start_soon(self._all.run, member)
        leader = await self._leader()
        self._tell(
            "leader",
            f"three voters are up; node {leader.id} leads epoch {leader.epoch}",
            leader=leader.id,
        )

    async def _add_a_voter(self) -> None:
        fourth = self._all[PLACES]
        self._nursery.start_soon(self._all.run, fourth)
        await self._caught_up(fourth)
        listener = AddRaftVoterRequest.Listener(name="CONTROLLER", host=fourth.address.host, port=fourth.address.port)
        await self._change_voters(
            lambda: AddRaftVoterRequest(
                cluster_id=self._all.cluster_id,
                timeout_ms=5000,
                voter_id=fourth.id,
                voter_directory_id=fourth.key.directory_id,
                listeners=[listener],
            )
        )
        self._tell("added", f"node {fourth.id} caught up and became the fourth voter", node=fourth.id)

    async def _kill_the_leader(self) -> Member:
        assert self._stream is not None  # noqa: S101
        leader = await self._leader()
        pid = leader.process.pid if leader.process is not None else 0
        before = self._stream.records
        start = trio.current_time()
        await self._all.kill(leader)
        self._tell("killed", f"SIGKILL to the leader, node {leader.id} (pid {pid}), in mid-stream", node=leader.id)
        with trio.move_on_after(_WAIT_S) as waiting:
            heir = await self._stream.next_acknowledgement(not_from=leader)
        if waiting.cancelled_caught:
            raise DemoError(f"no commit within {_WAIT_S:g} s of the leader's end")
        failover_ms = (trio.current_time() - start) * 1000
        self._outcome.figures["failover_ms"] = round(failover_ms, 1)
        self._tell(
            "failover",
            f"node {heir.id} leads and commits: {failover_ms:.0f} ms from SIGKILL to the next commit",
            leader=heir.id,
            failover_ms=round(failover_ms, 1),
            acknowledged_before=before,
        )
        return leader

    async def _bring_back(self, member: Member) -> None:
        self._nursery.start_soon(self._all.run, member)
        await self._caught_up(member)
        self._tell("restarted", f"node {member.id} is back and has caught up", node=member.id)

    async def _remove_a_voter(self, *, other_than: Member) -> Member:
        leader = await self._leader()
        chosen = next(member for member in self._all if member not in (leader, other_than))
        await self._change_voters(
            lambda: RemoveRaftVoterRequest(
                cluster_id=self._all.cluster_id, voter_id=chosen.id, voter_directory_id=chosen.key.directory_id
            )
        )
        chosen.state = "removed"
        await self._all.stop([chosen])
        self._tell("removed", f"node {chosen.id} was removed from the voters, and stopped", node=chosen.id)
        return chosen

    async def _full_speed(self) -> None:
        stream = self._stream
        assert stream is not None  # noqa: S101
        stream.pace, stream.batch_records = None, _FULL_BATCH
        self._tell("full-speed", f"no more pauses between batches, {_FULL_BATCH:,} records each")
        start, before, first = trio.current_time(), stream.records, len(stream.latencies)
        with trio.move_on_after(self._pause_s):
            await trio.sleep_forever()
        while stream.passed < 1:
            await trio.sleep(_POLL_S)
        rate = (stream.records - before) / (trio.current_time() - start)
        self._outcome.figures["paced"] = {"records_per_s": self._pace, **_latencies(stream.latencies[:first])}
        self._outcome.figures["full_speed"] = {"records_per_s": round(rate), **_latencies(stream.latencies[first:])}

    async def _end(self) -> None:
        stream = self._stream
        assert stream is not None  # noqa: S101
        stream.stop()
        await self._until("the last acknowledgements", lambda: stream.is_idle)
        leader = await self._leader()
        for member in self._all:
            if member.runs:
                await self._caught_up(member, to=leader)
        digests = {member.id: member.status["digest"] for member in self._all if member.runs and member.status}
        if len(set(digests.values())) != 1:
            self._outcome.problems.append(f"the replicas applied different records: {digests}")
        self._tell("stopping", f"{stream.records:,} records acknowledged; the replicas stop")
        await self._all.stop([member for member in self._all if member.process is not None])
        self._screen.tick(self)

    # --- helpers ------------------------------------------------------------------------------------------------------

    def _tell(self, name: str, text: str, **fields: Any) -> None:
        self._screen.event(name, text, **fields)

    async def _leader(self) -> Member:
        await self._until("a leader", lambda: self._all.leader is not None)
        leader = self._all.leader
        assert leader is not None  # noqa: S101
        return leader

    async def _until(self, what: str, look: Callable[[], bool]) -> None:
        with trio.move_on_after(_WAIT_S):
            while not look():
                with trio.move_on_after(_POLL_S * 5):
                    await self._news.wait()
            return
        raise DemoError(f"{what} did not come within {_WAIT_S:g} s: see the nodes' logs in {self._directory}")

    async def _caught_up(self, member: Member, to: Member | None = None) -> None:
        def look() -> bool:
            leader = to or self._all.leader
            if leader is None or not member.runs or member.status is None or leader.status is None:
                return False
            if to is None:  # in mid-stream: within a second's worth of the leader
                return bool(member.status["applied"] >= (leader.status["high_watermark"] or 0) - self._pace)
            return bool(member.status["applied"] == leader.status["applied"] == leader.status["log_end"])

        await self._until(f"node {member.id} up to date", look)

    async def _change_voters(self, make: Callable[[], Request]) -> None:
        """Ask the leader until the change is made; a new leader, or one that sees the replica lag, refuses."""
        again = {
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.DUPLICATE_VOTER,
            ErrorCode.VOTER_NOT_FOUND,
        }
        with trio.move_on_after(_WAIT_S):
            asked = False
            while True:
                leader = await self._leader()
                answer = await self._client.ask(leader.address, make())
                if not isinstance(answer, Failure):
                    error = ErrorCode.of(answer.error_code)
                    # Refused because it was done already: by this request, whose first answer was lost.
                    if error is ErrorCode.NONE or (
                        asked and error in (ErrorCode.DUPLICATE_VOTER, ErrorCode.VOTER_NOT_FOUND)
                    ):
                        return
                    if error not in again:
                        raise DemoError(f"the voters cannot be changed: {error.name} {answer.error_message or ''}")
                asked = True
                await trio.sleep(_POLL_S * 5)
        raise DemoError(f"the voters could not be changed within {_WAIT_S:g} s")

    # --- the verdict --------------------------------------------------------------------------------------------------

    def _verify(self, removed: Member) -> None:
        stream, outcome = self._stream, self._outcome
        assert stream is not None  # noqa: S101
        acknowledged = sorted(stream.acknowledged)
        ends = {member.id: log_end(member.directory) for member in self._all}
        removed_end = ends[removed.id]
        # While the replicas stop, some may still elect a leader, whose first record the stopped ones lack.
        common_end = min(ends[member.id] for member in self._all if member is not removed)
        for member in self._all:
            try:
                hash_at = (removed_end, common_end, ends[member.id])
                found = check_replica(member.id, member.directory, acknowledged, self._lines, hash_at)
            except CorruptDataError as error:
                outcome.problems.append(f"node {member.id}: {error}")
                continue
            outcome.findings.append(found)
            outcome.problems += [f"node {member.id}: {problem}" for problem in found.problems]
            if member is not removed and found.records != stream.records:
                outcome.problems.append(
                    f"node {member.id} has {found.records} records, but {stream.records} were acknowledged"
                )
        whole = {found.hashes.get(common_end) for found in outcome.findings if found.node_id != removed.id}
        begun = {found.hashes.get(removed_end) for found in outcome.findings}
        if len(whole) > 1 or len(begun) > 1:
            outcome.problems.append("the replicas' logs differ in their bytes")
        outcome.figures |= {
            "acknowledged": stream.records,
            "batches": len(stream.acknowledged),
            "sent_again": stream.retries,
            "input_passes": round(stream.passed, 2),
            "removed": removed.id,
        }


def _latencies(seconds: Sequence[float]) -> dict[str, float | None]:
    p50, p99 = percentile_ms(seconds, 0.5), percentile_ms(seconds, 0.99)
    return {
        "commit_p50_ms": None if p50 is None else round(p50, 3),
        "commit_p99_ms": None if p99 is None else round(p99, 3),
    }


def bytes_of(directory: str) -> int:
    """Bytes that the replicas wrote."""
    return sum(os.path.getsize(os.path.join(folder, name)) for folder, _, names in os.walk(directory) for name in names)
