"""A key-value store over HTTP: FastAPI, under several workers that share one node.

    uvicorn web:app --workers 4
    curl -X PUT -H 'Content-Type: application/json' --data '"blue"' http://127.0.0.1:8000/values/colour
    curl http://127.0.0.1:8000/values/colour

The first worker opens the node, the others attach to it. Kill any of them: the others go on, one of them opens the node
if need be, and uvicorn starts another worker. Several hosts have one such node each, with `voters` in its
configuration. Needs `pip install 'kraftcore[recipes]' fastapi uvicorn`.
"""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Body, FastAPI, HTTPException

import kraftcore.aio
from kraftcore import NodeConfig, NodeStoppedError
from kraftcore.aio import recipes

CONFIG = NodeConfig(node_id=1, directory="values", listeners=["127.0.0.1:0"], create="standalone")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    try:
        async with kraftcore.aio.open_or_attach(CONFIG, recipes.RecipeMachine) as node:
            app.state.values = recipes.Dict(node, "values")
            yield
    except NodeStoppedError:  # a full disk, for example: uvicorn starts another worker when this one ends
        signal.raise_signal(signal.SIGTERM)
        raise


app = FastAPI(lifespan=lifespan)


@app.put("/values/{key}")
async def put(key: str, value: Annotated[str, Body()]) -> dict[str, Any]:
    version = await app.state.values.set(key, value)
    return {"version": version, "worker": os.getpid()}


@app.get("/values/{key}")
async def get(key: str) -> dict[str, Any]:
    found = await app.state.values.get_versioned(key)
    if found is None:
        raise HTTPException(404, "no such key")
    return {"value": found.value, "version": found.version, "worker": os.getpid()}
