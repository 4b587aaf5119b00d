"""One request to a broker on loopback, and its answer."""

from __future__ import annotations

from typing import Any

import trio

from kraftcore.ports.transport import Address
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.frames import decode_response, encode_request_parts
from kraftcore.transports.tcp import TcpTransport

HOST = "127.0.0.1"


def ask(port: int, request: Any, version: int) -> Any:
    """What a node answers, or a `Failure`."""

    async def main() -> Any:
        answers: list[Any] = []
        came = trio.Event()
        async with TcpTransport(log=lambda _: None) as transport:
            parts = encode_request_parts(request, version, 1, "test")
            transport.request(Address(HOST, port), parts, 10_000, lambda frame: (answers.append(frame), came.set()))
            await came.wait()
        return answers[0]

    answer = trio.run(main)
    return answer if isinstance(answer, Failure) else decode_response(answer, type(request).schema.api_key, version)[1]
