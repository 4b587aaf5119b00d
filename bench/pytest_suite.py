"""The in-process contenders of a case as pytest-benchmark tests, one group a case."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from bench.harness import OURS, Case, Missing, Sum, calibrate


def parameters(cases: Iterable[Case | Sum]) -> list[Any]:
    """Case and contender of each test. Java runs in its own process, which pytest-benchmark cannot time."""
    return [
        pytest.param(case, name, id=f"{case.name}/{name}".replace(" ", "-"))
        for case in cases
        if isinstance(case, Case)
        for name in case.contenders
        if not name.startswith("Java")
    ]


class OperationClock:
    """Clock of the fixture: operations time themselves, so that making and deleting files stays out of the figure."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


CLOCK = OperationClock()


def run(benchmark: Any, case: Case, name: str) -> None:
    """Time one contender, after its result was found equal to ours. Times are seconds for one call."""
    benchmark.group = case.name
    try:
        operation = case.contenders[name]()
    except Missing as reason:
        pytest.skip(str(reason))
    try:
        if name != OURS:
            ours = case.contenders[OURS]()
            try:
                assert operation.digest() == ours.digest(), f"{name} does other work than kraftcore"
            finally:
                ours.close()
        calls, _ = calibrate(operation, case.slice_s / 4, 0.0)

        def turn() -> None:
            CLOCK.now += operation.run(calls) / calls

        benchmark.pedantic(turn, rounds=7, warmup_rounds=1)
        benchmark.extra_info.update(calls_a_round=calls, unit=case.unit, note=operation.note)
    finally:
        operation.close()
