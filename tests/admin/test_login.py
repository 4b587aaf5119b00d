"""A client whose login is refused says so at once; commands say it as Kafka's tools do."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import trio

from kraftcore import admin
from kraftcore.cli import main
from kraftcore.config import SaslLogin
from kraftcore.errors import AuthenticationError
from kraftcore.observer import observe
from kraftcore.ports.transport import Address, Origin, Reply
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.frames import decode_request, encode_response
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftcore.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kraftcore.transports.tcp import TcpTransport

LOGIN = SaslLogin(mechanism="PLAIN", username="alice", password="hunter2")
SAID = "with SASL mechanism PLAIN failed: it does not offer this mechanism; it offers SCRAM-SHA-512"
asked: list[str] = []


def _serve(frame: bytes, origin: Origin, reply: Reply) -> None:
    """Offers a login, by another mechanism."""
    header, request = decode_request(frame)
    asked.append(type(request).__name__)
    response: ApiVersionsResponse | SaslHandshakeResponse
    if isinstance(request, ApiVersionsRequest):
        entry = ApiVersionsResponse.ApiVersion
        keys = [entry(api_key=17, min_version=0, max_version=1), entry(api_key=36, min_version=0, max_version=2)]
        response = ApiVersionsResponse(api_keys=keys)
    else:
        assert isinstance(request, SaslHandshakeRequest)
        code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        response = SaslHandshakeResponse(error_code=code, mechanisms=["SCRAM-SHA-512"])
    reply([encode_response(response, header.request_api_version, header.correlation_id)])


@pytest.fixture
def place() -> Iterator[Address]:
    """A server in a thread of its own: commands run a loop of their own."""
    asked.clear()
    found: list[Address] = []
    tokens: list[trio.lowlevel.TrioToken] = []
    scopes: list[trio.CancelScope] = []
    ready = threading.Event()

    async def run() -> None:
        with trio.CancelScope() as scope:
            async with TcpTransport(log=lambda line: None) as transport:
                found.append(await transport.listen("C", Address("127.0.0.1", 0), _serve))
                tokens.append(trio.lowlevel.current_trio_token())
                scopes.append(scope)
                ready.set()
                await trio.sleep_forever()

    thread = threading.Thread(target=trio.run, args=[run])
    thread.start()
    assert ready.wait(60)
    yield found[0]
    tokens[0].run_sync_soon(scopes[0].cancel)
    thread.join()


def test_a_refused_login_ends_the_call_at_once(place):
    async def run() -> None:
        async with admin.connect(bootstrap_controllers=[str(place)], sasl=LOGIN) as client:
            with pytest.raises(AuthenticationError) as caught:
                await client.describe_quorum()
            assert str(caught.value) == f"login at {place} {SAID}"

    trio.run(run)
    assert asked == ["ApiVersionsRequest", "SaslHandshakeRequest"]


def test_an_observer_does_not_begin(place):
    async def run() -> None:
        with pytest.raises(AuthenticationError, match=SAID):
            async with observe([str(place)], sasl=LOGIN):
                pass

    trio.run(run)


@pytest.mark.parametrize("command", [["quorum", "describe", "--status"], ["cluster", "cluster-id"], ["observe"]])
def test_a_command_says_it_in_one_line_without_the_password(place, tmp_path, capsys, command):
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config="
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="hunter2";\n'
    )
    where = ["--bootstrap-controller", str(place), "--command-config", str(config)]
    arguments = [command[0], *where, *command[1:]] if command[0] != "cluster" else [*command, *where]
    assert main(arguments) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.endswith(f"login at {place} {SAID}")
    assert "hunter2" not in line
