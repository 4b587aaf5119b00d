"""Requests to other nodes: the version each peer speaks, and the callbacks that wait for answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any, TypeAlias

from kraftcore.core.wire.struct import Struct
from kraftcore.errors import LocalError, RemoteProtocolError
from kraftcore.ports.transport import Address, Transport
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.frames import decode_response, encode_request_parts
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftcore.protocol.registry import api_of
from kraftcore.protocol.schema import Request

Done: TypeAlias = Callable[[Any], None]
"""Gets the response's body, or a `Failure`."""

_API_VERSIONS = 18
_NEWEST = 4  # of ApiVersions; a node that does not know it answers in version 0 (KIP-511)
_CORRELATION_MASK = 2**31 - 1
_VERSION_MAX = 2**15 - 1
SOFTWARE = "kraftcore"
PEERS_MAX = 1000  # peers that are kept at a time: messages may name any number of addresses

# Lanes: connections to a peer. A delayed Fetch is answered late, and a forwarded proposal when it is committed, which
# may need that follower's next Fetch: on one connection, whose answers come in order, they would wait for each other.
CONSENSUS, FORWARDS, OTHERS = range(3)


@dataclass(slots=True)
class _Outgoing:
    message: Request
    timeout_ms: int
    min_version: int
    max_version: int
    done: Done


@dataclass(slots=True)
class _Peer:
    """Facts about the process behind an address, until its connection breaks."""

    address: Address
    versions: dict[int, tuple[int, int]] | None = None
    waiting: list[_Outgoing] = field(default_factory=list)
    chosen: dict[int, int] = field(default_factory=dict)  # api key -> version
    used: int = 0  # number of the last request to this peer
    last: bool | Failure = False  # True: the peer answered; a failure: why not; False: no request has ended yet


