"""pytest fixtures, there for everybody who has kraftcore and pytest installed.

Nothing of kraftcore but this file is imported before a test asks for a fixture.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from kraftcore.testing.cluster import Cluster
    from kraftcore.testing.kafka_thread import KafkaThread

Result = TypeVar("Result")


@pytest.fixture
def kraft_cluster() -> Callable[..., Cluster[Any]]:
    """`kraftcore.testing.Cluster`: ``async with kraft_cluster(3, MyMachine) as cluster``."""
    from kraftcore.testing.cluster import Cluster

    return Cluster


@pytest.fixture
def kraft_run() -> Callable[..., Any]:
    """Runs an async function on trio in virtual time: ``kraft_run(function, *arguments, timeout_s=300)``.

    For tests without pytest-trio. Waiting takes no time. After ``timeout_s`` virtual seconds it raises
    ``trio.TooSlowError``. Returns what the function returned.
    """
    import trio
    from trio.testing import MockClock

    def run(function: Callable[..., Awaitable[Result]], *arguments: Any, timeout_s: float = 300) -> Result:
        async def limited() -> Result:
            with trio.fail_after(timeout_s):
                return await function(*arguments)

        return trio.run(limited, clock=MockClock(autojump_threshold=0))

    return run


@pytest.fixture
def kafka_cluster() -> Iterator[Callable[..., KafkaThread]]:
    """Starts a Kafka for this test: ``kafka = kafka_cluster(3)``; arguments are `kraftcore.testing.KafkaCluster`'s.

    It runs in a thread of its own until the test ends; ``kafka.bootstrap_servers`` is what clients are given.
    """
    from kraftcore.testing.kafka_cluster import KafkaCluster
    from kraftcore.testing.kafka_thread import in_thread

    with ExitStack() as stack:

        def start(brokers: int = 3, **options: Any) -> KafkaThread:
            return stack.enter_context(in_thread(KafkaCluster(brokers, **options)))

        yield start
