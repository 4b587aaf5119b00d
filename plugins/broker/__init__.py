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

from kraftcore.plugins.broker.broker import Broker, open_broker
from kraftcore.plugins.broker.config import BrokerConfig
from kraftcore.plugins.broker.kraft import KRaftBroker

__all__ = ["Broker", "BrokerConfig", "KRaftBroker", "open_broker"]
