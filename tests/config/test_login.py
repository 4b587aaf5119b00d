"""How a node or a command logs in: keywords, a server's properties, a client's properties."""

from __future__ import annotations

import pytest
import trio

from kraftcore.config import ConfigError, NodeConfig, SaslLogin, TlsConfig
from kraftcore.config.login import make_login, read_client_login
from kraftcore.config.properties import Properties
from kraftcore.config.security import SaslConfig
from kraftcore.ports.transport import Address
from kraftcore.protocol.frames import decode_request
from kraftcore.security.sasl.oauth_settings import TokenRequest

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
SCRAM = "SCRAM-SHA-256"
BASE = """\
process.roles=controller
node.id=1
log.dirs=/tmp/x
listeners=CONTROLLER://127.0.0.1:9093
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:9093
listener.security.protocol.map=CONTROLLER:SASL_PLAINTEXT
sasl.enabled.mechanisms=SCRAM-SHA-256
"""
WITH = f"{BASE}sasl.mechanism.controller.protocol={SCRAM}\n"
ALICE = f'{SCRAM_MODULE} required username="alice" password="hunter2";'
TOKENS = TokenRequest(token_url="file:///token")


def _node(tmp_path, text: str, **more) -> NodeConfig:
    path = tmp_path / "server.properties"
    path.write_text(text)
    return NodeConfig.from_properties(path, **more)


@pytest.mark.parametrize("key", [f"listener.name.controller.{SCRAM.lower()}.sasl.jaas.config", "sasl.jaas.config"])
def test_a_server_file_says_how_its_node_logs_in(tmp_path, key):
    config = _node(tmp_path, f"{WITH}{key}={ALICE}\n")
    assert config.sasl == SaslLogin(mechanism=SCRAM, username="alice", password="hunter2")
    assert not config.ignored
    assert "hunter2" not in repr(config)


def test_the_listeners_own_login_module_goes_first(tmp_path):
    own = ALICE.replace("alice", "bob")
    text = f"{WITH}sasl.jaas.config={ALICE}\nlistener.name.controller.{SCRAM.lower()}.sasl.jaas.config={own}\n"
    assert _node(tmp_path, text).sasl.username == "bob"


def test_one_line_serves_both_sides_of_plain(tmp_path):
    text = WITH.replace(SCRAM, "PLAIN") + (
        f'listener.name.controller.plain.sasl.jaas.config={PLAIN_MODULE} required username="a" password="b" '
        'user_a="b" user_c="d";\n'
    )
    config = _node(tmp_path, text)
    assert config.sasl == SaslLogin(mechanism="PLAIN", username="a", password="b")
    assert config.listener_sasl["CONTROLLER"].users == {"a": "b", "c": "d"}


def test_a_listener_without_sasl_needs_no_login(tmp_path):
    text = WITH.replace("SASL_PLAINTEXT", "PLAINTEXT") + f"sasl.jaas.config={ALICE}\n"
    assert _node(tmp_path, text).sasl is None


def test_an_observer_logs_in_as_the_first_listener_name_says(tmp_path):
    text = WITH.replace("process.roles=controller", "process.roles=broker") + f"sasl.jaas.config={ALICE}\n"
    config = _node(tmp_path, text)
    assert config.sasl.username == "alice"
    assert not config.listener_sasl


def test_an_observer_needs_no_certificate_of_its_own(tmp_path):
    text = WITH.replace("process.roles=controller", "process.roles=broker").replace("SASL_PLAINTEXT", "SASL_SSL")
    more = f"sasl.jaas.config={ALICE}\nssl.truststore.type=PEM\nssl.truststore.location=/ca.pem\n"
    assert _node(tmp_path, text + more).tls == TlsConfig(ca="/ca.pem")
    with pytest.raises(ConfigError, match="listener CONTROLLER encrypts, and has to show one"):
        _node(tmp_path, WITH.replace("SASL_PLAINTEXT", "SASL_SSL") + more)
    with pytest.raises(ConfigError, match=r"tls.key has no tls.certificate"):
        TlsConfig(key="k")


def test_keywords_go_before_the_file(tmp_path):
    login = SaslLogin(mechanism=SCRAM, username="bob", password="secret")
    assert _node(tmp_path, BASE, sasl=login).sasl is login


def test_variables_say_the_same(tmp_path):
    variables = {
        "KRAFTCORE_NODE_ID": "1",
        "KRAFTCORE_DIRECTORY": str(tmp_path),
        "KRAFTCORE_LISTENERS": "CONTROLLER://127.0.0.1:9093",
        "KRAFTCORE_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:SASL_PLAINTEXT",
        "KRAFTCORE_SASL_ENABLED_MECHANISMS": SCRAM,
        "KRAFTCORE_SASL_MECHANISM_CONTROLLER_PROTOCOL": SCRAM,
        "KRAFTCORE_SASL_JAAS_CONFIG": ALICE,
    }
    assert NodeConfig.from_environment(environment=variables).sasl.username == "alice"


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (BASE, 8, "sasl (sasl.mechanism.controller.protocol) is missing"),
        (WITH, None, "controller.scram-sha-256.sasl.jaas.config is missing: SCRAM-SHA-256 logs in with"),
        (WITH.replace(f"protocol={SCRAM}", "protocol=SCRAM-SHA-265"), 9, "did you mean SCRAM-SHA-256?"),
        (WITH + f"sasl.jaas.config={ALICE.replace('scram.Scram', 'plain.Plain')}\n", 10, f"has {SCRAM_MODULE}"),
        (WITH + f"sasl.jaas.config={ALICE[:-1]}\n", 10, "';' is missing"),
        (WITH + f"sasl.jaas.config={ALICE}{ALICE}\n", 10, "has 2 login modules"),
        (WITH + f"sasl.jaas.config={ALICE.replace('username', 'user')}\n", 10, "needs the option username"),
        (WITH + f"sasl.jaas.config={ALICE.replace('hunter2', '')}\n", 10, "needs the option password"),
        (WITH + "sasl.jaas.config=\n", 10, "names no login module"),
    ],
)
def test_what_is_wrong_is_named_with_its_place_and_without_the_password(tmp_path, text, line, reason):
    with pytest.raises(ConfigError) as caught:
        _node(tmp_path, text)
    place = f"{tmp_path}/server.properties" + ("" if line is None else f":{line}")
    assert str(caught.value).startswith(f"{place}: ")
    assert reason in str(caught.value)
    assert "hunter2" not in str(caught.value)


