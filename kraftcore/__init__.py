"""KRaft you can embed: a durable, replicated, ordered log in a Python process, byte-compatible with Apache Kafka."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kraftcore.config import NodeConfig as NodeConfig
    from kraftcore.node import Node as Node
    from kraftcore.node import open_node as open_node
    from kraftcore.observer import observe as observe
    from kraftcore.state_machine import StateMachine as StateMachine

__version__ = "0.1.0"

# Imported when first asked for: who only reads a log does not load trio and the consensus.
_HOMES = {
    "Node": "kraftcore.node",
    "NodeConfig": "kraftcore.config",
    "StateMachine": "kraftcore.state_machine",
    "observe": "kraftcore.observer",
    "open_node": "kraftcore.node",
}
__all__ = ["Node", "NodeConfig", "StateMachine", "__version__", "observe", "open_node"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'kraftcore' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
