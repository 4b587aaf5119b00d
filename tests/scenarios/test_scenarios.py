"""Protocol rules as text: each file of this folder is one rule, with the exact transcript of how it is kept.

``pytest tests/scenarios --rewrite`` writes the transcripts anew; read the difference like code.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from project import ROOT
from scenario import check_head, check_transcript, run_file

from kraftcore.simulation.planted import FAULTS

FILES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path, request):
    check_transcript(path, request.config.getoption("--rewrite"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario_names_its_rule_and_source(path):
    check_head(path)


def test_the_documentation_says_which_scenario_shows_what():
    text = (ROOT / "docs" / "consensus.md").read_text().split("## KIP-853 and the classics")[1]
    named = {name for line in text.split("\n") if line.startswith("| ") for name in re.findall(r"`(\w+)`", line)}
    assert named == {path.stem for path in FILES}


def test_a_mistake_that_hardly_any_seed_meets_breaks_its_scenario():
    (path,) = (each for each in FILES if each.stem == "removed_voter_is_needed")
    with FAULTS["removed-voter-sits"].planted():
        assert run_file(path) != path.read_text()
