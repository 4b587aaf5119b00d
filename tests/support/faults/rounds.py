"""One round: nodes in processes of their own, clients that write down what they see, and everything going wrong.

Processes are killed (SIGKILL), stopped and continued (SIGSTOP, SIGCONT), restarted (SIGTERM); the network between them
is cut, in one direction or both, delayed, reset. Then all of it ends, and

* the quorum must commit again within `CALM_S`;
* the recorded history must be linearizable, key by key (``linearizability.check``);
* every acknowledged write must have been applied on every node, exactly once;
* all logs must be equal, byte for byte, as far as they overlap.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from socket import SO_REUSEADDR, SOL_SOCKET, socket

import trio
from broken import Broken
from kafka_lab import HOST, free_port
from linearizability import Operation, check, counter_step, register_step

from faults.client import Client, Outcomes
from faults.proxy import Links, Proxy
from kraftcore.config import NodeConfig
from kraftcore.core.batch import iter_batches
from kraftcore.core.disk.os_files import OsFiles
from kraftcore.core.log import Log
from kraftcore.core.log.config import LogConfig
from kraftcore.core.uuid import Uuid
from kraftcore.node.home import format_home
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.raft.quorum import VersionRange, Voter, VoterSet

CLUSTER_ID = "kraftcore-faults-00000"
CALM_S = 180.0  # a machine may be busy; what it took is reported
STOP_S = 20.0
CLIENTS = 6
MEMBER = Path(__file__).with_name("member.py")
KINDS = ("kill", "kill", "pause", "restart", "cut", "cut", "slow")


@dataclass
class Report:
    """What happened in a round; ``recovery_s`` is how long the calm had to last for 120 further answers."""

    seed: int
    nodes: int
    counts: Counter[str] = field(default_factory=Counter)
    recovery_s: float = 0.0

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {count}" for name, count in sorted(self.counts.items()))
        return f"seed {self.seed}: {self.nodes} nodes; {counts}; recovered in {self.recovery_s:.1f} s"


class Member:
    """A node's place, and its process while there is one."""

    def __init__(self, number: int, folder: Path, port: int, proxy_port: int, client_port: int) -> None:
        self.number = number
        self.folder = folder / str(number)
        self.port = port
        self.proxy_port = proxy_port
        self.client_port = client_port
        self.key = ReplicaKey(number, Uuid.random(os.urandom))
        self.process: subprocess.Popen[bytes] | None = None
        self.busy = False  # something is being done to it
        self.paused = False


