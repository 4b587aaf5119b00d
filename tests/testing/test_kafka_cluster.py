"""A Kafka for tests: unmodified clients, kills, partitions, restarts; on trio, in a thread, as a fixture."""

from __future__ import annotations

import re
import shutil
import socket
import threading
import time
from functools import partial

import pytest
import trio
import trio.testing
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as Assigned
from confluent_kafka.admin import AdminClient as Admin

from kraftcore.admin import PartlyRefusedError, TopicPartition, connect
from kraftcore.config import ConfigError
from kraftcore.errors import LocalError, NodeStoppedError, StorageError, TransportError
from kraftcore.node.plugin_node import plugin_node
from kraftcore.testing import KafkaCluster, in_thread, kafka_cluster


def produce(kafka, topic, *values, by=None):
    """Offsets, each acknowledged by all that are in sync."""
    servers = kafka.bootstrap_servers if by is None else kafka.address(by)
    producer = Producer(
        {"bootstrap.servers": servers, "acks": "all", "linger.ms": 0, "retry.backoff.ms": 20, "log_level": 0}
    )
    offsets = []

    def delivered(error, message):
        assert error is None, error
        offsets.append(message.offset())

    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=delivered)
        assert producer.flush(60) == 0
    return offsets


def consume(kafka, topic, count):
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "test", "enable.auto.commit": False})
    consumer.assign([Assigned(topic, 0, OFFSET_BEGINNING)])
    messages = consumer.consume(count, 60)
    consumer.close()
    return [message.value() for message in messages]


def test_a_client_writes_through_the_death_of_leaders_and_reads_everything(kafka_cluster):
    kafka = kafka_cluster(3, properties={"min.insync.replicas": 2})
    assert (kafka.brokers, kafka.controllers) == ((1, 2, 3), (101,))
    running = f"at {kafka.bootstrap_servers}: brokers 1, 2, 3, controllers 101>"
    assert repr(kafka) == f"<kraftcore.testing.KafkaThread {running}"
    assert repr(kafka.cluster) == f"<kraftcore.testing.KafkaCluster {running}"
    kafka.create_topic("orders", partitions=2)
    assert kafka.isr("orders", 1) == {1, 2, 3}
    assert produce(kafka, "orders", b"a") == [0]
    first = kafka.leader("orders")
    kafka.kill(first)
    assert first not in kafka.brokers
    assert produce(kafka, "orders", b"b") == [1]
    assert kafka.leader("orders") not in (None, first)
    kafka.start(first)
    kafka.wait_isr("orders")
    second = kafka.leader("orders")
    kafka.stop(second)
    assert produce(kafka, "orders", b"c") == [2]
    kafka.restart(second)
    kafka.wait_isr("orders", 3)
    assert consume(kafka, "orders", 3) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("ends", ["kill", "stop"])
def test_a_broker_that_is_started_at_once_need_not_wait_for_its_last_session_to_end(kafka_cluster, ends):
    kafka = kafka_cluster(2, properties={"broker.session.timeout.ms": 600_000})
    for broker in (1, 2):
        getattr(kafka, ends)(broker)
        kafka.start(broker)
        kafka.wait_ready()
        topic = f"after-{broker}"
        kafka.create_topic(topic)
        kafka.wait_isr(topic)
        assert produce(kafka, topic, b"v") == [0]


@pytest.mark.parametrize("ends", ["kill", "stop"])
def test_a_node_that_fails_as_it_is_to_be_ended_has_stopped_by_itself(ends, monkeypatch):
    async def main():
        async with KafkaCluster(1) as kafka:
            await kafka.kill(1)
            kafka.partition(1)
            monkeypatch.setattr(kafka_cluster, "REACHED_S", 3600)
            await kafka.start(1)  # no controller can reach it: ``ends`` waits for that
            node = kafka.nodes[1]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(getattr(kafka, ends), 1)
                await trio.testing.wait_all_tasks_blocked()
                plugin_node(node).fail(StorageError(5, "its disk failed"))

    with pytest.raises(NodeStoppedError, match="its disk failed"):
        trio.run(main)


