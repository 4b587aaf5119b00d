"""The README's examples run, in order, as a reader would run them."""

from __future__ import annotations

import re

from project import ROOT


def test_the_examples_run(tmp_path, monkeypatch, capsys):
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) >= 4
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    said = capsys.readouterr().out
    assert re.match(r"the counter is 1 at offset \d+\nand now 2\nafter the power cut 2\n", said)
    assert "0 [b'first', b'second']" in said
    assert "['offset', 'timestamp', 'value']" in said
    assert "topic orders " in said
    assert said.endswith("7 me\n")
