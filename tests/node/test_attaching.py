"""Processes that use a node which another process of the host has open."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import re
import signal
import socket
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio
from attached_member import Member, attach_for_good
from attached_member import Values as MemberValues
from forked import WITH_THREADS, in_child
from machines import Values
from nodes import CLUSTER_ID as CLUSTER
from nodes import Lab, run
from recipe_users import STEPS, Users, check_history

import kraftcore
from kraftcore import NodeConfig, SaslConfig, SaslLogin, aio, blocking
from kraftcore.core.disk.os_files import OsFiles, VolatileFiles
from kraftcore.errors import (
    LocalError,
    LockedError,
    NodeStoppedError,
    NotLeaderError,
    RemoteProtocolError,
    UnreachableError,
)
from kraftcore.node import attach_socket, mirror
from kraftcore.node.attach_socket import SOCKET, told_of
from kraftcore.node.events import Committed
from kraftcore.node.plugin_node import plugin_node
from kraftcore.plugins import recipes
from kraftcore.raft.roles import Role
from kraftcore.security.authorizer import Verdict
from kraftcore.transports.tcp.socket_files import PATH_BYTES


def alone(directory: Path, **settings) -> NodeConfig:
    given = {"node_id": 1, "listeners": ["127.0.0.1:0"], "create": "standalone", "cluster_id": CLUSTER}
    return NodeConfig(directory=directory, **{**given, "attachable": True, **settings})


class OnDisk(Lab):
    """Nodes with a network in memory and directories on disk."""

    def __init__(self, folder: Path) -> None:
        super().__init__(attachable=True, election_timeout_ms=100, shutdown_timeout_ms=200)
        self.folder = folder
        self.disks = dict.fromkeys(self.disks, OsFiles())

    def directory(self, number: int) -> str:
        return str(self.folder / f"n{number}")


class OfThisProgram(Values):
    """What a program that attaches makes of the same records."""


async def until(condition) -> None:
    while not condition():
        await trio.sleep(0.005)


def test_an_attached_process_appends_reads_and_hears(tmp_path, caplog):
    caplog.set_level(logging.INFO, "kraftcore.node")

    async def main():
        async with kraftcore.open_node(alone(tmp_path), Values()) as owner:
            assert os.stat(tmp_path / SOCKET).st_mode & 0o777 == 0o600
            async with kraftcore.attach(tmp_path, Values()) as node:
                events = node.events(Committed)
                assert (await node.append(b"a")).result == 1
                assert (await node.append(b"b", forward=True)).result == 2
                assert (await node.append_many([b"c", b"d"])).results == [3, 4]
                futures = [node.append_nowait(b"%d" % number) for number in range(100)]
                assert [(await future.wait()).result for future in futures] == list(range(5, 105))
                for _ in range(2):  # a retry
                    assert (await node.append(b"n", client_id="me", sequence=0)).result == 105
                await owner.append(b"z")
                await node.read_barrier()
                assert node.state_machine.values == owner.state_machine.values
                assert len(node.state_machine.values) == 106
                async for event in events:
                    if event.high_watermark == owner.high_watermark:
                        break
                status = node.status()
                assert (status.role, status.leader_id, status.voters.ids) == (Role.FOLLOWER, 1, {1})
                assert (node.cluster_id, node.config.node_id, node.key.id) == (CLUSTER, 1, -1)
                assert f"attached to {tmp_path}" in repr(node)
                assert f"node attached to {tmp_path}: follower in epoch 1" in caplog.messages
                for ask in (node.transfer_leadership(1), node.read_barrier(forward=False)):
                    with pytest.raises(NotLeaderError):
                        await ask
                with pytest.raises(LocalError, match="do not fit a batch"):
                    await node.append(bytes(9 << 20))
                folder = node.config.directory
                assert os.path.exists(folder)
            assert not os.path.exists(folder)
            assert owner.status().replicas == ()  # nobody counts it
            async with kraftcore.attach(tmp_path, Values()) as late:
                # All that was committed before, with nothing else done here.
                assert late.state_machine.values == owner.state_machine.values
        assert not os.path.exists(tmp_path / SOCKET)

    run(main)


def test_requests_go_through_the_node_to_whoever_leads(tmp_path):
    """The attached process sees no network; leaders change, and one is stopped with records on their way."""

    async def main():
        lab, nodes = OnDisk(tmp_path), {}
        for number in (1, 2, 3):
            os.makedirs(f"{lab.directory(number)}/__cluster_metadata-0")
        lab.format(3)

        async def member(number):
            async with lab.node(number) as nodes[number]:
                await trio.sleep_forever()

        async with trio.open_nursery() as nursery:
            for number in (1, 2, 3):
                nursery.start_soon(member, number)
            await until(lambda: len(nodes) == 3 and any(each.is_leader for each in nodes.values()))
            leader = next(number for number, each in nodes.items() if each.is_leader)
            other = leader % 3 + 1
            async with kraftcore.attach(lab.directory(other), Values()) as node:
                assert (await node.append(b"first")).result == 1
                assert node.status().voters.ids == {1, 2, 3}
                sent = [node.append_nowait(b"%d" % number) for number in range(50)]
                nodes[leader].stop()
                results = [(await future.wait()).result for future in sent]
                assert sorted(results) == list(range(2, 52))
                await node.append(b"last")
                await node.read_barrier()
                values = node.state_machine.values
                assert sorted(values) == sorted([b"first", b"last", *(b"%d" % number for number in range(50))])
                await nodes[other].read_barrier()
                assert nodes[other].state_machine.values == values
            nursery.cancel_scope.cancel()

    run(main)


def test_static_voters_are_told(tmp_path):
    async def main():
        lab = OnDisk(tmp_path)
        async with (
            lab.node(1, voters=["1@n1:9093"], create="join"),
            kraftcore.attach(lab.directory(1), Values()) as node,
        ):
            assert (await node.append(b"a")).result == 1
            assert (node.status().voters.ids, node.kraft_version) == ({1}, 0)

    run(main)


def test_an_attached_process_needs_no_login(tmp_path):
    """The quorum's listener wants one, and an authorizer lets nobody but nodes do anything."""

    class NodesAlone:
        def authorize(self, principal, host, operation, resource_type, resource_name):
            return Verdict.ALLOWED if principal == "User:node" else Verdict.DENIED

    guarded = {
        "sasl": SaslLogin(mechanism="PLAIN", username="node", password="secret"),
        "authorizer": NodesAlone(),
    }
    listener_sasl = {"controller": SaslConfig(mechanisms=("PLAIN",), users={"node": "secret"})}

    async def main():
        config = alone(tmp_path / "n1", listener_sasl=listener_sasl, **guarded)
        async with kraftcore.open_node(config, Values()) as voter:
            at = voter.endpoints[0]
            observer = {
                "node_id": 2,
                "listeners": [],
                "create": "join",
                "can_become_voter": False,
                "bootstrap_servers": [f"{at.host}:{at.port}"],
            }
            async with kraftcore.open_node(alone(tmp_path / "n2", **observer, **guarded), Values()):
                for number in (1, 2):
                    async with kraftcore.attach(tmp_path / f"n{number}", Values()) as node:
                        assert (await node.append(b"a")).result == number
                        await node.read_barrier()

    run(main)


