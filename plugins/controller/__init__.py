"""The active controller of a KRaft cluster: what is decided about brokers, topics, partitions and everything else.

A decision is a pure function: ``decide(context, request, version) -> ControllerResult``. The context holds the metadata
image, the leader's soft state, the time and the offset that the next record gets; the result holds the records and the
answer to give once they are committed. Nothing here reads a clock, sends, waits or draws random numbers of its own, so
that the same code runs under a node, in the simulator and in scenario texts.

==========================  ==================================================================================
``decision``                what every decision is made of: context, records, answer, refusals
``soft_state``              state that only the leader has: sessions, offsets brokers have reached, shutdowns under way
``caller``                  who sends a request
``updates``                 the rules of `kraftcore.partition_rules`, applied to partitions of the image
``brokers`` ``requester``   registration, heartbeats, fencing, controlled shutdown; whether a sender's epoch holds
``fast_fencing``            ends the session of a broker whose process is gone; ``fast_fencing_tasks`` asks the brokers
``directories``             AssignReplicasToDirs, directories that fail or are cordoned
``isr``                     AlterPartition, by the checks of `kraftcore.partition_rules.isr_change`
``elections``               ElectLeaders, leader rebalance, automatic unclean election
``reassignments``           AlterPartitionReassignments, ListPartitionReassignments
``topics`` ``topic_names``  CreateTopics, DeleteTopics, CreatePartitions; which names are legal
``placement``               where new replicas go; ``assignments``: checks of replicas that an administrator chose
``topic_configs``           configurations, as decisions about topics need them
``configs``                 IncrementalAlterConfigs, AlterConfigs; ``describe_configs``: DescribeConfigs
``acls`` ``quotas``         access control entries; client quotas
``scram`` ``tokens``        SCRAM credentials; delegation tokens
``features``                feature levels, and the feature fields of ApiVersions
``producer_ids``            blocks of producer ids
``controllers``             registration of controllers, DescribeCluster
``activation``              the records that a controller writes when it becomes active, and while it is idle
``hash_order``              the order of Java's hash tables, where clients can see it
``registry``                the table of all requests and their decisions
``life``                    leading and following; decisions ahead of commits; timers
``requests`` ``envelope``   from a request to its answer; requests that brokers pass on
``access``                  the permission that each request needs
``settings``                the settings in a server's file
``registration``            each controller registers with the active one
``plugin``                  the plugin that runs the controller on a node
==========================  ==================================================================================

    async with open_node(config, MetadataMachine(), plugins=[Controller({"num.partitions": "3"})]) as node:
        ...
"""

from typing import TYPE_CHECKING

from kraftcore.namespace import listing, loader, names_of

# Loaded when first used: brokers import some modules of this package, and take no decisions.
_HOMES = {"kraftcore.plugins.controller.plugin": ("Controller",)}
if TYPE_CHECKING:
    from kraftcore.plugins.controller.plugin import Controller as Controller
else:
    __all__ = names_of(_HOMES)
    __dir__ = listing(__all__)
    __getattr__ = loader(__name__, _HOMES)
