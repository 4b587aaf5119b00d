"""``attach`` and ``open_or_attach``: several processes of a host use one node.

An attached process runs a replica of its own, an observer without a name, in a temporary folder that is never synced,
and with its own state machine. All that the process sends goes
through the socket of the node (`kraftcore.node.attach_socket`).

One connection is there to notice the node's end. ``attach`` then ends with an error. ``open_or_attach`` goes on: the
replica has a copy of the log, and waits for the next node in that directory, which one of the processes opens.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from struct import Struct
from typing import Any

import trio

from kraftcore import __version__
from kraftcore.config import NodeConfig
from kraftcore.config.errors import ConfigError
from kraftcore.config.node_settings import SETTINGS
from kraftcore.config.settings import INT64_MAX
from kraftcore.core.disk.os_files import VolatileFiles
from kraftcore.core.uuid import Uuid
from kraftcore.errors import (
    AuthenticationError,
    KraftError,
    LocalError,
    LockedError,
    NodeStoppedError,
    RemoteProtocolError,
    TransportError,
    UnreachableError,
)
from kraftcore.node.attach_socket import FORMAT, HELLO_ID, OWNER, SOCKET, Hello, Told, decode_told, encode, names_of
from kraftcore.node.attached_engine import AttachedEngine
from kraftcore.node.engine import Engine
from kraftcore.node.mirror import open_mirror, remove_left_folders, temporary_folder
from kraftcore.node.node import Node
from kraftcore.node.opening import open_node, run_engine, unshared
from kraftcore.node.plugin import Plugin
from kraftcore.node.wrong_library import of_trio
from kraftcore.ownership import at_end
from kraftcore.ports.nursery import uninterrupted
from kraftcore.ports.transport import Address, Parts
from kraftcore.state_machine import Machine, StateMachine, check_state_machine
from kraftcore.transports.tcp import Limits, TcpTransport
from kraftcore.transports.tcp.dial import Target, connect

AGAIN_S = 0.05
PATIENCE_S = 30.0
"""For how long a process may have locked the directory without being one that others can attach to."""
_ANSWER_S = 10.0
_SAY_AFTER_S = 1.0
_ASK_EVERY_S = 1.0
_SILENT_ASKS = 3  # so many times that long without an answer, and the node's process is said to be silent
_CATCH_UP_S = 2.0  # for which a block waits at most until its replica has what is committed
_KIND = "attached"
_UNIX = int(socket.AF_UNIX)
_OWN_SETTINGS = {  # of an attached process: whatever its node has
    "inline_flush_bytes": INT64_MAX,  # a flush is nothing
    "busy_poll_us": 0,
    "append_linger_ms": 0,
    "reconnect_backoff_ms": 20,
    "reconnect_backoff_max_ms": 200,
}
_ANSWER_BYTES = 8  # its length, and the correlation id
_HEAD = Struct(">iii")  # length, and the eight bytes that frames begin with
_logger = logging.getLogger("kraftcore.node")


class AttachedConfig(NodeConfig):
    """What an attached process was told of its node's settings; ``node_id`` is the node's."""

    def _check_quorum(self) -> None:
        """The node has checked it; and here its id is among the voters, though this process is none of them."""


@of_trio
@asynccontextmanager
@uninterrupted
async def attach(directory: str | os.PathLike[str], state_machine: Machine) -> AsyncIterator[Node[Machine]]:
    """Use the node that another process of this host has open, for as long as the block runs.

    The node was opened with ``attachable=True``, or by ``open_or_attach``, by the same user. This process gets a
    replica of its own, with its own state machine, and no vote; its appends are always forwarded to the leader. As
    with ``forward=True``, a record that came here inside a snapshot has None for its result. The block begins when the
    replica has all that is committed, or after two seconds without a leader.

    Args:
        directory: of the node.
        state_machine: like the node's; empty.

    Yields:
        A node with all methods of any other; those that only a leader can serve raise `NotLeaderError`.

    Raises:
        LocalError: this is not trio; the state machine lacks a method, or is another one than the node's, by the names
            of its class and that class's bases; the directory is another user's.
        UnreachableError: nobody has the directory's node open, or not with ``attachable=True``.
        RemoteProtocolError: the other process has another version of kraftcore.
        StorageError: there is no room for a temporary folder.
        NodeStoppedError: the node ended, or this replica failed; ``__cause__`` says why.
    """
    try:
        folder = os.path.abspath(os.fsdecode(directory))
    except TypeError:
        raise LocalError(
            f"attach takes the directory of the node first, as its configuration names it (config.directory), and was "
            f"given {type(directory).__name__}"
        ) from None
    check_state_machine(state_machine)
    async with _attached(folder, await connect_to_owner(folder), state_machine, None) as node:
        yield node


@of_trio
@asynccontextmanager
@uninterrupted
async def open_or_attach(
    config: NodeConfig, make_machine: Callable[[], Machine], *, plugins: Callable[[], Sequence[Plugin]] = tuple
) -> AsyncIterator[Node[Machine]]:
    """Open a node, or attach to it if another process of this host has it open: one call for all processes.

    When the process that has the node ends, another one opens the node; what the block got stays as it is, in all
    processes that go on. Calls wait meanwhile, as they do through elections.

    Args:
        config: of the node, the same in all processes; ``attachable`` is set here.
        make_machine: makes a new, empty state machine: its class, or a function. It is called several times: a process
            that opens the node later needs another one.
        plugins: makes the node's plugins, where it is opened.

    Yields:
        The node, or one as ``attach`` has it.

    Raises:
        LocalError: see ``open_node``; or the node that is open is another cluster's, or has another id, topic or state
            machine.
        LockedError: the directory is locked, for half a minute by now, by a process that nobody can attach to; or this
            process has the node open, without ``attachable``.
        RemoteProtocolError: see ``attach``.
        CorruptDataError, StorageError, TransportError, NodeStoppedError: see ``open_node``.
    """
    if not isinstance(config, NodeConfig):
        raise LocalError(f"open_or_attach takes a NodeConfig first, and was given {type(config).__name__}")
    if not callable(make_machine):
        raise LocalError(
            f"open_or_attach makes state machines itself, and was given one: give it the class or a function, as "
            f"open_or_attach(config, {type(make_machine).__name__}), not an object"
        )
    config = replace(config, attachable=True)
    machine = make_machine()
    check_state_machine(machine)
    if make_machine() is machine:
        raise LocalError(
            f"open_or_attach got the same {type(machine).__name__} from its function twice: a process that opens the "
            "node later needs a second state machine, so give it the class, or a function that makes a new object"
        )
    opener = _Opener(config, lambda: open_node(config, make_machine(), plugins=plugins()))
    async with AsyncExitStack() as stack:
        node: Node[Machine] | None = None
        while node is None:
            control = await opener.connect_to_owner()
            if control is not None:
                node = await stack.enter_async_context(_attached(opener.directory, control, machine, opener))
            else:
                node = await opener.open(stack)
        yield node


# --- the attached side ------------------------------------------------------------------------------------------------


@asynccontextmanager
@uninterrupted
async def _attached(
    directory: str, control: Control, machine: Machine, opener: _Opener | None
) -> AsyncIterator[Node[Machine]]:
    async with AsyncExitStack() as stack:
        stack.callback(lambda: keeper.control.close())
        keeper = _Keeper(directory, control, machine, opener)
        keeper.check_machine()
        files = VolatileFiles()
        await trio.to_thread.run_sync(remove_left_folders, files, _KIND)
        folder = stack.enter_context(temporary_folder(_KIND))
        told = control.told
        config = _config_of(told, folder)
        transport = await stack.enter_async_context(
            TcpTransport(
                resolve=_ToSocket(directory),
                login=_Greeting,
                log=lambda text: _logger.debug("%s", text),
                **config.settings_of(Limits),
            )
        )
        opened = (files, folder, told.cluster_id, config.topic, config.topic_id, config.log_config())
        home = await trio.to_thread.run_sync(open_mirror, *opened)
        stack.callback(home.close)

        def make(nursery: trio.Nursery, end: Callable[[], object]) -> Engine:
            return AttachedEngine(config, home, machine, transport, nursery, end, directory)

        def begin(engine: Engine, nursery: trio.Nursery) -> None:
            engine.begin()
            engine.spawn(keeper.run, engine)

        async with run_engine(make, begin, _nothing, lambda: None) as engine:
            # A process may end within the block: its folder goes then, while the node's thread still runs.
            stack.enter_context(at_end(engine.executor.stop))
            node = Node(engine, machine)
            with trio.move_on_after(_CATCH_UP_S), suppress(KraftError):  # its replica begins empty
                await node.read_barrier()
            yield node


async def _nothing(_: Engine) -> None:
    pass


def _config_of(told: Told, folder: str) -> AttachedConfig:
    given: dict[str, Any] = {name: value for name, value in told.settings.items() if name in SETTINGS}
    return AttachedConfig(
        **{
            **given,
            **_OWN_SETTINGS,
            "node_id": told.node_id,
            "directory": folder,
            "cluster_id": told.cluster_id,
            "topic": told.topic,
            "topic_id": Uuid.from_string(told.topic_id),
            "voters": told.voters,
            "bootstrap_servers": (OWNER,),
            "can_become_voter": False,
        }
    )


class _ToSocket:
    """Finds the node's socket behind every address."""

    def __init__(self, directory: str) -> None:
        self._found: Target = (_UNIX, os.path.join(directory, SOCKET))

    async def __call__(self, address: Address) -> Sequence[Target]:
        return (self._found,)


