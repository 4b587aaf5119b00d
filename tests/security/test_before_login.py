"""Nothing but ApiVersions and the handshake is answered before a login: every request, every version, over TCP."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import oauth_kit as kit
import pytest
import trio

from kraftcore import NodeConfig, open_node
from kraftcore.config.login import SaslLogin
from kraftcore.config.security import SaslConfig
from kraftcore.metadata import MetadataMachine
from kraftcore.plugins.controller import Controller
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.frames import decode_response, encode_request
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest
from kraftcore.protocol.messages.describe_cluster import DescribeClusterRequest
from kraftcore.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kraftcore.protocol.messages.sasl_handshake import SaslHandshakeRequest
from kraftcore.protocol.registry import ApiKey, api_of, apis_on, request_class
from kraftcore.protocol.schema import Request, Response, Struct
from kraftcore.security.sasl.oauth_settings import TokenValidation

USER, PASSWORD = "alice", "secret"
GOOD, WRONG = b"\0alice\0secret", b"\0alice\0wrong"
AT_ONCE = 20
CLUSTER = DescribeClusterRequest(endpoint_type=2)
EVERY = [
    (kind, version)
    for kind in map(request_class, ApiKey)
    if kind.schema.versions is not None  # of those that 4.x removed some have none
    for version in range(kind.schema.versions[0], kind.schema.versions[1] + 1)
]


def framed(request: Request, version: int | None = None, number: int = 7) -> bytes:
    frame = encode_request(request, api_of(type(request))[2] if version is None else version, number, "client")
    return struct.pack(">i", len(frame)) + frame


def handshake(mechanism: str = "PLAIN", version: int = 1) -> bytes:
    return framed(SaslHandshakeRequest(mechanism=mechanism), version)


def token(data: bytes) -> bytes:
    return framed(SaslAuthenticateRequest(auth_bytes=data))


class Said:
    """What a node says on one connection.

    Attributes:
        frames: without their sizes.
        is_closed: whether it ended the connection.
    """

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.is_closed = False

    def of(self, place: int, kind: type[Request], version: int | None = None) -> Response:
        key, _, newest = api_of(kind)
        return decode_response(self.frames[place], key, newest if version is None else version)[1]


class Caller:
    """Makes connections to one node."""

    def __init__(self, port: int, node: Any) -> None:
        self._port = port
        self.node = node

    async def say(self, *parts: bytes, answers: int | None = None) -> Said:
        """Send all at once, and read until the node ends the connection, or has given so many answers."""
        said, found = Said(), bytearray()
        stream = await trio.open_tcp_stream("127.0.0.1", self._port)
        async with stream:
            try:
                await stream.send_all(b"".join(parts))
                while answers is None or len(said.frames) < answers:
                    data = await stream.receive_some(65536)
                    if not data:
                        said.is_closed = True
                        break
                    found += data
                    while len(found) >= 4 and len(found) >= 4 + (size := struct.unpack_from(">i", found)[0]):
                        said.frames.append(bytes(found[4 : 4 + size]))
                        del found[: 4 + size]
            except trio.BrokenResourceError:
                said.is_closed = True
        assert not found
        return said


@pytest.fixture(name="run")
def the_run(tmp_path: Path) -> Callable[[Callable[[Caller], Awaitable[None]]], None]:
    """Runs a test beside a controller that lets those in who log in."""
    keys = kit.write_keys(tmp_path / "keys.json", kit.public_jwk("RSA"))
    sasl = SaslConfig(
        mechanisms=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
        users={USER: PASSWORD},
        tokens=TokenValidation(keys_url=keys),
    )
    config = NodeConfig(
        node_id=1,
        directory=tmp_path / "data",
        listeners=["CONTROLLER://127.0.0.1:0"],
        create="standalone",
        listener_sasl={"CONTROLLER": sasl},
        sasl=SaslLogin(mechanism="PLAIN", username=USER, password=PASSWORD),
        failed_authentication_delay_ms=0,
        max_connection_creation_rate=100_000,
    )

    def run(test: Callable[[Caller], Awaitable[None]]) -> None:
        async def main() -> None:
            async with open_node(config, MetadataMachine(), plugins=[Controller()]) as node:
                with trio.fail_after(120):
                    await node.wait_leader()
                    await test(Caller(node.endpoints[0].port, node))

        trio.run(main)

    return run


async def for_every(caller: Caller, check: Callable[[Caller, type[Request], int], Awaitable[None]]) -> None:
    limit = trio.CapacityLimiter(AT_ONCE)

    async def one(kind: type[Request], version: int) -> None:
        async with limit:
            try:
                await check(caller, kind, version)
            except BaseException as error:
                error.add_note(f"{kind.__name__} v{version}")
                raise

    async with trio.open_nursery() as nursery:
        for kind, version in EVERY:
            nursery.start_soon(one, kind, version)


def test_every_request_is_among_them():
    assert {kind for kind, _ in EVERY} >= {request_class(key) for key in (*apis_on("broker"), *apis_on("controller"))}
    assert len(EVERY) > 300


def test_nothing_is_answered_before_the_handshake(run):
    async def check(caller: Caller, kind: type[Request], version: int) -> None:
        if kind is ApiVersionsRequest:
            request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
            said = await caller.say(framed(request, version), answers=1)
            assert said.of(0, kind, version).error_code == ErrorCode.NONE
        elif kind is SaslHandshakeRequest:
            said = await caller.say(handshake(version=version), answers=1)
            assert said.of(0, kind, version).error_code == ErrorCode.NONE
        else:
            said = await caller.say(framed(kind(), version))
            assert (said.frames, said.is_closed) == ([], True)

    async def test(caller: Caller) -> None:
        await for_every(caller, check)
        await still_lets_in(caller)

    run(test)


def test_nothing_is_served_between_handshake_and_login(run):
    refused: set[str] = set()

    async def check(caller: Caller, kind: type[Request], version: int) -> None:
        if kind is SaslAuthenticateRequest:
            return
        said = await caller.say(handshake(), framed(kind(), version), token(GOOD), framed(CLUSTER))
        assert said.is_closed
        assert said.of(0, SaslHandshakeRequest, 1).error_code == ErrorCode.NONE
        if len(said.frames) > 1:
            assert len(said.frames) == 2
            # A request without items has some answers that hold no error at all, and nothing else either.
            answer = said.of(1, kind, version)
            assert error_codes(answer, version) <= {ErrorCode.ILLEGAL_SASL_STATE}
            assert error_codes(answer, version) or answer == type(answer)()
            refused.add(kind.__name__)

    async def test(caller: Caller) -> None:
        await for_every(caller, check)
        assert {"ApiVersionsRequest", "SaslHandshakeRequest", "DescribeClusterRequest", "VoteRequest"} <= refused
        await still_lets_in(caller)

    run(test)


def test_bare_tokens_are_never_taken_for_requests(run):
    """After SaslHandshake v0 frames have no header (KIP-43)."""

    async def check(caller: Caller, kind: type[Request], version: int) -> None:
        said = await caller.say(handshake(version=0), framed(kind(), version), framed(CLUSTER))
        assert (len(said.frames), said.is_closed) == (1, True)

    async def test(caller: Caller) -> None:
        await for_every(caller, check)
        said = await caller.say(handshake(version=0), struct.pack(">i", len(GOOD)) + GOOD, framed(CLUSTER), answers=3)
        assert said.frames[1] == b""
        assert said.of(2, DescribeClusterRequest).error_code == ErrorCode.NONE

    run(test)


def test_a_channel_is_not_used_again_after_a_failure(run):
    """Whatever comes behind what failed, in the same segment or later, is left alone."""
    after = [token(GOOD), handshake(), framed(ApiVersionsRequest(), 0), framed(CLUSTER)]
    failures = {
        "a wrong password": [handshake(), token(WRONG)],
        "a user nobody knows": [handshake(), token(b"\0bob\0secret")],
        "no mechanism": [handshake("GSSAPI")],
        "another mechanism's message": [handshake("SCRAM-SHA-512"), token(GOOD)],
        "a token for a password": [handshake("OAUTHBEARER"), token(GOOD)],
        "a second handshake": [handshake("SCRAM-SHA-512"), handshake("PLAIN")],
        "a request in place of a token": [handshake(), framed(CLUSTER)],
    }

    async def test(caller: Caller) -> None:
        for parts in failures.values():
            for followers in (after, after[::-1]):
                said = await caller.say(*parts, *followers)
                assert said.is_closed
                assert len(said.frames) == len(parts)
                await still_lets_in(caller)

    run(test)


def test_what_comes_too_early_is_not_served_late(run):
    """Requests sent before the login are none of the session's."""

    async def test(caller: Caller) -> None:
        for early in (framed(CLUSTER), token(GOOD)):
            said = await caller.say(early, handshake(), token(GOOD), framed(CLUSTER))
            assert (said.frames, said.is_closed) == ([], True)
        said = await caller.say(
            framed(ApiVersionsRequest(), 0), framed(ApiVersionsRequest(), 0), handshake(), token(GOOD)
        )
        assert (len(said.frames), said.is_closed) == (1, True)

    run(test)


