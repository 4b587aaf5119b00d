"""Batches of a transaction wait until its coordinator, a broker of Kafka, knows of the partition (KIP-890).

Before a partition's first batch of a transaction the leader asks the coordinator: a batch that comes late would else
begin a transaction that no coordinator ends. AddPartitionsToTxn verifies that the producer has added the partition; for
newer clients it adds the partition. Requests of one transactional id go on in the order in which they came. Source:
Kafka 4.3.1, AddPartitionsToTxnManager, ReplicaManager.handleProduceAppend.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from kraftcore.plugins.broker.groups.topic import partition_of
from kraftcore.plugins.broker.metadata.cache import MetadataCache
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.broker.producers import Marker
from kraftcore.plugins.broker.producers.state import ProducersBatch
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.plugins.broker.work.deadlines import Deadlines
from kraftcore.ports.transport import Address
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from kraftcore.protocol.schema import Request
from kraftcore.protocol.topics import TRANSACTIONS_TOPIC

_logger = logging.getLogger("kraftcore.broker")
WAITING_MAX, WAITING_OF_ONE_MAX, WAITING_BYTES_MAX = 500, 20, 128 * 1024 * 1024
"""The most requests that wait; the most that wait behind the first of one transactional id; the most bytes of all."""
_BATCHED_SINCE = 4  # version of AddPartitionsToTxn that brokers ask in
_AGAIN_MS, _ASKED_MAX = 20, 6  # add.partitions.to.txn.retry.backoff.ms, up to .max.ms
_KEPT_MAX = 10_000
_ANY = (-1, 2**31)
_UNKNOWN = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


class Client(IntEnum):
    """The kinds of clients, by the version of their requests."""

    OLD = 0
    KNOWS_ABORTABLE = 1
    """The client knows the error TRANSACTION_ABORTABLE (KIP-890)."""
    ADDS_NOTHING = 2
    """The client leaves it to the leaders of partitions to add them to the transaction."""


@dataclass(eq=False, slots=True)
class Guard:
    """A partition about which the coordinator is asked (Kafka's VerificationGuard), until its batch is appended.

    Attributes:
        producer: the id and epoch of the producer of the transaction.
        leader_epoch: the partition's leader epoch when the coordinator was asked.
        is_void: whether a marker has ended the transaction since.
    """

    producer: tuple[int, int]
    leader_epoch: int
    is_void: bool = False


_Errors = Mapping[TopicPartition, ErrorCode]
Verified = Mapping[TopicPartition, Guard]
"""The guards of the partitions that the coordinator has verified as part of the transaction."""
_Then = Callable[[_Errors, Verified], None]
_Done = Callable[[Any], None]


@dataclass(eq=False, slots=True)
class _Asked:
    """A request that waits.

    Attributes:
        transactional_id: the transactional id of the producer.
        batches: the batches of the transaction, by partition.
        client: see `Client`.
        then: goes on with the request, given the refused and the verified partitions.
        guards: the guards of the partitions that the coordinator is asked about.
        elsewhere: the partitions that this broker did not lead when the request came.
        size: about how many bytes of memory the request keeps.
        times: how often the coordinator was asked.
    """

    transactional_id: str
    batches: Mapping[TopicPartition, ProducersBatch]
    client: Client
    then: _Then
    guards: dict[TopicPartition, Guard]
    elsewhere: list[TopicPartition]
    size: int
    times: int = 0


class TransactionGate:
    """Holds a transactional produce until Kafka's transaction coordinator has added the partition (KIP-890).

    Args:
        replicas: the partitions of which this broker has a replica.
        cache: knows the leaders of ``__transaction_state``.
        broker_id: the id of this broker.
        listener: the name of the listener between brokers.
        send: sends a request to another broker, in this version or a later one.
        deadlines: delay the next question to a coordinator.
    """

    def __init__(
        self,
        replicas: Replicas,
        cache: MetadataCache,
        broker_id: int,
        listener: str,
        send: Callable[[Address, Request, int, _Done], None],
        deadlines: Deadlines,
    ) -> None:
        self._replicas = replicas
        self._cache = cache
        self._broker_id = broker_id
        self._listener = listener
        self._send = send
        self._deadlines = deadlines
        self._queues: dict[str, deque[_Asked]] = {}  # behind the request that is asked about
        self._guards: dict[tuple[TopicPartition, int], set[Guard]] = {}  # by partition and producer id
        # Epoch and lowest first sequence of the batches that were asked about, until one is appended: a batch with a
        # higher sequence may not be appended before it.
        self._lowest: dict[tuple[TopicPartition, int], tuple[int, int]] = {}
        self._waiting = self._waiting_bytes = 0

    def admit(
        self,
        transactional_id: str,
        batches: Mapping[TopicPartition, ProducersBatch],
        client: Client,
        then: _Then,
        size: int = 0,
    ) -> None:
        """Have a request go on when it may; NOT_ENOUGH_REPLICAS, which producers retry, if too many wait.

        Args:
            transactional_id: of the producer.
            batches: the batches of the transaction, by partition.
            client: see `Client`.
            then: called once, now or later, with the refused and the verified partitions; the guards of the latter go
                back to ``release``. A partition that is neither belongs to the open transaction already, or this
                broker does not lead it: ``Partition.append`` decides.
            size: about how many bytes of memory the request keeps.
        """
        asked = _Asked(transactional_id, batches, client, then, {}, [], size)
        queue = self._queues.get(transactional_id)
        is_full = self._waiting >= WAITING_MAX or (self._waiting and self._waiting_bytes + size > WAITING_BYTES_MAX)
        if queue is not None:
            if is_full or len(queue) >= WAITING_OF_ONE_MAX:
                self._refuse_without_room(asked)
            else:
                self._wait(asked)
                queue.append(asked)
        elif self._needs_asking(asked):
            if is_full:
                self.release(asked.guards)
                self._refuse_without_room(asked)
            else:
                self._queues[transactional_id] = deque()
                self._wait(asked)
                self._ask(asked)

    def _wait(self, asked: _Asked) -> None:
        self._waiting += 1
        self._waiting_bytes += asked.size

    def _stop_waiting(self, asked: _Asked) -> None:
        self._waiting -= 1
        self._waiting_bytes -= asked.size

    def _refuse_without_room(self, asked: _Asked) -> None:
        """Refuse a request for lack of room; later batches of its producer are refused until it comes again."""
        for name, batch in asked.batches.items():
            replica = self._replicas.all.get(name)
            if replica is not None and not replica.partition.producers.is_in_transaction(
                batch.producer_id, batch.producer_epoch
            ):
                self._note_sequence(name, batch)
        _tell(asked, dict.fromkeys(asked.batches, ErrorCode.NOT_ENOUGH_REPLICAS), {})

    def appended(self, name: TopicPartition, producer_id: int) -> None:
        """Note that a verified batch is in the log, which checks later sequences (Kafka 4.3.1, UnifiedLog)."""
        self._lowest.pop((name, producer_id), None)

    def ended(self, name: TopicPartition, marker: Marker) -> None:
        """Void the guards of a transaction that a marker has ended."""
        key = (name, marker.producer_id)
        for guard in self._guards.get(key, ()):
            guard.is_void = guard.is_void or marker.ends(guard.producer[1])
        lowest = self._lowest.get(key)
        if lowest is not None and marker.ends(lowest[0]):
            del self._lowest[key]

    def release(self, guards: Verified) -> None:
        """Forget the guards of a request that appends nothing more."""
        for name, guard in guards.items():
            key = (name, guard.producer[0])
            others = self._guards.get(key, set())
            others.discard(guard)
            if not others:
                self._guards.pop(key, None)

    def _needs_asking(self, asked: _Asked) -> bool:
        """Whether the coordinator has to be asked about a request; if not, the request goes on."""
        producers = {(each.producer_id, each.producer_epoch) for each in asked.batches.values()}
        if len(producers) > 1:
            _tell(asked, dict.fromkeys(asked.batches, ErrorCode.INVALID_PRODUCER_ID_MAPPING), {})
            return False
        for name, batch in asked.batches.items():
            replica = self._replicas.all.get(name)
            if replica is None or replica.partition.leading is None:
                asked.elsewhere.append(name)  # the append refuses the batch for that reason
                continue
            partition = replica.partition
            if not partition.producers.is_in_transaction(batch.producer_id, batch.producer_epoch):
                guard = Guard((batch.producer_id, batch.producer_epoch), partition.leader_epoch)
                asked.guards[name] = guard
                self._guards.setdefault((name, batch.producer_id), set()).add(guard)
                self._note_sequence(name, batch)
        if not asked.guards:
            _tell(asked, {}, {})
        return bool(asked.guards)

    def _note_sequence(self, name: TopicPartition, batch: ProducersBatch) -> None:
        """Note a batch that is not appended yet: later ones of its producer must not be appended before it."""
        if batch.base_sequence < 0:
            return  # offsets of groups have no sequence
        key = (name, batch.producer_id)
        epoch, first = self._lowest.get(key, (batch.producer_epoch, batch.base_sequence))
        if batch.producer_epoch < epoch:
            return
        self._lowest.pop(key, None)
        if batch.producer_epoch > epoch or batch.base_sequence < first:
            first = batch.base_sequence
        self._lowest[key] = (batch.producer_epoch, first)
        if len(self._lowest) > _KEPT_MAX:
            del self._lowest[next(iter(self._lowest))]

    def _is_out_of_order(self, name: TopicPartition, batch: ProducersBatch, client: Client) -> bool:
        """Whether an earlier batch of the producer is missing (Kafka 4.3.1, ProducerAppendInfo.checkSequence).

        A log that knows the producer in this epoch checks each sequence by itself. In a log without batches of the
        producer, clients that begin an epoch with each transaction (KIP-890) begin at sequence 0.
        """
        replica = self._replicas.all.get(name)
        known = None if replica is None else replica.partition.producers.all.get(batch.producer_id)
        if client is Client.ADDS_NOTHING and batch.base_sequence > 0 and (known is None or not known.batches):
            return True
        if known is not None and known.epoch == batch.producer_epoch:
            return False
        epoch, first = self._lowest.get((name, batch.producer_id), _ANY)
        return epoch == batch.producer_epoch and first < batch.base_sequence

    # --- asking -------------------------------------------------------------------------------------------------------

    def _ask(self, asked: _Asked) -> None:
        asked.times += 1
        try:
            self._send_question(asked)
        except Exception:
            _logger.exception("the coordinator of transactional id %r cannot be asked", asked.transactional_id)
            self._fail(asked, ErrorCode.NETWORK_EXCEPTION)

    def _send_question(self, asked: _Asked) -> None:
        address = self._coordinator(asked.transactional_id)
        if address is None:
            self._fail(asked, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for name in asked.guards:
            topics.setdefault(name.topic, AddPartitionsToTxnTopic(name=name.topic)).partitions.append(name.partition)
        batch = next(iter(asked.batches.values()))
        transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
            transactional_id=asked.transactional_id,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            verify_only=asked.client is not Client.ADDS_NOTHING,
            topics=list(topics.values()),
        )
        request = AddPartitionsToTxnRequest(transactions=[transaction])
        self._send(address, request, _BATCHED_SINCE, lambda answer: self._answered(asked, answer))

    def _coordinator(self, transactional_id: str) -> Address | None:
        """The coordinator's address; None: there is no coordinator, or this broker leads its partition."""
        partitions = self._cache.topics.get(TRANSACTIONS_TOPIC)
        if not partitions:
            return None
        state = partitions.get(partition_of(transactional_id, len(partitions)))
        if state is None or state.leader == self._broker_id:
            return None
        return self._cache.address(state.leader, self._listener)

    def _answered(self, asked: _Asked, answer: AddPartitionsToTxnResponse | Failure) -> None:
        if isinstance(answer, Failure):
            coordinates = answer is not Failure.UNSUPPORTED_VERSION  # a broker of kraftcore does not know the version
            self._fail(asked, ErrorCode.NETWORK_EXCEPTION if coordinates else ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        whole = ErrorCode.of(answer.error_code)
        if whole is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:  # this broker lacks the permission, not the producer
            whole = ErrorCode.INVALID_TXN_STATE
        errors = dict.fromkeys(asked.guards, whole)
        for topic in (each for result in answer.results_by_transaction for each in result.topic_results):
            for told in topic.results_by_partition:
                errors[TopicPartition(topic.name, told.partition_index)] = ErrorCode.of(told.partition_error_code)
        # The coordinator is still ending the previous transaction: ask again, so that the producer need not.
        is_ending = asked.client is Client.ADDS_NOTHING and ErrorCode.CONCURRENT_TRANSACTIONS in errors.values()
        if is_ending and asked.times < _ASKED_MAX:
            self._deadlines.after(_AGAIN_MS, lambda: self._ask(asked))
        else:
            self._resume(asked, errors)

    def _fail(self, asked: _Asked, error: ErrorCode) -> None:
        """Fail a request whose coordinator did not answer; later, so that the next ones do not fail in this call."""
        self._deadlines.after(_AGAIN_MS, lambda: self._resume(asked, dict.fromkeys(asked.guards, error)))

    def _resume(self, asked: _Asked, errors: _Errors) -> None:
        """Go on with a request, then with the requests behind it."""
        self._go_on(asked, errors)
        queue = self._queues[asked.transactional_id]
        while queue:
            following = queue.popleft()
            try:
                needs_asking = self._needs_asking(following)
            except Exception:
                _logger.exception("a request of transactional id %r cannot go on", asked.transactional_id)
                self.release(following.guards)
                _tell(following, dict.fromkeys(following.batches, ErrorCode.UNKNOWN_SERVER_ERROR), {})
                needs_asking = False
            if needs_asking:
                self._ask(following)
                return
            self._stop_waiting(following)
        del self._queues[asked.transactional_id]

    def _go_on(self, asked: _Asked, errors: _Errors) -> None:
        self._stop_waiting(asked)
        refused: dict[TopicPartition, ErrorCode] = {}
        verified: dict[TopicPartition, Guard] = {}
        for name in asked.elsewhere:
            batch, replica = asked.batches[name], self._replicas.all.get(name)
            if replica is not None and replica.partition.leading is not None:  # led by now, but not asked about
                refused[name] = ErrorCode.NOT_LEADER_OR_FOLLOWER
                self._note_sequence(name, batch)
        for name, guard in asked.guards.items():
            error, batch = _as_told(errors[name], asked.client), asked.batches[name]
            replica = self._replicas.all.get(name)
            if error is ErrorCode.NONE:
                if replica is None or replica.partition.leader_epoch != guard.leader_epoch:
                    error = ErrorCode.NOT_LEADER_OR_FOLLOWER
                elif guard.is_void:
                    error = ErrorCode.INVALID_TXN_STATE
                elif self._is_out_of_order(name, batch, asked.client):
                    error = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            if error is not ErrorCode.NONE:
                refused[name] = error
                self.release({name: guard})
            else:
                verified[name] = guard
        _tell(asked, refused, verified)


def _tell(asked: _Asked, refused: _Errors, verified: Verified) -> None:
    """Have a request go on; an error in it is logged, so that the requests behind it go on as well."""
    try:
        asked.then(refused, verified)
    except Exception:
        _logger.exception("a request of transactional id %r cannot go on", asked.transactional_id)


def _as_told(error: ErrorCode, client: Client) -> ErrorCode:
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and client is Client.OLD:
        return ErrorCode.INVALID_TXN_STATE
    if error is ErrorCode.CONCURRENT_TRANSACTIONS and client is Client.ADDS_NOTHING:
        return error
    return ErrorCode.NOT_ENOUGH_REPLICAS if error in _UNKNOWN else error
