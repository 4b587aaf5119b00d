"""Connects a socket to a name and a port."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import trio

from kraftcore.ownership import close_socket_in_children, no_forks
from kraftcore.ports.transport import Address
from kraftcore.protocol.failure import Failure
from kraftcore.transports.tcp.socket_files import short_path

Target: TypeAlias = tuple[int, tuple[Any, ...] | str]
"""Address family and the address as ``socket.connect`` takes it; of a Unix socket the path, of any length."""

Resolve: TypeAlias = Callable[[Address], Awaitable[Sequence[Target]]]
"""Returns all addresses of a peer, best first. Raises OSError if there are none."""

# The next address is tried when the one before has not answered for this long (RFC 8305, section 5).
_HEAD_START_S = 0.25
# Errors for addresses of a kind that this machine cannot reach, which say nothing about the peer.
NOT_FROM_HERE = {errno.ENETUNREACH, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}


# With ValueError and OverflowError, for peers may name hosts and ports that are not valid.
_UNUSABLE = (OSError, ValueError, OverflowError)


async def resolve_name(address: Address) -> list[Target]:
    """Look a name up by the system's resolver; numeric addresses need no look-up."""
    found = await trio.socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys((int(family), target) for family, _, _, _, target in found))


class DialError(Exception):
    """No connection could be made.

    Attributes:
        failure: of the requests that wait for the connection.
    """

    def __init__(self, failure: Failure, why: str) -> None:
        super().__init__(why)
        self.failure = failure


async def dial(address: Address, resolve: Resolve, timeout_s: float) -> socket.socket:
    """Connect to the peer's address that answers first.

    Raises:
        DialError: no address answered; REFUSED if all that can be reached from here refuse connections.
    """
    errors: list[Exception] = []
    with trio.move_on_after(timeout_s):
        try:
            targets = list(await resolve(address))
        except _UNUSABLE as error:
            raise DialError(Failure.OTHER, f"cannot resolve {address.host}: {_words(error, address)}") from error
        if len(targets) == 1:
            try:
                return await connect(targets[0])
            except _UNUSABLE as error:
                errors.append(error)
        else:
            winner = await _race(targets, errors)
            if winner is not None:
                return winner
        numbers = {getattr(error, "errno", None) for error in errors}
        refused = errno.ECONNREFUSED in numbers and numbers <= {errno.ECONNREFUSED} | NOT_FROM_HERE
        text = "; ".join(dict.fromkeys(_words(error, address) for error in errors)) or f"{address.host} has no address"
        raise DialError(Failure.REFUSED if refused else Failure.OTHER, text)
    raise DialError(Failure.OTHER, f"no answer within {timeout_s:g} s")


def _words(error: Exception, address: Address) -> str:
    """An error in words: without its number, and without an address that is the requested one."""
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return text.removesuffix(f" at {address.host} port {address.port}")


async def _race(targets: list[Target], errors: list[Exception]) -> socket.socket | None:
    winners: list[socket.socket] = []

    async def attempt(target: Target, failed: trio.Event) -> None:
        try:
            sock = await connect(target)
        except _UNUSABLE as error:
            errors.append(error)
            failed.set()
            return
        winners.append(sock)
        nursery.cancel_scope.cancel()

    try:
        async with trio.open_nursery() as nursery:
            for target in targets:
                failed = trio.Event()
                nursery.start_soon(attempt, target, failed)
                with trio.move_on_after(_HEAD_START_S):
                    await failed.wait()
    except BaseException:
        _close_all(winners)
        raise
    _close_all(winners[1:])
    return winners[0] if winners else None


def _close_all(sockets: list[socket.socket]) -> None:
    for sock in sockets:
        sock.close()


async def connect(target: Target) -> socket.socket:
    """Connect to one address.

    Raises:
        OSError: there is no answer from the address.
        ValueError, OverflowError: the address is not valid.
    """
    family, address = target
    with no_forks:
        sock = close_socket_in_children(socket.socket(family, socket.SOCK_STREAM))
    try:
        sock.setblocking(False)
        if isinstance(address, str):
            with short_path(address) as path:
                code = sock.connect_ex(path)
            if code:
                raise OSError(code, os.strerror(code), address)
            return sock
        tune(sock)
        code = sock.connect_ex(address)
        if code == errno.EINPROGRESS:
            await trio.lowlevel.wait_writable(sock.fileno())
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code == 0 and sock.getsockname() == sock.getpeername():
            code = errno.ECONNREFUSED  # the kernel picked that very port as ours and connected us to ourselves
        if code:
            raise OSError(code, f"{os.strerror(code)} at {address[0]} port {address[1]}")
    except BaseException:
        sock.close()
        raise
    return sock


def tune(sock: socket.socket) -> None:
    """Small frames leave at once; a peer whose machine vanished is noticed within a minute."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
