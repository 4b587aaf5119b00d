"""``__transaction_state``: brokers of Kafka have to lead it, since this broker coordinates no transactions.

A broker that offers DescribeTransactions coordinates transactions. This broker makes the topic with such brokers as the
first replicas of each partition; other brokers follow. A partition that this broker leads nevertheless is handed over,
whether a client asks or not: a transaction whose client has gone holds consumers back until a coordinator ends it.
Source: Kafka 4.3.1, AutoTopicCreationManager, TransactionLogConfig.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import trio

from kraftcore.config.properties import Properties, read_integer
from kraftcore.plugins.broker.groups.topic import partition_of
from kraftcore.plugins.broker.metadata.cache import MetadataCache
from kraftcore.plugins.broker.partition.state import refused
from kraftcore.plugins.broker.work.deadlines import REQUEST_TIMEOUT_MS
from kraftcore.plugins.broker.work.tasks import Background
from kraftcore.ports.complaints import Complaints
from kraftcore.ports.transport import Address
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftcore.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from kraftcore.protocol.messages.describe_transactions import DescribeTransactionsRequest
from kraftcore.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from kraftcore.protocol.messages.update_metadata import UpdateMetadataPartitionState
from kraftcore.protocol.registry import api_of
from kraftcore.protocol.schema import Request
from kraftcore.protocol.topics import TRANSACTIONS_TOPIC

KNOWN_S = 5.0
"""How long brokers have to say whether they coordinate transactions, and how long that counts."""
_AGAIN_S = 5.0  # after a change that was refused
_INT_MAX = 2**31 - 1
_OF_COORDINATORS = api_of(DescribeTransactionsRequest).key
_AS_WANTED = {
    ErrorCode.NONE,
    ErrorCode.TOPIC_ALREADY_EXISTS,
    ErrorCode.ELECTION_NOT_NEEDED,
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
}
_logger = logging.getLogger("kraftcore.broker")

# field -> (property, lowest, highest); Kafka 4.3.1, TransactionLogConfig
_NUMBERS: Mapping[str, tuple[str, int, int]] = {
    "partitions": ("transaction.state.log.num.partitions", 1, _INT_MAX),
    "replication_factor": ("transaction.state.log.replication.factor", 1, 2**15 - 1),
    "min_isr": ("transaction.state.log.min.isr", 1, _INT_MAX),
    "segment_bytes": ("transaction.state.log.segment.bytes", 1, _INT_MAX),
}
PROPERTIES = frozenset(key for key, _, _ in _NUMBERS.values())
"""Kafka's properties that say how the topic is made."""


@dataclass(frozen=True, slots=True)
class TransactionLogSettings:
    """How the topic is created; later changes of these settings do not change it.

    Attributes:
        partitions: number of its partitions (transaction.state.log.num.partitions).
        replication_factor: replicas of each partition (transaction.state.log.replication.factor).
        min_isr: the topic's ``min.insync.replicas`` (transaction.state.log.min.isr).
        segment_bytes: the topic's ``segment.bytes`` (transaction.state.log.segment.bytes).
    """

    partitions: int = 50
    replication_factor: int = 3
    min_isr: int = 2
    segment_bytes: int = 100 * 1024**2


def read_transaction_log_settings(properties: Properties) -> TransactionLogSettings:
    """The settings in a server's properties.

    Raises:
        ConfigError: a value is no number, or out of range.
    """
    return TransactionLogSettings(
        **{
            name: read_integer(properties, key, low, high)
            for name, (key, low, high) in _NUMBERS.items()
            if key in properties
        }
    )


