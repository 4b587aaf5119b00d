"""What a thread does so that the loop need not."""

from __future__ import annotations

import threading

import trio

from kraftcore.plugins.broker.work.heavy_steps import others_first
from kraftcore.plugins.broker.work.heavy_threads import HeavyThreads


def test_who_only_lets_others_go_first_does_not_wait_for_a_thread():
    async def main():
        is_over = threading.Event()
        has_begun, light, heavy = trio.Event(), trio.Event(), trio.Event()

        def work():
            trio.from_thread.run_sync(has_begun.set)
            is_over.wait()

        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                threads = HeavyThreads(nursery)
                threads(work, lambda error: heavy.set())
                await has_begun.wait()
                threads(others_first, lambda error: light.set())
                await light.wait()
                assert not heavy.is_set()
                is_over.set()
                await heavy.wait()

    trio.run(main)
