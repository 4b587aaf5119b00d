"""The controller's decisions as text: each file of this folder is one rule, with the records and answers that keep it.

``pytest tests/controller/scenarios --rewrite`` writes the transcripts anew; read the difference like code.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from controller_scenario import Stage
from scenario import run_file

FILES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path, request):
    text = run_file(path, Stage)
    if request.config.getoption("--rewrite"):
        path.write_text(text)
        return
    assert path.read_text() == text


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario_names_its_rule_and_source(path):
    head = path.read_text().split("\n\n")[0]
    assert head.startswith("# ")
    assert "Source: " in head
