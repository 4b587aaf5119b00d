"""A server of an application's own as a broker of the cluster: registration, heartbeats, ISRs (KIP-631, KIP-497).

A controller gives partitions to any registered server that sends heartbeats, whatever that server does with them.
`Server` speaks for one process of such a server, with Kafka's controllers or ours:

    async with admin.connect(bootstrap_controllers=[...]) as client:
        server = admin.Server(client, 101, cluster_id, listeners=[Endpoint("APP", "10.0.0.5", 7000)])
        await server.run(lambda: machine.offset - 1)    # until it is cancelled, or a shutdown has ended

Every heartbeat tells how far the process has read the metadata log: the controller unfences a server that has read its
own registration.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import trio

from kraftcore.admin.client import AdminClient
from kraftcore.core.uuid import Uuid
from kraftcore.errors import LocalError, RefusedError, UnreachableError
from kraftcore.metadata.cluster import Listener
from kraftcore.metadata.registration import BrokerIdentity, registration
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from kraftcore.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from kraftcore.protocol.messages.broker_registration import BrokerRegistrationResponse
from kraftcore.raft.quorum import Endpoint

_UNREGISTERED: Final = -1
_PLAINTEXT: Final = 0
_EPOCHS_FROM: Final = 3  # from this version on, AlterPartition names members with their epochs


@dataclass(frozen=True, slots=True)
class Isr:
    """A wanted ISR of a partition that the server leads.

    Attributes:
        topic_id: of the topic.
        partition: its number.
        members: ids of the servers in sync, the leader's own among them, with the broker epochs they are known by.
        leader_epoch: of the partition, as the leader knows it.
        partition_epoch: of the partition, as the leader knows it.
    """

    topic_id: Uuid
    partition: int
    members: Mapping[int, int]
    leader_epoch: int
    partition_epoch: int


class Server:
    """One process of a server. Two processes must not use one id at the same time.

    Args:
        client: connected to the controllers (``bootstrap_controllers``); with timeouts below the controllers' session
            timeout a lost answer costs no session.
        server_id: unique in the cluster, other than any controller's, 0 or more.
        cluster_id: of the cluster.
        listeners: its endpoints; at least one.
        security_protocol: of its listeners, Kafka's number: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.
        directories: ids of its log directories, the same over all its processes; empty: one random id.
        rack: name of its rack.
        previous_epoch: the epoch of the former process, if that ended by a controlled shutdown (KIP-966); -1: the
            server may have lost records.
        heartbeat_ms: time between heartbeats (``broker.heartbeat.interval.ms``).

    Attributes:
        id: as given.
        epoch: of the registration; -1 before.
        is_fenced: whether it is fenced, by the controller's last answer.
        has_shut_down: whether the controller has said that the process may end.
        last_failure: why the latest request was not carried out; empty if it was.
    """

    def __init__(
        self,
        client: AdminClient,
        server_id: int,
        cluster_id: str,
        *,
        listeners: Iterable[Endpoint],
        security_protocol: int = _PLAINTEXT,
        directories: Iterable[Uuid] = (),
        rack: str | None = None,
        previous_epoch: int = _UNREGISTERED,
        heartbeat_ms: int = 2000,
    ) -> None:
        if server_id < 0 or heartbeat_ms <= 0:
            raise LocalError(
                f"a server's id is 0 or more, its heartbeat_ms above 0, not {server_id} and {heartbeat_ms}"
            )
        self.id = server_id
        self.epoch = _UNREGISTERED
        self.is_fenced = True
        self.has_shut_down = False
        self.last_failure = ""
        self._client = client
        reached_at = tuple(Listener(each.name, each.host, each.port, security_protocol) for each in listeners)
        if not reached_at:
            raise LocalError(f"server {server_id} needs a listener: nobody could reach it")
        self._identity = BrokerIdentity(server_id, cluster_id, Uuid.random(os.urandom), reached_at, rack)
        self._directories = tuple(directories) or (Uuid.random(os.urandom),)
        self._previous_epoch = previous_epoch
        self._heartbeat_ms = heartbeat_ms
        self._wants_shutdown = trio.Event()

    def shut_down(self) -> None:
        """Begin a controlled shutdown: its partitions get other leaders; ``run`` returns when that is done."""
        self._wants_shutdown.set()

    async def run(self, metadata_offset: Callable[[], int]) -> None:
        """Register, and send heartbeats until a controlled shutdown has ended; refusals and lost answers do not end it.

        Args:
            metadata_offset: returns the offset of the last record of the metadata log that the server has read.
        """
        while not self.has_shut_down:
            try:
                if self.epoch == _UNREGISTERED:
                    await self.register()
                await self.heartbeat(metadata_offset())
                self.last_failure = ""
            except (RefusedError, UnreachableError) as error:
                self.last_failure = str(error)
                if isinstance(error, RefusedError) and error.error == ErrorCode.STALE_BROKER_EPOCH.name:
                    self.epoch = _UNREGISTERED  # an administrator unregistered this server
            if not self.has_shut_down:
                await self._wait()

    async def _wait(self) -> None:
        with trio.move_on_after(self._heartbeat_ms / 1000):
            if self._wants_shutdown.is_set():
                await trio.sleep_forever()
            await self._wants_shutdown.wait()

    async def register(self) -> int:
        """Register this process; returns its epoch.

        Raises:
            RefusedError: DUPLICATE_BROKER_REGISTRATION until the session of a former process has ended; any other
                error: the registration does not fit the cluster.
            UnreachableError: no controller answered in time.
        """
        request = registration(self._identity, self._directories, self._previous_epoch)
        answer = await self._client.ask_controller("brokerRegistration", request, BrokerRegistrationResponse)
        self.epoch = answer.broker_epoch
        self.is_fenced = True
        return self.epoch

    async def heartbeat(self, metadata_offset: int) -> None:
        """Send a heartbeat, and set ``is_fenced`` by the answer.

        Raises:
            RefusedError: STALE_BROKER_EPOCH: the process is not registered any more; or another error.
            UnreachableError: no controller answered in time.
        """
        request = BrokerHeartbeatRequest(
            broker_id=self.id,
            broker_epoch=self.epoch,
            current_metadata_offset=metadata_offset,
            want_shut_down=self._wants_shutdown.is_set(),
        )
        answer = await self._client.ask_controller("brokerHeartbeat", request, BrokerHeartbeatResponse)
        self.is_fenced = answer.is_fenced
        self.has_shut_down = self._wants_shutdown.is_set() and answer.should_shut_down

    async def alter_isr(self, wanted: Iterable[Isr]) -> dict[tuple[Uuid, int], ErrorCode]:
        """Propose ISRs for partitions that this server leads.

        Returns:
            By partition NONE; INELIGIBLE_REPLICA: a member is fenced or of another epoch; FENCED_LEADER_EPOCH,
            INVALID_UPDATE_VERSION: the partition has changed, read it again; or another error.

        Raises:
            RefusedError: STALE_BROKER_EPOCH, or another error for the whole request.
            UnreachableError: no controller answered in time.
        """
        of_topic = AlterPartitionRequest.TopicData
        topics: dict[Uuid, AlterPartitionRequest.TopicData] = {}
        for each in wanted:
            topic = topics.setdefault(each.topic_id, of_topic(topic_id=each.topic_id))
            topic.partitions.append(
                of_topic.PartitionData(
                    partition_index=each.partition,
                    leader_epoch=each.leader_epoch,
                    partition_epoch=each.partition_epoch,
                    new_isr_with_epochs=[
                        of_topic.PartitionData.BrokerState(broker_id=member, broker_epoch=epoch)
                        for member, epoch in each.members.items()
                    ],
                )
            )
        request = AlterPartitionRequest(broker_id=self.id, broker_epoch=self.epoch, topics=list(topics.values()))
        answer = await self._client.ask_controller(
            "alterPartition", request, AlterPartitionResponse, min_version=_EPOCHS_FROM
        )
        return {
            (topic.topic_id, each.partition_index): ErrorCode.of(each.error_code)
            for topic in answer.topics
            for each in topic.partitions
        }
