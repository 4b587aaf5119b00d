"""kraftcore.blocking: nodes for threads."""

from __future__ import annotations

import signal
import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest
import trio
from nodes import Lab, Values
from programs import output_of

from kraftcore import blocking
from kraftcore.errors import LocalError, NodeStoppedError, OverloadedError, StateMachineError
from kraftcore.node.events import Committed, RoleChanged
from kraftcore.plugins import recipes
from kraftcore.raft.roles import Role


def opened(lab: Lab, machine=Values, plugins=(), **settings):
    lab.machines[1] = machine()
    config = lab.config(1, **settings)
    transport = lab.network.transport("n1")
    return blocking.open_node(config, lab.machines[1], transport=transport, plugins=plugins, files=lab.disks[1])


def until(condition) -> None:
    """Wait for another thread."""
    for _ in range(20_000):
        if condition():
            return
        time.sleep(0.005)
    raise AssertionError("it never came")


def test_threads_append_and_read():
    lab = Lab()
    with opened(lab) as node:
        assert node.wait_leader() == 1
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(node.append, (b"%d" % number for number in range(200))))
        assert [lab.machines[1].values[each.result - 1] for each in found] == [b"%d" % n for n in range(200)]
        assert node.append(b"again", client_id="me", sequence=0) == node.append(b"again", client_id="me", sequence=0)
        assert node.append(b"forward", forward=True).result == 202
        assert node.append_many([b"a", b"b"]).results == [203, 204]
        assert node.read_barrier() <= node.status().applied_offset
        assert node.read(found[0].offset)
        assert node.status().role is Role.LEADER
        assert node.is_leader
        assert node.snapshot_now()[0] == node.high_watermark


def test_a_node_says_where_it_stands_and_resigns():
    with opened(Lab()) as node:
        assert node.wait_leader() == node.leader_id == 1
        until(lambda: node.leading_epoch == 1)
        assert (node.kraft_version, node.is_caught_up, node.broker_endpoints) == (1, True, ())
        assert abs(node.now_ms() - node.call(node.trio_node.now_ms)) < 60_000
        node.resign()
        until(lambda: (node.leading_epoch or 0) > 1)


def test_one_threads_records_keep_their_order():
    with opened(Lab()) as node:
        node.wait_leader()
        offsets = [future.result().offset for future in [node.append_nowait(b"x") for _ in range(1000)]]
        assert offsets == sorted(offsets)
        with pytest.raises(LocalError, match="empty"):
            node.append_nowait(b"").result()


def test_append_waits_for_room_and_append_nowait_says_that_there_is_none():
    with opened(Lab(), max_bytes_in_flight=2000, append_linger_ms=20) as node:
        node.wait_leader()
        futures = [node.append_nowait(b"x" * 500) for _ in range(10)]
        assert node.append(b"later").result
        assert {type(future.exception()) for future in futures} == {type(None), OverloadedError}


def test_events_and_recipes_are_iterated_over():
    with opened(Lab(), recipes.RecipeMachine) as node:
        node.wait_leader()
        settings = recipes.Dict(node.trio_node, "settings")
        watches = node.iterate(settings.watch, "col"), node.iterate(settings.watch("col"))
        with node.events(Committed) as events, watches[0], watches[1]:
            version = node.call(settings.set, "colour", "blue")
            for change in map(next, watches):
                assert (change.key, change.value, change.version) == ("colour", "blue", version)
            assert next(event for event in events if event.high_watermark > version)
            assert node.call(settings.peek_items) == {"colour": "blue"}
        roles = node.events(RoleChanged)
    assert list(roles) == []


def test_what_a_function_raises_comes_out_as_it_is():
    async def fail():
        await trio.lowlevel.checkpoint()
        raise KeyError("mine")

    with opened(Lab()) as node:
        with pytest.raises(KeyError, match="mine"):
            node.call(fail)
        with pytest.raises(ZeroDivisionError):
            node.call(lambda: 1 / 0)
        with pytest.raises(KeyError, match="mine"), opened(Lab()):
            raise KeyError("mine")


def test_a_function_with_a_nursery_is_told_that_the_node_stopped():
    began = threading.Event()

    async def two():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            began.set()
            await trio.sleep_forever()

    with opened(Lab()) as node:
        future = node.submit(two)
        assert began.wait(60)
        node.stop()
        with pytest.raises(NodeStoppedError):
            future.result()


