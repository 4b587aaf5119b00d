"""Produce requests of transactional producers: what reaches the log is in a transaction that its coordinator knows."""

from __future__ import annotations

from functools import partial
from random import Random
from types import SimpleNamespace

import pytest

from kraftcore.core.batch import build_batch, iter_batches
from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.log import Log
from kraftcore.core.log.config import LogConfig
from kraftcore.core.uuid import Uuid
from kraftcore.errors import LocalError
from kraftcore.node.registry import Asker
from kraftcore.plugins.broker.api.leaders import Leader
from kraftcore.plugins.broker.api.produce import Produce
from kraftcore.plugins.broker.api.record_rules import RecordRules
from kraftcore.plugins.broker.api.transaction_gate import TransactionGate
from kraftcore.plugins.broker.api.write_txn_markers import WriteTxnMarkers
from kraftcore.plugins.broker.groups.requests import GroupRequests
from kraftcore.plugins.broker.partition import Assignment, Partition, TopicPartition
from kraftcore.plugins.broker.partition.state import PartitionSettings
from kraftcore.plugins.broker.producers import Marker
from kraftcore.plugins.broker.work import turns
from kraftcore.plugins.broker.work.deadlines import Deadlines
from kraftcore.plugins.broker.work.heavy_steps import failure_of
from kraftcore.ports.transport import Address
from kraftcore.protocol.error_codes import ErrorCode as E
from kraftcore.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from kraftcore.protocol.messages.produce import ProduceRequest
from kraftcore.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from kraftcore.protocol.messages.write_txn_markers import WriteTxnMarkersRequest

NOW = 1_000_000
A, B, C = (TopicPartition(topic, 0) for topic in "abc")
IDS = {A: Uuid(b"a" * 16), B: Uuid(b"b" * 16)}
OURS = Assignment(1, 1, 1, (1,), (1,))


def _end_waiters(wanted):
    for _, effects in wanted:
        for waiter, error in effects.ended:
            waiter.end(error)


class Waits:
    """Waits for a marker."""

    is_over = False

    def end(self, error):
        assert error is E.NONE


def led(name):
    """A partition that the broker leads."""
    config = LogConfig(topic_id=None, producer_snapshots=False, allow_gaps=True)
    partition = Partition(
        name, 1, Log.open(SimulatedDisk(Random(1)), f"/d/{name}", config, now_ms=NOW), PartitionSettings()
    )
    partition.become_leader(OURS, NOW)
    return partition


