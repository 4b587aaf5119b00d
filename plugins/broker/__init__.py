"""A broker: replicas of partitions that obey a controller, and serve clients and followers of Kafka.

`KRaftBroker` is a plugin of a node, and follows the metadata log of a KRaft controller. ``open_broker`` runs one that a
controller of the ZooKeeper era tells what to do (``partition.control=requests``). See docs/broker.md for what is there
and what is not yet.

Where to begin: ``partition`` is one replica, ``replicas`` has all of them, ``broker_parts`` puts the parts
together. Without sockets, tasks or clock are

======================  ================================================================================================
``partition``           one replica: events in, effects out
``producers``           the producers that a log knows, their snapshots, aborted transactions
``logdirs``             what is on disk; ``log_changes``: what removes parts of a log
``replicas``            the partitions of which this broker has a replica
``metadata``            what the metadata of the cluster means for this broker
``replication``         fetching from leaders, and changes of the ISR (``fetch_tasks`` and ``isr_changes`` are on trio)
``quotas``              how much clients and throttled replicas may move
``work``                work that must not hold up the event loop: in steps, in turns, later, by threads
``simulated``           brokers in the simulator
======================  ================================================================================================

and on trio

======================  ================================================================================================
``config``              a broker's settings, from Kafka's properties
``broker_parts``        all of it together; ``handlers``: the requests that it answers
``api``                 what clients and followers ask, a file a request
``groups``              consumer groups
``transactions_topic``  has brokers of Kafka lead ``__transaction_state``
``moves``               moves of replicas between log directories; ``syncing``: syncs for ``flush.messages``
``kraft``               the parts as a plugin of a node, under a KRaft controller
``control``             the parts with listeners of their own, under a controller's requests (``standalone_broker``)
``controller_channel``  requests to the active controller
``unsupported``         what clients ask for in vain is said once
======================  ================================================================================================
"""

from typing import TYPE_CHECKING

from kraftcore.namespace import listing, loader, names_of

# Loaded when first asked for: no program needs both, and a controller's file is read without either.
_HOMES = {
    "kraftcore.plugins.broker.control.standalone_broker": ("Broker", "open_broker"),
    "kraftcore.plugins.broker.config": ("BrokerConfig",),
    "kraftcore.plugins.broker.kraft": ("KRaftBroker",),
}
if TYPE_CHECKING:
    from kraftcore.plugins.broker.config import BrokerConfig as BrokerConfig
    from kraftcore.plugins.broker.control.standalone_broker import Broker as Broker
    from kraftcore.plugins.broker.control.standalone_broker import open_broker as open_broker
    from kraftcore.plugins.broker.kraft import KRaftBroker as KRaftBroker
else:
    __all__ = names_of(_HOMES)
    __dir__ = listing(__all__)
    __getattr__ = loader(__name__, _HOMES)
