"""What an operator reads in the log."""

from __future__ import annotations

import logging
import re
import socket
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from random import Random
from types import SimpleNamespace

import pytest
import trio
import trio.testing
from kafka_lab import free_port
from nodes import CLUSTER_ID, Lab, Values, run

from kraftcore import NodeConfig, open_node
from kraftcore.config.addresses import parse_voters
from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.node.events import LeaderChanged, RoleChanged
from kraftcore.node.leaderless import FIRST_S, LONGEST_S
from kraftcore.node.own_entry import check_advertised, compare_voters
from kraftcore.raft.quorum import VoterSet
from kraftcore.raft.roles import Role
from kraftcore.testing.clock import no_jumps
from kraftcore.transports.tcp import TcpTransport


def warnings(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_roles_leaders_and_voters_are_told_at_info(caplog):
    caplog.set_level(logging.INFO, "kraftcore.node")

    async def main():
        lab = Lab(auto_join=False)
        async with lab.node(1) as node, lab.node(2) as other:
            await node.wait_leader()
            await other.wait_applied(node.high_watermark)
            await node.add_voter(2, other.key.directory_id, other.endpoints)
            await node.transfer_leadership(2)
            while not other.is_leader:
                await trio.sleep(0.01)
            await node.wait_leader()

    run(main)
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    for line in (
        "node 1: leader in epoch 1",
        "node 1: node 1 leads in epoch 1",
        "node 2: node 1 leads in epoch 1",
        "node 2: the voters are 1, 2",
        "node 1: resigned in epoch 1",
        "node 2: leader in epoch 2",
        "node 1: follower in epoch 2",
        "node 1: node 2 leads in epoch 2",
    ):
        assert line in lines
    (warning,) = warnings(caplog)
    assert "begins quorum" in warning


def test_an_orderly_stop_complains_of_nobody(caplog, tmp_path):
    """The peers' last requests are in order, whoever holds the transport."""

    async def main():
        async with AsyncExitStack() as stack:
            transports = {n: await stack.enter_async_context(TcpTransport()) for n in (1, 2, 3)}
            ports = [free_port() for _ in range(3)]
            configs = {n: tcp_config(n, ports, tmp_path) for n in (1, 2, 3)}
            async with trio.open_nursery() as nursery:
                nodes = {}
                for n in (1, 2, 3):
                    nodes[n] = await nursery.start(live, configs[n], transports[n])
                await nodes[1].read_barrier()
                leader = next(n for n in nodes if nodes[n].is_leader)
                for number in range(20):
                    await nodes[leader].append(b"%d" % number)
                nodes[leader].stop()
                left = [node for n, node in nodes.items() if n != leader]
                while not any(node.is_leader for node in left):
                    await trio.sleep(0.01)
                for node in left:
                    await node.append(b"more", forward=True)
                nursery.cancel_scope.cancel()

    run(main, limit_s=60)
    assert [line for line in warnings(caplog) if "connection from" in line] == []


async def live(config, transport, files=None, *, task_status) -> None:
    async with open_node(config, Values(), transport=transport, files=files) as node:
        task_status.started(node)
        await trio.sleep_forever()


def tcp_config(number: int, ports: list[int], folder) -> NodeConfig:
    return NodeConfig(
        node_id=number,
        directory=f"{folder}/n{number}",
        cluster_id="logging",
        listeners=[f"127.0.0.1:{ports[number - 1]}"],
        voters=[f"{other}@127.0.0.1:{port}" for other, port in enumerate(ports, 1)],
        create="join",
        shutdown_timeout_ms=2000,
    )


def waiting(caplog) -> list[str]:
    return [line for line in warnings(caplog) if "no leader has answered" in line]


def jumping(main) -> None:
    """In virtual time: it leaps to whatever is due next."""
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@asynccontextmanager
async def opened(lab: Lab, *numbers: int, **settings):
    """Nodes; the threads that open them take no virtual time."""
    async with trio.open_nursery() as nursery:
        async with no_jumps():
            nodes = [await nursery.start(partial(hold, lab, number, **settings)) for number in numbers]
        yield nodes
        nursery.cancel_scope.cancel()


async def hold(lab: Lab, number: int, *, task_status, **settings) -> None:
    async with lab.node(number, **settings) as node:
        task_status.started(node)
        await trio.sleep_forever()


def test_a_node_that_waits_for_others_says_how_many_it_sees(caplog):
    async def main():
        lab = Lab(inline_flush_bytes=1 << 40)
        lab.format(3)
        async with opened(lab, 1):
            await trio.sleep(FIRST_S + 1)
            (line,) = waiting(caplog)
            assert line == (
                "node 1: no leader has answered for 5 s: 1 of 3 voters answer, this one included; no answer from "
                "voter 2 (n2:9093 refuses connections), voter 3 (n3:9093 refuses connections); a majority, 2 of 3, is "
                "needed"
            )
            await trio.sleep(5 * LONGEST_S)
            assert 6 <= len(waiting(caplog)) <= 10  # rarer and rarer, but for ever
            async with opened(lab, 2) as (other,):
                await other.wait_leader()
                before = len(waiting(caplog))
                await trio.sleep(2 * LONGEST_S)
                assert len(waiting(caplog)) == before

    jumping(main)


def test_the_survivor_of_three_says_once_what_is_wrong_and_then_ever_more_rarely(caplog):
    """Its raft goes on taking roles every few seconds; people are told what it needs."""
    caplog.set_level(logging.INFO, "kraftcore")

    async def main():
        lab = Lab(inline_flush_bytes=1 << 40)
        lab.format(3)
        async with opened(lab, 1, 2, 3) as (*_, survivor):
            leader_id = await survivor.wait_leader()
            while leader_id == 3:
                await survivor.transfer_leadership(1)
                leader_id = await survivor.wait_leader()
            await survivor.read_barrier()
            changes, roles = survivor.events(LeaderChanged), survivor.events(RoleChanged)
            caplog.clear()
            for name in ("n1", "n2"):
                lab.network.refuse(name)
            await trio.sleep(75)
            assert survivor.status().leader_id is survivor.leader_id is None
            assert 70_000 < survivor.status().leader_silent_ms < 77_000
            assert survivor.leader_endpoint is not None  # what it remembers
            survivor.stop()
            assert [change.leader_id async for change in changes] == [None]
            assert len([role async for role in roles]) > 20
        lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]
        lines = [line for line in lines if line.startswith("node 3")]
        told = [line for line in lines if "no leader has answered for " in line]
        assert [line.split(" for ")[1].split(" s:")[0] for line in told] == ["5", "15", "35", "75"][: len(told)]
        assert told[0].endswith(
            "1 of 3 voters answer, this one included; no answer from voter 1 (n1:9093 refuses connections), voter 2 "
            "(n2:9093 refuses connections); a majority, 2 of 3, is needed"
        )
        assert len(lines) <= 10, lines

    jumping(main)