class _Greeting:
    """The first frame of a connection, which says where it leads; see `ClientSession`."""

    lifetime_ms: int | None = None

    def __init__(self, address: Address) -> None:
        self._to = (address.host, address.port)

    async def prepare(self) -> None:
        """Nothing is needed."""

    def begin(self) -> Parts:
        """See `ClientSession`."""
        return (_HEAD.pack(0, 0, HELLO_ID)[4:], encode(Hello(FORMAT, __version__, self._to)))

    renew = begin

    def take(self, frame: bytes) -> Parts | None:
        """See `ClientSession`."""
        try:
            decode_told(memoryview(frame)[4:])
        except RemoteProtocolError as error:
            raise AuthenticationError(str(error)) from None
        return None


class Control:
    """The connection by which an attached process notices its node's end.

    Attributes:
        told: what the node says of itself.
    """

    def __init__(self, sock: trio.socket.SocketType, told: Told) -> None:
        self._sock = sock
        self.told = told

    async def gone(self, directory: str) -> None:
        """Wait until the other side has closed the connection. When it is there and does not answer, that is logged.

        Args:
            directory: of the node, for people.
        """
        with suppress(OSError):
            await self._ask()
            while True:
                with trio.move_on_after(_ASK_EVERY_S):
                    await self._sock.recv(1)
                    return  # each answer was taken, so this is the end
                await self._ask()  # it answers what was asked before
                if not await self._answer(directory):
                    return

    async def _ask(self) -> None:
        await _send(self._sock, _HEAD.pack(8, 0, 0))

    async def _answer(self, directory: str) -> bytes:
        asked = trio.current_time()
        for _ in range(_SILENT_ASKS):  # one long wait would also be over if this process had been stopped meanwhile
            with trio.move_on_after(_ASK_EVERY_S):
                return await self._sock.recv(_ANSWER_BYTES)
        _logger.warning(
            "process %d, which has the node of %s open, has not answered for %.0f s: it may be stopped (SIGSTOP), or "
            "what it runs keeps its event loop busy; calls of this process wait for it",
            *(self.told.pid, directory, trio.current_time() - asked),
        )
        found = await self._sock.recv(_ANSWER_BYTES)
        if found:
            took_s = trio.current_time() - asked
            _logger.warning("process %d of %s answers again, after %.0f s", self.told.pid, directory, took_s)
        return found

    def close(self) -> None:
        """Close it."""
        self._sock.close()


