"""What a Kafka for tests does to its clients on demand: errors, delays, lost answers, frozen brokers, new leaders."""

from __future__ import annotations

import re
import threading

import pytest
import trio
import trio.testing
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as Assigned
from confluent_kafka.admin import AdminClient as Admin
from kafka import KafkaConsumer
from kafka import TopicPartition as Place

from kraftcore.errors import LocalError
from kraftcore.ports.transport import Origin
from kraftcore.protocol.frames import decode_response, encode_request
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest
from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.protocol.messages.heartbeat import HeartbeatRequest
from kraftcore.protocol.messages.produce import ProduceRequest
from kraftcore.protocol.registry import ApiKey
from kraftcore.testing import Faults, KafkaCluster
from kraftcore.testing.faults import Gate
from kraftcore.transports.memory import MemoryNetwork


def producer_of(kafka, **settings):
    common = {"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 0, "retry.backoff.ms": 20, "log_level": 0}
    return Producer({**common, **settings})


def produce(producer, topic, value=b"v"):
    """The error that the client gives up with; None: delivered."""
    told = []
    producer.produce(topic, value, partition=0, on_delivery=lambda error, message: told.append(error))
    assert producer.flush(60) == 0
    return told[0] and told[0].name()


def end_of(kafka, topic):
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "end", "log_level": 0})
    end = consumer.get_watermark_offsets(Assigned(topic, 0), timeout=60)[1]
    consumer.close()
    return end


def test_a_producer_goes_on_after_as_many_errors_as_were_wanted(kafka_cluster):
    kafka = kafka_cluster(1)
    for topic in ("t", "other"):
        kafka.create_topic(topic)
    producer = producer_of(kafka)
    assert produce(producer, "t") is None
    fault = kafka.faults.inject("Produce", error="NOT_LEADER_OR_FOLLOWER", topic="t", times=2)
    assert list(kafka.faults) == [fault]
    assert produce(producer, "other") is None
    assert (fault.hits, fault.api) == (0, "Produce")
    assert produce(producer, "t") is None
    assert (fault.hits, list(kafka.faults)) == (2, [])
    assert end_of(kafka, "t") == 2
    until_told = kafka.faults.inject("produce", error="message_too_large", times=None)
    assert [produce(producer, "t") for _ in range(3)] == ["MSG_SIZE_TOO_LARGE"] * 3
    kafka.faults.clear(until_told)
    kafka.faults.clear(fault.id)  # it has ended by itself
    assert produce(producer, "t") is None
    assert end_of(kafka, "t") == 3


def test_an_answer_that_is_lost_makes_a_duplicate_unless_the_producer_is_idempotent(kafka_cluster):
    kafka = kafka_cluster(1)
    for topic, settings, close, end in (
        ("plain", {}, "after", 2),
        ("plain-before", {}, "before", 1),
        ("idempotent", {"enable.idempotence": True}, "after", 1),
    ):
        kafka.create_topic(topic)
        fault = kafka.faults.inject("Produce", close=close)
        assert produce(producer_of(kafka, **settings), topic) is None
        assert (fault.hits, end_of(kafka, topic)) == (1, end)


def test_a_group_forms_though_its_coordinator_is_looked_for_in_vain_at_first(kafka_cluster):
    kafka = kafka_cluster(1)
    kafka.create_topic("t")
    assert produce(producer_of(kafka), "t") is None
    faults = [
        kafka.faults.inject("FindCoordinator", error="COORDINATOR_NOT_AVAILABLE", client_id="reader"),
        kafka.faults.inject("JoinGroup", error="NOT_COORDINATOR"),
        kafka.faults.inject("SyncGroup", error="REBALANCE_IN_PROGRESS"),
        kafka.faults.inject("OffsetFetch", error="COORDINATOR_LOAD_IN_PROGRESS"),
        kafka.faults.inject("Metadata", error="LEADER_NOT_AVAILABLE", topic="t"),
        kafka.faults.inject("Fetch", delay_ms=1, times=3),
    ]
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "g",
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "retry.backoff.ms": 20,
            "log_level": 0,
        }
    )
    consumer.subscribe(["t"])
    while (message := consumer.poll(60)) is not None and message.error() is not None:
        assert message.error().code() == KafkaError.UNKNOWN_TOPIC_OR_PART  # so librdkafka tells of the missing leader
    assert message.value() == b"v"
    consumer.close()
    assert [fault.hits for fault in faults[:-1]] == [1] * 5


