"""The kinds of steps, and the script of a seed."""

from __future__ import annotations

import random

from broker_twin import config_steps, group_steps, question_steps, rebalance_steps, record_steps, spoiled_steps
from broker_twin.world import Params, World

KINDS = (
    record_steps.KINDS
    | question_steps.KINDS
    | group_steps.KINDS
    | spoiled_steps.KINDS
    | rebalance_steps.KINDS
    | config_steps.KINDS
)


def script(seed: int, steps: int, topics: dict[str, int], prefix: str, now_ms: int) -> list[Params]:
    """A script of a seed; also the versions come from it."""
    rng = random.Random(seed)
    world = World(topics, prefix, now_ms)
    names, weights = list(KINDS), [kind.weight for kind in KINDS.values()]
    found = []
    for _ in range(steps):
        name = rng.choices(names, weights)[0]
        kind = KINDS[name]
        low, high = kind.request.schema.stable_versions
        low = max(low, kind.first)
        version = high if rng.random() < 0.3 else rng.randint(low, high)
        params = kind.draw(rng, world) | {"version": version}
        found.append({"kind": name, "version": version, "params": params})
        if name == "join":  # who does not sync in time is out of its group, and when that is nobody can tell
            more = {"generation": 0, "protocol": None, "reason": None, "version": 3}
            found.append({"kind": "sync", "version": 3, "params": params | more})
    return found
