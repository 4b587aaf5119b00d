"""``kraftcore tokens`` and the calls behind it, against a scripted broker.

What it prints for a real cluster is held against Kafka's own tool in tests/interop.
"""

from __future__ import annotations

import base64
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from scripted_nodes import ScriptedNode, ScriptedTransport, make_cluster

from kraftcore import admin
from kraftcore.cli import main
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from kraftcore.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from kraftcore.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from kraftcore.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

HMAC = b"\x00\xffsecret"
TEXT = base64.b64encode(HMAC).decode()
DAY_MS = 86_400_000
AS_JSON = {
    "tokenId": "t1",
    "hmac": TEXT,
    "owner": "User:alice",
    "requester": "User:bob",
    "renewers": ["User:carol"],
    "issueTimestamp": DAY_MS,
    "expiryTimestamp": 2 * DAY_MS,
    "maxTimestamp": 3 * DAY_MS,
}
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> ScriptedNode:
    monkeypatch.setenv("TZ", "UTC")
    node = ScriptedNode(1, is_broker=True)
    make_cluster([node], controller_id=1, endpoint_type=1)
    monkeypatch.setattr(admin, "TcpTransport", lambda **_: ScriptedTransport([node]))
    told = DescribeDelegationTokenResponse.DescribedDelegationToken
    alice = {"principal_type": "User", "principal_name": "alice"}
    bob = {"token_requester_principal_type": "User", "token_requester_principal_name": "bob"}
    times = {"issue_timestamp_ms": DAY_MS, "expiry_timestamp_ms": 2 * DAY_MS, "max_timestamp_ms": 3 * DAY_MS}
    described: Any = {
        **{key.removesuffix("_ms"): time for key, time in times.items()},
        "renewers": [told.DescribedDelegationTokenRenewer(principal_type="User", principal_name="carol")],
    }
    node.scripts |= {
        CreateDelegationTokenRequest: lambda _: CreateDelegationTokenResponse(
            **alice, **bob, **times, token_id="t1", hmac=HMAC
        ),
        RenewDelegationTokenRequest: lambda _: RenewDelegationTokenResponse(expiry_timestamp_ms=DAY_MS),
        ExpireDelegationTokenRequest: lambda _: ExpireDelegationTokenResponse(expiry_timestamp_ms=1 << 62),
        DescribeDelegationTokenRequest: lambda _: DescribeDelegationTokenResponse(
            tokens=[
                told(**alice, **described, token_id="t2", hmac=b"other"),
                told(**alice, **bob, **described, token_id="t1", hmac=HMAC),
            ]
        ),
    }
    return node


@pytest.fixture
def where(tmp_path: Path) -> str:
    file = tmp_path / "client.properties"
    file.write_text("default.api.timeout.ms=5000\n")
    return f"--bootstrap-server broker:9001 --command-config {file}"


def run(line: str) -> int:
    return main(["tokens", *shlex.split(line)])


def last(broker: ScriptedNode, kind: type) -> Any:
    return [each for each in broker.asked if isinstance(each, kind)][-1]


def test_a_token_is_made(broker: ScriptedNode, where: str, capsys: Capture) -> None:
    line = f"{where} --create --max-life-time-period {DAY_MS} --renewer-principal User:carol"
    assert run(f"{line} --owner-principal User:alice --output json") == 0
    assert json.loads(capsys.readouterr().out) == {"tokens": [AS_JSON]}
    asked = last(broker, CreateDelegationTokenRequest)
    assert (asked.owner_principal_type, asked.owner_principal_name, asked.max_lifetime_ms) == ("User", "alice", DAY_MS)
    assert [(each.principal_type, each.principal_name) for each in asked.renewers] == [("User", "carol")]
    assert run(line) == 0
    assert last(broker, CreateDelegationTokenRequest).owner_principal_name is None
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == [
        f"Calling create token operation with renewers :[User:carol] , max-life-time-period :{DAY_MS}",
        "Created delegation token with tokenId : t1",
    ]
    assert said[3].split() == [
        "TOKENID",
        "HMAC",
        "OWNER",
        "REQUESTER",
        "RENEWERS",
        "ISSUEDATE",
        "EXPIRYDATE",
        "MAXDATE",
    ]
    assert said[5].split()[:5] == ["t1", TEXT, "User:alice", "User:bob", "[User:carol]"]


def test_a_token_lives_on_and_ends(broker: ScriptedNode, where: str, capsys: Capture) -> None:
    assert run(f"{where} --renew --hmac {TEXT} --renew-time-period 7 --output json") == 0
    assert json.loads(capsys.readouterr().out) == {"expiryTimestamp": DAY_MS}
    asked = last(broker, RenewDelegationTokenRequest)
    assert (bytes(asked.hmac), asked.renew_period_ms) == (HMAC, 7)
    assert run(f"{where} --expire --hmac {TEXT} --expiry-time-period -1") == 0
    assert capsys.readouterr().out.splitlines() == [
        f"Calling expire token operation with hmac :{TEXT} , expire-time-period :-1",
        f"Completed expire operation. New expiry date : {1 << 62}",  # no date that a calendar has
    ]
    assert last(broker, ExpireDelegationTokenRequest).expiry_time_period_ms == -1


def test_tokens_are_listed(broker: ScriptedNode, where: str, capsys: Capture) -> None:
    assert run(f"{where} --describe --output json") == 0
    found = json.loads(capsys.readouterr().out)["tokens"]
    assert found == [AS_JSON, {**AS_JSON, "tokenId": "t2", "hmac": "b3RoZXI=", "requester": "User:alice"}]
    assert last(broker, DescribeDelegationTokenRequest).owners is None
    assert run(f"{where} --describe --owner-principal User:alice --owner-principal User:dave") == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "Calling describe token operation for owners: [User:alice, User:dave]"
    assert said[1] == "Total number of tokens : 2"
    assert [each.principal_name for each in last(broker, DescribeDelegationTokenRequest).owners] == ["alice", "dave"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--create --renew", "Command must include exactly one action: --create, --renew, --expire or --describe"),
        ("--create", 'Missing required argument "[max-life-time-period]"'),
        ("--renew --hmac eA==", 'Missing required argument "[renew-time-period]"'),
        ("--describe --hmac eA==", 'Option "[describe]" can\'t be used with option "[hmac]"'),
        ("--create --max-life-time-period no", "Cannot parse argument 'no' of option max-life-time-period"),
        ("--expire --hmac ??? --expiry-time-period 1", "--hmac ??? is no base64"),
        ("--describe --owner-principal alice", "expected a string in format principalType:principalName but got alice"),
    ],
)
def test_wrong_usage_is_one_line(broker: ScriptedNode, where: str, capsys: Capture, line: str, message: str) -> None:
    assert run(f"{where} {line}") == 1
    assert capsys.readouterr().err.splitlines()[0] == message
    assert not broker.asked


def test_a_connection_without_a_name_gets_no_token(broker: ScriptedNode, where: str, capsys: Capture) -> None:
    broker.scripts[CreateDelegationTokenRequest] = lambda _: CreateDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    )
    assert run(f"{where} --create --max-life-time-period -1") == 1
    assert capsys.readouterr().err == (
        "org.apache.kafka.common.errors.UnsupportedByAuthenticationException: Delegation Token requests are not "
        "allowed on PLAINTEXT/1-way SSL channels and on delegation token authenticated channels.\n"
    )
