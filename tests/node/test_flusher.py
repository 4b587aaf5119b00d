"""Who makes the log durable: the node's own task, or a thread."""

from __future__ import annotations

import threading
from time import sleep

import trio
from nodes import Lab, run

from kraftcore.errors import StorageError
from kraftcore.node.flusher import SLOW_S, Flusher

HERE = threading.current_thread().name
THREAD = "kraftcore flush"


def watch(lab: Lab, number: int) -> list[str]:
    """The threads that sync a node's log from now on."""
    seen: list[str] = []

    def synced(path: str) -> float:
        if path.endswith(".log"):
            seen.append(threading.current_thread().name)
        return 0.0

    lab.disks[number].sync_latency_ms = synced
    return seen


def test_with_0_no_node_flushes_on_its_loop():
    async def main():
        lab = Lab(inline_flush_bytes=0)
        async with lab.quorum() as (leader, *followers):
            seen = [watch(lab, number) for number in (1, 2, 3)]
            for number in range(20):
                await leader.append(b"%d" % number)
            for follower in followers:
                await follower.read_barrier()
            assert [set(names) for names in seen] == [{THREAD}] * 3

    run(main)


def test_large_flushes_go_to_the_thread_on_followers_too():
    async def main():
        lab = Lab(inline_flush_bytes=10_000)
        async with lab.quorum() as (leader, *followers):
            small = [watch(lab, number) for number in (1, 2, 3)]
            for _ in range(20):
                await leader.append(b"x")
                for follower in followers:
                    await follower.read_barrier()
            assert all(HERE in names for names in small)  # but for moments in which the disk was slow
            large = [watch(lab, number) for number in (1, 2, 3)]
            for _ in range(5):
                await leader.append(b"x" * 20_000)
                for follower in followers:
                    await follower.read_barrier()
            assert [set(names) for names in large] == [{THREAD}] * 3

    run(main)


class FakeLog:
    """Grows, and is flushed; both as the test says."""

    def __init__(self) -> None:
        self.size_in_bytes = 0
        self.flushed_by: list[str] = []
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self.may_end.set()
        self.error: BaseException | None = None

    def write_out(self) -> None:
        pass

    def flush(self) -> int:
        self.flushed_by.append(threading.current_thread().name)
        self.begun.set()
        assert self.may_end.wait(60)
        if self.error is not None:
            raise self.error
        return self.size_in_bytes


class Rig:
    """A flusher, and what it said."""

    def __init__(self, inline_bytes: int) -> None:
        self.log = FakeLog()
        self.said: list[object] = []
        self.flusher = Flusher(self.log, inline_bytes, self.said.append, self.said.append)

    async def flush(self, size: int) -> str:
        """Append and flush so much; returns who did it."""
        self.log.size_in_bytes += size
        count = len(self.said)
        self.flusher.flush(size)
        while len(self.said) == count:
            await trio.sleep(0.001)
        return self.log.flushed_by[-1]


def test_the_limit():
    async def main():
        rig = Rig(100)
        assert [await rig.flush(size) for size in (100, 101, 1)] == [HERE, THREAD, HERE]
        assert rig.said == [100, 201, 202]
        rig.log.size_in_bytes = 100  # truncated, or deleted: how much was appended since is told
        assert await rig.flush(1) == HERE
        assert await rig.flush(101) == THREAD
        rig.flusher.close()

    run(main)


def test_0_means_never():
    async def main():
        rig = Rig(0)
        assert [await rig.flush(size) for size in (1, 0, 1)] == [THREAD] * 3
        rig.flusher.close()

    run(main)


def test_a_slow_disk_is_waited_for_elsewhere():
    async def main():
        rig = Rig(100)
        flush = rig.log.flush

        def slow() -> int:
            sleep(SLOW_S * 10)  # the disk's work
            return flush()

        rig.log.flush = slow
        assert await rig.flush(1) == HERE
        assert await rig.flush(1) == THREAD
        rig.flusher.close()

    run(main)


def test_what_comes_while_it_flushes_is_flushed_next():
    async def main():
        rig = Rig(0)
        rig.log.may_end.clear()
        rig.log.size_in_bytes = 5
        rig.flusher.flush(5)
        assert await trio.to_thread.run_sync(rig.log.begun.wait, 60)
        rig.log.size_in_bytes = 7
        rig.flusher.flush(2)
        assert (rig.flusher.is_running, rig.said) == (True, [])
        rig.log.may_end.set()
        while len(rig.said) < 2:
            await trio.sleep(0.001)
        assert not rig.flusher.is_running
        assert len(rig.log.flushed_by) == 2
        rig.flusher.close()

    run(main)


def test_a_failure_in_the_thread_is_told():
    async def main():
        rig = Rig(0)
        rig.log.error = StorageError(5, "broken", "log")
        await rig.flush(1)
        assert rig.said == [rig.log.error]
        assert not rig.flusher.is_running
        rig.flusher.close()

    run(main)
