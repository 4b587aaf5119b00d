"""``kraftcore simulate``: run quorums in a deterministic simulation and try to break them."""

from __future__ import annotations

import json
import math
import os
import re
import sys
from dataclasses import asdict
from typing import IO, Any

import click

from kraftcore import __version__
from kraftcore.cli.output import is_terminal
from kraftcore.errors import InvariantError, LocalError
from kraftcore.simulation import planted
from kraftcore.simulation.counters import Counters
from kraftcore.simulation.options import FAULTS, draw_options
from kraftcore.simulation.replay import replay
from kraftcore.simulation.runs import Result, run_seed, shortest_failure
from kraftcore.simulation.timeline import Timeline
from kraftcore.simulation.workload import Workload

TRACE_LINES = 40
WORKLOADS = ("counters", "controller", "partitions")


def _load(name: str) -> tuple[type[Workload], dict[str, planted.Planted]]:
    """A workload and the mistakes that can be planted in it."""
    if name == "counters":
        return Counters, planted.FAULTS
    if name == "partitions":
        from kraftcore.plugins.broker.simulated.planted import FAULTS as IN_PARTITIONS
        from kraftcore.plugins.broker.simulated.workload import Partitions

        return Partitions, IN_PARTITIONS
    from kraftcore.plugins.controller.simulated import workload
    from kraftcore.plugins.controller.simulated.planted import FAULTS as IN_CONTROLLERS

    return workload.Controllers, IN_CONTROLLERS


class SeedRange(click.ParamType):  # type: ignore[type-arg]
    """``A..B``, both included."""

    name = "A..B"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> range:
        """Two whole numbers."""
        if isinstance(value, range):
            return value
        found = re.fullmatch(r"(\d+)\.\.(\d+)", str(value))
        if found is None or int(found[1]) > int(found[2]):
            self.fail(f"{value!r} is no range of seeds like 1..100", param, ctx)
        return range(int(found[1]), int(found[2]) + 1)


class Minutes(click.FloatRange):
    """A number of minutes that ends."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Refuse infinity and NaN, which a range does not."""
        found = float(super().convert(value, param, ctx))
        if not math.isfinite(found):
            self.fail(f"{value!r} is no number of minutes", param, ctx)
        return found


class FaultList(click.ParamType):  # type: ignore[type-arg]
    """Names of faults, with commas; ``none`` for none."""

    name = "LIST"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """A subset of `FAULTS`."""
        if isinstance(value, tuple):
            return value
        names = [name.strip() for name in str(value).split(",") if name.strip() not in ("", "none")]
        unknown = [name for name in names if name not in FAULTS]
        if unknown:
            self.fail(f"{', '.join(unknown)}: not among {', '.join(FAULTS)}", param, ctx)
        return tuple(names)


class Screen:
    """Prints the command's reports: lines of text, or one JSON object a line; a bar on a terminal."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self._bar = is_terminal(sys.stderr) and not as_json

    def line(self, text: str, **fields: object) -> None:
        """Print one line."""
        self.progress(None)
        click.echo(json.dumps(fields) if self.as_json else text)

    def text(self, text: str) -> None:
        """Print text that the JSON form leaves out."""
        if not self.as_json:
            self.progress(None)
            click.echo(text)

    def progress(self, share: float | None, label: str = "") -> None:
        """Show the share that is done, 0 to 1; None clears the line."""
        if not self._bar:
            return
        if share is None:
            click.echo("\r\x1b[K", nl=False, err=True)
        else:
            done = int(share * 30)
            click.echo(f"\r{label} [{'#' * done}{'.' * (30 - done)}] {share:4.0%}", nl=False, err=True)


@click.command(
    epilog="""\b
Examples:
  kraftcore simulate --seed 7 --nodes 5 --minutes 10
  kraftcore simulate --seeds 1..200 --nodes 3 --faults crash,partition,members
  kraftcore simulate --seed 7 --trace seed7.svg
  kraftcore simulate --seeds 1..200 --workload controller
  kraftcore simulate --seeds 1..200 --workload partitions --minutes 0.5
  kraftcore simulate --planted-faults --json
  kraftcore simulate --replay node-1.recording
