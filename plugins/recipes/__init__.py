"""Replicated objects for programs that share a log: dict, counter, set, queues, list, lock, semaphore, and more.

    machine = recipes.RecipeMachine()
    async with kraftcore.open_node(config, machine) as node:
        settings = recipes.Dict(node, "settings")
        await settings.set("colour", "blue")

See docs/recipes.md. Needs the extra ``recipes``.
"""

from kraftcore.namespace import listing
from kraftcore.plugins.recipes.client import Recipe
from kraftcore.plugins.recipes.containers import ABSENT, Change, Counter, Dict, Set, Versioned, Watch
from kraftcore.plugins.recipes.leases import Held, Lease
from kraftcore.plugins.recipes.locks import (
    Barrier,
    Election,
    Holder,
    Leased,
    Lock,
    Members,
    Observation,
    Scheduler,
    Semaphore,
)
from kraftcore.plugins.recipes.machine import RecipeMachine
from kraftcore.plugins.recipes.sequences import List, PriorityQueue, Queue, Taken
from kraftcore.plugins.recipes.transactions import Transaction

__all__ = [
    "ABSENT",
    "Barrier",
    "Change",
    "Counter",
    "Dict",
    "Election",
    "Held",
    "Holder",
    "Lease",
    "Leased",
    "List",
    "Lock",
    "Members",
    "Observation",
    "PriorityQueue",
    "Queue",
    "Recipe",
    "RecipeMachine",
    "Scheduler",
    "Semaphore",
    "Set",
    "Taken",
    "Transaction",
    "Versioned",
    "Watch",
]
__dir__ = listing(__all__)