def test_an_observer_does_not_tell_of_a_leader_that_is_gone():
    async def main():
        lab = Lab(inline_flush_bytes=1 << 40, auto_join=False)
        async with opened(lab, 2) as (observer,):
            async with opened(lab, 1):
                assert await observer.wait_leader() == 1
                await trio.sleep(10)
                assert observer.leader_id == 1 and observer.status().leader_silent_ms < 1_000
            await trio.sleep(3)
            assert observer.leader_id is None and observer.status().role is Role.FOLLOWER
            with trio.move_on_after(60) as waited:
                await observer.wait_leader()
            assert waited.cancelled_caught
            async with opened(lab, 1):
                assert await observer.wait_leader() == 1

    jumping(main)


def test_a_new_quorum_waits_for_each_of_its_voters_and_says_so(caplog):
    async def main():
        lab = Lab(inline_flush_bytes=1 << 40, create="join", voters=["1@n1:9093", "2@n2:9093", "3@n3:9093"])
        async with opened(lab, 1, 2):
            await trio.sleep(FIRST_S + 1)
            for line in waiting(caplog):
                assert "2 of 3 voters answer" in line
                assert line.endswith(
                    "; all 3 are needed, once: this node's directory is new, and it counts when it has heard from each "
                    "other voter (docs/damage.md)"
                )
            assert len(waiting(caplog)) == 2
            async with opened(lab, 3) as (third,):
                await third.wait_leader()
        assert not [record for record in caplog.records if "does not count as a voter yet" in record.getMessage()]

    jumping(main)


def test_a_voter_that_answers_is_counted(caplog):
    async def main():
        lab = Lab(inline_flush_bytes=1 << 40)
        lab.format(5)
        async with opened(lab, 1, 4):
            await trio.sleep(FIRST_S + 1)
            lines = waiting(caplog)
            assert len(lines) == 2
            for line in lines:
                assert "2 of 5 voters answer, this one included; no answer from voter 2" in line
                assert line.endswith("; a majority, 3 of 5, is needed")

    jumping(main)