def test_a_broker_that_is_cut_off_is_replaced_and_comes_back(tmp_path):
    async def main():
        async with KafkaCluster(3, directory=tmp_path, properties={"min.insync.replicas": 2}) as kafka:
            await kafka.create_topic("t")
            cut = kafka.leader("t")
            kafka.partition(cut)
            with trio.fail_after(60):
                while (by := await kafka.wait_leader("t")) == cut:
                    await trio.sleep(0.01)
            # The one that is cut off believes that it leads: a client that asks it waits in vain.
            assert await trio.to_thread.run_sync(partial(produce, kafka, "t", b"x", by=by)) == [0]
            assert cut in kafka.brokers
            kafka.heal()
            await kafka.wait_isr("t")

    trio.run(main)
    logs = [(tmp_path / f"broker-{each}" / "t-0" / f"{0:020}.log").read_bytes() for each in (1, 2, 3)]
    assert logs[0] == logs[1] == logs[2] != b""


def test_what_is_in_a_directory_is_there_again_at_the_same_address(tmp_path):
    with in_thread(KafkaCluster(1, directory=tmp_path)) as kafka:
        before = kafka.bootstrap_servers
        kafka.create_topic("kept")
        assert produce(kafka, "kept", b"v") == [0]
    port = int(before.rpartition(":")[2])
    with in_thread(KafkaCluster(1, directory=tmp_path, first_port=port)) as kafka:
        assert kafka.bootstrap_servers == before
        assert consume(kafka, "kept", 1) == [b"v"]
        with pytest.raises(TransportError, match=f"cannot listen on 127.0.0.1:{port}"):
            in_thread(KafkaCluster(1, first_port=port)).__enter__()


def test_a_directory_goes_on_with_as_many_nodes_alone(tmp_path):
    for sizes in ((2, 1), (2, 1)):
        with in_thread(KafkaCluster(sizes[0], controllers=sizes[1], directory=tmp_path)):
            pass
    before = sorted(tmp_path.iterdir())
    for brokers, controllers in ((1, 1), (3, 1), (2, 3)):
        text = f"{tmp_path} holds a cluster of 2 brokers and 1 controllers, not of {brokers} and {controllers}: "
        with pytest.raises(LocalError, match=re.escape(text)):
            in_thread(KafkaCluster(brokers, controllers=controllers, directory=tmp_path)).__enter__()
    assert sorted(tmp_path.iterdir()) == before


def test_a_first_start_that_was_broken_off_is_begun_anew(tmp_path):
    with in_thread(KafkaCluster(2, directory=tmp_path)):
        pass
    shutil.rmtree(tmp_path / "controller-101")
    for node in (1, 2):
        shutil.rmtree(tmp_path / f"broker-{node}")
    (tmp_path / "broker-2.properties").unlink()
    with in_thread(KafkaCluster(2, directory=tmp_path)) as kafka:
        kafka.create_topic("t")


def test_three_controllers_lose_the_active_one(kafka_cluster):
    kafka = kafka_cluster(1, controllers=3)
    kafka.kill(kafka.look(lambda: next(each for each, node in kafka.cluster.nodes.items() if node.is_leader)))
    kafka.wait_ready()
    kafka.create_topic("t")
    assert produce(kafka, "t", b"v") == [0]


def test_without_a_controller_no_topic_is_made(kafka_cluster):
    kafka = kafka_cluster(1)
    kafka.kill(101)
    with pytest.raises(AssertionError, match=r"waited 0\.5 s for a controller to make t: controller-101:9093: nobody "):
        kafka.create_topic("t", timeout_s=0.5)


