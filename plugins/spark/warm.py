"""A process that keeps a Spark session and answers queries over a Unix socket, so that queries need not start Spark.

A request is a line of JSON. An answer is lines of JSON: ``{kind: text}``, a part of the answer, any number of times,
then ``{"end": true}`` or ``{"error": text}``. Only the owner of the socket may connect (mode 600).
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from kraftcore.errors import LocalError

REQUEST_BYTES_MAX = 1 << 20
_LOOK_S = 0.5
_REQUEST_S = 10.0
_FINISH_S = 10.0
_TRY_S = 0.05
_PROBED_S = 1.0
_STARTED: list[subprocess.Popen[bytes]] = []
"""Processes that outlive this one: an object without a reference would warn of that."""
Answer = Callable[[dict[str, Any]], Iterator[tuple[str, str]]]


class SessionSocket:
    """A socket to listen on, and the lock that says whose it is. ``FILE.lock`` holds the id of the process.

    Args:
        path: path of the socket. One that an ended process left is replaced.

    Raises:
        LocalError: a process listens there, or the socket cannot be made.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        try:
            self._lock = os.open(_lock_of(self.path), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise _not_made(self.path, error) from None
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            _take(self._lock)
            os.truncate(self._lock, 0)
            os.pwrite(self._lock, str(os.getpid()).encode(), 0)
            if Path(self.path).is_socket():
                Path(self.path).unlink()
            before = os.umask(0o177)
            try:
                self.socket.bind(self.path)
            finally:
                os.umask(before)
            self.socket.listen()
        except OSError as error:
            self.socket.close()
            os.close(self._lock)
            if isinstance(error, BlockingIOError):
                raise LocalError(f"{self.path}: somebody listens there already") from None
            raise _not_made(self.path, error) from None

    def close(self) -> None:
        """Remove the socket, and give the lock back."""
        self.socket.close()
        Path(self.path).unlink(missing_ok=True)
        os.close(self._lock)


def _take(lock: int) -> None:
    # ``is_held`` of others has the lock for a moment.
    limit = time.monotonic() + _PROBED_S
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > limit:
                raise
            time.sleep(_TRY_S / 10)


def _lock_of(path: str) -> str:
    return f"{path}.lock"


def _not_made(path: str, error: OSError) -> LocalError:
    return LocalError(f"{path}: no socket can be made there: {error.strerror or error}")


def is_held(path: str | Path) -> bool:
    """Whether a process listens at a socket's path, or is about to."""
    try:
        lock = os.open(_lock_of(str(path)), os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def serve(listener: SessionSocket, answer: Answer, stop: threading.Event, idle_s: float | None = None) -> None:
    """Answer requests, each in a thread of its own, until stopped; requests that are being answered are finished.

    Args:
        listener: where requests come in.
        answer: yields the parts of an answer to a request, each a kind and a text; its exceptions are sent as
            ``{"error": text}``.
        stop: set it to take no more requests after half a second.
        idle_s: seconds without a request after which it ends by itself; None: never.
    """
    listener.socket.settimeout(_LOOK_S)
    threads: list[threading.Thread] = []
    asked = time.monotonic()
    while not stop.is_set() and (idle_s is None or threads or time.monotonic() - asked < idle_s):
        try:
            connection, _ = listener.socket.accept()
        except TimeoutError:
            asked = time.monotonic() if threads else asked
            threads = [one for one in threads if one.is_alive()]
            continue
        threads.append(threading.Thread(target=_answer, args=(connection, answer), daemon=True))
        threads[-1].start()
    limit = time.monotonic() + _FINISH_S
    for thread in threads:
        thread.join(max(0.0, limit - time.monotonic()))


def _answer(connection: socket.socket, answer: Answer) -> None:
    with connection, suppress(OSError):  # the client has gone
        connection.settimeout(_REQUEST_S)
        with connection.makefile("rb") as stream:
            try:
                request = json.loads(stream.readline(REQUEST_BYTES_MAX))
                connection.settimeout(None)
                for kind, text in answer(request):
                    _send(connection, **{kind: text})
                _send(connection, end=True)
            except OSError:
                raise
            except Exception as error:
                _send(connection, error=str(error) or type(error).__name__)


def _send(connection: socket.socket, /, **what: object) -> None:
    connection.sendall(json.dumps(what).encode() + b"\n")


class EndedError(LocalError):
    """The process that answers has ended before the answer did."""


def ask(path: str | Path, request: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Send a request and yield the parts of the answer.

    Raises:
        EndedError: the answer ended early.
        LocalError: nobody listens there, or the answer is an error.
    """
    with closing(_connected(str(path))) as connection, connection.makefile("rb") as stream:
        try:
            _send(connection, **request)
            for line in stream:
                found = json.loads(line)
                if "error" in found:
                    raise LocalError(str(found["error"]))
                if "end" in found:
                    return
                yield from found.items()
        except OSError as error:
            raise EndedError(f"{path}: {error.strerror or error}") from None
        raise EndedError(f"{path}: the answer ended early: the process that holds the session has ended; ask again")


def _connected(path: str) -> socket.socket:
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        found.connect(path)
    except OSError as error:
        found.close()
        raise LocalError(
            f"{path}: nobody listens there ({error.strerror or error}): start 'kraftcore spark serve --socket {path}'"
        ) from None
    return found


def start(path: str | Path, command: Sequence[str], log: Path) -> None:
    """Start the process that listens at a socket's path, unless it is there. Of two that are started at once one stays.

    Args:
        path: path of the socket.
        command: program and arguments; it outlives this process and its terminal.
        log: file that its stdout and stderr go to.

    Raises:
        LocalError: it ended before it listened.
    """
    child: subprocess.Popen[bytes] | None = None
    while True:
        try:
            _connected(str(path)).close()
        except LocalError:
            pass
        else:
            return
        if child is None and not is_held(path):
            with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as file:
                child = subprocess.Popen(  # noqa: S603 -- the caller's own command
                    command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True, cwd=log.parent
                )
            _STARTED.append(child)
        elif child is not None and child.poll() is not None and not is_held(path):
            raise LocalError(f"the session that answers did not start: see {log}")
        time.sleep(_TRY_S)
