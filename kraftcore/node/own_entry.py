"""Where others are told that this node is, beside where it listens, and who is said to vote: noted once, at the start.

Others are told by their setting `voters`, or, by this node, what it advertises.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterable

import trio

from kraftcore.config import NodeConfig
from kraftcore.config.addresses import WILDCARDS
from kraftcore.config.node_settings import label
from kraftcore.raft.quorum import Endpoint
from kraftcore.raft.replica import Replica


async def compare_voters(
    config: NodeConfig, replica: Replica, bound: Iterable[Endpoint], note: Callable[[str], None]
) -> None:
    """Note what static voters say that is not so, or that does not count.

    Args:
        config: of the node.
        replica: its own, which has read its log.
        bound: the node's listeners with their real ports, the default one first.
        note: gets a line for the operator.
    """
    own = config.voters.get(config.node_id)
    if replica.kraft_version > 0:
        if config.voters.ids and config.voters.ids != replica.voters.ids:
            note(
                f"{label('voters')} does not count: it says {sorted(config.voters.ids)}, but the log names its voters "
                f"itself (kraft.version {replica.kraft_version}), and they are {sorted(replica.voters.ids)}. Take the "
                f"setting away, and name some of them in {label('bootstrap_servers')}"
            )
    elif own is not None and own.endpoints:
        listens = next(iter(bound), None)
        said = own.endpoints[0]
        if listens is not None and said not in config.advertised_listeners and not await _same(said, listens):
            note(
                f"the other nodes connect to this one at {said.host}:{said.port}, by {label('voters')}, but it listens "
                f"at {listens.host}:{listens.port}: correct the one or the other; where something forwards the first "
                f"to the second, name the first in {label('advertised_listeners')}, too"
            )


async def check_advertised(
    config: NodeConfig, replica: Replica, bound: Iterable[Endpoint], note: Callable[[str], None]
) -> None:
    """Note a name that others cannot reach this node by: one that it took by itself, as it listens on all interfaces.

    Args:
        config: see ``compare_voters``.
        replica: the same.
        bound: the same.
        note: the same.
    """
    listens = next(iter(bound), None)
    if listens is None or listens.host not in WILDCARDS:
        return
    (told,) = config.advertise([listens])
    here = await _addresses(told.host)
    if here and not _are_loopback(here):
        return
    others = {
        endpoint.host for voter in replica.voters if voter.key.id != config.node_id for endpoint in voter.endpoints
    }
    for host in sorted(others | {server.host for server in config.bootstrap_servers}):
        there = await _addresses(host)
        if there and not _are_loopback(there):
            what = "which is this machine for itself alone" if here else "which does not resolve here"
            note(
                f"it listens on all interfaces, and other nodes, as {host}, are told to connect to {told.host}:"
                f"{told.port}, {what}: name an address that they reach in {label('advertised_listeners')}"
            )
            return


def _are_loopback(addresses: Iterable[str]) -> bool:
    return all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in addresses)


async def _addresses(host: str) -> set[str]:
    """A host's addresses; none if its name does not resolve here."""
    try:
        found = await trio.socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, ValueError):
        return set()
    return {str(address[0]) for *_, address in found}


async def _same(said: Endpoint, listens: Endpoint) -> bool:
    """Whether somebody who connects to the one comes to the other, as far as can be told here."""
    if said.port != listens.port:
        return False
    if listens.host in WILDCARDS or said.host == listens.host:
        return True
    here, there = [await _addresses(each.host) for each in (listens, said)]
    return not here or not there or bool(here & there)  # only others may know a name