def test_who_answers_and_refuses_does_not_count_and_is_named(caplog):
    async def main():
        lab = Lab(inline_flush_bytes=1 << 40)
        lab.format(3)
        stranger = Lab(inline_flush_bytes=1 << 40, cluster_id="stranger")
        stranger.network = lab.network
        async with opened(lab, 1), opened(stranger, 3):
            await trio.sleep(FIRST_S + 1)
        (line,) = (line for line in waiting(caplog) if line.startswith("node 1"))
        assert line.endswith(
            "1 of 3 voters answer and agree, this one included; no answer from voter 2 (n2:9093 refuses connections); "
            "no agreement with voter 3 (n3:9093: INCONSISTENT_CLUSTER_ID: this node belongs to cluster "
            f"{CLUSTER_ID}, the other one does not: correct the addresses, or format the one that is wrong anew, with "
            "the other's cluster id); a majority, 2 of 3, is needed"
        )

    jumping(main)


def test_an_address_where_another_node_listens_is_no_voter_that_answers(caplog):
    async def main():
        lab = Lab(inline_flush_bytes=1 << 40, bootstrap_servers=(), auto_join=False, create="join")
        lab.format_static(3)
        wrong, others = ["1@n1:9093", "2@n3:9093", "3@n4:9093"], ["2@n2:9093", "3@n3:9093"]
        async with opened(lab, 1, voters=wrong), opened(lab, 3, voters=others):
            await trio.sleep(FIRST_S + 1)
        (line,) = (line for line in waiting(caplog) if line.startswith("node 1"))
        assert "1 of 3 voters answer and agree, this one included; no answer from voter 3" in line
        assert "no agreement with voter 2 (n3:9093: it is not voter 2, or has another directory than" in line

    jumping(main)


def test_a_node_that_joins_names_its_bootstrap_servers(caplog):
    async def main():
        lab = Lab(inline_flush_bytes=1 << 40)
        async with opened(lab, 2):
            await trio.sleep(FIRST_S + 1)
        (line,) = waiting(caplog)
        assert re.search(
            r"0 of 1 bootstrap servers answer; no answer from n1:9093 \(n1:9093 refuses connections\)$", line
        )

    jumping(main)


def told_of_voters(voters: str, listens: str, *advertised: str, version: int = 0) -> list[str]:
    """What node 1 says of the setting that it was given, where its log names no voters, or 1 and 3."""
    config = NodeConfig(node_id=1, directory="d", listeners=[listens], advertised_listeners=advertised, voters=voters)
    replica = SimpleNamespace(kraft_version=version, voters=parse_voters("1@a:1,3@c:1"))
    lines: list[str] = []
    trio.run(compare_voters, config, replica, config.listeners, lines.append)
    return lines


def test_the_address_that_voters_name_is_the_one_that_is_bound():
    for voters, listens, *advertised in (
        ("1@127.0.0.1:9093", "127.0.0.1:9093"),
        ("1@localhost:9093", "127.0.0.1:9093"),
        ("1@anywhere.invalid:9093", "0.0.0.0:9093"),
        ("1@anywhere.invalid:9093", "127.0.0.1:9093"),  # only others know the name
        ("1@192.0.2.1:19093", "127.0.0.1:9093", "192.0.2.1:19093"),
    ):
        assert told_of_voters(voters, listens, *advertised) == []
    for voters, listens in (
        ("1@127.0.0.1:9093", "127.0.0.1:9094"),
        ("1@127.0.0.1:9093", "0.0.0.0:9094"),
        ("1@192.0.2.1:9093", "127.0.0.1:9093"),
    ):
        (line,) = told_of_voters(voters, listens)
        assert line == (
            f"the other nodes connect to this one at {voters[2:]}, by voters (controller.quorum.voters), but it "
            f"listens at {listens}: correct the one or the other; where something forwards the first to the second, "
            "name the first in advertised_listeners (advertised.listeners), too"
        )


@pytest.mark.parametrize("other", ["192.0.2.1", "127.0.0.1", "other.invalid"])
@pytest.mark.parametrize("name", ["localhost", "name.invalid", "192.0.2.2"])
def test_a_name_by_which_others_cannot_reach_the_node_is_told(name, other, monkeypatch):
    monkeypatch.setattr(socket, "getfqdn", lambda: name)
    replica = SimpleNamespace(voters=VoterSet())
    lines: list[str] = []
    config = NodeConfig(node_id=1, directory="d", listeners=[":9093"], bootstrap_servers=[f"{other}:9093"])
    trio.run(check_advertised, config, replica, config.listeners, lines.append)
    why = {"localhost": "is this machine for itself alone", "name.invalid": "does not resolve here"}
    assert lines == [
        f"it listens on all interfaces, and other nodes, as 192.0.2.1, are told to connect to {name}:9093, which "
        f"{why[name]}: name an address that they reach in advertised_listeners (advertised.listeners)"
        for _ in range(name in why and other == "192.0.2.1")
    ]
    lines.clear()
    config = replace(config, advertised_listeners=["192.0.2.2:9093"])
    trio.run(check_advertised, config, replica, config.listeners, lines.append)
    assert lines == []


