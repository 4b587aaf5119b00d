"""The rules that a controller must keep, checked by its answers, images and committed records.

KIP-841         on every image, committed or ahead: no broker that is fenced, shutting down or unregistered leads or is
                in an ISR; the leader is in the ISR; ISRs lie within the replicas, and share no replica with the ELR
epochs          the partition epoch rises with every change, the leader epoch with another leader or fewer replicas; a
                leader from outside ISR and ELR recovers, unless a reassignment ends with it, or the leader before,
                which cannot lead any more, proposed it with the same change
never again     topic ids, blocks of producer ids and broker epochs are given once
same state      images with the same records applied are equal; so are rolled back images of former leaders
whole           of records that must take effect together all are committed, or none; a transaction that ends was
                decided so, from its beginning to its end, and has no effect on followers before its end
acknowledged    the records of an answered request are committed, one by one, and so are all that the decision saw
linearizable    an answer shows everything that was answered before it was asked for
stale           nothing is done for a broker, or for an ISR's member, of another epoch than the registered one
told            AlterPartition answers with the partition's state after its records
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, Final

from kraftcore.core.batch import RecordBatch
from kraftcore.core.uuid import Uuid
from kraftcore.metadata import Broker, Image, Partition, PartitionKey
from kraftcore.metadata.configs import TOPIC
from kraftcore.metadata.partition import NO_LEADER, RECOVERING
from kraftcore.plugins.controller.requests import RequestStep
from kraftcore.protocol.features import LATEST_PRODUCTION
from kraftcore.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse
from kraftcore.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from kraftcore.protocol.messages.describe_configs import DescribeConfigsResponse
from kraftcore.protocol.metadata import decode_metadata_record
from kraftcore.protocol.records.begin_transaction_record import BeginTransactionRecord
from kraftcore.protocol.records.broker_registration_change_record import BrokerRegistrationChangeRecord
from kraftcore.protocol.records.config_record import ConfigRecord
from kraftcore.protocol.records.end_transaction_record import EndTransactionRecord
from kraftcore.protocol.records.partition_change_record import PartitionChangeRecord
from kraftcore.protocol.records.partition_record import PartitionRecord
from kraftcore.protocol.records.producer_ids_record import ProducerIdsRecord
from kraftcore.protocol.records.register_broker_record import RegisterBrokerRecord
from kraftcore.protocol.records.remove_topic_record import RemoveTopicRecord
from kraftcore.protocol.records.topic_record import TopicRecord
from kraftcore.protocol.schema import MetadataRecord, Request, Response
from kraftcore.simulation.checks import Checker, Violation

REGISTER: Final = "retention.ms"
"""A topic's configuration, written and read by administrators to see whether reads are linearizable."""
_ANY_EPOCH: Final = -1
_UNFENCED, _SHUTTING_DOWN = -1, 1


