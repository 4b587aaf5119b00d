"""The controller's decisions as text: each file of this folder is one rule, with the records and answers that keep it.

``pytest tests/controller/scenarios --rewrite`` writes the transcripts anew; read the difference like code.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from controller_scenario import Stage
from scenario import check_head, check_transcript

FILES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path, request):
    check_transcript(path, request.config.getoption("--rewrite"), Stage)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario_names_its_rule_and_source(path):
    check_head(path)
