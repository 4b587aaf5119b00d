"""``open_node``: makes a running node from a configuration, and stops it at the end of the block."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import trio

from kraftcore.config import NodeConfig
from kraftcore.config.errors import ConfigError
from kraftcore.core.disk.files import Files
from kraftcore.core.disk.os_files import OsFiles
from kraftcore.errors import LocalError, NodeStoppedError
from kraftcore.node.attach_socket import AttachSocket
from kraftcore.node.engine import Engine
from kraftcore.node.forming import ask_before_beginning
from kraftcore.node.home import open_home
from kraftcore.node.listeners import admission, has_authentication, open_to_strangers
from kraftcore.node.node import Node
from kraftcore.node.own_entry import check_advertised, compare_voters
from kraftcore.node.plugin import Plugin, load_plugins, register
from kraftcore.node.plugin_node import PluginNode, plugin_node
from kraftcore.node.wrong_library import of_trio
from kraftcore.ports.nursery import open_nursery, uninterrupted
from kraftcore.ports.transport import Address, Origin, Reply, Serve, Transport
from kraftcore.raft.quorum import Endpoint
from kraftcore.state_machine import Machine, StateMachine, check_state_machine
from kraftcore.transports.tcp import Limits, TcpTransport

EARLY_REQUESTS_MAX = 1000
unshared: set[str] = set()
"""Directories of the nodes that this process has open without ``attachable``."""
_logger = logging.getLogger("kraftcore.node")


@of_trio
@asynccontextmanager
@uninterrupted
async def open_node(
    config: NodeConfig,
    state_machine: Machine,
    *,
    transport: Transport | None = None,
    plugins: Sequence[Plugin] = (),
    files: Files | None = None,
) -> AsyncIterator[Node[Machine]]:
    """Run a node for as long as the block runs.

    Args:
        config: see `NodeConfig`.
        state_machine: committed records are applied to it. It may be empty: snapshot and log are replayed into it.
        transport: carries the frames, and stays open after the block; None: TCP as configured.
        plugins: beside those that ``config.plugins`` names.
        files: where the directory is; None: the operating system's files.

    Yields:
        The node; it listens, and takes part in elections. No leader need be known yet: ``node.wait_leader()``. With
        ``create="standalone"``, an empty directory and ``bootstrap_servers`` not before all of those have answered.

    Raises:
        LocalError: this is not trio; the state machine lacks a method (``check_state_machine``); the directory is not
            formatted, or belongs to another node or cluster; the node would begin a quorum, but there is one of another
            cluster, or one whose ``cluster_id`` is not given, or its other directories are formatted; there is no
            plugin of a configured name, or the plugin does not know its settings.
        LockedError: another process owns the directory.
        CorruptDataError, StorageError: the directory cannot be read.
        TransportError: a listener cannot be opened.
        NodeStoppedError: the node failed while the block ran; ``__cause__`` says why.
    """
    disk = OsFiles() if files is None else files
    _check_given(config, state_machine, plugins, disk)
    chosen = [*plugins, *load_plugins(config.plugins, config.plugin_settings)]
    async with AsyncExitStack() as stack:
        gates = _Gates(config, chosen, closes_with_node=transport is None)
        if transport is None:
            transport = await stack.enter_async_context(tcp_transport(config))
        endpoints: tuple[Endpoint, ...] | None = None
        if config.create == "standalone" and any(endpoint.port == 0 for endpoint in config.listeners):
            # Formatting writes this node's own voter set entry, which names the bound ports.
            endpoints = await _listen(transport, config, gates, config.listeners)
        config = await ask_before_beginning(disk, config, transport)
        home = await trio.to_thread.run_sync(open_home, disk, config, endpoints)
        stack.callback(home.close)
        bound = await _listen_on_the_rest(transport, config, gates, endpoints)
        attach_socket = await stack.enter_async_context(_sharing(config, state_machine))

        def make(nursery: trio.Nursery, end: Callable[[], object]) -> Engine:
            for plugin in chosen:
                plugin.attach(state_machine)
            return Engine(config, home, bound, state_machine, transport, chosen, nursery, end)

        def begin(engine: Engine, nursery: trio.Nursery) -> None:
            _begin(engine, plugin_node(Node(engine, state_machine)), chosen, nursery)
            gates.open(engine, nursery)

        def close() -> None:
            gates.close()
            if attach_socket is not None:
                attach_socket.close()

        async with run_engine(make, begin, partial(_stop_plugins, plugins=chosen), close) as engine:
            if attach_socket is not None:
                await attach_socket.open(engine)
            yield Node(engine, state_machine)


@asynccontextmanager
@uninterrupted
async def _sharing(config: NodeConfig, machine: StateMachine) -> AsyncIterator[AttachSocket | None]:
    """The socket at which processes attach; None for a node that is not to have one."""
    if config.attachable:
        async with AttachSocket(config, machine) as socket:
            yield socket
        return
    directory = os.path.abspath(config.directory)
    unshared.add(directory)
    try:
        yield None
    finally:
        unshared.discard(directory)


@asynccontextmanager
@uninterrupted
async def run_engine(
    make: Callable[[trio.Nursery, Callable[[], object]], Engine],
    begin: Callable[[Engine, trio.Nursery], None],
    before_end: Callable[[Engine], Awaitable[None]],
    close: Callable[[], None],
) -> AsyncIterator[Engine]:
    """Run an engine for as long as the block runs, which is cancelled if the engine stops before.

    Args:
        make: gets the nursery for its tasks, and what cancels the block.
        begin: starts the tasks.
        before_end: awaited at the end, while the engine still works.
        close: called before the engine lets its directory go.

    Raises:
        NodeStoppedError: the engine failed while the block ran; ``__cause__`` says why.
    """
    raised: BaseException | None = None
    engine: Engine | None = None
    try:
        async with open_nursery() as nursery:
            try:
                with trio.CancelScope() as body:
                    engine = make(nursery, body.cancel)
                    begin(engine, nursery)
                    yield engine
            finally:
                if engine is not None:
                    await _shut_down(engine, before_end, close)
                nursery.cancel_scope.cancel()
    except BaseException as error:
        raised = error
    is_interrupt = raised is not None and not isinstance(raised, Exception | trio.Cancelled)
    if engine is not None and engine.error is not None and not is_interrupt:
        raise NodeStoppedError(f"node {engine.label} stopped: {engine.failure}") from engine.error
    if raised is not None:
        raise raised


def _check_given(config: object, machine: object, plugins: Sequence[object], files: Files) -> None:
    if not isinstance(config, NodeConfig):
        raise LocalError(f"open_node takes a NodeConfig first, and was given {type(config).__name__}")
    if config.attachable and not isinstance(files, OsFiles):
        raise LocalError("attachable (kraftcore.attachable) needs the operating system's files: leave files out")
    check_state_machine(machine)
    for plugin in plugins:
        if not isinstance(plugin, Plugin):
            what = f"the class {plugin.__name__}: give an object" if isinstance(plugin, type) else f"{plugin!r}"
            raise LocalError(f"a plugin is an object of a class derived from Plugin, and was given as {what}")


def tcp_transport(config: NodeConfig, *, vital_listeners: Collection[str] = ()) -> TcpTransport:
    """The transport that ``open_node`` uses when it is given none, for those who want to hold it (``reload_tls``).

    Args:
        config: of the node.
        vital_listeners: names of listeners without which the node must stop, besides the one that other nodes connect
            to: see `TcpTransport`.

    Raises:
        TransportError: the TLS files do not work.
    """
    login = None
    if config.sasl is not None:
        from kraftcore.config.login import make_login

        login = make_login(config.sasl)
    return TcpTransport(
        tls=config.tls,
        listener_tls=config.listener_tls,
        tls_reload_ms=config.tls_reload_ms,
        login=login,
        vital_listeners=[*vital_listeners, *(each.name for each in config.listeners[:1])],
        **config.settings_of(Limits),
    )


def _warn_of_strangers(config: NodeConfig, endpoints: Sequence[Endpoint], transport: Transport) -> None:
    found = open_to_strangers(config, endpoints)
    if found and isinstance(transport, TcpTransport):  # the hosts of another transport's endpoints may be any names
        _logger.warning(
            "node %d: nobody has to prove who they are on %s, which other machines can reach: set SASL_SSL for it in "
            "listener.security.protocol.map (listener_sasl), or ssl.client.auth=required (tls.client_auth)",
            config.node_id,
            " and ".join(map(str, found)),
        )


def _begin(engine: Engine, node: PluginNode, plugins: Sequence[Plugin], nursery: trio.Nursery) -> None:
    for plugin in plugins:
        register(plugin, engine.registry)
    engine.begin()
    for check in (compare_voters, check_advertised):
        engine.spawn(check, engine.config, engine.executor.replica, engine.endpoints, engine.note)
    for plugin in plugins:
        nursery.start_soon(_run_plugin, plugin, node, engine)


@uninterrupted
async def _run_plugin(plugin: Plugin, node: PluginNode, engine: Engine) -> None:
    try:
        try:
            await plugin.run(node)
        except BaseExceptionGroup as group:
            # The node's end is why its tasks' calls ended so; any other exception is raised.
            rest = group.split(NodeStoppedError)[1] if engine.is_closed else group
            if rest is not None:
                raise rest from None
        except NodeStoppedError:
            if not engine.is_closed:
                raise
    except Exception as error:
        if plugin.participates:
            engine.fail(error)
        else:
            _logger.exception("plugin %s raised and is dropped", plugin.name)
            engine.events.drop(plugin)


@uninterrupted
async def _shut_down(
    engine: Engine, before_end: Callable[[Engine], Awaitable[None]], close: Callable[[], None]
) -> None:
    try:
        with trio.CancelScope(shield=True):
            await before_end(engine)
            await engine.shut_down()
    finally:  # a second Ctrl-C does not wait for an orderly end
        close()
        engine.close()


async def _stop_plugins(engine: Engine, plugins: Sequence[Plugin]) -> None:
    """Let plugins end in order, the last first, while the node still works; not if it failed or was aborted."""
    for plugin in reversed(plugins):
        if engine.is_closed or engine.executor.stopped:
            return
        try:
            await plugin.stopping()
        except Exception:
            _logger.exception("plugin %s raised when the node stopped", plugin.name)


class Gate:
    """Takes requests from the listeners; those that come before the node is ready wait, up to `EARLY_REQUESTS_MAX`.

    Args:
        closes_with_node: the transport is closed right after the node, so a request that comes in between needs no
            answer.
    """

    def __init__(self, *, closes_with_node: bool = False) -> None:
        self._is_quiet = closes_with_node
        self._is_over = False
        self._serve: Serve | None = None
        self._early: list[tuple[bytes, Origin, Reply]] | None = []

    def serve(self, frame: bytes, origin: Origin, reply: Reply) -> None:
        """Take a request's frame."""
        if self._serve is not None:
            self._serve(frame, origin, reply)
        elif self._early is not None and len(self._early) < EARLY_REQUESTS_MAX:
            self._early.append((frame, origin, reply))
        elif not (self._is_over and self._is_quiet):
            reply(None)

    def open(self, serve: Serve) -> None:
        """Hand the requests that wait to ``serve``, and later ones as they come."""
        early, self._early = self._early or [], None
        self._serve = serve
        for request in early:
            serve(*request)

    def close(self) -> None:
        """Refuse requests from now on."""
        self._serve = self._early = None
        self._is_over = True


