"""An HTTP endpoint: a WSGI application in threads of its own, so that writing text does not hold up the node.

A connection has one request, a thread, and so long a time. There are so many at once: one more has the oldest broken
off, and is told 503 when the threads of as many that were broken off have not ended either.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from kraftcore.errors import TransportError
from kraftcore.ownership import close_socket_in_children, no_forks

CONNECTIONS_MAX = 16
"""Connections that are served at once."""
REQUEST_TIMEOUT_S = 10.0
"""How long one may last by default, whatever is sent or read."""
_POLL_S = 0.1  # how long closing takes at most
_FULL = b"HTTP/1.0 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    timeout_s = REQUEST_TIMEOUT_S
    block_on_close = False
    request_queue_size = 16

    def __init__(self, address: tuple[str, int], handler: type[WSGIRequestHandler]) -> None:
        self._lock = threading.Lock()
        self._served: dict[socket.socket, float] = {}  # connections, and when they began
        self._ending: set[socket.socket] = set()  # those that were broken off
        with no_forks:
            super().__init__(address, handler)
            close_socket_in_children(self.socket)
        self.socket.setblocking(False)  # `get_request` must not wait

    def get_request(self) -> tuple[socket.socket, Any]:
        with no_forks:
            request, address = super().get_request()
            return close_socket_in_children(request), address

    def server_bind(self) -> None:
        # Not the base class's: it asks the name service for this host's name, which may take long.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            is_full = len(self._served) + len(self._ending) >= 2 * CONNECTIONS_MAX
            if not is_full:
                if len(self._served) >= CONNECTIONS_MAX:
                    self._break_off(next(iter(self._served)))
                self._served[request] = time.monotonic()
        if not is_full:
            super().process_request(request, client_address)
            return
        request.setblocking(False)  # it has room for so little
        with suppress(OSError):
            request.send(_FULL)
        self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._served.pop(request, None)
            self._ending.discard(request)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        # Called again and again while it serves.
        self._end_before(time.monotonic() - self.timeout_s)

    def server_close(self) -> None:
        super().server_close()
        self._end_before(time.monotonic())

    def _end_before(self, latest: float) -> None:
        with self._lock:
            for request in [each for each, began in self._served.items() if began <= latest]:
                self._break_off(request)

    def _break_off(self, request: socket.socket) -> None:
        """Its thread ends when it reads or writes next. The lock is held."""
        del self._served[request]
        self._ending.add(request)
        with suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # the other side went away


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class's name
        pass


class Endpoint:
    """Serves from the moment it is made until it is closed.

    Args:
        application: WSGI.
        host: where to listen.
        port: 0: any free one.
        name: of what is served, for errors and for the thread.
        timeout_s: how long a connection may last, whatever is sent or read; None: ``REQUEST_TIMEOUT_S``.

    Attributes:
        address: (host, port) it is bound to.

    Raises:
        TransportError: it cannot listen there.
    """

    def __init__(
        self,
        application: Callable[..., Any],
        host: str,
        port: int,
        *,
        name: str = "metrics",
        timeout_s: float | None = None,
    ) -> None:
        family = _Server6 if ":" in host else _Server
        try:
            self._server = family((host, port), _Handler)
        except OSError as error:
            text = f"{name} cannot listen on {host}:{port}: {error.strerror or error}"
            raise TransportError(error.errno or 0, text) from error
        self._server.timeout_s = REQUEST_TIMEOUT_S if timeout_s is None else timeout_s
        self._server.set_app(application)
        self.address = (host, self._server.server_port)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name=f"kraftcore {name}", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Take no more requests, and break off those that are served; waits, so not in the node's task."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server6(_Server):
    address_family = socket.AF_INET6
