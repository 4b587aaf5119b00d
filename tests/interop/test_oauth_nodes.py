"""OAUTHBEARER between live nodes: Kafka's controller and broker, ours, both sides' tools; keys and tokens over HTTP."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import oauth_kit as kit
import pytest
import trio
from kafka_lab import KafkaLab, KafkaNode, wait_for
from kafka_tools import KafkaTools

from kraftcore import admin
from kraftcore.cli import main
from kraftcore.config import SaslLogin
from kraftcore.errors import AuthenticationError, KraftError
from kraftcore.security.sasl.oauth_settings import TokenRequest

pytestmark = pytest.mark.deep

S = "sasl.oauthbearer."
PACKAGE = "org.apache.kafka.common.security.oauthbearer."
MODULE = f"{PACKAGE}OAuthBearerLoginModule required;"
HANDLER = {"sasl.login.callback.handler.class": PACKAGE + "OAuthBearerLoginCallbackHandler"}
QUICK = admin.Timing(call_timeout_ms=20_000)
LIFE_S = 8


class World:
    """Who issues tokens, and what nodes are told of it.

    Attributes:
        issued: names in the tokens that were asked for, in order.
    """

    def __init__(self, issuer: kit.Issuer) -> None:
        self.issuer = issuer
        self.issued: list[str] = []
        issuer.answer("/keys", kit.key_set(kit.public_jwk("RSA"), kit.public_jwk("P-256")))
        issuer.answer_tokens("/token", self._issue)

    def _issue(self) -> str:
        self.issued.append("node")
        now = int(time.time())
        return kit.token({"sub": "node", "iat": now, "exp": now + LIFE_S, "aud": kit.AUDIENCE})

    @property
    def login(self) -> dict[str, str]:
        """Properties of whoever logs in."""
        return {
            S + "token.endpoint.url": self.issuer.url + "/token",
            S + "client.credentials.client.id": "node",
            S + "client.credentials.client.secret": "a secret",
        }

    def node(self) -> dict[str, object]:
        """Properties of a server whose controller listener takes tokens."""
        prefix = "listener.name.controller.oauthbearer."
        handlers = {**HANDLER, "sasl.server.callback.handler.class": PACKAGE + "OAuthBearerValidatorCallbackHandler"}
        return {
            "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "sasl.mechanism.controller.protocol": "OAUTHBEARER",
            "listener.name.controller.sasl.enabled.mechanisms": "OAUTHBEARER",
            prefix + "sasl.jaas.config": MODULE,
            **{prefix + name: each for name, each in handlers.items()},
            **self.login,
            S + "jwks.endpoint.url": self.issuer.url + "/keys",
            S + "expected.audience": kit.AUDIENCE,
        }

    def command_config(self, folder: Path) -> Path:
        found = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": MODULE,
            **HANDLER,
            **self.login,
        }
        path = folder / "client.properties"
        path.write_text("".join(f"{name}={each}\n" for name, each in found.items()))
        return path

    def request(self) -> TokenRequest:
        return TokenRequest(token_url=self.issuer.url + "/token", client_id="node", client_secret="a secret")


@pytest.fixture(name="world")
def the_world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with kit.http_issuer() as issuer:
        # Kafka's own list of what it may open; for every virtual machine of the lab.
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={issuer.url}/keys,{issuer.url}/token"
        monkeypatch.setenv("JDK_JAVA_OPTIONS", allowed)
        yield World(issuer)


def leader(node: KafkaNode, request: TokenRequest) -> int | None:
    """Who leads, as an administrator with a token of its own is told."""

    async def ask() -> int | None:
        login = SaslLogin(mechanism="OAUTHBEARER", token_request=request)
        async with admin.connect(bootstrap_controllers=[node.address], sasl=login, timing=QUICK) as client:
            return (await client.describe_quorum()).leader_id

    return trio.run(ask)


def leads(node: KafkaNode, world: World) -> bool:
    try:
        return leader(node, world.request()) == 1
    except KraftError:
        return False


def test_ours_log_in_at_a_controller_of_kafkas(
    kafka: KafkaTools, world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with KafkaLab(kafka, tmp_path) as lab:
        node = lab.controller(1, **world.node())
        node.format("--standalone").start().wait_listening()
        wait_for("a leader", lambda: leads(node, world))
        arguments = ["--bootstrap-controller", node.address, "--command-config", str(world.command_config(tmp_path))]
        assert main(["quorum", *arguments, "describe", "--status"]) == 0
        assert "LeaderId:               1\n" in capsys.readouterr().out

        async def stay() -> None:
            """One connection, by several tokens: each lives for a few seconds."""
            login = SaslLogin(mechanism="OAUTHBEARER", token_request=world.request())
            async with admin.connect(bootstrap_controllers=[node.address], sasl=login, timing=QUICK) as client:
                await client.describe_quorum()
                before = len(world.issued)
                with trio.fail_after(60):
                    while len(world.issued) < before + 2:
                        assert (await client.describe_quorum()).leader_id == 1
                        await trio.sleep(0.05)

        trio.run(stay)
        forged = tmp_path / "forged"
        forged.write_text(kit.token(kit.claims(int(time.time())), "RSA-other", kid="RSA"))
        with pytest.raises(AuthenticationError, match=r'OAUTHBEARER failed: it says \{"status":"invalid_token"\}'):
            leader(node, TokenRequest(token_url=forged.as_uri()))


def test_kafkas_log_in_at_a_controller_of_ours(kafka: KafkaTools, world: World, tmp_path: Path) -> None:
    with KafkaLab(kafka, tmp_path) as lab:
        node = lab.kraftcore(1, kraftcore_offers_log=None, **world.node())
        lab.bootstrap = [node.address]
        node.format("--standalone").start().wait_listening()
        wait_for("a leader", lambda: leads(node, world))
        config = world.command_config(tmp_path)
        at = ("--bootstrap-controller", node.address, "--command-config", config)
        done = lab.tool("quorum", *at, "describe", "--status")
        assert (done.status, "LeaderId:               1\n" in done.out) == (0, True), done
        broker = lab.broker(11, **world.node()).format().start()
        broker.wait_listening()
        create = ("--create", "--if-not-exists", "--topic", "work", "--partitions", 1, "--replication-factor", 1)
        wait_for("a topic", lambda: lab.tool("topics", "--bootstrap-server", broker.address, *create).status == 0)
        # The broker stays, though its tokens end again and again.
        before = len(world.issued)
        wait_for("more tokens", lambda: len(world.issued) >= before + 3)
        create = ("--create", "--topic", "later", "--partitions", 1, "--replication-factor", 1)
        done = lab.tool("topics", "--bootstrap-server", broker.address, *create)
        assert done.status == 0, done
        strange = tmp_path / "strange.properties"
        strange.write_text(config.read_text().replace(world.issuer.url + "/token", world.issuer.url + "/keys"))
        assert lab.tool("quorum", *at[:2], "--command-config", strange, "describe", "--status").status != 0
        assert node.process is not None
        assert node.process.poll() is None
        assert "a secret" not in node.output.read_text()