def test_requests_of_a_fetch_session_are_about_the_partitions_that_they_do_not_name(kafka_cluster):
    kafka = kafka_cluster(1)
    for topic in ("t", "u"):
        kafka.create_topic(topic)
    producer = producer_of(kafka)
    consumer = KafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest", retry_backoff_ms=20
    )
    consumer.assign([Place("t", 0), Place("u", 0)])

    def received(count):
        found = []
        while len(found) < count:
            found += [each.value for some in consumer.poll(1000).values() for each in some]
        return found

    assert produce(producer, "t", b"1") is None
    assert received(1) == [b"1"]
    fault = kafka.faults.inject("Fetch", error="NOT_LEADER_OR_FOLLOWER", topic="u")
    other = kafka.faults.inject("Fetch", error="NOT_LEADER_OR_FOLLOWER", topic="v")
    while not fault.hits:
        consumer.poll(10)
    assert produce(producer, "u", b"2") is None
    assert received(1) == [b"2"]
    assert (fault.hits, other.hits) == (1, 0)
    consumer.close()


def test_what_cannot_be_is_refused_and_told():
    faults = Faults((1, 2), lambda topic_id: None)
    for api, options, text in (
        ("Prodduce", {"close": "before"}, "brokers answer no request 'Prodduce'; did you mean Produce?"),
        ("Vote", {"close": "before"}, "brokers answer no request 'Vote'"),
        ("Produce", {}, "nothing would happen to Produce: give `error`, a delay or `close`"),
        ("Produce", {"error": "NOT_LEADER"}, "Kafka has no error 'NOT_LEADER'"),
        ("Produce", {"error": "NOT_LEADER_OR_FOLOWER"}, "did you mean NOT_LEADER_OR_FOLLOWER?"),
        ("Produce", {"error": "NONE"}, "Kafka has no error 'NONE'"),
        ("Produce", {"close": "now"}, "close 'now': use 'before' (the request is not carried out) or 'after'"),
        ("Produce", {"close": "after", "error": "NOT_CONTROLLER"}, "make two faults"),
        ("Produce", {"delay_ms": -1}, "a delay of -1 ms: use 0 or more"),
        ("Produce", {"delay_ms": 1, "times": 0}, "times 0: use 1 or more, or none at all until it is cleared"),
        ("Produce", {"delay_ms": 1, "broker": 101}, "there is no broker 101: there are 1, 2"),
        ("Heartbeat", {"delay_ms": 1, "topic": "t"}, "Heartbeat names no topics: leave `topic` out"),
        ("AlterReplicaLogDirs", {"error": "NOT_CONTROLLER"}, "the answer to AlterReplicaLogDirs has no place for an"),
    ):
        with pytest.raises(LocalError, match=re.escape(text)):
            faults.inject(api, **options)
    assert list(faults) == []
    with pytest.raises(LocalError, match="there never was a fault 1"):
        faults.clear(1)
    kept, ended = faults.inject("Fetch", delay_ms=1, times=None), faults.inject("Fetch", delay_ms=2)
    faults.clear(ended)
    assert (list(faults), len(faults), faults.get(2), ended.has_ended) == ([kept], 1, ended, True)
    faults.clear()
    assert list(faults) == []


class Connection:
    """A client's connection to a gate: what was handed on and answered, and what waits for its turn."""

    def __init__(self):
        self.served, self.answers, self._waiting, self._is_muted = [], [], [], False
        self.origin = Origin("CLIENT", "client", mute=self._mute)

    def _mute(self):
        self._is_muted = True
        return self._unmute

    def _unmute(self):
        self._is_muted = False
        while self._waiting and not self._is_muted:
            self._gate.serve(self._waiting.pop(0), self.origin, self.answers.append)

    def serve(self, frame, origin, reply):
        self.served.append(frame)
        reply([b"done"])

    def send(self, gate, frame):
        self._gate = gate
        if self._is_muted:
            self._waiting.append(frame)
        else:
            gate.serve(frame, self.origin, self.answers.append)


def test_a_delay_holds_up_the_connection_and_no_other_one():
    async def main():
        faults, network, slow, other = Faults((1,), lambda topic_id: None), MemoryNetwork(), Connection(), Connection()
        async with network.transport("broker-1") as memory:
            gates = [Gate(1, faults, tuple, memory, each.serve) for each in (slow, other)]
            first, second = (encode_request(HeartbeatRequest(group_id=each), 4, 1) for each in "ab")
            faults.inject("Heartbeat", delay_ms=500)
            slow.send(gates[0], first)
            slow.send(gates[0], second)
            other.send(gates[1], first)
            assert (slow.served, other.served) == ([], [first])
            await trio.sleep(0.499)
            assert slow.served == []
            await trio.sleep(0.002)
            assert slow.served == [first, second]

            network.pause("broker-1")
            slow.send(gates[0], first)
            await trio.sleep(10)
            assert slow.served == [first, second]
            network.resume("broker-1")
            await trio.sleep(0)
            await trio.testing.wait_all_tasks_blocked()
            assert slow.served == [first, second, first]

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_what_wants_no_answer_is_told_of_an_error_by_a_closed_connection_and_a_session_that_is_unknown_has_no_topics():
    async def main():
        faults, client = Faults((1,), lambda topic_id: None), Connection()
        async with MemoryNetwork().transport("broker-1") as memory:
            gate = Gate(1, faults, tuple, memory, client.serve)
            faults.inject("Produce", error="NOT_LEADER_OR_FOLLOWER")
            client.send(gate, encode_request(ProduceRequest(acks=0), 12, 1))
            assert client.answers.pop() is None
            faults.inject("Fetch", error="NOT_LEADER_OR_FOLLOWER", topic="t")
            client.send(gate, encode_request(FetchRequest(session_id=5, session_epoch=3), 12, 1))
            assert client.answers.pop() == [b"done"]
            faults.inject("ApiVersions", error="UNSUPPORTED_VERSION")
            client.send(gate, encode_request(ApiVersionsRequest(client_software_name="a"), 4, 7))
            header, answer = decode_response(b"".join(client.answers.pop()), ApiKey.API_VERSIONS, 0)
            assert (header.correlation_id, answer.error_code) == (7, 35)
            client.send(gate, b"\x00\x00\x00")  # no request at all
            assert client.answers.pop() == [b"done"]

    trio.run(main)


