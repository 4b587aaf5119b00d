"""``kraftcore spark serve``: keep a session that answers."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import closing

import click

from kraftcore.cli.spark.answering import Event, Request, answer
from kraftcore.cli.spark.options import SparkOptions, spark_options
from kraftcore.cli.spark.screen import Screen
from kraftcore.cli.spark.starting import one_line, starting
from kraftcore.errors import KraftError, LocalError


@click.command(
    short_help="Keep a session that answers queries at once.",
    epilog="""\b
Examples:
  kraftcore spark serve --socket /run/user/1000/kraft.sock &
  kraftcore spark query --socket /run/user/1000/kraft.sock --tables /data/kraft "SELECT * FROM gold_voter_sets"
""",
)
@click.option(
    "--socket",
    required=True,
    type=click.Path(),
    metavar="FILE",
    help="Path of the Unix socket to listen on; it is made, and only its owner may connect.",
)
@spark_options
def serve(socket: str, options: SparkOptions) -> None:
    """Keep a Spark session, and answer what 'query --socket FILE' asks, until interrupted."""
    from kraftcore.plugins.spark import warm

    stop = threading.Event()
    screen = Screen(quiet=options.quiet)
    with starting(options, screen) as start, closing(warm.listen(socket)) as listener:
        session = start()

        def answered(request: Request) -> Iterator[Event]:
            # A session of its own: views are named the same, whatever the folder.
            try:
                yield from answer(session.newSession, request)
            except KraftError:
                raise
            except Exception as error:
                raise LocalError(one_line(error)) from None

        numbers = signal.SIGINT, signal.SIGTERM
        before = [signal.signal(number, lambda *_: stop.set()) for number in numbers]
        try:
            click.echo(f"{socket}: ready")
            warm.serve(listener, answered, stop)
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)
