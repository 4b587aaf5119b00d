"""Prometheus metrics of a node: Kafka's raft metrics under their usual names, and what else an operator wants to know.

    async with kraftcore.open_node(config, machine, plugins=[metrics.Metrics(listen="127.0.0.1:9404")]) as node:
        ...

``kraftcore server start`` loads it by ``kraftcore.plugins=metrics``. See docs/metrics.md. Needs the extra ``metrics``.
"""

from kraftcore.namespace import listing
from kraftcore.plugins.metrics.plugin import Metrics

__all__ = ["Metrics"]
__dir__ = listing(__all__)
