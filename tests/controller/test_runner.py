"""Controllers on real nodes over the memory network: who answers, what waits, and what the loss of leadership does."""

from __future__ import annotations

import gc
import random
import socket
from contextlib import suppress

import pytest
import trio
from memory_quorum import memory_quorum
from nodes import run
from pem_stores import make_stores

from kraftcore import NodeConfig, open_node
from kraftcore.config import TlsConfig
from kraftcore.core.batch import RecordBatch, build_batch, iter_batches
from kraftcore.core.uuid import METADATA_TOPIC_ID, Uuid
from kraftcore.core.wire.codec import encode
from kraftcore.errors import CorruptDataError, KraftError
from kraftcore.metadata import MetadataMachine
from kraftcore.node.plugin_node import plugin_node
from kraftcore.plugins.controller import Controller, activation
from kraftcore.plugins.controller.decision import Api, ControllerResult, ControllerSettings
from kraftcore.plugins.controller.life import Life
from kraftcore.plugins.controller.registry import APIS
from kraftcore.plugins.controller.requests import RequestStep
from kraftcore.plugins.controller.settings import Periods
from kraftcore.protocol.appending import append_request
from kraftcore.protocol.data.default_principal_data import DefaultPrincipalData
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.features import supported_levels
from kraftcore.protocol.frames import decode_response, encode_request
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest
from kraftcore.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from kraftcore.protocol.messages.broker_registration import BrokerRegistrationRequest
from kraftcore.protocol.messages.create_topics import CreateTopicsRequest
from kraftcore.protocol.messages.describe_cluster import DescribeClusterRequest
from kraftcore.protocol.messages.envelope import EnvelopeRequest
from kraftcore.protocol.messages.list_groups import ListGroupsRequest
from kraftcore.protocol.messages.unregister_broker import UnregisterBrokerRequest
from kraftcore.protocol.records.remove_topic_record import RemoveTopicRecord
from kraftcore.protocol.registry import ApiKey

QUIET = {"metadata.max.idle.interval.ms": "0", "auto.leader.rebalance.enable": "false"}


def controllers(folder, size=3, **properties):
    texts = {key.replace("_", "."): text for key, text in properties.items()}
    plugins = lambda: [Controller({**QUIET, **texts})]  # noqa: E731
    return memory_quorum(folder, MetadataMachine, plugins=plugins, size=size, probe=False)


async def active(quorum):
    """The node whose controller takes decisions, with the first records committed."""
    with trio.fail_after(60):
        while True:
            for node in list(quorum.nodes.values()):
                if node.leading_epoch is not None and node.state_machine.levels:
                    return node
            await trio.sleep(0.01)


def address(node):
    return f"n{node.key.id}", 9000 + node.key.id


async def ask(asker, node, request):
    with trio.fail_after(60):
        return await plugin_node(asker).ask(*address(node), request, 30_000)


def registration(cluster_id, number=5):
    kind = BrokerRegistrationRequest
    return kind(
        broker_id=number,
        cluster_id=cluster_id,
        incarnation_id=Uuid.random(random.randbytes),
        listeners=[kind.Listener(name="PLAINTEXT", host="b", port=9092)],
        features=[
            kind.Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in supported_levels().items()
        ],
        log_dirs=[Uuid.random(random.randbytes)],
    )


async def unfenced(node, number=5):
    """A broker that is registered and unfenced; returns its epoch."""
    answer = await ask(node, node, registration(node.cluster_id, number))
    assert answer.error_code == ErrorCode.NONE
    epoch = answer.broker_epoch
    beat = BrokerHeartbeatRequest(broker_id=number, broker_epoch=epoch, current_metadata_offset=epoch)
    answer = await ask(node, node, beat)
    assert (answer.error_code, answer.is_fenced) == (ErrorCode.NONE, False)
    return epoch


