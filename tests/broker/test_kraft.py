"""Brokers of ours under a controller of ours, in one process."""

import json
from random import Random

import trio
from broker_rig import until
from kraft_rig import CONTROLLER_ID
from trio.testing import wait_all_tasks_blocked

from kraftcore.core.batch import Compression, iter_batches
from kraftcore.core.uuid import UNASSIGNED_DIRECTORY
from kraftcore.errors import LocalError
from kraftcore.plugins.broker.controller_channel import ControllerChannel
from kraftcore.plugins.broker.kraft import lifecycle
from kraftcore.plugins.broker.kraft.lifecycle import Stage
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kraftcore.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from kraftcore.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kraftcore.protocol.messages.metadata import MetadataRequest
from kraftcore.protocol.messages.unregister_broker import UnregisterBrokerRequest


def test_records_go_through_leaders_and_followers(play):
    @play
    async def main(rig):
        await rig.begin(1, 2)
        assert (await rig.produce(1, b"a", b"b")).error_code == 0
        await until(lambda: rig.partition(2) is not None and rig.partition(2).high_watermark == 2)
        assert await rig.values(2) == [b"a", b"b"]
        assert rig.log_bytes(1) == rig.log_bytes(2) != b""
        await until(lambda: set(rig.row().isr) == {1, 2})
        told = await rig.ask(2, MetadataRequest(topics=None), 12)
        assert {each.node_id for each in told.brokers} == {1, 2}
        partition = told.topics[0].partitions[0]
        assert (told.topics[0].name, partition.leader_id, partition.replica_nodes) == ("t", 1, [1, 2])


def test_one_node_is_broker_and_controller(play):
    @play
    async def main(rig):
        await rig.start(CONTROLLER_ID, is_controller=True)
        with trio.fail_after(60):
            await rig.brokers[CONTROLLER_ID].wait_running()
        assert rig.brokers[CONTROLLER_ID].stage is Stage.RUNNING
        await rig.create([CONTROLLER_ID])
        await rig.led_by(CONTROLLER_ID)
        assert (await rig.produce(CONTROLLER_ID, b"a")).error_code == 0
        assert await rig.values(CONTROLLER_ID) == [b"a"]
        await rig.stop(CONTROLLER_ID)  # its broker asks its own controller for leave
        await rig.start(CONTROLLER_ID, is_controller=True)
        await rig.led_by(CONTROLLER_ID)
        assert await rig.values(CONTROLLER_ID) == [b"a"]


def test_a_stop_in_order_hands_leaderships_over_and_is_remembered(play):
    @play
    async def main(rig):
        await rig.begin(1, 2)
        assert (await rig.produce(1, b"a")).error_code == 0
        epoch = rig.brokers[1].broker_epoch
        await rig.stop(1)
        assert rig.row().leader == 2
        assert rig.row().isr == (2,)
        assert not rig.image().brokers[1].is_active
        clean = json.loads((rig.folder / "n1" / ".kafka_cleanshutdown").read_text())
        assert clean == {"version": 0, "brokerEpoch": epoch}
        await rig.led_by(2)
        assert (await rig.produce(2, b"b")).error_code == 0
        await rig.broker(1)
        assert not (rig.folder / "n1" / ".kafka_cleanshutdown").exists()
        await until(lambda: set(rig.row().isr) == {1, 2})
        await until(lambda: rig.log_bytes(1) == rig.log_bytes(2))


def test_a_killed_leader_is_followed_by_another_and_comes_back(play):
    @play
    async def main(rig):
        await rig.begin(1, 2)
        assert (await rig.produce(1, b"a")).error_code == 0
        await rig.kill(1)
        assert not (rig.folder / "n1" / ".kafka_cleanshutdown").exists()
        await until(lambda: rig.row().leader == 2)
        await rig.led_by(2)
        assert (await rig.produce(2, b"b")).error_code == 0
        await rig.broker(1)
        await until(lambda: rig.row().isr == (2, 1))
        assert rig.log_bytes(1) == rig.log_bytes(2)
        assert await rig.values(1) == [b"a", b"b"]


def test_a_topic_deleted_and_made_anew_shows_nothing_old(play):
    @play
    async def main(rig):
        await rig.begin(1)
        await rig.produce(1, b"old")
        await rig.delete()
        await rig.create([1])
        await until(lambda: rig.partition(1) is not None and rig.partition(1).log.log_end_offset == 0)
        await rig.led_by(1)
        assert await rig.values(1) == []
        # The same while it was away.
        await rig.produce(1, b"old")
        await rig.stop(1)
        await rig.delete()
        await rig.start(1, is_controller=False)
        with trio.fail_after(60):
            await rig.brokers[1].wait_running()
        strays = [path.name for path in (rig.folder / "n1").iterdir() if path.name.endswith("-stray")]
        assert len(strays) == 1
        assert strays[0].startswith("t-0.")
        assert b"old" in rig.log_bytes(1, strays[0])
        await rig.create([1])
        await rig.led_by(1)
        assert await rig.values(1) == []


