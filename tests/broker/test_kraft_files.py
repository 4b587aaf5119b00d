"""Brokers under a controller, as a server's file describes them: listeners, logins, what is refused."""

from contextlib import AsyncExitStack

import pytest
import trio
from broker_rig import until
from transport_rig import free_port

from kraftcore.config import NodeConfig
from kraftcore.config.errors import ConfigError
from kraftcore.errors import NodeStoppedError
from kraftcore.metadata import MetadataMachine
from kraftcore.node import open_node
from kraftcore.plugins.broker import BrokerConfig, KRaftBroker
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.controller import Controller
from kraftcore.protocol.messages.create_topics import CreateTopicsRequest
from kraftcore.raft.quorum import Endpoint

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="b" password="p" user_b="p";'
BROKER = f"""\
process.roles=broker
node.id=%d
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:%d
listeners=INSIDE://127.0.0.1:0,PLAINTEXT://127.0.0.1:0
inter.broker.listener.name=INSIDE
listener.security.protocol.map=CONTROLLER:PLAINTEXT,INSIDE:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.inside.plain.sasl.jaas.config={JAAS}
broker.rack=r%d
broker.heartbeat.interval.ms=100
log.dirs=%s
"""


def test_brokers_log_in_at_each_other(tmp_path):
    async def main():
        async with AsyncExitStack() as stack:
            config = NodeConfig(
                node_id=900, directory=str(tmp_path / "c"), listeners=["CONTROLLER://127.0.0.1:0"], create="standalone"
            )
            controller = await stack.enter_async_context(open_node(config, MetadataMachine(), plugins=[Controller()]))
            brokers = {}
            for node_id in (1, 2):
                file = tmp_path / f"b{node_id}.properties"
                place = controller.endpoints[0].port
                text = BROKER % (node_id, place, node_id, tmp_path / f"b{node_id}")
                if node_id == 2:
                    text += f"log.dirs={tmp_path}/b2,{tmp_path}/b3\nmetadata.log.dir={tmp_path}/m2\n"
                file.write_text(text)
                found = NodeConfig.from_properties(
                    str(file), with_broker=True, create="join", cluster_id=controller.cluster_id
                )
                assert not found.listeners
                assert [each.name for each in found.broker_listeners] == ["INSIDE", "PLAINTEXT"]
                settings = BrokerConfig.from_properties(str(file))
                assert settings.rack == f"r{node_id}"
                assert settings.security[1].username == "b"
                brokers[node_id] = KRaftBroker(settings, security=settings.security)
                await stack.enter_async_context(open_node(found, MetadataMachine(), plugins=[brokers[node_id]]))
                with trio.fail_after(60):
                    await brokers[node_id].wait_running()
            kind = CreateTopicsRequest.CreatableTopic
            placed = kind.CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2])
            topic = kind(name="t", num_partitions=-1, replication_factor=-1, assignments=[placed])
            request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
            answer = await brokers[1].send_to_controller(request)
            assert answer.topics[0].error_code == 0
            name = TopicPartition("t", 0)

            def replica(node_id):
                found = brokers[node_id].parts.replicas.all.get(name)
                return None if found is None else found.partition

            await until(lambda: replica(1) is not None and replica(1).leading)
            # Broker 2 fetches on a listener that takes nobody without a login.
            await until(lambda: replica(1).leading.followers[2].log_end_offset == 0)
            registered = controller.state_machine.image.brokers[1]
            assert [(each.name, each.security_protocol) for each in registered.listeners] == [
                ("INSIDE", 2),
                ("PLAINTEXT", 0),
            ]
            assert registered.rack == "r1"
            # The directory of the metadata log is no log directory, unless it is named as one.
            found = {directory.path: directory.id for directory in brokers[2].parts.dirs.directories}
            assert found.keys() == {f"{tmp_path}/b2", f"{tmp_path}/b3"}
            assert set(controller.state_machine.image.brokers[2].directories) == set(found.values())
            assert (tmp_path / "m2" / "__cluster_metadata-0").exists()
            assert not (tmp_path / "b2" / "__cluster_metadata-0").exists()

    trio.run(main)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("listeners=CONTROLLER://127.0.0.1:0", "listeners is missing"),
        ("controller.listener.names=", "controller.listener.names is missing"),
        ("sasl.mechanism.inter.broker.protocol=", "sasl.mechanism.inter.broker.protocol is missing"),
        ("inter.broker.listener.name=OTHER", "inter_broker_listener is OTHER"),
        ("broker.heartbeat.interval.ms=0", "broker.heartbeat.interval.ms"),
        ("log.cleanup.policy=compact", "log.cleanup.policy is 'compact'"),
    ],
)
def test_what_is_refused(tmp_path, change, problem):
    file = tmp_path / "b.properties"
    file.write_text(BROKER % (1, 9093, 1, tmp_path) + change + "\n")
    with pytest.raises(ConfigError, match=problem):
        BrokerConfig.from_properties(str(file))


def test_a_node_and_its_broker_have_the_same_listeners(tmp_path):
    config = NodeConfig(
        node_id=1, directory=str(tmp_path / "n"), listeners=["CONTROLLER://127.0.0.1:0"], create="standalone"
    )
    settings = BrokerConfig(node_id=1, listeners=(Endpoint("B", "127.0.0.1", 0),), directories=(str(tmp_path / "n"),))

    async def main():
        plugins = [Controller(), KRaftBroker(settings)]
        with trio.fail_after(60):
            async with open_node(config, MetadataMachine(), plugins=plugins):
                await trio.sleep_forever()

    with pytest.raises(Exception, match="listeners names B, broker_listeners of its NodeConfig names none"):
        trio.run(main)


def test_without_a_controller_it_gives_up(tmp_path):
    config = NodeConfig(
        node_id=1,
        directory=str(tmp_path / "n"),
        can_become_voter=False,
        create="join",
        cluster_id="4L6g3nShT-eMCtK--X86sw",
        bootstrap_servers=[f"127.0.0.1:{free_port()}"],
        broker_listeners=["B://127.0.0.1:0"],
    )
    settings = BrokerConfig(
        node_id=1,
        listeners=(Endpoint("B", "127.0.0.1", 0),),
        directories=(str(tmp_path / "n"),),
        registration_timeout_ms=100,
    )

    async def main():
        with trio.fail_after(60):
            async with open_node(config, MetadataMachine(), plugins=[KRaftBroker(settings)]):
                await trio.sleep_forever()

    with pytest.raises(NodeStoppedError, match="could not register within 100 ms .*no controller answers"):
        trio.run(main)
