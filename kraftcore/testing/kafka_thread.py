"""The same cluster for threads: ``with in_thread(KafkaCluster(3)) as kafka``."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import trio

from kraftcore.errors import LocalError
from kraftcore.ownership import Owned, belongs_here
from kraftcore.testing.clock import TIMEOUT_S
from kraftcore.testing.ending import raise_with_cause

if TYPE_CHECKING:
    from kraftcore.testing.kafka_cluster import KafkaCluster, NodeState

P = ParamSpec("P")
T = TypeVar("T")


class KafkaThread(Owned):
    """A cluster that runs in a thread of its own; any other thread may call. Names and meanings are `KafkaCluster`'s.

    What is not here, as ``admin``, ``network`` and ``directory``, is used in its thread, by ``call`` and ``look``.

    Attributes:
        cluster: the cluster itself; touch it only in what ``call`` runs.
        bootstrap_servers, security_protocol, ca_file: what clients are given.
        faults: of requests, the cluster's own; any thread may use them.
    """

    def __init__(self, cluster: KafkaCluster, token: trio.lowlevel.TrioToken) -> None:
        self.cluster = cluster
        self.bootstrap_servers = cluster.bootstrap_servers
        self.security_protocol = cluster.security_protocol
        self.ca_file = cluster.ca_file
        self.faults = cluster.faults
        self._token = token

    def __repr__(self) -> str:
        return repr(self.cluster).replace("KafkaCluster", "KafkaThread", 1)

    def call(self, function: Callable[P, Awaitable[T]], /, *arguments: P.args, **options: P.kwargs) -> T:
        """Run an async function in the cluster's thread, and wait for it.

        Raises:
            LocalError: the cluster has ended, or ends meanwhile.
        """

        async def run() -> T:
            return await function(*arguments, **options)

        with _while_it_runs():
            return trio.from_thread.run(run, trio_token=self._token)

    def look(self, function: Callable[P, T], /, *arguments: P.args, **options: P.kwargs) -> T:
        """The same for a plain function."""
        with _while_it_runs():
            return trio.from_thread.run_sync(partial(function, *arguments, **options), trio_token=self._token)

    def address(self, broker_id: int) -> str:
        """See ``KafkaCluster.address``."""
        return self.look(self.cluster.address, broker_id)

    @property
    def states(self) -> dict[int, NodeState]:
        """Whether each node runs, is paused or is stopped, by id, brokers first."""
        return self.look(lambda: self.cluster.states)

    @property
    def brokers(self) -> tuple[int, ...]:
        """Ids of the brokers that run."""
        return self.look(lambda: self.cluster.brokers)

    @property
    def controllers(self) -> tuple[int, ...]:
        """Ids of the controllers that run."""
        return self.look(lambda: self.cluster.controllers)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        *,
        configs: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """See ``KafkaCluster.create_topic``."""
        create = self.cluster.create_topic
        self.call(create, name, partitions, replication_factor, configs=configs, timeout_s=timeout_s)

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """See ``KafkaCluster.leader``."""
        return self.look(self.cluster.leader, topic, partition)

    def isr(self, topic: str, partition: int = 0) -> frozenset[int]:
        """See ``KafkaCluster.isr``."""
        return self.look(self.cluster.isr, topic, partition)

    def wait_leader(self, topic: str, partition: int = 0, timeout_s: float = TIMEOUT_S) -> int:
        """See ``KafkaCluster.wait_leader``."""
        return self.call(self.cluster.wait_leader, topic, partition, timeout_s)

    def wait_isr(self, topic: str, size: int | None = None, timeout_s: float = TIMEOUT_S) -> None:
        """See ``KafkaCluster.wait_isr``."""
        self.call(self.cluster.wait_isr, topic, size, timeout_s)

    def wait_ready(self, timeout_s: float = TIMEOUT_S) -> None:
        """See ``KafkaCluster.wait_ready``."""
        self.call(self.cluster.wait_ready, timeout_s)

    def start(self, node_id: int) -> None:
        """See ``KafkaCluster.start``."""
        self.call(self.cluster.start, node_id)

    def stop(self, node_id: int) -> None:
        """See ``KafkaCluster.stop``."""
        self.call(self.cluster.stop, node_id)

    def kill(self, node_id: int) -> None:
        """See ``KafkaCluster.kill``."""
        self.call(self.cluster.kill, node_id)

    def restart(self, node_id: int) -> None:
        """See ``KafkaCluster.restart``."""
        self.call(self.cluster.restart, node_id)

    def pause(self, node_id: int) -> None:
        """See ``KafkaCluster.pause``."""
        self.look(self.cluster.pause, node_id)

    def resume(self, node_id: int) -> None:
        """See ``KafkaCluster.resume``."""
        self.look(self.cluster.resume, node_id)

    def move_leader(self, topic: str, partition: int = 0, to: int | None = None, timeout_s: float = TIMEOUT_S) -> int:
        """See ``KafkaCluster.move_leader``."""
        return self.call(self.cluster.move_leader, topic, partition, to, timeout_s)

    def partition(self, *groups: int | Iterable[int]) -> None:
        """See ``KafkaCluster.partition``."""
        self.look(self.cluster.partition, *groups)

    def heal(self) -> None:
        """See ``KafkaCluster.heal``."""
        self.look(self.cluster.heal)


@contextmanager
def _while_it_runs() -> Iterator[None]:
    """In a thread nobody knows what to do with a cancellation of trio's."""
    try:
        yield
    except (trio.Cancelled, trio.RunFinishedError):
        raise LocalError("the cluster has ended: call it within the block of in_thread") from None


def in_thread(cluster: KafkaCluster) -> AbstractContextManager[KafkaThread]:
    """Run a cluster in a thread for as long as the block runs.

    Raises:
        KraftError, AssertionError: it did not start.
        NodeStoppedError: a node stopped by itself while the block ran; it is the cause of what the block raises itself.
        Exception: whatever else ended the cluster.
    """
    return _ClusterThread(cluster)


class _ClusterThread(Owned, AbstractContextManager[KafkaThread]):
    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self._started: SimpleQueue[KafkaThread | None] = SimpleQueue()
        self._ending = trio.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        self._raised: BaseException | None = None
        self._thread = threading.Thread(target=self._main, name="kafka-cluster", daemon=True)

    def __enter__(self) -> KafkaThread:
        self._thread.start()
        kafka = self._started.get()
        if kafka is None:
            self._thread.join()
            raise self._raised or LocalError("the cluster ended before it had started")
        return kafka

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not belongs_here(self):
            return
        with suppress(trio.RunFinishedError):  # it ended by itself, and says why
            trio.from_thread.run_sync(self._ending.set, trio_token=self._token)
        self._thread.join()
        if error is None or self._raised is not None:  # else the block's error goes on as it is
            raise_with_cause(error, self._raised)

    def _main(self) -> None:
        try:
            trio.run(self._run)
        except BaseException as error:
            self._raised = error
        finally:
            self._started.put(None)

    async def _run(self) -> None:
        async with self._cluster:
            self._token = trio.lowlevel.current_trio_token()
            self._started.put(KafkaThread(self._cluster, self._token))
            await self._ending.wait()
