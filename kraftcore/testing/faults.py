"""Faults of brokers: which requests of clients are answered with errors, late, or by a closed connection."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from math import inf
from threading import Lock
from typing import Any, Literal, TypeAlias, get_args

import trio

from kraftcore.core.uuid import Uuid
from kraftcore.errors import LocalError, RemoteProtocolError
from kraftcore.forms import suggestion
from kraftcore.plugins.broker.api.fetch_sessions import FetchSession
from kraftcore.ports.transport import Origin, Parts, Reply, Serve
from kraftcore.protocol.data.headers import RequestHeader
from kraftcore.protocol.error_answers import can_carry_error, error_response, named_topics, names_topics
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.frames import decode_request, decode_response, encode_response_parts
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest
from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.protocol.messages.metadata import MetadataResponse
from kraftcore.protocol.messages.produce import ProduceRequest
from kraftcore.protocol.registry import ApiKey, api_of, apis_on, request_class
from kraftcore.protocol.schema import Request
from kraftcore.transports.memory import MemoryTransport

Closing: TypeAlias = Literal["before", "after"]
"""When the connection is closed: before the request is carried out, or after, in place of the answer."""
SessionsOf: TypeAlias = Callable[[], Iterable[FetchSession]]


@dataclass(eq=False, slots=True)
class Fault:
    """What happens to chosen requests of clients. Made by ``Faults.inject``.

    Attributes:
        id: its number, from 1 on.
        api: Kafka's name of the requests, as ``Produce``.
        error: the name of the error that they are answered with; None: none.
        delay_ms: how long each waits before anything else happens to it.
        close: see `Closing`; None: the connection stays.
        times: after so many requests the fault ends by itself; None: when it is told to.
        topic: only requests that name this topic; None: any.
        broker: only requests to this broker; None: any.
        client_id: only requests of clients with this ``client.id``; None: any.
        hits: how many requests it has met.
        has_ended: whether it meets no more.
    """

    id: int
    api: str
    error: str | None
    delay_ms: float
    close: Closing | None
    times: int | None
    topic: str | None
    broker: int | None
    client_id: str | None
    hits: int = 0
    has_ended: bool = False


Met: TypeAlias = tuple[Fault, RequestHeader, Request]
"""A fault, and the request that met it."""


class Faults:
    """The faults of a cluster's brokers that have not ended, in the order in which they began; any thread may call.

    Of several faults a request meets the first that fits. Requests that were taken before, as a Fetch that waits for
    records, meet none, and neither do requests of nodes, nor of kraftcore's own admin client for the cluster.

    Args:
        brokers: ids of the brokers.
        topic_name: finds the name of a topic's id; None: it knows none.
    """

    def __init__(self, brokers: Collection[int], topic_name: Callable[[Uuid], str | None]) -> None:
        self._brokers = brokers
        self._topic_name = topic_name
        self._lock = Lock()
        self._all: dict[int, Fault] = {}
        self._by_api: dict[int, list[Fault]] = {}

    def __iter__(self) -> Iterator[Fault]:
        with self._lock:
            found = [each for faults in self._by_api.values() for each in faults]
        return iter(sorted(found, key=lambda each: each.id))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def inject(
        self,
        api: str,
        *,
        error: str | None = None,
        delay_ms: float = 0,
        close: Closing | None = None,
        times: int | None = 1,
        topic: str | None = None,
        broker: int | None = None,
        client_id: str | None = None,
    ) -> Fault:
        """Have requests of clients fail: ``kafka.faults.inject("Produce", error="NOT_LEADER_OR_FOLLOWER", times=2)``.

        Args:
            api: Kafka's name of the requests, as ``Produce``, ``Fetch`` or ``JoinGroup``.
            error: Kafka's name of the error that they are answered with, for all partitions that they ask for, and
                nothing else is done; None: none. Metadata is answered as it is, but with the error in each topic.
            delay_ms: how long each of them waits first; those behind it on its connection wait, too.
            close: ``"before"``: close the connection, and nothing else is done; ``"after"``: carry the request out, and
                close the connection in place of the answer; None: neither.
            times: so many requests, >= 1; None: until ``clear``.
            topic: only requests that name this topic; None: any.
            broker: only requests to this broker; None: any.
            client_id: only requests of clients with this ``client.id``; None: any.

        Returns:
            The fault; ``hits`` says how many requests it has met.

        Raises:
            LocalError: there is no such request, error or broker, the answer has no place for an error, or nothing is
                to happen.
        """
        key = _api_key(api)
        kind = request_class(key)
        name = kind.__name__.removesuffix("Request")
        if error is not None:
            error = _error_code(error).name
            if not can_carry_error(kind, api_of(kind).max_version):
                raise LocalError(f"the answer to {name} has no place for an error: use a delay or `close`")
        if close is not None and close not in get_args(Closing):
            raise LocalError(f"close {close!r}: use 'before' (the request is not carried out) or 'after'")
        if error is not None and close is not None:
            raise LocalError(f"a {name} cannot be answered with {error} and by a closed connection: make two faults")
        if not 0 <= delay_ms < inf:
            raise LocalError(f"a delay of {delay_ms!r} ms: use 0 or more")
        if error is None and close is None and not delay_ms:
            raise LocalError(f"nothing would happen to {name}: give `error`, a delay or `close`")
        if times is not None and times < 1:
            raise LocalError(f"times {times}: use 1 or more, or none at all until it is cleared")
        if topic is not None and not names_topics(kind):
            raise LocalError(f"{name} names no topics: leave `topic` out")
        if broker is not None and broker not in self._brokers:
            raise LocalError(f"there is no broker {broker}: there are {', '.join(map(str, self._brokers))}")
        with self._lock:
            fault = Fault(len(self._all) + 1, name, error, delay_ms, close, times, topic, broker, client_id)
            self._all[fault.id] = fault
            self._by_api.setdefault(key, []).append(fault)
        return fault

    def clear(self, *faults: Fault | int) -> None:
        """End these faults, given as objects or by their ids; without arguments all. Some may have ended already.

        Raises:
            LocalError: there never was one with such an id.
        """
        ended = set(self if not faults else (each if isinstance(each, Fault) else self.get(each) for each in faults))
        with self._lock:
            for each in ended:
                each.has_ended = True
            left = {key: [each for each in some if each not in ended] for key, some in self._by_api.items()}
            self._by_api = {key: some for key, some in left.items() if some}

    def get(self, fault_id: int) -> Fault:
        """A fault by its id, one that has ended too.

        Raises:
            LocalError: there never was one.
        """
        try:
            return self._all[fault_id]
        except KeyError:
            raise LocalError(f"there never was a fault {fault_id}") from None

    def _met_by(self, broker_id: int, frame: bytes, sessions: SessionsOf) -> Met | None:
        """The first fault that a request to a broker meets, and the request; the fault has one hit more."""
        candidates = self._by_api.get(int.from_bytes(frame[:2], "big"))
        if candidates is None:
            return None
        try:
            header, request = decode_request(frame)
        except RemoteProtocolError:
            return None  # the broker answers that the request is malformed
        if request is None:
            return None
        if isinstance(request, FetchRequest):
            request = _of_session(request, sessions)
        for fault in candidates:
            if (
                fault.broker in (None, broker_id)
                and fault.client_id in (None, header.client_id)
                and (fault.topic is None or fault.topic in map(self._name, named_topics(request)))
            ):
                fault.hits += 1
                if fault.hits == fault.times:
                    self.clear(fault)
                return fault, header, request
        return None

    def _name(self, topic: str | Uuid) -> str | None:
        return topic if isinstance(topic, str) else self._topic_name(topic)


class Gate:
    """What requests of clients to one broker go through.

    Args:
        broker_id: which one.
        faults: of its cluster.
        sessions: the broker's fetch sessions, by which a request is about topics that it does not name (KIP-227).
        memory: the broker's other transport; while it is paused, and for delays, requests wait in its task.
        serve: takes the requests that pass.
    """

    def __init__(
        self, broker_id: int, faults: Faults, sessions: SessionsOf, memory: MemoryTransport, serve: Serve
    ) -> None:
        self._broker_id = broker_id
        self._faults = faults
        self._sessions = sessions
        self._memory = memory
        self._serve = serve

    def serve(self, frame: bytes, origin: Origin, reply: Reply) -> None:
        """Take a request; see `Serve`."""
        if self._memory.is_paused:
            self._later(0, self.serve, frame, origin, reply)
        elif not self._faults._by_api or (met := self._faults._met_by(self._broker_id, frame, self._sessions)) is None:
            self._serve(frame, origin, reply)
        elif met[0].delay_ms:
            self._later(met[0].delay_ms, partial(self._befall, met), frame, origin, reply)
        else:
            self._befall(met, frame, origin, reply)

    def _later(self, delay_ms: float, serve: Serve, frame: bytes, origin: Origin, reply: Reply) -> None:
        """Serve a request then, and none of its connection before."""
        due = trio.current_time() + delay_ms / 1000
        self._memory.at(due, _serve_and_go_on, serve, frame, origin, reply, origin.mute())

    def _befall(self, met: Met, frame: bytes, origin: Origin, reply: Reply) -> None:
        """Have a fault befall a request, after its delay."""
        fault, header, request = met
        version = header.request_api_version
        if fault.error is not None:
            error = ErrorCode[fault.error]
            if header.request_api_key == ApiKey.METADATA:  # without the brokers that it names nobody could go on
                self._serve(frame, origin, partial(_spoil_metadata, reply, version, error))
            elif isinstance(request, ProduceRequest) and request.acks == 0:
                reply(None)  # it wants no answer: Kafka's brokers tell it by closing the connection
            else:
                if isinstance(request, ApiVersionsRequest) and error is ErrorCode.UNSUPPORTED_VERSION:
                    version = 0  # KIP-511
                answer = error_response(request, version, error, error.message)
                reply(encode_response_parts(answer, version, header.correlation_id))
        elif fault.close == "before":
            reply(None)
        elif fault.close == "after":
            self._serve(frame, origin, lambda parts: reply(None))
        else:
            self._serve(frame, origin, reply)


def _serve_and_go_on(serve: Serve, frame: bytes, origin: Origin, reply: Reply, unmute: Callable[[], None]) -> None:
    serve(frame, origin, reply)
    unmute()


def _spoil_metadata(reply: Reply, version: int, error: ErrorCode, parts: Parts | None) -> None:
    """Put an error into each topic of an answer to Metadata."""
    if parts:
        header, answer = decode_response(b"".join(parts), ApiKey.METADATA, version)
        if isinstance(answer, MetadataResponse):
            for topic in answer.topics:
                topic.error_code = error
                topic.partitions = []
            parts = encode_response_parts(answer, version, header.correlation_id)
    reply(parts)


def _of_session(request: FetchRequest, sessions: SessionsOf) -> FetchRequest:
    """The request as if it named all partitions of its session."""
    if not request.session_id or request.session_epoch <= 0:
        return request
    for session in sessions():
        if session.id == request.session_id:
            topic = FetchRequest.FetchTopic
            of_session = [
                topic(topic=each.topic, topic_id=each.topic_id, partitions=[each.fields])
                for each in session.partitions.values()
            ]
            named = {(each.topic, each.topic_id, part.partition) for each in request.topics for part in each.partitions}
            rest = [
                each for each in of_session if (each.topic, each.topic_id, each.partitions[0].partition) not in named
            ]
            return request.replace(topics=[*request.topics, *rest])
    return request


# --- names ------------------------------------------------------------------------------------------------------------


def _api_key(name: Any) -> ApiKey:
    known = {request_class(key).__name__.removesuffix("Request"): key for key in apis_on("broker")}
    plain = {each.lower(): key for each, key in known.items()}
    found = plain.get(name.replace("_", "").lower()) if isinstance(name, str) else None
    if found is None:
        raise LocalError(f"brokers answer no request {name!r}{suggestion(str(name), known)}")
    return found


def _error_code(name: Any) -> ErrorCode:
    found = ErrorCode.__members__.get(name.upper()) if isinstance(name, str) else None
    if found is None or found is ErrorCode.NONE:
        known = [each for each in ErrorCode.__members__ if each != ErrorCode.NONE.name]
        raise LocalError(f"Kafka has no error {name!r}{suggestion(str(name).upper(), known)}")
    return found
