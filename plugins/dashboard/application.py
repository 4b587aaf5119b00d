"""What the dashboard answers over HTTP. It changes nothing, and loads nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.resources import files

import trio
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from kraftcore.plugins.dashboard.sharing import Sharing
from kraftcore.plugins.picture import Picture
from kraftcore.plugins.vega import NOTICE, make_script

FOUND_MAX = 200
"""Partitions that a search answers at most."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
# Vega makes functions of its expressions, which takes `unsafe-eval`, and styles of its own.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_FILES = {
    "/": ("page.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
}


def make_application(picture: Picture, sharing: Sharing, host: str) -> Starlette:
    """The dashboard as an ASGI application.

    Args:
        picture: for searches.
        sharing: for viewers.
        host: where it listens; on the loopback interface, requests that name another host are refused, so that no
            page of a stranger can read it by a name that leads here.
    """
    vega: list[bytes] = []

    async def draw(_: Request) -> Response:
        if not vega:
            vega.append(f"/* {NOTICE} */\n{await trio.to_thread.run_sync(make_script)}".encode())
        return Response(vega[0], media_type="text/javascript", headers=_HEADERS | {"Cache-Control": "max-age=86400"})

    async def show(_: Request) -> Response:
        return JSONResponse(sharing.frame(), headers=_HEADERS)

    async def follow(_: Request) -> Response:
        if sharing.is_full:
            return Response("too many viewers: close another page\n", 503, headers=_HEADERS)
        return StreamingResponse(sharing.events(), media_type="text/event-stream", headers=_HEADERS)

    async def search(request: Request) -> Response:
        text, found = request.query_params.get("search", ""), []
        for row in picture.cluster.search(text, FOUND_MAX):
            if row is None:
                await trio.lowlevel.checkpoint()
            else:
                found.append(row)
        return JSONResponse(found, headers=_HEADERS)

    hosts = [*_LOOPBACK, host] if host in _LOOPBACK else ["*"]
    return Starlette(
        routes=[
            *(Route(path, _file(*of)) for path, of in _FILES.items()),
            Route("/vega.js", draw),
            Route("/picture", show),
            Route("/events", follow),
            Route("/partitions", search),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)],
    )


def _file(name: str, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    data = (files(__package__) / name).read_bytes()

    async def answer(_: Request) -> Response:
        return Response(data, media_type=media_type, headers=_HEADERS)

    return answer