async def registered(leader):
    """All three controllers are registered: from here on nobody writes anything unasked."""
    with trio.fail_after(60):
        while len(leader.state_machine.image.controllers) < 3:
            await trio.sleep(0.01)
        while leader.status().high_watermark < leader.status().log_end_offset:
            await trio.sleep(0.01)


def new_topic(name, partitions=1):
    kind = CreateTopicsRequest.CreatableTopic
    return CreateTopicsRequest(
        topics=[kind(name=name, num_partitions=partitions, replication_factor=1)], timeout_ms=30_000
    )


async def same_images(quorum, what):
    with trio.fail_after(60):
        while len({what(node.state_machine.image) for node in quorum.nodes.values()}) > 1:
            await trio.sleep(0.01)


def topics_of(image):
    return tuple(sorted(image.topics.by_name(each.name).name for each in image.topics.values()))


def test_the_leader_decides_and_the_others_say_who_it_is(tmp_path):
    async def main():
        async with controllers(tmp_path) as quorum:
            leader = await active(quorum)
            epoch = await unfenced(leader)
            assert leader.state_machine.image.registration_offsets[5] == epoch
            made = await ask(leader, leader, new_topic("orders", 3))
            assert made.topics[0].error_code == ErrorCode.NONE
            await same_images(quorum, topics_of)
            other = next(node for node in quorum.nodes.values() if node is not leader)
            refused = await ask(leader, other, UnregisterBrokerRequest(broker_id=5))
            assert refused.error_code == ErrorCode.NOT_CONTROLLER
            assert refused.error_message == f"The active controller appears to be node {leader.key.id}."
            with trio.fail_after(60):
                while len(other.state_machine.image.controllers) < 3:
                    await trio.sleep(0.01)
            for node in quorum.nodes.values():
                cluster = await ask(leader, node, DescribeClusterRequest(endpoint_type=2))
                assert (cluster.controller_id, len(cluster.brokers)) == (leader.key.id, 3)
                features = await ask(
                    leader, node, ApiVersionsRequest(client_software_name="a", client_software_version="1")
                )
                assert "metadata.version" in {each.name for each in features.finalized_features}

    run(main)


async def ask_into(answers, node, request):
    answers.append(await ask(node, node, request))


async def lose_a_topic(quorum):
    """Cut the leader off, and have it append a topic; the node that led, and what it answered when it led no more."""
    while True:
        leader = await active(quorum)
        await registered(leader)
        if leader.leading_epoch is None:
            continue  # another one leads by now
        quorum.cut_off(leader.key.id)  # nothing is uncommitted: see ``registered``
        answers = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask_into, answers, leader, new_topic("lost"))
            was_there = False
            while not answers:
                was_there = was_there or "lost" in topics_of(leader.state_machine.image)
                await trio.sleep(0.001)
        if was_there:
            return leader, answers[0]
        quorum.network.heal()  # its leadership ended before it could append


def test_what_was_not_committed_is_gone_with_the_leadership_and_its_askers_hear_it(tmp_path):
    async def main():
        async with controllers(tmp_path, broker_session_timeout_ms="600000") as quorum:
            leader = await active(quorum)
            await unfenced(leader)
            await ask(leader, leader, new_topic("kept"))
            await same_images(quorum, topics_of)
            leader, answer = await lose_a_topic(quorum)
            assert answer.topics[0].error_code == ErrorCode.NOT_CONTROLLER
            assert topics_of(leader.state_machine.image) == ("kept",)
            following = await active(quorum)  # one of the others: what the former leader appended cannot win any more
            quorum.network.heal()
            made = await ask(following, following, new_topic("next"))
            assert made.topics[0].error_code == ErrorCode.NONE
            await same_images(quorum, topics_of)
            assert topics_of(leader.state_machine.image) == ("kept", "next")

    run(main, limit_s=120)


