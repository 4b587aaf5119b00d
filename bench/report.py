"""Rows, table, JSON lines, and what there is to say about the machine."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from bench import inputs
from bench.harness import OURS, Effort, Outcome, Timing

PACKAGES = (
    "kraftcore",
    "aiokafka",
    "confluent-kafka",
    "kafka-python",
    "kio",
    "crc32c",
    "google-crc32c",
    "cramjam",
    "pyarrow",
    "pyspark",
    "pytest-benchmark",
)


def rows(outcome: Outcome) -> list[dict[str, Any]]:
    """One row for each peer of a case.

    ``peer`` and ``ratio`` are None for a peer that was not measured, ``ours`` and ``ratio`` if we were not. Without any
    peer there is one row, whose ``peer_name`` is None.
    """
    ours = outcome.timings.get(OURS)
    peers = [name for name in [*outcome.timings, *outcome.missing] if name != OURS]
    return [_row(outcome, ours, name) for name in peers] or [_row(outcome, ours, None)]


def _row(outcome: Outcome, ours: Timing | None, name: str | None) -> dict[str, Any]:
    peer = outcome.timings.get(name or "")
    better = "higher" if outcome.higher_is_better else "lower"

    def figure(timing: Timing | None, kind: Literal["best", "median"]) -> float | None:
        return None if timing is None else _rounded(outcome.figure(timing.headline(kind)))

    def ratio(kind: Literal["best", "median"]) -> float | None:
        return None if ours is None or peer is None else _rounded(peer.headline(kind) / ours.headline(kind))

    return {
        "case": outcome.name,
        "ours": figure(ours, outcome.headline),
        "unit": outcome.unit,
        "peer_name": name,
        "peer": figure(peer, outcome.headline),
        "ratio": ratio(outcome.headline),
        "ours_median": figure(ours, "median"),
        "peer_median": figure(peer, "median"),
        "ratio_median": ratio("median"),
        "better": better,
        "rounds": ours and len(ours.seconds),
        "peer_rounds": peer and len(peer.seconds),
        "calls": ours and ours.calls,
        "peer_calls": peer and peer.calls,
        "digest": outcome.digest,
        "note": outcome.missing.get(name or "") or _notes(outcome, ours, peer),
        **({"details": ours.details} if ours and ours.details else {}),
    }


def _notes(outcome: Outcome, ours: Timing | None, peer: Timing | None) -> str:
    if outcome.digest:  # both did the same work: what is to be said is about the figure of either
        return "; ".join(timing.note for timing in (ours, peer) if timing and timing.note)
    named = (("ours", ours), ("peer", peer))
    return "; ".join(f"{name}: {timing.note}" for name, timing in named if timing and timing.note)


def _rounded(figure: float) -> float:
    return float(f"{figure:.4g}")


def environment(folder: Path, effort: Effort) -> dict[str, Any]:
    """Machine, versions, load and seed of this run."""
    return {
        "effort": effort.name,
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": f"{os.cpu_count()} x {_processor()}, {_memory()}",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": _first_line(["java", "-version"]),
        "packages": {name: _version(name) for name in PACKAGES},
        "measured": _measured(),
        "commit": _commit(),
        "files_in": _filesystem(folder),
        "load": [round(load, 2) for load in os.getloadavg()],
        "cpu_pressure": _pressure("cpu"),
        "io_pressure": _pressure("io"),
        "seed": inputs.SEED,
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _memory() -> str:
    try:
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / (1 << 30):.0f} GiB"
    except (ValueError, OSError):
        return "memory unknown"


def _filesystem(folder: Path) -> str:
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "file system unknown"
    path = str(folder.resolve())
    inside = [mount for mount in mounts if (path + "/").startswith(mount[1].rstrip("/") + "/")]
    return max(inside, key=lambda mount: len(mount[1]))[2] if inside else "file system unknown"


def _measured() -> str:
    import kraftcore

    # Not the path: results are kept and compared across machines.
    return "installed package" if "site-packages" in Path(kraftcore.__file__).parts else "editable install"


def _commit() -> str | None:
    """The commit of an editable install, with a plus if files differ from it; None for an installed package."""
    import kraftcore

    if _measured() != "editable install":
        return None
    describe = ["git", "-C", str(Path(kraftcore.__file__).parent), "describe", "--always", "--exclude=*", "--dirty=+"]
    try:
        done = subprocess.run(describe, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _first_line(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return (done.stderr + done.stdout).strip().splitlines()[0]


def _pressure(kind: str) -> float | None:
    """Share of the last 10 s in which some task waited for the resource, in percent."""
    try:
        return float(Path(f"/proc/pressure/{kind}").read_text().split("avg10=")[1].split()[0])
    except (OSError, IndexError):
        return None


def heading(facts: dict[str, Any]) -> str:
    """Describe the run above the table."""
    packages = ", ".join(f"{name} {number}" for name, number in facts["packages"].items() if number)
    return (
        f"{facts['time']}  {facts['machine']}, {facts['system']}\n"
        f"Python {facts['python']}, {facts['java'] or 'no Java'}; {packages}\n"
        f"measured: {facts['measured']}; files in {facts['files_in']}\n"
        f"load {' '.join(map(str, facts['load']))}, CPU pressure {facts['cpu_pressure']} %, seed {facts['seed']}\n"
        "Figures are the best round of each (failover, live-latency, controller: the median), contenders taking turns; "
        "ratio above 1: kraftcore is better.\n"
    )


def footer(facts: dict[str, Any]) -> str:
    """Say below the table how long it took, and what the peers' figures stand for."""
    settings = "".join(f"\n{name}: {text}" for name, text in facts.get("settings", {}).items())
    limits = f"\n{facts['limits']}" if "limits" in facts else ""
    return f"\n{facts['seconds']} s; load after {' '.join(map(str, facts['load_after']))}{limits}{settings}"


