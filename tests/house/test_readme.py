"""The examples of the README and of docs/parts.md run, in order, as a reader would run them; the README is short."""

from __future__ import annotations

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
