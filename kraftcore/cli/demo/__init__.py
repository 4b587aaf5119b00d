"""``kraftcore demo``: a real quorum in five processes on this machine, which survives the kill of its leader.

===============  =========================================================
``member``       a replica: the process's main program
``processes``    starts, watches, kills and stops those processes
``stream``       the client that writes, and keeps the acknowledgements
``story``        the acts in order
``check``        the verdict, from the files that the replicas left
``screen``       the live view, lines, or JSON
``timezones.zi`` the input: the IANA time zone database, which is in the public domain
===============  =========================================================
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from contextlib import closing
from importlib.resources import files
from typing import IO

import click
import trio

from kraftcore.cli.demo.processes import DemoError
from kraftcore.cli.demo.screen import Screen, make_screen
from kraftcore.cli.demo.story import PACE, Outcome, Story, bytes_of
from kraftcore.cli.demo.stream import BATCH_BYTES

_PAUSE_S = 2.5
_INTERRUPTED = 128  # plus the signal, as shells report it
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.command(
    epilog="""\b
Examples:
  kraftcore demo
  kraftcore demo --input /var/log/syslog --directory ./quorum
  kraftcore demo --output json | tail -1
  kraftcore dump-log --files ./quorum/node-1/__cluster_metadata-0/00000000000000000000.log
"""
)
@click.option(
    "--input",
    "source",
    type=click.File("rb"),
    help="File to replicate, a record a line; - for standard input. It is read into memory, and written over "
    "and over until the demo ends, at least once.  [default: the IANA time zone database]",
)
@click.option(
    "--directory",
    type=click.Path(file_okay=False),
    help="Directory to keep the replicas' files in; it must be empty or new.  [default: a temporary one, "
    "removed at the end]",
)
@click.option(
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="text: for people. json: one object a line; the last one is the result.",
)
@click.option("--live/--no-live", default=None, help="Draw a live view, or print lines.  [default: live on a terminal]")
@click.option(
    "--pause",
    "pause_s",
    type=click.FloatRange(0.1, 3600),
    default=_PAUSE_S,
    show_default=True,
    help="Seconds between two acts, 0.1 to 3600.",
)
@click.option(
    "--pace",
    type=click.IntRange(1, 1_000_000),
    default=PACE,
    show_default=True,
    help="Records a second, 1 to 1000000; in the last act as many as can be.",
)
@click.pass_context
def demo(
    ctx: click.Context,
    source: IO[bytes] | None,
    directory: str | None,
    output: str,
    live: bool | None,
    pause_s: float,
    pace: int,
) -> None:
    """Run a durable quorum on this machine, kill its leader, and check that nothing is lost.

    Three voters, each a process with its own directory, replicate a file over TCP. A fourth voter is added, the leader
    is killed with SIGKILL in mid-stream and comes back, a voter is removed; the writing goes on all the time. At the
    end every replica's files are read and compared with what was acknowledged. The exit status is 1 if anything is
    missing, or not the same everywhere.
    """
    lines = _read(source)
    place = _Directory(directory)
    screen = make_screen(output, live=live)
    with closing(place), closing(screen):
        story = Story(place.path, lines, screen, pause_s, pace)
        outcome, stopped_by = _run(story)
        if outcome is None:
            ctx.exit(_INTERRUPTED + (stopped_by or 0))
        _report(screen, outcome, place)
    ctx.exit(1 if outcome.problems else 0)


def _read(source: IO[bytes] | None) -> list[bytes]:
    text = (files(__package__) / "timezones.zi").read_bytes() if source is None else source.read()
    lines = [line for line in text.splitlines() if line]
    if not lines:
        raise click.UsageError("the input has no line that is not empty: a record cannot be empty")
    longest = max(range(len(lines)), key=lambda index: len(lines[index]))
    if len(lines[longest]) > BATCH_BYTES:
        raise click.UsageError(
            f"a line of the input has {len(lines[longest])} bytes: a record of the demo has at most {BATCH_BYTES}"
        )
    return lines


class _Directory:
    """The directory of the replicas; a temporary one is removed at the end."""

    def __init__(self, chosen: str | None) -> None:
        self.is_kept = chosen is not None
        if chosen is None:
            self.path = tempfile.mkdtemp(prefix="kraftcore-demo-")
            return
        self.path = os.path.abspath(chosen)
        os.makedirs(self.path, exist_ok=True)
        if os.listdir(self.path):
            raise click.UsageError(f"{chosen} is not empty: name a new directory, or remove what is in it")

    def close(self) -> None:
        if not self.is_kept:
            shutil.rmtree(self.path, ignore_errors=True)


def _run(story: Story) -> tuple[Outcome | None, int | None]:
    """Run the story on trio; returns the outcome, and the signal that ended it early, or None."""
    stopped_by: list[int] = []

    async def main() -> Outcome | None:
        outcome = None
        async with trio.open_nursery() as nursery:

            async def wait_signal() -> None:
                with trio.open_signal_receiver(*_SIGNALS) as signals:
                    async for number in signals:
                        stopped_by.append(number)
                        nursery.cancel_scope.cancel()

            nursery.start_soon(wait_signal)
            outcome = await story.run()
            nursery.cancel_scope.cancel()
        return outcome

    try:
        outcome = trio.run(main)
    except BaseExceptionGroup as group:
        raise _first(group) from None
    return outcome, stopped_by[0] if stopped_by else None


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    wanted = group.subgroup(DemoError) or group
    error: BaseException = wanted
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _latency(figures: dict[str, float]) -> str:
    return f"p50 {figures['commit_p50_ms']:.2f} ms, p99 {figures['commit_p99_ms']:.2f} ms"


def _report(screen: Screen, outcome: Outcome, place: _Directory) -> None:
    figures = outcome.figures
    paced, full = figures["paced"], figures["full_speed"]
    replicas = [
        {
            "id": found.node_id,
            "log_end": found.end_offset,
            "records": found.records,
            "sent_again": found.repeated,
            "sha256": found.hashes.get(found.end_offset),
            "removed": found.node_id == figures["removed"],
        }
        for found in outcome.findings
    ]
    lines = [
        f"failover       {figures['failover_ms']:.0f} ms from SIGKILL of the leader to the next commit",
        f"paced          {paced['records_per_s']:,} records/s, commit latency {_latency(paced)}",
        f"full speed     {full['records_per_s']:,} records/s, commit latency {_latency(full)}",
    ]
    for each in replicas:
        note = "removed; holds what was committed until then" if each["removed"] else "all that was acknowledged"
        lines.append(
            f"node {each['id']}         {each['records']:,} records, SHA-256 {str(each['sha256'])[:16]}: {note}"
        )
    if outcome.problems:
        lines += ["", *(f"WRONG          {problem}" for problem in outcome.problems)]
    else:
        lines.append(
            f"verdict        every replica holds the same bytes; none of {figures['acknowledged']:,} acknowledged "
            "records is missing or there twice"
        )
    size = bytes_of(place.path)
    if place.is_kept:
        lines.append(f"files          {place.path} ({size / 1e6:.0f} MB): look with kraftcore dump-log")
    fields = {"ok": not outcome.problems, "problems": outcome.problems, **figures, "replicas": replicas}
    fields |= {"bytes": size, "directory": place.path if place.is_kept else None, "seconds": round(screen.seconds, 3)}
    screen.result(lines, fields)
    if sys.stdout is not None:
        sys.stdout.flush()
