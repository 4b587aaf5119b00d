"""``kraftcore dashboard``: a page that shows a quorum and its cluster live."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import trio

from kraftcore.cli.admin_tool import Connection, connected
from kraftcore.cli.stopping import stopping_for_good
from kraftcore.config.addresses import parse_address
from kraftcore.plugins.dashboard.plugin import LISTEN, check_installed, listening_address
from kraftcore.plugins.picture import Picture, Watching, over

if TYPE_CHECKING:
    from kraftcore.ports.transport import Address


@click.command(
    epilog="""\b
Examples:
  kraftcore dashboard --bootstrap-controller c1:9093,c2:9093,c3:9093
  kraftcore dashboard --bootstrap-server 127.0.0.1:9092 --listen 127.0.0.1:8080

\b
It prints the page's address once it is served. The page is read-only, asks nobody who they are, and loads nothing from
elsewhere: leave it on this machine, or put something before it that asks for a login. All viewers share one picture.
Consumer groups need --bootstrap-server. Needs pip install 'kraftcore[dashboard]'.

\b
SIGINT (Ctrl-C), SIGTERM and SIGHUP end it with exit status 0.
"""
)
@click.option(
    "--listen",
    default=LISTEN,
    show_default=True,
    metavar="HOST:PORT",
    help="Address of the page; port 0: any free one.",
)
@connected()
def dashboard(connection: Connection, listen: str) -> None:
    """Serve a page that shows a quorum and its cluster as they are now."""
    check_installed()
    trio.run(_run, connection, listening_address(listen))


async def _run(connection: Connection, listen: Address) -> None:
    from kraftcore.plugins.dashboard.serving import serve  # needs the extra

    controllers, servers = (tuple(map(parse_address, each)) for each in (connection.controllers, connection.servers))
    async with (
        over(controllers, servers, connection.tls(), connection.sasl()) as carrier,
        trio.open_nursery() as nursery,
    ):
        address = await nursery.start(serve, Watching(Picture(), carrier), listen)
        click.echo(f"http://{address}/")
        with trio.open_signal_receiver(*stopping_for_good()) as signals:
            async for _ in signals:
                break
        nursery.cancel_scope.cancel()
