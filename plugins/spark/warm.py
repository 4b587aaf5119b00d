"""A process that keeps a Spark session and answers queries over a Unix socket, so that queries need not start Spark.

A request is a line of JSON. An answer is lines of JSON: ``{kind: text}``, a part of the answer, any number of times,
then ``{"end": true}`` or ``{"error": text}``. Only the owner of the socket may connect (mode 600).
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from kraftcore.errors import LocalError

REQUEST_BYTES_MAX = 1 << 20
_LOOK_S = 0.5
_REQUEST_S = 10.0
Answer = Callable[[dict[str, Any]], Iterator[tuple[str, str]]]


def listen(path: str | Path) -> socket.socket:
    """Make the socket. A socket that an ended process left is replaced.

    Raises:
        LocalError: a process listens there, or the socket cannot be made.
    """
    place = str(path)
    try:
        _connected(place).close()
    except LocalError:
        pass
    else:
        raise LocalError(f"{place}: somebody listens there already")
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if Path(place).is_socket():
            Path(place).unlink()
        before = os.umask(0o177)
        try:
            found.bind(place)
        finally:
            os.umask(before)
        found.listen()
    except OSError as error:
        found.close()
        raise LocalError(f"{place}: no socket can be made there: {error.strerror or error}") from None
    return found


def serve(listener: socket.socket, answer: Answer, stop: threading.Event) -> None:
    """Answer requests, each in a thread of its own, until stopped.

    Args:
        listener: the socket of ``listen``; closed and removed at the end.
        answer: yields the parts of an answer to a request, each a kind and a text; its exceptions are sent as
            ``{"error": text}``.
        stop: set it to end within half a second.
    """
    path = listener.getsockname()
    listener.settimeout(_LOOK_S)
    try:
        while not stop.is_set():
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            threading.Thread(target=_answer, args=(connection, answer), daemon=True).start()
    finally:
        listener.close()
        Path(path).unlink(missing_ok=True)


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


def ask(path: str | Path, request: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Send a request and yield the parts of the answer.

    Raises:
        LocalError: nobody listens there, the answer ended early, or the answer is an error.
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
            raise LocalError(f"{path}: {error.strerror or error}") from None
        raise LocalError(f"{path}: the answer ended early: the process that holds the session has ended")


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
