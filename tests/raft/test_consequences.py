"""What follows from an event is settled at its end: nobody is called back in the middle of what they do."""

from __future__ import annotations

import sys

import pytest
from scenario import Stage

from kraftcore.errors import InvariantError
from kraftcore.raft.election import Election
from kraftcore.raft.events import Tick
from kraftcore.raft.membership import Membership

FOLLOWS = ((Membership, "voters_changed"), (Membership, "committed"), (Election, "_count_votes"))
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

        def watched(self, *arguments):
            found = callers()
            # News of the high watermark end changes: the only one of them with something in between.
            assert found in (["_settle", "handle"], ["_tell_news", "_settle", "handle"])
            seen.add(name)
            original(self, *arguments)

        monkeypatch.setattr(owner, name, watched)

    for owner, name in FOLLOWS:
        watch(owner, name)
    stage = Stage()
    for command in commands:
        stage.run(command)
    assert seen == {name for _, name in FOLLOWS}


def test_what_never_comes_to_rest_is_an_error():
    stage = Stage()
    stage.run("add-nodes 3")
    state = stage.nodes[1].replica.state

    def again():
        state.then(again)

    state.then(again)
    with pytest.raises(InvariantError, match="does not come to rest"):
        stage.nodes[1].handle(Tick())
