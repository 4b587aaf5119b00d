"""Where other processes of a host attach to a node: a Unix socket in its directory.

An attached process (`kraftcore.node.attaching`) is a replica of its own, an observer without a name, and it knows
nobody but this node. Each of its connections to the socket stands for one to another node, and begins with a frame that
names it. Later frames are Kafka's requests: the node passes them on over its own connections, logged in and encrypted
as these are, or answers them if they are for itself. So an attached process needs no configuration and no credentials;
what protects the socket are the permissions of its file.

The first frame and its answer are JSON behind the eight bytes that all frames begin with; see `Hello` and `Told`.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from struct import Struct
from typing import Any, Generic, Self

from kraftcore import __version__
from kraftcore.config import NodeConfig
from kraftcore.config.node_settings import SETTINGS
from kraftcore.errors import LocalError, RemoteProtocolError
from kraftcore.node.engine import Engine
from kraftcore.node.registry import Asker
from kraftcore.ports.transport import Address, Origin, Parts, Reply
from kraftcore.protocol.failure import Failure
from kraftcore.state_machine import StateMachine
from kraftcore.transports.tcp import Limits, TcpTransport

SOCKET = ".attach"
"""Name of the socket's file in the node's directory."""
FORMAT = 2
"""Of the frames; both sides must have the same."""
OWNER = Address("the-attached-node", 1)
"""Stands for the node itself in the addresses of an attached process, which has to know one."""
HELLO_ID = -1  # correlation id of the first frame of a connection: below 0, as those of logins
_LISTENER = "ATTACHED"
_FIRST_LANE = 16  # those below are the node's own, and its plugins'
_HEAD = Struct(">ii")
_ID = Struct(">i")


@dataclass(frozen=True, slots=True)
class Hello:
    """The first frame of a connection.

    Attributes:
        format: see `FORMAT`.
        version: of kraftcore in the attached process.
        to: host and port that the connection stands for; None: it is there to notice the node's end.
    """

    format: int
    version: str
    to: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """What the node answers.

    Attributes:
        format: see `FORMAT`.
        version: of kraftcore in the node's process.
        pid: of that process.
        cluster_id: of the quorum.
        node_id: of the node.
        topic: name of the log's topic.
        topic_id: its id.
        voters: static ones, as texts.
        machine: names of the state machine's class, and of those that it is derived from; see `names_of`.
        settings: all settings of the node that are numbers.
    """

    format: int
    version: str
    pid: int
    cluster_id: str
    node_id: int
    topic: str
    topic_id: str
    voters: tuple[str, ...]
    machine: tuple[str, ...]
    settings: dict[str, int]


def encode(message: Hello | Told) -> bytes:
    """A message as JSON."""
    return json.dumps(asdict(message)).encode()


def decode_told(data: bytes | memoryview) -> Told:
    """Read the node's answer.

    Raises:
        RemoteProtocolError: it is none, or of another format.
    """
    found = _decoded(data)
    if found.get("format") != FORMAT:
        raise RemoteProtocolError(
            f"the node's process has kraftcore {found.get('version')}, this one {__version__}, and they do not "
            f"understand each other (formats {found.get('format')} and {FORMAT}): run the same version in both"
        )
    try:
        return Told(**found)
    except TypeError as error:
        raise RemoteProtocolError(f"the process that listens there runs no node of kraftcore: {error}") from None


def _decoded(data: bytes | memoryview) -> dict[str, Any]:
    try:
        found = json.loads(bytes(data))
    except ValueError as error:
        raise RemoteProtocolError(f"the process that listens there runs no node of kraftcore: {error}") from None
    if not isinstance(found, dict):
        raise RemoteProtocolError("the process that listens there runs no node of kraftcore")
    return found


class AttachSocket:
    """The socket at which processes attach to a node; an asynchronous context manager.

    Args:
        config: of the node.
        machine: the node's state machine, for its name.
    """

    def __init__(self, config: NodeConfig, machine: object) -> None:
        self._machine = machine
        self._path = os.path.join(os.path.abspath(config.directory), SOCKET)
        self._transport = TcpTransport(**_limits(config))
        self._engine: Engine | None = None
        self._lanes: deque[int] = deque()  # free ones, the longest free first
        self._lanes_made = 0
        self._correlation_id = 0

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> bool | None:
        return await self._transport.__aexit__(*raised)

    async def open(self, engine: Engine) -> None:
        """Listen, and have requests answered from now on. The directory is locked by this process.

        Raises:
            TransportError: the socket cannot be made.
        """
        self._engine = engine
        await self._transport.listen(_LISTENER, Address(self._path, 0), self._serve)

    def close(self) -> None:
        """Remove the socket's file; connections end with the block."""
        if self._engine is not None:
            self._engine = None
            with suppress(OSError):
                os.unlink(self._path)

    def _serve(self, frame: bytes, origin: Origin, reply: Reply) -> None:
        engine = self._engine
        if engine is None:
            reply(None)
        elif origin.session is None:
            self._meet(engine, frame, origin, reply)
        else:
            origin.session(engine, frame, reply)

    def _meet(self, engine: Engine, frame: bytes, origin: Origin, reply: Reply) -> None:
        try:
            found = _decoded(memoryview(frame)[_HEAD.size :])
        except RemoteProtocolError as error:
            engine.note(f"{self._path}: a process connected that does not want to attach: {error}")
            reply(None)
            return
        to = found.get("to") if found.get("format") == FORMAT else None
        if to is None:
            origin.session = _Control()
        else:
            origin.session = self._route(engine, Address(*to), origin)
        reply((frame[4:8], encode(told_of(engine, self._machine))))

    def _route(self, engine: Engine, to: Address, origin: Origin) -> Callable[[Engine, bytes, Reply], None]:
        own = (*engine.endpoints, *engine.config.advertise(engine.endpoints))
        if to == OWNER or any((to.host, to.port) == (each.host, each.port) for each in own):
            return _Here(engine.endpoints[0].name if engine.endpoints else _LISTENER, origin)
        if not self._lanes:
            self._lanes.append(_FIRST_LANE + self._lanes_made)
            self._lanes_made += 1
        lane = self._lanes.popleft()
        origin.ended = lambda: self._lanes.append(lane)
        return _There(self, to._replace(lane=lane))

    def next_id(self) -> int:
        """A correlation id for a request that is passed on."""
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        return self._correlation_id


