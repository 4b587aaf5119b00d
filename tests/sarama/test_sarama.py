"""What stands between sarama's tests and the clusters, and how their results are read; ``run.py`` runs them."""

from __future__ import annotations

import json
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import Request, urlopen

import pytest
from sarama.module import kept, names_in
from sarama.toxiproxy import HOST, Toxiproxy
from sarama.turns import FAILED, LIMIT_S, PASSED, SKIPPED, judge

NAME = "TestFuncProducing"
LATENCY = "Expected histogram metric 'request-latency-in-ms-for-broker-2' min >= 10, got 3"


class Greeting(socketserver.BaseRequestHandler):
    """Says who it is, then what it is told, until that ends."""

    def handle(self) -> None:
        self.request.sendall(b"%d:" % self.server.server_address[1])
        while data := self.request.recv(1 << 16):
            self.request.sendall(data)


@contextmanager
def broker() -> Iterator[int]:
    """Something that listens; its port."""
    with socketserver.ThreadingTCPServer((HOST, 0), Greeting) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def said_at(port: int, text: bytes = b"") -> bytes:
    with socket.create_connection((HOST, port)) as client:
        client.sendall(text)
        client.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: client.recv(1 << 16), b""))


def test_connections_go_to_the_cluster_whose_turn_it_is() -> None:
    with broker() as one, broker() as other, Toxiproxy([0] * 5) as proxy:
        proxy.brokers = [one, other]
        large = bytes(1 << 20)
        assert [said_at(port) for port in proxy.ports] == [b"%d:" % port for port in (one, other, one, other, one)]
        assert said_at(proxy.ports[1], large) == b"%d:" % other + large
        proxy.brokers = [other]
        assert said_at(proxy.ports[0]) == b"%d:" % other


def test_a_broker_that_is_gone_ends_connections() -> None:
    with broker() as port:
        pass
    with Toxiproxy([0]) as proxy:
        proxy.brokers = [port]
        assert said_at(proxy.ports[0]) == b""


def test_the_http_interface() -> None:
    with Toxiproxy([0] * 5) as proxy:
        proxy.brokers = [9092]

        def ask(path: str, content: object = None) -> tuple[int, object]:
            body = None if content is None else json.dumps(content).encode()
            with urlopen(Request(proxy.url + path, data=body)) as answer:
                text = answer.read()
            return answer.status, json.loads(text) if text else None

        named = {"name": "kafka5", "listen": "127.0.0.1:29095", "upstream": "127.0.0.1:9092", "enabled": True}
        assert ask("/proxies/kafka5") == (200, named)
        assert ask("/proxies/kafka5", named) == (200, named)
        toxic = {"type": "latency", "attributes": {"latency": 10}}
        assert ask("/proxies/kafka1/toxics", toxic) == (200, toxic)
        assert ask("/reset", {}) == (204, None)
        with pytest.raises(OSError, match="404"):
            ask("/proxies/kafka6")


@pytest.mark.parametrize(
    ("status", "text", "result", "reason"),
    [
        (0, f"--- PASS: {NAME} (1.00s)\nPASS", PASSED, ""),
        (0, f"--- SKIP: {NAME} (0.00s)\nPASS", SKIPPED, ""),
        (0, "testing: warning: no tests to run\nPASS", FAILED, "no such test ran"),
        (1, f"    a_test.go:7: {LATENCY}\n--- FAIL: {NAME} (1.00s)\nFAIL", PASSED, ""),
        (1, f"    a_test.go:7: {LATENCY}\n    a_test.go:9: late\n--- FAIL: {NAME} (1.00s)", FAILED, f"{LATENCY}; late"),
        (
            2,
            f"    a_test.go:7: {LATENCY}\npanic: test timed out after 5m0s\n",
            FAILED,
            "panic: test timed out after 5m0s",
        ),
        (
            1,
            "    a_test.go:7: \n        \tError:      \tNot equal:\n        \t            \tone\n",
            FAILED,
            "Not equal: one",
        ),
        (2, "", FAILED, "exit status 2"),
        (None, f"    a_test.go:7: {LATENCY}", FAILED, f"did not end within {2 * LIMIT_S} s"),
    ],
)
def test_what_a_process_printed_tells_how_its_test_ended(
    status: int | None, text: str, result: str, reason: str
) -> None:
    found = judge(NAME, status, text, 1.5)
    assert (found.result, found.reason, found.seconds) == (result, reason, 1.5)


def test_which_tests_are_run() -> None:
    tagged = (
        "//go:build functional\n\nfunc TestMain(m *testing.M) {\nfunc TestB(t *testing.T) {\nfunc TestA(t *testing.T) {"
    )
    assert names_in([tagged, "func TestUnit(t *testing.T) {"]) == ["TestA", "TestB"]
    assert kept(["TestFuncTxnProduce", "TestFuncTxn", "TestVersionMatrix"]) == ["TestFuncTxn", "TestVersionMatrix"]