def test_what_cannot_be_is_refused(kafka_cluster):
    for options in ({"brokers": 0}, {"controllers": 0}, {"brokers": 101}, {"first_port": 65535}):
        with pytest.raises(LocalError):
            KafkaCluster(**options)
    for options in ({"properties": {"log.dirs": "/x"}}, {"node_properties": {1: {"log.dirs": "/x"}}}):
        with pytest.raises(LocalError, match=r"log\.dirs cannot be given: the cluster sets it itself"):
            KafkaCluster(**options)
    kafka = kafka_cluster(1)
    with pytest.raises(LocalError, match="there is no node 7: there are 1, 101"):
        kafka.kill(7)
    with pytest.raises(LocalError, match="there is no node '1': there are 1, 101"):
        kafka.kill("1")
    with pytest.raises(LocalError, match="node 1 runs"):
        kafka.start(1)
    with pytest.raises(LocalError, match=r"broker-1 in two groups: name each node once"):
        kafka.partition([1, 101], 1)
    with pytest.raises(PartlyRefusedError, match="INVALID_REPLICATION_FACTOR"):
        kafka.create_topic("t", replication_factor=3)


def test_who_starts_a_node_that_is_being_started_is_refused_and_it_runs():
    async def main():
        async with KafkaCluster(1) as kafka:
            await kafka.kill(1)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(kafka.start, 1)
                await trio.testing.wait_all_tasks_blocked()
                with pytest.raises(LocalError, match="node 1 is being started"):
                    await kafka.start(1)
            await kafka.wait_ready()

    trio.run(main)


def test_a_port_that_somebody_else_has_is_told_each_time():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        kafka = KafkaCluster(1, first_port=other.getsockname()[1])
        for _ in range(2):
            with pytest.raises(TransportError, match="node 1 cannot listen on"):
                kafka.address(1)


def test_a_topic_that_does_not_exist_is_told(kafka_cluster):
    kafka = kafka_cluster(1)
    kafka.create_topic("t", partitions=2)
    for look in (kafka.leader, kafka.isr):
        with pytest.raises(LocalError, match="^there is no topic typo$"):
            look("typo")
        with pytest.raises(LocalError, match="^topic t has no partition 2$"):
            look("t", 2)
    for wait, what in (
        (kafka.wait_isr, "the replicas of typo to be in sync"),
        (kafka.wait_leader, "a leader of typo-0"),
    ):
        with pytest.raises(AssertionError, match=rf"^waited 0\.01 s for {what}; there is no topic typo; no node "):
            wait("typo", timeout_s=0.01)
    kafka.kill(1)
    with pytest.raises(AssertionError, match=r"^waited 0\.01 s for a leader of t-0; node 1 is stopped; no node "):
        kafka.wait_leader("t", timeout_s=0.01)
    kafka.kill(101)
    assert (kafka.leader("t"), kafka.isr("t")) == (None, frozenset())


def test_who_waits_for_a_leader_may_begin_before_the_topic_is_made():
    async def main():
        async with KafkaCluster(1) as kafka, trio.open_nursery() as nursery:
            nursery.start_soon(kafka.create_topic, "t")
            assert await kafka.wait_leader("t") == 1

    trio.run(main)


def test_a_temporary_folder_goes_with_the_cluster_and_a_setting_that_is_none_is_told():
    cluster = KafkaCluster(1)
    with in_thread(cluster):
        pass
    assert cluster.directory
    assert not trio.run(trio.Path(cluster.directory).exists)
    assert KafkaCluster(1).directory == ""  # nothing is made before it runs
    wrong = {"min.insync.replica": 2}
    for options in ({"properties": wrong}, {"node_properties": {1: wrong}}):
        with pytest.raises(ConfigError, match=r"^there is no property min\.insync\.replica; did you mean"):
            in_thread(KafkaCluster(1, **options)).__enter__()


