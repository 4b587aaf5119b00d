"""Configuration keys: values of each type, refusals, what is in force.

tests/interop/test_config_keys.py holds all of it against Kafka's own classes.
"""

from __future__ import annotations

import math
import re
from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftcore.configdef.brokers import applied, validate_broker
from kraftcore.configdef.checks import anything, read_check
from kraftcore.configdef.groups import validate_group
from kraftcore.configdef.keys import definitions, texts
from kraftcore.configdef.metrics import UnknownMetricsConfigError, validate_client_metrics
from kraftcore.configdef.topics import ConfigSource, TopicDefaults
from kraftcore.configdef.types import ConfigType, ConfigValueError, parse, show, show_double


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (ConfigType.BOOLEAN, " TRUE ", True),
        (ConfigType.BOOLEAN, "false", False),
        (ConfigType.INT, "-2147483648", -(1 << 31)),
        (ConfigType.SHORT, "+7", 7),
        (ConfigType.LONG, "9223372036854775807", (1 << 63) - 1),
        (ConfigType.DOUBLE, "1e3", 1000.0),
        (ConfigType.DOUBLE, "0x1p3", 8.0),
        (ConfigType.DOUBLE, "-Infinity", -math.inf),
        (ConfigType.LIST, "a ,b", ["a", "b"]),
        (ConfigType.LIST, " ", []),
        (ConfigType.STRING, " x ", "x"),
        (ConfigType.CLASS, "org.example.Policy", "org.example.Policy"),
        (ConfigType.PASSWORD, "secret", "secret"),
    ],
)
def test_values_of_each_type(kind: ConfigType, text: str, value: object) -> None:
    assert parse("k", text, kind) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ConfigType.BOOLEAN, "yes"),
        (ConfigType.INT, "2147483648"),
        (ConfigType.INT, "1_000"),
        (ConfigType.SHORT, "32768"),
        (ConfigType.LONG, "9" * 5000),
        (ConfigType.DOUBLE, "nan"),
        (ConfigType.DOUBLE, ""),
    ],
)
def test_what_is_of_another_type_is_refused(kind: ConfigType, text: str) -> None:
    with pytest.raises(ConfigValueError, match="Invalid value .* for configuration k: "):
        parse("k", text, kind)


@given(st.text(max_size=30), st.sampled_from(ConfigType))
def test_any_text_is_read_or_refused(text: str, kind: ConfigType) -> None:
    try:
        parse("k", text, kind)
    except ConfigValueError as refused:
        assert str(refused).startswith(f"Invalid value {text} for configuration k: ")


@given(st.floats())
def test_doubles_are_printed_so_that_they_can_be_read(value: float) -> None:
    read = parse("k", show_double(value), ConfigType.DOUBLE)
    assert isinstance(read, float)
    assert read == value or (math.isnan(read) and math.isnan(value))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (5, "5"),
        (["a", "b"], "[a, b]"),
        (1.0, "1.0"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (0.001, "0.001"),
        (-0.00012, "-1.2E-4"),
        (1.5e300, "1.5E300"),
        (123456789.5, "1.234567895E8"),
    ],
)
def test_values_in_messages(value: object, text: str) -> None:
    assert show(value) == text  # type: ignore[arg-type]


def test_every_key_with_a_default_takes_it() -> None:
    for scope in ("topic", "group", "client-metrics", "broker-quota", "user-quota", "ip-quota", "broker"):
        keys = definitions(scope)
        for name, key in keys.items():
            assert name == key.name
            if key.default is not None:
                key.read(key.default)


def test_only_passwords_are_sensitive() -> None:
    sensitive = {key.name for key in definitions("broker").values() if key.type.is_sensitive}
    assert {"ssl.keystore.password", "sasl.jaas.config", "delegation.token.secret.key"} <= sensitive
    assert not any(key.type.is_sensitive for key in definitions("topic").values())


def test_checks_of_the_table_that_no_topic_has() -> None:
    assert read_check("-") is anything
    any_case = read_check("caseless-string A B")
    any_case("k", "a")
    with pytest.raises(ConfigValueError, match=r"^Invalid value c for configuration k: String must be one of \(case"):
        any_case("k", "c")
    for check, value, text in (
        ("NonEmptyString", "", "Invalid value  for configuration k: String must be non-empty"),
        ("NonNullValidator", None, "Invalid value null for configuration k: entry must be non null"),
        ("list filled set", [], "Configuration 'k' must not be empty. Valid values include: any non-empty value"),
        ("list filled set a b", [], "Configuration 'k' must not be empty. Valid values include: [a, b]"),
        ("list empty set", None, "Configuration 'k' values must not be null."),
        ("range 1 -", None, "Invalid value null for configuration k: Value must be non-null"),
    ):
        with pytest.raises(ConfigValueError) as caught:
            read_check(check)("k", value)
        assert str(caught.value) == text
    read_check("list empty null")("k", None)
    with pytest.raises(KeyError):
        read_check("SomethingNew")


