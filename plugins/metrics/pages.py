"""What the endpoint serves: the metrics, and two probes. Every other path is not found."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from kraftcore.node.health import Health

Application: TypeAlias = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
"""WSGI."""

LIVE, READY, METRICS = "/livez", "/readyz", "/metrics"
_TEXT = ("Content-Type", "text/plain; charset=utf-8")


def pages(metrics: Application, health: Callable[[], Health]) -> Application:
    """The application that answers ``/metrics``, ``/livez`` and ``/readyz``.

    A probe gets 200 with ``ok``, or 503 with a reason a line.

    Args:
        metrics: answers ``/metrics``.
        health: returns the node's; called in the thread that answers.
    """

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == METRICS:
            return metrics(environ, start_response)
        if path not in (LIVE, READY):
            start_response("404 Not Found", [_TEXT])
            return [f"there are {METRICS}, {LIVE} and {READY}\n".encode()]
        found = health()
        if found.is_live if path == LIVE else found.is_ready:
            start_response("200 OK", [_TEXT])
            return [b"ok\n"]
        start_response("503 Service Unavailable", [_TEXT])
        return ["".join(f"{reason}\n" for reason in found.reasons).encode()]

    return answer
