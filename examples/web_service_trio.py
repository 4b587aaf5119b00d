"""The store of web_service.py in trio: the same Starlette application under hypercorn. Run it three times:

    python web_service_trio.py NUMBER [FIRST_PORT [HTTP_PORT]]

Needs `pip install 'kraftcore[recipes]' starlette 'hypercorn[trio]'`.
"""

import sys
from contextlib import suppress
from functools import partial

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from web_service import application, configuration

import kraftcore


async def main(number: int, first_port: int = 9191, http_port: int = 0) -> None:
    http = Config()
    http.bind = [f"127.0.0.1:{http_port or 8000 + number}"]
    http.loglevel = "warning"
    app = application(configuration(number, first_port), kraftcore)
    await serve(app, http)  # type: ignore[arg-type]  # both say what ASGI is, in different words


if sys.argv[1:2] not in (["1"], ["2"], ["3"]):
    sys.exit(__doc__)
with suppress(KeyboardInterrupt):
    trio.run(partial(main, *map(int, sys.argv[1:])))
