"""Settings from Kafka's properties files and from the environment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraftcore.cli.server_roles import load_server
from kraftcore.config import ConfigError, NodeConfig, TlsConfig
from kraftcore.config.node_settings import SETTINGS
from kraftcore.config.security import SaslConfig
from kraftcore.config.settings import Flag, Number
from kraftcore.config.storage_properties import load_server_file
from kraftcore.configdef.checks import Range
from kraftcore.configdef.keys import definitions
from kraftcore.core.uuid import Uuid
from kraftcore.errors import CorruptDataError, StorageError
from kraftcore.ports.transport import Address
from kraftcore.raft.quorum import Endpoint
from kraftcore.security.sasl.mechanism_table import MECHANISMS

PLAIN_MODULE, SCRAM_MODULE = MECHANISMS["PLAIN"].module, MECHANISMS["SCRAM-SHA-256"].module
NUMBERS = {name: setting for name, setting in SETTINGS.items() if isinstance(setting, Number)}
KEYS = {name: setting.key for name, setting in SETTINGS.items()}
GOLDEN = Path(__file__).resolve().parents[1] / "golden"
BASE = """\
process.roles=controller
node.id=1
controller.listener.names=CONTROLLER
listeners=CONTROLLER://127.0.0.1:9093
controller.quorum.bootstrap.servers=127.0.0.1:9093
log.dirs=/data
"""
SSL = "listener.security.protocol.map=CONTROLLER:SSL\n"
SASL = "listener.security.protocol.map=CONTROLLER:SASL_PLAINTEXT\n"
SCRAM = SASL + "sasl.enabled.mechanisms=SCRAM-SHA-256\n"
JAAS = "listener.name.controller.plain.sasl.jaas.config="
PEM = SSL + "ssl.keystore.type=PEM\nssl.keystore.location=/c.pem\n"


@pytest.fixture
def load(tmp_path: Path) -> Any:
    def make(text: str, **more: Any) -> NodeConfig:
        path = tmp_path / "server.properties"
        path.write_text(text)
        return NodeConfig.from_properties(path, **more)

    return make


@pytest.mark.parametrize(
    "path", sorted(GOLDEN.glob("*/*/server.properties")), ids=lambda path: "-".join(path.parts[-3:-1])
)
def test_files_of_real_kafka_nodes(path: Path) -> None:
    lines = dict(line.split("=", 1) for line in path.read_text().splitlines() if "=" in line and line[0] != "#")
    config = NodeConfig.from_properties(path)
    assert config.node_id == int(lines["node.id"])
    assert config.can_become_voter == ("controller" in lines["process.roles"])
    assert config.directory == lines.get("metadata.log.dir", lines.get("log.dirs", "").split(",")[0])
    if config.can_become_voter:
        (listener,) = config.listeners
        assert f"CONTROLLER://{listener.host}:{listener.port}" in lines["listeners"]
    else:
        assert config.listeners == ()
        assert "listeners" in config.ignored
    for field, number in NUMBERS.items():
        if number.key in lines:
            assert getattr(config, field) == int(lines[number.key]) or field == "segment_bytes"
    assert not set(config.ignored) & set(KEYS.values()) - {"listeners", "advertised.listeners"}


def test_kafkas_example_of_a_combined_server(load: Any) -> None:
    config = load(
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.bootstrap.servers=localhost:9093\n"
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ninter.broker.listener.name=PLAINTEXT\n"
        "advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\n"
        "controller.listener.names=CONTROLLER\nnum.network.threads=3\nlog.dirs=/tmp/kraft-combined-logs\n"
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL\n"
        "log.segment.bytes=1073741824\n"
    )
    assert config.listeners == (Endpoint("CONTROLLER", "0.0.0.0", 9093),)
    assert config.advertise(config.listeners) == (Endpoint("CONTROLLER", "localhost", 9093),)
    assert config.bootstrap_servers == (Address("localhost", 9093),)
    assert config.tls is None
    assert set(config.ignored) == {
        "inter.broker.listener.name",
        "num.network.threads",
        "log.segment.bytes",
        "listeners=PLAINTEXT",
    }


def test_every_property_is_read(load: Any) -> None:
    values: dict[str, Any] = {}
    for field, number in NUMBERS.items():
        if field not in ("node_id", "max_frame_bytes", "connection_memory_bytes"):
            values[field] = max(getattr(load(BASE), field) + 1, number.low_in_file or 0)
    values |= {
        field: not getattr(load(BASE), field)
        for field, each in SETTINGS.items()
        if isinstance(each, Flag) and not each.is_composed
    }
    topic_id = Uuid(bytes(range(16)))
    more = f"kraftcore.cluster.id=abc\nkraftcore.topic=t\nkraftcore.topic.id={topic_id}\nkraftcore.create=join\n"
    more += "kraftcore.plugins = a, b\nmetadata.log.dir=/meta\n"
    text = "".join(f"{KEYS[field]} = {str(value).lower()} \n" for field, value in values.items())
    config = load(BASE + more + text)
    assert {field: getattr(config, field) for field in values} == values
    assert (config.cluster_id, config.topic, config.topic_id, config.create) == ("abc", "t", topic_id, "join")
    assert (config.plugins, config.directory) == (("a", "b"), "/meta")
    assert config.ignored == ()


def test_who_wins(load: Any) -> None:
    text = BASE + "controller.quorum.election.timeout.ms=5\ncontroller.quorum.fetch.timeout.ms=700\n"
    properties = {"controller.quorum.election.timeout.ms": "6", "controller.quorum.fetch.timeout.ms": "800"}
    config = load(text, properties=properties, fetch_timeout_ms=900)
    assert (config.election_timeout_ms, config.fetch_timeout_ms) == (6, 900)
    config = load(text, listeners=["X://[::1]:1"], directory="/other", create="standalone")
    assert (config.listeners, config.directory) == ((Endpoint("X", "::1", 1),), "/other")


def test_several_directories(load: Any) -> None:
    """The metadata directory is the node's; the others are looked at when it starts."""
    base = BASE.replace("log.dirs=/data\n", "")
    found = load(base + "log.dirs=/a, /b/,/a/,/c\n")
    assert (found.directory, found.log_directories) == ("/a", ("/b", "/c"))
    found = load(base + "log.dirs=/a,/b\nmetadata.log.dir=/b/\n")
    assert (found.directory, found.log_directories) == ("/b/", ("/a",))
    found = load(base + "log.dirs=/a,/b\n", directory="/elsewhere")
    assert (found.directory, found.log_directories) == ("/elsewhere", ("/b",))
    found = NodeConfig.from_environment(
        environment={"KRAFTCORE_NODE_ID": "1", "KRAFTCORE_LOG_DIRS": "/a,/b"}, listeners=["h:1"]
    )
    assert (found.directory, found.log_directories) == ("/a", ("/b",))