@pytest.mark.parametrize("tls", [False, True])
def test_only_users_with_their_password_are_served(tls, tmp_path):
    password = 'p"a\\ss: wörd'
    for _ in range(2):  # what is in the directory serves the next one
        with in_thread(KafkaCluster(2, users={"alice": password, "bob": "b"}, tls=tls, directory=tmp_path)) as kafka:
            common = {
                "bootstrap.servers": kafka.bootstrap_servers,
                "security.protocol": kafka.security_protocol,
                "log_level": 0,
            }
            if tls:
                common["ssl.ca.location"] = kafka.ca_file
            assert kafka.security_protocol == ("SASL_SSL" if tls else "SASL_PLAINTEXT")
            for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
                login = {**common, "sasl.mechanism": mechanism, "sasl.username": "alice"}
                assert Admin({**login, "sasl.password": password}).list_topics(timeout=60).brokers
                failed = threading.Event()
                stranger = Admin({**login, "sasl.password": "b", "error_cb": partial(_note, failed)})
                while not failed.is_set():
                    stranger.poll(0.05)
    with pytest.raises(LocalError, match="user 'a b': use letters"):
        KafkaCluster(1, users={"a b": "c"})
    with pytest.raises(LocalError, match="the password of user a is empty"):
        KafkaCluster(1, users={"a": ""})


def _note(failed, error):
    if error.name() == "_AUTHENTICATION":
        failed.set()


def test_who_does_not_trust_the_certificate_is_not_served(kafka_cluster):
    kafka = kafka_cluster(1, tls=True)
    assert kafka.security_protocol == "SSL"
    servers = {"bootstrap.servers": kafka.bootstrap_servers, "security.protocol": "SSL", "log_level": 0}
    assert Admin({**servers, "ssl.ca.location": kafka.ca_file}).list_topics(timeout=60).brokers
    failed = threading.Event()
    stranger = Admin({**servers, "error_cb": lambda error: error.name() == "_SSL" and failed.set()})
    while not failed.is_set():
        stranger.poll(0.05)


def test_a_failed_node_is_the_cause_of_what_the_block_raises():
    async def main(raising):
        async with KafkaCluster(1) as kafka:
            plugin_node(kafka.nodes[1]).fail(OSError("the disk is gone"))
            with trio.fail_after(60):
                await kafka.wait_failed()
            if raising:
                raise ValueError("nobody answers")

    with pytest.raises(ValueError, match="nobody answers") as caught:
        trio.run(main, True)
    assert isinstance(caught.value.__cause__, NodeStoppedError)
    with pytest.raises(NodeStoppedError, match="the disk is gone"):
        trio.run(main, False)


def test_a_failed_node_is_the_cause_of_what_a_block_raises_in_another_thread():
    def run(raising):
        with in_thread(KafkaCluster(1)) as kafka:
            kafka.look(plugin_node(kafka.cluster.nodes[1]).fail, OSError("the disk is gone"))
            kafka.call(kafka.cluster.wait_failed)
            if raising:
                raise ValueError("nobody answers")

    with pytest.raises(ValueError, match="nobody answers") as caught:
        run(True)
    assert isinstance(caught.value.__cause__, NodeStoppedError)
    with pytest.raises(NodeStoppedError, match="the disk is gone"):
        run(False)


def test_whoever_waits_for_brokers_hears_of_one_that_failed_until_it_is_started_again():
    async def main():
        async with KafkaCluster(2) as kafka:
            plugin_node(kafka.nodes[2]).fail(OSError("the disk is gone"))
            with trio.fail_after(60):
                await kafka.wait_failed()
            with pytest.raises(NodeStoppedError, match="the disk is gone"):
                await kafka.wait_ready()
            await kafka.start(2)
            await kafka.wait_ready()
            assert kafka.failures == {}
            with trio.move_on_after(0.01) as waiting:
                await kafka.wait_failed()
            assert waiting.cancelled_caught

    trio.run(main)


