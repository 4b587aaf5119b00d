"""Kafka's tools and unmodified brokers log in at a controller of ours: every mechanism, with and without TLS."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from kafka_lab import HOST, KafkaLab, KafkaNode, ToolResult, free_port, wait_for
from kafka_tools import KafkaTools
from pem_stores import Stores, make_stores

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
# Nobody logs in at the brokers: they pass on what ANONYMOUS asks for.
SUPER_USERS = "User:broker;User:admin;User:ANONYMOUS"
PROTOCOLS = {"CONTROLLER": "SASL_SSL", "INNER": "SASL_PLAINTEXT"}


@dataclass
class Guarded:
    """A controller of ours with two listeners, and three brokers of Kafka's: each came in by another mechanism."""

    lab: KafkaLab
    places: Mapping[str, str]
    stores: Stores
    brokers: list[KafkaNode]

    def command_config(self, listener: str, mechanism: str, user: str, password: str) -> Path:
        """A file for Kafka's tools."""
        module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
        path = self.lab.folder / f"{listener}-{mechanism}-{user}.config"
        lines = {
            "security.protocol": PROTOCOLS[listener],
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{module} required username="{user}" password="{password}";',
            "default.api.timeout.ms": 20_000,
            "request.timeout.ms": 10_000,
            **(self.stores.trust if PROTOCOLS[listener] == "SASL_SSL" else {}),
        }
        path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        return path

    def tool(
        self,
        name: str,
        listener: str,
        mechanism: str,
        *arguments: object,
        user: str = "admin",
        password: str = "secret",
    ) -> ToolResult:
        """A tool of Kafka's at the controller."""
        config = self.command_config(listener, mechanism, user, password)
        return self.lab.tool(
            name, "--bootstrap-controller", self.places[listener], "--command-config", config, *arguments
        )


def node_properties(listener: str, mechanism: str, stores: Stores) -> dict[str, object]:
    """How a broker reaches the controller."""
    module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
    return {
        "controller.listener.names": listener,
        "listener.security.protocol.map": f"{listener}:{PROTOCOLS[listener]},PLAINTEXT:PLAINTEXT",
        "sasl.mechanism.controller.protocol": mechanism,
        f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config": (
            f'{module} required username="broker" password="secret";'
        ),
        "super.users": SUPER_USERS,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        **stores.trust,
    }


@pytest.fixture(scope="module")
def guarded(kafka: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    stores, inner = make_stores(folder), free_port()
    users = 'username="admin" password="secret" user_admin="secret" user_broker="secret"'
    with KafkaLab(kafka, folder) as lab:
        node = lab.kraftcore(1, kraftcore_offers_log=None)
        both = f"CONTROLLER://{node.address},INNER://{HOST}:{inner}"
        node.properties |= {
            "listeners": both,
            "advertised.listeners": both,
            "controller.listener.names": "CONTROLLER,INNER",
            "listener.security.protocol.map": ",".join(f"{name}:{each}" for name, each in PROTOCOLS.items()),
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "sasl.mechanism.controller.protocol": "PLAIN",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": SUPER_USERS,
            **{
                f"listener.name.{name.lower()}.plain.sasl.jaas.config": f"{PLAIN_MODULE} required {users};"
                for name in PROTOCOLS
            },
            **stores.properties,
        }
        node.write()
        added = [
            f"{mechanism}=[name={user},password=secret]" for mechanism in MECHANISMS[1:] for user in ("admin", "broker")
        ]
        arguments = itertools.chain.from_iterable(("--add-scram", each) for each in added)
        node.format("--standalone", *arguments).start().wait_listening()
        places = {"CONTROLLER": node.address, "INNER": f"{HOST}:{inner}"}
        brokers = []
        for number, (listener, mechanism) in enumerate(zip(("INNER", *PROTOCOLS), MECHANISMS, strict=True), 11):
            lab.bootstrap = [places[listener]]
            broker = lab.broker(number)
            broker.properties |= node_properties(listener, mechanism, stores)
            brokers.append(broker.write().format().start())
        for broker in brokers:
            broker.wait_listening()
        yield Guarded(lab, places, stores, brokers)


@pytest.mark.parametrize("listener", PROTOCOLS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_tools_log_in(guarded: Guarded, listener: str, mechanism: str) -> None:
    done = guarded.tool("quorum", listener, mechanism, "describe", "--status")
    assert done.status == 0, done
    assert "LeaderId:               1\n" in done.out
    user = f"user-{listener}-{mechanism}".lower()
    operation = ("--add", "--allow-principal", f"User:{user}", "--operation", "Describe", "--cluster")
    done = guarded.tool("acls", listener, mechanism, *operation)
    assert done.status == 0, done
    done = guarded.tool("acls", listener, mechanism, "--list", "--cluster")
    assert f"principal=User:{user}, host=*, operation=DESCRIBE, permissionType=ALLOW" in done.out, done


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_wrong_passwords(guarded: Guarded, mechanism: str) -> None:
    for user in ("admin", "nobody"):
        done = guarded.tool("quorum", "INNER", mechanism, "describe", "--status", user=user, password="wrong")
        assert done.status == 1
        text = "invalid credentials with SASL mechanism " + mechanism
        wanted = "Invalid username or password" if mechanism == "PLAIN" else text
        assert wanted in done.out + done.err, done


def test_a_user_made_by_a_tool_logs_in(guarded: Guarded) -> None:
    """kafka-configs through a broker; then the new user is refused what it may not, until it may."""
    change = ("--alter", "--entity-type", "users", "--entity-name", "carol", "--add-config")
    at = ("--bootstrap-server", guarded.brokers[0].address)
    wait_for(
        "the broker to pass it on",
        lambda: guarded.lab.tool("configs", *at, *change, "SCRAM-SHA-512=[iterations=5000,password=new]").status == 0,
    )
    carol = {"user": "carol", "password": "new"}
    describe = ("describe", "--status")
    refused = wait_for(
        "carol to be known",
        lambda: (
            (found := guarded.tool("quorum", "INNER", "SCRAM-SHA-512", *describe, **carol))
            and ("invalid credentials" not in found.out + found.err)
            and found
        ),
    )
    assert refused.status == 1
    assert "ClusterAuthorizationException" in refused.out + refused.err
    allow = ("--add", "--allow-principal", "User:carol", "--operation", "Alter", "--cluster")
    assert guarded.tool("acls", "INNER", "SCRAM-SHA-256", *allow).status == 0
    wait_for(
        "the entry to count", lambda: guarded.tool("quorum", "INNER", "SCRAM-SHA-512", *describe, **carol).status == 0
    )


def test_brokers_log_in(guarded: Guarded) -> None:
    """Each broker registered, is sent to, and passes on what its clients ask for."""
    at = ",".join(broker.address for broker in guarded.brokers)

    def made() -> bool:
        create = ("--create", "--if-not-exists", "--topic", "work", "--partitions", 4, "--replication-factor", 3)
        return guarded.lab.tool("topics", "--bootstrap-server", at, *create).status == 0

    wait_for("a topic on all brokers", made)

    def in_sync() -> bool:
        found = guarded.lab.tool("topics", "--bootstrap-server", at, "--describe", "--topic", "work").out
        return [sorted(ids.split(",")) for ids in re.findall(r"Isr: (\S+)", found)] == 4 * [["11", "12", "13"]]

    wait_for("all in sync", in_sync)
