"""Compares, at the start, the addresses and voters that are configured with those that are true, and notes differences.

Other nodes know this node's address by their setting ``voters``, or by what this node advertises.
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
    """Note static voters that do not count, or that name another address of this node than it listens on.

    Args:
        config: of the node.
        replica: the node's replica, which has read its log.
        bound: the node's listeners with their bound ports, the default one first.
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
    """Note an advertised host that was taken from this machine's name, and by which others cannot reach this node.

    Args:
        config: see ``compare_voters``.
        replica: see ``compare_voters``.
        bound: see ``compare_voters``.
        note: see ``compare_voters``.
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
    """A host's addresses; empty if its name does not resolve here."""
    try:
        found = await trio.socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, ValueError):
        return set()
    return {str(address[0]) for *_, address in found}


async def _same(said: Endpoint, listens: Endpoint) -> bool:
    """Whether a connection to ``said`` may reach the listener ``listens``, as far as names resolve here."""
    if said.port != listens.port:
        return False
    if listens.host in WILDCARDS or said.host == listens.host:
        return True
    here, there = [await _addresses(each.host) for each in (listens, said)]
    return not here or not there or bool(here & there)  # other machines may resolve a name that this one cannot