def test_recipes_through_attached_processes(tmp_path):
    async def main():
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            owner = await enter(kraftcore.open_node(alone(tmp_path), recipes.RecipeMachine()))
            first, second = [await enter(kraftcore.attach(tmp_path, recipes.RecipeMachine())) for _ in range(2)]
            tokens = []

            async def take(node):
                lock = recipes.Lock(node, "lock")
                async with lock.hold() as lease:
                    tokens.append(lease.token)

            async with trio.open_nursery() as nursery:
                for node in (owner, first, second):
                    nursery.start_soon(take, node)
            assert tokens == sorted(set(tokens))
            queue = recipes.Queue(first, "work")
            for number in range(9):
                await queue.put(number)
            taken = []

            async def drain(node):
                mine = recipes.Queue(node, "work")
                while (item := await mine.get_nowait()) is not None:
                    taken.append(item)

            async with trio.open_nursery() as nursery:
                for node in (owner, first, second):
                    nursery.start_soon(drain, node)
            assert sorted(taken) == list(range(9))
            with recipes.Dict(second, "settings").watch() as changes:
                await recipes.Dict(first, "settings").set("colour", "blue")
                async for change in changes:
                    assert (change.key, change.value) == ("colour", "blue")
                    break

    run(main)


def test_the_end_of_the_node_is_one_error_that_says_what_to_do(tmp_path):
    async def main():
        opened, end = trio.Event(), trio.Event()

        async def own():
            async with kraftcore.open_node(alone(tmp_path), Values()):
                opened.set()
                await end.wait()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(own)
            await opened.wait()
            with pytest.raises(NodeStoppedError) as caught:
                async with kraftcore.attach(tmp_path, Values()) as node:
                    await node.append(b"a")
                    end.set()
                    await trio.sleep_forever()
        text = str(caught.value)
        assert f"process {os.getpid()}, which had the node of {tmp_path} open, ended or closed it" in text
        assert "open_or_attach" in text
        with pytest.raises(NodeStoppedError, match="open_or_attach"):
            await node.append(b"b")
        assert not os.path.exists(node.config.directory)

    run(main)


