"""A node whose listener takes tokens: keys that come later and change, sessions that end with their token, warnings."""

from __future__ import annotations

import struct
import subprocess
import sys
import time

import oauth_kit as kit
import pytest
import trio
from nodes import Values
from transport_rig import in_trio

from kraftcore import NodeConfig, admin, open_node
from kraftcore.config import SaslConfig, SaslLogin, TokenRequest, TokenRules, TokenValidation
from kraftcore.errors import AuthenticationError
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.frames import decode_response, encode_request
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest
from kraftcore.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kraftcore.protocol.messages.sasl_handshake import SaslHandshakeRequest

QUICK = admin.Timing(call_timeout_ms=20_000)


def config(folder, keys, rules=None) -> NodeConfig:
    tokens = TokenValidation(keys_url=keys, rules=rules or TokenRules(audiences=(kit.AUDIENCE,), issuer=kit.ISSUER))
    return NodeConfig(
        node_id=1,
        directory=folder / "data",
        listeners=["CONTROLLER://127.0.0.1:0", "GUARDED://127.0.0.1:0"],
        create="standalone",
        listener_sasl={"GUARDED": SaslConfig(mechanisms=("OAUTHBEARER",), tokens=tokens)},
        failed_authentication_delay_ms=0,
    )


def guarded(node) -> str:
    return next(f"{each.host}:{each.port}" for each in node.endpoints if each.name == "GUARDED")


async def who_leads(node, token) -> int | None:
    login = SaslLogin(mechanism="OAUTHBEARER", token_request=TokenRequest(token_url=token.as_uri()))
    async with admin.connect(bootstrap_controllers=[guarded(node)], sasl=login, timing=QUICK) as client:
        return (await client.describe_quorum()).leader_id


async def is_refused(node, token) -> bool:
    try:
        await who_leads(node, token)
    except AuthenticationError as error:
        assert '{"status":"invalid_token"}' in str(error)
        return True
    return False


@in_trio
async def test_keys_may_come_later_and_change(tmp_path, caplog):
    token, keys = tmp_path / "token", tmp_path / "keys.json"
    token.write_text(kit.token(kit.claims(int(time.time())), "P-256", "ES256"))
    async with open_node(config(tmp_path, keys.as_uri()), Values()) as node:
        await node.wait_leader()
        assert await is_refused(node, token)
        assert "no token can be checked" in caplog.text
        kit.write_keys(keys, kit.public_jwk("P-256"))
        assert await who_leads(node, token) == 1
        kit.write_keys(keys, kit.public_jwk("RSA"))
        assert await is_refused(node, token)
        assert "there is no key 'P-256' for 'ES256' among the 1 known" in caplog.text
        assert token.read_text() not in caplog.text
        assert "takes tokens" not in caplog.text


@in_trio
async def test_a_token_of_another_issuer_or_audience(tmp_path):
    token = tmp_path / "token"
    keys = kit.write_keys(tmp_path / "keys.json", kit.public_jwk("P-256"))
    async with open_node(config(tmp_path, keys), Values()) as node:
        await node.wait_leader()
        for changes in ({"aud": "another"}, {"iss": "https://evil.example"}, {"aud": None}):
            token.write_text(kit.token(kit.claims(int(time.time()), **changes), "P-256", "ES256"))
            assert await is_refused(node, token)
        token.write_text(kit.unsigned(kit.claims(int(time.time()))) + "AAAA")
        login = SaslLogin(mechanism="OAUTHBEARER", token_request=TokenRequest(token_url=token.as_uri()))
        assert "AAAA" not in repr(login)
        assert await is_refused(node, token)


@pytest.mark.parametrize("ahead_s", [0, 3600, -3600])
@in_trio
async def test_a_session_ends_with_its_token(tmp_path, monkeypatch, ahead_s):
    """Also when the machine's clock was wrong at the node's start, and is right by now."""
    keys = kit.write_keys(tmp_path / "keys.json", kit.public_jwk("P-256"))
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + ahead_s)
    async with open_node(config(tmp_path, keys), Values()) as node:
        monkeypatch.undo()
        await node.wait_leader()
        host, _, port = guarded(node).partition(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            found = bytearray()

            async def ask(request, version) -> bytes:
                frame = encode_request(request, version, 1)
                await stream.send_all(struct.pack(">i", len(frame)) + frame)
                while len(found) < 4 or len(found) < 4 + struct.unpack_from(">i", found)[0]:
                    more = await stream.receive_some()
                    if not more:
                        return b""
                    found.extend(more)
                answer = bytes(found[4:])
                found.clear()
                return answer

            await ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
            text = kit.token(kit.claims(int(time.time()), exp=int(time.time()) + 3), "P-256", "ES256")
            answer = await ask(SaslAuthenticateRequest(auth_bytes=kit.client_message(text)), 2)
            response = decode_response(answer, 36, 2)[1]
            assert response.error_code == ErrorCode.NONE
            assert 0 < response.session_lifetime_ms <= 3000
            answers = 0
            try:
                while await ask(ApiVersionsRequest(), 0):
                    answers += 1
                    await trio.sleep(0.05)
            except trio.BrokenResourceError:
                pass
            assert answers > 0


@in_trio
async def test_rules_that_are_missing_are_named(tmp_path, caplog):
    keys = kit.write_keys(tmp_path / "keys.json", kit.public_jwk("P-256"))
    async with open_node(config(tmp_path, keys, TokenRules()), Values()) as node:
        await node.wait_leader()
    for words in (
        "listener GUARDED takes tokens of any issuer: set sasl.oauthbearer.expected.issuer",
        "listener GUARDED takes tokens that are for no audience: set sasl.oauthbearer.expected.audience",
    ):
        assert caplog.text.count(words) == 1


def test_without_the_library_a_node_says_at_the_start_what_to_install(tmp_path):
    program = f"""
import sys, pathlib, trio
sys.modules["jwt"] = None
from kraftcore import NodeConfig, open_node
from kraftcore.config import SaslConfig, TokenValidation
from kraftcore.metadata import MetadataMachine

async def main():
    sasl = SaslConfig(mechanisms=("OAUTHBEARER",), tokens=TokenValidation(keys_url="file:///keys"))
    config = NodeConfig(node_id=1, directory={str(tmp_path)!r}, listeners=["C://127.0.0.1:0"], create="standalone",
                        listener_sasl={{"C": sasl}})
    async with open_node(config, MetadataMachine()):
        pass

trio.run(main)
"""
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert (
        "MissingDependencyError: OAUTHBEARER needs PyJWT and cryptography: pip install 'kraftcore[oauth]'"
        in done.stderr
    )
