"""Processes forked beside open nodes: they hold nothing of them, and are told so; the parent's end is seen at once."""

from __future__ import annotations

import asyncio
import inspect
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack, suppress
from inspect import isawaitable
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import pytest
import trio
from forked import (
    WITH_THREADS,
    config,
    descriptors,
    in_child,
    inherited,
    is_tcp,
    outlives,
    owner,
    refuses,
    runs_its_own,
    what_was_open_before,  # noqa: F401  # used by every test
)
from nodes import Values
from transport_rig import free_port, in_trio

from kraftcore import Endpoint, Node, NodeConfig, ReplicaKey, Uuid, Voter, VoterSet, admin, aio, blocking, open_node
from kraftcore.config.errors import ConfigError
from kraftcore.core.disk.os_files import OsFiles
from kraftcore.errors import KraftError, LocalError, NotLeaderError, RefusedError, WrongProcessError
from kraftcore.node.home import format_home
from kraftcore.observer import observe
from kraftcore.ownership import Owned
from kraftcore.plugins import recipes
from kraftcore.plugins.metrics import Metrics
from kraftcore.raft.quorum import VersionRange
from kraftcore.testing import KafkaCluster, in_thread

pytestmark = pytest.mark.filterwarnings(WITH_THREADS)
PATIENCE_S = 60
NOTHING: list[str] = []


def find(directory: Path, *things: object) -> tuple[list[str], list[list[str]], int | None]:
    """What a child finds: what it inherited, what the things still answer, and who owns the directory."""
    before, pid = descriptors(), os.getpid()
    assert any(map(is_tcp, before.values()))
    assert any(what.startswith(str(directory)) for what in before.values())
    return in_child(
        lambda: (
            inherited(before, descriptors(), str(directory)),
            [refuses(one, pid) for one in things],
            owner(directory),
        )
    )


async def check_node(open_it, directory: Path) -> None:
    """Fork within a node's block, by ``os.fork``, and leave it in the child, too."""

    async def call(function: Callable[..., object], *arguments: object) -> None:
        found = function(*arguments) if open_it is open_node else node.call(function, *arguments)
        if isawaitable(found):
            await found

    child, status = -1, 1
    try:
        async with AsyncExitStack() as stack:
            metrics = Metrics(listen="127.0.0.1:0")
            chosen = config(directory, record_file=directory / "recording")
            block = open_it(chosen, recipes.RecipeMachine(), plugins=[metrics])
            entered = stack.enter_context(block) if open_it is blocking.open_node else stack.enter_async_context(block)
            node = await entered if isawaitable(entered) else entered
            inner = getattr(node, "trio_node", node)
            await call(inner.wait_leader)
            settings = recipes.Dict(inner, "settings")
            await call(settings.set, "colour", "blue")
            events = node.events()
            await call(metrics.ready.wait)
            things = (node, inner, settings, events)
            assert in_child(lambda: list(metrics.collect())) == []
            assert find(directory, *things) == (NOTHING, [NOTHING] * len(things), os.getpid())
            child = os.fork()
            if child:
                assert os.waitpid(child, 0)[1] == 0
                await call(settings.set, "colour", "red")  # the parent goes on
                assert settings.peek("colour") == "red"
        assert child or repr(node) == f"<Node of process {os.getppid()}, which this one was forked from>"
        status = 0
    finally:
        if not child:
            os._exit(status)
    assert not (directory / ".lock").exists()


def test_a_child_of_trio_has_nothing_of_a_node(tmp_path):
    trio.run(check_node, open_node, tmp_path)


@pytest.mark.parametrize("library", [aio, blocking])
def test_a_child_of_asyncio_or_threads_has_nothing_of_a_node(tmp_path, library):
    asyncio.run(check_node(library.open_node, tmp_path))


@in_trio
async def test_a_child_has_nothing_of_an_observer_or_an_admin_client(tmp_path):
    async with open_node(config(tmp_path / "node"), Values()) as node:
        await node.wait_leader()
        place = [f"127.0.0.1:{node.endpoints[0].port}"]
        async with observe(place) as observer, admin.connect(bootstrap_controllers=place) as client:
            await observer.caught_up()
            await client.describe_quorum()
            things = (observer, observer.batches(), observer.records(), client)
            found = find(Path(observer.directory), *things)
            assert found == (NOTHING, [NOTHING] * len(things), os.getpid())
            assert find(tmp_path / "node") == (NOTHING, [], os.getpid())
            assert (await client.describe_quorum()).leader_id == 1


