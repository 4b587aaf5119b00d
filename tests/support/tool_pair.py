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
