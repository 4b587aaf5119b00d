"""Brokers of ours in one process, on a network in memory, with a controller played by the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import asking
import trio

from kraftcore.core.disk.files import Files
from kraftcore.core.uuid import ZERO_UUID, Uuid
from kraftcore.errors import NodeStoppedError
from kraftcore.plugins.broker import Broker, BrokerConfig, open_broker
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.ports.transport import Address, Origin, Reply
from kraftcore.protocol.frames import decode_request, encode_response_parts
from kraftcore.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftcore.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest
from kraftcore.protocol.messages.stop_replica import StopReplicaRequest
from kraftcore.protocol.messages.update_metadata import UpdateMetadataPartitionState, UpdateMetadataRequest
from kraftcore.raft.quorum import Endpoint
from kraftcore.transports.memory import MemoryNetwork

CONTROLLER = 900
LISTENER = "BROKER"
QUICK = {
    "replica_fetch_wait_max_ms": 50,
    "replica_fetch_backoff_ms": 20,
    "replica_lag_time_max_ms": 300,
    "high_watermark_checkpoint_ms": 20,
    "recovery_checkpoint_ms": 20,
    "log_start_checkpoint_ms": 20,
    "initial_task_delay_ms": 0,
    "delete_delay_ms": 20,
}


async def until(condition: Callable[[], Any]) -> Any:
    """Wait until something is true; a minute at most."""
    with trio.fail_after(60):
        while not (found := condition()):
            await trio.sleep(0.01)
        return found


class Rig:
    """The network, the brokers on it, and what the controller knows.

    Attributes:
        brokers: those that run, by id.
        isr_requests: the AlterPartition requests that came.
        answers_isr: whether the controller answers them.
        disks: what brokers keep their directories on, by id; the others use the operating system's.
        failures: why brokers stopped by themselves, by id.
        racks: where brokers stand.
        client_id: what the asker calls itself.
    """

    def __init__(self, folder: Path, nursery: trio.Nursery) -> None:
        self.folder = folder
        self.network = MemoryNetwork()
        self.brokers: dict[int, Broker] = {}
        self.isr_requests: list[AlterPartitionRequest] = []
        self.answers_isr = True
        self.disks: dict[int, Files] = {}
        self.failures: dict[int, NodeStoppedError] = {}
        self.racks: dict[int, str] = {}
        self.topic_ids: dict[str, Uuid] = {}
        self.states: dict[TopicPartition, LeaderAndIsrPartitionState] = {}
        self._nursery = nursery
        self._ends: dict[int, trio.CancelScope] = {}
        self._gone: dict[int, trio.Event] = {}
        self.client_id = "test"
        self._numbers = count(1)

    # --- brokers ------------------------------------------------------------------------------------------------------

    def address(self, broker_id: int) -> Address:
        """Where a broker, or the controller, listens."""
        return Address(f"broker{broker_id}", 9092)

    async def start(self, broker_id: int, **settings: Any) -> Broker:
        """Start a broker, and tell everybody who is alive."""
        config = BrokerConfig(
            node_id=broker_id,
            listeners=(Endpoint(LISTENER, f"broker{broker_id}", 9092),),
            **{"directories": (str(self.folder / f"d{broker_id}"),), **QUICK, **settings},
        )
        ready, self._gone[broker_id] = trio.Event(), trio.Event()
        self._nursery.start_soon(self._run, config, ready)
        with trio.fail_after(60):
            await ready.wait()
        await self.announce()
        return self.brokers[broker_id]

    async def _run(self, config: BrokerConfig, ready: trio.Event) -> None:
        broker_id = config.node_id
        try:
            with trio.CancelScope() as self._ends[broker_id]:
                async with (
                    self.network.transport(str(broker_id)) as transport,
                    open_broker(config, transport=transport, files=self.disks.get(broker_id)) as broker,
                ):
                    self.brokers[broker_id] = broker
                    ready.set()
                    await broker.wait_failed()
        except NodeStoppedError as error:
            self.failures[broker_id] = error
        finally:
            self.brokers.pop(broker_id, None)
            self._gone[broker_id].set()

    async def stop(self, broker_id: int) -> None:
        """Stop a broker in order."""
        self._ends[broker_id].cancel()
        await self._gone[broker_id].wait()

    def log_bytes(self, broker_id: int, topic: str = "t", partition: int = 0) -> bytes:
        files = sorted((self.folder / f"d{broker_id}" / f"{topic}-{partition}").glob("*.log"))
        return b"".join(file.read_bytes() for file in files)

    # --- the controller -----------------------------------------------------------------------------------------------

    async def assign(
        self,
        leader: int,
        epoch: int,
        replicas: Sequence[int],
        isr: Sequence[int] | None = None,
        topic: str = "t",
        topic_id: Uuid | None = None,
    ) -> None:
        """Make a partition of these replicas, number 0 of its topic, known to all brokers that run."""
        self.topic_ids.setdefault(topic, Uuid.random() if topic_id is None else topic_id)
        state = LeaderAndIsrPartitionState(
            partition_index=0,
            leader=leader,
            leader_epoch=epoch,
            isr=list(replicas if isr is None else isr),
            replicas=list(replicas),
            partition_epoch=epoch * 100,
        )
        name = TopicPartition(topic, 0)
        self.states[name] = state
        for broker_id in set(replicas) & self.brokers.keys():
            kind = LeaderAndIsrRequest.LeaderAndIsrTopicState
            told = kind(topic_name=topic, topic_id=self.topic_ids[topic], partition_states=[state])
            request = LeaderAndIsrRequest(controller_id=CONTROLLER, controller_epoch=1, topic_states=[told])
            answer = await self.ask(broker_id, request, 7)
            assert answer.topics[0].partition_errors[0].error_code == 0, answer
        await self.announce()

    async def announce(self) -> None:
        """Tell all brokers who is alive and which partitions there are."""
        kind = UpdateMetadataRequest.UpdateMetadataBroker
        live = [
            kind(
                id=broker_id,
                rack=self.racks.get(broker_id),
                endpoints=[kind.UpdateMetadataEndpoint(host=at.host, port=at.port, listener=LISTENER)],
            )
            for broker_id, at in ((each, self.address(each)) for each in (*self.brokers, CONTROLLER))
        ]
        topics = [
            UpdateMetadataRequest.UpdateMetadataTopicState(
                topic_name=name.topic,
                topic_id=self.topic_ids[name.topic],
                partition_states=[
                    UpdateMetadataPartitionState(
                        partition_index=0,
                        leader=state.leader,
                        leader_epoch=state.leader_epoch,
                        isr=state.isr,
                        replicas=state.replicas,
                    )
                ],
            )
            for name, state in self.states.items()
        ]
        for broker_id in list(self.brokers):
            request = UpdateMetadataRequest(
                controller_id=CONTROLLER, controller_epoch=1, live_brokers=live, topic_states=topics
            )
            assert (await self.ask(broker_id, request, 8)).error_code == 0

    async def delete(self, broker_id: int, topic: str = "t") -> int:
        """Have a broker delete its replica; the error code."""
        kind = StopReplicaRequest.StopReplicaTopicState
        state = kind.StopReplicaPartitionState(partition_index=0, leader_epoch=-2, delete_partition=True)
        told = kind(topic_name=topic, partition_states=[state])
        request = StopReplicaRequest(controller_id=CONTROLLER, controller_epoch=1, topic_states=[told])
        return (await self.ask(broker_id, request, 4)).partition_errors[0].error_code

    def serve(self, frame: bytes, origin: Origin, reply: Reply) -> None:
        """As the controller, agree to every ISR."""
        header, message = decode_request(frame)
        answer = partial(
            encode_response_parts, version=header.request_api_version, correlation_id=header.correlation_id
        )
        if isinstance(message, ApiVersionsRequest):
            kind = ApiVersionsResponse.ApiVersion
            reply(answer(ApiVersionsResponse(api_keys=[kind(api_key=56, min_version=2, max_version=3)])))
            return
        assert isinstance(message, AlterPartitionRequest)
        self.isr_requests.append(message)
        response = AlterPartitionResponse()
        for topic in message.topics:
            told = AlterPartitionResponse.TopicData(topic_id=topic.topic_id)
            for each in topic.partitions:
                isr = [member.broker_id for member in each.new_isr_with_epochs]
                told.partitions.append(
                    AlterPartitionResponse.TopicData.PartitionData(
                        partition_index=each.partition_index,
                        leader_id=message.broker_id,
                        leader_epoch=each.leader_epoch,
                        isr=isr,
                        partition_epoch=each.partition_epoch + 1,
                    )
                )
            response.topics.append(told)
        if self.answers_isr:
            reply(answer(response))

    # --- clients ------------------------------------------------------------------------------------------------------

    async def ask(self, broker_id: int, request: Any, version: int, lane: int | None = None) -> Any:
        """Send a request, on a connection of its own unless a lane is named; the answer, or a `Failure`."""
        number = next(self._numbers)
        address = self.address(broker_id)._replace(lane=number if lane is None else lane)
        return await asking.ask(self.transport, address, request, version, number, self.client_id)

    async def produce(self, broker_id: int, *values: bytes, lane: int | None = None, **more: Any) -> Any:
        """The answer for the partition; see `asking.produce_request`."""
        request = asking.produce_request(*values, **more)
        return asking.produced(await self.ask(broker_id, request, asking.PRODUCE_VERSION, lane))

    async def fetch(self, broker_id: int, offset: int = 0, **more: Any) -> Any:
        """The answer for the partition; see `asking.fetch_request`."""
        return asking.fetched(await self.ask(broker_id, asking.fetch_request(offset, **more), asking.FETCH_VERSION))

    async def values(self, broker_id: int, offset: int = 0, **more: Any) -> list[bytes | None]:
        """What a consumer reads at once."""
        return asking.values_in(await self.fetch(broker_id, offset, **more))


@asynccontextmanager
async def open_rig(folder: Path) -> AsyncIterator[Rig]:
    """A rig; its brokers end with the block."""
    async with AsyncExitStack() as stack:
        nursery = await stack.enter_async_context(trio.open_nursery())
        stack.callback(nursery.cancel_scope.cancel)
        rig = Rig(folder, nursery)
        rig.transport = await stack.enter_async_context(rig.network.transport("test"))
        await rig.transport.listen(LISTENER, rig.address(CONTROLLER), rig.serve)
        yield rig
        for broker_id in list(rig.brokers):
            await rig.stop(broker_id)
        if rig.failures:
            raise next(iter(rig.failures.values()))


NO_ID = ZERO_UUID
