"""The handlers of requests: their versions, their priority, and the access that each needs.

A handler that returns its response is called by the connection's reader. Handlers that are coroutines run in tasks,
`TASKS_MAX` at a time; further ones wait in a queue for each priority, the most urgent priority first. A queue holds
`WAITING_MAX`: beyond it the connection of the request is broken.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, IntEnum, auto
from typing import Any, NamedTuple, TypeAlias

from kraftcore.config.security import SecurityProtocol
from kraftcore.errors import LocalError
from kraftcore.node.authorization import Authorization
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftcore.protocol.registry import api_of
from kraftcore.protocol.schema import Request, Response
from kraftcore.security.audit import Requester
from kraftcore.security.hosts import host_address
from kraftcore.security.principals import ANONYMOUS, Principal

OWN = ("node", "consensus")
"""Owners of handlers that a plugin's may replace. Requests of the consensus go to the replica all the same."""
TASKS_MAX = 64
"""How many handlers run at a time."""
WAITING_MAX = 500
"""How many requests of a priority wait for a task; Kafka's default of ``queued.max.requests``."""


class ListenerType(Enum):
    """The purpose of a listener. A request's meaning depends on it: Fetch reads the metadata log, or topics.

    Source: Kafka 4.3.1, ApiMessageType.ListenerType.
    """

    CONTROLLER = auto()
    BROKER = auto()


class Priority(IntEnum):
    """How urgent a request is; the lowest number is served first."""

    CONSENSUS = 0
    CONTROL = 1
    DATA = 2


class Access(NamedTuple):
    """The permission that an asker needs.

    Attributes:
        operation: Kafka's name of the operation, such as ``ALTER`` or ``CLUSTER_ACTION``.
        resource: Kafka's name of the resource's type, such as ``CLUSTER`` or ``TOPIC``.
        names: the resources that a request is about; None: the cluster as a whole.
    """

    operation: str
    resource: str = "CLUSTER"
    names: Callable[[Any], Iterable[str]] | None = None


CLUSTER_ACTION = Access("CLUSTER_ACTION")
ALTER_CLUSTER = Access("ALTER")
DESCRIBE_CLUSTER = Access("DESCRIBE")


@dataclass(slots=True, eq=False)
class Asker:
    """The client behind a connection, the same object for all its requests; a login replaces it by a new one.

    Attributes:
        listener: name of the listener that the requests come in on.
        peer: the asker's address, for people.
        principal: the asker's principal; anonymous until it has logged in.
        security_protocol: of the listener.
        is_by_token: whether the asker logged in with a delegation token (KIP-48).
        is_forwarded: whether a broker passed the request on in an envelope (KIP-590): principal and address are the
            client's.
        is_attached: whether it is a process that attached to this node, which may do whatever the node may.
    """

    listener: str
    peer: str
    principal: Principal = ANONYMOUS
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    is_by_token: bool = False
    is_forwarded: bool = False
    is_attached: bool = False

    @property
    def host(self) -> str:
        """The asker's address without the port, written as `host_address` does; a host name stays as it is."""
        if self.peer.startswith("["):
            host = self.peer[1:].partition("]")[0]
        else:
            host, colon, _ = self.peer.rpartition(":")
            if not colon or ":" in host:
                host = self.peer
        if ":" not in host:
            return host
        try:
            return host_address(host)
        except ValueError:
            return host


class RequestContext(ABC):
    """One request: what its header says, who asks, and how it is answered.

    Each source of requests derives a class from this one. A request is ended by ``answer``, by ``answer_nothing`` or by
    ``close``, at once or later; none of them raises.

    Args:
        asker: the client that sent the request.
        version: of the request.
        client_id: the name that the asker gives itself.
        size: of the request's frame, bytes; 0 for a request that came inside another one.
    """

    __slots__ = ("asker", "client_id", "size", "version")

    def __init__(self, asker: Asker, version: int, client_id: str | None = None, size: int = 0) -> None:
        self.asker = asker
        self.version = version
        self.client_id = client_id
        self.size = size

    @abstractmethod
    def answer(self, response: Any) -> None:
        """Send the response, once. If it cannot be sent, that is logged, and the asker's connection is broken."""

    @abstractmethod
    def close(self) -> None:
        """Break the asker's connection in place of an answer; does nothing after an answer."""

    def answer_nothing(self) -> None:  # noqa: B027
        """End a request that wants no answer (Produce with acks=0)."""

    def wait(self) -> None:  # noqa: B027
        """Take up no more requests of the connection until this one is answered; called before the handler returns.

        See also ``RequestHandler.is_awaited``.
        """

    def mute(self) -> Callable[[], None]:
        """Take up no more requests of the connection until the returned function is called, once."""
        return _nothing