class _Gates:
    """A gate for the listeners without authentication, another for those with it.

    A listener whose requests wait for a plugin (``Plugin.early_listeners``) has a gate of its own.
    """

    def __init__(self, config: NodeConfig, plugins: Sequence[Plugin], *, closes_with_node: bool) -> None:
        self._config = config
        self._plugins = plugins
        self._plain = Gate(closes_with_node=closes_with_node)
        self._guarded = Gate(closes_with_node=closes_with_node)
        names = {endpoint.name for endpoint in config.all_listeners}
        self._late: dict[str, tuple[Gate, tuple[Plugin, ...]]] = {}  # and the plugins that it waits for
        for plugin in plugins:
            early, late = plugin.early_listeners, plugin.late_listeners & names
            if early is not None:
                _check_early(early, names)
                late |= names - early
            for name in late:
                gate, waited = self._late.get(name, (Gate(closes_with_node=closes_with_node), ()))
                self._late[name] = (gate, (*waited, plugin))

    def of(self, listener: str) -> Gate:
        if listener in self._late:
            return self._late[listener][0]
        return self._guarded if has_authentication(self._config, listener) else self._plain

    def open(self, engine: Engine, nursery: trio.Nursery) -> None:
        guarded = engine.inbox.serve
        if any(has_authentication(self._config, endpoint.name) for endpoint in self._config.all_listeners):
            found = (plugin.credentials for plugin in self._plugins)
            guarded = engine.make_authentication(next((each for each in found if each is not None), None)).serve
        self._guarded.open(guarded)
        self._plain.open(engine.inbox.serve)
        for name, (gate, plugins) in self._late.items():
            serve = guarded if has_authentication(self._config, name) else engine.inbox.serve
            nursery.start_soon(self._open_late, gate, plugins, serve)

    @uninterrupted
    async def _open_late(self, gate: Gate, plugins: Iterable[Plugin], serve: Serve) -> None:
        for plugin in plugins:
            await plugin.loaded()
        gate.open(serve)

    def close(self) -> None:
        for gate in (self._plain, self._guarded, *(gate for gate, _ in self._late.values())):
            gate.close()