class Rig:
    """A broker's Produce, with its gate and the partitions a-0, b-0 and c-0, which it leads.

    Attributes:
        asked: what the coordinator was asked, with whoever waits for the answer.
        answers: to the clients, as {partition: error}, or None: the connection was broken.
        writable: topics that the asker may write to; None: all.
        between_turns: what goes on with requests that are answered in turns.
    """

    def __init__(self):
        self.asked, self.answers, self.writable, self.rules = [], [], None, RecordRules()
        self.between_turns = []
        self.partitions = {name: led(name) for name in (A, B, C)}
        self.names = {IDS[A]: "a", IDS[B]: "b"}
        self.replicas = SimpleNamespace(
            all={name: SimpleNamespace(partition=each) for name, each in self.partitions.items()},
            check_announced=lambda name: None,
            find=self.partitions.__getitem__,
            carry_out=lambda name, effects: _end_waiters([(name, effects)]),
            carry_out_all=_end_waiters,
        )
        state = SimpleNamespace(leader=2)
        self.cache = cache = SimpleNamespace(
            topics={"__transaction_state": {0: state}, "a": {0: state}},
            address=lambda broker, listener: Address("theirs", 9092),
            names=self.names,
            knows=lambda topic, number: True,
        )
        self.gate = TransactionGate(self.replicas, cache, 1, "PLAINTEXT", self._send, Deadlines(lambda: 0.0))
        self.permits = SimpleNamespace(
            is_open=False,
            may=lambda request, context, operation, topic, **how: self.writable is None or topic in self.writable,
            asker=lambda request, context: lambda action: True,
        )
        self.produce = Produce(
            self.replicas,
            cache,
            SimpleNamespace(of=lambda name, listener: Leader(-1, -1, None, "")),
            Deadlines(lambda: 0.0),
            lambda topic: 10_000,
            lambda: NOW,
            permits=self.permits,
            gate=self.gate,
            do_aside=lambda work, done: self.between_turns.append(partial(done, failure_of(work))),
        )

    def _send(self, address, request, min_version, done):
        self.asked.append((request.transactions[0], done))

    def send(self, *parts, version=12, client_id="c", acks=1):
        """A request of (partition, sequence) or (partition, sequence, producer id)."""
        kind = ProduceRequest.TopicProduceData
        topics = []
        for name, sequence, *producer in parts:
            batch = build_batch(
                [b"v"],
                timestamp_ms=NOW,
                producer_id=producer[0] if producer else 7,
                producer_epoch=0,
                base_sequence=sequence,
                transactional=True,
            )
            data = kind.PartitionProduceData(index=name.partition, records=bytes(batch))
            key = {"topic_id": IDS[name]} if version >= 13 else {"name": name.topic}
            topics.append(kind(**key, partition_data=[data]))
        request = ProduceRequest(transactional_id="x", acks=acks, timeout_ms=1000, topic_data=topics)

        def answer(response):
            told = [each.partition_responses[0].error_code for each in response.responses]
            self.answers.append([E.of(code) for code in told])

        context = SimpleNamespace(
            version=version,
            client_id=client_id,
            asker=Asker("PLAINTEXT", "peer"),
            answer=answer,
            close=lambda: self.answers.append(None),
            wait=lambda: None,
        )
        self.produce.respond(request, context)

    def answer(self, code=E.NONE):
        """The coordinator's answer to the oldest question: the same for all its partitions."""
        transaction, done = self.asked.pop(0)
        topics = [
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=code)
                    for number in topic.partitions
                ],
            )
            for topic in transaction.topics
        ]
        kind = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
        done(AddPartitionsToTxnResponse(results_by_transaction=[kind(transactional_id="x", topic_results=topics)]))

    def asked_about(self):
        return [sorted(topic.name for topic in transaction.topics) for transaction, _ in self.asked]

    def open(self, name, sequence=0):
        self.send((name, sequence))
        self.answer()
        assert self.answers.pop() == [E.NONE]

    def end(self, name, version=0):
        marker = Marker(7, 0, 0, True, version)
        self.partitions[name].end_transaction(marker, NOW, Waits())
        self.gate.ended(name, marker)

    def mark(self, name, producer=7, times=1):
        """The error code of a WriteTxnMarkers with so many markers."""
        answers = []
        permits = SimpleNamespace(may_cluster=lambda *asked, **how: True)
        around = Deadlines(lambda: 0.0), lambda: NOW, lambda topic: self.rules
        markers = WriteTxnMarkers(self.replicas, None, self.gate, permits, *around)
        kind = WriteTxnMarkersRequest.WritableTxnMarker
        topics = [kind.WritableTxnMarkerTopic(name=name.topic, partition_indexes=[name.partition])]
        marker = kind(producer_id=producer, producer_epoch=0, transaction_result=True, topics=topics)
        markers.respond(
            WriteTxnMarkersRequest(markers=[marker] * times), SimpleNamespace(version=1, answer=answers.append)
        )
        [told] = answers[0].markers[0].topics[0].partitions
        return E.of(told.error_code)

    def is_open(self, name, producer=7):
        return self.partitions[name].producers.is_in_transaction(producer, 0)


@pytest.fixture
def rig():
    return Rig()


def test_what_was_in_a_transaction_that_ended_meanwhile_begins_none(rig):
    """A marker of transaction.version 0 or 1, which leaves the epoch as it is."""
    rig.open(A)
    rig.send((A, 1), (B, 0))
    assert rig.asked_about() == [["b"]]
    rig.end(A)
    rig.answer()
    assert rig.answers == [[E.INVALID_TXN_STATE, E.NONE]]
    assert (rig.is_open(A), rig.is_open(B)) == (False, True)