def _keywords(**more) -> NodeConfig:
    given = {"node_id": 1, "directory": "x", "listeners": ["C://127.0.0.1:9093"], **more}
    return NodeConfig(**given)


def test_keywords_that_contradict_each_other_are_refused():
    login = SaslLogin(mechanism=SCRAM, username="a", password="b")
    listener = {"C": SaslConfig(mechanisms=(SCRAM,))}
    assert _keywords(sasl=login, listener_sasl=listener, bootstrap_servers=["h:1"]).sasl is login
    assert _keywords(listener_sasl=listener, create="standalone").sasl is None  # alone
    with pytest.raises(ConfigError, match="wants a login"):
        _keywords(listener_sasl=listener, bootstrap_servers=["h:1"])
    with pytest.raises(ConfigError, match="not among listener_sasl"):
        _keywords(sasl=login)
    with pytest.raises(ConfigError, match="must be a SaslLogin"):
        _keywords(sasl={"mechanism": SCRAM})
    assert _keywords(listeners=[], can_become_voter=False, sasl=login, bootstrap_servers=["h:1"]).sasl is login


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"mechanism": "GSSAPI"}, "sasl.mechanism is 'GSSAPI': it must be PLAIN, SCRAM-SHA-256, "),
        ({"mechanism": "SCRAM-SHA256"}, "did you mean SCRAM-SHA-256?"),
        ({"mechanism": SCRAM, "user_name": "a"}, "sasl has no setting user_name; did you mean username?"),
        (
            {"mechanism": SCRAM, "username": "a", "password": b"hunter2"},
            "sasl.password is a bytes: it must be a text",
        ),
        ({}, "sasl.mechanism is missing"),
        ({"mechanism": SCRAM}, "needs sasl.username and sasl.password"),
        ({"mechanism": SCRAM, "username": "a"}, "needs sasl.username and sasl.password"),
        ({"mechanism": SCRAM, "username": "", "password": "hunter2"}, "name must not be empty"),
        ({"mechanism": SCRAM, "username": "a", "password": ""}, "password must not be empty"),
        ({"mechanism": "PLAIN", "username": "a\0", "password": "hunter2"}, "NUL"),
        ({"mechanism": "PLAIN", "username": "a", "password": "hunter2", "is_token": True}, "no delegation tokens"),
        ({"mechanism": "PLAIN", "username": "a", "password": "hunter2", "token_request": TOKENS}, "belongs to OAUTH"),
        ({"mechanism": "OAUTHBEARER"}, "belongs to OAUTHBEARER"),
        ({"mechanism": "OAUTHBEARER", "token_request": TOKENS, "username": "a"}, "takes no name"),
    ],
)
def test_logins_that_cannot_be_are_refused_without_the_password(given, reason):
    with pytest.raises(ConfigError) as caught:
        SaslLogin(**given)
    assert reason in str(caught.value)
    assert "hunter2" not in str(caught.value)


def _client(**more: str) -> SaslLogin:
    given = {"sasl.mechanism": SCRAM, "sasl.jaas.config": ALICE}
    given |= {key.replace("_", "."): value for key, value in more.items()}
    return read_client_login(Properties(given, {}, "c.properties"))


def test_a_clients_properties():
    assert _client() == SaslLogin(mechanism=SCRAM, username="alice", password="hunter2")
    assert _client(sasl_jaas_config=ALICE[:-1] + " tokenauth=True;").is_token
    plain = f"{PLAIN_MODULE} required username=u password=p tokenauth=true;"
    assert _client(sasl_mechanism="PLAIN", sasl_jaas_config=plain) == SaslLogin(
        mechanism="PLAIN", username="u", password="p"
    )
    tokens = {"sasl_oauthbearer_token_endpoint_url": "file:///token", "sasl_jaas_config": f"{OAUTH_MODULE} required;"}
    login = _client(sasl_mechanism="OAUTHBEARER", **tokens)
    assert login.token_request.token_url == "file:///token"
    with pytest.raises(ConfigError, match=r"c.properties: sasl.mechanism is missing: Kafka's default, GSSAPI"):
        _client(sasl_mechanism="")


@pytest.mark.parametrize(
    ("login", "first"),
    [
        (SaslLogin(mechanism="PLAIN", username="u", password="p"), b"\0u\0p"),
        (SaslLogin(mechanism="SCRAM-SHA-512", username="u", password="p", is_token=True), b"n,,n=u,r="),
    ],
)
def test_a_login_makes_a_session_of_its_own_for_each_connection(login, first):
    make = make_login(login, "me")
    one, other = make(Address("h", 1)), make(Address("h", 2))
    assert one is not other
    trio.run(one.prepare)
    header, _ = decode_request(b"".join(one.begin()))
    assert header.client_id == "me"
    assert one._mechanism.first().startswith(first)