def test_a_silent_broker_is_fenced_and_a_new_controller_knows_it(tmp_path):
    async def main():
        async with controllers(tmp_path, broker_session_timeout_ms="1000") as quorum:
            leader = await active(quorum)
            await unfenced(leader)
            with trio.fail_after(60):
                while not leader.state_machine.image.brokers[5].is_fenced:
                    await trio.sleep(0.01)
            await quorum.stop(leader.key.id)
            following = await active(quorum)
            assert following.state_machine.image.brokers[5].is_fenced
            await quorum.start(leader.key.id)
            await same_images(quorum, lambda image: len(image.brokers))

    run(main)


def test_an_unexpected_error_answers_its_asker_alone(tmp_path, monkeypatch):
    def broken(context, request, version):
        return ControllerResult(None, [(RemoveTopicRecord(topic_id=Uuid(b"\x07" * 16)), 0)])

    async def main():
        async with controllers(tmp_path) as quorum:
            leader = await active(quorum)
            await unfenced(leader)
            await registered(leader)
            good = APIS[UnregisterBrokerRequest]
            changed = {**APIS, UnregisterBrokerRequest: Api(broken, good.refuse)}
            monkeypatch.setattr("kraftcore.plugins.controller.service.APIS", changed)
            end = leader.status().log_end_offset
            answer = await ask(leader, leader, UnregisterBrokerRequest(broker_id=5))
            assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
            assert leader.leading_epoch is not None
            assert leader.status().log_end_offset == end
            made = await ask(leader, leader, new_topic("after"))
            assert made.topics[0].error_code == ErrorCode.NONE
            await same_images(quorum, topics_of)

    run(main)


def test_what_is_answered_is_gone_without_the_garbage_collector(tmp_path):
    """Requests are thousands of objects: kept until the collector comes, they would stop everybody meanwhile."""

    async def main():
        async with controllers(tmp_path, size=1) as quorum:
            leader = await active(quorum)
            epoch = await unfenced(leader)
            gc.collect()
            gc.disable()
            try:
                for number in range(5):
                    await ask(leader, leader, new_topic(f"t{number}"))
                    await ask(leader, leader, UnregisterBrokerRequest(broker_id=9))  # refused
                    await ask(leader, leader, BrokerHeartbeatRequest(broker_id=5, broker_epoch=epoch))
                # Of the youngest generation: made since then, and not what earlier tests in this process have left.
                left = [each for each in gc.get_objects(generation=0) if type(each) is RequestStep]
            finally:
                gc.enable()
            # The last one may still be on the stack, and the controller asks things of its own.
            assert len(left) < 5

    run(main)


@pytest.mark.parametrize("size", [1, 3])
def test_a_controller_that_cannot_become_active_gives_leadership_up(tmp_path, size, monkeypatch, caplog):
    failed = []
    activate = activation.activate

    def fail(context, bootstrap):
        if failed:
            return activate(context, bootstrap)
        failed.append(context.settings.node_id)
        raise CorruptDataError("the bootstrap records are a poem")

    monkeypatch.setattr(activation, "activate", fail)

    async def main():
        async with controllers(tmp_path, size=size) as quorum:
            leader = await active(quorum)
            await unfenced(leader)
            assert leader.leading_epoch > 1  # the same node's or another's
            assert (
                "cannot become active, and gives leadership up in 0 ms: the bootstrap records are a poem" in caplog.text
            )

    run(main)


def test_what_may_be_split_has_at_most_10_000_records_a_batch(tmp_path):
    async def main():
        async with controllers(tmp_path, size=1) as quorum:
            leader = await active(quorum)
            epoch = await unfenced(leader)
            for name in ("t", "u"):
                made = await ask(leader, leader, new_topic(name, 6000))
                assert made.topics[0].error_code == ErrorCode.NONE
            start = leader.status().log_end_offset
            beat = BrokerHeartbeatRequest(broker_id=5, broker_epoch=epoch, want_fence=True)
            assert (await ask(leader, leader, beat)).is_fenced
            counts = [batch.count for batch in iter_batches(leader.read(start, 16 << 20))]
            assert counts == [10_000, 2_001]

    run(main)


