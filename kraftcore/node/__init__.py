"""One node of a quorum in this process: the executor on trio."""

from kraftcore.node.attaching import attach, open_or_attach
from kraftcore.node.node import Node
from kraftcore.node.opening import open_node

__all__ = ["Node", "attach", "open_node", "open_or_attach"]
