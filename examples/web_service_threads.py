"""The store of web_service.py in threads: Python's own HTTP server, which has a thread for each request.

Run it three times, with 1, 2 and 3 for NUMBER; any of them takes any request:

    python web_service_threads.py NUMBER [FIRST_PORT [HTTP_PORT]]

Needs `pip install 'kraftcore[recipes]'`.
"""

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import kraftcore.blocking
from kraftcore import NodeConfig, NodeStoppedError
from kraftcore.blocking import recipes


def configuration(number: int, first_port: int) -> NodeConfig:
    servers = {other: f"127.0.0.1:{first_port + other - 1}" for other in (1, 2, 3)}
    return NodeConfig(
        node_id=number,
        directory=f"values-{number}",
        cluster_id="values",
        listeners=[servers[number]],
        voters=[f"{other}@{server}" for other, server in servers.items()],
        create="join",
    )


class Server(ThreadingHTTPServer):
    def __init__(self, port: int, node: kraftcore.blocking.Node) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.node = node
        self.values = recipes.Dict(node, "values")


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_PUT(self) -> None:
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        # Whoever leads appends it; the answer comes when it is on the disks of a majority.
        self.answer(lambda: (200, json.dumps({"version": self.server.values.set(self.path, text)})))

    def do_GET(self) -> None:
        self.answer(self.status if self.path == "/status" else self.value)

    def value(self) -> tuple[int, str]:
        found = self.server.values.get(self.path)
        return (404, "no such key") if found is None else (200, found)

    def status(self) -> tuple[int, str]:
        found = self.server.node.status()
        voters = sorted(found.voters.ids)
        return 200, json.dumps({"role": found.role.value, "leader": found.leader_id, "voters": voters})

    def answer(self, ask: Callable[[], tuple[int, str]]) -> None:
        try:
            code, text = ask()
        except NodeStoppedError as error:  # a full disk, for example
            code, text = 503, str(error)
        body = text.encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        if code == 503:  # without it the server would go on, and only fail
            self.server.shutdown()

    def log_message(self, *_: object) -> None:
        pass


def main(number: int, first_port: int = 9191, http_port: int = 0) -> None:
    config = configuration(number, first_port)
    with (
        kraftcore.blocking.open_node(config, recipes.RecipeMachine()) as node,
        Server(http_port or 8000 + number, node) as server,
    ):
        server.serve_forever()


if sys.argv[1:2] not in (["1"], ["2"], ["3"]):
    sys.exit(__doc__)
with suppress(KeyboardInterrupt):
    main(*map(int, sys.argv[1:]))
