"""A key-value store over HTTP, replicated: a Starlette application in asyncio, with a node in each of its processes.

Run it three times, with 1, 2 and 3 for NUMBER; any of them takes any request:

    python web_service.py NUMBER [FIRST_PORT [HTTP_PORT]]
    curl -X PUT --data blue http://127.0.0.1:8001/values/colour
    curl http://127.0.0.1:8003/values/colour

Needs `pip install 'kraftcore[recipes]' starlette uvicorn`. web_service_trio.py serves the same application in trio.
"""

import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import ModuleType

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

import kraftcore.aio
from kraftcore import NodeConfig, NodeStoppedError


def configuration(number: int, first_port: int = 9191) -> NodeConfig:
    servers = {other: f"127.0.0.1:{first_port + other - 1}" for other in (1, 2, 3)}
    return NodeConfig(
        node_id=number,
        directory=f"values-{number}",
        cluster_id="values",
        listeners=[servers[number]],
        voters=[f"{other}@{server}" for other, server in servers.items()],
        create="join",
    )


def application(config: NodeConfig, library: ModuleType) -> Starlette:
    """The application for asyncio (`kraftcore.aio`) or trio (`kraftcore`): the names are the same in both."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        try:
            async with library.open_node(config, library.recipes.RecipeMachine()) as node:
                app.state.node = node
                app.state.values = library.recipes.Dict(node, "values")
                yield
        except NodeStoppedError:  # a full disk, for example: without it the server would go on, and only fail
            signal.raise_signal(signal.SIGTERM)
            raise

    routes = [
        Route("/values/{key}", put, methods=["PUT"]),
        Route("/values/{key}", get, methods=["GET"]),
        Route("/status", status),
    ]
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers={NodeStoppedError: stopped})


async def put(request: Request) -> Response:
    text = (await request.body()).decode()
    # Whoever leads appends it; the answer comes when it is on the disks of a majority.
    version = await request.app.state.values.set(request.path_params["key"], text)
    return JSONResponse({"version": version})


async def get(request: Request) -> Response:
    found = await request.app.state.values.get_versioned(request.path_params["key"])
    if found is None:
        return PlainTextResponse("no such key", status_code=404)
    return PlainTextResponse(found.value, headers={"ETag": f'"{found.version}"'})


async def status(request: Request) -> Response:
    found = request.app.state.node.status()
    voters = sorted(found.voters.ids)
    return JSONResponse({"role": found.role.value, "epoch": found.epoch, "leader": found.leader_id, "voters": voters})


async def stopped(_: Request, error: Exception) -> Response:
    return PlainTextResponse(str(error), status_code=503)


def main(number: int, first_port: int = 9191, http_port: int = 0) -> None:
    import uvicorn

    app = application(configuration(number, first_port), kraftcore.aio)
    uvicorn.run(app, host="127.0.0.1", port=http_port or 8000 + number, log_level="warning")


if __name__ == "__main__":
    if sys.argv[1:2] not in (["1"], ["2"], ["3"]):
        sys.exit(__doc__)
    main(*map(int, sys.argv[1:]))