def told_of(engine: Engine, machine: object) -> Told:
    """What a node says of itself."""
    config = engine.config
    return Told(
        FORMAT,
        __version__,
        os.getpid(),
        engine.home.cluster_id,
        config.node_id,
        config.topic,
        str(config.topic_id),
        tuple(f"{each.key.id}@{Address(*each.endpoints[0][1:])}" for each in config.voters),
        names_of(machine),
        {name: value for name in SETTINGS if type(value := getattr(config, name)) is int},
    )


def names_of(machine: object) -> tuple[str, ...]:
    """What a state machine is called: the names of its class and that class's bases, without their modules.

    One class may be ``__main__``'s in one process, and a module's in another.
    """
    return tuple(each.__name__ for each in type(machine).__mro__ if each not in (object, StateMachine, Generic))


def _limits(config: NodeConfig) -> dict[str, Any]:
    """The limits of the socket's connections: those of the node's, for as many processes as connect."""
    limits = Limits(**config.settings_of(Limits))
    return asdict(replace(limits, max_connections=2**31 - 1, max_connections_per_peer=2**31 - 1))


class _Control:
    """Answers a request when the next one comes: one that asks knows that this process runs.

    The last request stays without an answer, and a connection with such a request is never idle.
    """

    def __init__(self) -> None:
        self._last: Callable[[], None] = lambda: None

    def __call__(self, engine: Engine, frame: bytes, reply: Reply) -> None:
        self._last()
        self._last = lambda: reply((frame[4:8],))


class _Here:
    """Has the node answer the requests of a connection."""

    def __init__(self, listener: str, origin: Origin) -> None:
        self._asker = Asker(listener, "an attached process", is_attached=True)
        self._origin = replace(origin, listener=listener, peer=self._asker.peer, session=self._asker)

    def __call__(self, engine: Engine, frame: bytes, reply: Reply) -> None:
        if not engine.endpoints and (leader := engine.leader_endpoint) is not None:
            # An observer without listeners; answers name the leader's listener that is called as the asked one.
            self._origin.listener = self._asker.listener = leader.name
        engine.inbox.serve(frame, self._origin, reply)


class _There:
    """Passes the requests of a connection on to another node."""

    def __init__(self, socket: AttachSocket, to: Address) -> None:
        self._socket = socket
        self._to = to

    def __call__(self, engine: Engine, frame: bytes, reply: Reply) -> None:
        head = frame[:4] + _ID.pack(self._socket.next_id())  # one connection carries the requests of several over time
        asked = frame[4:8]

        def answered(found: bytes | Failure) -> None:
            reply(None if isinstance(found, Failure) else _answer(asked, found))

        try:
            engine.relay(self._to, (head, memoryview(frame)[8:]), answered)
        except LocalError:  # longer than the node's transport takes
            reply(None)


def _answer(asked: bytes, found: bytes) -> Parts:
    return (asked, memoryview(found)[4:])