def test_little_is_needed(load: Any) -> None:
    config = load("node.id=1\nlisteners=RAFT://127.0.0.1:9093\nlog.dir=/data\n")
    assert config.can_become_voter
    assert config.listeners == (Endpoint("RAFT", "127.0.0.1", 9093),)
    assert load(BASE + "connections.max.idle.ms=-1\n").idle_timeout_ms > 1 << 60
    assert load(BASE + "internal.metadata.log.segment.bytes=1000\n").segment_bytes == 1000


@pytest.mark.parametrize(
    ("more", "line", "text"),
    [
        (
            "controller.quorum.voter=1@h:1",
            7,
            "no property controller.quorum.voter; did you mean controller.quorum.voters?",
        ),
        ("node_id=1", 7, "no property node_id; did you mean node.id?"),
        ("election_timeout_ms=1", 7, "did you mean controller.quorum.election.timeout.ms?"),
        ("\n# comment\nxyzzy = \\\n  1", 9, "there is no property xyzzy"),
        ("metadata.log.segment.bytes=5", 7, "is 5: it must be between 8388608 and 2147483647"),
        ("controller.quorum.fetch.timeout.ms=abc", 7, "is 'abc': it must be a whole number"),
        ("controller.quorum.auto.join.enable=yes", 7, "is 'yes': it must be true or false"),
        ("process.roles=controler", 7, "may have broker and controller; did you mean controller?"),
        ("controller.listener.names=CONTROLER", 7, "listeners has only CONTROLLER; did you mean CONTROLLER?"),
        ("listeners=x", 7, "listeners: 'x' is no address"),
        ("controller.quorum.voters=2@h:1", 7, "node_id 1 is not among the voters"),
        ("controller.quorum.bootstrap.servers=x", 7, "'x' is no address"),
        ("kraftcore.fetch.max.wait.ms=3000", 7, "fetch_max_wait_ms"),
        ("kraftcore.topic.id=x", 7, "kraftcore.topic.id"),
        ("kraftcore.create=new", 7, "must be standalone, join or None"),
        ("listener.security.protocol.map=CONTROLLER", 7, "write NAME:PROTOCOL"),
        (
            "listener.security.protocol.map=CONTROLLER:SSSL",
            7,
            "it may be PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL; did",
        ),
        (SASL, 7, "sasl.enabled.mechanisms is missing: listener CONTROLLER wants SASL"),
        (SASL + "sasl.enabled.mechanisms=GSSAPI", 8, "the SASL mechanism 'GSSAPI' is not one of PLAIN, SCRAM"),
        (SASL + "listener.name.controller.sasl.enabled.mechanisms=PLAIM", 8, "did you mean PLAIN"),
        (SASL + "sasl.enabled.mechanisms=PLAIN", None, "plain.sasl.jaas.config is missing: PLAIN needs users"),
        (SASL + "sasl.enabled.mechanisms=PLAIN\n" + JAAS + "no.Module required;", 9, "PLAIN has org.apache.kafka"),
        (SASL + "sasl.enabled.mechanisms=PLAIN\n" + JAAS + "Module required", 9, "';' is missing"),
        (SCRAM + "listener.name.controller.connections.max.reauth.ms=x", 9, "it must be a whole number"),
        (SCRAM + "sasl.server.max.receive.size=0", 9, "it must be between 1 and"),
        (SSL, None, "tls.certificate (ssl.keystore.location) is missing: listener CONTROLLER encrypts"),
        (SSL + "ssl.keystore.location=/c.jks", 8, "ssl.keystore.type is JKS: a node reads PEM"),
        (PEM + "ssl.truststore.location=/t\nssl.truststore.type=JKS", 11, "ssl.truststore.type is JKS"),
        (SSL + "ssl.keystore.key=----", 8, "put the PEM text into a file and name it in ssl.keystore.location"),
        (PEM + "ssl.client.auth=require", 10, "did you mean required?"),
        (
            PEM + "listener.name.controller.ssl.clientauth=required",
            10,
            "mean listener.name.controller.ssl.client.auth?",
        ),
    ],
)
def test_what_is_wrong_is_named_with_file_and_line(
    load: Any, tmp_path: Path, more: str, line: int | None, text: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(BASE + more)
    place = f"{tmp_path}/server.properties" + ("" if line is None else f":{line}")
    assert str(caught.value).startswith(f"{place}: ")
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("log.dirs=/a,,/b\n", "log.dirs is '/a,,/b': an entry is empty"),
        ("log.dirs=/a,\n", "an entry is empty"),
        ("broker.id=7\n", "node.id is 1, broker.id 7: one is wrong"),
        ("listeners=CONTROLLER://h:1,controller://h:2\n", "listeners: two listeners are called CONTROLLER"),
        ("advertised.listeners=CONTROLLER://h:1,CONTROLLER://h:2\n", "advertised.listeners: two listeners are called"),
        (
            "log.segment.bytes=abc\n",
            r"server\.properties:7: Invalid value abc for configuration log\.segment\.bytes: Not",
        ),
        ("num.io.threads=0\n", "configuration num.io.threads: Value must be at least 1"),
        ("log.roll.ms=0\n", r"7: requirement failed: log\.roll\.ms must be greater than or equal to 1"),
        ("log.cleaner.enable=perhaps\n", "Expected value to be either true or false"),
        ("compression.type=zip\n", "String must be one of: uncompressed, zstd"),
        ("replica.lag.time.max.ms=100\n", "replica.lag.time.max.ms to prevent frequent changes in ISR"),
        ("replica.fetch.wait.max.ms=40000\n", "7: requirement failed: replica.fetch.wait.max.ms should always be less"),
        (
            "max.connections.per.ip=0\n",
            "can be set to zero only if max.connections.per.ip.overrides is set|between 1 and",
        ),
        ("kraftcore.observer.linger.ms=long\n", "7: kraftcore.observer.linger.ms is 'long': it must be a whole number"),
        ("kraftcore.fast.failover=perhaps\n", "kraftcore.fast.failover is 'perhaps': it must be true or false"),
    ],
)
@pytest.mark.parametrize("read", [NodeConfig.from_properties, load_server_file])
def test_what_kafka_refuses_is_refused_by_server_and_storage(
    tmp_path: Path, read: Callable[[str], object], more: str, words: str
) -> None:
    path = tmp_path / "server.properties"
    path.write_text(BASE + more)
    with pytest.raises(ConfigError, match=words):
        read(str(path))