def test_a_registration_out_of_a_snapshot_is_as_young_as_the_snapshot(tmp_path):
    """As in Kafka: a fenced broker has to have read all of the snapshot before it is unfenced."""

    async def main():
        async with controllers(tmp_path, size=1) as quorum:
            leader = await active(quorum)
            answer = await ask(leader, leader, registration(leader.cluster_id))
            epoch = answer.broker_epoch
            await ask(leader, leader, registration(leader.cluster_id, 6))
            end, _ = await leader.snapshot_now()
            assert leader.state_machine.image.registration_offsets[5] == epoch < end - 1
            await quorum.stop(1)
            await quorum.start(1)
            leader = await active(quorum)
            assert dict(leader.state_machine.image.registration_offsets) == {5: end - 1, 6: end - 1}
            for read, is_fenced in ((end - 2, True), (end - 1, False)):
                beat = BrokerHeartbeatRequest(broker_id=5, broker_epoch=epoch, current_metadata_offset=read)
                answer = await ask(leader, leader, beat)
                assert (answer.error_code, answer.is_fenced, answer.is_caught_up) == (0, is_fenced, not is_fenced)

    run(main)


def envelope(request, version, principal=b"", address=bytes((127, 0, 0, 1))):
    return EnvelopeRequest(
        request_data=bytes(encode_request(request, version, 77)),
        request_principal=principal or b"\0\0" + bytes(encode(DefaultPrincipalData(type="User", name="alice"), 0)),
        client_host_address=address,
    )


