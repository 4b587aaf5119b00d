"""The same store as a WSGI application, under gunicorn, whose workers share one node; ``gunicorn.conf.py`` opens it.

    gunicorn
    curl -X PUT --data blue http://127.0.0.1:8000/colour
    curl http://127.0.0.1:8000/colour

Needs `pip install 'kraftcore[recipes]' gunicorn`.
"""

import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

import kraftcore.blocking
from kraftcore import NodeConfig
from kraftcore.blocking import recipes

CONFIG = NodeConfig(node_id=1, directory="values", listeners=["127.0.0.1:0"], create="standalone")


class Application:
    """Each worker opens its own, after the fork: a node belongs to the process that opened it."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    def open(self) -> None:
        block = kraftcore.blocking.open_or_attach(CONFIG, recipes.RecipeMachine)
        node = self._stack.enter_context(block).with_timeout(20.0)
        self._values = recipes.Dict(node, "values")

    def close(self) -> None:
        self._stack.close()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        key = environ["PATH_INFO"].lstrip("/")
        if environ["REQUEST_METHOD"] == "PUT":
            value = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)).decode()
            self._values.set(key, value)
        else:
            value = self._values.get(key)
        start_response("404 Not Found" if value is None else "200 OK", [("X-Worker", str(os.getpid()))])
        return [] if value is None else [value.encode()]


application = Application()
