"""What a transport is: it moves encoded frames between nodes, and knows nothing else about them.

A frame is a request or response without the four size bytes in front; it is handed over as its parts in order, so
that record bytes need not be copied into it. The first four bytes of a response repeat the correlation id that
stands at byte 4 of the request.

Everything but opening and closing is a plain call: a node carries out what its replica wants in one go, and a frame
that fits the socket's buffer leaves before the call returns. Nothing here waits, so nothing here may block.

``check_transport`` in ``kraftcore.transports.conformance`` holds a transport, ours or yours, to this text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from kraftcore.namespace import listing
from kraftcore.protocol.failure import Failure

__all__ = ["Address", "Admission", "Answer", "Failure", "Origin", "Parts", "Reply", "Serve", "Transport"]
__dir__ = listing(__all__)

Parts: TypeAlias = Sequence[bytes | bytearray | memoryview]
"""A frame, in pieces. They must not change until the transport let go of them."""

Answer: TypeAlias = Callable[[bytes | Failure], None]
"""Called exactly once, never before ``request`` returned: with the response's frame, or why there is none."""

Reply: TypeAlias = Callable[[Parts | None], None]
"""Called at most once with the response's frame; None: break the connection, once all requests before this one are
answered. The caller logs why, if need be. No parts at all, ``()``: the request wants no response (Produce with acks=0),
and none is sent. A response that is too long for the transport breaks the connection, too, and the caller
hears nothing of it.

Responses leave in the order in which their requests came, as Kafka's clients expect; one that is ready early waits.
"""


class Address(NamedTuple):
    """Where a listener or a peer is.

    Attributes:
        host: name, IPv4 or IPv6 address (without brackets).
        port: 1 to 65535; 0 asks ``listen`` for any free port.
        lane: responses leave in order, so one that takes long holds up those behind it. Requests to the same place that
            must not wait for each other's responses differ in this; ``listen`` has no use for it.
    """

    host: str
    port: int
    lane: int = 0

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _nothing() -> None:
    pass


def _mute_nobody() -> Callable[[], None]:
    return _nothing


@dataclass(slots=True, eq=False)
class Origin:
    """The connection that a request came in on: one object for all of its requests.

    Attributes:
        listener: name of the listener that accepted it.
        peer: the other side's address, for messages to people.
        subject: of the verified client certificate; None without one.
        is_admitted: whether the bounds of `Admission` are over. Set by whoever serves, before the reply that says so.
        session: kept here by whoever serves; a transport leaves it alone.
        close: breaks the connection once all requests that were handed over are answered; no more are.
        wait: hands over no more requests of the connection until the last one that was is answered.
        mute: hands over no more requests of the connection until what it returns is called, once. Answers leave all the
            same.
        ended: called by a `TcpTransport` when the connection is broken; set by the function that serves
            the connection's requests.
    """

    listener: str
    peer: str
    subject: str | None = None
    is_admitted: bool = True
    session: Any = None
    close: Callable[[], None] = _nothing
    wait: Callable[[], None] = _nothing
    mute: Callable[[], Callable[[], None]] = _mute_nobody
    ended: Callable[[], None] = _nothing


class Admission(NamedTuple):
    """Bounds of a connection until ``Origin.is_admitted``, where those who connect have to prove who they are first.

    Attributes:
        max_frame_bytes: longest frame it may send. The shortest is empty: it need not be a request.
        timeout_ms: how long it may take from its first byte, or TLS message, to being admitted.
    """

    max_frame_bytes: int
    timeout_ms: int


Serve: TypeAlias = Callable[[bytes, Origin, Reply], None]
"""Takes a request's frame. Must not raise and not wait; the reply may come at any later time."""


class Transport(Protocol):
    """A transport moves encoded frames between nodes. One object serves one node."""

    async def listen(
        self, listener: str, address: Address, serve: Serve, admission: Admission | None = None
    ) -> Address:
        """Begin to accept requests.

        Args:
            listener: its name, for ``Origin.listener``.
            address: where; port 0 means any free one.
            serve: gets every request's frame.
            admission: bounds for connections that are not admitted yet; None: all are from the beginning.

        Returns:
            The address it is bound to.

        Raises:
            TransportError: the address is in use or not ours, or its TLS settings do not work.
        """
        ...

    def request(self, address: Address, parts: Parts, timeout_ms: int, answer: Answer) -> None:
        """Send a request; connects first if need be.

        Args:
            address: where to; requests of different lanes never wait for each other, so they go over connections of
                their own.
            parts: the frame.
            timeout_ms: after this ``answer`` gets ``Failure.TIMED_OUT``, and what comes later is dropped.
            answer: gets the response. ``REFUSED`` when nobody listens there; ``RESET`` only when the other side broke
                an established connection; ``OTHER`` when it cannot be reached for any other reason, or after
                ``aclose``.
        """
        ...

    async def aclose(self) -> None:
        """Stop listening, break all connections, fail what is outstanding. Idempotent."""
        ...
