"""How the whole suite runs: in two tiers, in several processes, with a line that tells how far it is.

``pytest`` runs the quick tier, ``pytest --deep`` the deep one: the tests marked ``deep``. They prove the same rules
with more seeds, in longer drills, or with Kafka where the quick tier has nodes of ours. A run that names single files
or tests has both tiers and one process; others are spread over processes (pytest-xdist; ``-n 0`` for one). The unit of
work is a file, the longest first, as ``suite_seconds.tsv`` has them; ``pytest --measure`` brings that table up to date.
"""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any, TextIO

import pytest
from xdist.scheduler import LoadScopeScheduling

TABLE = Path(__file__).with_name("suite_seconds.tsv")
# Most tests wait: for elections, timeouts, other processes. More processes than processors keep the latter at work.
PROCESSES_A_PROCESSOR = 2
# Files whose tests share no expensive fixture: each test is a unit of its own.
APART = (
    "tests/simulation/test_controller_seeds.py",
    "tests/simulation/test_partition_seeds.py",
    "tests/simulation/test_seeds.py",
)
# A folder whose tests share an expensive fixture, a JVM with a Spark session: it is one unit, but for those files
# that do without.
TOGETHER = "tests/spark/"
WITHOUT_SESSION = ("tests/spark/test_declarative.py", "tests/spark/test_standalone.py")
UNKNOWN_S = 2.0  # a file that the table does not have yet
LIVE_EVERY_S, LINE_EVERY_S = 0.2, 30.0  # on a terminal, elsewhere


def unit_of(nodeid: str) -> str:
    """The unit of work a test belongs to: its file, its folder, or itself."""
    file = nodeid.partition("::")[0]
    if file.startswith(TOGETHER) and file not in WITHOUT_SESSION:
        return TOGETHER
    return nodeid if file in APART else file


def row_of(unit: str) -> str:
    """Where the table has a unit: a test of many parameters, some of which are new in each run, has one row."""
    return unit.partition("[")[0]


def known_seconds() -> dict[str, float]:
    """Seconds of a unit by its row, on a quiet machine with two processors, as the last ``--measure`` saw them."""
    rows = (line.split("\t") for line in TABLE.read_text().splitlines() if line)
    return {unit: float(seconds) for seconds, unit in rows}


def names_single_files(arguments: list[str]) -> bool:
    """Whether a command line asks for a few tests only, for which other processes are not worth their start."""
    return bool(arguments) and all("::" in one or one.endswith(".py") for one in arguments)


def spread_over(config: pytest.Config) -> int:
    """Processes for ``-n auto``; 0 is this one alone."""
    if names_single_files(config.args):
        return 0
    return max(2, PROCESSES_A_PROCESSOR * len(os.sched_getaffinity(0)))


