"""What changed between two states of the image, for those who follow it."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from kraftcore.core.uuid import Uuid

V = TypeVar("V")


class PartitionKey(NamedTuple):
    """Names a partition."""

    topic_id: Uuid
    partition_id: int


class Change(NamedTuple, Generic[V]):
    """A value before and after; None where there was or is nothing."""

    before: V | None
    after: V | None
