"""Administer a quorum from Python: Kafka's or ours, through its controllers or through a broker.

    async with kraftcore.admin.connect(bootstrap_controllers=["127.0.0.1:9093"]) as admin:
        quorum = await admin.describe_quorum()
        await admin.remove_voter(3, quorum.voters[2].key.directory_id)

Like Java's ``Admin``, for a quorum: describe it, add and remove voters, read and change feature levels, list nodes; and
for a cluster: topics, configurations, elections, reassignments, access control entries, quotas, SCRAM credentials,
delegation tokens. Requests go to the present leader, and are repeated until the call's timeout.

===============  ======================================================================================================
``client``       the quorum's voters and features, appends; ``AdminClient`` is made of this and the parts below
``cluster``      nodes
``topics``       topics and their partitions
``configs``      configurations; list of groups and other resources with a configuration
``partitions``   elections, reassignments, log directories
``groups``       consumer groups, their members and offsets
``acls``         access control entries
``quotas``       client quotas, SCRAM credentials
``tokens``       delegation tokens
``calls``        results by item, with their errors
``router``       gets a request to a node that can answer it
``survey``       who answers, while a call gets no answer
===============  ======================================================================================================
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager

from kraftcore.admin.calls import PartlyRefusedError
from kraftcore.admin.client import AdminClient, FeatureUpdateError, UpgradeType
from kraftcore.admin.configs import ConfigChange, ConfigEntry, ConfigOperation, ConfigSynonym, GroupListing
from kraftcore.admin.groups import CommittedOffset, GroupDescription, GroupMember
from kraftcore.admin.partitions import ElectionType, Reassignment, Replica, ReplicaPlace
from kraftcore.admin.quotas import QuotaFilter, QuotaMatch, ScramMechanism, ScramUpsertion
from kraftcore.admin.results import (
    ClusterDescription,
    FeatureDescription,
    FeatureStatus,
    NodeAddress,
    QuorumDescription,
    ReplicaProgress,
)
from kraftcore.admin.router import Router, Timing, Watch
from kraftcore.admin.server import Isr, Server
from kraftcore.admin.survey import Survey, SurveyedError, SurveyedNode
from kraftcore.admin.tokens import IssuedToken
from kraftcore.admin.topics import (
    CreatedTopic,
    NewPartitions,
    NewTopic,
    PartitionDescription,
    TopicDescription,
    TopicListing,
)
from kraftcore.config.addresses import parse_address
from kraftcore.config.login import SaslLogin, make_login
from kraftcore.configdef.topics import ConfigSource
from kraftcore.configdef.types import ConfigType
from kraftcore.errors import LocalError
from kraftcore.metadata.acls import Acl
from kraftcore.metadata.configs import ConfigResource
from kraftcore.namespace import listing
from kraftcore.ownership import owned_async_block
from kraftcore.ports.async_library import check_trio
from kraftcore.ports.transport import Address, Transport
from kraftcore.protocol.topics import METADATA_TOPIC, TopicPartition
from kraftcore.security.acl import AclFilter
from kraftcore.transports.tcp import TcpTransport, TlsSettings

__all__ = [
    "Acl",
    "AclFilter",
    "AdminClient",
    "ClusterDescription",
    "CommittedOffset",
    "ConfigChange",
    "ConfigEntry",
    "ConfigOperation",
    "ConfigResource",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "CreatedTopic",
    "ElectionType",
    "FeatureDescription",
    "FeatureStatus",
    "FeatureUpdateError",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "Isr",
    "IssuedToken",
    "NewPartitions",
    "NewTopic",
    "NodeAddress",
    "PartitionDescription",
    "PartlyRefusedError",
    "QuorumDescription",
    "QuotaFilter",
    "QuotaMatch",
    "Reassignment",
    "Replica",
    "ReplicaPlace",
    "ReplicaProgress",
    "ScramMechanism",
    "ScramUpsertion",
    "Server",
    "Survey",
    "SurveyedError",
    "SurveyedNode",
    "Timing",
    "TopicDescription",
    "TopicListing",
    "TopicPartition",
    "UpgradeType",
    "Watch",
    "connect",
]
__dir__ = listing(__all__)


@owned_async_block("kraftcore.admin.connect")
@asynccontextmanager
async def connect(
    *,
    bootstrap_controllers: Iterable[Address | str] = (),
    bootstrap_servers: Iterable[Address | str] = (),
    tls: TlsSettings | None = None,
    sasl: SaslLogin | None = None,
    transport: Transport | None = None,
    timing: Timing | None = None,
    topic: str = METADATA_TOPIC,
    client_id: str = "kraftcore-admin",
    watch: Watch | None = None,
) -> AsyncIterator[AdminClient]:
    """Open a client; nothing is sent before the first call.

    Args:
        bootstrap_controllers: ``host:port`` of some controllers (their controller listener).
        bootstrap_servers: ``host:port`` of some brokers; exactly one of the two is given.
        tls: how to connect, for example ``kraftcore.transports.tcp.TlsFiles``; None: without TLS.
        sasl: user, credentials and mechanism of the login; None: no login.
        transport: moves the frames, and stays open; None: TCP with ``tls`` and ``sasl``, closed at the end.
        timing: how long to wait; None: Kafka's defaults.
        topic: name of the quorum's log.
        client_id: goes into the requests, for the nodes' logs.
        watch: makes the context in which a call runs, for example to report long calls. Its arguments are a text that
            names the awaited answer, and an object whose ``last_failure`` says why there is no answer yet.

    Raises:
        LocalError: neither or both kinds of addresses are given, or an address cannot be read.

    Every call raises AuthenticationError when a login is refused; it is not tried again. After the block every call
    raises ClosedError.
    """
    check_trio("kraftcore.admin.connect")
    controllers = [parse_address(each) for each in bootstrap_controllers]
    servers = [parse_address(each) for each in bootstrap_servers]
    if bool(controllers) == bool(servers):
        raise LocalError("give either bootstrap_controllers or bootstrap_servers")

    @contextmanager
    def client_over(carrier: Transport) -> Iterator[AdminClient]:
        router = Router(
            carrier,
            controllers or servers,
            through_controllers=bool(controllers),
            timing=timing or Timing(),
            client_id=client_id,
            watch=watch,
        )
        try:
            yield AdminClient(router, topic=topic)
        finally:
            router.close()

    if transport is not None:
        with client_over(transport) as client:
            yield client
        return
    # Errors name the nodes that cannot be reached: no log lines on top.
    login = None if sasl is None else make_login(sasl, client_id)
    async with TcpTransport(tls=tls, login=login, log=lambda _: None) as carrier:
        with client_over(carrier) as client:
            yield client
