"""``NodeConfig`` from keyword arguments: what it takes, what it refuses, what it hands on."""

from __future__ import annotations

import inspect
import pickle
import re
import socket
from dataclasses import FrozenInstanceError, asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest

from kraftcore.config import ConfigError, NodeConfig, SaslConfig, SaslLogin, TlsConfig
from kraftcore.config.node_settings import BROUGHT, GIVEN, SETTINGS
from kraftcore.config.settings import Number
from kraftcore.core.uuid import ZERO_UUID, Uuid
from kraftcore.forms import fits, is_list
from kraftcore.node.opening import tcp_transport
from kraftcore.ports.transport import Address
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.raft.quorum import Endpoint, static_voters
from kraftcore.transports.tcp import Limits

# The simulator and Kafka do without them.
OWN_DEFAULTS = {"high_watermark_linger_ms", "observer_linger_ms"}
NUMBERS = {name: setting for name, setting in SETTINGS.items() if isinstance(setting, Number)}
LOCAL = Endpoint("CONTROLLER", "127.0.0.1", 9093)


def make(**settings: Any) -> NodeConfig:
    return NodeConfig(**{"node_id": 1, "directory": "/data", "listeners": ["127.0.0.1:9093"], **settings})


def refused(**settings: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        make(**settings)
    assert caught.value.where is None
    assert caught.value.settings
    return str(caught.value)


def test_text_and_objects_mean_the_same() -> None:
    text = make(
        listeners=["controller://127.0.0.1:9093", "OTHER://[::1]:9094"],
        advertised_listeners=["CONTROLLER://c1.example.com:19093"],
        voters="1@c1:9093, 2@[::1]:9093",
        bootstrap_servers=["c1:9093", "[fe80::1%eth0]:9093"],
    )
    objects = make(
        listeners=(LOCAL, Endpoint("OTHER", "::1", 9094)),
        advertised_listeners=(Endpoint("CONTROLLER", "c1.example.com", 19093),),
        voters=static_voters([(1, Endpoint("CONTROLLER", "c1", 9093)), (2, Endpoint("CONTROLLER", "::1", 9093))]),
        bootstrap_servers=(Address("c1", 9093), Address("fe80::1%eth0", 9093)),
    )
    assert text == objects
    assert text.listeners == (LOCAL, Endpoint("OTHER", "::1", 9094))
    assert make(voters=["1@c1:9093"]).voters.ids == {1}


def test_it_is_a_value() -> None:
    config = make(voters="1@a:1")
    with pytest.raises(FrozenInstanceError):
        config.node_id = 2  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(config)) == config
    other = replace(config, voters="1@a:1,2@b:2")
    assert other.voters.ids == {1, 2}
    assert other != config
    assert other.listeners == config.listeners


def test_voters_are_reached_by_the_first_listener() -> None:
    config = make(listeners=["RAFT://127.0.0.1:9093", "CONTROLLER://127.0.0.1:9094"], voters="1@a:1")
    voter = config.voters.get(1)
    assert voter is not None
    assert voter.endpoints == (Endpoint("RAFT", "a", 1),)


def test_every_setting_reaches_who_needs_it() -> None:
    different = {
        name: getattr(make(), name) + 1
        for name in NUMBERS
        if name not in ("node_id", "max_frame_bytes", "connection_memory_bytes")
    }
    config = make(
        **different, fast_failover=False, auto_join=True, reluctant=True, bootstrap_servers=["b:1"], topic="t"
    )
    key = ReplicaKey(1, Uuid(bytes(range(16))))
    raft = config.raft_config(key, "cluster", [LOCAL])
    assert (raft.cluster_id, raft.key, raft.listeners) == ("cluster", key, (LOCAL,))
    assert raft.bootstrap_servers == (("b", 1),)
    assert raft.auto_join
    assert raft.reluctant
    assert not raft.fast_failover
    log, cleaning = config.log_config(), config.cleaning_config()
    shared = 0
    for part in (raft, log, cleaning):
        for each in fields(part):
            if each.name in different:
                assert getattr(part, each.name) == different[each.name]
                shared += 1
    assert cleaning.period_ms == config.cleaning_period_ms
    assert shared >= 20
    assert (raft.topic, raft.topic_id, log.topic_id) == ("t", config.topic_id, config.topic_id)


