"""The plugin: listens to its node, and answers whoever collects.

Who collects may be in any thread: the values are read in the node's own task, in one go, so they belong together. A
thread that runs a loop of its own must not wait for the node's; it gets what was read there at most a second ago. Two
nodes of one process have two registries.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from math import nan
from time import perf_counter
from typing import Any, ClassVar, Self

import trio

from kraftcore.config.addresses import parse_endpoint
from kraftcore.config.errors import ConfigError
from kraftcore.errors import LocalError, MissingDependencyError
from kraftcore.node.events import (
    Elected,
    LeaderChanged,
    Measured,
    NodeEvent,
    Noted,
    RoleChanged,
    SnapshotRestored,
    SnapshotTaken,
    VotersChanged,
)
from kraftcore.node.health import MAX_LAG, Health
from kraftcore.node.plugin import Plugin
from kraftcore.node.plugin_node import PluginNode
from kraftcore.ownership import close_in_children
from kraftcore.plugins.metrics.families import COUNTED, families
from kraftcore.plugins.metrics.latency import WINDOW_S, Latency
from kraftcore.plugins.metrics.pages import pages
from kraftcore.plugins.metrics.reading import Rates, Reading, read_node
from kraftcore.plugins.metrics.server import Endpoint
from kraftcore.raft.roles import Role

LISTEN = "127.0.0.1:9404"
"""The JMX exporter's customary port, for this machine only."""

COMMIT_BOUNDS_S = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
ELECTION_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SAMPLE_S = 1.0
_STOPPED = Health(False, ("the node has stopped",))
_EVENTS: dict[type, str] = {
    RoleChanged: "role_changes",
    LeaderChanged: "leader_changes",
    VotersChanged: "voter_set_changes",
    SnapshotTaken: "snapshots_written",
    SnapshotRestored: "snapshots_restored",
    Noted: "notes",
}


@cache
def _prometheus() -> Any:
    try:
        import prometheus_client
    except ImportError as error:
        text = "metrics need prometheus_client: pip install 'kraftcore[metrics]'"
        raise MissingDependencyError(text) from error
    return prometheus_client


