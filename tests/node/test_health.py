"""Whether a node is ready: each test is a state in which an open port, or a remembered leader, would say it was."""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random

import pytest
import trio
import trio.testing
import trustme
from gated_disk import GatedDisk
from kafka_lab import free_port
from nodes import Lab, Values, run

from kraftcore import NodeConfig, aio, blocking, open_node
from kraftcore.config.tls import TlsConfig
from kraftcore.errors import KraftError, LocalError, NodeStoppedError
from kraftcore.node.health import Health
from kraftcore.node.plugin import Plugin
from kraftcore.raft.roles import Role
from kraftcore.testing.clock import no_jumps

READY = Health(True)
QUICK = {"fetch_timeout_ms": 600, "request_timeout_ms": 500, "fetch_max_wait_ms": 100}


def jumping(main) -> None:
    """In virtual time: it leaps to whatever is due next."""
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


async def hold(lab: Lab, number: int, *, task_status, **settings) -> None:
    async with lab.node(number, **settings) as node:
        task_status.started(node)
        await trio.sleep_forever()


async def until(true, limit_s: float = 20) -> None:
    with trio.fail_after(limit_s):
        while not true():
            await trio.sleep(0.01)


def test_a_quorum_that_works_is_ready_and_one_that_lost_its_majority_is_not():
    """A leader that is cut off holds the role for longer than it has a majority; a voter remembers who led."""

    async def main():
        lab = Lab(inline_flush_bytes=1 << 40)
        lab.format(3)
        async with trio.open_nursery() as nursery:
            async with no_jumps():
                nodes = [await nursery.start(partial(hold, lab, number)) for number in (1, 2, 3)]
            await until(lambda: all(node.health() == READY for node in nodes))
            await trio.sleep(60)
            assert all(node.health() == READY for node in nodes), "idle, and ready"
            leader = next(node for node in nodes if node.is_leader)
            survivor = next(node for node in nodes if not node.is_leader)
            lab.network.cut(["n1", "n2", "n3"], ["n1", "n2", "n3"])
            await trio.sleep(2.2)
            assert leader.status().role is Role.LEADER
            (reason,) = leader.health().reasons
            assert reason.startswith("it leads without a majority: for 2.") and reason.endswith(
                "a majority, 2 of 3, is needed"
            )
            await trio.sleep(30)
            for node in (leader, survivor):
                assert node.health().is_live and not node.health().is_ready
                assert node.health().reasons[0].startswith("no leader has answered for 3")
            assert survivor.leader_endpoint is not None
            lab.network.heal()
            await until(lambda: all(node.health() == READY for node in nodes), 60)
            nursery.cancel_scope.cancel()

    jumping(main)


def test_a_quorum_that_answers_and_commits_nothing_is_not_ready():
    """The leader's disk hangs: its follower fetches, so it goes on leading, and no offset is ever committed."""

    async def main():
        lab = Lab(inline_flush_bytes=0, **QUICK)
        lab.disks[1] = disk = GatedDisk(Random(1))
        async with lab.quorum(2) as (leader, follower):
            await until(lambda: leader.health() == follower.health() == READY)
            await leader.append(b"committed")
            disk.close_gate("/data")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(swallow, leader.append, b"never committed")
                await until(lambda: not leader.health().is_ready and not follower.health().is_ready)
                assert leader.is_leader and follower.leader_id == leader.key.id
                for node in (leader, follower):
                    (reason,) = node.health().reasons
                    end = node.status().log_end_offset
                    assert reason.startswith("nothing has been committed for 0.")
                    assert reason.endswith(f"and offsets {end - 1} to {end - 1} wait")
                disk.open_gate()
                await until(lambda: leader.health() == follower.health() == READY)
                nursery.cancel_scope.cancel()

    run(main)


async def swallow(function, *arguments) -> None:
    with suppress(KraftError):
        await function(*arguments)


