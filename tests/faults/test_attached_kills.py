"""Processes that share nodes, killed at random moments: nothing acknowledged is lost, nothing is applied twice."""

from __future__ import annotations

import random
import signal
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio
from attached_member import Ack, Member, Values, check

from kraftcore import NodeConfig, blocking
from kraftcore.node.attaching import connect_to_owner


def owner_of(members: list[Member]) -> Member:
    """The process that has the node open which these share."""

    async def ask() -> int:
        control = await connect_to_owner(members[0].settings["directory"])
        control.close()
        return control.told.pid

    pid = trio.run(ask)
    return next(member for member in members if member.process.pid == pid)


class Kills:
    """Members on some nodes, and the kills of a seed."""

    def __init__(self, hosts: list[dict], members_of: list[int], seed: int) -> None:
        self.rng = random.Random(seed)
        self.started = 0
        self.ended: list[Member] = []
        self.hosts = [[self.start(host) for _ in range(count)] for host, count in zip(hosts, members_of, strict=True)]

    def start(self, settings: dict) -> Member:
        self.started += 1
        return Member(settings, f"m{self.started}")

    def run(self, rounds: int) -> None:
        """In each round kill the owner of a node, or a process attached to it, in turn; another takes its place."""
        for number in range(rounds):
            for members in self.hosts:
                for member in members:
                    member.wait_acks(len(member.acks) + self.rng.randrange(1, 20))
            members = self.hosts[self.rng.randrange(len(self.hosts))] if number else self.hosts[0]
            owner = owner_of(members)
            others = [member for member in members if member is not owner]
            victim = self.rng.choice(others) if number % 2 and others else owner
            victim.end(signal.SIGKILL)
            members.remove(victim)
            self.ended.append(victim)
            if others:  # the others go on without it
                for member in members:
                    member.wait_acks(len(member.acks) + 1)
            members.append(self.start(victim.settings))
        for members in self.hosts:
            for member in members:
                member.wait_acks(len(member.acks) + 1)

    def stop(self) -> list[Ack]:
        """End all in good order; returns what was acknowledged to any of them."""
        for members in self.hosts:
            for member in members:
                member.process.send_signal(signal.SIGTERM)
        for members in self.hosts:
            for member in members:
                member.end(signal.SIGTERM)
                self.ended.append(member)
        return [ack for member in self.ended for ack in member.acks]

    def values(self) -> list[bytes]:
        """What all nodes have applied."""
        with ExitStack() as stack:
            configs = [NodeConfig(**host) for host in self.settings]
            nodes = [stack.enter_context(blocking.open_node(config, Values())) for config in configs]
            for node in nodes:
                node.with_timeout(60.0).read_barrier()
            found = [node.state_machine.values for node in nodes]
            assert all(each == found[0] for each in found)
            return found[0]

    @property
    def settings(self) -> list[dict]:
        return [members[0].settings for members in self.hosts]


def drill(hosts: list[dict], members_of: list[int], rounds: int, seed: int) -> None:
    kills = Kills(hosts, members_of, seed)
    try:
        kills.run(rounds)
        acks = kills.stop()
        check(kills.values(), acks)
    finally:
        for members in kills.hosts:
            for member in members:
                member.process.kill()
                member.process.wait()


def test_one_node_for_three_processes(tmp_path: Path):
    settings = {"node_id": 1, "directory": str(tmp_path / "n1"), "listeners": ["127.0.0.1:0"], "create": "standalone"}
    drill([settings], [3], rounds=2, seed=1)


@pytest.mark.deep
def test_three_nodes_two_of_them_shared(tmp_path: Path):
    with ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(3)]
        for each in held:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            each.bind(("127.0.0.1", 0))
        ports = [each.getsockname()[1] for each in held]
    hosts = [
        {
            "node_id": number,
            "directory": str(tmp_path / f"n{number}"),
            "cluster_id": "shared",
            "listeners": [f"127.0.0.1:{ports[number - 1]}"],
            "voters": [f"{other}@127.0.0.1:{ports[other - 1]}" for other in (1, 2, 3)],
            "create": "join",
        }
        for number in (1, 2, 3)
    ]
    drill(hosts, [3, 2, 1], rounds=8, seed=1)


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([b"a-0"], "is lost"),
        ([b"a-0", b"b-0"], "is lost"),
        ([b"a-0", b"a-1", b"a-1"], "applied twice"),
        ([b"a-0", b"a-1", b"b-7"], "before the one in front"),
    ],
)
def test_the_verdict_notices_what_is_wrong(values, wanted):
    acks = [Ack("a-0", 0.0, 1.0, 1, 1), Ack("a-1", 1.0, 2.0, 2, 2)]
    check([b"a-0", b"a-1", b"b-0"], acks)
    with pytest.raises(AssertionError, match=wanted):
        check(values, acks)


def test_the_verdict_notices_another_order():
    with pytest.raises(AssertionError, match="ended before a record in front"):
        check([b"a-0", b"b-0"], [Ack("a-0", 2.0, 3.0, 1, 1), Ack("b-0", 0.0, 1.0, 2, 2)])