def test_what_was_verified_and_ended_between_two_turns_begins_none(rig, monkeypatch):
    """A marker that came before the batch does not end it: its transaction would stay open for ever."""
    monkeypatch.setattr(turns, "ITEMS", 1)
    rig.open(B)
    rig.end(B)
    rig.send((A, 0), (B, 1), (C, 0), version=11)
    rig.answer()
    assert (rig.answers, rig.is_open(A), rig.is_open(B)) == ([], True, False)
    rig.end(A)
    rig.end(B)
    rig.partitions[C].become_leader(Assignment(1, 2, 2, (1,), (1,)), NOW)
    while rig.between_turns:
        rig.between_turns.pop()()
    assert rig.answers.pop() == [E.NONE, E.INVALID_TXN_STATE, E.NOT_LEADER_OR_FOLLOWER]
    assert not any(map(rig.is_open, (A, B, C)))
    # What one request was told counts for no other.
    rig.send((A, 1))
    rig.end(A)
    rig.answer()
    assert rig.answers.pop() == [E.INVALID_TXN_STATE]
    rig.open(A, 1)


@pytest.mark.parametrize("is_writable", [True, False])
def test_a_topic_that_is_made_anew_between_two_turns_gets_nothing_of_the_rest(rig, monkeypatch, is_writable):
    monkeypatch.setattr(turns, "ITEMS", 2)
    names = [TopicPartition("a", number) for number in range(3)]
    rig.partitions |= {name: led(name) for name in names}
    kind, told = ProduceRequest.TopicProduceData, []
    batch = bytes(build_batch([b"of the old one"], timestamp_ms=NOW))
    data = [kind.PartitionProduceData(index=name.partition, records=batch) for name in names]
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[kind(topic_id=IDS[A], partition_data=data)])
    context = SimpleNamespace(
        version=13, client_id="c", asker=Asker("L", "peer"), answer=told.append, wait=lambda: None
    )
    rig.writable = {"a"} if is_writable else set()
    rig.produce.respond(request, context)
    assert rig.between_turns
    rig.partitions |= {name: led(name) for name in names}
    rig.names.clear()
    rig.names[Uuid(b"n" * 16)] = "a"
    while rig.between_turns:
        rig.between_turns.pop()()
    [codes] = [[E.of(each.error_code) for each in topic.partition_responses] for topic in told[0].responses]
    if is_writable:
        taken = codes.count(E.NONE)
        assert 0 < taken < 3 and codes[taken:] == [E.UNKNOWN_TOPIC_ID] * (3 - taken)
    else:
        assert codes == [E.TOPIC_AUTHORIZATION_FAILED] * 3  # who may not write hears nothing of topics
    assert [rig.partitions[name].log.log_end_offset for name in names] == [0, 0, 0]


def test_what_comes_to_be_led_here_while_the_coordinator_is_asked_comes_again(rig):
    rig.partitions[A].become_follower(Assignment(2, 2, 2, (1, 2), (1, 2)))
    rig.send((A, 0), (B, 0))
    rig.send((A, 1))
    rig.partitions[A].become_leader(Assignment(1, 3, 3, (1, 2), (1,)), NOW)
    rig.answer()
    rig.answer()
    # The second one came earlier in no partition: it waits for the first.
    assert rig.answers == [[E.NOT_LEADER_OR_FOLLOWER, E.NONE], [E.OUT_OF_ORDER_SEQUENCE_NUMBER]]
    assert not rig.is_open(A)
    rig.send((A, 0))
    rig.answer()
    assert rig.answers.pop() == [E.NONE]


def test_a_topic_that_becomes_known_while_the_coordinator_is_asked_is_still_unknown(rig):
    del rig.names[IDS[A]]
    rig.send((A, 0), (B, 0), version=13)
    rig.names[IDS[A]] = "a"
    rig.answer()
    assert rig.answers == [[E.UNKNOWN_TOPIC_ID, E.NONE]]
    assert not rig.is_open(A)


def test_a_partition_that_is_twice_in_a_request_lets_nobody_in_unasked(rig):
    rig.send((A, 0, 8), (A, 0, 7))
    rig.answer()
    assert rig.answers == [[E.NONE]]
    assert rig.is_open(A)
    assert not rig.is_open(A, producer=8)


def test_only_topics_that_the_asker_may_write_are_added_to_a_transaction(rig):
    rig.writable = {"a"}
    rig.send((A, 0), (B, 0))
    assert rig.asked_about() == [["a"]]
    rig.answer()
    assert rig.answers.pop() == [E.NONE, E.TOPIC_AUTHORIZATION_FAILED]
    rig.send((B, 0))
    assert (rig.answers.pop(), rig.asked) == ([E.TOPIC_AUTHORIZATION_FAILED], [])


