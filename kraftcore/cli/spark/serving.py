"""``kraftcore spark serve``: keep a session that answers."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import click

from kraftcore.cli.spark.answering import Event, Request, answer
from kraftcore.cli.spark.options import SparkOptions, spark_options
from kraftcore.cli.spark.screen import Screen
from kraftcore.cli.spark.starting import starting, told
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
@click.option(
    "--idle", "idle_s", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
    help="End after so many seconds without a question.  [default: never]",
)  # fmt: skip
@spark_options
def serve(socket: str, idle_s: float | None, options: SparkOptions) -> None:
    """Keep a Spark session, and answer what 'query --socket FILE' asks, until interrupted.

    It prints 'FILE: ready' once Spark runs; who asks before waits. What Java says goes to FILE.log.
    """
    from py4j.protocol import Py4JNetworkError

    from kraftcore.plugins.spark import warm

    stop = threading.Event()
    ready: Future[Any] = Future()
    with starting(options, Screen(quiet=options.quiet), Path(f"{socket}.log")) as start:

        def answered(request: Request) -> Iterator[Event]:
            yield "stage", "asking Spark" if ready.done() else "starting Spark"
            try:
                # A session of its own: views are named the same, whatever the folder.
                yield from answer(lambda: ready.result().newSession(), request)
            except KraftError:
                raise
            except Exception as error:
                if isinstance(error, Py4JNetworkError | ConnectionError):
                    stop.set()  # Java has ended; the next command starts another
                raise LocalError(told(error, start.log)) from None

        with closing(warm.SessionSocket(socket)) as listener, _stopped_by_signals(stop):
            server = threading.Thread(target=warm.serve, args=(listener, answered, stop, idle_s))
            server.start()
            try:
                ready.set_result(start())
                click.echo(f"{socket}: ready")
            except BaseException as error:
                ready.set_exception(error)
                stop.set()
                raise
            finally:
                server.join()


@contextmanager
def _stopped_by_signals(stop: threading.Event) -> Iterator[None]:
    numbers = signal.SIGINT, signal.SIGTERM
    before = [signal.signal(number, lambda *_: stop.set()) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
