"""One command run by Kafka's tool and by ours, and what both printed held against each other."""

from __future__ import annotations

import re

import pytest
from kafka_lab import ToolResult

from kraftcore.cli import main


class Ours:
    """Runs our command in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> ToolResult:
        self._capsys.readouterr()
        status = main([str(each) for each in arguments])
        return ToolResult(status, *self._capsys.readouterr())


def steady(text: str) -> str:
    """Without what passes by while one looks: offsets, times, and the columns they widen."""
    text = re.sub(r"(HighWatermark|MaxFollowerLag|MaxFollowerLagTimeMs|Epoch): +-?\d+", r"\1: N", text)
    text = re.sub(r"\d+ ms ago *", "T", text)
    text = re.sub(r"\d{13} *", "T", text)
    return re.sub(r"\t\d+ *(?=\t)", "\tN", text)


def same(theirs: ToolResult, mine: ToolResult) -> None:
    assert steady(mine.out) == steady(theirs.out)
    assert mine.error_line == theirs.error_line
    assert mine.status == theirs.status


# What is left out of a comparison: stack traces, and the line after which they begin.
_TRACE = re.compile(r"\s+at .*|Caused by: .*|\s+Suppressed: .*|\s*\.\.\. \d+ more|[\w.$]+(Exception|Error)(: .*)?")
_OURS_ALONE = ("Try 'kraftcore ", "Last failure: ")


def said(text: str) -> list[str]:
    """Lines of an output in the order of the alphabet, without stack traces: Kafka's order is that of hash tables."""
    kept = (line for line in text.splitlines() if not _TRACE.fullmatch(line) and not line.startswith(_OURS_ALONE))
    return sorted(line.strip() for line in kept if line.strip())


def alike(theirs: ToolResult, mine: ToolResult) -> None:
    """The same lines, the same first line of stderr, nothing on stderr that theirs has not, the same exit status."""
    assert said(mine.out) == said(theirs.out), f"theirs: {said(theirs.out)}\nmine: {said(mine.out)}"
    assert mine.error_line == theirs.error_line
    assert all(line in theirs.err for line in mine.err.splitlines() if not line.startswith(_OURS_ALONE))
    assert mine.status == theirs.status
