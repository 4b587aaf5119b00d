"""``python -m bench SUITE``: run a suite's cases and print one table, or one JSON object a line.

``python -m bench report`` writes the page of figures from what runs have saved.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import report
from bench.harness import FULL, OURS, QUICK, SMOKE, Case, Effort, Missing, Outcome, Sum, add_up, measure

SUITES = ("core", "nodes", "controller", "broker", "spark")
"""Modules of bench.suites."""
REPORT = "report"
"""No suite: writes the page of figures from what suites have saved."""
EXTRAS = {"spark": "bench,spark", REPORT: "bench,spark"}
EPILOG = """\
suites:
  core    batches, messages and the log on disk, beside other libraries: one process, about three minutes
  nodes   three processes on loopback, beside other replicated logs: about half an hour; --build first
  controller  Kafka's controller beside ours, its brokers and administrators played: about half an hour
  broker  three of Kafka's brokers and a controller beside ours, under Kafka's tools and librdkafka: an hour
  spark   metadata logs on Spark, beside what Spark and Kafka's tool can do: a quarter of an hour, half of it layers
  report  measures nothing: writes bench/figures.md and its pictures from bench/results/*.jsonl

examples:
  python -m bench core --quick
  python -m bench spark --list
  python -m bench spark --only read,typed,filter,live
  python -m bench spark --only layers-1m --save spark.jsonl
  python -m bench spark --only layers --save spark.jsonl --resume
"""
MEMORY_ONLY = ("tmpfs", "ramfs")
Chosen = Any  # each suite has cases of its own: with a name, contenders, and what they are about


def parser() -> argparse.ArgumentParser:
    """Build the command line."""
    result = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__.replace("``", ""),
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument("suite", choices=(*SUITES, REPORT))
    result.add_argument("--json", action="store_true", help="one JSON object a line instead of the table")
    result.add_argument("--only", metavar="CASE,...", help="these cases; 'append' also takes append-1x100 and so on")
    result.add_argument("--peers", metavar="NAME,...", help="only peers whose name contains one of these texts")
    result.add_argument(
        "--save", metavar="FILE", type=Path, help="also write the rows, and the machine, to FILE, after each case"
    )
    result.add_argument("--dir", metavar="DIR", type=Path, help="put log files here (default: the temporary folder)")
    result.add_argument("--list", action="store_true", help="name the cases and what they do; measure nothing")
    nodes = result.add_argument_group("nodes")
    nodes.add_argument("--build", action="store_true", help="build the peers and run nothing")
    nodes.add_argument("--rounds", metavar="N", type=int, help="how often each peer takes its turn")
    nodes.add_argument("--minutes", metavar="M", type=float, help="length of the soak, which runs when --only names it")
    spark = result.add_argument_group("spark")
    spark.add_argument(
        "--resume", action="store_true", help="leave out what the --save FILE has already, and write behind it"
    )
    amount = result.add_mutually_exclusive_group()
    amount.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    amount.add_argument("--smoke", action="store_true", help="one call each on small input: only proves that it runs")
    return result


def choose(cases: Sequence[Chosen], only: str | None) -> list[Chosen]:
    """Pick cases by name; a name also stands for its sub-cases, a sum brings its parts.

    Raises:
        ValueError: a name fits no case.
    """
    if only is None:
        return [case for case in cases if not getattr(case, "on_request", False)]
    chosen: set[str] = set()
    for name in filter(None, (part.strip() for part in only.split(","))):
        fits = [case for case in cases if case.name == name or case.name.startswith(name + "-")]
        if not fits:
            raise ValueError(f"no case {name!r}; there are {', '.join(case.name for case in cases)}")
        for case in fits:
            chosen.update((case.name, *(case.parts if isinstance(case, Sum) else ())))
    return [case for case in cases if case.name in chosen]


def with_peers(cases: Sequence[Chosen], peers: str | None) -> list[Chosen]:
    """Keep only the contenders asked for, and ourselves.

    Raises:
        ValueError: a text is in no contender's name.
    """
    if peers is None:
        return list(cases)
    wanted = [part.strip().lower() for part in peers.split(",")]
    names = sorted({name for case in cases if not isinstance(case, Sum) for name in case.contenders})
    for part in wanted:
        if not any(part in name.lower() for name in names):
            raise ValueError(f"no peer {part!r}; there are {', '.join(name for name in names if name != OURS)}")

    def kept(name: str) -> bool:
        return name == OURS or any(part in name.lower() for part in wanted)

    return [
        case
        if isinstance(case, Sum)
        else replace(case, contenders={name: each for name, each in case.contenders.items() if kept(name)})
        for case in cases
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 when every chosen case has a figure of ours and no peer disagreed with our result."""
    options = parser().parse_args(arguments)
    effort = QUICK if options.quick else SMOKE if options.smoke else FULL
    if options.suite != "nodes" and (options.build or options.rounds or options.minutes):
        print("python -m bench: --build, --rounds and --minutes belong to the suite nodes", file=sys.stderr)
        return 2
    if options.resume and (options.suite != "spark" or options.save is None):
        print("python -m bench: --resume belongs to the suite spark, and needs --save FILE", file=sys.stderr)
        return 2
    if options.suite == REPORT:
        return write_report()
    # As a signal that merely ends the process would leave files and nodes behind.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    folder = Path(tempfile.mkdtemp(prefix="kraftcore-bench-", dir=options.dir))
    try:
        try:
            suite = importlib.import_module(f"bench.suites.{options.suite}")
        except ImportError as error:
            extras = EXTRAS.get(options.suite, "bench")
            print(f"python -m bench: {error}; run pip install '.[{extras}]' in the repository", file=sys.stderr)
            return 2
        try:
            cases: list[Any] = with_peers(choose(suite.cases(folder, effort), options.only), options.peers)
            before, rows = report.saved(options.save, effort) if options.resume else ("", [])
        except ValueError as error:
            print(f"python -m bench: {error}", file=sys.stderr)
            return 2
        if options.list:
            for case in suite.cases(folder, effort):
                print(f"{case.name:<30} {case.about}")
            return 0
        if options.build:
            return 0 if suite.build(cases, print) else 1
        status = report.Status()
        facts = report.environment(folder, effort)
        if options.suite == "nodes":
            if facts["files_in"] in MEMORY_ONLY:
                print(f"files are in {facts['files_in']}, where nothing is durable: see --dir", file=sys.stderr)
            plan = suite.plan_for(effort, options.rounds, options.minutes)
            outcomes = suite.measure(cases, plan, folder, facts, status)
        elif hasattr(suite, "measure"):
            if hasattr(suite, "settings"):
                facts["settings"] = suite.settings(cases)
            outcomes = suite.measure(left(cases, rows), effort, status, rows)
        else:
            outcomes = one_by_one(cases, effort, status)
        return run(outcomes, facts, status, options, before)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_report() -> int:
    """Write the page of figures; 2 if what draws the pictures is missing."""
    try:
        from bench import figures
    except ImportError as error:
        print(f"python -m bench: {error}; run pip install '.[{EXTRAS[REPORT]}]' in the repository", file=sys.stderr)
        return 2
    figures.write()
    return 0


def left(cases: Sequence[Chosen], rows: Sequence[dict[str, Any]]) -> list[Chosen]:
    """The cases of which a saved run has no figure of ours."""
    measured = {row["case"] for row in rows if row["ours"] is not None}
    if done := [case.name for case in cases if case.name in measured]:
        print(f"measured before: {', '.join(done)}", file=sys.stderr)
    return [case for case in cases if case.name not in measured]


def one_by_one(cases: Sequence[Case | Sum], effort: Effort, status: report.Status) -> Iterator[Outcome]:
    """Measure case after case; a case that we cannot run gives an outcome without a figure of ours."""
    done: list[Outcome] = []
    begin = time.monotonic()
    for number, case in enumerate(cases, 1):
        prefix = f"[{number}/{len(cases)}, {time.monotonic() - begin:.0f} s] {case.name}: "
        try:
            if isinstance(case, Sum):
                outcome = add_up(case, done)
            else:
                outcome = measure(case, effort, lambda text, prefix=prefix: status(prefix + text))  # type: ignore[misc]
        except Missing as reason:
            outcome = Outcome(case.name, case.unit, case.higher_is_better, case.figure, missing={OURS: str(reason)})  # type: ignore[union-attr]
        done.append(outcome)
        yield outcome


def run(
    outcomes: Iterator[Outcome],
    facts: dict[str, Any],
    status: report.Status,
    options: argparse.Namespace,
    before: str = "",
) -> int:
    """Print what is measured as it comes, and save it, behind what was saved ``before``."""
    saved: list[dict[str, Any]] = []
    failed = False
    begin = time.monotonic()
    if not options.json:
        print(report.heading(facts))
        print(report.HEAD, flush=True)
    for outcome in outcomes:
        status.clear()
        if OURS not in outcome.timings:
            print(f"{outcome.name}: not measured: {outcome.missing.get(OURS)}", file=sys.stderr)
            failed = True
        failed = failed or any("differs" in reason for reason in outcome.missing.values())
        for row in report.rows(outcome):
            saved.append(row)
            print(json.dumps(row) if options.json else report.line(row), flush=True)
        if options.save:
            report.save(options.save, facts, saved, before)
    facts["load_after"] = [round(load, 2) for load in os.getloadavg()]
    facts["seconds"] = round(time.monotonic() - begin, 1)
    if not options.json:
        print(report.footer(facts))
    if options.save and (saved or not before):
        report.save(options.save, facts, saved, before)
    return 1 if failed else 0
