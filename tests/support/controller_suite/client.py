"""A connection to a controller: requests by their names, in the newest version unless told otherwise."""

import threading
import time

from conformance import codec, wire
from conformance.codec import API, DEFS

IDLE_S = 60.0  # connections.max.idle.ms is ten minutes: tests of other folders may come in between
LATEST = {n: DEFS[n + "Request"]["valid"][1] for n in API if DEFS[n + "Request"]["valid"]}


class Client(wire.Client):
    """One connection. call() by API name or number; send() and reply() apart for pipelining."""

    def __init__(self, port, timeout=30):
        super().__init__(port, timeout)
        self.lock = threading.Lock()
        self.used = time.monotonic()

    @property
    def is_fresh(self):
        """Whether the other side cannot have closed it for being idle."""
        return time.monotonic() - self.used < IDLE_S

    def send(self, api, body, version=None, client_id="conformance"):
        self.used = time.monotonic()
        key = API.get(api, api)
        if version is None:
            version = LATEST[codec.BY_KEY[key, "request"].removesuffix("Request")]
        return key, version, super().send(key, version, body, client_id)

    def reply(self, ticket, timeout=None):
        return super().reply(*ticket, timeout)

    def call(self, api, body, version=None, timeout=None):
        with self.lock:
            return self.reply(self.send(api, body, version), timeout)


def call(port, api, body, version=None, timeout=20):
    """One request on a connection of its own."""
    with Client(port, timeout) as c:
        return c.call(api, body, version, timeout)