def _nothing() -> None:
    pass


def requester(request: Request, context: RequestContext) -> Requester:
    """The principal, address and request that the authorizer is asked about."""
    return Requester(str(context.asker.principal), context.asker.host, type(request).__name__.removesuffix("Request"))


Respond: TypeAlias = Callable[[Any, RequestContext], Response | Awaitable[Response | None] | None]
"""Takes a request's body; returns the response, or a coroutine that does, or None if it calls ``context.answer``."""


class RequestHandler(NamedTuple):
    """How a kind of request is answered.

    Attributes:
        kind: the request's class.
        respond: see `Respond`.
        access: the permission that the asker needs; None: no permission.
        priority: how urgent the request is.
        versions: (oldest, newest) that are offered, versions that Kafka 4 dropped included; None: all that Kafka 4.3.1
            speaks.
        listeners: names of the listeners that offer the request; None: all of its type.
        listener_type: of the listeners that offer the request; None: any.
        owner: the node's part or plugin that answers, for messages.
        is_vital: whether the node must stop when the handler raises; else only the asker's connection is broken.
        authorizes_itself: whether the handler checks ``access`` itself, to refuse in its own words.
        refuse: makes, from a request, its version, an error and its text, the response that refuses the whole request;
            None: the response has a field for the error.
        advertised_from: the oldest version that ApiVersions names, if that is older than the oldest that is answered;
            None: they are the same.
        is_awaited: whether later requests of the connection are taken up only when this one is answered, as Kafka does
            for all requests: they may be about what this one changes.
    """

    kind: type[Request]
    respond: Respond
    access: Access | None = None
    priority: Priority = Priority.DATA
    versions: tuple[int, int] | None = None
    listeners: frozenset[str] | None = None
    owner: str = "node"
    is_vital: bool = True
    authorizes_itself: bool = False
    refuse: Callable[[Any, int, ErrorCode, str | None], Response] | None = None
    listener_type: ListenerType | None = ListenerType.CONTROLLER
    advertised_from: int | None = None
    is_awaited: bool = False

    @property
    def offered(self) -> tuple[int, int]:
        """The (oldest, newest) version that is offered."""
        if self.versions is None:
            _, oldest, newest = api_of(self.kind)
            return oldest, newest
        known = self.kind.schema.decodable_versions
        return max(known[0][0], self.versions[0]), min(known[-1][1], self.versions[1])

    def serves(self, listener: str, version: int) -> bool:
        """Whether a request in this version is answered on this listener."""
        low, high = self.offered
        return low <= version <= high and (self.listeners is None or listener in self.listeners)


