"""Brokers of ours under a controller of ours, in one process."""

import trio
from broker_rig import until
from kraft_rig import open_kraft_rig

from kraftcore.plugins.broker.kraft.life import Stage


def test_a_cluster_of_brokers_and_a_controller(tmp_path):
    async def main():
        async with open_kraft_rig(tmp_path) as rig:
            await rig.controller()
            for node_id in (1, 2):
                await rig.broker(node_id)
            await rig.create([1, 2])
            await until(lambda: rig.partition(1) and rig.partition(1).leading)
            assert (await rig.produce(1, b"a", b"b")).error_code == 0
            await until(lambda: rig.partition(2) and rig.partition(2).high_watermark == 2)
            assert await rig.values(2) == [b"a", b"b"]
            assert rig.log_bytes(1) == rig.log_bytes(2) != b""
            assert rig.row().isr == (1, 2)

    trio.run(main)


def test_one_node_is_both(tmp_path):
    async def main():
        async with open_kraft_rig(tmp_path) as rig:
            await rig.start(900, is_controller=True)
            with trio.fail_after(60):
                await rig.brokers[900].wait_running()
            assert rig.brokers[900].stage is Stage.RUNNING
            await rig.create([900])
            await until(lambda: rig.partition(900) and rig.partition(900).leading)
            assert (await rig.produce(900, b"a")).error_code == 0
            assert await rig.values(900) == [b"a"]

    trio.run(main)
