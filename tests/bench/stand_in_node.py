"""A node that speaks the benchmark's protocol and replicates nothing: what it says it measured is known beforehand.

Node 0 leads; the others commit at once when asked to, as if they had been elected.
"""

from __future__ import annotations

import json
import socketserver
import sys


class Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        for line in self.rfile:
            self.wfile.write(json.dumps(answer(json.loads(line))).encode() + b"\n")


def answer(request: dict[str, object]) -> dict[str, object]:
    if request["op"] == "status":
        return {"leader": sys.argv[1] == "0"}
    if request["op"] == "try":
        return {"ok": True}
    if request["batch"] != 1 and "--slow" in sys.argv:
        return {"unsupported": "one value a call"}
    calls = 10 if "--slow" in sys.argv else 1000
    return {"calls": calls, "errors": 0, "seconds": 0.5, "p50_us": 500.0, "p99_us": 900.0}


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


if "--broken" in sys.argv:
    print("no luck")
    sys.exit(3)
host, port = sys.argv[2].split(":")
with Server((host, int(port)), Handler) as server:
    server.serve_forever()