class TransactionsTopic:
    """Makes ``__transaction_state`` with brokers of Kafka as its leaders: kraftcore's coordinate no transactions.

    Args:
        settings: how it is made.
        cache: knows who is alive.
        broker_id: the id of this broker.
        listener: the name of the listener between brokers.
        send: sends a request to another broker.
        ask_controller: sends a request to the active controller.
        background: where others are asked.

    Attributes:
        broker_id: as given.
    """

    def __init__(
        self,
        settings: TransactionLogSettings,
        cache: MetadataCache,
        broker_id: int,
        listener: str,
        send: Callable[[Address, Request, int, Callable[[Any], None]], None],
        ask_controller: Callable[[Any], Awaitable[Any]],
        background: Background,
    ) -> None:
        self._settings = settings
        self._cache = cache
        self.broker_id = broker_id
        self._listener = listener
        self._send = send
        self._ask_controller = ask_controller
        self._background = background
        self._known: frozenset[int] | None = None
        self._known_of: frozenset[tuple[int, int]] | None = None  # the brokers that there were; None: one was silent
        self._known_until_s = 0.0
        self._not_before_s = 0.0  # when `hand_over` may begin again
        self._is_asking_brokers = False
        self._is_changing = False
        self._complain = Complaints(_logger.warning, trio.current_time)

    def may_be_coordinated(self, transactional_id: str) -> bool:
        """Whether another broker leads a transactional id's partition; False: nobody will that coordinates it.

        Where the topic is missing it is created, and where this broker leads the partition another one is to lead it.

        Raises:
            RefusedError: COORDINATOR_NOT_AVAILABLE: another broker may coordinate it soon.
        """
        partitions = self._cache.topics.get(TRANSACTIONS_TOPIC)
        state = None if not partitions else partitions.get(partition_of(transactional_id, len(partitions)))
        if state is not None and state.leader != self.broker_id:
            return True
        found = self._coordinators()
        if found is None:
            raise refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "brokers are being asked who coordinates transactions")
        if found:
            self._change(found, partitions or {})
            raise refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{TRANSACTIONS_TOPIC} is being made, or handed over")
        if state is not None and not all(self._cache.is_alive(each) for each in state.replicas):
            raise refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the replica that may coordinate it is not alive")
        return False

    async def hand_over(self) -> None:
        """Hand the partitions that this broker leads over to brokers of Kafka, where there are any; a periodic duty."""
        partitions = self._cache.topics.get(TRANSACTIONS_TOPIC, {})
        if trio.current_time() < self._not_before_s or all(
            each.leader != self.broker_id for each in partitions.values()
        ):
            return
        if not self._known and self._known_of == self._incarnations():
            return  # nobody coordinates, until another broker comes
        found = self._coordinators()
        if found:
            self._change(found, partitions)

    def _incarnations(self) -> frozenset[tuple[int, int]]:
        """Ids and epochs of the live brokers: one that comes back under its id may be Kafka's or kraftcore's."""
        return frozenset((each.id, each.epoch) for each in self._cache.brokers.values())

    def _coordinators(self) -> frozenset[int] | None:
        """Ids of the brokers alive that coordinate transactions; None: not known yet, they are being asked."""
        if len(self._cache.brokers) <= 1:  # this broker is alone
            return frozenset()
        if trio.current_time() >= self._known_until_s or self._known_of not in (None, self._incarnations()):
            if not self._is_asking_brokers and not self._background.is_full:
                self._is_asking_brokers = True
                self._background.start(self._ask_brokers)
            return None
        return self._known

    async def _ask_brokers(self) -> None:
        found: dict[int, bool | None] = {}
        asked = self._incarnations()

        async def ask(broker_id: int, address: Address) -> None:
            found[broker_id] = await self.coordinates(address)

        try:
            others = [each for each in self._cache.brokers_on(self._listener) if each[0].id != self.broker_id]
            with trio.move_on_after(KNOWN_S):  # a broker may hang
                async with trio.open_nursery() as nursery:
                    for broker, address in others:
                        nursery.start_soon(ask, broker.id, address)
            self._known = frozenset(broker for broker, coordinates in found.items() if coordinates)
            self._known_of = asked if len(found) == len(others) and None not in found.values() else None
            self._known_until_s = trio.current_time() + KNOWN_S
        finally:
            self._is_asking_brokers = False

    async def coordinates(self, address: Address) -> bool | None:
        """Whether the broker there coordinates transactions, as its ApiVersions says; None: it did not answer."""
        answered = trio.Event()
        found: bool | None = None

        def done(answer: ApiVersionsResponse | Failure) -> None:
            nonlocal found
            if not isinstance(answer, Failure):
                found = any(each.api_key == _OF_COORDINATORS for each in answer.api_keys)
            answered.set()

        self._send(address, ApiVersionsRequest(), 0, done)
        await answered.wait()
        return found

    # --- making it, and handing it over -------------------------------------------------------------------------------

    def _change(self, coordinators: frozenset[int], partitions: Mapping[int, UpdateMetadataPartitionState]) -> None:
        """Make the topic with these leaders, or hand over the partitions that this broker leads; clients ask again."""
        if self._is_changing or self._background.is_full:
            return
        found = sorted(coordinators)
        requests = self._reassignments(found, partitions) if partitions else [self._creation(found)]
        if len(self._cache.brokers) < self._settings.replication_factor and not partitions:
            needed = f"{self._settings.replication_factor} brokers (transaction.state.log.replication.factor)"
            self._complain("few", f"{TRANSACTIONS_TOPIC} needs {needed}, {len(self._cache.brokers)} are alive")
        elif requests:
            self._is_changing = True
            self._background.start(lambda: self._ask_for_changes(requests))

    async def _ask_for_changes(self, requests: list[Request]) -> None:
        try:
            for request in requests:
                answer = await self._ask_controller(request)
                errors = [str(answer)] if isinstance(answer, Failure) else sorted(_errors(answer))
                if errors:
                    self._not_before_s = trio.current_time() + _AGAIN_S
                for error in errors:
                    self._complain(error, f"{type(request).__name__} of {TRANSACTIONS_TOPIC}: {error}")
        finally:
            self._is_changing = False

    def _creation(self, coordinators: list[int]) -> Request:
        settings = self._settings
        others = sorted(set(self._cache.brokers).difference(coordinators))
        kind = CreateTopicsRequest.CreatableTopic
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(settings.min_isr),
            "segment.bytes": str(settings.segment_bytes),
            "unclean.leader.election.enable": "false",
        }
        topic = kind(
            name=TRANSACTIONS_TOPIC,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                kind.CreatableReplicaAssignment(
                    partition_index=number,
                    broker_ids=[*_from(coordinators, number), *_from(others, number)][: settings.replication_factor],
                )
                for number in range(settings.partitions)
            ],
            configs=[kind.CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
        )
        return CreateTopicsRequest(topics=[topic], timeout_ms=REQUEST_TIMEOUT_MS)

    def _reassignments(
        self, coordinators: list[int], partitions: Mapping[int, UpdateMetadataPartitionState]
    ) -> list[Request]:
        """Make a broker of Kafka the first replica of each partition that this broker leads, and have it lead."""
        kind = AlterPartitionReassignmentsRequest.ReassignableTopic
        moves = []
        elected = []
        for number, state in sorted(partitions.items()):
            known = [each for each in state.replicas if each in coordinators]
            known.sort(key=lambda each: each not in state.isr)  # those that can lead at once come first
            if state.leader != self.broker_id or not (known or self._cache.is_alive(state.replicas[0])):
                continue  # a replica that is not there may coordinate, and leads again when it comes back
            if known and state.replicas[0] == known[0]:
                elected.append(number)
                continue
            others = [each for each in state.replicas if each not in known]
            wanted = [*(known or _from(coordinators, number)[:1]), *others][: len(state.replicas)]
            moves.append(kind.ReassignablePartition(partition_index=number, replicas=wanted))
        requests: list[Request] = []
        if moves:
            topic = kind(name=TRANSACTIONS_TOPIC, partitions=moves)
            requests.append(AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=REQUEST_TIMEOUT_MS))
        if elected:
            election = ElectLeadersRequest.TopicPartitions(topic=TRANSACTIONS_TOPIC, partitions=elected)
            requests.append(ElectLeadersRequest(topic_partitions=[election], timeout_ms=REQUEST_TIMEOUT_MS))
        return requests


def _errors(answer: Any) -> set[str]:
    """The errors in an answer, without those of changes that are made already or have to wait."""
    codes: set[int] = set()
    if isinstance(answer, CreateTopicsResponse):
        codes = {each.error_code for each in answer.topics}
    elif isinstance(answer, AlterPartitionReassignmentsResponse):
        codes = {answer.error_code, *(each.error_code for told in answer.responses for each in told.partitions)}
    elif isinstance(answer, ElectLeadersResponse):
        parts = (each for told in answer.replica_election_results for each in told.partition_result)
        codes = {answer.error_code, *(each.error_code for each in parts)}
    return {ErrorCode.of(code).name for code in codes if code not in _AS_WANTED}


def _from(brokers: list[int], number: int) -> list[int]:
    """All brokers, beginning with another one for each partition."""
    begin = number % len(brokers) if brokers else 0
    return brokers[begin:] + brokers[:begin]