class Rules:
    """Checks the rules in one run.

    Args:
        checker: has the committed records.

    Attributes:
        reference: an image with all committed records.
        end: offset after the last record in it.
    """

    def __init__(self, checker: Checker) -> None:
        self.reference = Image()
        self.end = 0
        self._checker = checker
        self._values: dict[int, bytes] = {}
        self._topic_ids: set[Uuid] = set()
        self._partitions: dict[PartitionKey, list[tuple[int, Partition | None]]] = {}
        self._broker_epochs: dict[int, list[tuple[int, int]]] = {}  # by broker: (offset, epoch)
        self._incarnations: dict[int, Uuid] = {}
        self._blocks: dict[int, int] = {}  # first producer id to the offset that gave it
        self._settings: dict[str, list[tuple[int, str | None]]] = {}  # of each topic's `REGISTER`, by offset
        self._shutting_down: set[tuple[int, int]] = set()
        self._exempt: set[tuple[int, int]] = set()
        self._had_no_elr = False
        self._whole: dict[int, list[Sequence[bytes]]] = {}  # by offset, records that must take effect together
        self._begun: list[tuple[int, Sequence[bytes]]] = []  # of these, those whose first record is committed
        self._transactions: set[tuple[bytes, ...]] = set()  # the decided ones, without their markers
        self._open: list[bytes] = []  # committed records of the open transaction
        self._proposed: dict[PartitionKey, set[tuple[int, int, int, frozenset[int]]]] = {}  # see `proposes`
        self._without: dict[int, bytes] = {}  # by offset, digest of the committed state without an open transaction

    # --- what is committed --------------------------------------------------------------------------------------------

    def committed(self, batch: RecordBatch) -> None:
        """Add a committed batch to the history."""
        image = self.reference
        for offset, value in enumerate(batch.values(), batch.base_offset):
            if value is None:
                raise Violation("same state", f"the record at {offset} is empty")
            self._values[offset] = bytes(value)
            self._check_whole(offset, value)
            record = decode_metadata_record(value)[0]
            self.note(record)
            self._check_transaction(record, bytes(value), offset)
            was_open = image.in_transaction
            image.apply(record, offset)
            self._check_record(record, offset)
            if image.in_transaction:
                continue
            if was_open or isinstance(record, RemoveTopicRecord):
                self._compare_all(offset)
            elif isinstance(record, PartitionRecord | PartitionChangeRecord):
                self._compare(PartitionKey(record.topic_id, record.partition_id), offset)
        self.end = batch.next_offset
        if image.in_transaction:
            self._without[self.end] = digest(image)
        self.check_image("committed", image)

    def applied(self, whose: str, offset: int, found: bytes | None) -> None:
        """Check a follower that has applied everything below ``offset``."""
        if found is not None and found != self._without.get(offset, found):
            raise Violation("whole", f"{whose} shows part of the transaction that is open at {offset}")

    def decided(self, offset: int, values: Sequence[bytes]) -> None:
        """Note records, from ``offset`` on, that a leader decided and that must take effect together."""
        if not isinstance(decode_metadata_record(values[0])[0], BeginTransactionRecord):
            self._whole.setdefault(offset, []).append(values)

    def _check_whole(self, offset: int, value: bytes) -> None:
        going = [(start, values) for start, values in self._begun if offset < start + len(values)]
        kept = [(start, values) for start, values in going if values[offset - start] == value]
        if going and not kept:
            raise Violation("whole", f"of the decision at {going[0][0]} only {offset - going[0][0]} records stand")
        new = [(offset, values) for values in self._whole.pop(offset, ()) if values[0] == value]
        self._begun = kept + new

    def put(self, values: Sequence[bytes]) -> None:
        """Check records that a leader decided and puts into its image."""
        transaction: list[bytes] = []
        for value in values:
            record = decode_metadata_record(value)[0]
            self.note(record)
            if isinstance(record, BeginTransactionRecord):
                transaction = []
            elif isinstance(record, EndTransactionRecord):
                self._transactions.add(tuple(transaction))
            else:
                transaction.append(bytes(value))

    def proposes(self, request: AlterPartitionRequest) -> None:
        """Note the ISRs that a broker proposes, with their leader and partition epochs."""
        for topic in request.topics:
            for each in topic.partitions:
                isr = frozenset(each.new_isr) | {member.broker_id for member in each.new_isr_with_epochs}
                said = (request.broker_id, each.leader_epoch, each.partition_epoch, isr)
                self._proposed.setdefault(PartitionKey(topic.topic_id, each.partition_index), set()).add(said)

    def _check_transaction(self, record: MetadataRecord, value: bytes, offset: int) -> None:
        if isinstance(record, BeginTransactionRecord):
            self._open = []
        elif not isinstance(record, EndTransactionRecord):
            if self.reference.in_transaction:
                self._open.append(value)
        elif tuple(self._open) not in self._transactions:
            raise Violation(
                "whole", f"the transaction that ends at {offset} is {len(self._open)} records of a larger one"
            )

    def note(self, record: MetadataRecord) -> None:
        """Note brokers that are unfenced after a controlled shutdown without registering anew, as Kafka 4.3.1 lets."""
        if not isinstance(record, BrokerRegistrationChangeRecord):
            return
        key = (record.broker_id, record.broker_epoch)
        if record.in_controlled_shutdown == _SHUTTING_DOWN:
            self._shutting_down.add(key)
        if record.fenced == _UNFENCED and key in self._shutting_down:
            self._exempt.add(key)

    def splits(self, values: Sequence[bytes]) -> None:
        """Note the records of a decision that is not atomic and takes several batches.

        A controlled shutdown is written broker first, as in Kafka 4.3.1: with the first batch alone the broker is
        shutting down and still in ISRs, until its next heartbeat if the leader changes there.
        """
        for record in (decode_metadata_record(value)[0] for value in values):
            if isinstance(record, BrokerRegistrationChangeRecord) and record.in_controlled_shutdown == _SHUTTING_DOWN:
                self._exempt.add((record.broker_id, record.broker_epoch))

    def _check_record(self, record: MetadataRecord, offset: int) -> None:
        match record:
            case TopicRecord():
                if record.topic_id in self._topic_ids:
                    raise Violation("never again", f"topic {record.name} gets the id {record.topic_id} of another")
                self._topic_ids.add(record.topic_id)
                self._settings.setdefault(record.name, []).append((offset, None))
            case ConfigRecord():
                if record.resource_type == TOPIC and record.name == REGISTER:
                    self._settings.setdefault(record.resource_name, []).append((offset, record.value))
            case ProducerIdsRecord():
                if record.next_producer_id in self._blocks:
                    raise Violation("never again", f"producer ids up to {record.next_producer_id} are given twice")
                self._blocks[record.next_producer_id] = offset
            case RegisterBrokerRecord():
                self._check_epoch(record, offset)
            case _:
                pass

    def _check_epoch(self, record: RegisterBrokerRecord, offset: int) -> None:
        epochs = self._broker_epochs.setdefault(record.broker_id, [])
        before = self._incarnations.get(record.broker_id)
        last = epochs[-1][1] if epochs else -1
        is_kept = record.broker_epoch == last and before == record.incarnation_id
        if not is_kept and not last < record.broker_epoch <= offset:
            raise Violation("never again", f"{record} at {offset}; the epoch before was {last}, of {before}")
        epochs.append((offset, record.broker_epoch))
        self._incarnations[record.broker_id] = record.incarnation_id

    def _compare_all(self, offset: int) -> None:
        found: dict[PartitionKey, Partition] = {}
        for topic_id in self.reference.topics:
            for number, partition in self.reference.partitions.of_topic(topic_id):
                found[PartitionKey(topic_id, number)] = partition
        for key in [*found, *(key for key in self._partitions if key not in found)]:
            self._compare(key, offset)

    def _compare(self, key: PartitionKey, offset: int) -> None:
        known = self._partitions.setdefault(key, [])
        before = known[-1][1] if known else None
        after = self.reference.partitions.get(*key)
        if before == after:
            return
        known.append((offset, after))
        if before is None or after is None:
            return
        what = f"partition {key[1]} of {key[0]} at {offset}: {before} to {after}"
        if after.partition_epoch <= before.partition_epoch or after.leader_epoch < before.leader_epoch:
            raise Violation("epochs", what)
        is_another = after.leader != before.leader or not set(before.replicas) <= set(after.replicas)
        if is_another and after.leader_epoch == before.leader_epoch:
            raise Violation("epochs", what)
        if before.is_reassigning and after.leader in after.isr:
            return  # the former leader proposed this ISR
        said = (before.leader, before.leader_epoch, before.partition_epoch, frozenset(after.isr))
        if said in self._proposed.get(key, ()) and after.leader in after.isr:
            return  # proposed with this change; the leader's directory may have failed meanwhile
        if (
            after.leader not in (before.leader, NO_LEADER, *before.isr, *before.elr)
            and after.recovery_state != RECOVERING
        ):
            raise Violation("epochs", f"a leader that may lack records does not recover: {what}")

    # --- images -------------------------------------------------------------------------------------------------------

    def check_image(self, whose: str, image: Image) -> None:
        """Check the rules that any image must keep, KIP-841 among them."""
        self._had_no_elr |= not image.features.is_elr_on
        for topic in image.topics.values():
            for number, each in image.partitions.of_topic(topic.id):
                wrong = self._what_is_wrong(image, each)
                if wrong is not None:
                    raise Violation("KIP-841", f"{whose}: {topic.name}-{number} {each}: {wrong}")

    def _what_is_wrong(self, image: Image, each: Partition) -> str | None:
        isr = set(each.isr)
        if len(isr) != len(each.isr) or not isr <= set(each.replicas):
            return "the ISR is not within the replicas"
        if each.leader == NO_LEADER:
            is_kept = self._had_no_elr and len(isr) == 1  # the last ISR stays, without a leader
        else:
            is_kept = False
            if each.leader not in isr:
                return "the leader is not in the ISR"
        for member in each.isr:
            if not is_kept and not self._may_serve(image.brokers.get(member)):
                return f"broker {member} is in the ISR, but fenced, shutting down or not registered"
        if isr & set(each.elr):
            return "somebody is in ISR and ELR"
        if len(each.directories) != len(each.replicas):
            return "directories for other replicas"
        return None

    def _may_serve(self, broker: Broker | None) -> bool:
        if broker is None or broker.is_fenced:
            return False
        return not broker.is_shutting_down or (broker.id, broker.epoch) in self._exempt

    # --- answers ------------------------------------------------------------------------------------------------------

    def answered(
        self, asked: RequestStep, request: Request, response: Response, values: Sequence[bytes], known: int
    ) -> None:
        """Check the answer to a request that was carried out.

        Args:
            asked: the controller's step.
            request: its body.
            response: the answer.
            values: the records that were decided.
            known: an offset: everything below was visible in an answer before this request was sent.
        """
        offset = asked.decided_at
        if offset is None:
            return
        end = offset + len(values)
        for at, value in enumerate(values, offset):
            if self._values.get(at) != value:
                raise Violation("acknowledged", f"{response} is told; the record at {at} is not committed")
        if end > self._checker.end:
            raise Violation("acknowledged", f"{response} is told; it saw {end}, {self._checker.end} is committed")
        if asked.is_linearizable and offset < known:
            raise Violation("linearizable", f"{response} shows what there was at {offset}; {known} was answered before")
        self._checker.acknowledged_end = max(self._checker.acknowledged_end, end if values else 0)
        self._check_sender(request, response, offset)
        if isinstance(response, AllocateProducerIdsResponse):
            self._check_block(response, offset)
        elif isinstance(response, AlterPartitionResponse) and isinstance(request, AlterPartitionRequest):
            self._check_told(request, response, offset, end)
        elif isinstance(response, DescribeConfigsResponse):
            self._check_read(response, known)

    def _epoch_at(self, broker_id: int, offset: int) -> int | None:
        known = self._broker_epochs.get(broker_id, [])
        at = bisect_left(known, (offset, -1))
        return known[at - 1][1] if at else None

    def _check_sender(self, request: Any, response: Any, offset: int) -> None:
        epoch = getattr(request, "broker_epoch", None)
        if epoch is None or response.error_code:
            return
        registered = self._epoch_at(request.broker_id, offset)
        if registered != epoch:
            raise Violation("stale", f"{request} is carried out at {offset}, where the epoch is {registered}")

    def _check_block(self, response: AllocateProducerIdsResponse, offset: int) -> None:
        if response.error_code:
            return
        given = self._blocks.get(response.producer_id_start + response.producer_id_len)
        if given != offset:
            raise Violation("never again", f"{response} at {offset}: that block was given at {given}")

    def _check_told(
        self, request: AlterPartitionRequest, response: AlterPartitionResponse, offset: int, end: int
    ) -> None:
        wanted = {(topic.topic_id, each.partition_index): each for topic in request.topics for each in topic.partitions}
        for topic in response.topics:
            for each in topic.partitions:
                if each.error_code:
                    continue
                key = PartitionKey(topic.topic_id, each.partition_index)
                history = self._partitions.get(key, [])
                at = bisect_left(history, end, key=lambda entry: entry[0])
                state = history[at - 1][1] if at else None
                told = (each.leader_id, each.leader_epoch, each.partition_epoch, set(each.isr))
                if state is None or told != (state.leader, state.leader_epoch, state.partition_epoch, set(state.isr)):
                    raise Violation("told", f"{each} of {key}, which is {state}")
                self._check_members(wanted[key].new_isr_with_epochs, offset)

    def _check_members(self, members: Iterable[Any], offset: int) -> None:
        for member in members:
            registered = self._epoch_at(member.broker_id, offset)
            if member.broker_epoch not in (_ANY_EPOCH, registered):
                raise Violation("stale", f"{member} is in an ISR at {offset}, where its epoch is {registered}")

    def _check_read(self, response: DescribeConfigsResponse, known: int) -> None:
        for result in response.results:
            if result.error_code or result.resource_type != TOPIC:
                continue
            value = next((each.value for each in result.configs if each.name == REGISTER), None)
            history = self._settings.get(result.resource_name, [])
            at = bisect_left(history, known, key=lambda entry: entry[0])
            may_be = [shown for _, shown in history[max(at - 1, 0) :]]
            if None not in may_be and value not in may_be:
                raise Violation(
                    "linearizable", f"{result.resource_name} is said to have {value}, {known} was answered: {history}"
                )


def digest(image: Image) -> bytes:
    """A digest that is the same for equal images."""
    hasher = blake2b(repr(sorted(image.features.items())).encode(), digest_size=8)
    for value in sorted(image.freeze().values(LATEST_PRODUCTION)):
        hasher.update(value)
    return hasher.digest()
