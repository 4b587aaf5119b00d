"""One HTTP request, in a thread of trio's. Redirects are not followed, proxies not used."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection

import trio

from kraftcore.errors import TransportError
from kraftcore.ownership import close_socket_in_children
from kraftcore.security.sasl.oauth_settings import Resource

RESPONSE_BYTES_MAX = 1 << 20
_ERROR_CHARACTERS = 300


class FetchError(TransportError):
    """There is no usable answer.

    Attributes:
        is_final: asking again would give the same: the server said so.
    """

    def __init__(self, text: str, *, is_final: bool = False) -> None:
        super().__init__(text)
        self.is_final = is_final


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """What to ask for.

    Attributes:
        resource: an HTTP server's.
        headers: never printed.
        body: None: a GET; else a POST.
        ca: PEM file with authorities; None: the system's.
        connect_timeout_ms: for a connection.
        read_timeout_ms: for everything after that.
    """

    resource: Resource
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | None = None
    ca: str | None = None
    connect_timeout_ms: int = 10_000
    read_timeout_ms: int = 10_000


async def fetch(request: Fetch) -> bytes:
    """Ask, and return the body of the answer, up to 1 MiB.

    Raises:
        FetchError: the server cannot be reached, does not prove who it is, or answers with anything but 200 or 201.
    """
    used: list[HTTPConnection] = []
    try:
        with trio.move_on_after((request.connect_timeout_ms + request.read_timeout_ms) / 1000):
            return await trio.to_thread.run_sync(partial(_exchange, request, used), abandon_on_cancel=True)
    finally:
        for connection in used:
            _break(connection)
    raise FetchError(f"{request.resource.url}: it did not answer in time")


def _break(connection: HTTPConnection) -> None:
    """End what its thread waits for, if it still does."""
    sock: socket.socket | None = connection.sock
    if sock is not None:
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


def _exchange(request: Fetch, used: list[HTTPConnection]) -> bytes:
    resource = request.resource
    try:
        connection = _connection(request)
        used.append(connection)
        try:
            connection.connect()
            close_socket_in_children(connection.sock)
            connection.sock.settimeout(request.read_timeout_ms / 1000)
            method = "GET" if request.body is None else "POST"
            connection.request(method, resource.target, request.body, {"Accept": "application/json", **request.headers})
            response = connection.getresponse()
            body = response.read(RESPONSE_BYTES_MAX + 1)
        finally:
            connection.close()
    except (OSError, HTTPException, ValueError) as error:
        raise FetchError(f"{resource.url}: {str(error) or type(error).__name__}") from error
    if response.status not in (200, 201):
        text = body[:_ERROR_CHARACTERS].decode(errors="replace")
        where = response.getheader("Location")
        raise FetchError(
            f"{resource.url}: status {response.status}{f' to {where[:_ERROR_CHARACTERS]}' if where else ''}: {text!r}",
            is_final=300 <= response.status < 500 and response.status not in (408, 425, 429),
        )
    if len(body) > RESPONSE_BYTES_MAX:
        raise FetchError(f"{resource.url}: it answers with more than {RESPONSE_BYTES_MAX} bytes")
    return body


def _connection(request: Fetch) -> HTTPConnection:
    resource, timeout_s = request.resource, request.connect_timeout_ms / 1000
    if not resource.is_encrypted:
        return HTTPConnection(resource.host, resource.port, timeout=timeout_s)
    context = ssl.create_default_context(cafile=request.ca)
    return HTTPSConnection(resource.host, resource.port, timeout=timeout_s, context=context)
