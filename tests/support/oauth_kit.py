"""Who issues tokens, for tests: keys, a JSON Web Key Set, tokens good and bad, an HTTP server for both."""

from __future__ import annotations

import base64
import functools
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER, AUDIENCE = "https://issuer.example", "kraftcore"
SECRET = b"a secret of sixty-four bytes, which is what HS512 asks for, no less"


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


@functools.cache
def private_key(kind: str) -> Any:
    """``RSA``, ``RSA-other``, ``RSA-short``, ``P-256``, ``P-384``, ``Ed25519``."""
    if kind.startswith("RSA"):
        return rsa.generate_private_key(65537, 1024 if kind == "RSA-short" else 2048)
    if kind == "Ed25519":
        return ed25519.Ed25519PrivateKey.generate()
    return ec.generate_private_key(ec.SECP256R1() if kind == "P-256" else ec.SECP384R1())


def public_jwk(kind: str, **more: object) -> dict[str, Any]:
    key = private_key(kind).public_key()
    algorithm = RSAAlgorithm if kind.startswith("RSA") else OKPAlgorithm if kind == "Ed25519" else ECAlgorithm
    return {**algorithm.to_jwk(key, as_dict=True), "kid": kind, **more}


def secret_jwk(**more: object) -> dict[str, Any]:
    return {"kty": "oct", "k": b64(SECRET), "kid": "oct", **more}


def key_set(*keys: Mapping[str, Any]) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


def claims(now_s: int, **more: object) -> dict[str, Any]:
    """Of a good token of ``alice``; None takes a claim away."""
    found = {"sub": "alice", "iat": now_s - 600, "exp": now_s + 3600, "iss": ISSUER, "aud": AUDIENCE, **more}
    return {name: value for name, value in found.items() if value is not None}


def token(payload: Mapping[str, Any] | bytes, kind: str = "RSA", algorithm: str = "RS256", **header: object) -> str:
    """A signed token; ``kid`` is the key's kind unless a header says otherwise, None for none.

    ``payload`` may be bytes that are no JSON.
    """
    whole = {"typ": "JWT", "kid": kind, **header}
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    key = SECRET if algorithm.startswith("HS") else private_key(kind)
    return jwt.PyJWS().encode(body, key, algorithm, {name: value for name, value in whole.items() if value is not None})


def unsigned(payload: Mapping[str, Any]) -> str:
    """A token that says ``alg: none``."""
    head = b64(json.dumps({"alg": "none"}).encode())
    return f"{head}.{b64(json.dumps(payload).encode())}."


def client_message(text: str, *, user: str = "", extensions: str = "") -> bytes:
    """What a client sends first, made by hand."""
    return f"n,{user and 'a=' + user},\x01auth=Bearer {text}\x01{extensions}\x01".encode()


class Issuer:
    """What an HTTP server answers, and what it was asked.

    Attributes:
        answers: by path: status, body and headers, or a function of the request's body that gives them.
        asked: path, headers and body of each request.
    """

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[tuple[str, dict[str, str], dict[str, list[str]]]] = []
        self.url = ""

    def answer(self, path: str, body: bytes, status: int = 200, **headers: str) -> None:
        self.answers[path] = (status, body, headers)

    def answer_tokens(self, path: str, make: Callable[[], str]) -> None:
        """Every POST gets a new token."""
        self.answers[path] = lambda: (200, json.dumps({"access_token": make(), "token_type": "Bearer"}).encode(), {})


@contextmanager
def http_issuer(context: ssl.SSLContext | None = None) -> Iterator[Issuer]:
    """An HTTP server on loopback, with a context HTTPS; ``url`` has no slash at its end."""
    issuer = Issuer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(b"")

        def do_POST(self) -> None:
            self._answer(self.rfile.read(int(self.headers["Content-Length"])))

        def _answer(self, body: bytes) -> None:
            issuer.asked.append((self.path, dict(self.headers), parse_qs(body.decode())))
            found = issuer.answers.get(self.path, (404, b"nothing here", {}))
            status, answer, headers = found() if callable(found) else found
            self.send_response(status)
            for name, value in {"Content-Length": str(len(answer)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer)

        def handle(self) -> None:
            with suppress(OSError):  # a client that does not like us
                super().handle()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    issuer.url = f"{'http' if context is None else 'https'}://127.0.0.1:{server.server_port}"
    try:
        yield issuer
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def write_keys(path: Path, *keys: Mapping[str, Any]) -> str:
    """Write a key set, in one step, and return its URL."""
    part = path.with_suffix(".part")
    part.write_bytes(key_set(*keys))
    part.replace(path)
    return path.as_uri()