def test_where_nobody_has_the_node_open_the_error_says_what_to_do(tmp_path):
    async def attach(directory):
        async with kraftcore.attach(directory, Values()):
            pass

    async def main():
        wanted = "no process has the node of .* open with attachable=True: open it there .* or use .*open_or_attach"
        with pytest.raises(UnreachableError, match=wanted):
            await attach(tmp_path / "missing")
        stale = socket.socket(socket.AF_UNIX)
        stale.bind(str(tmp_path / SOCKET))
        stale.close()  # as a killed process leaves it
        with pytest.raises(UnreachableError, match=wanted):
            await attach(tmp_path)
        async with kraftcore.open_node(alone(tmp_path, attachable=False), Values()):
            with pytest.raises(UnreachableError, match=wanted):
                await attach(tmp_path)
        async with kraftcore.open_node(alone(tmp_path), Values()):
            await attach(tmp_path)

    run(main)


def test_who_else_may_not_attach(tmp_path):
    async def attach():
        async with kraftcore.attach(tmp_path, Values()):
            pass

    def as_somebody_else():
        if os.geteuid() == 0:
            os.setuid(65534)
        else:
            os.chmod(tmp_path, 0)
        try:
            trio.run(attach)
        finally:
            if os.geteuid() != 65534:
                os.chmod(tmp_path, 0o700)

    with pytest.raises(LocalError, match=r"belongs to .*, and this process runs as user \d+: only the user"):
        in_child(as_somebody_else)


def test_another_state_machine_is_refused(tmp_path):
    async def enter(block):
        async with block:
            pass

    class Namesake(kraftcore.StateMachine):
        apply, snapshot, restore = Values.apply, Values.snapshot, Values.restore

    Namesake.__name__ = "Values"  # as that of a program which is __main__ here, and a module in another process

    async def main():
        async with kraftcore.open_or_attach(alone(tmp_path), Values):
            wanted = f"of class RecipeMachine, but process {os.getpid()} has .* open with one of class Values: give"
            with pytest.raises(LocalError, match=wanted):
                await enter(kraftcore.attach(tmp_path, recipes.RecipeMachine()))
            with pytest.raises(LocalError, match=wanted):
                await enter(kraftcore.open_or_attach(alone(tmp_path), recipes.RecipeMachine))
            for machine in (OfThisProgram(), Namesake()):
                await enter(kraftcore.attach(tmp_path, machine))

    run(main)