def test_a_paused_broker_is_silent_and_loses_its_leadership(kafka_cluster):
    quick = {"broker.session.timeout.ms": 500, "broker.heartbeat.interval.ms": 100}
    kafka = kafka_cluster(3, properties={**quick, "min.insync.replicas": 2, "replica.lag.time.max.ms": 1000})
    kafka.create_topic("t")
    producer = producer_of(kafka, **{"socket.timeout.ms": 1000, "acks": "all"})
    assert produce(producer, "t") is None
    paused = kafka.leader("t")
    kafka.pause(paused)
    assert paused in kafka.brokers
    answered = threading.Event()
    asking = threading.Thread(
        target=lambda: Admin({"bootstrap.servers": kafka.address(paused)}).list_topics(timeout=60) and answered.set()
    )
    asking.start()
    assert produce(producer, "t") is None
    assert kafka.wait_leader("t") != paused
    assert not answered.is_set()
    kafka.resume(paused)
    asking.join(60)
    assert answered.is_set()
    kafka.wait_isr("t")
    assert end_of(kafka, "t") == 2
    kafka.pause(paused)
    kafka.stop(paused)  # as SIGTERM does to a process that goes on
    kafka.start(paused)
    kafka.pause(paused)
    kafka.restart(paused)
    kafka.wait_isr("t")


def test_leaders_move_to_whom_they_should(kafka_cluster):
    kafka = kafka_cluster(3)
    kafka.create_topic("t", partitions=2)
    first = kafka.leader("t", 1)
    second, third = (each for each in kafka.brokers if each != first)
    assert kafka.move_leader("t", 1, to=third) == kafka.leader("t", 1) == third
    assert kafka.move_leader("t", 1) != third
    assert kafka.move_leader("t", 1, to=kafka.leader("t", 1)) == kafka.leader("t", 1)
    kafka.kill(second)
    while second in kafka.isr("t", 1):
        pass
    with pytest.raises(LocalError, match=rf"^broker {second} is not in sync: broker \d leads t-1, in sync are \d, \d$"):
        kafka.move_leader("t", 1, to=second)
    with pytest.raises(LocalError, match="there is no topic u"):
        kafka.move_leader("u")


def test_a_cluster_on_trio_has_the_same():
    async def main():
        async with KafkaCluster(1) as kafka:
            await kafka.create_topic("t")
            with pytest.raises(LocalError, match="no other broker is in sync: broker 1 leads t-0"):
                await kafka.move_leader("t")
            kafka.pause(1)
            host, _, port = kafka.address(1).rpartition(":")
            async with await trio.open_tcp_stream(host, int(port)) as stream:
                asked = ApiVersionsRequest(client_software_name="a", client_software_version="1")
                await stream.send_all(encode_request(asked, 3, 1, size_prefix=True))
                with trio.move_on_after(0.05) as waiting:
                    await stream.receive_some()
                assert waiting.cancelled_caught
                kafka.resume(1)
                with trio.fail_after(60):
                    assert await stream.receive_some()
            with pytest.raises(LocalError, match="node 2"):
                kafka.pause(2)

    trio.run(main)


@pytest.mark.parametrize("harm", ["dead", "paused", "cut off"])
def test_all_nodes_stop_though_no_controller_answers(harm):
    async def main():
        async with KafkaCluster(2) as kafka:
            if harm == "dead":
                await kafka.kill(101)
            elif harm == "paused":
                kafka.pause(101)
                kafka.pause(1)
            else:
                kafka.partition(101)
            with trio.fail_after(30):  # a broker waits for a minute until it goes without leave
                await kafka.stop_all()
            assert set(kafka.states.values()) == {"stopped"}

    trio.run(main)
