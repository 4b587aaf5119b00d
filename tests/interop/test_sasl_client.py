"""Nodes, observers and commands of ours log in at real Kafka controllers; one of ours votes among them."""

from __future__ import annotations

import base64
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from kafka_lab import HOST, KafkaLab, KafkaNode, wait_for
from kafka_tools import KafkaTools
from pem_stores import Stores, make_stores

from kraftcore import NodeConfig, admin, observe, open_node
from kraftcore.admin import QuorumDescription
from kraftcore.cli import main
from kraftcore.config import SaslLogin, TlsConfig
from kraftcore.config.login import make_login
from kraftcore.errors import AuthenticationError, KraftError
from kraftcore.metadata import MetadataMachine
from kraftcore.ports.transport import Address
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.frames import decode_response, encode_request_parts
from kraftcore.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from kraftcore.protocol.registry import api_of
from kraftcore.security.sasl.client_session import SaslClientSession
from kraftcore.transports.tcp import TcpTransport, TlsFiles

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
USER, PASSWORD, WRONG = "al=i,ce", "pass word,=1", "not that one"
QUICK = admin.Timing(call_timeout_ms=20_000)
LIFETIME_MS = 2500


def jaas(module: str, **options: str) -> str:
    return f"{module} required " + " ".join(f'{key}="{value}"' for key, value in options.items()) + ";"


@dataclass(frozen=True)
class Kafka:
    """A controller whose listener wants a login."""

    protocol: str
    place: str
    stores: Stores

    @property
    def tls(self) -> TlsFiles | None:
        return TlsFiles(ca=self.stores.ca) if self.protocol == "SASL_SSL" else None

    @property
    def address(self) -> Address:
        return Address(HOST, int(self.place.split(":")[1]))

    def run(self, login: SaslLogin) -> QuorumDescription:
        async def ask() -> QuorumDescription:
            async with admin.connect(
                bootstrap_controllers=[self.place], tls=self.tls, sasl=login, timing=QUICK
            ) as client:
                return await client.describe_quorum()

        return trio.run(ask)


@pytest.fixture(scope="module", params=["SASL_PLAINTEXT", "SASL_SSL"])
def controller(
    request: pytest.FixtureRequest, kafka: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kafka]:
    folder = tmp_path_factory.mktemp("sasl")
    stores = make_stores(folder)
    # Java's tokenizer takes such an option's name in quotes.
    users = f'username="node" password="secret" user_node="secret" "user_{USER}"="{PASSWORD}"'
    prefix = "listener.name.controller."
    properties = {
        "listener.security.protocol.map": f"CONTROLLER:{request.param}",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.mechanism.controller.protocol": "PLAIN",
        "connections.max.reauth.ms": LIFETIME_MS,
        "delegation.token.secret.key": "a secret",
        f"{prefix}plain.sasl.jaas.config": f"{PLAIN_MODULE} required {users};",
        **{f"{prefix}{each.lower()}.sasl.jaas.config": f"{SCRAM_MODULE} required;" for each in MECHANISMS[1:]},
        **(stores.properties if request.param == "SASL_SSL" else {}),
    }
    with KafkaLab(kafka, folder) as lab:
        node = lab.controller(1, **properties)
        added = [f"{each}=[name=node,password=secret]" for each in MECHANISMS[1:]]
        node.format("--standalone", *itertools.chain.from_iterable(("--add-scram", each) for each in added)).start()
        node.wait_listening()
        found = Kafka(request.param, node.address, stores)
        wait_for("the credentials to be loaded", lambda: _logs_in(found, "SCRAM-SHA-512"))
        _add_user(found)
        yield found


def _logs_in(kafka: Kafka, mechanism: str) -> bool:
    try:
        return kafka.run(SaslLogin(mechanism=mechanism, username="node", password="secret")).leader_id == 1
    except KraftError:
        return False


