"""A broker that follows a KRaft controller's metadata log, as a plugin of a node.

===================  =================================================================================================
``committed_image``  the metadata as far as it is committed
``image_cache``      what clients are told of it
``lifecycle``        registered, caught up, unfenced, on its way down: requests to the controller, sans-IO
``directories``      which log directory holds which replica, and which failed (KIP-858)
``publisher``        carries out what the log says of the broker's partitions
``plugin``           all of it together, on a node
===================  =================================================================================================

Source: Kafka 4.3.1, BrokerServer, BrokerLifecycleManager, BrokerMetadataPublisher, AssignmentsManager; KIP-631,
KIP-841.
"""

from kraftcore.plugins.broker.kraft.plugin import KRaftBroker

__all__ = ["KRaftBroker"]
