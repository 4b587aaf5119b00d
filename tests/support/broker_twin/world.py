"""What the one who draws a script believes, and what a kind of step is."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from broker_twin.side import Side

Params = dict[str, Any]


@dataclass
class World:
    """What the one who draws a script believes of it.

    Attributes:
        topics: partitions by name.
        ends: about how far a partition is.
        sequences: the next one, by producer, topic and partition.
        producers, sessions, members, groups: names so far; sessions with their next epochs.
    """

    topics: dict[str, int]
    prefix: str
    now_ms: int
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    sequences: dict[tuple[str, str, int], int] = field(default_factory=dict)
    producers: list[str] = field(default_factory=list)
    sessions: dict[str, int] = field(default_factory=dict)
    members: list[str] = field(default_factory=list)

    def partition(self, rng: random.Random) -> tuple[str, int]:
        """Mostly one that is there."""
        topic = rng.choice(sorted(self.topics))
        if rng.random() < 0.04:
            topic = rng.choice((f"{self.prefix}-none", "", "a b", "__nothing"))
        count = self.topics.get(topic, 1)
        return topic, rng.randrange(count) if rng.random() < 0.95 else rng.choice((count, -1, 2**31 - 1))

    def offset(self, rng: random.Random, place: tuple[str, int]) -> int:
        """Mostly within the log."""
        end = self.ends.get(place, 0)
        if rng.random() < 0.15:
            return rng.choice((-1, -2, end + 1, end + 100, 2**63 - 1, -(2**63), 0))
        return rng.randint(0, end)

    def group(self, rng: random.Random) -> str:
        """One of few."""
        return f"{self.prefix}-g{rng.randrange(3)}" if rng.random() < 0.97 else rng.choice(("", f"{self.prefix}-none"))


def epoch(rng: random.Random) -> int:
    return -1 if rng.random() < 0.8 else rng.choice((0, 0, 1, 5, -2, 2**31 - 1))


def draw_place(rng: random.Random, world: World) -> Params:
    topic, partition = world.partition(rng)
    return {"topic": topic, "partition": partition}


@dataclass(frozen=True)
class Kind:
    """A kind of step.

    Attributes:
        request: the class whose versions are drawn.
        weight: how often it is drawn.
        draw: its parameters.
        make: the request for a side; or
        play: send it and what goes with it, for steps of several requests; the answers, in order.
        learn: what the answer teaches.
        first: the version it is drawn from.
    """

    request: Any
    weight: int
    draw: Callable[[random.Random, World], Params]
    make: Callable[[Params, Side], Any] | None = None
    learn: Callable[[Params, Any, Side], None] | None = None
    first: int = 0
    play: Callable[[Params, Side], list[Any]] | None = None
