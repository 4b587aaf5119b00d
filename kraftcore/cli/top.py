"""``kraftcore top``: a quorum and its cluster, live in the terminal."""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

import click
import trio

from kraftcore.cli.admin_tool import Connection, connected
from kraftcore.cli.drawing import Drawing, can_draw, styled
from kraftcore.cli.output import print_json
from kraftcore.cli.stopping import stopping_for_good
from kraftcore.cli.top_screen import WIDTH, lines
from kraftcore.config.addresses import parse_address
from kraftcore.plugins.picture import Picture, Watching, over

_PATIENCE_S = 10.0  # with the log and the groups, for one picture
_HEIGHT = 100  # of a picture that is not on a terminal


@click.command(
    epilog="""\b
Examples:
  kraftcore top --bootstrap-controller 127.0.0.1:9093
  kraftcore top --bootstrap-server 127.0.0.1:9092
  kraftcore top --bootstrap-controller c1:9093,c2:9093,c3:9093 --once
  kraftcore top --bootstrap-controller 127.0.0.1:9093 --json | jq .counts

\b
It shows who leads and what each controller answers, replicas and their lag, commits, brokers, partitions in trouble,
consumer groups (with --bootstrap-server) and events, of Kafka's quorums and kraftcore's. Name all controllers if you
can: those that cannot be reached are shown, too. The quorum does not notice: it is observed as by kraftcore observe.

\b
SIGINT (Ctrl-C), SIGTERM and SIGHUP end it with exit status 0. NO_COLOR (not empty) leaves colors out. With TERM=dumb,
and where standard output is no terminal, pictures follow each other.
"""
)
@click.option("--once", is_flag=True, help="Print one picture and end.")
@click.option("--json", "as_json", is_flag=True, help="Print one picture as a JSON object and end; times are in ms.")
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 3600),
    default=1.0,
    show_default=True,
    help="Seconds between two pictures, 0.1 to 3600.",
)
@connected()
def top(connection: Connection, once: bool, as_json: bool, interval: float) -> None:
    """Show a quorum and its cluster as they are now."""
    trio.run(_run, connection, once, as_json, interval)


async def _run(connection: Connection, once: bool, as_json: bool, interval: float) -> None:
    async with watched(connection) as watching, trio.open_nursery() as nursery:
        with trio.open_signal_receiver(*stopping_for_good()) as signals:

            async def stop() -> None:
                async for _ in signals:
                    nursery.cancel_scope.cancel()

            nursery.start_soon(stop)
            if once or as_json:
                await _complete(watching)
                _print(watching, as_json=as_json)
            else:
                await watching.looked.wait()
                await _show(watching, interval)
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def watched(connection: Connection) -> AsyncIterator[Watching]:
    """Watch the quorum that a command connects to, while the block runs."""
    controllers, servers = (tuple(map(parse_address, each)) for each in (connection.controllers, connection.servers))
    async with (
        over(controllers, servers, connection.tls(), connection.sasl()) as carrier,
        trio.open_nursery() as nursery,
    ):
        watching = Watching(Picture(), carrier)
        nursery.start_soon(watching.run)
        yield watching
        nursery.cancel_scope.cancel()


async def _complete(watching: Watching) -> None:
    """Wait until all is known that can be: without a leader, nothing of the log comes."""
    await watching.looked.wait()
    if watching.picture.quorum.leader is not None:
        with trio.move_on_after(_PATIENCE_S):
            await watching.loaded.wait()
            await watching.grouped.wait()


def _print(watching: Watching, *, as_json: bool) -> None:
    now_ms = watching.now_ms()
    frame = watching.picture.frame(now_ms)
    if as_json:
        print_json(atMs=now_ms, **frame)
        return
    width = shutil.get_terminal_size((WIDTH, _HEIGHT)).columns if can_draw() else WIDTH
    for line in lines(frame, width, _HEIGHT, now_ms):
        click.echo(styled(line, width))


async def _show(watching: Watching, interval: float) -> None:
    if not can_draw():
        while True:
            _print(watching, as_json=False)
            click.echo()
            sys.stdout.flush()
            await trio.sleep(interval)
    with closing(Drawing()) as drawing:
        while True:
            width, height = shutil.get_terminal_size()
            now_ms = watching.now_ms()
            drawing.draw(lines(watching.picture.frame(now_ms), width - 1, height - 1, now_ms))
            await trio.sleep(interval)
