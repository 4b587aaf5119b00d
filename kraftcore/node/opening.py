"""From a configuration to a running node."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

import trio

from kraftcore.config import NodeConfig
from kraftcore.core.files import Files, OsFiles
from kraftcore.core.log import Log
from kraftcore.core.uuid import Uuid
from kraftcore.errors import LocalError, NodeStoppedError
from kraftcore.node.node import Node
from kraftcore.node.plugin import Plugin, load_plugins
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.raft.quorum import Endpoint, VersionRange, Voter, VoterSet
from kraftcore.raft.records import voter_entries
from kraftcore.state_machine import StateMachine
from kraftcore.storage.bootstrap import write_initial_voters
from kraftcore.storage.lock import FolderLocks, lock_folders
from kraftcore.storage.meta_properties import (
    MetaProperties,
    ensure_directory_ids,
    load_folders,
    read_meta_properties,
    write_meta_properties,
)
from kraftcore.storage.quorum_state import QUORUM_STATE, QuorumStateFile
from kraftcore.storage.snapshots import SnapshotStore
from kraftcore.transports.base import Address, Origin, Reply, Transport


@asynccontextmanager
async def open_node(
    config: NodeConfig,
    state_machine: StateMachine,
    *,
    transport: Transport | None = None,
    plugins: Sequence[Plugin] = (),
    files: Files | None = None,
) -> AsyncIterator[Node]:
    """Run a node for as long as the block runs.

    Args:
        config: see `NodeConfig`.
        state_machine: gets what is committed. It may be empty: snapshot and log are replayed into it.
        transport: carries the frames; None: TCP as configured. It stays open after the block if it was given.
        plugins: beside those that ``config.plugins`` names.
        files: where the directory is; None: the operating system's.

    Yields:
        The node; it listens, and takes part in elections. No leader need be known yet: ``node.wait_leader()``.

    Raises:
        LocalError: the directory is not formatted, or belongs to another node or cluster.
        LockedError: another process owns the directory.
        CorruptDataError, StorageError: the directory cannot be read.
        TransportError: a listener cannot be opened.
        NodeStoppedError: the node failed while the block ran; ``__cause__`` says why.
    """
    disk = OsFiles() if files is None else files
    async with AsyncExitStack() as stack:
        prepared = await trio.to_thread.run_sync(partial(_prepare, disk, config))
        stack.callback(prepared.locks.release)
        folder = os.path.join(config.directory, f"{config.topic}-0")
        log = await trio.to_thread.run_sync(partial(_open_log, disk, folder, config))
        stack.callback(log.close)
        if transport is None:
            # Not at the top: who brings a transport does not need ours.
            from kraftcore.transports.tcp import TcpTransport

            transport = await stack.enter_async_context(TcpTransport.from_config(config))
        gate = _Gate()
        endpoints = await _listen(transport, config, gate)
        raised: BaseException | None = None
        async with trio.open_nursery() as nursery:
            with trio.CancelScope() as body:
                node = Node(
                    config,
                    ReplicaKey(config.node_id, prepared.directory_id),
                    prepared.cluster_id,
                    endpoints,
                    log,
                    SnapshotStore(disk, folder),
                    QuorumStateFile(disk, os.path.join(folder, QUORUM_STATE)),
                    state_machine,
                    transport,
                    [*plugins, *load_plugins(config.plugins)],
                    nursery,
                    body.cancel,
                )
                gate.node = node
                try:
                    node.begin()
                    yield node
                except BaseException as error:
                    # Raised again outside the nursery, which would wrap it in a group.
                    raised = error
            with trio.CancelScope(shield=True):
                await node.shut_down()
            gate.node = None
            node.close()
            nursery.cancel_scope.cancel()
        if node.error is not None:
            raise NodeStoppedError(f"node {config.node_id} stopped: {node.error}") from node.error
        if raised is not None and not (isinstance(raised, trio.Cancelled) and body.cancel_called):
            raise raised


@dataclass(frozen=True, slots=True)
class _Prepared:
    locks: FolderLocks
    directory_id: Uuid
    cluster_id: str


def _prepare(files: Files, config: NodeConfig) -> _Prepared:
    """Lock the directory, format it if asked to, and read who it belongs to."""
    directory = config.directory
    if config.create is not None:
        files.make_folder(directory)
    locks = lock_folders(files, [directory])
    try:
        if config.create is not None and read_meta_properties(files, directory) is None:
            _create(files, config)
        found = load_folders(files, [directory], metadata_folder=directory)
        found.verify(cluster_id=config.cluster_id, node_id=config.node_id)
        found = ensure_directory_ids(files, found, datetime.now(UTC))
        properties = found.properties[directory]
        if properties.directory_id is None or found.cluster_id is None:
            raise LocalError(f"{directory}: meta.properties names no directory id or cluster id: format it again")
    except BaseException:
        locks.release()
        raise
    return _Prepared(locks, properties.directory_id, found.cluster_id)


def _create(files: Files, config: NodeConfig) -> None:
    directory_id = Uuid.random(os.urandom)
    folder = os.path.join(config.directory, f"{config.topic}-0")
    standalone = config.create == "standalone"
    cluster_id = config.cluster_id or str(Uuid.random(os.urandom))
    if standalone:
        voter = Voter(
            ReplicaKey(config.node_id, directory_id),
            config.advertise(config.listeners),
            VersionRange(0, 1),
        )
        write_initial_voters(SnapshotStore(files, folder), voter_entries(VoterSet((voter,))), _now_ms)
    properties = MetaProperties(cluster_id, config.node_id, directory_id)
    write_meta_properties(files, config.directory, properties, datetime.now(UTC))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _open_log(files: Files, folder: str, config: NodeConfig) -> Log:
    files.make_folder(folder)
    return Log.open(files, folder, config.log_config(), now_ms=_now_ms())


class _Gate:
    """Where listeners deliver to while the node is made, and after it ended."""

    def __init__(self) -> None:
        self.node: Node | None = None

    def serve(self, frame: bytes, origin: Origin, reply: Reply) -> None:
        if self.node is None:
            reply(None)
        else:
            self.node.inbox.serve(frame, origin, reply)


async def _listen(transport: Transport, config: NodeConfig, gate: _Gate) -> tuple[Endpoint, ...]:
    bound = []
    for endpoint in config.listeners:
        address = await transport.listen(endpoint.name, Address(endpoint.host, endpoint.port), gate.serve)
        bound.append(Endpoint(endpoint.name, endpoint.host, address.port))
    return tuple(bound)
