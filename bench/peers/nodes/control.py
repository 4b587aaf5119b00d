"""The protocol every node speaks with the driver: one JSON object a line over TCP, one answer a line.

    {"op": "status"}                      -> {"leader": bool}
    {"op": "try", "timeout_ms": 100}      -> {"ok": bool}: one proposal, awaited until it is committed and applied there
    {"op": "load", "value_bytes": 100, "in_flight": 64, "batch": 1, "read": "", "warm_s": 1, "measure_s": 5}
                                          -> {"calls", "errors", "seconds", "p50_us", "p99_us"}

A load is a closed loop of ``in_flight`` callers inside the process asked; each awaits its own proposal, or its own
batch of proposals handed over together. With ``read`` it reads instead: ``asks``, linearizable by asking a majority, or
``alone``, without asking anybody. ``{"unsupported": "reason"}`` answers a load that the library has no call for.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

Answer = dict[str, Any]
CONNECT_TIMEOUT_S = 2.0


def split(address: str) -> tuple[str, int]:
    """Take ``host:port`` apart."""
    host, port = address.rsplit(":", 1)
    return host, int(port)


class Control:
    """The driver's side.

    Raises:
        OSError: nobody listens there.
    """

    def __init__(self, address: str) -> None:
        self.socket = socket.create_connection(split(address), timeout=CONNECT_TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")

    def ask(self, op: str, timeout_s: float = 10.0, **fields: object) -> Answer:
        """Send one request and wait for its answer.

        Raises:
            OSError: the node is gone, or silent for longer than the timeout.
        """
        self.socket.settimeout(timeout_s)
        self.socket.sendall(json.dumps({"op": op, **fields}).encode() + b"\n")
        line = self.file.readline()
        if not line:
            raise ConnectionError("the node closed the connection")
        answer: Answer = json.loads(line)
        return answer

    def close(self) -> None:
        self.file.close()
        self.socket.close()


def value(size: int) -> bytes:
    """The value that every node proposes."""
    return bytes((i * 7 + 1) & 0xFF for i in range(size))


def summary(latencies_s: Sequence[float], errors: int, seconds: float) -> Answer:
    """Build the answer to a load.

    Args:
        latencies_s: one for each call that ended well within the measured time.
        errors: calls that failed.
        seconds: how long was measured.
    """
    answer: Answer = {"calls": len(latencies_s), "errors": errors, "seconds": seconds}
    if latencies_s:
        ordered = sorted(latencies_s)
        for name, share in (("p50_us", 0.5), ("p99_us", 0.99)):
            answer[name] = ordered[int(share * (len(ordered) - 1))] * 1e6
    return answer


def serve(address: str, handle: Callable[[Answer], Answer]) -> None:
    """Answer the driver, a thread for each connection, until the process ends."""

    def converse(connection: socket.socket) -> None:
        with connection, connection.makefile("rwb") as file:
            for line in file:
                file.write(json.dumps(handle(json.loads(line))).encode() + b"\n")
                file.flush()

    with socket.create_server(split(address)) as server:
        while True:
            connection, _ = server.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=converse, args=(connection,), daemon=True).start()
