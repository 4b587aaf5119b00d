"""The registration of a broker, or of an application's own server (KIP-631, KIP-858).

It claims support of all features of Kafka 4.3.1: a controller refuses a broker that lacks a finalized level.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kraftcore.core.uuid import Uuid
from kraftcore.metadata.cluster import Listener
from kraftcore.protocol.features import supported_levels
from kraftcore.protocol.messages.broker_registration import BrokerRegistrationRequest


class BrokerIdentity(NamedTuple):
    """The identity of a broker's process.

    Attributes:
        broker_id: its node id.
        cluster_id: of its cluster.
        incarnation_id: drawn at the start.
        listeners: where clients and other brokers reach it.
        rack: name of its rack, or None.
    """

    broker_id: int
    cluster_id: str
    incarnation_id: Uuid
    listeners: tuple[Listener, ...]
    rack: str | None


def registration(who: BrokerIdentity, directories: Sequence[Uuid], previous_epoch: int) -> BrokerRegistrationRequest:
    """Make the registration request.

    Args:
        who: see `BrokerIdentity`.
        directories: ids of the log directories that are online.
        previous_epoch: the broker epoch before an orderly stop, or -1: the controller then assumes that the ends of
            logs may be lost (KIP-966).
    """
    kind = BrokerRegistrationRequest
    return kind(
        broker_id=who.broker_id,
        cluster_id=who.cluster_id,
        incarnation_id=who.incarnation_id,
        listeners=[
            kind.Listener(name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol)
            for each in who.listeners
        ],
        features=[
            kind.Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in supported_levels().items()
        ],
        rack=who.rack,
        log_dirs=sorted(directories),
        previous_broker_epoch=previous_epoch,
    )
