"""Delegation tokens begin and end by the clock on the wall, which may be set while a controller runs."""

from __future__ import annotations

import time
from types import SimpleNamespace

import trio
from memory_quorum import memory_quorum
from nodes import run

from kraftcore.core.wire.codec import encode
from kraftcore.metadata import MetadataMachine
from kraftcore.node import clock
from kraftcore.node.plugin_node import plugin_node
from kraftcore.plugins.controller import Controller
from kraftcore.protocol.data.default_principal_data import DefaultPrincipalData
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.frames import decode_response, encode_request
from kraftcore.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from kraftcore.protocol.messages.envelope import EnvelopeRequest
from kraftcore.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from kraftcore.protocol.schema import Request

DAY_MS = 86_400_000
A_MINUTE_MS = 60_000  # for the test itself to take
PROPERTIES = {"delegation.token.secret.key": "secret", "delegation.token.expiry.time.ms": str(DAY_MS)}


async def pass_on(node, request: Request, version: int):
    """What a broker hears that passes alice's request on."""
    envelope = EnvelopeRequest(
        request_data=encode_request(request, version, 3),
        request_principal=b"\0\0" + encode(DefaultPrincipalData(type="User", name="alice"), 0),
        client_host_address=bytes(4),
    )
    answer = await plugin_node(node).ask("n1", 9001, envelope, 30_000)
    assert answer.error_code == ErrorCode.NONE
    return decode_response(answer.response_data, type(request).schema.api_key, version)[1]


def test_tokens_follow_a_clock_that_is_set(tmp_path, monkeypatch):
    ahead_ms = 0

    def now_ms() -> int:
        return time.time_ns() // 1_000_000 + ahead_ms

    told = SimpleNamespace(time=lambda: now_ms() / 1000, time_ns=lambda: now_ms() * 1_000_000)
    monkeypatch.setattr(clock, "time", told)

    async def main():
        nonlocal ahead_ms
        controllers: list[Controller] = []

        def make():
            controllers.append(Controller(PROPERTIES))
            return controllers[-1:]

        async with memory_quorum(tmp_path, MetadataMachine, plugins=make, size=1, probe=False) as quorum:
            (node,) = quorum.nodes.values()
            while node.leading_epoch is None or not node.state_machine.levels:
                await trio.sleep(0.01)
            credentials = controllers[0].credentials
            ahead_ms = 30 * DAY_MS
            made = await pass_on(node, CreateDelegationTokenRequest(), 3)
            assert made.error_code == ErrorCode.NONE
            assert abs(made.issue_timestamp_ms - now_ms()) < A_MINUTE_MS
            # A session that it begins ends with it, by the clock that sessions go by.
            known = credentials.token("SCRAM-SHA-256", made.token_id)
            assert abs(known.expires_ms - node.now_ms() - DAY_MS) < A_MINUTE_MS
            ahead_ms = 32 * DAY_MS
            assert credentials.token("SCRAM-SHA-256", made.token_id) is None
            renewed = await pass_on(node, RenewDelegationTokenRequest(hmac=made.hmac), 2)
            assert renewed.error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
            ahead_ms = 30 * DAY_MS
            renewed = await pass_on(node, RenewDelegationTokenRequest(hmac=made.hmac), 2)
            assert abs(renewed.expiry_timestamp_ms - now_ms() - DAY_MS) < A_MINUTE_MS

    run(main)
