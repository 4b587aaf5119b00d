"""A broker: replicas of partitions that obey a controller, and serve clients and followers of Kafka.

`KRaftBroker` is a plugin of a node, and follows the metadata log of a KRaft controller. ``open_broker`` runs one that a
controller of the ZooKeeper era tells what to do (``partition.control=requests``). See docs/broker.md for what is there
and what is not yet.

==================  ==================================================================================================
``config``          a broker's settings, from Kafka's properties
``partition``       one replica: events in, effects out
``producers``       those that number their batches, and their snapshots
``logdirs``         what is on disk
``replicas``        the partitions of which this broker has a replica
``metadata_cache``  what is known of the cluster
``catalogue``       what a metadata log says that this broker is to do
``kraft``           a life under a KRaft controller
``control``         LeaderAndIsr, StopReplica, UpdateMetadata
``following``       the follower's side of replication; ``fetchers`` runs it on trio
``isr_requests``    changes of the ISR (AlterPartition); ``isr_changes`` sends them on trio
``api``             what clients and followers ask; ``deadlines``: for answers that wait
``core``            all of it together, on trio; ``handlers``: what it answers
``broker``          the core with listeners of its own, under control requests
==================  ==================================================================================================
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kraftcore.plugins.broker.config import BrokerConfig

if TYPE_CHECKING:
    from kraftcore.plugins.broker.broker import Broker as Broker
    from kraftcore.plugins.broker.broker import open_broker as open_broker
    from kraftcore.plugins.broker.kraft import KRaftBroker as KRaftBroker

# Imported when first asked for: nobody needs both, and a controller's file is read without either.
_HOMES = {
    "Broker": "kraftcore.plugins.broker.broker",
    "KRaftBroker": "kraftcore.plugins.broker.kraft",
    "open_broker": "kraftcore.plugins.broker.broker",
}
__all__ = ["Broker", "BrokerConfig", "KRaftBroker", "open_broker"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'kraftcore.plugins.broker' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
