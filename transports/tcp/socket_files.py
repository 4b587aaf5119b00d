"""Unix sockets: their files, for this user alone, at paths of any length."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from kraftcore.errors import TransportError
from kraftcore.ownership import close_socket_in_children, no_forks

PATH_BYTES = 107 if sys.platform == "linux" else 103
"""The longest path in a socket's address: unix(7), ``sun_path``; less on BSD and macOS."""


def is_file(host: str) -> bool:
    """Whether an address's host is the path of a Unix socket: it has a slash, which no name has."""
    return "/" in host


@contextmanager
def short_path(path: str) -> Iterator[str]:
    """A path that fits a socket's address: the given one, or one through an open descriptor of its folder.

    Raises:
        OSError: the folder cannot be opened.
        TransportError: the path is too long, and the system has no other way to the folder.
    """
    if len(os.fsencode(path)) <= PATH_BYTES:
        yield path
        return
    if sys.platform != "linux":
        raise TransportError(
            f"{path} is longer than the {PATH_BYTES} bytes that a socket's path may have: name the directory by a "
            "shorter path, for example one relative to the working directory"
        )
    folder, name = os.path.split(path)
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)


def bind_file(path: str, backlog: int) -> socket.socket:
    """A socket that listens at a path, and that only this user can connect to; a file that is there is replaced.

    Hold a lock that says that no other process listens there.

    Raises:
        TransportError: the file cannot be made.
    """
    with no_forks:
        sock = close_socket_in_children(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    try:
        with suppress(FileNotFoundError):
            os.unlink(path)
        with short_path(path) as short:
            sock.bind(short)
        os.chmod(path, 0o600)  # before `listen`: until then nobody can connect
        sock.listen(backlog)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        if isinstance(error, TransportError):
            raise
        raise TransportError(f"cannot listen on {path}: {error.strerror or error}") from error
    return sock