class Registry:
    """All handlers of a node. ApiVersions is answered from them.

    Args:
        broker_listeners: names of the listeners of type `ListenerType.BROKER`; all other listeners are CONTROLLER.

    Attributes:
        authorization: asked before a request is answered; None: every request is allowed.
    """

    def __init__(self, broker_listeners: Iterable[str] = ()) -> None:
        self.authorization: Authorization | None = None
        self._broker_listeners = frozenset(broker_listeners)
        self._of_type: dict[ListenerType, dict[type[Request], RequestHandler]] = {each: {} for each in ListenerType}
        self._offers: dict[str, list[ApiVersionsResponse.ApiVersion]] = {}

    def register(self, handler: RequestHandler) -> None:
        """Answer a kind of request from now on. A plugin may take over requests that the node answers.

        Raises:
            LocalError: two plugins want the same kind.
        """
        types = ListenerType if handler.listener_type is None else (handler.listener_type,)
        for handlers in map(self._of_type.__getitem__, types):
            before = handlers.get(handler.kind)
            if before is not None and before.owner not in OWN:
                raise LocalError(
                    f"{handler.kind.__name__} is answered by {before.owner}: {handler.owner} cannot answer it, too"
                )
        for handlers in map(self._of_type.__getitem__, types):
            handlers[handler.kind] = handler
        self._offers.clear()

    def withdraw(self, kind: type[Request]) -> None:
        """Stop answering a kind of request on controllers' listeners; does nothing if it is not answered."""
        self._of_type[ListenerType.CONTROLLER].pop(kind, None)
        self._offers.clear()

    def refuses(self, handler: RequestHandler, request: Request, context: RequestContext) -> ErrorCode:
        """The error for an asker that may not send a request; NONE for an asker that may."""
        access = handler.access
        if self.authorization is None or access is None or handler.authorizes_itself or context.asker.is_attached:
            return ErrorCode.NONE
        names = () if access.names is None else access.names(request)
        return self.authorization.error(requester(request, context), access.operation, access.resource, names)

    def type_of(self, listener: str) -> ListenerType:
        """The type of a listener."""
        return ListenerType.BROKER if listener in self._broker_listeners else ListenerType.CONTROLLER

    def find(self, kind: type[Request], listener: str = "") -> RequestHandler | None:
        """The handler of a kind of request on a listener."""
        return self._of_type[self.type_of(listener)].get(kind)

    @property
    def handlers(self) -> tuple[RequestHandler, ...]:
        """All handlers, ordered by api key."""
        found = {id(handler): handler for handlers in self._of_type.values() for handler in handlers.values()}
        return tuple(sorted(found.values(), key=lambda handler: _key(handler.kind)))

    def offers(self, listener: str) -> list[ApiVersionsResponse.ApiVersion]:
        """The APIs and versions that ApiVersions names on a listener."""
        found = self._offers.get(listener)
        if found is None:
            entries = [(api_of(ApiVersionsRequest).key, *api_of(ApiVersionsRequest)[1:])]
            for handler in self._of_type[self.type_of(listener)].values():
                low, high = handler.offered
                if handler.serves(listener, high) and low <= high:
                    named = low if handler.advertised_from is None else handler.advertised_from
                    entries.append((_key(handler.kind), named, high))
            kind = ApiVersionsResponse.ApiVersion
            found = [kind(api_key=key, min_version=low, max_version=high) for key, low, high in sorted(entries)]
            self._offers[listener] = found
        return found


def _key(kind: type[Request]) -> int:
    key = kind.schema.api_key
    if key is None:
        raise LocalError(f"{kind.__name__} has no api key: it is no request")
    return key


@dataclass(slots=True)
class Waiting:
    """A request whose handler is a coroutine, while it waits for a task."""

    handler: RequestHandler
    context: RequestContext
    response: Awaitable[Response | None]


@dataclass(slots=True)
class WaitingRequests:
    """Bounded queues of requests, one for each priority; the most urgent request goes first.

    Attributes:
        tasks_max: handlers that run at a time.
        waiting_max: requests of a priority that wait.
        running: handlers that run.
    """

    tasks_max: int = TASKS_MAX
    waiting_max: int = WAITING_MAX
    running: int = 0
    _queues: dict[Priority, deque[Waiting]] = field(
        default_factory=lambda: {priority: deque() for priority in Priority}
    )

    def add(self, waiting: Waiting) -> bool:
        """Let a request wait; False if the queue of its priority is full."""
        queue = self._queues[waiting.handler.priority]
        if len(queue) >= self.waiting_max:
            return False
        queue.append(waiting)
        return True

    def next(self) -> Waiting | None:
        """The request to run now, if one may run; ``done`` is called when it ended."""
        if self.running < self.tasks_max:
            for priority in Priority:
                if self._queues[priority]:
                    self.running += 1
                    return self._queues[priority].popleft()
        return None

    def drain(self) -> list[Waiting]:
        """Remove and return all requests that wait: they will not run any more."""
        found = [waiting for queue in self._queues.values() for waiting in queue]
        for queue in self._queues.values():
            queue.clear()
        return found

    def done(self) -> None:
        """Count a request that ran as ended."""
        self.running -= 1