def _check_early(early: Iterable[str], known: Collection[str]) -> None:
    for name in early:
        if name not in known:
            raise ConfigError(
                f"early.start.listeners contains listener {name}, but this is not contained in listeners, which has "
                f"{', '.join(known) or 'none'}",
                ["early.start.listeners"],
            )


async def _listen_on_the_rest(
    transport: Transport, config: NodeConfig, gates: _Gates, endpoints: tuple[Endpoint, ...] | None
) -> tuple[tuple[Endpoint, ...], tuple[Endpoint, ...]]:
    """Bind the node's listeners, unless they are bound already, and its broker's; returns both."""
    if endpoints is None:
        endpoints = await _listen(transport, config, gates, config.listeners)
    of_broker = await _listen(transport, config, gates, config.broker_listeners)
    _warn_of_strangers(config, (*endpoints, *of_broker), transport)
    return endpoints, of_broker


async def _listen(
    transport: Transport, config: NodeConfig, gates: _Gates, listeners: Iterable[Endpoint]
) -> tuple[Endpoint, ...]:
    bound = []
    for endpoint in listeners:
        serve, bounds = gates.of(endpoint.name).serve, admission(config, endpoint.name)
        address = await transport.listen(endpoint.name, Address(endpoint.host, endpoint.port), serve, bounds)
        bound.append(Endpoint(endpoint.name, endpoint.host, address.port))
    return tuple(bound)
