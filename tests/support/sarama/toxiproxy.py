"""What sarama's tests take for toxiproxy: its HTTP interface, and the five addresses that they bootstrap from.

Connections to those addresses go to the cluster whose turn it is, which tells its own addresses. Toxics are accepted
and do nothing, so a test that needs them to cut a connection cannot pass.
"""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any, Self

HOST = "127.0.0.1"
BOOTSTRAP = tuple(range(29091, 29096))
"""Where sarama's tests expect brokers, whatever the proxies say."""
CHUNK = 1 << 16


class Toxiproxy:
    """The stand-in; within ``with`` it serves.

    Args:
        ports: where it takes connections of clients, one a proxy; 0: any that is free.

    Attributes:
        url: of its HTTP interface.
        ports: where it takes connections.
        brokers: the ports of the cluster whose turn it is; proxies beyond their number begin again with the first.

    Raises:
        OSError: somebody else listens at one of the ports.
    """

    def __init__(self, ports: Sequence[int] = BOOTSTRAP) -> None:
        self.brokers: Sequence[int] = ()
        self._open = ExitStack()
        with ExitStack() as stack:
            interface = stack.enter_context(_Interface(self._port_of))
            gates = [stack.enter_context(_Gate(port, self._port_of, at)) for at, port in enumerate(ports)]
            self._servers = [interface, *gates]
            self._open = stack.pop_all()
        self.ports = [gate.server_address[1] for gate in gates]
        self.url = f"http://{HOST}:{interface.server_address[1]}"

    def _port_of(self, at: int) -> int:
        return self.brokers[at % len(self.brokers)]

    def __enter__(self) -> Self:
        for server in self._servers:
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            self._open.callback(server.shutdown)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()


class _Interface(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port_of: Callable[[int], int]) -> None:
        self.port_of = port_of
        super().__init__((HOST, 0), _Request)


class _Request(BaseHTTPRequestHandler):
    """GET and POST of ``/proxies/kafkaN``, POST of its ``/toxics`` and of ``/reset``."""

    server: _Interface

    def do_GET(self) -> None:
        found = re.fullmatch(r"/proxies/kafka([1-5])", self.path)
        if found is None:
            self._answer(404, {"error": "no such proxy"})
            return
        at = int(found[1]) - 1
        addresses = {"listen": f"{HOST}:{BOOTSTRAP[at]}", "upstream": f"{HOST}:{self.server.port_of(at)}"}
        self._answer(200, {"name": f"kafka{found[1]}", **addresses, "enabled": True})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == "/reset":
            self._answer(204)
        elif re.fullmatch(r"/proxies/kafka[1-5](/toxics)?", self.path):
            self._answer(200, json.loads(body))
        else:
            self._answer(404, {"error": "no such proxy"})

    def _answer(self, status: int, content: dict[str, Any] | None = None) -> None:
        self.send_response(status)
        self.end_headers()
        if content is not None:
            self.wfile.write(json.dumps(content).encode())

    def log_message(self, *_: object) -> None:
        """Say nothing of a request."""


class _Gate(ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, port: int, port_of: Callable[[int], int], at: int) -> None:
        self.port_of = lambda: port_of(at)
        super().__init__((HOST, port), _Connection)


class _Connection(BaseRequestHandler):
    server: _Gate
    request: socket.socket

    def handle(self) -> None:
        try:
            broker = socket.create_connection((HOST, self.server.port_of()))
        except OSError:  # then the client, too, finds nobody
            return
        with broker:
            back = threading.Thread(target=_pass_on, args=(broker, self.request), daemon=True)
            back.start()
            _pass_on(self.request, broker)
            back.join()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    """Bytes, until their end; and that."""
    with suppress(OSError):
        while data := source.recv(CHUNK):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