def test_internal_topics_are_added_for_nobody_but_an_administrator(rig):
    groups = TopicPartition("__consumer_offsets", 0)
    rig.partitions[groups] = rig.partitions[C]
    rig.replicas.all[groups] = rig.replicas.all[C]
    rig.send((groups, 0), (B, 0))
    assert rig.asked_about() == [["b"]]
    rig.answer()
    assert rig.answers.pop() == [E.INVALID_TOPIC_EXCEPTION, E.NONE]
    rig.send((groups, 0), client_id="__admin_client")
    assert rig.asked_about() == [["__consumer_offsets"]]


def test_what_came_first_is_waited_for_until_it_is_appended(rig):
    rig.partitions[A].settings = PartitionSettings(min_insync_replicas=2)
    rig.partitions[A].become_leader(Assignment(1, 1, 2, (1, 2), (1,)), NOW)
    rig.send((A, 0), acks=-1)
    rig.send((A, 1), acks=-1)
    rig.answer()
    rig.partitions[A].settings = PartitionSettings()
    rig.answer()
    assert rig.answers == [[E.NOT_ENOUGH_REPLICAS], [E.OUT_OF_ORDER_SEQUENCE_NUMBER]]
    for sequence in (0, 1):
        rig.send((A, sequence))
        if sequence == 0:
            rig.answer()
        assert rig.answers.pop() == [E.NONE]
    rig.end(A)
    rig.open(A, 2)


def test_a_marker_for_a_log_that_takes_nothing_more_is_tried_again(rig):
    """Kafka's coordinators go on trying after KAFKA_STORAGE_ERROR, and give up after what they do not expect."""
    rig.open(A)
    rig.partitions[A].log.close()
    assert rig.mark(A) is E.KAFKA_STORAGE_ERROR
    rig.send((A, 1))
    assert rig.answers.pop() == [E.KAFKA_STORAGE_ERROR]


def test_offsets_that_cannot_be_handed_over_break_one_connection_and_hold_up_nobody(rig, caplog):
    def fail(*_):
        raise ValueError("broken")

    coordinator = SimpleNamespace(shard_of=lambda group: (C, None), event=fail)
    requests = GroupRequests(coordinator, rig.cache, None, rig.permits, lambda: NOW, None, gate=rig.gate)
    kind = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    part = kind.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    request = TxnOffsetCommitRequest(
        transactional_id="x", group_id="g", producer_id=7, topics=[kind(name="a", partitions=[part])]
    )
    closed = []
    context = SimpleNamespace(version=5, asker=Asker("L", "peer"), close=lambda: closed.append(True), answer=None)
    requests.commit_in_transaction(request, context)
    rig.send((A, 0))
    rig.answer()
    assert closed == [True]
    assert "cannot be answered" in caplog.text
    rig.answer()
    assert rig.answers.pop() == [E.NONE]


def test_what_was_appended_holds_up_no_later_transaction(rig):
    rig.open(A)
    rig.partitions[A].end_transaction(Marker(7, 0, 0, True), NOW, Waits())  # as one that came while another led
    rig.open(A, 1)


def test_a_producer_s_markers_of_one_partition_are_answered_once(rig):
    rig.open(A)
    end = rig.partitions[A].log.log_end_offset
    assert rig.mark(A, times=2) is E.NONE
    assert rig.partitions[A].log.log_end_offset == end + 2


@pytest.mark.parametrize("has_append_time", [False, True])
def test_a_marker_has_the_kind_of_time_that_its_topic_has(rig, has_append_time):
    rig.rules = RecordRules(has_append_time=has_append_time)
    rig.open(A)
    assert rig.mark(A) is E.NONE
    log = rig.partitions[A].log
    *_, marker = iter_batches(log.read(0, 1 << 20))
    assert marker.is_control
    assert (marker.timestamp_type == 1, marker.max_timestamp_ms) == (has_append_time, NOW)


def test_a_marker_that_fails_for_another_reason_is_tried_again_and_one_of_nobody_is_refused_as_by_kafka(rig):
    def fail(*_):
        raise LocalError("not that offset")

    rig.partitions[A].end_transaction = fail
    assert rig.mark(A) is E.KAFKA_STORAGE_ERROR
    assert rig.mark(A, producer=-1) is E.UNKNOWN_SERVER_ERROR
