"""``kraftcore tokens`` beside ``kafka-delegation-tokens``: a broker of Kafka's that knows its clients by certificates.

Under a controller of Kafka's and under one of ours. Ids, secrets and minutes are put out before both are compared.
"""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable, Iterator

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from kafka_lab import HOST, KafkaLab, ToolResult, wait_for
from kafka_tools import KafkaTools
from tool_pair import Ours, alike

pytestmark = pytest.mark.deep

PATIENCE_S = 60
ID, HMAC = re.compile(r"\b[\w-]{22}\b"), re.compile(r"[A-Za-z0-9+/]{86}==")
DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d")
Both = Callable[..., ToolResult]


@pytest.fixture(scope="module", params=["kafka", "kraftcore"])
def lab(
    request: pytest.FixtureRequest, kafka: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaLab]:
    """A controller, and a broker with a listener for everybody and one for those with a certificate."""
    with KafkaLab(kafka, tmp_path_factory.mktemp("lab")) as lab:
        ca = trustme.CA()
        ca.cert_pem.write_to_path(str(lab.folder / "ca.pem"))
        for name in ("broker", "alice", "bob"):
            made = ca.issue_cert(HOST, common_name=name)
            path = lab.folder / f"{name}.pem"
            key = serialization.load_pem_private_key(made.private_key_pem.bytes(), None).private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )  # Java reads no other form
            path.write_bytes(key + b"".join(each.bytes() for each in made.cert_chain_pems))
        tls = {
            "ssl_keystore_type": "PEM",
            "ssl_keystore_location": lab.folder / "broker.pem",
            "ssl_truststore_type": "PEM",
            "ssl_truststore_location": lab.folder / "ca.pem",
            "ssl_client_auth": "required",
            "ssl_principal_mapping_rules": "RULE:^CN=([^,]*),.*$/$1/",
        }
        shared = {"delegation_token_secret_key": "one for all"}
        lab.start_quorum([1], make=lab.kraftcore if request.param == "kraftcore" else None, **shared)
        node = lab.broker(11, **shared, **tls)
        port = int(node.address.rpartition(":")[2])
        node.write(
            listeners=f"SSL://{HOST}:{port}",
            advertised_listeners=f"SSL://{HOST}:{port}",
            inter_broker_listener_name="SSL",
            listener_security_protocol_map="CONTROLLER:PLAINTEXT,SSL:SSL",
        ).format().start().wait_listening()
        for name in ("alice", "bob"):
            (lab.folder / f"{name}.properties").write_text(
                f"security.protocol=SSL\nssl.keystore.type=PEM\nssl.keystore.location={lab.folder}/{name}.pem\n"
                f"ssl.truststore.type=PEM\nssl.truststore.location={lab.folder}/ca.pem\n"
            )
        where = f"--bootstrap-server {node.address} --command-config {lab.folder}/alice.properties"
        wait_for("the broker to answer", lambda: not lab.tool("tokens", *shlex.split(f"{where} --describe")).status)
        yield lab


@pytest.fixture
def both(lab: KafkaLab, capsys: pytest.CaptureFixture[str]) -> Both:
    """Run a line by both tools as somebody, until both say the same, and return what ours said.

    Of what stands in braces, the first is for Kafka's tool, the second for ours.
    """
    ours = Ours(capsys)
    where = f"--bootstrap-server {lab.nodes[11].address} --command-config {lab.folder}"

    def spelled(line: str, which: int) -> list[str]:
        return shlex.split(re.sub(r"\{(.*?)\|(.*?)\}", lambda found: found[which + 1], line))

    def run(who: str, line: str, *, patience_s: float = 0) -> ToolResult:
        asked = f"{where}/{who}.properties {line}"
        end = time.monotonic() + patience_s
        while True:
            theirs, mine = lab.tool("tokens", *spelled(asked, 0)), ours("tokens", *spelled(asked, 1))
            try:
                alike(_hidden(theirs), _hidden(mine))
                return mine
            except AssertionError:
                if time.monotonic() >= end:
                    raise

    return run


def _hidden(result: ToolResult) -> ToolResult:
    def steady(text: str) -> str:
        return DATE.sub("DATE", ID.sub("ID", HMAC.sub("HMAC", text)))

    return ToolResult(result.status, re.sub(" +", " ", steady(result.out)), steady(result.err))


def listed(lab: KafkaLab, who: str, capsys: pytest.CaptureFixture[str], owner: str = "") -> list[dict[str, object]]:
    line = f"--bootstrap-server {lab.nodes[11].address} --command-config {lab.folder}/{who}.properties --describe"
    said = Ours(capsys)("tokens", *shlex.split(f"{line} {owner} --output json"))
    assert said.status == 0, said
    found: list[dict[str, object]] = json.loads(said.out)["tokens"]
    return found


def test_a_life(lab: KafkaLab, both: Both, capsys: pytest.CaptureFixture[str]) -> None:
    both("alice", "--create --max-life-time-period 3600000 --renewer-principal User:bob --renewer-principal User:eve")
    both("alice", "--create --max-life-time-period -1")

    def all_four() -> list[dict[str, object]] | None:
        found = listed(lab, "alice", capsys)
        return found if len(found) == 4 else None

    tokens = wait_for("the broker to know four tokens", all_four)
    assert {each["owner"] for each in tokens} == {each["requester"] for each in tokens} == {"User:alice"}
    shared = [each for each in tokens if each["renewers"] == ["User:bob", "User:eve"]]
    assert len(shared) == 2
    both("alice", "--describe --owner-principal User:alice", patience_s=PATIENCE_S)
    both("bob", "--describe --owner-principal User:bob", patience_s=PATIENCE_S)
    hmacs = "{" + "|".join(str(each["hmac"]) for each in shared) + "}"
    for line in ("--renew --renew-time-period -1", "--expire --expiry-time-period 60000"):
        both("bob", f"{line} --hmac {hmacs}")
    for mine in (each for each in tokens if not each["renewers"]):
        both("bob", f"--renew --renew-time-period 1 --hmac {mine['hmac']}")  # neither owner nor renewer
    both("alice", f"--expire --expiry-time-period -1 --hmac {hmacs}")
    both("alice", f"--renew --renew-time-period 1 --hmac {hmacs}")  # gone
    both("alice", "--create --max-life-time-period -1 --owner-principal User:bob")  # nobody may, without an authorizer
    both("alice", "--create --max-life-time-period -1 --renewer-principal Group:x")


WRONG_USAGE = """
--create --renew
--describe --hmac eA==
--create
--create --max-life-time-period 1 --hmac eA==
--renew --hmac eA==
--renew --hmac eA== --renew-time-period 1 --owner-principal User:a
--expire --expiry-time-period 1
--create --max-life-time-period 1 --renewer-principal alice
--nonsense
"""


@pytest.mark.parametrize("line", WRONG_USAGE.strip().splitlines())
def test_wrong_usage(both: Both, line: str) -> None:
    assert both("alice", line).status == 1
