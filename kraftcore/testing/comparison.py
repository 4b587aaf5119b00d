"""Whether two nodes hold the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kraftcore.core.batch import iter_batches
from kraftcore.node import Node
from kraftcore.state_machine import StateMachine


def differing_logs(one: Node, other: Node, end: int) -> str | None:
    """Compare what both still have of the log, batch by batch and byte by byte.

    Args:
        one: a node.
        other: another one.
        end: up to this offset, which is committed on both.

    Returns:
        Where they differ, or None.
    """
    start = max(one.status().log_start_offset, other.status().log_start_offset)
    left, right = _batches(one, start, end), _batches(other, start, end)
    while True:
        mine, yours = next(left, None), next(right, None)
        if mine != yours:
            found = " and ".join(_describe(node, batch) for node, batch in ((one, mine), (other, yours)))
            return f"the logs differ: {found}"
        if mine is None:
            return None


def _batches(node: Node, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    while start < end:
        for batch in iter_batches(node.read(start)):
            yield batch.base_offset, batch.to_bytes()
            start = batch.next_offset


def _describe(node: Node, batch: tuple[int, bytes] | None) -> str:
    if batch is None:
        return f"node {node.key.id} has no more"
    return f"node {node.key.id} has at offset {batch[0]} {batch[1][:200]!r}"


def state_of(machine: StateMachine) -> list[bytes]:
    """The records of a snapshot taken now."""
    sink = _Sink()
    machine.snapshot(sink)
    return sink.values


class _Sink:
    def __init__(self) -> None:
        self.values: list[bytes] = []

    def append(self, values: Iterable[bytes]) -> None:
        self.values.extend(values)

    append_later = append
