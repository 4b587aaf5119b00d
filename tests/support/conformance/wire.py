"""Connections by the suites' own codec: a client of the node under test, and a scripted node that it talks to."""

import contextlib
import socket
import struct
import threading
import time

from kafka_lab import HOST

from conformance import codec
from conformance.codec import API_VERSIONS
from conformance.target import PATIENCE

HOLD, DROP = object(), object()  # a script's answers: no reply, or close the connection


def read_exact(sock, n):
    out = bytearray()
    while len(out) < n:
        part = sock.recv(n - len(out))
        if not part:
            raise ConnectionError(f"closed after {len(out)} of {n} bytes")
        out += part
    return bytes(out)


def read_frame(sock):
    return read_exact(sock, struct.unpack(">i", read_exact(sock, 4))[0])


def write_frame(sock, frame):
    sock.sendall(struct.pack(">i", len(frame)) + frame)


class Client:
    """One connection. Deadlines are seconds, scaled by CONF_PATIENCE."""

    release = codec.THIS

    def __init__(self, port, timeout=20):
        timeout *= max(1, PATIENCE)
        self.sock = socket.create_connection((HOST, port), timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.timeout, self.correlation = timeout, 0

    def send(self, key, version, body, client_id="conformance", correlation=None):
        self.correlation = self.correlation + 1 if correlation is None else correlation
        self.raw(self.release.request_frame(key, version, self.correlation, body, client_id))
        return self.correlation

    def raw(self, frame):
        write_frame(self.sock, frame)

    def recv(self, timeout=None):
        self.sock.settimeout(timeout or self.timeout)
        return read_frame(self.sock)

    def reply(self, key, version, correlation, timeout=None):
        got, body = self.release.parse_response(key, version, self.recv(timeout))
        assert got == correlation, f"correlation {got}, sent {correlation}"
        return body

    def call(self, key, version, body, timeout=None, **kw):
        return self.reply(key, version, self.send(key, version, body, **kw), timeout)

    def silent(self, seconds):
        """True when nothing arrives for so long."""
        self.sock.settimeout(seconds)
        try:
            return self.sock.recv(1, socket.MSG_PEEK) is None
        except TimeoutError:
            return True

    def closed(self, timeout=20):
        """True when the other side closes without sending anything more."""
        self.sock.settimeout(timeout * max(1, PATIENCE))
        try:
            return self.sock.recv(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    def close(self):
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Seen:
    """A request that a scripted node got, and its place among them."""

    def __init__(self, name, key, version, body, frame, order):
        self.name, self.key, self.version, self.body, self.frame, self.order = name, key, version, body, frame, order
        self.time = time.monotonic()

    def __repr__(self):
        return f"<{self.name} v{self.version} {self.body}>"


class ScriptedNode:
    """Listens like a node, records every request, and answers by a script.

    on[key] is a function of Seen returning a response body, HOLD or DROP. versions are what ApiVersions offers.
    """

    release = codec.THIS
    seen_as = Seen

    def __init__(self, node, port, versions, on):
        self.node, self.port, self.versions = node, port, dict(versions)
        self.seen, self.lock, self.order = [], threading.Condition(), 0
        self.on = {API_VERSIONS: self.api_versions, **on}
        self.down = False
        self.socks = set()
        self.listener = None
        self.open()

    def open(self):
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind((HOST, self.port))
        self.listener.listen(64)
        self.down = False
        threading.Thread(target=self.accept, args=(self.listener,), daemon=True).start()

    def accept(self, listener):
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            self.socks.add(sock)
            threading.Thread(target=self.serve, args=(sock,), daemon=True).start()

    def serve(self, sock):
        try:
            while not self.down:
                s = self.saw(read_frame(sock))
                answer = self.on[s.key](s)
                if answer is DROP:
                    break
                if answer is HOLD:
                    continue
                too_new = s.key == API_VERSIONS and isinstance(answer, dict) and answer.get("ErrorCode") == 35
                version = 0 if too_new else s.version
                write_frame(sock, self.release.response_frame(s.key, version, s.correlation, answer))
        except OSError:
            pass
        finally:
            self.socks.discard(sock)
            sock.close()

    def saw(self, frame):
        key, version, correlation, _, body = self.release.parse_request(frame)
        with self.lock:
            self.order += 1
            s = self.seen_as(self.release.by_key[key, "request"], key, version, body, frame, self.order)
            s.correlation = correlation
            self.seen.append(s)
            self.lock.notify_all()
        return s

    def close(self):
        self.down = True
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for s in list(self.socks):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)

    def api_versions(self, s):
        return {"ApiKeys": [{"ApiKey": k, "MinVersion": lo, "MaxVersion": hi} for k, (lo, hi) in self.versions.items()]}

    # -- what arrived
    def mark(self):
        with self.lock:
            return self.order

    def since(self, mark, key=None, match=None):
        with self.lock:
            return [
                s for s in self.seen if s.order > mark and (key is None or s.key == key) and (match is None or match(s))
            ]

    def wait(self, key, match=None, after=0, timeout=25):
        """The first request of this kind after the mark."""
        end = time.monotonic() + timeout * PATIENCE
        with self.lock:
            while True:
                for s in self.seen:
                    if s.order > after and s.key == key and (match is None or match(s)):
                        return s
                left = end - time.monotonic()
                if left <= 0:
                    saw = [(x.name, x.version) for x in self.seen[-12:]]
                    raise TimeoutError(f"node {self.node} saw no {self.release.by_key[key, 'request']}; it saw {saw}")
                self.lock.wait(left)