def _add_user(kafka: Kafka) -> None:
    """Whose name and password need escapes everywhere: not by ``--add-scram``, which knows none."""

    async def add() -> None:
        async with admin.connect(
            bootstrap_controllers=[kafka.place],
            tls=kafka.tls,
            sasl=SaslLogin(mechanism="PLAIN", username="node", password="secret"),
        ) as client:
            kinds = (admin.ScramMechanism.SCRAM_SHA_256, admin.ScramMechanism.SCRAM_SHA_512)
            for kind in kinds:
                upsertion = admin.ScramUpsertion(USER, kind, PASSWORD.encode())
                await client.alter_scram_credentials([upsertion])

    trio.run(add)


def login_of(mechanism: str, password: str = PASSWORD) -> SaslLogin:
    return SaslLogin(mechanism=mechanism, username=USER, password=password)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_commands_log_in(controller: Kafka, tmp_path, capsys, mechanism):
    secret = tmp_path / "secret"
    secret.write_text(PASSWORD)
    module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
    config = tmp_path / "client.properties"
    config.write_text(
        f"security.protocol={controller.protocol}\nsasl.mechanism={mechanism}\n"
        "config.providers=dir\n"
        "config.providers.dir.class=org.apache.kafka.common.config.provider.DirectoryConfigProvider\n"
        f'sasl.jaas.config={module} required username="{USER}" \\\n  password="${{dir:{tmp_path}:secret}}";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={controller.stores.ca}\n"
    )
    where = ["--bootstrap-controller", controller.place, "--command-config", str(config)]
    assert main(["quorum", *where, "describe", "--status"]) == 0
    assert "LeaderId:               1\n" in capsys.readouterr().out
    assert main(["observe", *where, "--once", "--output", "none"]) == 0
    secret.write_text(WRONG)
    assert main(["quorum", *where, "describe", "--status"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"login at {controller.place} with SASL mechanism {mechanism} failed: it says Authentication failed" in line
    assert WRONG not in line


@pytest.mark.deep
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_observers_and_nodes_log_in(controller: Kafka, tmp_path, mechanism):
    async def run() -> None:
        place, files = controller.place, controller.tls
        with trio.fail_after(60):
            async with observe([place], tls=files, sasl=login_of(mechanism)) as observer:
                end = await observer.caught_up()
                cluster_id = observer.cluster_id
            node_config = NodeConfig(
                node_id=9,
                directory=str(tmp_path / "node"),
                cluster_id=cluster_id,
                create="join",
                can_become_voter=False,
                bootstrap_servers=[place],
                tls=None if files is None else TlsConfig(ca=controller.stores.ca),
                sasl=login_of(mechanism),
            )
            machine = MetadataMachine()
            async with open_node(node_config, machine) as node:
                await node.wait_applied(end)
                assert len(machine.image.scram) == 4

    trio.run(run)


def test_what_kafka_does_not_offer_is_said(controller: Kafka):
    with pytest.raises(AuthenticationError, match="with SASL mechanism PLAIN failed: it says Authentication failed"):
        controller.run(login_of("PLAIN", WRONG))

    async def ask() -> None:
        class Other:
            name, is_complete = "OTHER", False

        async def make() -> Any:
            return Other()

        def session(address: Address) -> SaslClientSession:
            return SaslClientSession(make, str(address))

        async with TcpTransport(tls=controller.tls, login=session, log=lambda line: None) as transport:
            place = controller.address
            assert await _answer(transport, place, CreateDelegationTokenRequest()) is Failure.UNAUTHENTICATED
            text = transport.login_error(place) or ""
            assert text.endswith("it does not offer this mechanism; it offers PLAIN, SCRAM-SHA-256, SCRAM-SHA-512")

    trio.run(ask)


async def _answer(transport: TcpTransport, place: Address, request: CreateDelegationTokenRequest) -> bytes | Failure:
    found: list[bytes | Failure] = []
    done = trio.Event()

    def answer(what: bytes | Failure) -> None:
        found.append(what)
        done.set()

    version = api_of(type(request)).max_version
    transport.request(place, encode_request_parts(request, version, 1, "test"), 20_000, answer)
    await done.wait()
    return found[0]


def test_a_delegation_token_logs_in(controller: Kafka):
    async def make() -> CreateDelegationTokenResponse:
        login = make_login(SaslLogin(mechanism="PLAIN", username="node", password="secret"))
        async with TcpTransport(tls=controller.tls, login=login, log=lambda line: None) as transport:
            frame = await _answer(transport, controller.address, CreateDelegationTokenRequest(max_lifetime_ms=-1))
            assert isinstance(frame, bytes)
            key, _, version = api_of(CreateDelegationTokenRequest)
            response = decode_response(frame, key, version)[1]
            assert isinstance(response, CreateDelegationTokenResponse)
            return response

    token = trio.run(make)
    assert token.error_code == 0
    login = SaslLogin(
        mechanism="SCRAM-SHA-512",
        username=token.token_id,
        password=base64.b64encode(bytes(token.hmac)).decode(),
        is_token=True,
    )

    def logs_in() -> bool:
        try:
            return controller.run(login).leader_id == 1
        except AuthenticationError:  # tokens are known a moment after they were made
            return False

    wait_for("the token to be known", logs_in)


@pytest.mark.deep
def test_logins_are_renewed_on_the_same_connection(controller: Kafka, monkeypatch):
    calls: Counter[str] = Counter()
    for name in ("begin", "renew"):
        _count(monkeypatch, name, calls)

    async def run() -> None:
        with trio.fail_after(60):
            async with observe([controller.place], tls=controller.tls, sasl=login_of("SCRAM-SHA-256")) as observer:
                await observer.caught_up()
                began = calls["begin"]
                offsets = [observer.high_watermark]
                for renewals in range(1, 4):
                    while calls["renew"] < renewals:
                        await observer.changed()  # Kafka writes something every half second
                    offsets.append(observer.high_watermark)
                assert offsets == sorted(set(offsets))
                assert calls["begin"] == began

    trio.run(run)


def _count(monkeypatch: pytest.MonkeyPatch, name: str, calls: Counter[str]) -> None:
    real: Callable[[SaslClientSession], object] = getattr(SaslClientSession, name)

    def counted(session: SaslClientSession) -> object:
        calls[name] += 1
        return real(session)

    monkeypatch.setattr(SaslClientSession, name, counted)


@pytest.mark.deep
def test_a_node_of_ours_votes_among_kafkas_over_sasl_ssl(kafka: KafkaTools, tmp_path):
    stores = make_stores(tmp_path)
    module = jaas(PLAIN_MODULE, username="node", password="secret", user_node="secret")
    properties = {
        "listener.security.protocol.map": "CONTROLLER:SASL_SSL,PLAINTEXT:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": module,
        "connections.max.reauth.ms": LIFETIME_MS,
        **stores.properties,
    }
    login = SaslLogin(mechanism="PLAIN", username="node", password="secret")

    with KafkaLab(kafka, tmp_path) as lab:

        def make(node_id: int, **given: Any) -> KafkaNode:
            return (lab.kraftcore if node_id == 3 else lab.controller)(node_id, **given)

        nodes = {node.properties["node.id"]: node for node in lab.start_quorum([1, 2, 3], make=make, **properties)}

        lab.connection = {"tls": TlsFiles(ca=stores.ca), "sasl": login}

        def all_follow() -> QuorumDescription | None:
            found = lab.describe()
            if found is None or found.high_watermark < 10:
                return None
            ends = {voter.key.id: voter.log_end_offset for voter in found.voters}
            return found if len(ends) == 3 and min(ends.values()) > found.high_watermark - 50 else None

        first = wait_for("three voters that follow", all_follow)
        # Ours is needed now: for the election, and for every commit after it.
        kafkas = [node_id for node_id in (1, 2) if node_id != first.leader_id]
        nodes[first.leader_id if first.leader_id != 3 else kafkas.pop()].kill()

        def goes_on() -> QuorumDescription | None:
            found = lab.describe()
            return found if found is not None and found.high_watermark > first.high_watermark + 10 else None

        wait_for("commits by one of Kafka's and ours", goes_on)