class Metrics(Plugin):
    """An observer that reports its node to Prometheus; one object for each node.

    Args:
        listen: ``host:port`` of the HTTP endpoint, which answers ``/metrics``, ``/livez`` and ``/readyz``; port 0: any
            free one; None: no endpoint, only the registry. It is plain HTTP and asks nobody who they are: leave it on
            the loopback interface, or have something before it that does.
        max_lag: for ``/readyz``, see ``Node.health``.
        registry: to report to; None: one of its own.

    Attributes:
        listen: (host, port) of the endpoint as configured, or None.
        node: the node that it reports while that runs; None before and after.
        registry: collects from the node while it runs, and nothing before and after.
        address: (host, port) that the endpoint is bound to, once ``ready`` is set.
        ready: an event, set when the plugin works; ``await ready.wait()`` raises why it never will.

    Raises:
        MissingDependencyError: the extra ``metrics`` is not installed.
        LocalError: ``listen`` is no address; ``max_lag`` is negative.
    """

    name: ClassVar[str] = "metrics"
    interests: ClassVar[frozenset[type]] = frozenset({Measured, Elected, *_EVENTS})

    def __init__(self, *, listen: str | None = LISTEN, registry: Any = None, max_lag: int = MAX_LAG) -> None:
        client = _prometheus()
        self.listen = None if listen is None else _address(listen)
        if max_lag < 0:
            raise LocalError(f"plugin metrics: max_lag is {max_lag}: it must be 0 or more records")
        self._max_lag = max_lag
        self.registry = client.CollectorRegistry() if registry is None else registry
        self.address: tuple[str, int] | None = None
        self.ready = Ready()
        self.node: PluginNode | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._thread = 0
        self._role_since_ms = 0
        self._commits = Latency(COMMIT_BOUNDS_S)
        self._elections = Latency(ELECTION_BOUNDS_S)
        self._counts = dict.fromkeys(COUNTED, 0)
        self._leaders = 0
        self._samples: list[_Sample] = []  # oldest first, within two windows
        self._appended = 0
        self._fetched = 0
        self._idle = _Idle()
        self._frozen: Reading | None = None
        close_in_children(self, Metrics._forget)

    def _forget(self) -> None:
        # The registry may be one that the child has use for.
        self.node = self._token = self._frozen = None

    @classmethod
    def configured(cls, settings: Mapping[str, str]) -> Self:
        """``kraftcore.plugin.metrics.listen``, the address of the endpoint, or ``none``; and ``max_lag``."""
        unknown = sorted(set(settings) - {"listen", "max_lag"})
        if unknown:
            raise LocalError(f"plugin metrics has no setting {', '.join(unknown)}: it has listen and max_lag")
        listen, max_lag = settings.get("listen", LISTEN), settings.get("max_lag", str(MAX_LAG))
        if not max_lag.isdecimal():
            raise LocalError(f"plugin metrics: max_lag is {max_lag!r}: it must be 0 or more records")
        return cls(listen=None if listen == "none" else listen, max_lag=int(max_lag))

    # --- listening ----------------------------------------------------------------------------------------------------

    def on_event(self, event: NodeEvent) -> None:
        """See the base class."""
        if type(event) is Measured:
            self._commits.add(event.latency_s, perf_counter(), event.records)
        elif type(event) is Elected:
            self._elections.add(event.latency_s, perf_counter())
        else:
            self._counts[_EVENTS[type(event)]] += 1
            if type(event) is LeaderChanged and event.leader_id is not None:
                self._leaders += 1
            if type(event) is RoleChanged and self.node is not None:
                self._role_since_ms = self.node.now_ms()

    async def run(self, node: PluginNode) -> None:
        """See the base class."""
        self.node = node
        self._token = trio.lowlevel.current_trio_token()
        self._thread = threading.get_ident()
        self._role_since_ms = node.now_ms()
        try:
            with self._reporting():
                await self._serve(node)
        except Exception as error:
            self.ready.fail(error)
            raise
        finally:
            self.node = self._frozen = None

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        self.registry.register(self)
        trio.lowlevel.add_instrument(self._idle)
        try:
            yield
        finally:
            trio.lowlevel.remove_instrument(self._idle)
            self.registry.unregister(self)

    async def _serve(self, node: PluginNode) -> None:
        endpoint = None
        try:
            if self.listen is not None:
                endpoint = Endpoint(pages(_prometheus().make_wsgi_app(self.registry), self._health), *self.listen)
                self.address = endpoint.address
            self._frozen = self._read()
            self.ready.set()
            await self._sample(node)
        finally:
            if endpoint is not None:
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(endpoint.close)

    async def _sample(self, node: PluginNode) -> None:
        """Record counts are seen as the growth of the log, once a second."""
        before = node.status()
        while True:
            now = perf_counter()
            self._samples.append(_Sample(now, self._appended, self._fetched, self._idle.seconds))
            while now - self._samples[0].time > 2 * WINDOW_S:
                del self._samples[0]
            await trio.sleep(_SAMPLE_S)
            status = node.status()
            grown = max(status.log_end_offset - before.log_end_offset, 0)
            if status.role is Role.LEADER:
                self._appended += grown
            else:
                self._fetched += grown
            before = status
            self._frozen = self._read()

    def _rates(self) -> Rates:
        if len(self._samples) < 2:
            return Rates(nan, nan, nan)
        first, last = self._samples[0], self._samples[-1]
        time = last.time - first.time
        return Rates(
            (last.appended - first.appended) / time,
            (last.fetched - first.fetched) / time,
            min((last.idle_s - first.idle_s) / time, 1.0),
        )

    # --- answering ----------------------------------------------------------------------------------------------------

    def describe(self) -> list[Any]:
        """Nothing: the registry need not collect in order to know names. For prometheus_client."""
        return []

    def collect(self) -> Iterator[Any]:
        """The metrics now; for prometheus_client, which may call from any thread."""
        reading = self._read_from_anywhere()
        return iter(()) if reading is None else families(reading)

    def _read_from_anywhere(self) -> Reading | None:
        if self._token is None or threading.get_ident() == self._thread:
            return self._read()
        if _runs_a_loop():
            return self._frozen
        try:
            return trio.from_thread.run_sync(self._read, trio_token=self._token)
        except trio.RunFinishedError:
            return None

    def _health(self) -> Health:
        """The node's, asked in its own loop: a loop that hangs leaves a probe without an answer."""
        try:
            return trio.from_thread.run_sync(self._judge, trio_token=self._token)
        except trio.RunFinishedError:
            return _STOPPED

    def _judge(self) -> Health:
        return _STOPPED if self.node is None else self.node.health(max_lag=self._max_lag)

    def _read(self) -> Reading | None:
        if self.node is None:
            return None
        now = perf_counter()
        return read_node(
            self.node,
            leading_since_ms=self._role_since_ms,
            commits=self._commits.read(now),
            elections=self._elections.read(now),
            rates=self._rates(),
            counts=self._counts,
            leaders=self._leaders,
        )


class Ready:
    """An event that may also never come, and says why."""

    def __init__(self) -> None:
        self._event = trio.Event()
        self._error: Exception | None = None

    def is_set(self) -> bool:
        """Whether the plugin works, or did."""
        return self._event.is_set() and self._error is None

    def set(self) -> None:
        """It works."""
        self._event.set()

    def fail(self, error: Exception) -> None:
        """It never will, unless it did."""
        if not self._event.is_set():
            self._error = error
            self._event.set()

    async def wait(self) -> None:
        """Until it is set.

        Raises:
            TransportError: the endpoint cannot listen where it was told to.
            ValueError: the registry has such metrics of another node.
        """
        await self._event.wait()
        if self._error is not None:
            raise self._error


class _Sample:
    __slots__ = ("appended", "fetched", "idle_s", "time")

    def __init__(self, time: float, appended: int, fetched: int, idle_s: float) -> None:
        self.time = time
        self.appended = appended
        self.fetched = fetched
        self.idle_s = idle_s


class _Idle(trio.abc.Instrument):
    """How long trio's loop waited for something to do."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._since: float | None = None

    def before_io_wait(self, timeout: float) -> None:
        self._since = perf_counter()

    def after_io_wait(self, timeout: float) -> None:
        if self._since is not None:
            self.seconds += perf_counter() - self._since


def _runs_a_loop() -> bool:
    """Whether something in this thread would have to wait while it waits: two nodes might wait for each other."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return trio.lowlevel.in_trio_run()
    return True


def _address(text: str) -> tuple[str, int]:
    try:
        found = parse_endpoint(text)
    except ConfigError as error:
        raise LocalError(f"metrics cannot listen on {text!r}: {error.reason}") from None
    return found.host, found.port