def test_defaults_are_those_of_the_parts_they_go_to() -> None:
    config = make()
    for part in (config.raft_config(ReplicaKey(1), "c", [LOCAL]), config.log_config(), config.cleaning_config()):
        for each in fields(part):
            if each.name in SETTINGS and isinstance(each.default, int) and each.name not in OWN_DEFAULTS:
                assert getattr(part, each.name) == each.default, each.name


def test_every_setting_is_documented_with_its_property() -> None:
    text = NodeConfig.__doc__ or ""
    assert [each.name for each in fields(NodeConfig)] == [*SETTINGS, *BROUGHT, "ignored"]
    for name, setting in SETTINGS.items():
        assert setting.text.endswith("."), f"{name}: whole sentences"
        entry = re.search(rf"^ +{name}: (.*?)(?=^ {{4}}\w+: |^ *Raises)", text, re.MULTILINE | re.DOTALL)
        assert entry is not None, name
        said = re.sub(r"\s+", " ", entry[1])
        assert said.startswith(f"``{setting.key}``")
        assert said.rstrip().endswith(setting.text)


@pytest.mark.parametrize("name", sorted(NUMBERS))
def test_numbers_have_a_range_that_is_named(name: str) -> None:
    number = NUMBERS[name]
    for value in (number.low - 1, number.high + 1):
        text = refused(**{name: value})
        assert f"{name} ({number.key}) is {value}" in text
        assert f"between {number.low} and {number.high}" in text
    for value in ("1", 1.5, True, None):
        assert f"is {value!r}: it must be a whole number" in refused(**{name: value})


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"electon_timeout_ms": 5}, "there is no setting electon_timeout_ms; did you mean election_timeout_ms?"),
        ({"controller.quorum.voters": "x"}, "did you mean voters?"),
        ({"xyzzy": 5}, "there is no setting xyzzy"),
        ({"listeners": []}, "listeners (listeners) is missing"),
        ({"listeners": "127.0.0.1:9093"}, "it must be a list, with an Endpoint or a text for each entry"),
        ({"plugins": "metrics"}, "plugins (kraftcore.plugins) is 'metrics': it must be a list, with a text for each"),
        ({"directory": 7}, "directory (metadata.log.dir) is 7: it must be a text or a path"),
        ({"tls": "node.pem"}, "tls (ssl.keystore.location) is a str: it must be a TlsConfig or None"),
        ({"listeners": ["9093"]}, "'9093' is no address: write NAME://host:port"),
        ({"listeners": ["h:99999"]}, "ports go up to 65535"),
        ({"listeners": ["::1:9093"]}, "is no address"),
        ({"listeners": ["A://h:1", "a://h:2"]}, "two listeners are called A"),
        ({"listeners": ["A://h:1", "B://h:1"]}, "two listeners share an address"),
        ({"advertised_listeners": ["CONTROLER://h:1"]}, "none of the listeners, which are CONTROLLER; did you mean"),
        ({"advertised_listeners": ["0.0.0.0:1"]}, "nobody can connect to CONTROLLER://0.0.0.0:1"),
        ({"advertised_listeners": ["h:0"]}, "nobody can connect"),
        ({"voters": "2@h:1"}, "node_id 1 is not among the voters (controller.quorum.voters) [2]"),
        ({"voters": "1@h:1", "can_become_voter": False}, "but this node is an observer"),
        ({"voters": "1@h"}, "'h' is no address"),
        ({"voters": "1h:1"}, "write id@host:port"),
        ({"voters": "-1@h:1"}, "write id@host:port"),
        ({"voters": "1@h:1,1@i:1"}, "two voters have the id 1"),
        ({"voters": "1@h:1,2@i:1,3@h:1"}, "the voters 1 and 3 have the same address, h:1: give each its own"),
        ({"bootstrap_servers": ["A://h:1"]}, "is no server: write host:port"),
        ({"bootstrap_servers": ["h:0"]}, "is no server"),
        ({"auto_join": True, "can_become_voter": False, "bootstrap_servers": ["h:1"]}, "may become a voter"),
        ({"auto_join": True}, "cannot find the quorum"),
        ({"can_become_voter": False}, "cannot find the quorum"),
        ({"create": "join"}, "cannot find the quorum"),
        ({"create": "join", "voters": "1@a:1,2@b:2"}, "cluster_id (kraftcore.cluster.id) is missing: create"),
        ({"create": "join", "bootstrap_servers": ["a:1"]}, "Set it to the same text on all nodes"),
        ({"create": "join", "bootstrap_servers": ["a:1"], "can_become_voter": False}, "cluster_id"),
        ({"create": "standalon"}, "must be standalone, join or None; did you mean standalone?"),
        ({"create": "standalone", "voters": "1@h:1"}, "contradicts voters"),
        ({"create": "standalone", "can_become_voter": False}, "contradicts can_become_voter"),
        ({"fetch_max_wait_ms": 2000}, "must be less than request_timeout_ms (2000) and fetch_timeout_ms (2000)"),
        ({"max_frame_bytes": 4 << 20}, "a Fetch may need"),
        ({"connection_memory_bytes": 1 << 20}, "one frame of max_frame_bytes (104857600)"),
        ({"reconnect_backoff_ms": 2000}, "less than reconnect_backoff_ms (2000)"),
        ({"directory": ""}, "name the folder"),
        ({"cluster_id": ""}, "leave it out"),
        ({"topic": "a/b"}, "topic (kraftcore.topic) is 'a/b'"),
        ({"topic_id": ZERO_UUID}, "must be an id of a topic"),
        ({"fast_failover": "yes"}, "is 'yes': it must be true or false"),
    ],
)
def test_what_contradicts_is_named(settings: dict[str, Any], text: str) -> None:
    assert text in refused(**settings)


