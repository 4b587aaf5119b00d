"""Replicated objects for programs that share a log: dict, counter, queue, set, lock, election, transactions.

    machine = recipes.RecipeMachine()
    async with kraftcore.open_node(config, machine) as node:
        settings = recipes.Dict(node, "settings")
        await settings.set("colour", "blue")

See docs/recipes.md. Needs the extra ``recipes``.
"""

from kraftcore.namespace import listing
from kraftcore.plugins.recipes.client import Recipe
from kraftcore.plugins.recipes.containers import (
    ABSENT,
    Change,
    Counter,
    Dict,
    Queue,
    Set,
    Transaction,
    Versioned,
    Watch,
)
from kraftcore.plugins.recipes.locks import Election, Held, Holder, Lease, Lock, Observation
from kraftcore.plugins.recipes.machine import RecipeMachine

__all__ = [
    "ABSENT",
    "Change",
    "Counter",
    "Dict",
    "Election",
    "Held",
    "Holder",
    "Lease",
    "Lock",
    "Observation",
    "Queue",
    "Recipe",
    "RecipeMachine",
    "Set",
    "Transaction",
    "Versioned",
    "Watch",
]
__dir__ = listing(__all__)