def test_a_broker_passes_requests_on(tmp_path):
    async def main():
        async with controllers(tmp_path) as quorum:
            leader = await active(quorum)
            await unfenced(leader)
            answer = await ask(leader, leader, envelope(new_topic("passed"), 7))
            assert answer.error_code == ErrorCode.NONE
            header, inside = decode_response(answer.response_data, 19, 7)
            assert (header.correlation_id, inside.topics[0].error_code) == (77, ErrorCode.NONE)
            for sent, error in (
                (envelope(new_topic("x"), 7, principal=b"zz"), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
                (envelope(new_topic("x"), 7, address=b"\1\2\3"), ErrorCode.INVALID_REQUEST),
                (envelope(ListGroupsRequest(), 4), ErrorCode.INVALID_REQUEST),
                (envelope(DescribeClusterRequest(), 1), ErrorCode.INVALID_REQUEST),
            ):
                refused = await ask(leader, leader, sent)
                assert (refused.error_code, refused.response_data) == (error, None)
            other = next(node for node in quorum.nodes.values() if node is not leader)
            refused = await ask(leader, other, envelope(new_topic("x"), 7))
            assert refused.error_code == ErrorCode.NOT_CONTROLLER

    run(main)


@pytest.mark.parametrize(
    ("properties", "allowed"),
    [({"super.users": "User:ANONYMOUS"}, True), ({"super.users": "User:root"}, False)],
)
def test_the_authorizer_is_asked(tmp_path, properties, allowed):
    async def main():
        wanted = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer", **properties}
        # Alone where nobody may speak raft: three would elect no leader.
        async with controllers(tmp_path, size=3 if allowed else 1, **wanted) as quorum:
            leader = await active(quorum)
            answer = await ask(leader, leader, UnregisterBrokerRequest(broker_id=9))
            if allowed:
                assert answer.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
            else:
                assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                assert answer.error_message.endswith("needs ALTER permission.")

    run(main)


@pytest.mark.parametrize("offers_log", [False, True])
def test_the_log_takes_records_of_others_only_if_it_is_told_to(tmp_path, offers_log):
    """Anything that is no metadata record would leave the cluster without a controller for ever."""

    async def main():
        make = lambda: [Controller(QUIET, **({"offers_log": True} if offers_log else {}))]  # noqa: E731
        async with memory_quorum(tmp_path, MetadataMachine, plugins=make, size=1, probe=False) as quorum:
            node = await active(quorum)
            offered = {each.api_key for each in (await ask(node, node, ApiVersionsRequest())).api_keys}
            own = {int(ApiKey.PRODUCE), int(ApiKey.LIST_OFFSETS)}
            assert offered & own == (own if offers_log else set())
            request = append_request(
                [b"no metadata record"],
                topic="__cluster_metadata",
                topic_id=METADATA_TOPIC_ID,
                client_id=7,
                sequence=0,
                timestamp_ms=0,
                timeout_ms=30_000,
            )
            answer = await ask(node, node, request)
            if offers_log:
                assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
            else:
                assert isinstance(answer, Failure)
                assert node.state_machine.trouble is None

    run(main, limit_s=60)


def no_metadata():
    return RecordBatch(build_batch([b"\xff no metadata record"], timestamp_ms=0))


def test_a_node_that_cannot_follow_the_log_leaves_leading_to_others(tmp_path, caplog):
    async def main():
        async with controllers(tmp_path) as quorum:
            lost = await active(quorum)
            await unfenced(lost)
            lost.state_machine.apply(no_metadata())  # trouble begins while it leads
            others = [node for node in quorum.nodes.values() if node is not lost]
            for number in (6, 7):
                with trio.fail_after(60):
                    while not (found := [node for node in others if node.leading_epoch is not None]):
                        await trio.sleep(0.01)
                leader = found[0]
                await unfenced(leader, number)
                assert lost.leading_epoch is None
                with trio.move_on_after(5), suppress(KraftError):  # and where it was there before
                    await leader.transfer_leadership(lost.key.id)
            assert caplog.text.count("cannot follow the log, and gives leadership up") >= 2

    run(main, limit_s=120)


def test_where_nobody_can_lead_each_resignation_is_later():
    machine = MetadataMachine()
    life = Life(machine, ControllerSettings("c"), Periods(), random.Random(1), list, lambda: 1, 10**6)
    machine.apply(no_metadata())
    pauses, now_ms = [], 1_000
    for epoch in range(1, 12):
        assert life.lead(epoch, now_ms) is None
        assert life.must_resign
        pauses.append(life.due_ms - now_ms)
        life.follow()
        now_ms += pauses[-1] + 2_000
    assert pauses[:3] == [0, 1_000, 2_000] and pauses == sorted(pauses) and pauses[-1] == pauses[-2] == 60_000
    life.lead(12, now_ms + 20_000)  # somebody led meanwhile
    assert life.due_ms == now_ms + 20_000


def test_where_nobody_can_become_active_each_resignation_is_later():
    """Bootstrap records that nobody can make anything of: else several changes of leader a second, each in the log."""
    life = Life(MetadataMachine(), ControllerSettings("c"), Periods(), random.Random(1), list, lambda: 1, 10**6)
    pauses, now_ms = [], 20_000
    for epoch in range(1, 12):
        step = life.lead(epoch, now_ms)
        with pytest.raises(CorruptDataError) as caught:
            step.decide(0, epoch)
        step.failed(caught.value)
        assert life.must_resign and not life.is_active
        pauses.append(life.due_ms - now_ms)
        life.follow()
        now_ms += pauses[-1] + 100
    assert pauses[:3] == [0, 1_000, 2_000] and pauses == sorted(pauses) and pauses[-1] == pauses[-2] == 60_000


def test_a_leader_on_all_interfaces_registers_itself_over_tls(tmp_path, monkeypatch):
    """By the name that it advertises, for which its certificate is."""
    monkeypatch.setattr(socket, "getfqdn", lambda: "localhost")
    stores = make_stores(tmp_path)
    config = NodeConfig(
        node_id=1,
        directory=tmp_path / "n1",
        listeners=["CONTROLLER://0.0.0.0:0"],
        create="standalone",
        tls=TlsConfig(certificate=stores.node, ca=stores.ca),
    )

    async def main():
        async with open_node(config, MetadataMachine(), plugins=[Controller(QUIET)]) as node:
            while 1 not in node.state_machine.image.controllers:
                await trio.sleep(0.01)

    run(main, limit_s=60)