async def connect_to_owner(directory: str) -> Control:
    """Connect to the node of a directory.

    Raises:
        UnreachableError: nobody listens there, or nobody answers.
        LocalError: the directory is another user's.
        RemoteProtocolError: the other side has another version of kraftcore.
        TransportError: the path is too long for this system.
    """
    path = os.path.join(directory, SOCKET)
    try:
        sock = trio.socket.from_stdlib_socket(await connect((_UNIX, path)))
    except PermissionError:
        raise _not_allowed(directory) from None
    except TransportError:
        raise
    except OSError as error:
        raise UnreachableError(
            f"no process has the node of {directory} open with attachable=True: open it there (NodeConfig(..., "
            "attachable=True)), or use kraftcore.open_or_attach, which opens it if nobody has",
            last_failure=f"{path}: {error.strerror}",
            outcome_unknown=False,
        ) from None
    try:
        with trio.move_on_after(_ANSWER_S):
            hello = encode(Hello(FORMAT, __version__))
            await _send(sock, _HEAD.pack(8 + len(hello), 0, HELLO_ID) + hello)
            size = int.from_bytes(await _receive(sock, 4))
            told = decode_told(memoryview(await _receive(sock, size))[4:])
            return Control(sock, told)
        raise _silent(path, f"no answer within {_ANSWER_S:g} s: the process may be stopped (SIGSTOP)")
    except (EOFError, OSError) as error:
        sock.close()
        raise _silent(path, f"it ended: {error}") from None
    except BaseException:
        sock.close()
        raise