@pytest.mark.parametrize(
    "frame",
    [b"", b"\0", b"\0\x12", b"\0\x12\0\0\0\0\0", b"\xff" * 10, b"\x7f\xff" * 10, b"GET / HTTP/1.1\r\n", bytes(1000)],
)
def test_bytes_that_are_no_request(run, frame):
    async def test(caller: Caller) -> None:
        for before in ([], [handshake()], [handshake(version=0)], [handshake("SCRAM-SHA-256")]):
            said = await caller.say(*before, struct.pack(">i", len(frame)) + frame, token(GOOD))
            assert (len(said.frames), said.is_closed) == (len(before), True)

    run(test)


@pytest.mark.parametrize("size", [512 * 1024 + 1, 2**31 - 1, -1, -(2**31)])
def test_frames_that_are_too_long_end_the_connection_unread(run, size):
    async def test(caller: Caller) -> None:
        for before in ([], [handshake()]):
            said = await caller.say(*before, struct.pack(">i", size))
            assert (len(said.frames), said.is_closed) == (len(before), True)
        await still_lets_in(caller)

    run(test)


def test_unknown_apis_and_versions(run):
    async def test(caller: Caller) -> None:
        for key, version in [(key, version) for key in range(-2, 110, 3) for version in (-1, 0, 99)]:
            if key == ApiKey.API_VERSIONS:
                continue
            frame = struct.pack(">hhih", key, version, 1, -1) + bytes(20)
            frame = struct.pack(">i", len(frame)) + frame
            said = await caller.say(frame, handshake(), token(GOOD))
            assert (said.frames, said.is_closed) == ([], True), (key, version)

    run(test)


async def still_lets_in(caller: Caller) -> None:
    said = await caller.say(handshake(), token(GOOD), framed(CLUSTER), answers=3)
    assert said.of(1, SaslAuthenticateRequest).error_code == ErrorCode.NONE
    assert said.of(2, DescribeClusterRequest).error_code == ErrorCode.NONE


def error_codes(message: Struct, version: int) -> set[int]:
    """All that stand anywhere in a response of this version."""
    found: set[int] = set()
    for each in message.__layout__.fields:
        value = getattr(message, each.name)
        if each.name == "error_code" and each.versions[0] <= version:
            found.add(value)
        below = value if isinstance(value, list) else [value]
        for one in below:
            if isinstance(one, Struct):
                found |= error_codes(one, version)
    return found
