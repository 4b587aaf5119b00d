"""Disks that are full: whoever has one goes, the others go on, and nothing that was acknowledged is lost."""

from __future__ import annotations

from errno import ENOSPC
from random import Random

import trio
from broker_rig import open_rig, until

from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure

ALL = (1, 2, 3)


class Acknowledged:
    """What was acknowledged, by offset."""

    def __init__(self, rig):
        self.rig = rig
        self.values = {}

    async def put(self, broker_id, count, *, may_fail=False):
        for _ in range(count):
            value = b"%d" % len(self.values)
            answer = await self.rig.produce(broker_id, value)
            if may_fail and (isinstance(answer, Failure) or answer.error_code):
                return answer
            assert answer.error_code == 0, answer
            self.values[answer.base_offset] = value
        return None

    async def check(self, broker_id):
        found = dict(enumerate(await self.rig.values(broker_id)))
        assert {offset: found.get(offset) for offset in self.values} == self.values


async def in_sync(rig, leader, *members):
    name = next(iter(rig.states))
    await until(lambda: set(rig.brokers[leader].replicas.all[name].partition.leading.isr.committed) == set(members))


def test_a_follower_then_the_leader(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            for broker_id in ALL:
                rig.disks[broker_id] = SimulatedDisk(Random(broker_id))
                await rig.start(broker_id, min_insync_replicas=2)
            await rig.assign(1, 0, ALL)
            written = Acknowledged(rig)
            await written.put(1, 5)

            full = rig.disks[3].inject("write", times=-1, code=ENOSPC, path="t-0")
            await written.put(1, 5)
            await until(lambda: 3 in rig.failures)
            assert "all log directories failed" in str(rig.failures.pop(3))
            assert full.hits > 0
            await in_sync(rig, 1, 1, 2)
            await written.put(1, 5)

            rig.disks[1].inject("write", times=-1, code=ENOSPC, path="t-0")
            answer = await written.put(1, 1, may_fail=True)
            assert isinstance(answer, Failure) or answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            await until(lambda: 1 in rig.failures)
            rig.failures.clear()

            rig.disks[3].clear_faults()
            await rig.start(3, min_insync_replicas=2)
            await rig.assign(2, 1, ALL, isr=[2])
            await in_sync(rig, 2, 2, 3)
            await written.put(2, 5)
            await written.check(2)
            rig.disks[1].clear_faults()
            await rig.start(1, min_insync_replicas=2)
            await rig.assign(2, 2, ALL, isr=[2, 3])
            await in_sync(rig, 2, *ALL)
            await rig.assign(1, 3, ALL)
            await written.check(1)
            assert len(written.values) == 20

    trio.run(main)
