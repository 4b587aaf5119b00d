"""The page of figures is what ``python -m bench report`` writes from the rows that are kept."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys

import pytest
from project import ROOT

TREE = ("__init__.py", "__main__.py", "cli.py", "figures.py", "harness.py", "inputs.py", "paths.py", "report.py")


def report(folder):
    done = subprocess.run(
        [sys.executable, "-m", "bench", "report"], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / "bench"


def tree(folder):
    (folder / "bench").mkdir()
    for name in TREE:
        shutil.copy(ROOT / "bench" / name, folder / "bench")
    return folder / "bench" / "results"


def texts(svg):
    """What a picture says: its labels and values, not where fonts put them."""
    return sorted(re.findall(r">([^<>\s][^<>]*)<|aria-label=\"([^\"]*)\"", svg))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    shutil.copytree(ROOT / "bench" / "results", tree(folder))
    return report(folder)


def test_the_page_is_what_the_command_writes(made):
    kept = (ROOT / "bench" / "figures.md").read_text()
    assert (made / "figures.md").read_text() == kept, "run python -m bench report"
    here, there = ({path.name for path in (of / "bench" / "pictures").iterdir()} for of in (ROOT, made.parent))
    assert here == there == set(re.findall(r"\(pictures/(\S+\.svg)\)", kept))
    for name in here:
        picture = (ROOT / "bench" / "pictures" / name).read_text()
        assert texts((made / "pictures" / name).read_text()) == texts(picture), f"{name}: run python -m bench report"


def test_every_file_of_results_is_linked_and_every_page_is_short():
    kept = (ROOT / "bench" / "figures.md").read_text()
    names = {path.name for path in (ROOT / "bench" / "results").iterdir()}
    assert names == set(re.findall(r"\(results/([^)]+)\)", kept))
    assert len((ROOT / "bench" / "README.md").read_text().splitlines()) <= 120


def test_a_table_says_where_it_comes_from_and_how_many_times_as_good_we_are(tmp_path):
    results = tree(tmp_path)
    results.mkdir()
    (tmp_path / "bench" / "pictures").mkdir()
    (tmp_path / "bench" / "pictures" / "old.svg").write_text("of a run that is no longer kept")
    one = {"case": "commit-1", "unit": "commits/s", "ours": 1500.0, "better": "higher"}
    rows = [
        {
            "environment": {
                "time": "2026-01-02T03:04:05+00:00",
                "machine": "2 x Z80",
                "commit": "abc1234",
                "effort": "quick",
            }
        },
        one | {"peer_name": "swift", "peer": 1000.0, "ratio": 1.5},
        one | {"peer_name": "absent", "peer": None, "ratio": None},
    ]
    (results / "2026-01-02-nodes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (results / "2026-01-01-nodes.jsonl").write_text(json.dumps(rows[1]) + "\n")
    bench = report(tmp_path)
    first, second = (bench / "figures.md").read_text().split("\n### ")[1:]
    assert first.startswith("2026-01-02 03:04:05 UTC")
    assert "Machine: 2 x Z80. Effort: quick. Commit: abc1234. Rows: [2026-01-02-nodes.jsonl]" in first
    assert (
        "| case | unit | kraftcore | swift |\n|---|---|---|---|\n| `commit-1` | commits/s | 1,500 | 1,000 (1.5x) |"
        in first
    )
    assert "Machine: not in the rows. Effort: full. Commit: not in the rows." in second
    assert {path.name for path in (bench / "pictures").iterdir()} == {
        "2026-01-02-nodes-0304.svg",
        "2026-01-01-nodes.svg",
    }