def test_what_must_be_given() -> None:
    for wrong, reason in [
        (lambda: NodeConfig(node_id=1), "directory (metadata.log.dir) is missing: the folder that holds the log"),  # type: ignore[call-arg]
        (lambda: NodeConfig(directory="/data"), "node_id (node.id) is missing: the node's id"),  # type: ignore[call-arg]
        (lambda: NodeConfig(1, "/data"), "settings have names: write NodeConfig(node_id=..., directory=..., ...)"),  # type: ignore[misc]
    ]:
        with pytest.raises(ConfigError) as caught:
            wrong()
        assert reason in str(caught.value)


ODD = [7, -1, 3.5, object(), b"x", "text", "", True, None, (), [7], [None], [b"x"], [["x"]], {}, {"a": 1}, {1: 2}, int]


@pytest.mark.parametrize("name", [*SETTINGS, *BROUGHT])
def test_whatever_is_given_is_kept_in_its_form_or_refused_by_name(name: str) -> None:
    form = GIVEN.forms[name]
    for value in ODD:
        try:
            kept = getattr(make(**{name: value}), name)
        except ConfigError as error:
            assert error.settings[0] == name or fits(value, form)  # it has the form, and contradicts something
            assert str(error).startswith((name, error.settings[0]))
        else:
            assert fits(value, form) or is_list(value)
            assert not isinstance(kept, list)
    assert make(**{name: getattr(make(), name)}) == make()


def test_passwords_are_not_in_what_is_said_of_a_wrong_value() -> None:
    for name in ("tls", "sasl", "listener_tls", "listener_sasl", "plugin_settings"):
        for value in ("secret", ["secret"], {"CONTROLLER": "secret"}, {"x": {"alice": "secret"}}):
            assert "secret" not in refused(**{name: value}).replace("sasl.secret", "")


