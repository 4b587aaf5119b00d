"""The suite's own run: which tests a tier has, in which order, and what is told meanwhile."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
import suite_run
from project import ROOT


class Item:
    """A collected test."""

    def __init__(self, nodeid: str, is_deep: bool) -> None:
        self.nodeid, self.is_deep = nodeid, is_deep

    def get_closest_marker(self, name: str) -> object:
        return name if self.is_deep else None


def items(*names: str) -> list[Any]:
    return [Item(nodeid=name.removesuffix(" deep"), is_deep=name.endswith(" deep")) for name in names]


def config(args: list[str], *, deep: bool = False, worker: bool = False, measure: bool = False) -> Any:
    left_out: list[str] = []
    hook = SimpleNamespace(pytest_deselected=lambda items: left_out.extend(item.nodeid for item in items))
    found = SimpleNamespace(args=args, hook=hook, getoption={"deep": deep, "measure": measure}.__getitem__)
    if worker:
        found.workerinput = {}
    return found, left_out


@pytest.mark.parametrize(
    ("args", "deep", "kept"),
    [
        (["tests"], False, ["tests/a/test_a.py::one"]),
        (["tests"], True, ["tests/a/test_a.py::two"]),
        (["tests/a/test_a.py"], False, ["tests/a/test_a.py::one", "tests/a/test_a.py::two"]),
        (["tests/a/test_a.py"], True, ["tests/a/test_a.py::two"]),
    ],
)
def test_a_tier_has_its_tests_and_a_named_file_has_all(args, deep, kept):
    given = items("tests/a/test_a.py::one", "tests/a/test_a.py::two deep")
    all_of_them = {item.nodeid for item in given}
    asked, left_out = config(args, deep=deep)
    suite_run.choose_tier(asked, given)
    assert [item.nodeid for item in given] == kept
    assert set(left_out) == all_of_them - set(kept)


def test_the_deep_tier_reads_only_files_with_deep_tests(tmp_path):
    (tmp_path / "test_a.py").write_text("def test_one(): ...\n")
    (tmp_path / "test_b.py").write_text("@pytest.mark.deep\ndef test_one(): ...\n")
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "conftest.py").write_text("item.add_marker(pytest.mark.deep)\n")
    (tmp_path / "all" / "test_c.py").write_text("def test_one(): ...\n")
    files = sorted(tmp_path.rglob("*.py"))
    read = [file.name for file in files if not suite_run.is_left_out(file, config(["tests"], deep=True)[0])]
    assert read == ["conftest.py", "test_c.py", "test_b.py"]
    assert not any(suite_run.is_left_out(file, config(["tests"])[0]) for file in files)
    assert not any(suite_run.is_left_out(file, config([str(file)], deep=True)[0]) for file in files)


def test_the_longest_files_come_first_and_stay_whole(monkeypatch, tmp_path):
    table = tmp_path / "seconds.tsv"
    table.write_text("30.0\ttests/b.py\n0.9\ttests/a.py\n")
    monkeypatch.setattr(suite_run, "TABLE", table)
    given = items("tests/a.py::one", "tests/new.py::one", "tests/b.py::one", "tests/a.py::two", "tests/b.py::two")
    suite_run.choose_tier(config(["tests"], worker=True)[0], given)
    order = [item.nodeid for item in given]
    assert order == ["tests/b.py::one", "tests/b.py::two", "tests/new.py::one", "tests/a.py::one", "tests/a.py::two"]


def test_a_seed_that_is_new_counts_as_those_before(monkeypatch, tmp_path):
    table = tmp_path / "seconds.tsv"
    table.write_text("30.0\ttests/simulation/test_seeds.py::test_fresh_seeds\n3.0\ttests/a.py\n")
    monkeypatch.setattr(suite_run, "TABLE", table)
    given = items("tests/a.py::one", "tests/simulation/test_seeds.py::test_fresh_seeds[4711]")
    suite_run.choose_tier(config(["tests"], worker=True)[0], given)
    assert given[0].nodeid.endswith("[4711]")
    progress = suite_run.Progress(config(["tests"], measure=True)[0], io.StringIO())
    for number, seconds in ((1, 10.0), (2, 20.0)):
        nodeid = f"tests/simulation/test_seeds.py::test_fresh_seeds[{number}]"
        progress.pytest_runtest_logreport(SimpleNamespace(nodeid=nodeid, duration=seconds, failed=False))
    progress.pytest_sessionfinish()
    assert table.read_text() == "15.0\ttests/simulation/test_seeds.py::test_fresh_seeds\n3.0\ttests/a.py\n"


def test_named_files_run_in_one_process_and_folders_in_several():
    assert suite_run.spread_over(config(["tests/a.py", "tests/b.py::one"])[0]) == 0
    assert suite_run.spread_over(config(["tests"])[0]) >= 2
    assert suite_run.spread_over(config(["tests/core", "tests/b.py"])[0]) >= 2


def test_the_line_tells_how_far_the_run_is_and_names_what_failed_at_once(monkeypatch, tmp_path):
    table = tmp_path / "seconds.tsv"
    table.write_text("10.0\ttests/a.py\n30.0\ttests/b.py\n")
    monkeypatch.setattr(suite_run, "TABLE", table)
    out = io.StringIO()
    progress = suite_run.Progress(config(["tests"])[0], out)
    progress.begin(["tests/a.py::one", "tests/a.py::two", "tests/b.py::one"])
    progress.pytest_runtest_logreport(SimpleNamespace(nodeid="tests/a.py::one", duration=4.0, failed=True))
    for nodeid in ("tests/a.py::one", "tests/a.py::two"):
        progress.pytest_runtest_logfinish(nodeid)
    progress.pytest_runtest_logstart("tests/b.py::one")
    assert out.getvalue() == "FAILED tests/a.py::one\n"
    line = progress.line(65.0)
    assert line == " 25%, 2 of 3 tests, 1 failed; 1:05 gone, about 3:14 to go; running: b.py"


def test_whoever_fails_is_told_how_to_go_on():
    told = suite_run.next_steps("tests/simulation/test_seeds.py::test_fixed_seeds[1]")
    assert "pytest -n 0 'tests/simulation/test_seeds.py::test_fixed_seeds[1]'" in told
    assert suite_run.HINTS["simulation"] in told


def test_what_the_run_knows_of_files_is_true():
    known = {unit.partition("::")[0] for unit in suite_run.known_seconds()}
    named = [*known, *suite_run.APART, suite_run.TOGETHER, *suite_run.WITHOUT_SESSION]
    assert [name for name in named if not (ROOT / name).exists()] == []
    assert [folder for folder in suite_run.HINTS if not (ROOT / "tests" / folder).is_dir()] == []
