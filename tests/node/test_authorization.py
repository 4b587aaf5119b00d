"""An application's own authorizer and principal builder, on nodes without a controller."""

from __future__ import annotations

import contextlib
import logging

import pytest
import trio
import trustme
from nodes import Values

from kraftcore import NodeConfig, open_node
from kraftcore.config.errors import ConfigError
from kraftcore.config.security import SaslConfig
from kraftcore.config.tls import TlsConfig
from kraftcore.errors import AuthenticationError
from kraftcore.node.plugin import Plugin
from kraftcore.node.plugin_node import plugin_node
from kraftcore.node.registry import DESCRIBE_CLUSTER, Access, RequestHandler
from kraftcore.ports.transport import Address
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.frames import decode_response, encode_request
from kraftcore.protocol.messages.describe_cluster import DescribeClusterRequest
from kraftcore.protocol.messages.describe_quorum import DescribeQuorumRequest
from kraftcore.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kraftcore.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kraftcore.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kraftcore.protocol.registry import api_of
from kraftcore.security.acl import Operation, ResourceType
from kraftcore.security.authorizer import Verdict
from kraftcore.security.principals import AuthenticationContext, Principal
from kraftcore.transports.tcp import TcpTransport, TlsFiles


class Own:
    """Notes questions; allows what is in ``allowed``."""

    def __init__(self, *allowed: Operation) -> None:
        self.allowed = set(allowed)
        self.questions: list[tuple[str, str, int, int, str]] = []

    def authorize(self, principal: str, host: str, operation: int, resource_type: int, resource_name: str) -> Verdict:
        self.questions.append((principal, host, operation, resource_type, resource_name))
        return Verdict.ALLOWED if operation in self.allowed else Verdict.DENIED


class Greeter(Plugin):
    """Answers requests that the node has no use for; one needs a topic, one the cluster, one nothing."""

    name = "greeter"

    @property
    def handlers(self):
        topic = Access("READ", "TOPIC", lambda request: [request.group_id])
        yield RequestHandler(HeartbeatRequest, lambda request, context: HeartbeatResponse(), topic)
        yield RequestHandler(ListGroupsRequest, lambda request, context: ListGroupsResponse(), DESCRIBE_CLUSTER)
        yield RequestHandler(FindCoordinatorRequest, lambda request, context: FindCoordinatorResponse(), None)


@contextlib.asynccontextmanager
async def asking(tmp_path, plugins=(), *, client_tls=None, **settings):
    """A node, and what asks it over TCP."""
    config = NodeConfig(
        node_id=1, directory=tmp_path / "node", listeners=["CONTROLLER://127.0.0.1:0"], create="standalone", **settings
    )
    async with open_node(config, Values(), plugins=plugins) as node, TcpTransport(tls=client_tls) as client:
        await node.wait_leader()
        endpoint = node.endpoints[0]

        async def ask(request, by=client):
            api = api_of(type(request))
            done, found = trio.Event(), []
            address, parts = Address(endpoint.host, endpoint.port), [encode_request(request, api.max_version, 1, "me")]
            by.request(address, parts, 30_000, lambda answer: (found.append(answer), done.set()))
            with trio.fail_after(60):
                await done.wait()
            answer = found[0]
            return decode_response(answer, api.key, api.max_version)[1] if isinstance(answer, bytes) else answer

        yield node, ask


def test_it_is_asked_for_the_nodes_own_requests(tmp_path, caplog):
    caplog.set_level(logging.INFO, "kraftcore.authorizer")

    async def main():
        own = Own(Operation.ALTER)
        async with asking(tmp_path, authorizer=own) as (node, ask):
            refused = await ask(DescribeQuorumRequest())
            assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            own.allowed.add(Operation.DESCRIBE)
            assert (await ask(DescribeQuorumRequest())).error_code == ErrorCode.NONE
            cluster = ("User:ANONYMOUS", "127.0.0.1", Operation.DESCRIBE, ResourceType.CLUSTER, "kafka-cluster")
            assert own.questions == [cluster, cluster]
            assert (plugin_node(node).authorization.allowed, plugin_node(node).authorization.denied) == (1, 1)
            assert (await ask(DescribeClusterRequest(endpoint_type=2))).error_code == ErrorCode.NONE
            assert own.questions[2][2] == Operation.ALTER

    trio.run(main)
    assert [each.getMessage() for each in caplog.records if each.name == "kraftcore.authorizer"] == [
        "Principal = User:ANONYMOUS is Denied operation = DESCRIBE from host = 127.0.0.1 on resource = "
        "Cluster:LITERAL:kafka-cluster for request = DescribeQuorum with resourceRefCount = 1 based on rule Own"
    ]


