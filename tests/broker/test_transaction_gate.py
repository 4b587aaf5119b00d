"""What is written in a transaction waits for its coordinator, in order, and whatever becomes of that."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kraftcore.plugins.broker.api import not_coordinator, transaction_gate
from kraftcore.plugins.broker.api.transaction_gate import Client, TransactionGate
from kraftcore.plugins.broker.groups.topic import partition_of
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.broker.producers import Marker
from kraftcore.plugins.broker.work.deadlines import Deadlines
from kraftcore.ports.transport import Address
from kraftcore.protocol.error_codes import ErrorCode as E
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kraftcore.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from kraftcore.protocol.messages.end_txn import EndTxnRequest

OURS, THEIRS, ID, STRANGER = 1, 2, "x", "z"
T, U = TopicPartition("t", 0), TopicPartition("u", 1)
ADDRESS = Address("theirs", 9092)


class Rig:
    """A gate; the partitions t-0 and u-1, which we lead; the time.

    Attributes:
        open: (partition, producer id, epoch) of transactions that are open.
        asked: what the coordinator was asked, with whoever waits for the answer.
        told: name of the request and what is refused of it, in the order in which requests went on.
    """

    def __init__(self, coordinator=THEIRS):
        self.open = set()
        self.known = {}  # by producer id, what the log of every partition has
        self.asked = []
        self.told = []
        self.now = 0.0
        self.deadlines = Deadlines(lambda: self.now)
        self.leaderships = {
            name: SimpleNamespace(leading=object(), leader_epoch=5, producers=self._producers(name)) for name in (T, U)
        }
        replicas = SimpleNamespace(
            all={name: SimpleNamespace(partition=each) for name, each in self.leaderships.items()}
        )
        states = {0: SimpleNamespace(leader=coordinator), 1: SimpleNamespace(leader=99)}
        cache = SimpleNamespace(
            topics={"__transaction_state": states} if coordinator is not None else {},
            address=lambda broker, listener: ADDRESS if broker == THEIRS else None,
        )
        self.gate = TransactionGate(replicas, cache, OURS, "PLAINTEXT", self._send, self.deadlines)

    def _producers(self, name):
        return SimpleNamespace(
            is_in_transaction=lambda producer, epoch: (name, producer, epoch) in self.open, all=self.known
        )

    def _send(self, address, request, min_version, done):
        assert (address, min_version) == (ADDRESS, 4)
        self.asked.append((request.transactions[0], done))

    def produce(
        self,
        label,
        *names,
        client=Client.ADDS_NOTHING,
        epoch=0,
        sequence=0,
        transactional_id=ID,
        producer=7,
        size=0,
    ):
        batch = SimpleNamespace(producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
        then = lambda refusals, verified: self.told.append((label, refusals))  # noqa: E731
        self.gate.admit(transactional_id, dict.fromkeys(names, batch), client, then, size)

    def answer(self, *codes, error=E.NONE):
        transaction, done = self.asked.pop(0)
        left = list(codes)
        topics = [
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=left.pop(0))
                    for number in topic.partitions
                ],
            )
            for topic in transaction.topics
            if left
        ]
        kind = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
        done(
            AddPartitionsToTxnResponse(
                error_code=error, results_by_transaction=[kind(transactional_id=ID, topic_results=topics)]
            )
        )

    def fail(self, failure):
        self.asked.pop(0)[1](failure)

    def wait(self, seconds=0.021):
        self.now += seconds
        self.deadlines.run_due()


def test_it_hashes_to_the_partition_with_a_coordinator():
    assert partition_of(ID, 2) == partition_of(STRANGER, 2) == 0


@pytest.mark.parametrize("client", list(Client))
def test_a_coordinator_is_asked_once_a_transaction_and_partition(client):
    rig = Rig()
    rig.produce("first", T, U, client=client)
    [(transaction, _)] = rig.asked
    assert (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch) == (ID, 7, 0)
    assert transaction.verify_only is (client is not Client.ADDS_NOTHING)
    assert {(each.name, *each.partitions) for each in transaction.topics} == {("t", 0), ("u", 1)}
    rig.answer(E.NONE, E.NONE)
    rig.open |= {(T, 7, 0), (U, 7, 0)}
    rig.produce("second", T, sequence=1)
    assert (rig.told, rig.asked) == ([("first", {}), ("second", {})], [])
    rig.produce("next", T, epoch=1)
    assert len(rig.asked) == 1


def test_requests_of_a_producer_go_on_in_the_order_in_which_they_came():
    rig = Rig()
    rig.produce("first", T)
    rig.produce("second", T, sequence=1)
    rig.produce("elsewhere", U, sequence=0)
    rig.produce("stranger", T, transactional_id=STRANGER, producer=8)
    assert rig.told == []
    rig.open.add((T, 7, 0))  # as soon as the first one is appended
    [first, _] = rig.asked
    assert first[0].transactional_id == ID
    rig.answer(E.NONE)
    assert rig.told == [("first", {}), ("second", {})]
    rig.answer(E.NONE)  # the stranger waits for nobody
    assert rig.told[-1] == ("stranger", {})
    rig.answer(E.NONE)
    assert rig.told[-1] == ("elsewhere", {})


def test_what_overtook_a_batch_that_was_not_let_in_waits_for_it():
    rig = Rig()
    rig.produce("first", T)
    rig.produce("second", T, sequence=1)
    rig.answer(E.NOT_COORDINATOR)
    rig.answer(E.NONE)
    assert rig.told == [("first", {T: E.NOT_ENOUGH_REPLICAS}), ("second", {T: E.OUT_OF_ORDER_SEQUENCE_NUMBER})]
    rig.produce("first again", T)
    rig.answer(E.NONE)
    assert rig.told[-1] == ("first again", {})


@pytest.mark.parametrize(
    ("client", "code", "told"),
    [
        (Client.ADDS_NOTHING, E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH),
        (Client.ADDS_NOTHING, E.INVALID_TXN_STATE, E.INVALID_TXN_STATE),
        (Client.OLD, E.TRANSACTION_ABORTABLE, E.INVALID_TXN_STATE),
        (Client.KNOWS_ABORTABLE, E.TRANSACTION_ABORTABLE, E.TRANSACTION_ABORTABLE),
        (Client.KNOWS_ABORTABLE, E.CONCURRENT_TRANSACTIONS, E.NOT_ENOUGH_REPLICAS),
        (Client.ADDS_NOTHING, E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_ENOUGH_REPLICAS),
        (Client.ADDS_NOTHING, E.INVALID_PRODUCER_ID_MAPPING, E.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_producers_are_told_what_they_know(client, code, told):
    """Kafka 4.3.1, AddPartitionsToTxnManager and ReplicaManager.handleProduceAppend."""
    rig = Rig()
    rig.produce("one", T, U, client=client)
    rig.answer(code, E.NONE)
    assert rig.told == [("one", {T: told})]


def test_errors_of_the_whole_request_and_no_answers():
    rig = Rig()
    for error, told in ((E.CLUSTER_AUTHORIZATION_FAILED, E.INVALID_TXN_STATE), (E.NONE, None)):
        rig.produce("one", T)
        rig.answer(error=error)
        assert rig.told.pop() == ("one", {} if told is None else {T: told})
    for failure in (Failure.TIMED_OUT, Failure.UNSUPPORTED_VERSION):
        rig.produce("one", T)
        rig.fail(failure)
        rig.wait()
        assert rig.told.pop() == ("one", {T: E.NOT_ENOUGH_REPLICAS})


@pytest.mark.parametrize("coordinator", [None, OURS, 99])
def test_nobody_coordinates(coordinator):
    rig = Rig(coordinator)
    for label in ("first", "second"):
        rig.produce(label, T)
    for _ in range(2):
        rig.wait()
    assert rig.told == [(label, {T: E.NOT_ENOUGH_REPLICAS}) for label in ("first", "second")]
    assert rig.asked == []


def test_a_transaction_that_is_being_ended_is_asked_for_again_for_a_moment():
    rig = Rig()
    rig.produce("one", T)
    for _ in range(5):
        rig.answer(E.CONCURRENT_TRANSACTIONS)
        assert (rig.told, rig.asked) == ([], [])
        rig.wait()
    rig.answer(E.CONCURRENT_TRANSACTIONS)
    assert rig.told == [("one", {T: E.CONCURRENT_TRANSACTIONS})]


@pytest.mark.parametrize(
    ("marker_epoch", "version", "told"),
    [
        (3, 0, {T: E.INVALID_TXN_STATE}),
        (2, 0, {}),
        (3, 2, {}),  # it ended the transaction before, which had epoch 2
        (4, 2, {T: E.INVALID_TXN_STATE}),
    ],
)
def test_a_marker_while_the_coordinator_is_asked(marker_epoch, version, told):
    rig = Rig()
    rig.produce("one", T, epoch=3)
    rig.gate.ended(T, Marker(7, marker_epoch, 0, True, version))
    rig.answer(E.NONE)
    assert rig.told.pop() == ("one", told)


def test_a_transaction_has_the_last_epoch_there_is():
    rig = Rig()
    rig.produce("one", T, epoch=2**15 - 1)
    rig.gate.ended(T, Marker(7, 2**15 - 1, 0, True, 2))
    rig.answer(E.NONE)
    assert rig.told.pop() == ("one", {T: E.INVALID_TXN_STATE})


def test_another_leadership_while_the_coordinator_is_asked():
    rig = Rig()
    rig.produce("moved", T)
    rig.leaderships[T].leader_epoch += 1
    rig.answer(E.NONE)
    assert rig.told.pop() == ("moved", {T: E.NOT_LEADER_OR_FOLLOWER})


def test_what_is_not_led_here_is_not_asked_about_and_producers_are_not_mixed():
    rig = Rig()
    rig.leaderships[T].leading = None
    rig.produce("elsewhere", T, TopicPartition("nowhere", 0))
    assert rig.told.pop() == ("elsewhere", {})
    mixed = {
        name: SimpleNamespace(producer_id=number, producer_epoch=0, base_sequence=0)
        for number, name in enumerate((T, U))
    }
    rig.gate.admit(ID, mixed, Client.ADDS_NOTHING, lambda refusals, verified: rig.told.append(refusals))
    assert rig.told == [dict.fromkeys((T, U), E.INVALID_PRODUCER_ID_MAPPING)]
    assert rig.asked == []


def test_an_error_of_one_who_waits_holds_up_nobody(caplog):
    def fail(refusals, verified):
        raise ValueError("broken")

    rig = Rig()
    batch = SimpleNamespace(producer_id=7, producer_epoch=0, base_sequence=0)
    rig.gate.admit(ID, {T: batch}, Client.ADDS_NOTHING, fail)
    rig.produce("second", T)
    rig.answer(E.NONE)
    rig.answer(E.NONE)
    assert rig.told == [("second", {})]
    assert "cannot go on" in caplog.text


def test_who_cannot_be_looked_at_holds_up_nobody(caplog):
    rig = Rig()
    rig.produce("first", T)
    rig.produce("second", T)
    rig.produce("third", T)
    found, rig.leaderships[T].producers = rig.leaderships[T].producers, SimpleNamespace(all={})
    rig.answer(E.NONE)
    assert rig.told == [("first", {})] + [(label, {T: E.UNKNOWN_SERVER_ERROR}) for label in ("second", "third")]
    assert "cannot go on" in caplog.text
    rig.leaderships[T].producers = found
    rig.produce("fourth", T)
    rig.answer(E.NONE)
    assert rig.told[-1] == ("fourth", {})


def test_a_question_that_cannot_be_sent_is_refused_like_one_without_an_answer(caplog):
    rig = Rig()
    rig.asked = None  # sending raises
    rig.produce("first", T)
    rig.wait()
    assert rig.told == [("first", {T: E.NOT_ENOUGH_REPLICAS})]
    assert "cannot be asked" in caplog.text


def test_anothers_transactional_id_voids_nothing():
    rig = Rig()
    rig.produce("ours", T)
    rig.produce("theirs", T, transactional_id=STRANGER)
    rig.answer(E.NONE)
    rig.answer(E.INVALID_PRODUCER_ID_MAPPING)
    assert rig.told == [("ours", {}), ("theirs", {T: E.INVALID_PRODUCER_ID_MAPPING})]
    rig.produce("ours", T)
    rig.produce("theirs", T, transactional_id=STRANGER)
    rig.gate.ended(T, Marker(7, 0, 0, True))
    for _ in range(2):
        rig.answer(E.NONE)
    assert [refusals for _, refusals in rig.told[2:]] == [{T: E.INVALID_TXN_STATE}] * 2


def test_a_batch_of_an_older_epoch_makes_no_later_one_go_first():
    rig = Rig()
    rig.produce("first", T, epoch=1)
    rig.produce("second", T, epoch=1, sequence=1)
    rig.produce("old", T, epoch=0, sequence=9, transactional_id=STRANGER)
    first, old = rig.asked
    rig.asked[:] = [first]
    rig.answer(E.NOT_COORDINATOR)
    rig.answer(E.NONE)
    assert rig.told == [("first", {T: E.NOT_ENOUGH_REPLICAS}), ("second", {T: E.OUT_OF_ORDER_SEQUENCE_NUMBER})]
    rig.asked[:] = [old]
    rig.answer(E.PRODUCER_FENCED)
    assert rig.told[-1] == ("old", {T: E.INVALID_PRODUCER_EPOCH})


def test_a_log_that_knows_the_producer_says_what_comes_next():
    """The first one was refused here, and appended where the partition was led meanwhile."""
    rig = Rig()
    rig.produce("first", T)
    rig.answer(E.NOT_COORDINATOR)
    rig.known[7] = SimpleNamespace(epoch=0, batches=[object()])
    rig.produce("of the next transaction", T, sequence=31)
    rig.answer(E.NONE)
    assert rig.told == [("first", AWAY), ("of the next transaction", {})]
    rig.known[7] = SimpleNamespace(epoch=1, batches=[object()])
    rig.produce("of an epoch it does not know", T, sequence=62)
    rig.answer(E.NONE)
    assert rig.told[-1] == ("of an epoch it does not know", {T: E.OUT_OF_ORDER_SEQUENCE_NUMBER})


@pytest.mark.parametrize("client", list(Client))
def test_where_a_log_has_nothing_of_a_producer_those_that_begin_epochs_begin_at_zero(client):
    """Kafka 4.3.1, ProducerAppendInfo.checkSequence."""
    rig = Rig()
    told = {T: E.OUT_OF_ORDER_SEQUENCE_NUMBER} if client is Client.ADDS_NOTHING else {}
    rig.produce("fifth", T, sequence=5, client=client)
    rig.answer(E.NONE)
    rig.known[7] = SimpleNamespace(epoch=0, batches=[])  # of a marker
    rig.produce("sixth", T, sequence=6, client=client)
    rig.answer(E.NONE)
    rig.produce("first", T, sequence=0, client=client)
    rig.answer(E.NONE)
    assert rig.told == [("fifth", told), ("sixth", told), ("first", {})]


AWAY = {T: E.NOT_ENOUGH_REPLICAS}


def test_so_many_wait_and_no_more(monkeypatch):
    monkeypatch.setattr(transaction_gate, "WAITING_MAX", 3)
    rig = Rig()
    for label in "abcd":
        rig.produce(label, T)
    rig.produce("stranger", T, transactional_id=STRANGER)
    assert rig.told == [("d", AWAY), ("stranger", AWAY)]
    assert len(rig.asked) == 1
    rig.open.add((T, 7, 0))
    rig.produce("it need not wait", T, transactional_id=STRANGER)
    rig.answer(E.NONE)
    assert [label for label, _ in rig.told[2:]] == ["it need not wait", "a", "b", "c"]
    rig.open.clear()
    rig.produce("d", T)
    assert len(rig.asked) == 1


def test_one_transactional_id_leaves_room_for_others(monkeypatch):
    monkeypatch.setattr(transaction_gate, "WAITING_OF_ONE_MAX", 2)
    rig = Rig()
    for label in "abcd":
        rig.produce(label, T)
    rig.produce("stranger", T, transactional_id=STRANGER, producer=8)
    assert rig.told == [("d", AWAY)]
    assert len(rig.asked) == 2


def test_what_waits_has_so_many_bytes(monkeypatch):
    monkeypatch.setattr(transaction_gate, "WAITING_BYTES_MAX", 100)
    rig = Rig()
    rig.produce("large and alone", T, size=1000)
    rig.answer(E.NONE)
    rig.produce("a", T, size=60)
    rig.produce("b", T, size=60)
    rig.produce("c", T, size=40)
    assert rig.told == [("large and alone", {}), ("b", AWAY)]
    rig.answer(E.NONE)
    rig.answer(E.NONE)
    rig.produce("b", T, size=60)
    assert len(rig.asked) == 1


def test_what_comes_behind_one_that_had_no_room_waits_for_it(monkeypatch):
    monkeypatch.setattr(transaction_gate, "WAITING_MAX", 1)
    rig = Rig()
    rig.produce("stranger", U, transactional_id=STRANGER, producer=8)
    rig.produce("first", T)
    rig.answer(E.NONE)
    rig.produce("second", T, sequence=1)
    rig.answer(E.NONE)
    assert rig.told[0] == ("first", AWAY)
    assert rig.told[-1] == ("second", {T: E.OUT_OF_ORDER_SEQUENCE_NUMBER})


def test_ours_is_no_coordinator_and_says_so_of_everything_it_is_asked():
    context = SimpleNamespace(version=5)
    topics = [AddPartitionsToTxnTopic(name="t", partitions=[0, 2])]
    transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(transactional_id=ID, topics=topics)
    respond = not_coordinator.AddPartitionsToTxn().respond
    [told] = respond(AddPartitionsToTxnRequest(transactions=[transaction]), context).results_by_transaction
    context.version = 3
    [topic] = respond(AddPartitionsToTxnRequest(v3_and_below_topics=topics), context).results_by_topic_v3_and_below
    assert told.transactional_id == ID
    for each in (told.topic_results[0], topic):
        assert [(part.partition_index, part.partition_error_code) for part in each.results_by_partition] == [
            (0, E.NOT_COORDINATOR),
            (2, E.NOT_COORDINATOR),
        ]
    assert not_coordinator.end_txn(EndTxnRequest(), context).error_code == E.NOT_COORDINATOR
    assert not_coordinator.add_offsets(AddOffsetsToTxnRequest(), context).error_code == E.NOT_COORDINATOR