def test_a_child_has_nothing_of_a_kafka_cluster(tmp_path):
    with in_thread(KafkaCluster(2, directory=tmp_path)) as kafka:
        kafka.create_topic("t")
        place = kafka.bootstrap_servers
        controller, broker = (kafka.cluster.nodes[node_id] for node_id in (101, 1))
        things = (kafka, kafka.cluster, controller, broker)
        for directory in ("controller-101", "broker-1"):
            found = find(tmp_path / directory, *things)
            assert found == (NOTHING, [NOTHING] * len(things), os.getpid())
        kafka.create_topic("u")
        assert place == kafka.bootstrap_servers


def kinds(base: type) -> Iterator[type]:
    for kind in base.__subclasses__():
        yield kind
        yield from kinds(kind)


def test_no_block_of_the_parents_is_left_in_a_child():
    """Whatever there is that has one; the end is that which ``with`` looked up before the fork."""
    ends = {}
    for kind in kinds(Owned):
        for name in {"__exit__", "__aexit__"} & vars(kind).keys():
            ends[kind.__name__, name] = getattr(kind.__new__(kind), name)
    assert {"OwnedAsyncBlock", "OwnedBlock", "TcpTransport", "KafkaCluster", "Held", "FileLock"} <= {
        kind for kind, _ in ends
    }

    def leave() -> None:
        for (_, name), end in ends.items():
            found = end(None, None, None)
            if name == "__exit__":
                assert found is None
            else:
                with pytest.raises(StopIteration):  # it waits for nothing
                    found.send(None)

    in_child(leave)


# --- ways to begin a process ------------------------------------------------------------------------------------------


HELD: dict[str, blocking.Node] = {}


def held_leads() -> bool:
    return HELD["node"].is_leader


def test_pools_and_threads_fork_beside_a_node(tmp_path):
    """Children know what is not theirs, and can have their own; a pool brings the error back as it was."""
    with blocking.open_node(config(tmp_path / "mine"), Values()) as node:
        node.wait_leader()
        HELD["node"] = node
        waits = node.submit(trio.sleep_forever)
        try:
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
                refused = pool.submit(held_leads).exception(PATIENCE_S)
                assert isinstance(refused, WrongProcessError)
                assert refused.pid == os.getpid()
                assert str(refused).startswith(f"this Node belongs to process {os.getpid()}, from which this one (")
                assert pool.submit(runs_its_own, tmp_path / "own").result(PATIENCE_S) == 1
        finally:
            HELD.clear()
        found = []
        thread = threading.Thread(target=lambda: found.append(find(tmp_path / "mine", node)))
        thread.start()
        thread.join(PATIENCE_S)
        assert found == [(NOTHING, [NOTHING], os.getpid())]
        with pytest.raises(WrongProcessError):  # and waits for nothing that nobody would ever tell
            in_child(waits.result)
        waits.cancel()
        assert node.append(b"b").result == 1


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_node_cannot_be_sent_to_a_process_and_its_configuration_can(tmp_path, method):
    context = multiprocessing.get_context(method)
    with blocking.open_node(config(tmp_path / "mine"), Values()) as node:
        node.wait_leader()
        for thing in (node, node.trio_node, node.append, node.events()):
            with pytest.raises(WrongProcessError, match="cannot be pickled or copied.*such as a configuration"):
                ForkingPickler.dumps(thing)
        assert ForkingPickler.loads(ForkingPickler.dumps(node.config)) == node.config
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            assert pool.submit(runs_its_own, tmp_path / "own").result(PATIENCE_S) == 1
            assert pool.submit(owner, tmp_path / "mine").result(PATIENCE_S) == os.getpid()


def test_a_child_s_child_names_the_process_that_opened_the_node(tmp_path):
    with blocking.open_node(config(tmp_path), Values()) as node:
        node.wait_leader()

        def asked() -> tuple[int, int | None]:
            with pytest.raises(WrongProcessError) as caught:
                node.status()
            return caught.value.pid, owner(tmp_path)

        assert in_child(lambda: (asked(), in_child(asked))) == ((os.getpid(),) * 2,) * 2


