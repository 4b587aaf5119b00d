"""docs/controller.md says of how much one quorum carries what the benchmarks print."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from project import ROOT

from kraftcore.config import NodeConfig

TITLE = "\n## How much one quorum carries\n"
PAGE = (ROOT / "docs" / "controller.md").read_text().split(TITLE)[1].split("\n## ")[0]
DECISIONS, _, REST = PAGE.partition("## Observers")
OBSERVERS, _, WHOLE = REST.partition("## A whole controller")


def table(text):
    """Rows of a page's table, cells as texts, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert set(lines[1]) <= set("|-")
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def number(text):
    return float(re.sub("[^0-9.]", "", text))


def figure(name):
    """The figure of a row of the table of decisions, microseconds."""
    (cell,) = (cells[1] for cells in table(DECISIONS) if cells[2].endswith(f"row `{name}`"))
    return number(cell)


def bench(name, *arguments):
    command = [sys.executable, "-m", f"bench.{name}", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def test_every_row_of_decisions_is_one_of_the_benchmarks():
    done = bench("decisions", "--partitions", 1200, "--acls", 100, "--rounds", 1, "--json")
    known = {json.loads(line)["case"] for line in done.stdout.splitlines()}
    named = [re.search("row `(.*)`", cells[2])[1] for cells in table(DECISIONS)]
    assert len(named) == 8
    assert set(named) <= known


def said(pattern):
    """The numbers that a sentence of the page names."""
    return [number(each) for each in re.search(pattern, " ".join(PAGE.split())).groups()]


def test_what_follows_from_decisions():
    (searched_ms,) = said(r"takes (\d+) ms for a million")
    assert searched_ms == pytest.approx(figure("find a broker's partitions") * 1e6 / 1e3)
    brokers, percent = said(r"every two seconds by default, so the decisions of ([\d,]+) brokers take (\d+) percent")
    assert percent == pytest.approx(brokers / 2 * figure("heartbeat") / 1e6 * 100, abs=0.5)
    fenced, seconds = said(r"([\d,]+) partitions of it take ([\d.]+) s")
    assert seconds == pytest.approx(fenced * figure("fence") / 1e6, abs=0.05)


def test_the_simulated_observers_are_as_the_page_says():
    rows = table(OBSERVERS)
    assert len(rows) == 7
    for cells in rows:
        count, rate, linger, busy, fetches = map(number, cells[:5])
        waits = [number(each) for cell in cells[5:] for each in cell.split(", p99 ") if each]
        options = {"--observers": int(count), "--rate": rate, "--linger": int(linger), "--seconds": 1}
        done = bench("observers", *(text for option in options.items() for text in option), "--json")
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert round(100 * found["busy"]) == busy
        assert found["fetches"] == fetches
        names = ("commit_p50", "commit_p99", "heard_p50", "heard_p99")
        assert [found[name] for name in names if name in found] == waits


def test_what_follows_from_observers():
    """A leader is not busy all the time with as many as the page says, and is with more."""
    rows = table(OBSERVERS)
    busy = {tuple(map(number, cells[:3])): number(cells[3]) for cells in rows}
    assert busy[250, 100, 10] < busy[1000, 100, 10] == 100
    assert busy[2000, 10, 100] < 100
    assert busy[10_000, 0, 10] < 100
    claimed = [number(each) for each in re.findall(r"^\* \*\*([\d,]+) observers\*\*", OBSERVERS, re.MULTILINE)]
    assert claimed == [250, 2000, 10_000]
    at_rest = [map(number, (cells[0], cells[4])) for cells in rows if cells[1] == "0"]
    assert all(fetches <= 2 * count for count, fetches in at_rest)


def test_settings_are_as_the_page_says(monkeypatch):
    assert said(r"`kraftcore.observer.linger.ms` \((\d+)\)") == [NodeConfig.observer_linger_ms]
    assert said(r"`max.connections` says \(([\d,]+)\)") == [NodeConfig.max_connections]
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT)])
    from bench.observers import Times

    times = Times()
    assert said(r"\((\d+) us to take it in, (\d+) to answer it\)") == [times.fetch_us, times.answer_us]
    assert said(r"each topic \((\d+) us\)") == [times.topic_us]
    assert said(r"some (\d+) us of the leader's") == [times.fetch_us + times.answer_us]


def results():
    """Our figure and its note, by case, of the run that the page names."""
    path = ROOT / re.search(r"`(bench/results/\S+-controller\.jsonl)`", WHOLE)[1]
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {row["case"]: (row["ours"], row["note"].partition("; peer:")[0]) for row in rows if "ours" in row}


def test_the_whole_controllers_figures_are_those_of_the_run():
    known = results()
    rows = table(WHOLE)
    assert len(rows) == 9
    for what, said_there, case in rows:
        figure, note = known[case.strip("`")]
        assert number(re.match(r"[\d.,]+", said_there)[0]) == float(
            f"{figure:.4g}" if figure > 1000 else f"{figure:.3g}"
        )
        for count in re.findall(r"([\d,]+) partitions", what):
            assert count.replace(",", "") in note


def test_what_follows_from_the_whole_controllers_figures():
    known = results()
    brokers, every_s = said(r"heartbeats of ([\d,]+) brokers, one each every two seconds")[0], 2
    assert 0.95 * known["heartbeats"][0] * every_s < brokers < known["heartbeats"][0] * every_s
    partitions, size, before = said(r"([\d,]+) partitions take (\d+) bytes each beyond the (\d+) MiB of the process")
    total, note = known["load-1m-memory"]
    assert f"before it {before:.0f} MiB" in note
    assert size == pytest.approx((total - before) * 2**20 / partitions, rel=0.03)


def test_nothing_to_measure_is_refused():
    done = bench("observers", "--observers", 0)
    assert done.returncode == 2
    assert "at least 1" in done.stderr
