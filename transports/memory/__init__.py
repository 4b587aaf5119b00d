"""The same encoded frames within one process, for tests: ``MemoryNetwork``, its partitions, delays and losses."""

from kraftcore.transports.memory.network import MemoryNetwork, MemoryTransport

__all__ = ["MemoryNetwork", "MemoryTransport"]
