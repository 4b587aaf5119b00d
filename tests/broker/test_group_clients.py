"""librdkafka's consumers in a group, while the broker that coordinates them is killed."""

from __future__ import annotations

import threading
import time

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as Assigned

PARTITIONS, EACH = 4, 40


def produce(kafka, first):
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "acks": "all", "linger.ms": 0, "log_level": 0})
    failed = []

    def delivered(error, message):
        if error is not None:
            failed.append(error)

    for number in range(first, first + EACH):
        producer.produce(
            "t",
            b"%d" % number,
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: error and failed.append(error),
        )
    assert producer.flush(60) == 0
    assert not failed


def consumer_of(kafka, **more):
    return Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            "session.timeout.ms": 30_000,
            **more,
        }
    )


class Member(threading.Thread):
    """Reads and commits until it is told to stop."""

    def __init__(self, kafka):
        super().__init__(daemon=True)
        self.consumer = consumer_of(kafka)
        self.read, self.assigned = [], 0
        self.is_over = threading.Event()

    def run(self):
        self.consumer.subscribe(["t"])
        while not self.is_over.is_set():
            message = self.consumer.poll(0.1)
            self.assigned = len(self.consumer.assignment())
            if message is not None and message.error() is None:
                self.read.append(int(message.value()))
                while not self.is_over.is_set():
                    try:
                        self.consumer.commit(message, asynchronous=False)
                        break
                    except KafkaException as error:
                        if not error.args[0].retriable():
                            break  # another member has its partition now, and reads it again
        self.consumer.close()


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, condition
        time.sleep(0.02)


def test_members_read_on_when_their_coordinator_is_killed_and_what_they_committed_stays(kafka_cluster):
    kafka = kafka_cluster(3, properties={"offsets.topic.num.partitions": 1})
    kafka.create_topic("t", partitions=PARTITIONS)
    members = [Member(kafka) for _ in range(2)]
    for member in members:
        member.start()
    produce(kafka, 0)
    until(lambda: {each for member in members for each in member.read} == set(range(EACH)))
    until(lambda: [member.assigned for member in members] == [2, 2])
    kafka.kill(kafka.wait_leader("__consumer_offsets"))
    produce(kafka, EACH)
    until(lambda: {each for member in members for each in member.read} == set(range(2 * EACH)))
    for member in members:
        member.is_over.set()
        member.join(60)
    other = consumer_of(kafka)
    found = other.committed([Assigned("t", number) for number in range(PARTITIONS)], 60)
    other.close()
    # The last commit may have been cut short by the end; all before it are there.
    assert all(2 * EACH // PARTITIONS - 1 <= each.offset <= 2 * EACH // PARTITIONS for each in found), found
