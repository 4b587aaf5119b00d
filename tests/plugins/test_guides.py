"""The programs in the guides run, and say what the guides say of them."""

from __future__ import annotations

import re

import pytest
from project import ROOT

SAYS = {
    "recipes": ["red 1 {'colour': 'red'}", "{'resize': 'cat.jpg'} 1", "green", "True green"],
    "metrics": ["""['kafka_server_raftmetrics_current_state{current_state="leader"} 1.0']"""],
    "plugins": ["role leader", "1 records committed", "hello back"],
}


@pytest.mark.parametrize("guide", SAYS)
def test_the_programs_run(guide, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / f"{guide}.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, f"{guide}.md", "exec"), {"__name__": "guide"})
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if line in SAYS[guide]] == SAYS[guide]