def test_its_repr_is_one_line_of_what_was_given() -> None:
    text = (
        "NodeConfig(node_id=1, directory='/data', cluster_id='c', listeners=['CONTROLLER://127.0.0.1:9093'], "
        "voters=['1@a:1', '2@b:2'], create='join')"
    )
    config = make(voters="1@a:1,2@b:2", create="join", cluster_id="c")
    assert repr(config) == text
    assert eval(text) == config
    login = SaslLogin(mechanism="PLAIN", username="alice", password="hunter2")
    assert repr(login) == "SaslLogin(mechanism='PLAIN', username='alice')"
    open_to = SaslConfig(mechanisms=["PLAIN"], users={"alice": "hunter2"})
    config = make(
        sasl=login,
        listener_sasl={"CONTROLLER": open_to},
        plugins=["metrics"],
        plugin_settings={"metrics.key": "hunter2"},
    )
    assert "hunter2" not in repr(config)
    assert "SaslConfig(mechanisms=['PLAIN'])" in repr(config)


def test_an_editor_and_help_show_the_settings() -> None:
    parameters = inspect.signature(NodeConfig).parameters
    assert list(parameters) == [each.name for each in fields(NodeConfig)]
    assert all(each.kind is each.KEYWORD_ONLY for each in parameters.values())
    assert parameters["node_id"].default is parameters["directory"].default is inspect.Parameter.empty


def test_small_segments_make_small_batches() -> None:
    assert make(segment_bytes=1024).max_batch_bytes == 1024
    assert make().max_batch_bytes == 8 << 20


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]"])
def test_what_is_advertised_can_be_reached(host: str) -> None:
    listeners = [f"A://{host}:9093", "B://127.0.0.1:0", f"C://{host}:9095"]
    bound = [Endpoint("A", "0.0.0.0", 9093), Endpoint("B", "127.0.0.1", 5555), Endpoint("C", "::", 9095)]
    config = make(listeners=listeners, advertised_listeners=["C://outside:1"], voters="1@c1.example.com:19093")
    assert all(endpoint.host for endpoint in config.listeners)
    assert config.advertise(bound) == (
        Endpoint("A", "c1.example.com", 19093),
        Endpoint("B", "127.0.0.1", 5555),
        Endpoint("C", "outside", 1),
    )
    assert config.advertise(config.advertise(bound)) == config.advertise(bound)
    alone = make(listeners=listeners)
    assert alone.advertise(bound)[0] == Endpoint("A", socket.getfqdn(), 9093)


def test_limits_reach_the_transport_and_have_its_defaults() -> None:
    config = make()
    assert {each.name: getattr(config, each.name) for each in fields(Limits)} == asdict(Limits())
    limits = {each.name: 7_000_000_000 if "memory" in each.name else 70_000_000 for each in fields(Limits)}
    assert tcp_transport(make(**limits)).limits == Limits(**limits)
    assert "receive_memory_bytes" in refused(receive_memory_bytes=1 << 20)


def test_tls_settings() -> None:
    config = TlsConfig(certificate="c.pem", key_password="secret", client_auth="required")
    assert "secret" not in repr(config)
    assert "secret" not in repr(make(tls=config))
    two = ["A://h:1", "B://h:2"]
    assert make(listeners=two, listener_tls={"b": config}).listener_tls == {"B": config}
    assert make(listeners=two, tls=config, listener_tls={"B": None}).listener_tls == {"B": None}
    assert "C is none of the listeners, which are A, B" in refused(listeners=two, listener_tls={"C": config})
    for wrong in (None, [config], {"B": "node.pem"}):
        assert "it must be a dict, with a TlsConfig or None by a text" in refused(listeners=two, listener_tls=wrong)
    assert "A is the first listener" in refused(listeners=two, listener_tls={"A": config})
    assert TlsConfig(certificate=Path("c.pem")).certificate == "c.pem"
    assert repr(config) == "TlsConfig(certificate='c.pem', client_auth='required')"
    with pytest.raises(ConfigError, match="tls.ca is 7: it must be a text, a path or None"):
        TlsConfig(ca=7)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="tls has no setting certificat; did you mean certificate?"):
        TlsConfig(certificat="c.pem")  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="did you mean required"):
        TlsConfig(certificate="c.pem", client_auth="require")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=re.escape("tls.certificate (ssl.keystore.location) is empty")):
        TlsConfig(certificate="")