class Slow:
    """A function that tells how it went."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.cancelled = threading.Event()

    async def __call__(self) -> None:
        self.began.set()
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            self.cancelled.set()
            raise


def test_timeouts_and_cancelled_futures_cancel_the_function():
    with opened(Lab()) as node:
        slow = Slow()
        with pytest.raises(TimeoutError, match=r"Slow did not end within 0.05 s: <kraftcore.blocking.Node 1: leader, "):
            node.with_timeout(0.05).call(slow)
        for wrong in ("1", -1, None):
            with pytest.raises(LocalError, match="must be a number of seconds"):
                node.with_timeout(wrong)
        with pytest.raises(LocalError, match="write node.submit"):
            node.submit(slow())
        assert slow.cancelled.wait(60)
        slow = Slow()
        future = node.submit(slow)
        assert slow.began.wait(60)
        assert future.cancel()
        assert slow.cancelled.wait(60)
        with pytest.raises(CancelledError):
            future.result()
        node.append_nowait(b"x").cancel()  # or it is done already
        assert node.append(b"y")  # the one given up hurts nobody


def test_an_interrupt_cancels_the_waiting_call():
    with opened(Lab()) as node:
        slow = Slow()

        def interrupt():
            slow.began.wait(60)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)  # another thread's would not wake it

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            node.call(slow)
        thread.join()
        assert slow.cancelled.wait(60)
        node.wait_leader()
        assert node.append(b"x")


def test_an_interrupt_before_the_call_waits_cancels_it(monkeypatch):
    with opened(Lab()) as node:
        slow = Slow()
        soon = trio.lowlevel.TrioToken.run_sync_soon

        def interrupted(token, function):
            monkeypatch.undo()
            soon(token, function)
            assert slow.began.wait(60)
            raise KeyboardInterrupt

        monkeypatch.setattr(trio.lowlevel.TrioToken, "run_sync_soon", interrupted)
        with pytest.raises(KeyboardInterrupt):
            node.call(slow)
        assert slow.cancelled.wait(60)


def test_a_node_that_fails_ends_every_call():
    lab = Lab()
    with pytest.raises(NodeStoppedError, match="does not like this") as caught, opened(lab) as node:
        node.wait_leader()
        waiting = node.submit(trio.sleep_forever)
        future = node.append_nowait(b"raise")
        with pytest.raises(NodeStoppedError):
            future.result()
        with pytest.raises(NodeStoppedError, match="does not like this"):
            waiting.result()
        until(lambda: node.is_stopped)
        with pytest.raises(NodeStoppedError):
            node.append(b"a")
    assert isinstance(caught.value.__cause__, StateMachineError)
    with opened(Lab()) as node:
        node.stop()
        until(lambda: node.is_stopped)
        with pytest.raises(NodeStoppedError):
            node.append(b"a")
    with pytest.raises(NodeStoppedError):
        node.status()


def test_opening_can_fail():
    lab = Lab()
    lab.disks[1].make_folder("/data")
    with pytest.raises(LocalError, match="format"), opened(lab, create=None):
        pass
    with opened(lab) as node:
        assert node.wait_leader() == 1


def test_a_loop_that_cannot_begin_is_an_error(monkeypatch):
    def fail(*_):
        raise OSError("too many open files")

    monkeypatch.setattr(trio, "run", fail)
    with pytest.raises(OSError, match="too many"), opened(Lab()):
        pass


def test_the_nodes_own_thread_does_not_wait_for_itself():
    class Recursive(Values):
        node: blocking.Node
        refusals: list[str] = []  # noqa: RUF012

        def apply(self, batch):
            if batch.values() == [b"again"]:
                with pytest.raises(LocalError, match="own thread") as caught:
                    self.node.append(b"more")
                self.refusals.append(str(caught.value))
            return super().apply(batch)

    lab = Lab()
    with opened(lab, Recursive) as node:
        lab.machines[1].node = node
        node.wait_leader()
        assert node.append(b"again").result == 1
    assert len(Recursive.refusals) == 1


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        ("sys.exit(3)", "left\n"),  # in the block
        ("os.kill(os.getpid(), signal.SIGINT); time.sleep(300)", "left\n"),
        ("node.append_nowait(b'raise').exception()", "left\n"),
    ],
)
def test_programs_end(ending, said):
    text = f"with opened(Lab()) as node:\n  node.wait_leader()\n  try: {ending}\n  finally: print('left')"
    assert output_of(__file__, text, status=None) == said


def test_a_program_that_never_leaves_the_block_ends_all_the_same():
    text = "manager = opened(Lab()); manager.__enter__().wait_leader(); print('end')"
    assert output_of(__file__, text, status=None) == "end\n"


def test_an_impatient_interrupt_cuts_the_orderly_end_short():
    said = output_of(
        __file__,
        """
from kraftcore.node.plugin import Plugin
class Stubborn(Plugin):
    name = "stubborn"
    async def run(self, node):
        try:
            await trio.sleep_forever()
        finally:
            signal.raise_signal(signal.SIGINT)  # while the block's end waits
lab = Lab()
lab.format(2)  # two voters, one of which never comes: nobody to hand anything to
try:
    with opened(lab, plugins=[Stubborn()]):
        pass
except KeyboardInterrupt:
    print("interrupted")
""",
        status=None,
    )
    assert said == "interrupted\n"


def test_what_came_when_the_time_was_up_is_there_the_next_time():
    class Numbers:
        def __init__(self) -> None:
            self.last = 0
            self.late = threading.Event()

        def __aiter__(self):
            return self

        async def __anext__(self):
            self.last += 1
            number = self.last
            if number == 1:
                with trio.CancelScope(shield=True):
                    await trio.sleep(0.2)
                self.late.set()
            return number

    with opened(Lab()) as node:
        numbers = Numbers()
        found = node.with_timeout(0.05).iterate(lambda: numbers)
        with pytest.raises(TimeoutError):
            next(found)
        assert numbers.late.wait(60)
        node.call(trio.sleep, 0)
        assert [next(found), next(found)] == [1, 2]