# What Kafka takes in a file and its server then cannot start with, or cannot work with.
UNUSABLE = {
    "node.id",  # -1 is none
    "max.connections.per.ip",  # 0 goes with exceptions for some addresses alone
    "socket.request.max.bytes",  # no Fetch of the metadata log fits into the least
    "controller.quorum.fetch.max.bytes",
    "controller.quorum.fetch.snapshot.max.bytes",
    *("log.flush.offset.checkpoint.interval.ms", "log.flush.start.offset.checkpoint.interval.ms"),  # 0: no timer
}


@pytest.mark.parametrize("roles", ["controller", "broker"])
def test_the_least_that_kafka_takes_starts_a_server(tmp_path: Path, roles: str) -> None:
    least = {
        name: int(key.check.least)
        for name, key in definitions("broker").items()
        if isinstance(key.check, Range) and key.check.least is not None and name not in UNUSABLE
    }
    assert {"max.connections", "controller.quorum.election.timeout.ms", "message.max.bytes"} < least.keys()
    path = tmp_path / "server.properties"
    more = {"controller": "", "broker": "inter.broker.listener.name=P\n"}[roles]
    listeners = {"controller": "CONTROLLER://127.0.0.1:9093", "broker": "P://127.0.0.1:9092"}[roles]
    lines = BASE.replace("roles=controller", f"roles={roles}").replace("CONTROLLER://127.0.0.1:9093", listeners) + more
    path.write_text(lines + "".join(f"{name}={number}\n" for name, number in least.items()))
    load_server_file(str(path))
    assert load_server(str(path), {})