def test_it_is_asked_for_the_requests_of_plugins(tmp_path):
    async def main():
        own = Own()
        async with asking(tmp_path, [Greeter()], authorizer=own) as (_, ask):
            beat = HeartbeatRequest(group_id="g", member_id="m")
            assert (await ask(beat)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert own.questions[-1][2:] == (Operation.READ, ResourceType.TOPIC, "g")
            own.allowed.add(Operation.READ)
            assert (await ask(beat)).error_code == ErrorCode.NONE
            assert (await ask(ListGroupsRequest())).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            asked = len(own.questions)
            assert (await ask(FindCoordinatorRequest())).error_code == ErrorCode.NONE
            assert len(own.questions) == asked

    trio.run(main)


def test_a_principal_builder_says_who_it_is(tmp_path):
    seen: list[AuthenticationContext] = []

    class Builder:
        def build(self, context: AuthenticationContext) -> Principal:
            seen.append(context)
            if len(seen) > 1:
                raise AuthenticationError("not again")
            return Principal("Robot", "r2")

    async def main():
        own = Own(Operation.DESCRIBE)
        async with asking(tmp_path, authorizer=own, principal_builder=Builder()) as (_, ask):
            assert (await ask(DescribeQuorumRequest())).error_code == ErrorCode.NONE
            assert (await ask(DescribeQuorumRequest())).error_code == ErrorCode.NONE
            assert [question[0] for question in own.questions] == ["Robot:r2"] * 2
            assert len(seen) == 1
            assert (seen[0].listener, seen[0].certificate_subject, seen[0].identity) == ("CONTROLLER", None, None)
            async with TcpTransport(log=lambda line: None) as other:
                assert await ask(DescribeQuorumRequest(), other) is Failure.RESET
            assert len(seen) == 2

    trio.run(main)


def test_the_name_in_a_certificate(tmp_path):
    """The rules of the listener make a user of it; a name that none applies to is nobody."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))

    def issue(name, unit):
        path = tmp_path / f"{name}.pem"
        made = authority.issue_cert("127.0.0.1", common_name=name, organization_unit_name=unit)
        made.private_key_and_cert_chain_pem.write_to_path(str(path))
        return str(path)

    async def main():
        own = Own(Operation.DESCRIBE)
        tls = TlsConfig(
            certificate=issue("node", "voters"),
            ca=str(tmp_path / "ca.pem"),
            client_auth="requested",
            principal_mapping_rules="RULE:^CN=(.*?),OU=people,.*$/$1/L",
        )
        duke = TlsFiles(issue("Duke", "people"), None, tls.ca)
        async with asking(tmp_path, authorizer=own, tls=tls, client_tls=duke) as (_, ask):
            assert (await ask(DescribeQuorumRequest())).error_code == ErrorCode.NONE
            async with TcpTransport(tls=TlsFiles(None, None, tls.ca)) as nameless:
                assert (await ask(DescribeQuorumRequest(), nameless)).error_code == ErrorCode.NONE
            assert [question[0] for question in own.questions] == ["User:duke", "User:ANONYMOUS"]
            stranger = TlsFiles(issue("Eve", "robots"), None, tls.ca)
            async with TcpTransport(tls=stranger, log=lambda line: None) as other:
                assert await ask(DescribeQuorumRequest(), other) is Failure.RESET

    trio.run(main)


def test_a_listener_that_strangers_reach_is_named_at_the_start(tmp_path, caplog):
    authority = trustme.CA()
    made = authority.issue_cert("localhost").private_key_and_cert_chain_pem
    made.write_to_path(str(tmp_path / "node.pem"))
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))

    def tls(client_auth):
        return TlsConfig(certificate=str(tmp_path / "node.pem"), ca=str(tmp_path / "ca.pem"), client_auth=client_auth)

    logins = SaslConfig(mechanisms=("PLAIN",), users={"a": "b"})
    told = "node 1: nobody has to prove who they are on {}, which other machines can reach: set SASL_SSL"

    async def start(number, settings):
        listeners = ["L://127.0.0.1:0", "A://0.0.0.0:0", "B://localhost:0"]
        given = {"listeners": listeners, **settings}
        config = NodeConfig(node_id=1, directory=tmp_path / str(number), create="standalone", **given)
        caplog.clear()
        async with open_node(config, Values()) as node:
            return node.endpoints, [text for text in caplog.messages if "prove" in text]

    everywhere = {"listeners": ["L://0.0.0.0:0"]}
    for number, (settings, open_ones) in enumerate(
        [
            ({}, [1]),
            ({"listeners": ["L://127.0.0.1:0"]}, []),
            ({**everywhere, "tls": tls("none")}, [0]),
            ({**everywhere, "tls": tls("requested")}, [0]),
            ({**everywhere, "tls": tls("required")}, []),
            ({"listener_sasl": {"A": logins}}, []),
            ({"listeners": ["L://127.0.0.1:0", "A://0.0.0.0:0", "B://0.0.0.0:0"]}, [1, 2]),
        ]
    ):
        endpoints, lines = trio.run(start, number, settings)
        names = " and ".join(str(endpoints[at]) for at in open_ones)
        assert [line[: len(told.format(names))] for line in lines] == ([told.format(names)] if names else [])


@pytest.mark.parametrize(("setting", "method"), [("authorizer", "authorize"), ("principal_builder", "build")])
def test_what_has_not_the_method_is_refused(tmp_path, setting, method):
    with pytest.raises(ConfigError, match=f"{setting} is .*: it has no method {method}"):
        NodeConfig(node_id=1, directory=tmp_path, listeners=["127.0.0.1:0"], **{setting: object()})
