"""``python -m bench SUITE``: run a suite's cases and print one table, or one JSON object a line."""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import report
from bench.harness import FULL, OURS, QUICK, SMOKE, Case, Effort, Missing, Outcome, Sum, add_up, measure

SUITES = ("core",)
"""Modules of bench.suites; each has ``cases(folder, effort) -> list[Case | Sum]``."""


def parser() -> argparse.ArgumentParser:
    """Build the command line."""
    result = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    result.add_argument("suite", choices=SUITES)
    result.add_argument("--json", action="store_true", help="one JSON object a line instead of the table")
    result.add_argument("--only", metavar="CASE,...", help="these cases; 'append' also takes append-1x100 and so on")
    result.add_argument("--peers", metavar="NAME,...", help="only peers whose name contains one of these texts")
    result.add_argument("--save", metavar="FILE", type=Path, help="also write the rows, and the machine, to FILE")
    result.add_argument("--dir", metavar="DIR", type=Path, help="put log files here (default: the temporary folder)")
    result.add_argument("--list", action="store_true", help="name the cases and what they do")
    amount = result.add_mutually_exclusive_group()
    amount.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    amount.add_argument("--smoke", action="store_true", help="one call each on small input: only proves that it runs")
    return result


def choose(cases: Sequence[Case | Sum], only: str | None) -> list[Case | Sum]:
    """Pick cases by name; a name also stands for its sub-cases, a sum brings its parts.

    Raises:
        ValueError: a name fits no case.
    """
    if only is None:
        return list(cases)
    chosen: set[str] = set()
    for name in filter(None, (part.strip() for part in only.split(","))):
        fits = [case for case in cases if case.name == name or case.name.startswith(name + "-")]
        if not fits:
            raise ValueError(f"no case {name!r}; there are {', '.join(case.name for case in cases)}")
        for case in fits:
            chosen.update((case.name, *(case.parts if isinstance(case, Sum) else ())))
    return [case for case in cases if case.name in chosen]


def with_peers(case: Case | Sum, peers: str | None) -> Case | Sum:
    """Keep only the contenders asked for, and ourselves."""
    if peers is None or isinstance(case, Sum):
        return case
    wanted = [part.strip().lower() for part in peers.split(",")]
    kept = {
        name: factory
        for name, factory in case.contenders.items()
        if name == OURS or any(part in name.lower() for part in wanted)
    }
    return replace(case, contenders=kept)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 when every chosen case has a figure of ours and no peer disagreed with our result."""
    options = parser().parse_args(arguments)
    effort = QUICK if options.quick else SMOKE if options.smoke else FULL
    folder = Path(tempfile.mkdtemp(prefix="kraftcore-bench-", dir=options.dir))
    try:
        try:
            suite = importlib.import_module(f"bench.suites.{options.suite}")
        except ImportError as error:
            print(f"python -m bench: {error}; run pip install '.[bench]' in the repository", file=sys.stderr)
            return 2
        try:
            cases = choose(suite.cases(folder, effort), options.only)
        except ValueError as error:
            print(f"python -m bench: {error}", file=sys.stderr)
            return 2
        if options.list:
            for case in cases:
                print(f"{case.name:<30} {case.about}")
            return 0
        return run([with_peers(case, options.peers) for case in cases], effort, folder, options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(cases: Sequence[Case | Sum], effort: Effort, folder: Path, options: argparse.Namespace) -> int:
    """Measure the cases and print them as they come."""
    facts = report.environment(folder)
    status = report.Status()
    outcomes: list[Outcome] = []
    saved: list[dict[str, Any]] = []
    failed = False
    begin = time.monotonic()
    if not options.json:
        print(report.heading(facts))
        print(report.HEAD)
    for number, case in enumerate(cases, 1):
        prefix = f"[{number}/{len(cases)}, {time.monotonic() - begin:.0f} s] {case.name}: "
        try:
            if isinstance(case, Sum):
                outcome = add_up(case, outcomes)
                if outcome is None:
                    raise Missing("a part was not measured")
            else:
                outcome = measure(case, effort, lambda text, prefix=prefix: status(prefix + text))  # type: ignore[misc]
        except Missing as reason:
            status.clear()
            print(f"{case.name}: not measured: {reason}", file=sys.stderr)
            failed = True
            continue
        outcomes.append(outcome)
        failed = failed or any("differs" in reason for reason in outcome.missing.values())
        status.clear()
        for row in report.rows(outcome):
            saved.append(row)
            print(json.dumps(row) if options.json else report.line(row), flush=True)
    facts["load_after"] = report.environment(folder)["load"]
    facts["seconds"] = round(time.monotonic() - begin, 1)
    if not options.json:
        print(f"\n{facts['seconds']} s; load after {' '.join(map(str, facts['load_after']))}")
    if options.save:
        report.save(options.save, facts, saved)
    return 1 if failed else 0
