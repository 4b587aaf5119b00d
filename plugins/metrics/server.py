"""The HTTP endpoint: a WSGI application in threads of its own, so that writing text does not hold up the node."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from kraftcore.errors import TransportError

_POLL_S = 0.1  # how long closing takes at most
_REQUEST_TIMEOUT_S = 10.0
CONNECTIONS_MAX = 64
"""More at a time are closed: each takes a thread and a file descriptor, of which the node's log needs some, too."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 16

    def __init__(self, *arguments: Any) -> None:
        self._free = threading.Semaphore(CONNECTIONS_MAX)
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # there is no thread for it
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def server_bind(self) -> None:
        # Not the base class's: it asks the name service for this host's name, which may take long.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # the other side went away


class _Handler(WSGIRequestHandler):
    timeout = _REQUEST_TIMEOUT_S

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class's name
        pass


class Endpoint:
    """Serves from the moment it is made until it is closed.

    Args:
        application: WSGI.
        host: where to listen.
        port: 0: any free one.

    Attributes:
        address: (host, port) it is bound to.

    Raises:
        TransportError: it cannot listen there.
    """

    def __init__(self, application: Callable[..., Any], host: str, port: int) -> None:
        family = _Server6 if ":" in host else _Server
        try:
            self._server = family((host, port), _Handler)
        except OSError as error:
            raise TransportError(error.errno or 0, f"metrics cannot listen on {host}:{port}: {error}") from error
        self._server.set_app(application)
        self.address = (host, self._server.server_port)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name="kraftcore metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Take no more requests; waits, so not in the node's task."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server6(_Server):
    address_family = socket.AF_INET6
