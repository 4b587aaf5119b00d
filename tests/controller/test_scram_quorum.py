"""Controllers that know each other by SCRAM alone: the users are in the log that they have to agree on first."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio
from kafka_lab import free_port
from transport_rig import in_trio

from kraftcore import NodeConfig, admin, open_node
from kraftcore.admin import ScramMechanism, ScramUpsertion, Timing
from kraftcore.cli import main
from kraftcore.config import SaslLogin
from kraftcore.core.uuid import Uuid
from kraftcore.errors import AuthenticationError, KraftError
from kraftcore.metadata import MetadataMachine
from kraftcore.plugins.controller import Controller

SCRAM = "SCRAM-SHA-256"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
IDS = (1, 2, 3)


class Quorum:
    """Three formatted directories."""

    def __init__(self, folder, capsys):
        ports = [free_port() for _ in IDS]
        self.addresses = [f"127.0.0.1:{port}" for port in ports]
        self.files = []
        voters = ",".join(f"{each}@{at}:{Uuid.random()}" for each, at in zip(IDS, self.addresses, strict=True))
        cluster_id = str(Uuid.random())
        for each, at in zip(IDS, self.addresses, strict=True):
            file = folder / f"{each}.properties"
            file.write_text(
                f"process.roles=controller\nnode.id={each}\nlisteners=CONTROLLER://{at}\nlog.dirs={folder}/{each}\n"
                f"controller.listener.names=CONTROLLER\ncontroller.quorum.bootstrap.servers={','.join(self.addresses)}\n"
                f"listener.security.protocol.map=CONTROLLER:SASL_PLAINTEXT\nsasl.enabled.mechanisms={SCRAM}\n"
                f"sasl.mechanism.controller.protocol={SCRAM}\nmetadata.max.idle.interval.ms=0\n"
                f"listener.name.controller.scram-sha-256.sasl.jaas.config={MODULE} required "
                'username="node" password="of node";\n'
            )
            users = ["--add-scram", f"{SCRAM}=[name=node,password=of node]"]
            command = ["storage", "format", "-c", str(file), "-t", cluster_id, "--initial-controllers", voters, *users]
            assert main(command) == 0
            self.files.append(file)
        capsys.readouterr()

    @asynccontextmanager
    async def running(self, count=3):
        async with AsyncExitStack() as stack:
            nodes = []
            for file in self.files[:count]:
                properties = dict(line.split("=", 1) for line in file.read_text().splitlines())
                config = NodeConfig.from_properties(file)
                nodes.append(
                    await stack.enter_async_context(
                        open_node(config, MetadataMachine(), plugins=[Controller(properties)])
                    )
                )
            yield nodes

    @asynccontextmanager
    async def client(self, name="node", password="of node"):
        login = SaslLogin(mechanism=SCRAM, username=name, password=password)
        async with admin.connect(
            bootstrap_controllers=self.addresses, sasl=login, timing=Timing(call_timeout_ms=60_000)
        ) as client:
            yield client

    async def logs_in(self, name, password):
        try:
            async with self.client(name, password) as client:
                await client.describe_quorum()
        except AuthenticationError:
            return False
        return True

    async def learn(self, name, password, *, is_good=True):
        """Wait until all of them know: a follower has applied what was committed a moment later."""
        for _ in range(3):
            while await self.logs_in(name, password) is not is_good:
                await trio.sleep(0.01)


@in_trio
async def test_it_forms_and_forms_again(tmp_path, capsys):
    quorum = Quorum(tmp_path, capsys)
    async with quorum.running():
        async with quorum.client() as client:
            assert (await client.describe_quorum()).leader_id in IDS
            await client.alter_scram_credentials([ScramUpsertion("carol", ScramMechanism.SCRAM_SHA_256, b"first")])
        await quorum.learn("carol", "first")
        assert not await quorum.logs_in("carol", "second")
        async with quorum.client() as client:
            await client.alter_scram_credentials(
                [ScramUpsertion("node", ScramMechanism.SCRAM_SHA_256, b"of node", 8192)]
            )
            await client.alter_scram_credentials([ScramUpsertion("carol", ScramMechanism.SCRAM_SHA_256, b"second")])
        await quorum.learn("carol", "second")
    async with quorum.running():  # what formatting left, and earlier passwords, count no more
        assert await quorum.logs_in("node", "of node")
        await quorum.learn("carol", "second")
        await quorum.learn("carol", "first", is_good=False)


@in_trio
async def test_while_nobody_leads(tmp_path, capsys):
    """One node of three: who is in its log may ask it; whom it does not know it tells nothing."""
    quorum = Quorum(tmp_path, capsys)
    async with quorum.running(1) as (node,):
        known = SaslLogin(mechanism=SCRAM, username="node", password="of node")
        for login, refused in ((known, False), (SaslLogin(mechanism=SCRAM, username="x", password="y"), None)):
            short = Timing(call_timeout_ms=500)
            async with admin.connect(bootstrap_controllers=quorum.addresses[:1], sasl=login, timing=short) as client:
                with pytest.raises(KraftError) as caught:  # nobody leads: it ends with that, or with no answer
                    await client.describe_quorum()
            assert not isinstance(caught.value, AuthenticationError), refused
        wrong = SaslLogin(mechanism=SCRAM, username="node", password="wrong")
        async with admin.connect(bootstrap_controllers=quorum.addresses[:1], sasl=wrong) as client:
            with pytest.raises(AuthenticationError):
                await client.describe_quorum()
        assert node.leader_id is None
