"""What the setting `voters` says, beside where this node listens and who the voters are: said once, at the start."""

from __future__ import annotations

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


async def _same(said: Endpoint, listens: Endpoint) -> bool:
    """Whether somebody who connects to the one comes to the other, as far as can be told here."""
    if said.port != listens.port:
        return False
    if listens.host in WILDCARDS or said.host == listens.host:
        return True
    try:
        here, there = [
            {address[0] for *_, address in await trio.socket.getaddrinfo(each.host, None, type=socket.SOCK_STREAM)}
            for each in (listens, said)
        ]
    except (OSError, ValueError):  # a name that only others know
        return True
    return bool(here & there)
