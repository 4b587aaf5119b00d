"""What tests of brokers begin with."""

from __future__ import annotations

import pytest
import trio
from kraft_rig import open_kraft_rig


@pytest.fixture
def play(tmp_path):
    """Runs a test's coroutine with a cluster in memory (`kraft_rig`)."""

    def run(main):
        async def whole():
            async with open_kraft_rig(tmp_path) as rig:
                await main(rig)

        trio.run(whole)

    return run