class Round:
    """A round of faults at nodes in processes of their own, and what must hold after it.

    Args:
        seed: draws everything but what processes and kernel do.
        folder: an empty one.
        seconds: how long things go wrong.
    """

    def __init__(self, seed: int, folder: Path, seconds: float) -> None:
        self.rng = Random(seed)
        self.seconds = seconds
        self.links = Links()
        self.folder = folder
        count = self.rng.choice((3, 3, 4, 5))
        self.report = Report(seed, count)
        ports = [free_port() for _ in range(3 * count)]
        self.members = [Member(n + 1, folder, *ports[3 * n : 3 * n + 3]) for n in range(count)]
        quick = self.rng.random() < 0.5
        small = self.rng.random() < 0.5
        self.settings = {
            **({"election_timeout_ms": 300, "fetch_timeout_ms": 800} if quick else {}),
            **({"snapshot_bytes": 20_000, "retention_bytes": 40_000, "cleaning_period_ms": 700} if small else {}),
            **({"segment_bytes": 15_000, "max_batch_bytes": 15_000} if small else {}),
            "fetch_max_bytes": self.rng.choice((1_000, 1 << 20)),
            "fetch_snapshot_max_bytes": self.rng.choice((3_000, 1 << 20)),
        }
        self.outcomes = Outcomes(self.report.counts)
        self._everywhere = -1  # offset below which all have applied everything

    # --- processes ----------------------------------------------------------------------------------------------------

    def _config(self, member: Member) -> dict[str, object]:
        return {
            "node_id": member.number,
            "directory": str(member.folder),
            "listeners": [f"CONTROLLER://{HOST}:{member.port}"],
            "advertised_listeners": [f"CONTROLLER://{HOST}:{member.proxy_port}"],
            "bootstrap_servers": [f"{HOST}:{each.proxy_port}" for each in self.members],
            **self.settings,
        }

    def _plain_config(self, member: Member) -> dict[str, object]:
        """Without TLS and logins, of which directories know nothing."""
        apart = ("tls", "sasl", "listener_sasl")
        return {name: value for name, value in self._config(member).items() if name not in apart}

    def format(self) -> None:
        """Directories for the quorum's first voters."""
        configs = {member.number: NodeConfig(**self._plain_config(member)) for member in self.members}
        voters = VoterSet(
            tuple(
                Voter(member.key, configs[member.number].advertised_listeners, VersionRange(0, 1))
                for member in self.members
            )
        )
        for member in self.members:
            member.folder.mkdir(parents=True)
            format_home(OsFiles(), configs[member.number], member.key, CLUSTER_ID, voters)

    def start(self, member: Member) -> None:
        """Start a node's process, which ends when this one does, however it does."""
        given = json.dumps({"settings": self._config(member), "port": member.client_port})
        with open(self.folder / f"{member.number}.log", "ab") as log:
            member.process = subprocess.Popen(
                [sys.executable, "-P", str(MEMBER), given], stdin=subprocess.PIPE, stdout=log, stderr=log
            )

    async def _end(self, member: Member, how: int, limit_s: float = STOP_S) -> None:
        process = member.process
        if process is None:
            return
        process.send_signal(how)
        with trio.move_on_after(limit_s):
            while process.poll() is None:
                await trio.sleep(0.01)
        was_late = process.returncode is None
        _kill(process)
        if was_late:
            raise Broken(f"node {member.number} did not end within {limit_s:g} s of SIGTERM")
        member.process = None
        if process.returncode not in (0, -how):
            raise Broken(f"node {member.number} ended with status {process.returncode}: {self._last_words(member)}")

    def kill_all(self) -> None:
        """Leave no process behind."""
        for member in self.members:
            if member.process is not None:
                _kill(member.process)

    def _last_words(self, member: Member) -> str:
        return (self.folder / f"{member.number}.log").read_text(errors="replace")[-3000:]

    def check_alive(self) -> None:
        """A process that ended by itself is a broken promise."""
        for member in self.members:
            process = member.process
            if process is not None and not member.busy and process.poll() is not None:
                raise Broken(f"node {member.number} ended by itself: {self._last_words(member)}")

    # --- what goes wrong ----------------------------------------------------------------------------------------------

    async def torment(self, nursery: trio.Nursery) -> None:
        """One fault after the other; several last at a time."""
        end = trio.current_time() + self.seconds
        while trio.current_time() < end:
            await trio.sleep(self.rng.uniform(0.1, 1.2))
            self.check_alive()
            kind = self.rng.choice(KINDS)
            if kind in ("cut", "slow"):
                nursery.start_soon(self._cut if kind == "cut" else self._slow, end)
            else:
                member = await self._victim()
                if member is not None:
                    nursery.start_soon(partial(getattr(self, f"_{kind}"), member, end))

    async def _victim(self) -> Member | None:
        able = [member for member in self.members if member.process is not None and not member.busy]
        leader = self.outcomes.leader
        chosen = [member for member in able if member.number == leader]
        if chosen and self.rng.random() < 0.4:
            return chosen[0]
        return self.rng.choice(able) if able else None

    async def _rest(self, end: float, low: float, high: float) -> None:
        await trio.sleep(max(0.0, min(self.rng.uniform(low, high), end - trio.current_time())))

    async def _kill(self, member: Member, end: float) -> None:
        member.busy = True
        self.report.counts["kills"] += 1
        await self._end(member, signal.SIGKILL)
        await self._rest(end, 0.0, 2.5)
        self.start(member)
        member.busy = False

    async def _restart(self, member: Member, end: float) -> None:
        member.busy = True
        self.report.counts["restarts"] += 1
        await self._end(member, signal.SIGTERM)
        await self._rest(end, 0.0, 1.0)
        self.start(member)
        member.busy = False

    async def _pause(self, member: Member, end: float) -> None:
        member.busy = member.paused = True
        self.report.counts["pauses"] += 1
        process = member.process
        if process is not None:
            process.send_signal(signal.SIGSTOP)
            await self._rest(end, 0.1, 4.0)
            process.send_signal(signal.SIGCONT)
        member.busy = member.paused = False

    async def _cut(self, end: float) -> None:
        numbers = [member.number for member in self.members]
        inside = set(self.rng.sample(numbers, self.rng.randrange(1, len(numbers))))
        if self.outcomes.leader in numbers and self.rng.random() < 0.4:
            inside = {self.outcomes.leader}
        cut = {(one, other) for one in inside for other in numbers if other not in inside}
        way = self.rng.random()
        if way < 0.6:
            cut |= {(other, one) for one, other in cut}
        elif way < 0.8:
            cut = {(other, one) for one, other in cut}
        self.report.counts["partitions" if way < 0.6 else "one-way partitions"] += 1
        cut -= self.links.cut
        self.links.cut |= cut
        await self._rest(end, 0.2, 4.0)
        if self.rng.random() < 0.5:
            self.links.reset(cut)
        self.links.cut -= cut
        self.links.change()

    async def _slow(self, end: float) -> None:
        one, other = (member.number for member in self.rng.sample(self.members, 2))
        self.report.counts["slow links"] += 1
        self.links.delay_s[one, other] = self.rng.uniform(0.005, 0.3)
        await self._rest(end, 0.5, 4.0)
        self.links.delay_s.pop((one, other), None)

    # --- the round ----------------------------------------------------------------------------------------------------

    async def run(self) -> Report:
        """Run it.

        Raises:
            Broken: the quorum does not come back, a process ended, records are missing, or logs differ.
            AssertionError: the history is not linearizable.
        """
        self.format()
        sockets = []
        for member in self.members:
            sock = socket()
            sock.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
            sock.bind((HOST, member.proxy_port))
            sock.listen(64)
            sock.setblocking(False)
            sockets.append(sock)
        try:
            async with trio.open_nursery() as proxies:
                for member, sock in zip(self.members, sockets, strict=True):
                    proxies.start_soon(Proxy(self.links, member.number, member.port, sock).run)
                for member in self.members:
                    self.start(member)
                applied = await self._drive()
                async with trio.open_nursery() as ends:
                    for member in self.members:
                        ends.start_soon(self._end, member, signal.SIGTERM)
                proxies.cancel_scope.cancel()
        finally:
            self.kill_all()
        self.judge(applied)
        return self.report

    async def _drive(self) -> dict[int, dict[int, int]]:
        ports = {member.number: member.client_port for member in self.members}
        clients = [Client(number, ports, Random(self.rng.random()), self.outcomes) for number in range(1, CLIENTS + 1)]
        async with trio.open_nursery() as nursery:
            for client in clients:
                nursery.start_soon(client.run)
            await self._until(lambda: self.outcomes.answered >= 1, "the first answer")
            async with trio.open_nursery() as trouble:
                await self.torment(trouble)
            self.links.cut.clear()
            self.links.change()
            calm = trio.current_time()
            goal = self.outcomes.answered + 20 * CLIENTS
            await self._until(lambda: self.outcomes.answered >= goal, "answers when all was calm again")
            self.report.recovery_s = trio.current_time() - calm
            nursery.cancel_scope.cancel()
        return await self._applied_by_all()

    async def _until(self, condition, what: str) -> None:
        with trio.move_on_after(CALM_S):
            while not condition():
                self.check_alive()
                await trio.sleep(0.02)
            return
        raise Broken(f"waited {CALM_S:g} s for {what}")

    async def _applied_by_all(self) -> dict[int, dict[int, int]]:
        """How often each write was applied, by node, once all have applied the same."""
        client = Client(0, {member.number: member.client_port for member in self.members}, self.rng, self.outcomes)
        found: dict[int, dict[int, int]] = {}
        with trio.move_on_after(CALM_S):
            while True:
                self.check_alive()
                states = [await client.ask(member.number, [0, 0, None, "status", []]) for member in self.members]
                places = {(state or {}).get("applied") for state in states}
                ends = {(state or {}).get("end") for state in states}
                if len(places) == 1 and places == ends:
                    for member in self.members:
                        answer = await client.ask(member.number, [0, 0, None, "applied", []])
                        found[member.number] = dict((answer or {})["ok"])
                    client.close()
                    self._everywhere = places.pop()
                    return found
                await trio.sleep(0.05)
        raise Broken(f"the nodes did not come to apply the same within {CALM_S:g} s: {states}")

    # --- verdict ------------------------------------------------------------------------------------------------------

    def judge(self, applied: dict[int, dict[int, int]]) -> None:
        counts = self.report.counts
        history = self.outcomes.recorder.operations
        counts["operations"] = len(history)
        counts["unknown outcomes"] = sum(1 for operation in history if operation.answered == float("inf"))
        first = next(iter(applied.values()))
        for number, theirs in applied.items():
            missing = self.outcomes.acknowledged - set(theirs)
            if missing:
                raise Broken(f"node {number} lacks acknowledged writes: {sorted(missing)[:10]}")
            twice = [write for write in self.outcomes.numbered if theirs.get(write, 0) > 1]
            if twice:
                raise Broken(f"node {number} applied more than once: {sorted(twice)[:10]}")
            if theirs != first:
                raise Broken(f"node {number} applied other writes than node {next(iter(applied))}")
        counts["acknowledged writes"] = len(self.outcomes.acknowledged)
        counts["leader changes"] = self.compare_logs()
        for kind, step, initial in (("r", register_step, None), ("c", _count, 0)):
            theirs = [operation for operation in history if operation.arguments[0][0] == kind]
            check(theirs, step, initial, partition=_key)

    def compare_logs(self) -> int:
        """Compare; returns how many epochs began in what they share."""
        logs = {}
        with ExitStack() as stack:
            for member in self.members:
                folder = str(member.folder / "__cluster_metadata-0")
                log = logs[member.number] = Log.open(OsFiles(), folder, LogConfig(), now_ms=0)
                stack.callback(log.close)
            # While they stop, another one may lead for a moment and write that down.
            start = max(log.log_start_offset for log in logs.values())
            end = min(log.log_end_offset for log in logs.values())
            if end < self._everywhere:
                raise Broken(f"a log ends at {end}, all had {self._everywhere}")
            digests, epochs = set(), set()
            for log in logs.values():
                digest, at = hashlib.blake2b(), start
                while at < end:
                    for batch in iter_batches(log.read(at, 1 << 20)):
                        digest.update(batch.to_bytes())
                        epochs.add(batch.leader_epoch)
                        at = batch.next_offset
                digests.add(digest.digest())
            if len(digests) != 1:
                raise Broken(f"the logs differ between {start} and {end}")
            self.report.counts["log bytes compared"] = sum(log.size_in_bytes for log in logs.values())
        return max(epochs, default=1) - 1


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def _key(operation: Operation) -> str:
    return operation.arguments[0]


def _count(state: int, name: str, arguments: tuple) -> tuple[int, int]:
    return counter_step(state, name, arguments[1:])


async def run_round(seed: int, folder: Path, seconds: float) -> Report:
    """Run a round; what an exception leaves behind is in ``folder``.

    Args:
        seed: of what is drawn.
        folder: an empty one, on a real disk.
        seconds: how long things go wrong.
    """
    try:
        return await Round(seed, folder, seconds).run()
    except BaseExceptionGroup as group:
        with suppress(IndexError):
            raise _first(group) from group
        raise


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
