"""A broker: replicas of partitions that obey a controller, and serve clients and followers of Kafka.

    async with open_broker(BrokerConfig.from_properties("broker.properties")) as broker:
        ...

Today a controller of the ZooKeeper era tells it what to do (``partition.control=requests``): see docs/broker.md for
what is there and what is not yet.

==================  ==================================================================================================
``config``          a broker's settings, from Kafka's properties
``partition``       one replica: events in, effects out
``producers``       those that number their batches, and their snapshots
``logdirs``         what is on disk
``replicas``        the partitions of which this broker has a replica
``metadata_cache``  what the controller announced
``control``         LeaderAndIsr, StopReplica, UpdateMetadata
``fetchers``        the follower's side of replication; ``isr_changes``: AlterPartition
``api``             what clients and followers ask; ``deadlines``: for answers that wait
``broker``          all of it together, on trio
==================  ==================================================================================================
"""

from kraftcore.plugins.broker.broker import Broker, open_broker
from kraftcore.plugins.broker.config import BrokerConfig

__all__ = ["Broker", "BrokerConfig", "open_broker"]
