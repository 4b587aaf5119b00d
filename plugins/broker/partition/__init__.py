"""One replica of a partition: events in, effects out; no sockets, tasks or clock.

=================  ===================================================================================================
``state``          what a partition is told and what it wants done: assignments, effects
``isr_state``      in-sync replicas with the change that is on its way to the controller (KIP-497, KIP-841)
``leading``        what only a leader knows: its followers, produces that wait, the high watermark's rule
``retention``      which segments have served their time
``partition``      the replica: log, leader epoch, role, high watermark
=================  ===================================================================================================

Source: Kafka 3.9.1, Partition and Replica, whose rules these are.
"""

from kraftcore.plugins.broker.partition.partition import Partition
from kraftcore.plugins.broker.partition.state import Assignment, IsrAnswer, IsrProposal, PartitionEffects, View
from kraftcore.protocol.topics import TopicPartition

__all__ = ["Assignment", "IsrAnswer", "IsrProposal", "Partition", "PartitionEffects", "TopicPartition", "View"]
