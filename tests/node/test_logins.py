"""Nodes that log in to each other over TLS: elections, commits, logins renewed under load, a wrong password."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager

import pytest
import trio
import trustme
from nodes import Values, run

from kraftcore import NodeConfig, open_node
from kraftcore.config import SaslLogin, TlsConfig
from kraftcore.config.security import SaslConfig
from kraftcore.security.sasl.client_session import SaslClientSession
from kraftcore.transports.tcp import client

HOST = "127.0.0.1"
PASSWORD = "hunter2"


@pytest.fixture
def tls(tmp_path) -> TlsConfig:
    authority = trustme.CA()
    authority.issue_cert(HOST).private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "node.pem"))
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return TlsConfig(certificate=str(tmp_path / "node.pem"), ca=str(tmp_path / "ca.pem"))


async def free_ports(count: int) -> list[int]:
    listeners = [(await trio.open_tcp_listeners(0, host=HOST))[0] for _ in range(count)]
    ports = [listener.socket.getsockname()[1] for listener in listeners]
    for listener in listeners:
        await listener.aclose()
    return ports


class Quorum:
    """Three nodes with a login, and what an observer of theirs needs."""

    def __init__(self, folder, tls: TlsConfig, ports: list[int], mechanism: str, lifetime_ms: int) -> None:
        self.machines = {number: Values() for number in (1, 2, 3)}
        self.nodes = {}
        self._mechanism = mechanism
        sasl = SaslConfig(mechanisms=(mechanism,), users={"node": PASSWORD}, max_reauth_ms={mechanism: lifetime_ms})
        self._common = {
            "cluster_id": "logins",
            "voters": [f"{number}@{HOST}:{port}" for number, port in zip((1, 2, 3), ports, strict=True)],
            "create": "join",
            "tls": tls,
        }
        self.configs = {
            number: NodeConfig(
                node_id=number,
                directory=f"{folder}/n{number}",
                listeners=[f"C://{HOST}:{port}"],
                listener_sasl={"C": sasl},
                sasl=self.login(),
                **self._common,
            )
            for number, port in zip((1, 2, 3), ports, strict=True)
        }
        self._folder = folder

    def login(self, password: str = PASSWORD) -> SaslLogin:
        return SaslLogin(mechanism=self._mechanism, username="node", password=password)

    def observer(self, number: int, login: SaslLogin) -> NodeConfig:
        return NodeConfig(
            node_id=number,
            directory=f"{self._folder}/n{number}",
            can_become_voter=False,
            sasl=login,
            **self._common,
        )

    async def live(self, number: int, task_status) -> None:
        async with open_node(self.configs[number], self.machines[number]) as node:
            self.nodes[number] = node
            task_status.started()
            await trio.sleep_forever()


@asynccontextmanager
async def quorum(folder, tls, mechanism: str, lifetime_ms: int = 0):
    made = Quorum(folder, tls, await free_ports(3), mechanism, lifetime_ms)
    async with trio.open_nursery() as nursery:
        for number in made.configs:
            await nursery.start(made.live, number)
        yield made
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_quorum_whose_nodes_log_in_elects_and_commits(tmp_path, tls, mechanism):
    async def main():
        async with quorum(tmp_path, tls, mechanism) as three:
            leader = three.nodes[await three.nodes[1].wait_leader()]
            for number in range(20):
                await leader.append(b"%d" % number)
            await three.nodes[1].append(b"forwarded", forward=True)
            end = await leader.read_barrier()
            for number, node in three.nodes.items():
                await node.wait_applied(end)
                assert three.machines[number].values == [*(b"%d" % each for each in range(20)), b"forwarded"]
            observed = Values()
            async with open_node(three.observer(9, three.login()), observed) as observer:
                await observer.wait_applied(end)
                await observer.append(b"from an observer", forward=True)
            assert observed.values[:21] == three.machines[1].values[:21]
            await leader.transfer_leadership(next(number for number in (1, 2, 3) if number != leader.leader_id))
            await three.nodes[2].append(b"after the transfer", forward=True)

    run(main, limit_s=60)


def test_logins_are_renewed_under_load_and_nothing_is_lost(tmp_path, tls, monkeypatch, caplog):
    renewals: list[SaslClientSession] = []
    renew = SaslClientSession.renew

    def counted(session: SaslClientSession):
        renewals.append(session)
        return renew(session)

    monkeypatch.setattr(SaslClientSession, "renew", counted)
    # Long before the login ends: no pause of the machine may come between.
    monkeypatch.setattr(client, "_RENEWED_AFTER", (0.1, 0.15))

    async def main():
        async with quorum(tmp_path, tls, "SCRAM-SHA-256", lifetime_ms=10_000) as three:
            leader_id = await three.nodes[1].wait_leader()
            leader, epoch = three.nodes[leader_id], three.nodes[leader_id].status().epoch
            others = [node for number, node in three.nodes.items() if number != leader_id]
            for node in three.nodes.values():
                await node.read_barrier()
            caplog.clear()
            acknowledged: list[bytes] = []

            async def append(node, name: bytes) -> None:
                number = 0
                while len(renewals) < 8:
                    value = b"%s %d" % (name, number)
                    await node.append(value, forward=True)
                    acknowledged.append(value)
                    number += 1

            async with trio.open_nursery() as nursery:
                for number, node in enumerate((leader, *others)):
                    nursery.start_soon(append, node, b"from %d" % number)
            end = await leader.read_barrier()
            for number, node in three.nodes.items():
                await node.wait_applied(end)
                assert sorted(three.machines[number].values) == sorted(acknowledged)
            assert leader.status().epoch == epoch

    run(main, limit_s=60)
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert not [line for line in told if "log" in line or "connect" in line]


def test_a_wrong_password_is_said_once_and_disturbs_nobody(tmp_path, tls, caplog):
    async def main():
        async with quorum(tmp_path, tls, "SCRAM-SHA-512") as three:
            leader = three.nodes[await three.nodes[1].wait_leader()]
            await leader.append(b"before")
            epoch = leader.status().epoch
            async with open_node(three.observer(9, three.login("guessed")), Values()) as observer:
                while not logins(caplog):
                    await trio.sleep(0.01)
                for number in range(100):
                    await leader.append(b"%d" % number)
                assert observer.high_watermark <= 0
            assert leader.status().epoch == epoch

    run(main, limit_s=60)
    lines = logins(caplog)
    assert all("with SASL mechanism SCRAM-SHA-512 failed: it says Authentication failed" in line for line in lines)
    assert len(lines) <= 3  # one for each node that it asked
    assert len(set(lines)) == len(lines)
    assert not any(PASSWORD in record.getMessage() or "guessed" in record.getMessage() for record in caplog.records)


def logins(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.getMessage().startswith("login at ")]