def test_a_replica_moves_to_another_broker(play):
    @play
    async def main(rig):
        await rig.begin(1, 2, replicas=[1])
        await rig.produce(1, b"a")
        kind = AlterPartitionReassignmentsRequest.ReassignableTopic
        move = kind(name="t", partitions=[kind.ReassignablePartition(partition_index=0, replicas=[2])])
        answer = await rig.ask_controller(AlterPartitionReassignmentsRequest(topics=[move], timeout_ms=30_000), 0)
        assert answer.error_code == 0
        await until(lambda: rig.row().replicas == (2,))
        await rig.led_by(2)
        assert await rig.values(2) == [b"a"]
        await until(lambda: rig.partition(1) is None)
        await until(lambda: not (rig.folder / "n1" / "t-0").exists())
        assert (await rig.produce(1, b"b")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_registration_that_is_lost_is_made_again(play):
    @play
    async def main(rig):
        await rig.controller()
        broker = await rig.broker(1)
        before = broker.broker_epoch
        answer = await rig.ask_controller(UnregisterBrokerRequest(broker_id=1), 0)
        assert answer.error_code == 0
        await until(lambda: broker.broker_epoch > before and broker.stage is Stage.RUNNING)
        await until(lambda: 1 in rig.image().brokers and rig.image().brokers[1].is_active)


def test_log_directories_and_one_that_fails(play):
    @play
    async def main(rig):
        await rig.controller()
        await rig.broker(1, directories=("a", "b"))
        await rig.broker(2)
        await rig.create(*[[1, 2]] * 4)
        broker = rig.brokers[1]
        await until(lambda: all(rig.partition(1, partition=number) is not None for number in range(4)))
        ids = {directory.id for directory in broker.parts.dirs.directories}
        assert set(rig.image().brokers[1].directories) == ids
        # The controller left it to the broker, which told what it chose.
        await until(lambda: {rig.row(partition=number).directory_of(1) for number in range(4)} == ids)
        assert UNASSIGNED_DIRECTORY not in ids
        failed = broker.parts.dirs.directories[1]
        lost = [name.partition for name in failed.logs]
        broker.parts.replicas.directory_failed(failed, OSError(5, "broken"))
        await until(lambda: rig.image().brokers[1].directories == (broker.parts.dirs.directories[0].id,))
        await until(lambda: all(rig.row(partition=number).leader == 2 for number in lost))
        assert all(rig.row(partition=number).leader == 1 for number in set(range(4)) - set(lost))


def test_a_broker_whose_disk_was_lost_leads_what_it_alone_holds(play, monkeypatch):
    """The controller elects when the broker is unfenced, and only replicas in directories that the broker has."""
    send = ControllerChannel.send_to_controller

    async def send_late(channel, request, *arguments, **more):
        if isinstance(request, AssignReplicasToDirsRequest):
            await trio.sleep(0.5)
        return await send(channel, request, *arguments, **more)

    monkeypatch.setattr(ControllerChannel, "send_to_controller", send_late)

    @play
    async def main(rig):
        await rig.controller()
        await rig.broker(1)
        await rig.create([1], [1])
        await rig.led_by(1)
        await rig.stop(1)
        (rig.folder / "n1").rename(rig.folder / "lost")
        broker = await rig.broker(1)
        (here,) = broker.parts.dirs.directories
        await until(lambda: {rig.row(partition=number).directory_of(1) for number in range(2)} == {here.id})
        assert [rig.row(partition=number).leader for number in range(2)] == [1, 1]


def test_what_is_set_for_a_topic_holds_for_its_partitions(play):
    @play
    async def main(rig):
        await rig.controller()
        await rig.broker(1)
        await rig.create([1], min_insync_replicas="2", segment_bytes=str(1 << 20), retention_ms="1000")
        await rig.create([1], topic="other")
        await rig.led_by(1)
        parts = rig.brokers[1].parts
        assert rig.partition(1).settings.min_insync_replicas == 2
        assert rig.partition(1).log.config.segment_bytes == 1 << 20
        assert parts.topics.of("t").retention.ms == 1000
        assert parts.topics.of("other").retention.ms == -1
        kind = IncrementalAlterConfigsRequest.AlterConfigsResource
        for type_, name, topic, wanted in ((2, "t", "t", 4), (4, "", "other", 3)):
            entry = kind.AlterableConfig(name="min.insync.replicas", config_operation=0, value=str(wanted))
            change = kind(resource_type=type_, resource_name=name, configs=[entry])
            answer = await rig.ask_controller(IncrementalAlterConfigsRequest(resources=[change]), 1)
            assert answer.responses[0].error_code == 0, answer
            await until(lambda topic=topic, wanted=wanted: parts.topics.of(topic).min_insync_replicas == wanted)
            await until(
                lambda topic=topic, wanted=wanted: rig.partition(1, topic).settings.min_insync_replicas == wanted
            )
        await rig.stop(1)
        await rig.broker(1)
        await rig.led_by(1)
        assert rig.partition(1).log.config.segment_bytes == 1 << 20


def test_what_is_set_holds_at_once_for_a_log_that_is_open(play):
    @play
    async def main(rig):
        await rig.controller()
        await rig.broker(1)
        await rig.create([1])
        await rig.led_by(1)
        assert (await rig.produce(1, b"x" * 900_000)).error_code == 0
        kind = IncrementalAlterConfigsRequest.AlterConfigsResource
        entries = [
            kind.AlterableConfig(name=name, config_operation=0, value=value)
            for name, value in (
                ("segment.bytes", str(1 << 20)),
                ("message.timestamp.type", "LogAppendTime"),
                ("compression.type", "gzip"),
            )
        ]
        change = kind(resource_type=2, resource_name="t", configs=entries)
        answer = await rig.ask_controller(IncrementalAlterConfigsRequest(resources=[change]), 1)
        assert answer.responses[0].error_code == 0, answer
        await until(lambda: rig.partition(1).log.config.segment_bytes == 1 << 20)
        answer = await rig.produce(1, Random(1).randbytes(900_000))
        assert answer.error_code == 0
        assert answer.log_append_time_ms > 1
        log = rig.partition(1).log
        assert [segment.base_offset for segment in log.segment_list()] == [0, 1]
        (stored,) = iter_batches(log.read(1, 1 << 20))
        assert stored.is_valid
        assert (stored.compression, stored.max_timestamp_ms) == (Compression.GZIP, answer.log_append_time_ms)


def test_an_unclean_leader_says_that_it_recovered(play):
    @play
    async def main(rig):
        await rig.begin(1, 2, unclean_leader_election_enable="true")
        assert (await rig.produce(1, b"kept")).error_code == 0
        await rig.stop(2)
        await until(lambda: rig.row().isr == (1,))
        assert (await rig.produce(1, b"lost")).error_code == 0
        await rig.kill(1)
        await until(lambda: not rig.image().brokers[1].is_active)
        await rig.broker(2)
        await until(lambda: rig.row().leader == 2)
        assert rig.row().recovery_state == 1
        await rig.led_by(2)
        assert await rig.values(2) == [b"kept"]
        await rig.broker(1)
        await until(lambda: rig.row().isr == (2, 1))
        assert rig.row().recovery_state == 0
        assert rig.log_bytes(1) == rig.log_bytes(2)
        assert await rig.values(1) == [b"kept"]


def test_brokers_go_on_when_the_controller_comes_back(play):
    @play
    async def main(rig):
        await rig.begin(1, 2)
        epochs = [rig.brokers[node_id].broker_epoch for node_id in (1, 2)]
        await rig.kill(CONTROLLER_ID)
        assert (await rig.produce(1, b"a")).error_code == 0  # nobody needs a controller for that
        await rig.controller()
        await until(lambda: rig.nodes[CONTROLLER_ID].leading_epoch is not None and rig.row() is not None)
        await rig.create([2, 1], topic="later")
        await rig.led_by(2, "later")
        assert (await rig.produce(2, b"b", topic="later")).error_code == 0
        assert [rig.brokers[node_id].broker_epoch for node_id in (1, 2)] == epochs
        assert await rig.values(1) == [b"a"]


def is_open(broker):
    """Whether its parts are made: then it has asked for the first time, or does next."""
    try:
        return broker.parts is not None
    except LocalError:
        return False


def test_a_broker_registers_as_soon_as_it_hears_of_a_controller(play, monkeypatch):
    monkeypatch.setattr(lifecycle, "AGAIN_MS", 3_600_000)  # it would ask again in an hour

    @play
    async def main(rig):
        controller = await rig.controller()
        await until(lambda: controller.leading_epoch is not None)
        rig.network.refuse(f"n{CONTROLLER_ID}")
        await rig.start(1, is_controller=False)
        await until(lambda: is_open(rig.brokers[1]))
        await wait_all_tasks_blocked()
        assert rig.nodes[1].leader_id is None
        rig.network.accept(f"n{CONTROLLER_ID}")
        with trio.fail_after(60):
            await rig.brokers[1].wait_running()