class TestTopics:
    defaults = TopicDefaults({"log.retention.hours": "2", "log.segment.bytes": "2000000"}, {"min.insync.replicas": "2"})

    def test_what_is_in_force(self) -> None:
        names = [each.name for each in self.defaults.all]
        assert len(names) == 33
        assert names == sorted(names)
        found = {each.name: (each.value, each.source) for each in self.defaults.all}
        assert found["retention.ms"] == ("7200000", ConfigSource.STATIC_BROKER)
        assert found["segment.bytes"] == ("2000000", ConfigSource.STATIC_BROKER)
        assert found["min.insync.replicas"] == ("2", ConfigSource.DYNAMIC_DEFAULT_BROKER)
        assert found["segment.ms"] == ("604800000", ConfigSource.DEFAULT)

    def test_the_nearest_value_counts(self) -> None:
        key = "min.insync.replicas"
        node = TopicDefaults({key: "4"}, {key: "3"}, {key: "2"})
        assert node.of(key, {key: "1"}).source is ConfigSource.TOPIC
        assert (node.of(key, {}).value, node.of(key, {}).source) == ("2", ConfigSource.DYNAMIC_BROKER)
        assert TopicDefaults({key: "4"}, {}).of(key, {}).value == "4"

    def test_the_first_synonym_that_is_set_counts(self) -> None:
        static = {"log.retention.hours": "1", "log.retention.minutes": "2"}
        assert TopicDefaults(static).of("retention.ms", {}).value == "120000"
        assert TopicDefaults({**static, "log.retention.ms": "3"}).of("retention.ms", {}).value == "3"

    def test_a_topics_own_values(self) -> None:
        own = self.defaults.effective({"retention.ms": "5", "internal.segment.bytes": "9", "made.up": "1"})
        found = {each.name: each for each in own}
        assert len(own) == 34
        assert found["retention.ms"].source is ConfigSource.TOPIC
        assert found["internal.segment.bytes"].value == "9"

    @pytest.mark.parametrize(
        ("configs", "text"),
        [
            ({"a": None, "b": None}, "Null value not supported for topic configs: a,b"),
            ({"foo": "1"}, "Unknown topic config name: foo"),
            (
                {"retention.ms": "soon", "segment.bytes": "x"},
                "Invalid value x for configuration segment.bytes: Not a number of type INT",
            ),
            (
                {"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"},
                "conflict topic config setting min.compaction.lag.ms (6) > max.compaction.lag.ms (5)",
            ),
            (
                {"remote.storage.enable": "true"},
                "Tiered Storage functionality is disabled in the broker. "
                "Topic cannot be configured with remote log storage.",
            ),
        ],
    )
    def test_refusals(self, configs: dict[str, str | None], text: str) -> None:
        with pytest.raises(ConfigValueError) as caught:
            self.defaults.validate(configs)
        assert str(caught.value) == text

    @pytest.mark.parametrize(
        ("configs", "text"),
        [
            ({"cleanup.policy": "compact"}, "Remote log storage only supports topics with cleanup.policy=delete or"),
            (
                {"retention.ms": "5", "local.retention.ms": "-1"},
                "Invalid value -1 for configuration local.retention.ms: "
                "Value must not be -1 as retention.ms value is set as 5.",
            ),
            (
                {"retention.bytes": "5", "local.retention.bytes": "6"},
                "Invalid value 6 for configuration local.retention.bytes: "
                "Value must not be more than retention.bytes property value: 5",
            ),
            (
                {"retention.bytes": "5", "local.retention.bytes": "4", "remote.log.copy.disable": "true"},
                "When `remote.log.copy.disable` is set to true, the `local.retention.bytes` and `retention.bytes` must",
            ),
        ],
    )
    def test_tiered_topics(self, configs: dict[str, str], text: str) -> None:
        tiered = TopicDefaults({"remote.log.storage.system.enable": "true"})
        tiered.validate({"remote.storage.enable": "true", "retention.bytes": "-1", "local.retention.bytes": "-1"})
        with pytest.raises(ConfigValueError) as caught:
            tiered.validate({"remote.storage.enable": "true", **configs})
        assert str(caught.value).startswith(text)

    def test_tiered_storage_is_not_switched_off_by_the_way(self) -> None:
        existing = {"remote.storage.enable": "true"}
        with pytest.raises(ConfigValueError, match="It is invalid to disable remote storage without deleting"):
            self.defaults.validate({}, existing)
        self.defaults.validate({"remote.log.delete.on.disable": "true"}, existing)

    def test_a_servers_file_that_no_topic_can_live_with(self) -> None:
        with pytest.raises(ConfigValueError, match=r"Invalid value 0 for configuration segment\.ms"):
            TopicDefaults({"log.roll.ms": "0"})
        TopicDefaults({"log.retention.hours": "-1"}).validate({"retention.bytes": "5"})