def test_a_process_that_does_not_answer_is_named_while_calls_wait(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("kraftcore.node.attaching._ASK_EVERY_S", 0.5)
    settings = {"node_id": 1, "directory": str(tmp_path), "listeners": ["127.0.0.1:0"], "create": "standalone"}
    owner = Member(settings, "owner")

    def said(what):
        return [each for each in caplog.messages if each.startswith(f"process {owner.process.pid}") and what in each]

    async def main():
        async with kraftcore.attach(tmp_path, MemberValues()) as node:
            await node.append(b"me-0")
            time.sleep(2)  # this process answers nobody itself
            await trio.sleep(0.5)
            assert not caplog.messages
            owner.process.send_signal(signal.SIGSTOP)
            with trio.move_on_after(2.5) as scope:  # the call's own time
                await node.append(b"me-1")
            assert scope.cancelled_caught
            await until(lambda: said("s: it may be stopped"))
            assert f"which has the node of {tmp_path} open" in caplog.text
            owner.process.send_signal(signal.SIGCONT)
            await until(lambda: said("answers again"))
            await node.append(b"me-2")
        assert len(said("has not answered")) == 1

    try:
        owner.wait_acks(1)
        run(main)
    finally:
        owner.end(signal.SIGKILL)


def test_another_version_is_named(tmp_path, monkeypatch):
    another = attach_socket.FORMAT + 1
    changed = lambda *given: replace(told_of(*given), format=another, version="9.9")  # noqa: E731
    monkeypatch.setattr(attach_socket, "told_of", changed)

    async def main():
        async with kraftcore.open_node(alone(tmp_path), Values()):
            with pytest.raises(
                RemoteProtocolError, match=rf"has kraftcore 9\.9, this one .*formats {another} and .*the same"
            ):
                async with kraftcore.attach(tmp_path, Values()):
                    pass

    run(main)


def test_a_path_longer_than_a_socket_address_works(tmp_path):
    directory = tmp_path / ("d" * PATH_BYTES)

    async def main():
        async with kraftcore.open_node(alone(directory), Values()), kraftcore.attach(directory, Values()) as node:
            assert (await node.append(b"a")).result == 1

    run(main)


def test_what_killed_processes_leave_is_removed_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(mirror.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(mirror.tempfile, "tempdir", str(tmp_path))
    files = VolatileFiles()
    gone = in_child(os.getpid)
    names = {
        "left": f"kraftcore-attached-{gone}-a",
        "new": f"kraftcore-attached-{gone}-b",
        "locked": f"kraftcore-attached-{gone}-c",
        "runs": f"kraftcore-attached-{os.getpid()}-d",
        "other": f"{gone}-e",
    }
    for kind, name in names.items():
        (tmp_path / name).mkdir()
        if kind != "new":
            os.utime(tmp_path / name, (1, 1))
    lock = files.lock(str(tmp_path / names["locked"] / ".lock"))
    os.utime(tmp_path / names["locked"], (1, 1))
    mirror.remove_left_folders(files, "attached")
    assert {kind for kind, name in names.items() if (tmp_path / name).exists()} == {"new", "locked", "runs", "other"}
    lock.release()


@pytest.mark.parametrize("method", ["fork", "forkserver"])
@pytest.mark.filterwarnings(WITH_THREADS)
def test_a_child_of_multiprocessing_leaves_nothing(tmp_path, method):
    """Such a process ends by ``os._exit``, here within the block."""
    with blocking.open_node(alone(tmp_path), Values()):
        child = multiprocessing.get_context(method).Process(target=attach_for_good, args=(str(tmp_path),))
        child.start()
        child.join(60)
        assert child.exitcode == 0
    assert not list(Path(tempfile.gettempdir()).glob(f"kraftcore-attached-{child.pid}-*"))


def test_open_or_attach_goes_on_when_the_node_ends(tmp_path):
    """The first one opens, the others attach; when the first ends, another opens, and all objects stay as they are."""
    made = []

    def machine():
        made.append(Values())
        return made[-1]

    async def main():
        config = alone(tmp_path, attachable=False)
        opened, end = trio.Event(), trio.Event()

        async def first():
            async with kraftcore.open_or_attach(config, machine) as node:
                assert node.config.directory == str(tmp_path)
                opened.set()
                await end.wait()

        async with AsyncExitStack() as stack:
            nursery = await stack.enter_async_context(trio.open_nursery())
            nursery.start_soon(first)
            await opened.wait()
            others = [await stack.enter_async_context(kraftcore.open_or_attach(config, machine)) for _ in range(2)]
            for node in others:
                await node.append(b"before")
            before = len(made)
            end.set()
            sent = [node.append_nowait(b"while nobody has it") for node in others]
            assert sorted([(await future.wait()).result for future in sent]) == [3, 4]
            assert len(made) > before  # whoever opens it has a second machine
            for node in others:
                await node.read_barrier()
            assert others[0].state_machine.values == others[1].state_machine.values
        assert not os.path.exists(tmp_path / SOCKET)

    run(main)


@pytest.mark.parametrize("kind", STEPS)
def test_histories_of_attached_clients_are_linearizable(kind, tmp_path):
    """A client on the node, two on processes attached to it; the node is aborted with calls under way."""
    config = alone(tmp_path, attachable=False)
    nodes: dict[int, kraftcore.Node[recipes.RecipeMachine]] = {}
    users = Users(SimpleNamespace(nodes=nodes), kind)

    async def member(number):
        async with kraftcore.open_or_attach(config, recipes.RecipeMachine) as nodes[number]:
            await trio.sleep_forever()

    async def main():
        async with trio.open_nursery() as nursery:
            for number in (1, 2, 3):
                nursery.start_soon(member, number)
                await until(lambda number=number: number in nodes)
                nursery.start_soon(users.run, number)
            await users.enough(40)
            await until(lambda: users.busy == {1, 2, 3})
            plugin_node(nodes.pop(1)).abort()
            await users.enough(40)  # one of the others opened it
            nursery.start_soon(member, 1)
            await users.enough(40)
            users.is_over = True
            await until(lambda: not users.busy)
            nursery.cancel_scope.cancel()

    run(main)
    check_history(kind, users.recorder.operations)
    users.check_tokens()
    assert len({operation.process for operation in users.recorder.operations}) == 3


def test_what_is_given_wrongly_is_named(tmp_path):
    async def enter(block):
        async with block:
            pass

    async def main():
        with pytest.raises(LocalError, match=r"\(config.directory\), and was given NodeConfig"):
            await enter(kraftcore.attach(alone(tmp_path), Values()))
        machine = Values()
        with pytest.raises(LocalError, match="got the same Values from its function twice"):
            await enter(kraftcore.open_or_attach(alone(tmp_path), lambda: machine))
        with pytest.raises(LocalError, match="the state machine, of class object, has no apply"):
            await enter(kraftcore.open_or_attach(alone(tmp_path), object))

    run(main)


def test_open_or_attach_wants_what_all_processes_have(tmp_path):
    async def enter(config, machine=Values):
        async with kraftcore.open_or_attach(config, machine):
            pass

    async def main():
        with pytest.raises(LocalError, match=r"give it the class or a function, as open_or_attach\(config, Values\)"):
            await enter(alone(tmp_path), Values())
        with pytest.raises(LocalError, match="takes a NodeConfig first"):
            await enter(str(tmp_path))
        async with kraftcore.open_or_attach(alone(tmp_path), Values):
            for settings, wanted in (
                ({"cluster_id": "another"}, "cluster_id is 'another', but process .* has"),
                ({"node_id": 2}, "node_id is 2, but process .* with 1: give all"),
                ({"topic": "another"}, "topic is 'another'"),
            ):
                with pytest.raises(LocalError, match=wanted):
                    await enter(alone(tmp_path, **settings))

    run(main)


def test_open_or_attach_does_not_wait_for_ever(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("kraftcore.node.attaching.PATIENCE_S", 0.1)
    monkeypatch.setattr("kraftcore.node.attaching._SAY_AFTER_S", 0.0)

    async def main():
        with pytest.raises(LockedError, match="processes of one application can share its node: .*open_or_attach"):
            async with kraftcore.open_or_attach(alone(tmp_path), Values):
                pass

    with blocking.open_node(alone(tmp_path), Values()):
        os.unlink(tmp_path / SOCKET)  # as if it had been opened without attachable, in another process
        run(main)
    assert re.search(r"neither be attached to nor opened.*: open it there \(NodeConfig.*attachable=True", caplog.text)


def test_open_or_attach_says_at_once_that_this_process_has_the_node_open_for_itself(tmp_path):
    async def main():
        async with kraftcore.open_node(alone(tmp_path, attachable=False), Values()):
            with pytest.raises(LockedError, match="open already in this process, by open_node without attachable"):
                async with kraftcore.open_or_attach(alone(tmp_path), Values):
                    pass
        async with kraftcore.open_or_attach(alone(tmp_path), Values):
            pass

    run(main)


def test_asyncio_and_threads_attach(tmp_path):
    config = alone(tmp_path, attachable=False)

    async def from_asyncio():
        async with asyncio.timeout(20), aio.attach(tmp_path, recipes.RecipeMachine()) as node:
            total = recipes.Counter(node.trio_node, "total")
            await asyncio.gather(*(node.call(total.add, 1) for _ in range(10)))
            with node.iterate(recipes.Dict(node.trio_node, "settings").watch()) as changes:
                await node.call(recipes.Dict(node.trio_node, "settings").set, "colour", "blue")
                assert (await anext(changes)).key == "colour"
            return await node.call(total.get)

    with blocking.open_or_attach(config, recipes.RecipeMachine) as owner:
        with blocking.attach(tmp_path, recipes.RecipeMachine()) as node:
            assert node.call(recipes.Counter(node.trio_node, "total").add, 1) == 1
            assert node.with_timeout(20.0).append(b"no command").result is not None
        assert asyncio.run(from_asyncio()) == 11
        with blocking.open_or_attach(config, recipes.RecipeMachine) as other:
            owner.stop()  # `other` opens it, in its own thread
            assert other.with_timeout(20.0).call(recipes.Counter(other.trio_node, "total").add, 1) == 12


def test_in_each_library_the_end_of_the_node_is_the_same_error(tmp_path):
    async def from_asyncio(owner):
        async with aio.attach(tmp_path, Values()) as node:
            await node.append(b"a")
            owner.stop()
            await asyncio.sleep(20)

    wanted = "had the node of .* open, ended or closed it: attach again .*open_or_attach"
    with blocking.open_node(alone(tmp_path), Values()) as owner, pytest.raises(NodeStoppedError, match=wanted):
        asyncio.run(from_asyncio(owner))
    owner = blocking.open_node(alone(tmp_path), Values())
    with owner as opened, pytest.raises(NodeStoppedError, match=wanted), blocking.attach(tmp_path, Values()) as node:
        opened.stop()
        while True:
            node.append(b"a")
