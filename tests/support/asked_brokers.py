"""What running brokers say when they are asked, and what is in their logs."""

from __future__ import annotations

from functools import partial
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
    return ask_in_a_row(node, (request, version), behind=behind)[0]


def ask_in_a_row(node: KafkaNode, *requests: tuple[Any, int], behind: bytes = b"") -> list[Any]:
    """What a node answers to each (request, version) on a connection, none of which waits for an answer."""
    answers: dict[int, Any] = {}

    async def main() -> None:
        came = [trio.Event() for _ in requests]

        def done(number: int, frame: bytes | Failure) -> None:
            answers[number] = frame
            came[number].set()

        async with TcpTransport(log=lambda _: None) as transport:
            for number, (request, version) in enumerate(requests):
                parts = [*encode_request_parts(request, version, number + 1, "test"), behind]
                transport.request(Address(HOST, node.port), parts, 10_000, partial(done, number))
            for each in came:
                await each.wait()

    trio.run(main)
    return [
        answers[number]
        if isinstance(answers[number], Failure)
        else decode_response(answers[number], type(request).schema.api_key, version)[1]
        for number, (request, version) in enumerate(requests)
    ]


def described(node: KafkaNode, topic: str) -> dict[int, tuple[int, set[int]]]:
    """Leader and ISR by partition, as a broker tells its clients."""
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
    answer = ask(node, request, 12)
    if isinstance(answer, Failure):
        return {}
    return {each.partition_index: (each.leader_id, set(each.isr_nodes)) for each in answer.topics[0].partitions}


def log_bytes(node: KafkaNode, name: str) -> bytes:
    return b"".join(file.read_bytes() for file in sorted((node.folder / name).glob("*.log")))
