"""A node's listener with SASL, over TCP: who gets in, who waits, who is turned away, and when it ends."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress

import pytest
import trio
from nodes import Values
from transport_rig import in_trio

from kraftcore import NodeConfig, open_node
from kraftcore.config import ConfigError, SaslConfig
from kraftcore.errors import AuthenticationError
from kraftcore.node.plugin import Plugin
from kraftcore.node.registry import RequestHandler
from kraftcore.plugins.metrics import Metrics
from kraftcore.ports.transport import Address
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.frames import decode_response, encode_request
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest
from kraftcore.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kraftcore.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kraftcore.protocol.messages.sasl_handshake import SaslHandshakeRequest
from kraftcore.protocol.registry import ApiKey, api_of
from kraftcore.security.principals import Principal
from kraftcore.security.sasl.credentials import NotReadyError, Passwords
from kraftcore.security.sasl.scram_client import Password, ScramClient
from kraftcore.transports.memory import MemoryNetwork

USERS = {"alice": "wonderland", "bob": "builder"}
GOOD = b"\0alice\0wonderland"
BAD = b"\0alice\0looking-glass"
SCRAM = "SCRAM-SHA-512"
LONG_MS = 3_600_000


class Witness(Plugin):
    """Answers DescribeCluster with who asks."""

    name = "witness"
    participates = True

    def __init__(self, known=None):
        self.seen = []
        self._known = known

    @property
    def credentials(self):
        return self._known

    @property
    def handlers(self):
        yield RequestHandler(DescribeClusterRequest, self._describe)

    def _describe(self, request, context):
        self.seen.append(
            (str(context.asker.principal), context.asker.security_protocol.name, context.asker.is_by_token)
        )
        return DescribeClusterResponse(cluster_id=str(context.asker.principal))


@asynccontextmanager
async def serving(folder, plugin=None, mechanisms=("PLAIN", SCRAM), max_reauth_ms=None, **settings):
    """A quorum of one whose second listener wants SASL; yields the port of it, and the plugin."""
    sasl = SaslConfig(mechanisms=mechanisms, users=USERS, max_reauth_ms=max_reauth_ms or {}, max_receive_bytes=1000)
    config = NodeConfig(
        **{
            "node_id": 1,
            "directory": folder,
            "listeners": ["CONTROLLER://127.0.0.1:0", "GUARDED://127.0.0.1:0"],
            "create": "standalone",
            "listener_sasl": {"guarded": sasl},
            "failed_authentication_delay_ms": 0,
            **settings,
        }
    )
    plugin = plugin or Witness()
    async with open_node(config, Values(), plugins=[plugin]) as node:
        await node.wait_leader()
        yield node.endpoints, plugin


class Wire:
    """A connection, frame by frame; None stands for its end."""

    def __init__(self, stream):
        self._stream = stream
        self._data = b""

    async def send(self, frame):
        with suppress(trio.BrokenResourceError):  # it has ended already: ``receive`` says so
            await self._stream.send_all(len(frame).to_bytes(4) + frame)

    async def receive(self):
        while len(self._data) < 4 or len(self._data) < 4 + int.from_bytes(self._data[:4]):
            try:
                more = await self._stream.receive_some()
            except trio.BrokenResourceError:
                more = b""
            if not more:
                return None
            self._data += more
        size = int.from_bytes(self._data[:4])
        frame, self._data = self._data[4 : 4 + size], self._data[4 + size :]
        return frame

    async def call(self, message, version=None):
        """The response; None if the connection ended instead."""
        key, _, newest = api_of(type(message))
        version = newest if version is None else version
        await self.send(encode_request(message, version, 7))
        frame = await self.receive()
        return None if frame is None else decode_response(frame, key, version)[1]

    async def shake(self, mechanism="PLAIN"):
        response = await self.call(SaslHandshakeRequest(mechanism=mechanism))
        assert response.error_code == 0
        return response

    async def token(self, data=GOOD):
        return await self.call(SaslAuthenticateRequest(auth_bytes=data))

    async def log_in(self, data=GOOD):
        await self.shake()
        response = await self.token(data)
        assert response.error_code == 0, response.error_message
        return response

    async def who(self):
        """How the node calls it; None at its end."""
        response = await self.call(DescribeClusterRequest())
        return None if response is None else response.cluster_id


@asynccontextmanager
async def connected(endpoint):
    stream = await trio.open_tcp_stream("127.0.0.1", endpoint.port)
    async with stream:
        yield Wire(stream)


@in_trio
async def test_who_gets_in_and_as_whom(tmp_path):
    async with serving(tmp_path) as (endpoints, plugin):
        async with connected(endpoints[0]) as wire:
            assert await wire.who() == "User:ANONYMOUS"
            offered = {each.api_key for each in (await wire.call(ApiVersionsRequest(), 0)).api_keys}
            assert {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE} <= offered
            assert (await wire.call(SaslHandshakeRequest(mechanism="PLAIN"))).error_code == ErrorCode.ILLEGAL_SASL_STATE
        async with connected(endpoints[1]) as wire:
            assert (await wire.call(ApiVersionsRequest(), 0)).error_code == 0
            assert (await wire.shake()).mechanisms == ["PLAIN", SCRAM]
            assert (await wire.token()).session_lifetime_ms == 0
            assert await wire.who() == "User:alice"
            assert (await wire.call(SaslHandshakeRequest(mechanism="PLAIN"))).error_code == ErrorCode.ILLEGAL_SASL_STATE
            assert (await wire.token()).error_code == ErrorCode.ILLEGAL_SASL_STATE
            assert await wire.who() == "User:alice"
        async with connected(endpoints[1]) as wire:
            client = ScramClient(SCRAM, "bob", Password("builder"))
            await wire.shake(SCRAM)
            challenge = (await wire.token(client.first())).auth_bytes
            client.respond((await wire.token(client.respond(challenge))).auth_bytes)
            assert client.is_complete
            assert await wire.who() == "User:bob"
    assert plugin.seen == [
        ("User:ANONYMOUS", "PLAINTEXT", False),
        ("User:alice", "SASL_PLAINTEXT", False),
        ("User:alice", "SASL_PLAINTEXT", False),
        ("User:bob", "SASL_PLAINTEXT", False),
    ]


@in_trio
async def test_who_does_not(tmp_path):
    async with serving(tmp_path) as (endpoints, plugin):
        async with connected(endpoints[1]) as wire:
            assert await wire.who() is None
        async with connected(endpoints[1]) as wire:
            await wire.shake()
            response = await wire.call(DescribeClusterRequest())
            assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
            assert await wire.receive() is None
        async with connected(endpoints[1]) as wire:
            await wire.shake()
            response = await wire.token(BAD)
            assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert await wire.receive() is None
        async with connected(endpoints[1]) as wire:
            response = await wire.call(SaslHandshakeRequest(mechanism="GSSAPI"))
            assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
            assert await wire.receive() is None
        async with connected(endpoints[1]) as wire:  # pipelined: what comes behind a refused token is not served
            await wire.send(encode_request(SaslHandshakeRequest(mechanism="PLAIN"), 1, 1))
            await wire.send(encode_request(SaslAuthenticateRequest(auth_bytes=BAD), 2, 2))
            await wire.send(encode_request(SaslAuthenticateRequest(auth_bytes=GOOD), 2, 3))
            await wire.send(encode_request(DescribeClusterRequest(), 2, 4))
            found = [await wire.receive() for _ in range(3)]
            assert found[2] is None
    assert plugin.seen == []


@in_trio
async def test_a_failure_is_held_back_without_holding_up_others(tmp_path):
    """For an hour: those who fail hear nothing, others log in meanwhile."""
    async with (
        serving(tmp_path, failed_authentication_delay_ms=LONG_MS) as (endpoints, _),
        connected(endpoints[1]) as failing,
        connected(endpoints[1]) as other,
    ):
        await failing.shake()
        await failing.send(encode_request(SaslAuthenticateRequest(auth_bytes=BAD), 2, 1))
        await failing.send(encode_request(SaslAuthenticateRequest(auth_bytes=GOOD), 2, 2))
        for _ in range(20):
            async with connected(endpoints[1]) as again:
                await again.log_in()
        await other.log_in()
        assert await other.who() == "User:alice"
        with trio.move_on_after(0.05) as scope:
            await failing.receive()
        assert scope.cancelled_caught


@in_trio
async def test_frames_are_short_until_somebody_is_known(tmp_path):
    long = b"x" * 993  # with the 8 bytes of a frame's head more than 1000
    async with serving(tmp_path) as (endpoints, _):
        async with connected(endpoints[1]) as wire:
            await wire.send(b"\0\x11\0\1\0\0\0\1" + long)
            assert await wire.receive() is None
        async with connected(endpoints[1]) as wire:
            await wire.shake()
            await wire.send(b"\0\x24\0\2\0\0\0\1" + long)
            assert await wire.receive() is None
        async with connected(endpoints[1]) as wire:
            await wire.log_in()
            request = DescribeClusterRequest()
            await wire.send(encode_request(request, 2, 1, "c" * 2000))
            assert await wire.receive() is not None


@in_trio
async def test_bare_tokens_after_the_old_handshake(tmp_path):
    async with serving(tmp_path) as (endpoints, _), connected(endpoints[1]) as wire:
        assert (await wire.call(SaslHandshakeRequest(mechanism="PLAIN"), 0)).error_code == 0
        await wire.send(GOOD)
        assert await wire.receive() == b""
        assert await wire.who() == "User:alice"


@in_trio
async def test_a_session_that_is_not_begun_anew_ends(tmp_path):
    async with serving(tmp_path, max_reauth_ms={"PLAIN": 1}) as (endpoints, _), connected(endpoints[1]) as wire:
        assert (await wire.log_in()).session_lifetime_ms == 1
        while await wire.who() is not None:
            await trio.sleep(0.002)


@in_trio
async def test_a_session_is_begun_anew(tmp_path):
    async with serving(tmp_path, max_reauth_ms={"PLAIN": LONG_MS}) as (endpoints, _):
        async with connected(endpoints[1]) as wire:
            assert (await wire.log_in()).session_lifetime_ms == LONG_MS
            assert (await wire.log_in()).session_lifetime_ms == LONG_MS
            assert await wire.who() == "User:alice"
            # Within a second it is a request like any other.
            assert (await wire.call(SaslHandshakeRequest(mechanism="PLAIN"))).error_code == ErrorCode.ILLEGAL_SASL_STATE
            assert await wire.who() == "User:alice"
        async with connected(endpoints[1]) as wire:
            await wire.log_in()
            await wire.shake()
            assert (await wire.token(b"\0bob\0builder")).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert await wire.receive() is None


@in_trio
async def test_half_open_connections_give_way(tmp_path):
    """Those that logged in stay, those that only began to are pushed out, however many come."""
    async with serving(tmp_path, max_connections=20) as (endpoints, _), connected(endpoints[1]) as wire:
        await wire.log_in()
        async with trio.open_nursery() as nursery:

            async def half_open():
                async with connected(endpoints[1]) as half:
                    if await half.call(SaslHandshakeRequest(mechanism="PLAIN")) is not None:
                        await half.receive()

            for _ in range(60):
                nursery.start_soon(half_open)
            for _ in range(30):
                async with connected(endpoints[1]) as again:
                    response = await again.call(SaslHandshakeRequest(mechanism="PLAIN"))
                    if response is not None:
                        await again.token()
                assert await wire.who() == "User:alice"
            nursery.cancel_scope.cancel()
        assert await wire.who() == "User:alice"


@in_trio
async def test_clients_that_took_all_places_do_not_keep_other_nodes_out(tmp_path):
    async with (
        serving(tmp_path, max_connections=2) as (endpoints, _),
        connected(endpoints[1]) as first,
        connected(endpoints[1]) as second,
    ):
        await first.log_in()
        await second.log_in()
        async with connected(endpoints[1]) as third:
            assert await third.receive() is None
        async with connected(endpoints[0]) as node:
            assert await node.who() == "User:ANONYMOUS"
        assert await second.who() == "User:alice"
        assert await first.receive() is None


@in_trio
async def test_who_does_not_prove_it_in_time_is_cut_off(tmp_path):
    async with (
        serving(tmp_path, handshake_timeout_ms=200) as (endpoints, _),
        connected(endpoints[1]) as wire,
        connected(endpoints[1]) as known,
    ):
        await known.log_in()
        await wire.shake()
        assert await wire.receive() is None
        assert await known.who() == "User:alice"


class Loading:
    """Credentials that are not loaded yet."""

    def scram(self, mechanism, user):
        raise NotReadyError("not loaded")

    token = scram

    def iterations(self, mechanism):
        return {}


class LoadingMetrics(Metrics):
    credentials = Loading()


@in_trio
async def test_what_is_not_loaded_yet_is_no_wrong_password(tmp_path):
    metrics = LoadingMetrics(listen=None)
    async with serving(tmp_path, metrics) as (endpoints, _), connected(endpoints[1]) as wire:
        await metrics.ready.wait()
        await wire.shake(SCRAM)
        assert await wire.token(ScramClient(SCRAM, "bob", Password("builder")).first()) is None
        assert counted(metrics) == {"GUARDED": [0, 0, 0, 0]}


def counted(metrics):
    """Logins to each listener: succeeded, failed, renewed, not renewed."""
    found = {}
    for family in metrics.registry.collect():
        if family.name.startswith("kafka_server_socketservermetrics_"):
            for sample in family.samples:
                found.setdefault(sample.labels["listener"], []).append(sample.value)
    return found


@in_trio
async def test_logins_are_counted(tmp_path):
    metrics = Metrics(listen=None)
    async with serving(tmp_path, metrics, max_reauth_ms={"PLAIN": 3_600_000}) as (endpoints, _):
        await metrics.ready.wait()
        assert counted(metrics) == {"GUARDED": [0, 0, 0, 0]}
        async with connected(endpoints[0]) as wire:
            await wire.call(ApiVersionsRequest(), 0)
        async with connected(endpoints[1]) as wire, connected(endpoints[1]) as other:
            for each in (wire, other):
                await each.log_in()
            assert counted(metrics) == {"GUARDED": [2, 0, 0, 0]}
            await wire.log_in()
            assert counted(metrics) == {"GUARDED": [2, 0, 1, 0]}
            await other.shake()
            assert (await other.token(BAD)).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        for begin in (Wire.shake, Wire.who):
            async with connected(endpoints[1]) as wire:
                await begin(wire)
                await wire.token(BAD)
        assert counted(metrics) == {"GUARDED": [2, 2, 1, 1]}


class KnowsNobody:
    def build(self, context):
        if context.listener == "GUARDED":
            raise AuthenticationError("nobody I know")
        return Principal("User", "somebody")


@in_trio
async def test_what_a_principal_builder_says_is_counted(tmp_path):
    metrics = Metrics(listen=None)
    async with serving(tmp_path, metrics, listener_sasl={}, principal_builder=KnowsNobody()) as (endpoints, _):
        await metrics.ready.wait()
        for endpoint, known in zip(endpoints, (True, False), strict=True):
            async with connected(endpoint) as wire:
                assert (await wire.call(ApiVersionsRequest(), 0) is not None) == known
        assert counted(metrics) == {"CONTROLLER": [1, 0, 0, 0], "GUARDED": [0, 1, 0, 0]}


@in_trio
async def test_a_plugin_knows_who_may_come(tmp_path):
    known = Passwords.of({"carol": "x"}, (SCRAM,), b"salt")
    async with serving(tmp_path, Witness(known)) as (endpoints, _):
        for name, password, ends in (("carol", "x", True), ("bob", "builder", False)):
            async with connected(endpoints[1]) as wire:
                client = ScramClient(SCRAM, name, Password(password))
                await wire.shake(SCRAM)
                challenge = (await wire.token(client.first())).auth_bytes
                response = await wire.token(client.respond(challenge))
                assert (response.error_code == 0) == ends


@in_trio
async def test_in_memory(tmp_path):
    """The same authentication, whatever carries the frames."""
    network = MemoryNetwork()
    results = []
    async with network.transport("server") as transport, network.transport("client") as client:
        config = NodeConfig(
            node_id=1,
            directory=tmp_path,
            listeners=["CONTROLLER://n:1", "GUARDED://n:2"],
            create="standalone",
            listener_sasl={"GUARDED": SaslConfig(mechanisms=("PLAIN",), users=USERS)},
        )
        async with open_node(config, Values(), transport=transport, plugins=[Witness()]) as node:
            for message, version in (
                (SaslHandshakeRequest(mechanism="PLAIN"), 1),
                (SaslAuthenticateRequest(auth_bytes=GOOD), 2),
                (DescribeClusterRequest(), 2),
            ):
                done = trio.Event()
                frame = encode_request(message, version, len(results))
                address = next(each for each in node.endpoints if each.name == "GUARDED")
                client.request(
                    Address(address.host, address.port),
                    [frame],
                    20_000,
                    lambda result, done=done: (results.append(result), done.set()),
                )
                await done.wait()
    assert decode_response(results[2], ApiKey.DESCRIBE_CLUSTER, 2)[1].cluster_id == "User:alice"


@pytest.mark.parametrize(
    ("sasl", "reason"),
    [
        ({"NOBODY": SaslConfig(mechanisms=("PLAIN",))}, "NOBODY is none of the listeners"),
        ({"GUARDED": "PLAIN"}, "it must be a dict, with a SaslConfig by a text"),
    ],
)
def test_listeners_and_their_settings(tmp_path, sasl, reason):
    with pytest.raises(ConfigError, match=reason):
        NodeConfig(
            node_id=1,
            directory=tmp_path,
            listeners=["CONTROLLER://127.0.0.1:1", "GUARDED://127.0.0.1:2"],
            create="standalone",
            listener_sasl=sasl,
        )


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"mechanisms": ()}, "is empty: nobody could log in"),
        ({"mechanisms": "PLAIN"}, "listener_sasl.mechanisms is 'PLAIN': it must be a list"),
        ({"mechanisms": ("GSSAPI",)}, "GSSAPI',.: it must be a list, with PLAIN, SCRAM"),
        ({"mechanisms": ["PLAN"]}, "did you mean PLAIN?"),
        ({"mechanism": "PLAIN"}, "listener_sasl has no setting mechanism; did you mean mechanisms?"),
        ({"mechanisms": ("OAUTHBEARER",), "tokens": "file:///jwks"}, "it must be a TokenValidation"),
        ({"mechanisms": ("PLAIN",), "users": {"a": ""}}, "a name or a password is empty"),
        ({"mechanisms": ("PLAIN",), "max_reauth_ms": {SCRAM: 1}}, "is not among sasl.mechanisms"),
        ({"mechanisms": ("PLAIN",), "max_reauth_ms": {"PLAIN": -1}}, "must be 0 or more"),
        ({"mechanisms": ("PLAIN",), "max_receive_bytes": 0}, "must be 1 or more"),
    ],
)
def test_settings_that_are_refused(given, reason):
    with pytest.raises(ConfigError, match=reason):
        SaslConfig(**given)