def test_an_observer_that_is_behind_or_cut_off_is_not_ready():
    async def main():
        lab = Lab(delay_ms=20, auto_join=False, fetch_max_bytes=1000, **QUICK)
        async with lab.node(1) as leader:
            await leader.wait_leader()
            for number in range(40):  # a round trip each, of 40 ms
                await leader.append(b"%0800d" % number)
            async with lab.node(2) as observer:
                assert observer.health(max_lag=10).reasons[-1] == "no leader has told yet what is committed"
                await until(lambda: observer.high_watermark > 0)
                (reason,) = observer.health(max_lag=10).reasons
                end = leader.high_watermark
                assert f"committed records, up to offset {end - 1}, are not applied here: 10 may be" in reason
                assert observer.health(max_lag=end) == READY
                await until(lambda: observer.health(max_lag=0) == READY)
                lab.network.cut("n1", "n2")
                await until(lambda: not observer.health().is_ready)
                assert observer.status().role is Role.FOLLOWER
                assert leader.health() == READY

    run(main)


def test_a_node_whose_leader_has_an_expired_certificate_is_not_ready(tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))

    def tls(name: str, days: int) -> TlsConfig:
        now = datetime.now(UTC)
        made = authority.issue_cert(
            "127.0.0.1", not_before=now - timedelta(days=9), not_after=now + timedelta(days=days)
        )
        made.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / name))
        return TlsConfig(certificate=str(tmp_path / name), ca=str(tmp_path / "ca.pem"))

    port = free_port()

    def config(number: int, files: TlsConfig, **settings) -> NodeConfig:
        directory, listeners = str(tmp_path / f"d{number}"), [f"127.0.0.1:{port if number == 1 else 0}"]
        settings = {"create": "join", "bootstrap_servers": [f"127.0.0.1:{port}"], "auto_join": False, **settings}
        return NodeConfig(
            node_id=number, directory=directory, listeners=listeners, cluster_id="tls", tls=files, **QUICK, **settings
        )

    async def main():
        for days in (9, -1):
            leads = config(1, tls("leader.pem", days), create=None if days < 0 else "standalone")
            async with open_node(leads, Values()) as leader:
                await leader.wait_leader()
                async with open_node(config(2, tls("other.pem", 9)), Values()) as follower:
                    if days > 0:
                        await until(lambda: follower.health() == READY)
                        continue
                    await until(lambda: "certificate has expired" in follower.health().reasons[0])
                    assert not follower.health().is_ready and follower.leader_id is None
                    assert leader.health() == READY

    run(main)


def test_a_node_with_a_full_disk_is_not_alive():
    async def main():
        lab = Lab(**QUICK)
        disk = lab.disks[1]
        with pytest.raises(NodeStoppedError):
            async with lab.node(1) as node:
                await node.wait_leader()
                disk.capacity = disk.used_bytes + 10_000
                try:
                    for _ in range(100):
                        await node.append(bytes(1000))
                finally:
                    found = node.health()
                    assert not found.is_live and not found.is_ready
                    assert "No space left on device" in found.reasons[0]

    run(main)


def test_plugins_have_a_say():
    class Warming(Plugin):
        reasons: tuple[str, ...] = ("the cache is cold",)

        def unready(self):
            return self.reasons

    async def main():
        lab, plugin = Lab(), Warming()
        async with lab.node(1, plugins=[plugin]) as node:
            await node.wait_leader()
            await until(lambda: node.health().reasons == ("the cache is cold",))
            plugin.reasons = ()
            assert node.health() == READY
            with pytest.raises(LocalError, match="max_lag is -1"):
                node.health(max_lag=-1)
            node.stop()
        assert node.health() == Health(False, ("the node has stopped: it was told to",))

    run(main)


def test_other_worlds_ask_alike(tmp_path):
    import asyncio

    def config(name: str) -> NodeConfig:
        return NodeConfig(
            node_id=1, directory=str(tmp_path / name), listeners=["127.0.0.1:0"], create="standalone", **QUICK
        )

    async def in_asyncio():
        async with aio.open_node(config("a"), Values()) as node:
            await node.read_barrier()
            assert node.health() == READY

    asyncio.run(in_asyncio())
    with blocking.open_node(config("b"), Values()) as threaded:
        threaded.read_barrier()
        found: list[Health] = []
        thread = threading.Thread(target=lambda: found.append(threaded.health(max_lag=0)))
        thread.start()
        thread.join()
        assert found == [READY]
    assert not threaded.health().is_live
