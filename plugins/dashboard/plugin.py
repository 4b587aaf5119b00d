"""The dashboard of a node: it watches the node's quorum over the node's own transport."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import ClassVar, Self

import trio

from kraftcore.config.addresses import parse_endpoint
from kraftcore.config.errors import ConfigError
from kraftcore.errors import LocalError, MissingDependencyError
from kraftcore.node.plugin import Plugin
from kraftcore.node.plugin_node import PluginNode
from kraftcore.plugins.picture import Carrier, Picture, Watching
from kraftcore.ports.transport import Address

LISTEN = "127.0.0.1:8090"
_POLL_S = 0.1


def check_installed() -> None:
    """Check that the extra ``dashboard`` is installed.

    Raises:
        MissingDependencyError: it is not.
    """
    missing = [name for name in ("starlette", "hypercorn", "vl_convert") if find_spec(name) is None]
    if missing:
        raise MissingDependencyError(f"the dashboard needs {', '.join(missing)}: pip install 'kraftcore[dashboard]'")


def listening_address(listen: Address | str) -> Address:
    """Read ``host:port``; the port may be 0.

    Raises:
        LocalError: it is no address.
    """
    if isinstance(listen, Address):
        return listen
    try:
        found = parse_endpoint(listen)
    except ConfigError as error:
        raise LocalError(f"the dashboard cannot listen on {listen!r}: {error.reason}") from None
    return Address(found.host, found.port)


class Dashboard(Plugin):
    """A page that shows the node's quorum and cluster. It asks nobody who they are, and changes nothing.

    Args:
        listen: ``host:port`` of the page; port 0: any free one. It is plain HTTP and asks for no login: leave it on
            the loopback interface, or have something before it that does.

    Attributes:
        address: where it listens, once it does; else None.

    Raises:
        MissingDependencyError: the extra ``dashboard`` is not installed.
        LocalError: ``listen`` is no address.
    """

    name: ClassVar[str] = "dashboard"

    def __init__(self, *, listen: Address | str = LISTEN) -> None:
        check_installed()
        self._listen = listening_address(listen)
        self.address: Address | None = None

    @classmethod
    def configured(cls, settings: Mapping[str, str]) -> Self:
        """``kraftcore.plugin.dashboard.listen``, the address of the page."""
        unknown = sorted(set(settings) - {"listen"})
        if unknown:
            raise LocalError(f"plugin dashboard has no setting {', '.join(unknown)}: it has listen")
        return cls(listen=settings.get("listen", LISTEN))

    async def run(self, node: PluginNode) -> None:
        """See the base class."""
        from kraftcore.plugins.dashboard.serving import serve  # needs the extra

        controllers = await _controllers(node)
        watching = Watching(Picture(node.config.topic, node.config.topic_id), Carrier(node.transport, controllers))
        async with trio.open_nursery() as nursery:
            self.address = await nursery.start(serve, watching, self._listen)


async def _controllers(node: PluginNode) -> tuple[Address, ...]:
    """Where controllers are, as soon as the node knows one."""
    while True:
        found = [Address(at.host, at.port) for voter in node.status().voters for at in voter.endpoints[:1]]
        found += [Address(*each[:2]) for each in node.config.bootstrap_servers]
        if found:
            return tuple(dict.fromkeys(found))
        await trio.sleep(_POLL_S)
