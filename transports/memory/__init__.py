"""The same encoded frames within one process, for tests: ``MemoryNetwork``, its partitions, delays and losses."""

from kraftcore.namespace import listing
from kraftcore.transports.memory.network import MemoryNetwork, MemoryTransport

__all__ = ["MemoryNetwork", "MemoryTransport"]
__dir__ = listing(__all__)
