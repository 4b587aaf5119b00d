"""For tests: a whole quorum, or a whole Kafka, in one process, to be killed and cut apart.

``Cluster`` is a quorum of an application that embeds kraftcore, for tests on trio: docs/testing-your-application.md.
``KafkaCluster`` is a Kafka for clients of any kind, ``in_thread`` the same for tests without trio:
docs/kafka-for-tests.md.
``pytest_plugin`` brings them as the fixtures ``kraft_cluster`` and ``kafka_cluster``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kraftcore.testing.cluster import Cluster as Cluster
    from kraftcore.testing.kafka_cluster import KafkaCluster as KafkaCluster
    from kraftcore.testing.kafka_thread import KafkaThread as KafkaThread
    from kraftcore.testing.kafka_thread import in_thread as in_thread

__all__ = ["Cluster", "KafkaCluster", "KafkaThread", "in_thread"]

_MODULES = {
    "Cluster": "cluster",
    "KafkaCluster": "kafka_cluster",
    "KafkaThread": "kafka_thread",
    "in_thread": "kafka_thread",
}


# pytest imports this package whenever it starts: nothing is loaded before somebody wants it.
def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'kraftcore.testing' has no attribute {name!r}")
    return getattr(import_module(f"kraftcore.testing.{_MODULES[name]}"), name)