def _not_allowed(directory: str) -> LocalError:
    try:
        owner = f"user {os.stat(directory).st_uid}"
    except OSError:
        owner = "another user"
    return LocalError(
        f"{directory} belongs to {owner}, and this process runs as user {os.geteuid()}: only the user whose process "
        "has the node open may attach to it; run both as the same user"
    )


def _silent(path: str, why: str) -> UnreachableError:
    return UnreachableError(
        f"the process that has the node of {os.path.dirname(path)} open does not answer: {why}",
        last_failure=f"{path}: {why}",
        outcome_unknown=False,
    )


async def _send(sock: trio.socket.SocketType, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[await sock.send(left) :]


async def _receive(sock: trio.socket.SocketType, size: int) -> bytes:
    found = b""
    while len(found) < size:
        got = await sock.recv(size - len(found))
        if not got:
            raise EOFError("the connection was closed")
        found += got
    return found


# --- the node's end ---------------------------------------------------------------------------------------------------


class _Keeper:
    """Watches the connection to the node, and does what is to be done at its end.

    Args:
        directory: of the node.
        control: to the node.
        machine: this process's.
        opener: goes on; None: the replica stops.

    Attributes:
        control: to the present node.
    """

    def __init__(self, directory: str, control: Control, machine: StateMachine, opener: _Opener | None) -> None:
        self._directory = directory
        self.control = control
        self._machine = machine
        self._opener = opener

    async def run(self, engine: Engine) -> None:
        """Run until the engine ends; what it raises stops the engine."""
        cluster_id = self.control.told.cluster_id
        while True:
            await self.control.gone(self._directory)
            if self._opener is None:
                raise NodeStoppedError(
                    f"process {self.control.told.pid}, which had the node of {self._directory} open, ended or closed "
                    "it: attach again when another one has opened it; kraftcore.open_or_attach goes on by itself"
                )
            self.control.close()
            self.control = await self._opener.next(engine)
            if self.control.told.cluster_id != cluster_id:
                raise LocalError(
                    f"the node that is open in {self._directory} now is of cluster {self.control.told.cluster_id}, not "
                    f"{cluster_id}: the directory was replaced"
                )
            self.check_machine()

    def check_machine(self) -> None:
        """See that both state machines read the same records, as far as their classes' names tell.

        Raises:
            LocalError: they have nothing in common.
        """
        ours, told = names_of(self._machine), self.control.told
        if not set(ours) & set(told.machine):
            raise LocalError(
                f"the state machine here is of class {ours[0]}, but process {told.pid} has the node of "
                f"{self._directory} open with one of class {told.machine[0]}: give the same class in all processes; "
                "different ones that read the same records and snapshots are to have a base class in common"
            )


class _Opener:
    """Opens the node of a directory, unless another process has.

    Args:
        config: of the node.
        make: opens it.
    """

    def __init__(self, config: NodeConfig, make: Callable[[], AbstractAsyncContextManager[Node[Any]]]) -> None:
        self.directory = os.path.abspath(config.directory)
        self._config = config
        self._make = make
        self._unreachable: UnreachableError | None = None  # why it could not be attached to,
        self._asked_s = 0.0  # and how long that took to find out
        self._since: float | None = None  # when the directory was first found to be locked by nobody to attach to
        self._has_said = False

    async def connect_to_owner(self) -> Control | None:
        """Connect to the node; None: nobody has it open."""
        began = trio.current_time()
        try:
            control = await connect_to_owner(self.directory)
        except UnreachableError as error:
            self._unreachable, self._asked_s = error, trio.current_time() - began
            return None
        self._since = None
        try:
            self._check(control.told)
        except BaseException:
            control.close()
            raise
        return control

    def _check(self, told: Told) -> None:
        config = self._config
        pairs = {
            "cluster_id": (config.cluster_id or told.cluster_id, told.cluster_id),
            "node_id": (config.node_id, told.node_id),
            "topic": (config.topic, told.topic),
        }
        for name, (ours, theirs) in pairs.items():
            if ours != theirs:
                raise ConfigError(
                    f"{name} is {ours!r}, but process {told.pid} has {self.directory} open with {theirs!r}: give all "
                    "processes the same configuration",
                    [name],
                )

    async def open(self, stack: AsyncExitStack) -> Node[Any] | None:
        """Open the node; None, after a pause: another process is about to, or the last one is not quite gone."""
        try:
            return await stack.enter_async_context(self._make())
        except (LockedError, TransportError) as error:
            await self._wait(error)
            return None

    async def _wait(self, error: Exception) -> None:
        if self.directory in unshared and isinstance(error, LockedError):
            raise LockedError(
                f"{self.directory} is open already in this process, by open_node without attachable=True: use that "
                "node, or open it by open_or_attach there as well",
                os.getpid(),
            )
        now = trio.current_time()
        if self._since is None:
            self._since = now - self._asked_s
        waited_s = now - self._since
        if waited_s > PATIENCE_S:
            raise error from self._unreachable
        if waited_s > _SAY_AFTER_S and not self._has_said:
            self._has_said = True
            _logger.warning(
                "%s can neither be attached to nor opened, and is tried again for %d s: %s; %s",
                *(self.directory, PATIENCE_S, self._unreachable, error),
            )
        await trio.sleep(AGAIN_S)

    async def next(self, engine: Engine) -> Control:
        """Connect to the next node in the directory, which may be one that this process opens."""
        while True:
            engine.check_running()
            control = await self.connect_to_owner()
            if control is not None:
                return control
            tried = trio.Event()
            engine.spawn(self._own, tried)
            await tried.wait()

    async def _own(self, tried: trio.Event) -> None:
        """Open the node beside the replica, and keep it open; its end is the replica's."""
        try:
            async with AsyncExitStack() as stack:
                if await self.open(stack) is not None:
                    tried.set()
                    await trio.sleep_forever()
        finally:
            tried.set()