def test_groups_are_bounded_by_the_server() -> None:
    validate_group({"consumer.session.timeout.ms": "50000"}, {})
    for configs, static, text in (
        ({"foo": "1"}, {}, "Unknown group config name: foo"),
        ({"foo": None}, {}, "Null value not supported for group configs: foo"),
        (
            {"consumer.session.timeout.ms": "1"},
            {},
            "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            {"consumer.session.timeout.ms": "50000"},
            {"group.consumer.max.session.timeout.ms": "46000"},
            "consumer.session.timeout.ms must be less than or equal to group.consumer.max.session.timeout.ms",
        ),
        (
            {"consumer.heartbeat.interval.ms": "15001"},
            {},
            "consumer.heartbeat.interval.ms must be less than or equal to group.consumer.max.heartbeat.interval.ms",
        ),
        (
            {"streams.num.standby.replicas": "3"},
            {},
            "streams.num.standby.replicas must be less than or equal to group.streams.max.standby.replicas",
        ),
    ):
        with pytest.raises(ConfigValueError) as caught:
            validate_group(configs, static)  # type: ignore[arg-type]
        assert str(caught.value) == text


def test_client_metrics() -> None:
    validate_client_metrics({"metrics": "*", "interval.ms": "100", "match": "client_id=a.*,client_software_name=x"})
    with pytest.raises(UnknownMetricsConfigError, match="Unknown client metrics configuration: foo"):
        validate_client_metrics({"foo": "1"})
    with pytest.raises(
        UnknownMetricsConfigError, match=r"Invalid value 99 for interval\.ms, interval must be between 100"
    ):
        validate_client_metrics({"interval.ms": "99"})
    with pytest.raises(ConfigValueError, match="Illegal client matching pattern: who=x"):
        validate_client_metrics({"match": "who=x"})


@pytest.mark.parametrize(
    ("configs", "of_one", "text"),
    [
        ({"log.retention.ms": "5", "max.connections.per.ip.overrides": "a:1, b:2"}, False, ""),
        ({"log.retention.ms": "-7"}, True, ""),
        ({"listener.name.a.ssl.keystore.location": "/a", "unknown": "x"}, True, ""),
        ({"broker.id": "5"}, True, "Cannot update these configs dynamically: [broker.id]"),
        (
            {"ssl.keystore.location": "/a"},
            True,
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            "[ssl.keystore.location]",
        ),
        (
            {"listener.name.a.ssl.keystore.location": "/a"},
            False,
            "Cannot update these configs at default cluster level, broker id must be specified: "
            "[listener.name.a.ssl.keystore.location]",
        ),
        (
            {"listener.name.a.max.connections": "x"},
            False,
            "Invalid value x for configuration max.connections: Not a number of type INT",
        ),
        (
            {"log.retention.ms": "0"},
            True,
            "requirement failed: log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
        ),
        ({"log.roll.ms": "0"}, True, "requirement failed: log.roll.ms must be greater than or equal to 1"),
        (
            {"log.retention.ms": "0", "log.roll.jitter.ms": "-1"},
            False,
            "requirement failed: log.roll.jitter.ms must be greater than or equal to 0",
        ),
        (
            {"max.connections.per.ip.overrides": "rubbish"},
            True,
            "Error parsing configuration property 'max.connections.per.ip.overrides': begin 0, end -1, length 7",
        ),
        (
            {"max.connections.per.ip.overrides": "a:x"},
            True,
            'For input string: "x"',
        ),
    ],
)
def test_brokers(configs: dict[str, str], of_one: bool, text: str) -> None:
    """As Kafka's broker says it to whoever changes them."""
    refused = nullcontext() if not text else pytest.raises(ConfigValueError, match=f"^{re.escape(text)}$")
    with refused:
        validate_broker(configs, of_one=of_one)


def test_what_a_running_broker_takes_over() -> None:
    configs = {
        "log.retention.ms": "x",
        "broker.id": "5",
        "ssl.keystore.location": "/a",
        "listener.name.a.ssl.keystore.location": "/a",
        "listener.name.a.max.connections": "x",
        "log.retention.bytes": "7",
        "unknown": "x",
    }
    of_one = {"listener.name.a.ssl.keystore.location": "/a", "log.retention.bytes": "7", "unknown": "x"}
    assert applied(configs, of_one=True) == of_one
    assert applied(configs, of_one=False) == {"log.retention.bytes": "7", "unknown": "x"}


@pytest.mark.parametrize(
    "scope", ["topic", "broker", "broker-quota", "group", "client-metrics", "user-quota", "ip-quota"]
)
def test_each_key_has_a_sentence(scope: str) -> None:
    """Of its own, but for the quotas: whoever reads two keys can tell them apart."""
    assert list(texts(scope)) == list(definitions(scope))
    for name, text in texts(scope).items():
        assert re.fullmatch(r"[A-Z][^\n\t]{8,158}\.", text), name
    assert len(set(texts(scope).values())) == len(texts(scope))


def test_keys_that_a_sentence_names_exist() -> None:
    known = {*definitions("topic"), *definitions("broker")}
    for scope in ("topic", "broker"):
        for name, text in texts(scope).items():
            named = re.findall(r"\b[a-z]+(?:\.[a-z]+)+\b", text)
            assert set(named) <= known, name