class Outbox:
    """Encodes requests in the highest version both sides speak.

    Args:
        transport: carries the frames.
        client_id: goes into every request's header.
        software_version: told to peers by ApiVersions.
        note: gets a line for the operator's log when a peer breaks the protocol.
        seen: called with every decoded answer, before the callback that waits for it.
    """

    def __init__(
        self,
        transport: Transport,
        client_id: str,
        software_version: str,
        note: Callable[[str], None],
        seen: Callable[[Struct], None] | None = None,
    ) -> None:
        self._transport = transport
        self._client_id = client_id
        self._software_version = software_version
        self._note = note
        self._seen = seen
        self._peers: dict[Address, _Peer] = {}
        self._requests = 0
        self._correlation_id = 0

    def send(
        self,
        host: str,
        port: int,
        message: Request,
        timeout_ms: int,
        done: Done,
        min_version: int = 0,
        lane: int = CONSENSUS,
        max_version: int = _VERSION_MAX,
    ) -> None:
        """Send a request; ``done`` is called later, exactly once.

        Args:
            host: of the peer.
            port: of the peer.
            message: the request's body.
            timeout_ms: how long to wait for the answer, milliseconds.
            done: gets the response's body, or a `Failure`.
            min_version: in lower versions the request would lose its meaning.
            lane: `CONSENSUS`, `FORWARDS` or `OTHERS`.
            max_version: in higher versions the request would lose its meaning.

        Raises:
            LocalError: the request cannot be encoded, or its frame is too long for the transport: ``done`` is not
                called. While the peer's versions are unknown, ``done`` gets `Failure.OTHER` instead.
        """
        address = Address(host, port, lane)
        peer = self._peers.get(address)
        if peer is None:
            self._make_room()
            peer = self._peers[address] = _Peer(address)
        self._requests += 1
        peer.used = self._requests
        if isinstance(message, ApiVersionsRequest):
            message.client_software_name = SOFTWARE
            message.client_software_version = self._software_version
            self._ask_versions(peer, message, timeout_ms, done)
        elif peer.versions is not None:
            self._transmit(peer, message, timeout_ms, min_version, max_version, done)
        else:
            peer.waiting.append(_Outgoing(message, timeout_ms, min_version, max_version, done))
            if len(peer.waiting) == 1:
                done = partial(self._learned, peer)
                self.send(host, port, ApiVersionsRequest(), timeout_ms, done, lane=lane)

    def _make_room(self) -> None:
        """Forget the peer that was asked least recently, of those without requests in flight; it can be asked anew."""
        if len(self._peers) >= PEERS_MAX:
            idle = [peer for peer in self._peers.values() if not peer.waiting]
            if idle:
                del self._peers[min(idle, key=attrgetter("used")).address]

    def last(self, host: str, port: int) -> bool | Failure:
        """How the last request to a peer ended; True: with an answer; False: no request has ended yet."""
        peer = self._peers.get(Address(host, port, CONSENSUS))
        return False if peer is None else peer.last

    def why_unreachable(self, host: str, port: int) -> str | None:
        """Why the last connection to a peer came to nothing; None: it did not, or the transport does not tell."""
        why: Callable[[Address], str | None] | None = getattr(self._transport, "connection_error", None)
        return None if why is None else why(Address(host, port, CONSENSUS))

    @property
    def connections(self) -> tuple[int, int] | None:
        """Open connections (accepted, made); None if the transport does not count them."""
        return getattr(self._transport, "connections", None)

    def _transmit(
        self, peer: _Peer, message: Request, timeout_ms: int, min_version: int, max_version: int, done: Done
    ) -> None:
        key, oldest, newest = api_of(type(message))
        version = peer.chosen.get(key)
        if version is None:
            low, high = (peer.versions or {}).get(key, (0, -1))
            version = min(high, newest)
            if version < max(low, oldest):
                version = -1
            peer.chosen[key] = version
        version = min(version, max_version)
        if version < min_version or version < 0:
            peer.last = Failure.UNSUPPORTED_VERSION
            done(Failure.UNSUPPORTED_VERSION)
            return
        self._request(peer, message, key, version, timeout_ms, done)

    def _request(self, peer: _Peer, message: Request, key: int, version: int, timeout_ms: int, done: Done) -> None:
        self._correlation_id = correlation_id = (self._correlation_id + 1) & _CORRELATION_MASK
        parts = encode_request_parts(message, version, correlation_id, self._client_id)
        answer = partial(self._answered, peer, key, version, done)
        self._transport.request(peer.address, parts, timeout_ms, answer)

    def _answered(self, peer: _Peer, key: int, version: int, done: Done, frame: bytes | Failure) -> None:
        peer.last = frame if isinstance(frame, Failure) else True
        if isinstance(frame, Failure):
            if frame is not Failure.TIMED_OUT:
                peer.versions = None  # the next answer may be another process's, of another version
                peer.chosen.clear()
            done(frame)
            return
        try:
            message: Struct = decode_response(frame, key, version)[1]
        except RemoteProtocolError as error:
            self._note(f"an answer of {peer.address} cannot be read: {error}")
            peer.last = Failure.OTHER
            done(Failure.OTHER)
            return
        if self._seen is not None:
            self._seen(message)
        done(message)

    # --- versions -----------------------------------------------------------------------------------------------------

    def _ask_versions(self, peer: _Peer, message: Request, timeout_ms: int, done: Done) -> None:
        def answered(frame: bytes | Failure) -> None:
            if not isinstance(frame, Failure) and int.from_bytes(frame[4:6]) == ErrorCode.UNSUPPORTED_VERSION:
                self._request(peer, message, _API_VERSIONS, 0, timeout_ms, done)
            else:
                self._answered(peer, _API_VERSIONS, _NEWEST, done, frame)

        self._correlation_id = correlation_id = (self._correlation_id + 1) & _CORRELATION_MASK
        parts = encode_request_parts(message, _NEWEST, correlation_id, self._client_id)
        self._transport.request(peer.address, parts, timeout_ms, answered)

    def _learned(self, peer: _Peer, found: ApiVersionsResponse | Failure) -> None:
        if isinstance(found, ApiVersionsResponse) and found.error_code != ErrorCode.NONE:
            self._note(f"{peer.address} does not say what it speaks: {ErrorCode.of(found.error_code).name}")
            found = peer.last = Failure.OTHER
        waiting, peer.waiting = peer.waiting, []
        if isinstance(found, Failure):
            for item in waiting:
                item.done(found)
            return
        peer.versions = {item.api_key: (item.min_version, item.max_version) for item in found.api_keys}
        for item in waiting:
            try:
                self._transmit(peer, item.message, item.timeout_ms, item.min_version, item.max_version, item.done)
            except LocalError as error:  # its caller has returned, and other requests wait
                self._note(f"a {type(item.message).__name__} to {peer.address} cannot be sent: {error}")
                item.done(Failure.OTHER)