def choose_tier(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the other tier, unless tests are named; then put the longest units first."""
    deep = config.getoption("deep")
    if not names_single_files(config.args) or deep:
        other = [item for item in items if (item.get_closest_marker("deep") is not None) != deep]
        if other:
            config.hook.pytest_deselected(items=other)
            left_out = set(other)
            items[:] = [item for item in items if item not in left_out]
    if hasattr(config, "workerinput"):
        seconds = known_seconds()
        units = {item.nodeid: unit_of(item.nodeid) for item in items}
        items.sort(key=lambda item: (-seconds.get(row_of(units[item.nodeid]), UNKNOWN_S), units[item.nodeid]))


def is_left_out(file: Path, config: pytest.Config) -> bool:
    """Whether a file of tests need not be read: the deep tier runs, and neither the file nor its conftest marks any."""
    if not config.getoption("deep") or names_single_files(config.args) or not file.name.startswith("test_"):
        return False
    marking = [one for one in (file, file.with_name("conftest.py")) if one.exists()]
    return not any("deep" in one.read_text(encoding="utf-8") for one in marking)


class LongestFirst(LoadScopeScheduling):
    """Gives units of work to processes in the order in which tests were collected."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)

    def schedule(self) -> None:
        """Hand out the first units, and tell the progress line what there is."""
        is_first = self.collection is None
        super().schedule()
        progress = self.config.pluginmanager.get_plugin("progress")
        if is_first and progress is not None:
            progress.begin(self.collection or [])


class Progress:
    """One line: how far the run is, how long it will take, what runs now. Failures are named at once.

    On a terminal the line is written over again, elsewhere a new one comes every half minute.
    """

    def __init__(self, config: pytest.Config, out: TextIO) -> None:
        self._measures = config.getoption("measure")
        self._out = out
        self._is_live = out.isatty()
        self._known = known_seconds()
        self._weights: dict[str, float] = {}
        self._seen: Counter[str] = Counter()  # seconds by unit
        self._began = self._told = time.monotonic()
        self._done = 0.0
        self._count = self._failed = 0
        self._running: dict[str, str] = {}
        self._width = 0

    def begin(self, nodeids: list[str]) -> None:
        """Learn what is to run."""
        sizes = Counter(map(unit_of, nodeids))
        for nodeid in nodeids:
            unit = unit_of(nodeid)
            self._weights[nodeid] = self._known.get(row_of(unit), UNKNOWN_S) / sizes[unit] + 0.001
        self._began = time.monotonic()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test begins."""
        self._running[nodeid] = nodeid.partition("::")[0].removeprefix("tests/")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the seconds, and name at once what failed; the reasons come at the end."""
        self._seen[unit_of(report.nodeid)] += report.duration
        if report.failed:
            self._failed += 1
            self._write(f"FAILED {report.nodeid}", stays=True)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """A test ended."""
        self._running.pop(nodeid, None)
        self._count += 1
        self._done += self._weights.get(nodeid, 0)
        now = time.monotonic()
        if now - self._told >= (LIVE_EVERY_S if self._is_live else LINE_EVERY_S):
            self._told = now
            self._write(self.line(now - self._began))

    def pytest_sessionfinish(self) -> None:
        """Take the live line away; keep the seconds if that is wanted."""
        self._write("")
        if self._measures:
            seen: dict[str, list[float]] = {}
            for unit, seconds in self._seen.items():
                seen.setdefault(row_of(unit), []).append(seconds)
            known = {**self._known, **{row: sum(units) / len(units) for row, units in seen.items()}}
            rows = sorted(((seconds, row) for row, seconds in known.items() if seconds >= 0.5), reverse=True)
            TABLE.write_text("".join(f"{seconds:.1f}\t{row}\n" for seconds, row in rows))

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self) -> Generator[None, Any, Any]:
        """The line stands for the dots of pytest."""
        category, _, word = yield
        return category, "", word if category in ("failed", "error") else ""

    def line(self, elapsed_s: float) -> str:
        """The line, for the time that went by since the first test."""
        whole = sum(self._weights.values())
        share = self._done / whole if whole else 1.0
        left = f", about {clock(elapsed_s * (1 - share) / share)} to go" if share > 0.02 else ""
        running = ", ".join(sorted(set(self._running.values())))
        return (
            f"{share:4.0%}, {self._count} of {len(self._weights)} tests, {self._failed} failed; "
            f"{clock(elapsed_s)} gone{left}; running: {running}"
        )

    def _write(self, line: str, *, stays: bool = False) -> None:
        if self._is_live:
            line = line if stays else line[: shutil.get_terminal_size().columns - 1]
            self._out.write("\r" + line.ljust(self._width) + ("\n" if stays else ""))
            self._width = 0 if stays else len(line)
        elif line:
            self._out.write(line + "\n")
        self._out.flush()


def clock(seconds: float) -> str:
    """Minutes and seconds, as a person reads them."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


# What helps, by folder; what holds for every test comes before.
HINTS = {
    "conformance": "Kafka has to pass the same test: add --target kafka. The docstring names the rule.",
    "controller_suite": "Kafka has to pass the same test: add --target kafka.",
    "house": "The message names the file and the rule. Tables, transcripts and lists are written anew by --rewrite.",
    "interop": "What the nodes logged last stands above. Kafka needs Java 17 and Maven: docs/testing.md, Real Kafka.",
    "scenarios": "If the new transcript is right, --rewrite keeps it: review the difference like code.",
    "simulation": "The command above has the seed again; with --timeline it prints what happened.",
    "spark": "Spark needs Java 17 or newer.",
    "twin": "docs/testing.md, Twins: how to have the script again, and the smallest one that differs.",
}


def next_steps(nodeid: str) -> str:
    """What somebody does whose test failed."""
    folder = nodeid.split("/")[1] if nodeid.count("/") > 1 else ""
    alone = f"Alone: pytest -n 0 {shlex.quote(nodeid)}\nAll that failed: pytest --last-failed"
    return f"{alone}\n{HINTS[folder]}" if folder in HINTS else alone


def deep(*values: Any) -> list[Any]:
    """Parameters that only the deep tier tries; a tuple is a set of them."""
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.deep) for value in values
    ]
