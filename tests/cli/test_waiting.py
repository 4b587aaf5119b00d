"""What commands say while they wait for a cluster, in virtual time."""

from __future__ import annotations

import re

import pytest
import trio
import trio.testing
from project import ROOT
from scripted_nodes import ScriptedTransport

from kraftcore import admin
from kraftcore.admin import Timing
from kraftcore.cli import waiting
from kraftcore.errors import UnreachableError


class Known:
    """Something that is waited for."""

    last_failure = "nobody is there"
    survey = None


def run(work: object) -> None:
    trio.run(work, clock=trio.testing.MockClock(autojump_threshold=0))


def test_after_two_seconds_a_line_says_what_is_waited_for_and_what_failed(capsys: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        async with (
            waiting.telling() as watch,
            admin.connect(
                bootstrap_servers=["h:1"], transport=ScriptedTransport([]), timing=Timing(30_000, 1000), watch=watch
            ) as client,
        ):
            with trio.move_on_after(1.9):
                await client.list_topics()
            assert capsys.readouterr().err == ""
            with pytest.raises(UnreachableError):
                await client.list_topics()

    run(main)
    line, *findings = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"still waiting for the answer to listTopics: h:1: .+", line)
    assert re.fullmatch(r"h:1 does not answer, since \d\d:\d\d:\d\d UTC or longer: nobody listens there", findings[0])
    assert findings[1:] == [
        "none of the nodes that were asked answers, so nobody says who else there is",
        "start one of these nodes (kraftcore server start FILE), or name others",
    ]


def test_news_is_told_every_ten_seconds_and_nothing_twice(capsys: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        known = Known()
        async with waiting.telling() as watch:
            with watch("it", known):
                for number in range(100):
                    known.last_failure = f"try {number // 40}"
                    await trio.sleep(1)
            with watch("it", known):
                await trio.sleep(20)

    run(main)
    assert capsys.readouterr().err.splitlines() == [f"still waiting for it: try {number}" for number in range(3)]


def test_a_terminal_has_one_line_that_goes_when_the_wait_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(waiting, "is_terminal", lambda _: True)
    monkeypatch.setenv("COLUMNS", "30")

    async def main() -> None:
        async with waiting.telling() as watch:
            with watch("it", Known()):
                await trio.sleep(3.1)
            first, *lines, last = capsys.readouterr().err.split("\r")  # click leaves the rest out where no terminal is
            assert (first, last) == ("", "")
            assert lines[0] == "2 s, still waiting for it: no"
            assert max(map(len, lines)) < 30
            with watch("it", Known()):
                await trio.sleep(1)

    run(main)
    assert capsys.readouterr().err == ""


def test_all_commands_that_talk_to_a_cluster_say_what_they_wait_for() -> None:
    opened = 0
    for path in (ROOT / "kraftcore" / "cli").glob("*.py"):
        for found in re.finditer(r"(?:admin\.connect|open_observer)\((.*?)\) as \w+", path.read_text(), re.DOTALL):
            opened += 1
            assert "watch=watch" in found[1], path
    assert opened >= 3
