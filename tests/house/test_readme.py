"""The examples of the README and of docs/parts.md run, in order, as a reader would run them; the README is short."""

from __future__ import annotations

import json
import re

from project import ROOT


def test_the_examples_run(tmp_path, monkeypatch, capsys):
    text = "".join((ROOT / page).read_text() for page in ("README.md", "docs/parts.md"))
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) >= 4
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    said = capsys.readouterr().out
    assert re.match(r"the counter is 1 at offset \d+\nand now 2\n", said)
    assert "0 [b'first', b'second']" in said
    assert "['offset', 'timestamp', 'value']" in said
    assert "topic orders " in said
    assert said.endswith("7 me\n")


def test_it_can_be_read_at_one_sitting():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_its_figures_are_those_of_the_run_it_names():
    text = (ROOT / "README.md").read_text()
    file = re.search(r"`(bench/results/\S+)`", text)[1]
    found = {}
    for row in map(json.loads, (ROOT / file).read_text().splitlines()):
        if "case" in row:
            found[row["case"], "kraftcore"] = row["ours"]
            found[row["case"], row["peer_name"]] = row["peer"]
    cases = ["commit-64", "commit-1", "commit-batch1000", "failover"]
    names = ["kraftcore", "hashicorp-wal", "etcd-embed-inproc", "openraft", "kafka-raft"]
    table = [line.strip("| ").split("|")[1:] for line in text.splitlines() if re.match(r"\| [^|]+\| [\d,]+ \|", line)]
    assert len(table) == len(cases)
    for case, cells in zip(cases, table, strict=True):
        for name, cell in zip(names, cells + [""] * (len(names) - len(cells)), strict=True):
            if cell.strip():
                shown, measured = float(cell.replace(",", "")), found[case, name]
                assert abs(shown - measured) <= measured / 50, (case, name, shown, measured)