def test_timeouts_of_zero_are_the_least_and_a_short_one_holds_fetches_for_less(load: Any) -> None:
    config = load(
        BASE + "".join(f"controller.quorum.{name}.timeout.ms=0\n" for name in ("election", "fetch", "request"))
    )
    assert (config.election_timeout_ms, config.fetch_timeout_ms, config.request_timeout_ms) == (1, 1, 1)
    assert config.fetch_max_wait_ms == 0
    assert load(BASE + "controller.quorum.fetch.timeout.ms=400\n").fetch_max_wait_ms == 200
    assert load(BASE + "controller.quorum.fetch.timeout.ms=501\n").fetch_max_wait_ms == 500


def test_nobody_can_connect_to_a_voter_at_all_interfaces(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(BASE + "advertised.listeners=CONTROLLER://0.0.0.0:9093\n")
    with pytest.raises(ConfigError, match=r"nobody can connect to 0\.0\.0\.0"):
        load_server_file(str(path))


def test_a_listener_that_the_map_forgets_is_not_open_to_everybody(load: Any) -> None:
    with pytest.raises(ConfigError, match="does not have CONTROLLER; did you mean CONTROLER"):
        load(BASE + "listener.security.protocol.map=CONTROLER:SASL_SSL\n")
    assert load(BASE + "listener.security.protocol.map=CONTROLLER:PLAINTEXT,,\n").tls is None


def test_java_s_greatest_number_is_never(load: Any) -> None:
    assert load(BASE + f"metadata.log.segment.ms={2**63 - 1}\n").segment_ms == 2**62
    with pytest.raises(ConfigError, match="must be between"):
        load(BASE + f"metadata.log.segment.ms={2**63}\n")


def test_the_older_name_of_the_id_does(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(BASE.replace("node.id=1", "broker.id=5"))
    assert NodeConfig.from_properties(path).node_id == 5
    assert load_server_file(str(path)).node_id == 5


@pytest.mark.parametrize("name", ["node.id", "log.dirs"])
def test_what_is_missing_is_named(load: Any, name: str) -> None:
    with pytest.raises(ConfigError, match="is missing"):
        load("".join(line + "\n" for line in BASE.splitlines() if not line.startswith(name)))


def test_what_a_caller_gives_is_not_blamed_on_the_file(load: Any) -> None:
    with pytest.raises(ConfigError, match="there is no setting node_ids; did you mean node_id"):
        load(BASE, node_ids=3)
    with pytest.raises(ConfigError) as caught:
        load(BASE, election_timeout_ms=-5)
    assert ":2:" not in str(caught.value)


def test_files_that_cannot_be_read(load: Any, tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        NodeConfig.from_properties(tmp_path / "absent")
    with pytest.raises(CorruptDataError):
        load("node.id=\\uXYZW\n")


def test_sasl_of_a_listener(load: Any) -> None:
    users = 'username="n" password="p" user_a="1 2" user_="x" user_b="";'
    config = load(
        BASE.replace("names=CONTROLLER", "names=B,CONTROLLER").replace("listeners=", "listeners=B://127.0.0.1:1,")
        + "listener.security.protocol.map=CONTROLLER:SASL_PLAINTEXT,B:PLAINTEXT\n"
        + "sasl.enabled.mechanisms=GSSAPI\nconnections.max.reauth.ms=3000\nsasl.server.max.receive.size=1000\n"
        + "connection.failed.authentication.delay.ms=7\n"
        + "listener.name.controller.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512\n"
        + "listener.name.controller.scram-sha-512.connections.max.reauth.ms=500\n"
        + f"{JAAS}{PLAIN_MODULE} required {users}\n"
    )
    assert config.listener_sasl == {
        "CONTROLLER": SaslConfig(
            mechanisms=("PLAIN", "SCRAM-SHA-512"),
            users={"a": "1 2"},
            max_reauth_ms={"PLAIN": 3000, "SCRAM-SHA-512": 500},
            max_receive_bytes=1000,
        )
    }
    assert config.failed_authentication_delay_ms == 7
    assert (config.security_protocol("CONTROLLER"), config.security_protocol("B")) == (2, 0)
    assert config.ignored == ()
    assert "1 2" not in repr(config)
    login = (
        "sasl.enabled.mechanisms=SCRAM-SHA-256\nsasl.mechanism.controller.protocol=SCRAM-SHA-256\n"
        f'listener.name.LISTENER.scram-sha-256.sasl.jaas.config={SCRAM_MODULE} required username="a" password="b";'
    )
    pem = PEM.replace("CONTROLLER:SSL", "CONTROLLER:SASL_SSL")
    encrypted = load(BASE + pem + login.replace("LISTENER", "controller"))
    assert (encrypted.security_protocol("CONTROLLER"), encrypted.tls) == (3, TlsConfig(certificate="/c.pem"))
    named = load(BASE.replace("CONTROLLER", "SASL_PLAINTEXT") + login.replace("LISTENER", "sasl_plaintext"))
    assert set(named.listener_sasl) == {"SASL_PLAINTEXT"}


def test_sasl_from_variables() -> None:
    config = NodeConfig.from_environment(
        environment=ENVIRONMENT
        | {
            "KRAFTCORE_LISTENERS": "FIRST://127.0.0.1:9092,MY_OWN://127.0.0.1:9093",
            "KRAFTCORE_LISTENER_SECURITY_PROTOCOL_MAP": "FIRST:PLAINTEXT,MY_OWN:SASL_PLAINTEXT",
            "KRAFTCORE_LISTENER_NAME_MY_OWN_SASL_ENABLED_MECHANISMS": "PLAIN,SCRAM-SHA-256",
            "KRAFTCORE_LISTENER_NAME_MY_OWN_PLAIN_SASL_JAAS_CONFIG": f'{PLAIN_MODULE} required user_a="b";',
            "KRAFTCORE_LISTENER_NAME_MY_OWN_SCRAM_SHA_256_CONNECTIONS_MAX_REAUTH_MS": "9",
        }
    )
    assert config.listener_sasl == {
        "MY_OWN": SaslConfig(
            mechanisms=("PLAIN", "SCRAM-SHA-256"), users={"a": "b"}, max_reauth_ms={"SCRAM-SHA-256": 9}
        )
    }


def test_tls(load: Any) -> None:
    config = load(
        BASE
        + PEM
        + "ssl.truststore.type=PEM\nssl.truststore.location=/ca.pem\nssl.key.password=pw\nssl.client.auth=required\n"
        + "ssl.endpoint.identification.algorithm=\nssl.enabled.protocols=TLSv1.3\n"
    )
    assert config.tls == TlsConfig(
        certificate="/c.pem", ca="/ca.pem", key_password="pw", client_auth="required", check_host_name=False
    )
    assert config.ignored == ("ssl.enabled.protocols",)
    own = load(
        BASE + PEM + "listener.name.controller.ssl.keystore.location=/own.pem\nlistener.name.x.ssl.key.password=n\n"
    )
    assert own.tls == TlsConfig(certificate="/own.pem")
    others = ["listener.name.x.scram-sha-256.sasl.jaas.config", "listener.name.controller.max.connections"]
    assert load(BASE + "".join(f"{key}=1\n" for key in others)).ignored == tuple(others)
    # An observer connects to controllers by their listener's protocol.
    broker = BASE.replace("roles=controller", "roles=broker").replace("listeners=CONTROLLER", "listeners=PLAINTEXT")
    assert load(broker + PEM).tls == TlsConfig(certificate="/c.pem")
    two = BASE.replace("names=CONTROLLER", "names=CONTROLLER,B").replace("listeners=", "listeners=B://127.0.0.1:1,")
    assert load(broker.replace("names=CONTROLLER", "names=CONTROLLER,B") + PEM).listener_tls == {}
    mixed = load(two + PEM.replace("CONTROLLER:SSL", "CONTROLLER:SSL,B:PLAINTEXT"))
    assert (mixed.tls, mixed.listener_tls) == (TlsConfig(certificate="/c.pem"), {"B": None})
    text = "ssl.keystore.type=PEM\nlistener.security.protocol.map=CONTROLLER:PLAINTEXT,B:SSL\n"
    other = load(two + text + "listener.name.b.ssl.keystore.location=/b.pem\n")
    assert (other.tls, other.listener_tls) == (None, {"B": TlsConfig(certificate="/b.pem")})
    with pytest.raises(ConfigError, match=r"\(ssl.keystore.location\) is missing: listener B encrypts"):
        load(two + text)
    both = load(
        two + PEM.replace("CONTROLLER:SSL", "CONTROLLER:SSL,B:SSL") + "listener.name.b.ssl.client.auth=required\n"
    )
    assert both.tls == TlsConfig(certificate="/c.pem")
    assert both.listener_tls == {"B": TlsConfig(certificate="/c.pem", client_auth="required")}


def test_who_shows_certificates_and_what_they_come_to(load: Any) -> None:
    """``ssl.client.auth`` for all listeners is not meant for those with SASL, as in Kafka (KIP-684)."""
    two = BASE.replace("names=CONTROLLER", "names=CONTROLLER,B").replace("listeners=", "listeners=B://127.0.0.1:1,")
    rules = "ssl.principal.mapping.rules=RULE:^CN=(.*?),.*$/$1/L, DEFAULT\n"
    found = load(
        two
        + PEM.replace("CONTROLLER:SSL", "CONTROLLER:SSL,B:SASL_SSL")
        + "ssl.client.auth=required\nlistener.name.b.sasl.enabled.mechanisms=SCRAM-SHA-256\n"
        + rules
        + "listener.name.b.ssl.principal.mapping.rules=DEFAULT\n"
    )
    text = "RULE:^CN=(.*?),.*$/$1/L, DEFAULT"
    assert found.tls == TlsConfig(certificate="/c.pem", client_auth="required", principal_mapping_rules=text)
    assert found.listener_tls == {"B": TlsConfig(certificate="/c.pem", principal_mapping_rules="DEFAULT")}
    assert found.ignored == ()
    with pytest.raises(ConfigError, match=r"server.properties:10: ssl.principal.mapping.rules: Invalid rule: `RULE:x`"):
        load(BASE + PEM + "ssl.principal.mapping.rules=RULE:x\n")
    with pytest.raises(ConfigError, match="tls.principal_mapping_rules: .*no regular expression"):
        TlsConfig(certificate="/c.pem", principal_mapping_rules="RULE:(/a/")


ENVIRONMENT = {
    "KRAFTCORE_NODE_ID": "1",
    "KRAFTCORE_DIRECTORY": "/data",
    "KRAFTCORE_LISTENERS": "127.0.0.1:9093",
    "PATH": "/bin",
}


def from_environment(more: dict[str, str], **overrides: Any) -> NodeConfig:
    return NodeConfig.from_environment(environment={**ENVIRONMENT, **more}, **overrides)


def test_the_environment() -> None:
    config = from_environment(
        {
            "KRAFTCORE_CONTROLLER_QUORUM_VOTERS": "1@a:1,2@b:2",
            "KRAFTCORE_ELECTION_TIMEOUT_MS": "5",
            "KRAFTCORE_CONTROLLER_QUORUM_FETCH_TIMEOUT_MS": "700",
            "KRAFTCORE_SESSION_EXPIRY_MS": "8",
            "KRAFTCORE_KRAFTCORE_TOPIC": "t",
            "KRAFTCORE_NUM_PARTITIONS": "3",
            "KRAFTCORE_SOMETHING_ELSE_ALTOGETHER": "x",
        },
        node_id=2,
    )
    assert (config.node_id, config.voters.ids, config.directory) == (2, {1, 2}, "/data")
    assert (config.election_timeout_ms, config.fetch_timeout_ms, config.session_expiry_ms) == (5, 700, 8)
    assert config.topic == "t"
    assert config.ignored == ("KRAFTCORE_NUM_PARTITIONS", "KRAFTCORE_SOMETHING_ELSE_ALTOGETHER")
    other = {name.replace("KRAFTCORE_", "APP_RAFT_"): value for name, value in ENVIRONMENT.items()}
    assert NodeConfig.from_environment("APP_RAFT_", environment=other).node_id == 1


def test_the_environment_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        if name != "PATH":
            monkeypatch.setenv(name, value)
    assert NodeConfig.from_environment().listeners == (Endpoint("CONTROLLER", "127.0.0.1", 9093),)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (
            {"KRAFTCORE_DIRECTRY": "x"},
            "KRAFTCORE_DIRECTRY: there is no such setting; did you mean KRAFTCORE_DIRECTORY?",
        ),
        ({"KRAFTCORE_FETCH_TIMEOUT_MS": "x"}, "KRAFTCORE_FETCH_TIMEOUT_MS: controller.quorum.fetch.timeout.ms is 'x'"),
        ({"KRAFTCORE_VOTERS": "2@h:1"}, "KRAFTCORE_VOTERS: node_id 1 is not among"),
        (
            {"KRAFTCORE_METADATA_LOG_DIR": "/other"},
            "KRAFTCORE_METADATA_LOG_DIR: contradicts KRAFTCORE_DIRECTORY, which is metadata.log.dir as well",
        ),
    ],
)
def test_what_is_wrong_is_named_with_the_variable(more: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_environment(more)
    assert str(caught.value).startswith(text)


BROKER = """\
process.roles=broker
node.id=1
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:9093
listeners=INSIDE://127.0.0.1:9092,PLAIN://:9094
advertised.listeners=INSIDE://b1.example.com:19092,PLAIN://b1.example.com:9094
listener.security.protocol.map=CONTROLLER:SSL,INSIDE:SASL_PLAINTEXT,PLAIN:PLAINTEXT
ssl.truststore.type=PEM
ssl.truststore.location=/ca.pem
sasl.enabled.mechanisms=SCRAM-SHA-256
log.dirs=/data
"""


def test_a_brokers_listeners_are_read_where_it_is_there(load: Any) -> None:
    config = load(BROKER, with_broker=True)
    assert not config.listeners
    assert config.broker_listeners == (Endpoint("INSIDE", "127.0.0.1", 9092), Endpoint("PLAIN", "0.0.0.0", 9094))
    assert [each.host for each in config.advertise(config.broker_listeners)] == ["b1.example.com"] * 2
    assert [config.security_protocol(name).name for name in ("INSIDE", "PLAIN")] == ["SASL_PLAINTEXT", "PLAINTEXT"]
    assert config.tls is not None  # connections to controllers encrypt
    assert config.listener_tls == {"INSIDE": None, "PLAIN": None}
    assert "listeners" not in config.ignored
    without = load(BROKER)
    assert not without.broker_listeners
    assert "listeners" in without.ignored


def test_a_node_that_is_both_has_both_kinds_of_listeners(load: Any) -> None:
    both = "process.roles=broker,controller\nlisteners=PLAIN://:9094,CONTROLLER://127.0.0.1:9093\n"
    plain = "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAIN:PLAINTEXT\nadvertised.listeners=PLAIN://b:1\n"
    config = load(BROKER + both + plain, with_broker=True)
    assert [each.name for each in config.listeners] == ["CONTROLLER"]
    assert [each.name for each in config.broker_listeners] == ["PLAIN"]
    assert config.can_become_voter
    assert not any(key.startswith("listeners") for key in config.ignored)
    assert "listeners=PLAIN" in load(BROKER + both + plain).ignored


def test_listeners_of_both_kinds_share_neither_name_nor_address() -> None:
    settings = {"node_id": 1, "directory": "/d", "listeners": ["C://127.0.0.1:9093"]}
    for broker_listeners in (["C://127.0.0.1:9092"], ["B://127.0.0.1:9093"]):
        with pytest.raises(ConfigError, match="two listeners"):
            NodeConfig(**settings, broker_listeners=broker_listeners)