def test_errors_and_addresses_can_be_sent_to_a_process(tmp_path):
    def kinds(of: type[KraftError]) -> Iterator[type[KraftError]]:
        for each in of.__subclasses__():
            yield each
            yield from kinds(each)

    given = {"position": 1, "path": "/d", "offset": 2, "durable_offset": 3}
    by_name = {"pid": 7, "reason": "why", "message": "text", "error": "NAME", "record": "TopicRecord", **given}
    found = {each for each in kinds(KraftError) if each.__module__ in ("kraftcore.errors", "kraftcore.config.errors")}
    assert {NotLeaderError, RefusedError, WrongProcessError, ConfigError} <= found
    for kind in found:
        init = kind.__init__
        if inspect.isfunction(init):
            wanted = list(inspect.signature(init).parameters.values())[1:]
            values = {each.name: by_name.get(each.name, 5) for each in wanted if each.default is each.empty}
            error = kind(**values)
        else:
            error = kind(5, "text")
        again = ForkingPickler.loads(ForkingPickler.dumps(error))
        assert (type(again), str(again), vars(again)) == (kind, str(error), vars(error))
    with blocking.open_node(config(tmp_path), Values()) as node:
        assert ForkingPickler.loads(ForkingPickler.dumps(node.endpoints)) == node.endpoints


def test_asyncio_says_how_a_forked_child_opens_its_own(tmp_path):
    async def main() -> str:
        async with aio.open_node(config(tmp_path / "own"), Values()):
            raise AssertionError

    async def parent() -> None:
        async with aio.open_node(config(tmp_path / "mine"), Values()) as node:
            await node.wait_leader()
            with pytest.raises(LocalError, match="open the node with kraftcore.blocking"):
                in_child(lambda: asyncio.run(main()))
            assert in_child(lambda: runs_its_own(tmp_path / "own")) == 1

    asyncio.run(parent())


# --- the parent's end -------------------------------------------------------------------------------------------------

VICTIM = """
import signal, sys
from forked import fork_when_told
from kraftcore import NodeConfig, blocking
from nodes import Values

fork_when_told()
directory, place = sys.argv[1:]
config = NodeConfig(node_id=1, directory=directory, listeners=[place], fetch_timeout_ms=1000)
with blocking.open_node(config, Values()) as node:
    print("open", flush=True)
    while True:
        signal.pause()
"""


class Victim:
    """A node in a process of its own."""

    def __init__(self, directory: Path, place: str) -> None:
        command = [sys.executable, "-P", "-c", VICTIM, str(directory), place]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "support")}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert self.line() == "open"  # its port and directory were free

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def fork(self) -> int:
        self.process.send_signal(signal.SIGUSR2)
        return json.loads(self.line())["pid"]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def formatted(folder: Path) -> list[NodeConfig]:
    """Three voters, whose followers wait an hour for a silent leader."""
    places = {number: Endpoint("CONTROLLER", "127.0.0.1", free_port()) for number in (1, 2, 3)}
    keys = {number: ReplicaKey(number, Uuid.random()) for number in places}
    voters = VoterSet(tuple(Voter(keys[each], (place,), VersionRange(0, 1)) for each, place in places.items()))
    found = []
    for number, place in places.items():
        settings = {"directory": folder / str(number), "listeners": [str(place)], "fetch_timeout_ms": 3_600_000}
        found.append(NodeConfig(node_id=number, **settings))
        format_home(OsFiles(), found[-1], keys[number], "c", voters)
    return found


async def make_leader(number: int, others: list[Node]) -> None:
    while any(node.status().leader_id != number for node in others):
        for node in others:
            if node.is_leader:
                with suppress(RefusedError, NotLeaderError):  # it may still have to catch up
                    await node.transfer_leadership(number)
        await trio.sleep(0.01)


@in_trio
async def test_peers_see_a_killed_parent_as_soon_with_a_child_as_without(tmp_path):
    """Nobody here calls an election but for the end of the leader's connection."""
    configs = formatted(tmp_path)
    place = str(configs[0].listeners[0])
    children: list[int] = []
    victim = await trio.to_thread.run_sync(Victim, tmp_path / "1", place)
    try:
        async with AsyncExitStack() as stack:
            others = [await stack.enter_async_context(open_node(each, Values())) for each in configs[1:]]
            for has_child in (True, False):
                await make_leader(1, others)
                if has_child:
                    children.append(victim.fork())
                victim.kill()
                while not any(node.is_leader for node in others):
                    await trio.sleep(0.01)
                if has_child:
                    victim = await trio.to_thread.run_sync(Victim, tmp_path / "1", place)
                    assert outlives(children.pop())
    finally:
        victim.kill()
        for child in children:
            outlives(child)
