"""How a node with an empty directory and ``create="standalone"`` finds out whether to begin a quorum or to join one.

Its disk may have been lost. So all ``bootstrap_servers`` are asked whether there is a quorum
(`kraftcore.raft.inquiry`). If one of them knows a quorum, the node joins that quorum; if all answer and none knows one,
the node begins one; while a server is silent, the node waits, and logs for which server. Without other servers to ask
the node begins a quorum, with a warning.
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from functools import partial
from typing import Any

import trio

from kraftcore import __version__
from kraftcore.config import NodeConfig
from kraftcore.core.disk.files import Files
from kraftcore.errors import LocalError
from kraftcore.node.home import is_new
from kraftcore.node.outbox import Outbox
from kraftcore.ports.transport import Address, Transport
from kraftcore.raft.inquiry import Found, Inquiry
from kraftcore.raft.partition import FETCH_MIN_VERSION
from kraftcore.storage.meta_properties import META_PROPERTIES

PAGE = "docs/damage.md"
_AGAIN_S = 0.2
_SAY_AGAIN_S = 60.0
_logger = logging.getLogger("kraftcore.node")


def others_to_ask(config: NodeConfig) -> tuple[Address, ...]:
    """The bootstrap servers that are not this node itself."""
    own = {(each.host, each.port) for each in (*config.listeners, *config.advertise(config.listeners))}
    return tuple(each for each in config.bootstrap_servers if (each.host, each.port) not in own)


def must_ask(files: Files, config: NodeConfig) -> bool:
    """Whether the node would begin a quorum, and there are servers to ask first.

    Without servers to ask, a node whose other directories are formatted is refused, and a configured cluster id, which
    other nodes may have, too, is warned of: the disk may have been lost while the quorum lives on elsewhere.

    Raises:
        LocalError: nobody is to be asked, and another directory of the node is formatted.
        StorageError: the directory cannot be read.
    """
    if config.create != "standalone" or not is_new(files, config):
        return False
    if others_to_ask(config):
        return True
    others = (each for each in config.log_directories if files.exists(os.path.join(each, META_PROPERTIES)))
    formatted = next(others, None)
    if formatted is not None:
        raise LocalError(
            f"{config.directory} is empty, but {formatted} is formatted: this node is not new, and its metadata "
            "directory was lost or moved. Name the other nodes in bootstrap_servers, so that they are asked for the "
            f"quorum, or begin one by hand: kraftcore storage format --standalone ({PAGE})"
        )
    if config.cluster_id is not None:
        _logger.warning(
            "node %d: %s is empty, and create=standalone begins quorum %s here without asking anybody, for "
            "bootstrap_servers names no other node. If other nodes of this quorum live and this one's disk was lost, "
            "stop it at once, delete the directory, and set bootstrap_servers to their addresses (%s)",
            *(config.node_id, config.directory, config.cluster_id, PAGE),
        )
    return False


async def ask_before_beginning(files: Files, config: NodeConfig, transport: Transport) -> NodeConfig:
    """Ask if ``must_ask`` says so; returns the configuration to go on with, and raises as ``join_or_begin``."""
    if await trio.to_thread.run_sync(must_ask, files, config):
        return await join_or_begin(config, transport)
    return config


async def join_or_begin(config: NodeConfig, transport: Transport) -> NodeConfig:
    """Ask until it is known whether there is a quorum.

    Args:
        config: of a node that must ask.
        transport: carries the questions.

    Returns:
        The configuration to go on with: ``create`` is ``join`` if there is a quorum.

    Raises:
        LocalError: there is a quorum of another cluster, or there is one and ``cluster_id`` is not configured.
    """
    outbox = Outbox(transport, f"kraftcore-{config.node_id}", __version__, _logger.warning)
    inquiry = Inquiry(others_to_ask(config), config.cluster_id, config.topic_id)
    say_at = trio.current_time() + config.request_timeout_ms / 1000
    while True:
        await _ask_all(inquiry, outbox, config.request_timeout_ms)
        found = inquiry.found
        if found is Found.NOTHING:
            return config
        if found is not Found.UNKNOWN:
            return _joining(config, inquiry)
        if trio.current_time() >= say_at:
            say_at = trio.current_time() + _SAY_AGAIN_S
            _logger.error("node %d: %s", config.node_id, _waiting(config, inquiry))
        await trio.sleep(_AGAIN_S)


async def _ask_all(inquiry: Inquiry[Address], outbox: Outbox, timeout_ms: int) -> None:
    waiting = set(inquiry.silent)
    done = trio.Event()

    def answered(who: Address, answer: Any) -> None:
        inquiry.answered(who, answer)
        waiting.discard(who)
        if not waiting or inquiry.witness is not None:
            done.set()

    for who in inquiry.silent:
        outbox.send(who.host, who.port, inquiry.request(), timeout_ms, partial(answered, who), FETCH_MIN_VERSION)
    with trio.move_on_after(2 * timeout_ms / 1000):
        await done.wait()


def _waiting(config: NodeConfig, inquiry: Inquiry[Address]) -> str:
    silent = ", ".join(f"{who} ({why or 'no answer'})" for who, why in inquiry.silent.items())
    return (
        f"{config.directory} is empty, and create=standalone would begin a new quorum. If there is one already, its "
        f"records would be in danger, so the bootstrap servers are asked first; no word from {silent}. Start them. "
        "If they do not exist yet and no disk was lost, begin the quorum by hand: kraftcore storage format "
        f"--standalone ({PAGE})"
    )


def _joining(config: NodeConfig, inquiry: Inquiry[Address]) -> NodeConfig:
    witness = inquiry.witness
    told = "" if witness is None else f"{witness.who} says so"
    if inquiry.found is Found.OTHER_CLUSTER:
        raise LocalError(
            f"{config.directory} is empty, and not formatted: there is a quorum of another cluster than "
            f"{config.cluster_id} at the bootstrap servers ({told}); give its cluster_id, or other servers"
        )
    if config.cluster_id is None:
        raise LocalError(
            f"{config.directory} is empty, and not formatted: there is a quorum already ({told}, epoch "
            f"{0 if witness is None else witness.epoch}); give cluster_id to join it (kraftcore cluster cluster-id)"
        )
    way = (
        "it becomes a voter by itself"
        if config.auto_join
        else f"make it a voter, in place of its old directory: kraftcore quorum add-controller ({PAGE}, lost disks)"
    )
    _logger.warning(
        "node %d: %s is empty, and there is a quorum already (%s): this node joins it instead of beginning one; %s",
        *(config.node_id, config.directory, told, way),
    )
    return replace(config, create="join")