"""
)
@click.option("--seed", type=click.IntRange(min=0), help="Run this seed, a whole number from 0, and print its verdict.")
@click.option(
    "--seeds", type=SeedRange(), help="Run all of these seeds, first and last included, and print a line for each."
)
@click.option(
    "--nodes", type=click.IntRange(1, 9), default=5, show_default=True, help="Voters at the start of a run, 1 to 9."
)
@click.option(
    "--minutes",
    type=Minutes(min=0.05),
    default=2.0,
    show_default=True,
    help="Minutes of simulated time with faults, at least 0.05; a quiet time follows, in which all must recover.",
)
@click.option(
    "--faults",
    type=FaultList(),
    default=FAULTS,
    help=f"Faults that a seed may draw, with commas; none: no fault.  [default: {', '.join(FAULTS)}]",
)
@click.option(
    "--workload",
    type=click.Choice(WORKLOADS),
    default="counters",
    show_default=True,
    help="What the simulated nodes run. counters: a small state machine; controller: a Kafka cluster's "
    "controllers, with scripted brokers and administrators; partitions: those with brokers, whose "
    "partitions producers and consumers use.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line in place of text.")
@click.option(
    "--trace", type=click.File("w", lazy=True), help="With --seed: draw the run as a timeline into this SVG file."
)
@click.option(
    "--replay",
    "recording",
    type=click.File("r", encoding="utf-8", errors="replace"),
    help="Replay the file that a node recorded (setting kraftcore.record.file), and compare each effect.",
)
@click.option(
    "--planted-faults",
    "plant",
    is_flag=True,
    help="Plant known mistakes, one after the other, and run seeds until a rule catches each.",
)
@click.option(
    "--fault",
    "only",
    multiple=True,
    help="With --planted-faults: plant only the mistake of this name; may be repeated.",
)
@click.option(
    "--tries",
    type=click.IntRange(min=1),
    default=300,
    show_default=True,
    help="With --planted-faults: seeds to try for a mistake before it counts as not caught.",
)
@click.pass_context
def simulate(
    ctx: click.Context,
    seed: int | None,
    seeds: range | None,
    nodes: int,
    minutes: float,
    faults: tuple[str, ...],
    workload: str,
    as_json: bool,
    trace: IO[str] | None,
    recording: IO[str] | None,
    plant: bool,
    only: tuple[str, ...],
    tries: int,
) -> None:
    """Run whole quorums on a simulated disk, network and clock, and check that they keep their promises.

    Every run is drawn from its seed and can be had again. The exit status is 1 if a rule was broken.
    """
    screen = Screen(as_json=as_json)
    if recording is not None:
        ctx.exit(_replay(screen, recording))
    if plant:
        ctx.exit(_plant(screen, workload, only, tries))
    if only:
        raise click.UsageError("--fault names a planted one: it goes with --planted-faults")
    if (seed is None) == (seeds is None):
        raise click.UsageError("give either --seed or --seeds, or --planted-faults, or --replay")
    if trace is not None and seed is None:
        raise click.UsageError("--trace draws one run: give --seed")
    chosen = seeds if seeds is not None else range(seed or 0, (seed or 0) + 1)
    count = chosen.stop - chosen.start  # ``len`` refuses very large ranges
    failures = 0
    simulated = wall = 0.0
    for number in chosen:
        result = _run(screen, workload, number, nodes, minutes, faults, trace, verbose=count == 1)
        failures += result.rule is not None
        simulated += result.simulated_s
        wall += result.wall_s
    if count > 1:
        speed = simulated / wall if wall else 0.0
        text = f"{count} seeds, {failures} with violations, {simulated:.0f} s simulated, {speed:.0f} times real time"
        screen.line(text, seeds=count, violations=failures, simulated_s=round(simulated, 1), speed=round(speed, 1))
    ctx.exit(1 if failures else 0)


def _replay(screen: Screen, recording: IO[str]) -> int:
    try:
        found = replay(recording)
    except InvariantError as error:
        screen.line(f"VIOLATION: {error}", verdict="violation", detail=str(error))
        return 1
    except LocalError as error:
        raise click.UsageError(str(error)) from error
    text = (
        f"ok: {found.events} events, the same effects; {found.role} in epoch {found.epoch}, "
        f"log to {found.log_end_offset}, high watermark {found.high_watermark}"
    )
    screen.line(text, verdict="ok", **asdict(found))
    return 0


def _run(
    screen: Screen,
    workload: str,
    seed: int,
    nodes: int,
    minutes: float,
    faults: tuple[str, ...],
    trace: IO[str] | None,
    *,
    verbose: bool,
) -> Result:
    kind, _ = _load(workload)
    if verbose:
        options = kind.adapt(draw_options(seed, nodes, minutes, faults))
        commit = os.environ.get("KRAFTCORE_COMMIT", __version__)
        screen.line(f"seed={seed} commit={commit} {options}", seed=seed, commit=commit, options=asdict(options))
    timeline = Timeline(messages=False) if trace is not None else None
    result = run_seed(
        seed,
        nodes,
        minutes,
        faults,
        timeline=timeline,
        report=lambda share: screen.progress(share, f"seed {seed}"),
        workload=kind,
    )
    if trace is not None and timeline is not None:
        hosts = nodes + result.options.spares
        trace.write(timeline.svg(seed, hosts, int(result.simulated_s * 1e6)))
    verdict = "ok" if result.rule is None else f"VIOLATION {result.rule}: {result.detail}"
    speed = result.simulated_s / result.wall_s if result.wall_s else 0.0
    text = (
        f"seed {seed}: {verdict}; {result.events} events, {result.simulated_s:.1f} s simulated, "
        f"{result.commits} batches committed, {result.epochs} leaders"
    )
    if verbose:
        text += f"; {speed:.0f} times real time, {result.events / max(result.wall_s, 1e-9):.0f} events/s"
    screen.line(
        text,
        seed=seed,
        nodes=nodes,
        minutes=minutes,
        verdict="ok" if result.rule is None else "violation",
        rule=result.rule,
        detail=result.detail,
        events=result.events,
        simulated_s=round(result.simulated_s, 3),
        wall_s=round(result.wall_s, 3),
        commits=result.commits,
        epochs=result.epochs,
    )
    if result.rule is not None:
        _explain(screen, workload, result, nodes, minutes, faults)
    return result


def _explain(
    screen: Screen, workload: str, result: Result, nodes: int, minutes: float, faults: tuple[str, ...]
) -> None:
    kind, _ = _load(workload)
    wanted = "" if set(faults) == set(FAULTS) else f" --faults {','.join(faults) or 'none'}"
    if workload != "counters":
        wanted += f" --workload {workload}"
    replay = f"kraftcore simulate --seed {result.seed} --nodes {nodes} --minutes {minutes:g}{wanted}"
    events = shortest_failure(result, nodes, minutes, faults, workload=kind)
    about = run_seed(result.seed, nodes, minutes, faults, event_limit=events, workload=kind).about
    timeline = Timeline(about=about)
    again = run_seed(result.seed, nodes, minutes, faults, event_limit=events, timeline=timeline, workload=kind)
    lines = timeline.text(TRACE_LINES)
    screen.line(
        f"replay: {replay}\nshortest failing prefix found: {events} of {result.events} events with faults "
        f"({again.rule}: {again.detail})",
        seed=result.seed,
        replay=replay,
        shortest_events=events,
        about=about,
        trace=lines.splitlines(),
    )
    if about is not None:
        screen.text(f"history of {about}, and what else went wrong; - is for none or several:")
    screen.text(f"{'seconds':>12}  {'host':>3}  {'what':<12} details\n{lines}")


def _plant(screen: Screen, workload: str, only: tuple[str, ...], tries: int) -> int:
    kind, known = _load(workload)
    unknown = [name for name in only if name not in known]
    if unknown:
        raise click.UsageError(f"no planted fault {', '.join(unknown)}: there are {', '.join(known)}")
    missed = 0
    screen.text(f"{'fault':<26} {'caught':<7} {'seeds':>5}  rule that was broken, and what is wrong")
    for name in only or known:
        fault = known[name]

        def run(seed: int, label: str = name) -> str | None:
            screen.progress(seed / tries, label)
            return run_seed(seed, 3 + seed % 3, 1.0, workload=kind).rule

        found = planted.catch(fault, run, tries)
        missed += found is None
        count, rule = found or (tries, None)
        text = f"{name:<26} {'no' if found is None else 'yes':<7} {count:>5}  {rule or '-'}: {fault.text}"
        screen.line(text, fault=name, caught=found is not None, seeds=count, rule=rule, mistake=fault.text)
    return 1 if missed else 0