def test_who_waits_for_a_failure_hears_of_it_though_a_node_was_started_meanwhile():
    async def main():
        async with KafkaCluster(2) as kafka, trio.open_nursery() as nursery:
            nursery.start_soon(kafka.wait_failed)
            await kafka.kill(1)
            await kafka.start(1)
            plugin_node(kafka.nodes[2]).fail(OSError("the disk is gone"))
            nursery.cancel_scope.deadline = trio.current_time() + 60

    with pytest.raises(NodeStoppedError, match="the disk is gone"):
        trio.run(main)


def test_a_coordinator_and_a_leader_that_die_are_looked_for_again():
    async def main():
        async with KafkaCluster(2, properties={"offsets.topic.num.partitions": "1"}) as kafka:
            await kafka.create_topic("t")
            place = TopicPartition("t", 0)
            async with connect(bootstrap_servers=kafka.bootstrap_servers.split(",")) as admin:
                await admin.commit_offsets("g", {place: 0})
                for topic in ("__consumer_offsets", "t"):
                    leader_id = kafka.leader(topic)
                    await kafka.kill(leader_id)
                    assert (await admin.committed_offsets("g"))[place].offset == 0
                    assert await admin.list_offsets([place]) == {place: 0}
                    await kafka.start(leader_id)
                    await kafka.wait_isr("__consumer_offsets", 2)
                    await kafka.wait_isr("t", 2)

    trio.run(main)


def test_short_sessions_are_refused_by_those_who_want_kafka_s_limit_alone(kafka_cluster):
    for properties, error in (({}, None), ({"group.min.session.timeout.ms": 6000}, "INVALID_SESSION_TIMEOUT")):
        kafka = kafka_cluster(1, properties=properties)
        kafka.create_topic("t")
        told = []
        consumer = Consumer(
            {
                "bootstrap.servers": kafka.bootstrap_servers,
                "group.id": "g",
                "session.timeout.ms": 1000,
                "heartbeat.interval.ms": 300,
                "log_level": 0,
            }
        )
        consumer.subscribe(["t"], on_assign=lambda *_, told=told: told.append(None))
        while not told:
            message = consumer.poll(0.1)
            if message is not None:
                told.append(message.error().name())
        consumer.close()
        assert told == [error]


def test_nobody_coordinates_transactions_and_librdkafka_waits_for_it_as_its_page_says(kafka_cluster):
    servers = kafka_cluster(1).bootstrap_servers
    times = dict.fromkeys(("transaction.timeout.ms", "socket.timeout.ms", "message.timeout.ms"), 1000)
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "x", "log_level": 0, **times})
    began = time.monotonic()
    with pytest.raises(KafkaException, match="UNSUPPORTED_VERSION"):
        producer.init_transactions()
    assert time.monotonic() - began >= 1.9


def test_settings_of_single_nodes(kafka_cluster):
    with pytest.raises(LocalError, match="there is no node 3"):
        KafkaCluster(2, node_properties={3: {}})
    racks = {1: {"broker.rack": "a"}, 2: {"broker.rack": "b", "num.partitions": 7}}
    kafka = kafka_cluster(2, properties={"broker.rack": "c", "num.partitions": 2}, node_properties=racks)

    machine = kafka.cluster.nodes[101].state_machine
    assert kafka.look(lambda: {each.id: each.rack for each in machine.image.brokers.values()}) == {1: "a", 2: "b"}


def test_threads_that_call_a_cluster_that_ends_are_told_so():
    raised, begun = [], threading.Event()

    async def wait() -> None:
        begun.set()
        await trio.sleep_forever()

    def work(kafka) -> None:
        try:
            kafka.call(wait)
        except BaseException as error:
            raised.append(error)

    with in_thread(KafkaCluster(1)) as kafka:
        worker = threading.Thread(target=work, args=(kafka,), daemon=True)
        worker.start()
        assert begun.wait(60)
    worker.join(60)
    assert [type(error) for error in raised] == [LocalError]
    for late in (lambda: kafka.brokers, lambda: kafka.wait_leader("topic")):
        with pytest.raises(LocalError, match="the cluster has ended"):
            late()