def test_voters_that_do_not_count_are_told_where_they_are_others():
    assert told_of_voters("1@a:1,3@c:1", "a:2", version=1) == []
    (line,) = told_of_voters("1@a:1,2@b:1", "a:2", version=1)
    assert "it says [1, 2], but the log names its voters itself (kraft.version 1), and they are [1, 3]" in line


def test_a_port_that_nobody_else_knows_is_told_once_it_is_bound(caplog, tmp_path):
    config = NodeConfig(
        node_id=1, directory=tmp_path, listeners=["127.0.0.1:0"], voters=["1@127.0.0.1:1"], create="join"
    )

    async def main():
        async with open_node(config, Values()) as node:
            await node.wait_leader()
            at = f"it listens at 127.0.0.1:{node.endpoints[0].port}"
            while not any(at in line for line in warnings(caplog)):
                await trio.sleep(0.01)

    run(main, limit_s=60)


@asynccontextmanager
async def namesake(lab: Lab, number: int):
    """Another process with a node's id, at n4, with an empty directory; it asks all others."""
    servers = [f"n{each}:9093" for each in (1, 2, 3)]
    config = lab.config(
        number, listeners=["CONTROLLER://n4:9093"], bootstrap_servers=servers, create="join", auto_join=True
    )
    async with lab.network.transport("n4") as transport, trio.open_nursery() as nursery:
        async with no_jumps():
            node = await nursery.start(live, config, transport, SimulatedDisk(Random(f"namesake {number}")))
        yield node
        nursery.cancel_scope.cancel()


def test_two_processes_of_one_id_are_told_of_by_both_and_change_no_voters(caplog):
    def said(who: int, text: str) -> list[str]:
        return [line for line in warnings(caplog) if line.startswith(f"node {who}: ") and text in line]

    async def main():
        lab = Lab(inline_flush_bytes=1 << 40)
        lab.format(3)
        async with opened(lab, 1, 2, 3) as nodes:
            while not any(node.is_leader for node in nodes):
                await trio.sleep(0.01)
            leader, follower = sorted(nodes, key=lambda node: not node.is_leader)[:2]
            first, second = leader.key.id, follower.key.id
            before = leader.status().voters
            async with namesake(lab, second) as other:
                await trio.sleep(10)  # it would have asked for its namesake's removal
                (line,) = said(first, f"two processes use node id {second}: one fetches with directory")
                assert f"{follower.key.directory_id}, and is served, one with {other.key.directory_id}, and is" in line
                assert said(second, f"DUPLICATE_BROKER_REGISTRATION: another process uses node id {second}: stop the")
                assert leader.status().voters == before
            async with namesake(lab, first):
                await trio.sleep(10)
                assert said(first, f"another process uses node id {first}, which is this node's: it fetches with")
                assert said(first, "refused a message that calls us the leader of epoch 1: we are unattached. Another")
            assert leader.is_leader

    jumping(main)


def test_static_voters_that_differ_between_nodes_are_told(caplog):
    async def main():
        lab = Lab(inline_flush_bytes=1 << 40, bootstrap_servers=(), auto_join=False, create="join")
        lab.format_static(2)
        async with opened(lab, 1, voters=["1@n1:9093"]), opened(lab, 2, voters=["1@n1:9093", "2@n2:9093"]):
            await trio.sleep(5)
        (line,) = (line for line in warnings(caplog) if "was elected by" in line)
        assert line.startswith(
            "node 2: node 1, which leads, was elected by the voters [1], and this node has been given [1, 2]: then two "
        )

    jumping(main)


def test_topics_that_differ_between_voters_are_told(caplog):
    async def main():
        lab = Lab(inline_flush_bytes=1 << 40, voters=["1@n1:9093", "2@n2:9093"], create="join", auto_join=False)
        lab.format_static(2)
        async with opened(lab, 1), opened(lab, 2, topic="another"):
            await trio.sleep(FIRST_S + 1)
        for number, topic in ((1, "__cluster_metadata"), (2, "another")):
            (line,) = (line for line in waiting(caplog) if line.startswith(f"node {number}: "))
            assert (
                f"INVALID_REQUEST: it has no log of topic {topic} with id AAAAAAAAAAAAAAAAAAAAAQ: set topic and" in line
            )

    jumping(main)
