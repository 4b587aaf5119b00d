"""What follows from an event is settled at its end: nobody is called back in the middle of what they do."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from scenario import Stage

from kraftcore.errors import InvariantError
from kraftcore.raft import barriers, delayed_fetches, election, membership, replica, replication, succession
from kraftcore.raft.events import Tick
from kraftcore.raft.state import Step

STEPS = (
    (delayed_fetches, "take"),
    (delayed_fetches, "committed"),
    (membership, "committed"),
    (succession, "resign_if_removed"),
    (succession, "voters_changed"),
    (replication, "voters_changed"),
    (barriers, "voters_changed"),
    (election, "count_votes"),
)
RUNS = {
    "a sole voter elects itself": ("add-nodes 1", "campaign 1", "stabilize"),
    "an election": ("add-nodes 3", "campaign 1", "stabilize", "append 1 a", "stabilize"),
    "a leader removes itself": (
        *("add-nodes 3", "campaign 1", "stabilize", "remove-voter 1 1", "stabilize"),
        "pass 3000",
    ),
    "two voters become one": ("add-nodes 2", "campaign 1", "stabilize", "remove-voter 1 2", "stabilize", "append 1 a"),
}


def callers():
    """The functions of the consensus that are being carried out, the innermost first."""
    frame = sys._getframe(2)
    names = []
    while frame is not None:
        code = frame.f_code
        if "/kraftcore/raft/" in code.co_filename:
            names.append(code.co_name)
        frame = frame.f_back
    return names


@pytest.mark.parametrize("commands", RUNS.values(), ids=RUNS)
def test_nobody_is_called_back_in_the_middle_of_what_they_do(commands, monkeypatch):
    seen = set()

    def watch(owner, name):
        original = getattr(owner, name)

        def watched(*arguments):
            assert callers() == ["_settle", "handle"]
            seen.add((owner, name))
            original(*arguments)

        monkeypatch.setattr(owner, name, watched)

    for owner, name in STEPS:
        watch(owner, name)
    stage = Stage()
    for command in commands:
        stage.run(command)
    assert seen == (set(STEPS) if len(stage.nodes) > 1 else set(STEPS) - {(delayed_fetches, "take")})


def test_what_never_comes_to_rest_is_an_error(monkeypatch):
    monkeypatch.setattr(election, "count_votes", lambda state, role: state.then(Step.VOTES_CHANGED, role))
    stage = Stage()
    stage.run("add-nodes 3")
    state = stage.nodes[1].replica.state
    state.then(Step.VOTES_CHANGED, state.role)
    with pytest.raises(InvariantError, match="does not come to rest"):
        stage.nodes[1].handle(Tick())


def test_a_part_imports_only_parts_that_stand_before_it():
    """As the text of ``replica`` promises; nothing but an import lets one part call another."""
    parts = re.findall(r"^    ([a-z_]+) {2,}\S", replica.__doc__, re.MULTILINE)
    folder = Path(replica.__file__).parent
    assert {"state", "epochs", "succession", "replication", "membership", "election"} <= set(parts)
    for at, part in enumerate(parts):
        text = (folder / f"{part}.py").read_text()
        named = set(re.findall(r"from kraftcore\.raft\.(\w+) import", text))
        for line in re.findall(r"from kraftcore\.raft import (.*)", text):
            named |= set(line.split(", "))
        assert named & set(parts) <= set(parts[:at]), part
    tables = (folder / "replica.py").read_text()
    assert set(re.findall(r"\b(\w+)\.on_\w+", tables)) - {"self"} <= {*parts, "describe_quorum"}
