"""What running brokers say when they are asked, and what is in their logs."""

from __future__ import annotations

from typing import Any

import trio
from kafka_lab import HOST, KafkaNode

from kraftcore.ports.transport import Address
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.frames import decode_response, encode_request_parts
from kraftcore.protocol.messages.metadata import MetadataRequest
from kraftcore.transports.tcp import TcpTransport


def ask(node: KafkaNode, request: Any, version: int, *, behind: bytes = b"") -> Any:
    """What a node answers, or a `Failure`; ``behind`` follows the request in its frame."""

    async def main() -> Any:
        answers: list[Any] = []
        came = trio.Event()
        async with TcpTransport(log=lambda _: None) as transport:
            parts = [*encode_request_parts(request, version, 1, "test"), behind]
            transport.request(
                Address(HOST, node.port), parts, 10_000, lambda frame: (answers.append(frame), came.set())
            )
            await came.wait()
        return answers[0]

    answer = trio.run(main)
    return answer if isinstance(answer, Failure) else decode_response(answer, type(request).schema.api_key, version)[1]


def described(node: KafkaNode, topic: str) -> dict[int, tuple[int, set[int]]]:
    """Leader and ISR by partition, as a broker tells its clients."""
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
    answer = ask(node, request, 12)
    if isinstance(answer, Failure):
        return {}
    return {each.partition_index: (each.leader_id, set(each.isr_nodes)) for each in answer.topics[0].partitions}


def log_bytes(node: KafkaNode, name: str) -> bytes:
    return b"".join(file.read_bytes() for file in sorted((node.folder / name).glob("*.log")))
