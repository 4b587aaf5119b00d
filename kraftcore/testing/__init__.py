"""For tests: a whole quorum, or a whole Kafka, in one process, to be killed and cut apart.

``Cluster`` is a quorum of an application that embeds kraftcore, for tests on trio: docs/testing-your-application.md.
``KafkaCluster`` is a Kafka for clients of any kind, ``in_thread`` the same for tests without trio:
docs/kafka-for-tests.md.
``pytest_plugin`` brings them as the fixtures ``kraft_cluster`` and ``kafka_cluster``.
"""

from typing import TYPE_CHECKING

from kraftcore.namespace import listing, loader, names_of

# Loaded when first asked for: pytest imports this package whenever it starts.
_HOMES = {
    "kraftcore.testing.cluster": ("Cluster", "CrashMode", "WhichNode"),
    "kraftcore.testing.faults": ("Fault", "Faults"),
    "kraftcore.testing.kafka_cluster": ("KafkaCluster",),
    "kraftcore.testing.kafka_thread": ("KafkaThread", "in_thread"),
}
if TYPE_CHECKING:
    from kraftcore.testing.cluster import Cluster as Cluster
    from kraftcore.testing.cluster import CrashMode as CrashMode
    from kraftcore.testing.cluster import WhichNode as WhichNode
    from kraftcore.testing.faults import Fault as Fault
    from kraftcore.testing.faults import Faults as Faults
    from kraftcore.testing.kafka_cluster import KafkaCluster as KafkaCluster
    from kraftcore.testing.kafka_thread import KafkaThread as KafkaThread
    from kraftcore.testing.kafka_thread import in_thread as in_thread
else:
    __all__ = names_of(_HOMES)
    __dir__ = listing(__all__)
    __getattr__ = loader(__name__, _HOMES)
