"""Fast fencing on real nodes: a broker whose listener is gone is fenced long before its session ends."""

from __future__ import annotations

import random
from contextlib import asynccontextmanager

import trio
from memory_quorum import memory_quorum
from nodes import run

from kraftcore.core.uuid import Uuid
from kraftcore.metadata import MetadataMachine
from kraftcore.node.plugin_node import plugin_node
from kraftcore.plugins.controller import Controller
from kraftcore.ports.transport import Address
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.features import supported_levels
from kraftcore.protocol.frames import decode_request, encode_response
from kraftcore.protocol.messages.api_versions import ApiVersionsResponse
from kraftcore.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from kraftcore.protocol.messages.broker_registration import BrokerRegistrationRequest

PROPERTIES = {"broker.session.timeout.ms": "600000", "kraftcore.fast.fencing.ms": "50"}


async def until(holds):
    with trio.fail_after(60):
        while not holds():
            await trio.sleep(0.01)


@asynccontextmanager
async def listening(quorum, number, asked):
    """A process of a broker that answers ApiVersions."""
    async with quorum.network.transport(f"b{number}") as transport:

        def serve(frame, origin, reply):
            header, _ = decode_request(frame)
            asked.append(number)
            answer = encode_response(ApiVersionsResponse(), header.request_api_version, header.correlation_id)
            reply([answer])

        await transport.listen("PLAINTEXT", Address(f"b{number}", 9092), serve)
        yield


async def join(node, number):
    """Register a broker, and have it unfenced."""
    kind = BrokerRegistrationRequest
    request = kind(
        broker_id=number,
        cluster_id=node.cluster_id,
        incarnation_id=Uuid.random(random.randbytes),
        listeners=[kind.Listener(name="PLAINTEXT", host=f"b{number}", port=9092)],
        features=[
            kind.Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in supported_levels().items()
        ],
        log_dirs=[Uuid.random(random.randbytes)],
    )
    at = f"n{node.key.id}", 9000 + node.key.id
    with trio.fail_after(60):
        answer = await plugin_node(node).ask(*at, request, 30_000)
        assert answer.error_code == ErrorCode.NONE
        epoch = answer.broker_epoch
        beat = BrokerHeartbeatRequest(broker_id=number, broker_epoch=epoch, current_metadata_offset=epoch)
        assert not (await plugin_node(node).ask(*at, beat, 30_000)).is_fenced


def test_who_dies_is_fenced_and_nobody_else(tmp_path):
    async def main():
        make = lambda: [Controller(PROPERTIES)]  # noqa: E731
        async with memory_quorum(tmp_path, MetadataMachine, plugins=make, size=1, probe=False) as quorum:
            (node,) = quorum.nodes.values()
            await until(lambda: node.leading_epoch is not None and node.state_machine.levels)
            brokers = node.state_machine.image.brokers
            asked = []
            async with listening(quorum, 5, asked):
                async with listening(quorum, 6, asked):
                    for number in (5, 6, 7):  # 7 listens nowhere: it was never reached
                        await join(node, number)
                    await until(lambda: {5, 6} <= set(asked))
                await until(lambda: brokers[6].is_fenced)
                seen = asked.count(5)
                await until(lambda: asked.count(5) > seen + 3)
                assert not brokers[5].is_fenced
                assert not brokers[7].is_fenced
                async with listening(quorum, 6, asked):  # its next process registers at once
                    await join(node, 6)
                    assert not brokers[6].is_fenced

    run(main)
