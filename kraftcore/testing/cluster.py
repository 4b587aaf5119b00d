"""A quorum in one process: real nodes over a network in memory, on simulated disks or in a directory."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, Self, TypeAlias, TypeVar, Unpack

import trio

from kraftcore.config import NodeConfig
from kraftcore.config.node_settings import SharedSettings
from kraftcore.core.disk.files import Files
from kraftcore.core.disk.os_files import OsFiles
from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.uuid import Uuid
from kraftcore.errors import KraftError, LocalError, NodeStoppedError
from kraftcore.node import Node, open_node
from kraftcore.node.home import format_home
from kraftcore.node.plugin import Plugin
from kraftcore.node.plugin_node import plugin_node
from kraftcore.ownership import Owned, belongs_here
from kraftcore.ports.async_library import check_trio
from kraftcore.ports.nursery import cancelled_part, first_of, open_nursery
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.raft.quorum import VersionRange, Voter, VoterSet
from kraftcore.state_machine import StateMachine
from kraftcore.testing.clock import TIMEOUT_S, no_jumps
from kraftcore.testing.comparison import differing_logs, state_of
from kraftcore.testing.ending import raise_end
from kraftcore.testing.network import cut_apart
from kraftcore.transports.memory import MemoryNetwork

Machine = TypeVar("Machine", bound=StateMachine)
WhichNode: TypeAlias = Node | int
CrashMode: TypeAlias = Literal["lost", "kept", "torn", "reordered", "mixed"]

_POLL_S = 0.01
_FIRST_PORT = 9093


@dataclass(eq=False, slots=True)
class _Member(Generic[Machine]):
    """A place for a node, kept while the node itself is killed and started anew."""

    config: NodeConfig
    key: ReplicaKey
    files: Files
    node: Node[Machine] | None = None
    machine: Machine | None = None
    scope: trio.CancelScope | None = None
    ended: trio.Event | None = None
    was_killed: bool = False


class Cluster(Owned, Generic[Machine]):
    """N voters of one quorum, all in this process: ``async with Cluster(3, MyMachine) as cluster``.

    Nodes, logs and frames are the real ones. Node ids are 1 to N. Time is trio's: with ``trio.testing.MockClock``
    timeouts take no time; use the simulated disks then, as time would leap while a real disk is slow.

    When the block ends, the nodes end as if their power was cut. A node that stopped by itself, for its state machine
    or disk failed, and was not started again, makes the block raise its `NodeStoppedError`, or is the cause of what the
    block raises itself. Anything else that a
    running node raises, such as ``pytest.fail`` in a plugin, ends the block at once, and comes out of it as it is.

    Args:
        size: how many voters, >= 1.
        machine: makes a node's state machine, each time the node starts.
        directory: keep the nodes' files in folders of this one, which may hold those of an earlier cluster with the
            same size; None: on a simulated disk each, which knows what a power cut loses.
        seed: of what is drawn at random by network and disks.
        plugins: makes a node's plugins, each time it starts.
        settings: further settings of all nodes, by ``NodeConfig``'s names.

    Attributes:
        network: the network in memory; its delays and losses can be set at any time.
        nodes: the running nodes by id.
        failures: why nodes stopped by themselves, by id; delete what the test expected.
    """

    def __init__(
        self,
        size: int,
        machine: Callable[[], Machine],
        *,
        directory: str | os.PathLike[str] | None = None,
        seed: int = 0,
        plugins: Callable[[], Sequence[Plugin]] = tuple,
        **settings: Unpack[SharedSettings],
    ) -> None:
        if not isinstance(size, int):  # a program may be mistaken
            raise LocalError(f"the size of a cluster is {size!r}: it must be a number of nodes")
        if not callable(machine):
            raise LocalError(
                f"Cluster makes a state machine for each node, and was given one, of class {type(machine).__name__}: "
                f"give the class, or a function that makes one: Cluster({size}, {type(machine).__name__})"
            )
        if size < 1:
            raise LocalError(f"a cluster of {size} nodes has nothing to run: use at least 1")
        self.network = MemoryNetwork(seed=seed)
        self.failures: dict[int, NodeStoppedError] = {}
        self._make_machine = machine
        self._make_plugins = plugins
        self._directory = None if directory is None else os.fspath(directory)
        self._seed = seed
        self._settings = settings
        self._random = random.Random(f"cluster {seed}")
        self._members: dict[int, _Member[Machine]] = {}
        self._cluster_id = str(Uuid.random(self._random.randbytes))
        first = [self._new_member(node_id) for node_id in range(1, size + 1)]
        voters = VoterSet(tuple(Voter(member.key, member.config.listeners, VersionRange(0, 1)) for member in first))
        for member in first:
            self._format(member, voters)
        self._block: AbstractAsyncContextManager[Self] | None = None
        self._fault: BaseException | None = None

    def _new_member(self, node_id: int) -> _Member[Machine]:
        port = _FIRST_PORT + node_id
        settings: dict[str, Any] = {
            "node_id": node_id,
            "directory": os.path.join(self._directory or "/", f"node-{node_id}"),
            "listeners": [f"CONTROLLER://node-{node_id}:{port}"],
            "bootstrap_servers": [f"node-1:{_FIRST_PORT + 1}", f"node-2:{_FIRST_PORT + 2}"],
            # A thread would let a mock clock leap.
            "inline_flush_bytes": 1 << 40,
            # How often the loop turns would depend on the machine.
            "busy_poll_us": 0,
            **self._settings,
        }
        config = NodeConfig(**settings)
        disk = SimulatedDisk(random.Random(f"disk {node_id} {self._seed}"))
        files: Files = disk if self._directory is None else OsFiles()
        member = _Member[Machine](config, ReplicaKey(node_id, Uuid.random(self._random.randbytes)), files)
        self._members[node_id] = member
        return member

    def _format(self, member: _Member[Machine], voters: VoterSet) -> None:
        member.files.make_folder(member.config.directory)
        if not member.files.exists(os.path.join(member.config.directory, "meta.properties")):
            format_home(member.files, member.config, member.key, self._cluster_id, voters)

    # --- running ------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        check_trio("kraftcore.testing.Cluster")
        if self._block is not None:
            raise LocalError("a cluster is used once: make another one")
        self._block = self._run()
        return await self._block.__aenter__()

    if not TYPE_CHECKING:  # type checkers find the plain `with` by themselves

        def __enter__(self) -> NoReturn:
            raise LocalError("write `async with` for a cluster: it is for trio")

        def __exit__(self, *_: object) -> None: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if not belongs_here(self) or self._block is None:
            return None
        return await self._block.__aexit__(kind, error, trace)

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[Self]:
        raised: BaseException | None = None
        async with open_nursery() as self._nursery:
            try:
                for node_id in self._members:
                    await self.start(node_id)
                yield self
            except BaseException as error:
                raised = error  # what it comes of is known at the end
            with trio.CancelScope(shield=True):
                for node_id in self._members:
                    if node_id in self.nodes:
                        await self.kill(node_id, "kept")
        raise_end(raised, self._fault, self.failures)

    async def start(self, node: WhichNode) -> Node[Machine]:
        """Start a node that does not run; it has a new state machine, and what its disk kept.

        Returns:
            The node; it replays its log, and need not know a leader yet.

        Raises:
            LocalError: it runs.
            KraftError: see ``open_node``.
        """
        member = self._member(node)
        if member.node is not None:
            raise LocalError(f"node {member.key.id} runs")
        self.failures.pop(member.key.id, None)
        member.was_killed = False
        async with no_jumps():
            started: Node[Machine] = await self._nursery.start(self._run_node, member)
        return started

    async def _run_node(self, member: _Member[Machine], *, task_status: trio.TaskStatus[Node[Machine]]) -> None:
        member.machine = self._make_machine()
        member.ended = trio.Event()
        began = False
        try:
            with trio.CancelScope() as member.scope:
                async with (
                    self.network.transport(_name(member.key.id)) as transport,
                    open_node(
                        member.config,
                        member.machine,
                        transport=transport,
                        files=member.files,
                        plugins=self._make_plugins(),
                    ) as node,
                ):
                    began = True
                    member.node = node
                    task_status.started(node)
                    await trio.sleep_forever()
        except NodeStoppedError as error:
            if not member.was_killed:
                self.failures[member.key.id] = error
        except BaseException as error:
            own = cancelled_part(error)[1]
            if own is None or not began:
                raise
            # A dead disk makes the files' own end fail too.
            if not (member.was_killed and isinstance(own, Exception)):
                self._fault = first_of(own)  # raised again outside the nursery
                self._nursery.cancel_scope.cancel()
        finally:
            self.network.resume(_name(member.key.id))
            member.node = None
            member.ended.set()

    async def stop(self, node: WhichNode) -> None:
        """Stop a node in good order: it hands leadership over, and closes its log. One that is paused goes on."""
        member = self._running(node)
        self.network.resume(_name(member.key.id))
        member.scope.cancel()  # type: ignore[union-attr]
        await member.ended.wait()  # type: ignore[union-attr]

    async def kill(self, node: WhichNode, disk: CrashMode = "mixed") -> None:
        """End a node as SIGKILL would, and its simulated disk as a power cut would. Peers see connections break.

        Args:
            node: which one.
            disk: what becomes of what was not synced: ``lost``, ``kept``, ``torn`` (some, the last of it partly),
                ``reordered`` (any of it), ``mixed`` (drawn anew for each file). In a directory everything is kept.
        """
        member = self._running(node)
        name = _name(member.key.id)
        member.was_killed = True
        if isinstance(member.files, SimulatedDisk):
            member.files = member.files.crash(disk)
        self.network.refuse(name)
        try:
            plugin_node(member.node).abort()  # type: ignore[arg-type]
            await member.ended.wait()  # type: ignore[union-attr]
        finally:
            self.network.accept(name)

    async def restart(self, node: WhichNode, disk: CrashMode = "mixed") -> Node[Machine]:
        """``kill`` a node if it runs, and ``start`` it."""
        if self._member(node).node is not None:
            await self.kill(node, disk)
        return await self.start(node)

    def pause(self, node: WhichNode) -> None:
        """Freeze a node: it takes nothing from others and sends them nothing until ``resume``; connections stay.

        Its timers, and calls of its own application, go on.
        """
        self.network.pause(_name(self._running(node).key.id))

    def resume(self, node: WhichNode) -> None:
        """Undo ``pause``: what waited for the node is taken now, in order."""
        self.network.resume(_name(self._running(node).key.id))

    async def add(self, *, voter: bool = True) -> Node[Machine]:
        """Start one more node, with the next id.

        Args:
            voter: make it a voter, as soon as it has caught up; else it stays an observer.

        Raises:
            AssertionError: it does not catch up in time.
            RefusedError: see ``Node.add_voter``.
        """
        member = self._new_member(max(self._members) + 1)
        self._format(member, VoterSet())
        node = await self.start(member.key.id)
        if voter:
            leader = await self._leader_seen_by(node)
            await leader.add_voter(node.key.id, node.key.directory_id, node.endpoints)
        return node

    async def _leader_seen_by(self, node: Node[Machine]) -> Node[Machine]:
        with trio.move_on_after(TIMEOUT_S):
            while True:
                leader = await self.wait_leader()
                if any(seen.key == node.key and seen.lag == 0 for seen in leader.status().replicas):
                    return leader
                await trio.sleep(_POLL_S)
        raise AssertionError(f"node {node.key.id} did not catch up in {TIMEOUT_S:g} s: {self._positions()}")

    # --- the network --------------------------------------------------------------------------------------------------

    def partition(self, *groups: WhichNode | Iterable[WhichNode]) -> None:
        """Let nothing pass between these groups any more; who is in none of them is in a group with the others left.

        ``cluster.partition(leader)`` cuts the leader off; ``cluster.partition([1, 2], [3, 4, 5])`` halves five nodes.
        Nobody is told: connections stay, and are silent. Undo it with ``heal``.

        Raises:
            LocalError: a node is in two groups, or there is no such node.
        """
        lists = [[group] if isinstance(group, Node | int) else list(group) for group in groups]
        names = [[_name(self._member(each).key.id) for each in group] for group in lists]
        cut_apart(self.network, map(_name, self._members), names)

    def heal(self) -> None:
        """Undo every ``partition``."""
        self.network.heal()

    # --- looking ------------------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> dict[int, Node[Machine]]:
        """The running nodes, by id."""
        return {node_id: member.node for node_id, member in self._members.items() if member.node is not None}

    def machine(self, node: WhichNode) -> Machine:
        """A node's present state machine; of a node that was killed, the last one.

        Raises:
            LocalError: it was never started.
        """
        member = self._member(node)
        if member.machine is None:
            raise LocalError(f"node {member.key.id} was never started")
        return member.machine

    @property
    def leader(self) -> Node[Machine] | None:
        """The running node that leads in the highest epoch, as far as it knows itself; see ``wait_leader``."""
        leading = [node for node in self.nodes.values() if node.is_leader]
        return max(leading, key=lambda node: node.status().epoch, default=None)

    @property
    def followers(self) -> list[Node[Machine]]:
        """The running nodes but ``leader``."""
        leader = self.leader
        return [node for node in self.nodes.values() if node is not leader]

    async def wait_leader(self, timeout_s: float = TIMEOUT_S) -> Node[Machine]:
        """Wait for a node that leads, and that a majority just confirmed.

        Raises:
            AssertionError: there is none in time.
        """
        with trio.move_on_after(timeout_s):
            while True:
                leader = self.leader
                if leader is not None:
                    with trio.move_on_after(leader.config.request_timeout_ms / 1000):
                        with suppress(KraftError):
                            await leader.read_barrier(forward=False)
                            if leader is self.leader:
                                return leader
                await trio.sleep(_POLL_S)
        raise AssertionError(f"no leader after {timeout_s:g} s: {self._positions()}")

    async def assert_all_equal(
        self, *, state: Callable[[Machine], Any] | None = None, timeout_s: float = TIMEOUT_S
    ) -> int:
        """Wait until all running nodes have everything, then check that their logs and applied states are equal.

        Args:
            state: what is compared of a state machine; None: the records of its snapshot, so ``snapshot`` must write
                equal states equally.
            timeout_s: for the waiting.

        Returns:
            The offset they all end at.

        Raises:
            AssertionError: they differ, and how, or they did not catch up in time.
        """
        end = await self._converge(timeout_s)
        nodes = list(self.nodes.values())
        for one, other in pairwise(nodes):
            difference = differing_logs(one, other, end)
            if difference is not None:
                raise AssertionError(difference)
        look: Callable[[Machine], Any] = state_of if state is None else state
        states = [look(self.machine(node)) for node in nodes]
        for (one, left), (other, right) in pairwise(zip(nodes, states, strict=True)):
            if left != right:
                raise AssertionError(
                    f"nodes {one.key.id} and {other.key.id} applied the same {end} offsets and are in different "
                    f"states:\n{left!r}\n{right!r}"
                )
        return end

    async def _converge(self, timeout_s: float) -> int:
        with trio.move_on_after(timeout_s):
            while True:
                leader = await self.wait_leader(timeout_s)
                end = leader.status().log_end_offset
                seen = [node.status() for node in self.nodes.values()]
                if all(status.log_end_offset == end == status.applied_offset for status in seen):
                    return end
                await trio.sleep(_POLL_S)
        raise AssertionError(f"the nodes did not catch up in {timeout_s:g} s: {self._positions()}")

    def _positions(self) -> str:
        seen = [node.status() for node in self.nodes.values()]
        texts = [
            f"node {status.node_id} {status.role.value} epoch {status.epoch}, log ends at {status.log_end_offset}, "
            f"applied {status.applied_offset}"
            for status in seen
        ]
        texts += [f"node {node_id} does not run" for node_id in self._members if node_id not in self.nodes]
        return "; ".join(texts)

    def _member(self, node: WhichNode) -> _Member[Machine]:
        node_id = node if isinstance(node, int) else node.key.id
        if node_id not in self._members:
            raise LocalError(f"there is no node {node_id}: there are {sorted(self._members)}")
        return self._members[node_id]

    def _running(self, node: WhichNode) -> _Member[Machine]:
        member = self._member(node)
        if member.node is None:
            raise LocalError(f"node {member.key.id} does not run")
        return member


def _name(node_id: int) -> str:
    return f"node-{node_id}"