HEAD = f"{'case':<30} {'ours':>9} {'unit':<12} {'peer':<30} {'peer':>9} {'ratio':>8} {'(median)':>9}"


def line(row: dict[str, Any]) -> str:
    """Format one row of the table."""
    ours = "missing" if row["ours"] is None else _short(row["ours"])
    start = f"{row['case']:<30} {ours:>9} {row['unit']:<12} {row['peer_name'] or 'none':<30}"
    if row["peer"] is None:
        return f"{start} {'missing':>9}          {row['note']}" if row["peer_name"] else f"{start} {row['note']}"
    ratios = ["" if row[name] is None else _short(row[name]) for name in ("ratio", "ratio_median")]
    more = f"  {row['note']}" if "details" in row else ""
    return f"{start} {_short(row['peer']):>9} {ratios[0]:>8} {ratios[1]:>9}{more}"


def _short(figure: float) -> str:
    if figure >= 1000:
        return f"{figure:,.0f}"
    return f"{figure:.3g}" if figure >= 0.01 else f"{figure:.2g}"


def save(path: Path, facts: dict[str, Any], lines: Iterable[dict[str, Any]], before: str = "") -> None:
    """Write the run as JSON lines: the environment first, then the rows; all behind what earlier runs left."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(entry) + "\n" for entry in [{"environment": facts}, *lines])
    part = path.with_name(f"{path.name}.part")
    part.write_text(before + text)
    part.replace(path)


def saved(path: Path, effort: Effort) -> tuple[str, list[dict[str, Any]]]:
    """What earlier runs left in a file, and its rows; nothing if there is no file.

    Raises:
        ValueError: the file is no saved run, or one of another effort.
    """
    try:
        text = path.read_text()
    except FileNotFoundError:
        return "", []
    try:
        entries = [json.loads(line) for line in text.splitlines()]
        rows = [entry for entry in entries if "environment" not in entry]
        efforts = {entry["environment"].get("effort") for entry in entries if "environment" in entry}
        known = all({"case", "ours"} <= row.keys() for row in rows)
    except (ValueError, TypeError, AttributeError):
        known = False
    if not known:
        raise ValueError(f"{path} is no saved run: take it away, or name another file")
    if efforts - {effort.name}:
        raise ValueError(f"{path} was measured with another effort ({', '.join(map(str, efforts))}): take another file")
    return text, rows


class Status:
    """One line on stderr that is rewritten while a terminal looks on."""

    def __init__(self) -> None:
        self.shown = sys.stderr.isatty()

    def __call__(self, text: str) -> None:
        if self.shown:
            sys.stderr.write(f"\r\x1b[K{text[:118]}")
            sys.stderr.flush()

    def clear(self) -> None:
        if self.shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
