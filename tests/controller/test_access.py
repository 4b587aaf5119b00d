"""What the authorizer is asked, and by which entries it decides: those of the image as it is."""

from __future__ import annotations

import contextlib
import logging
import random

import pytest
import trio
from memory_quorum import memory_quorum
from nodes import run
from plain_access import SUPER_USERS, is_allowed, random_acls, random_questions

from kraftcore import NodeConfig, open_node
from kraftcore.config.errors import ConfigError
from kraftcore.core.uuid import Uuid
from kraftcore.metadata import Image, MetadataMachine
from kraftcore.metadata.acls import Acl, acl_record
from kraftcore.node.authorization import Authorization
from kraftcore.node.plugin_node import plugin_node
from kraftcore.plugins.controller import Controller
from kraftcore.plugins.controller.access import ImageAuthorizer
from kraftcore.plugins.controller.settings import EARLY_KEY
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.features import METADATA_VERSION
from kraftcore.protocol.messages.create_acls import CreateAclsRequest
from kraftcore.protocol.messages.describe_quorum import DescribeQuorumRequest
from kraftcore.protocol.records.feature_level_record import FeatureLevelRecord
from kraftcore.protocol.records.remove_access_control_entry_record import RemoveAccessControlEntryRecord
from kraftcore.security.acl import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from kraftcore.security.audit import Action, Requester
from kraftcore.security.authorizer import CLASS_KEY, STANDARD_AUTHORIZER, SUPER_USERS_KEY, StandardAuthorizer, Verdict
from kraftcore.transports.memory import MemoryNetwork

ALICE = Requester("User:alice", "10.0.0.7", "CreateTopics")
ORDERS = Acl(ResourceType.TOPIC, "orders", PatternType.PREFIXED, "User:alice", "*", Operation.WRITE, Permission.ALLOW)


def image_of_a_cluster() -> Image:
    image = Image(ahead=True)
    image.apply(FeatureLevelRecord(name=METADATA_VERSION, feature_level=7))
    return image


def test_entries_follow_the_image_one_by_one(monkeypatch):
    """Records come, are taken back and come again; the index is made anew only for another image."""
    draw = random.Random(20261122)
    loads = []
    standard = StandardAuthorizer(SUPER_USERS)
    load = standard.load
    monkeypatch.setattr(standard, "load", lambda acls: (loads.append(1), load(acls)))
    images = [image_of_a_cluster()]
    authorizer = ImageAuthorizer(standard, lambda: images[0])

    def compare() -> None:
        acls = list(images[0].acls.values())
        for question in random_questions(draw, 20):
            wanted = Verdict.ALLOWED if is_allowed(acls, question, open_without=False) else Verdict.DENIED
            assert authorizer.authorize(*question) is wanted
        assert len(standard.acls) == len(acls)

    for number in range(300):
        image = images[0]
        ids = list(image.acls)
        what = draw.randrange(6)
        if what == 0:
            image.mark(number)
            for acl in random_acls(draw, 4):
                image.apply(acl_record(Uuid.random(draw.randbytes), acl))
            for acl_id in ids[:3]:
                image.apply(RemoveAccessControlEntryRecord(id=acl_id))
            compare()
            image.roll_back(number)
            image.forget_marks()
        elif what == 1 and ids:
            image.apply(RemoveAccessControlEntryRecord(id=draw.choice(ids)))
        elif what == 2 and draw.random() < 0.1:
            images[0] = image_of_a_cluster()
        else:
            image.apply(acl_record(Uuid.random(draw.randbytes), random_acls(draw, 1)[0]))
        compare()
    assert 1 <= len(loads) < 20


def test_until_there_is_a_log_only_super_users_are_known():
    images: list[Image | None] = [None]
    authorizer = ImageAuthorizer(StandardAuthorizer(["User:root"]), lambda: images[0])

    def ask(who: str) -> Verdict:
        return authorizer.authorize(who, "h", Operation.ALTER, ResourceType.CLUSTER, "kafka-cluster")

    for images[0] in (None, Image(), image_of_a_cluster(), None):
        is_there = images[0] is not None and bool(images[0].features)
        assert ask("User:root") is Verdict.ALLOWED
        assert ask("User:alice") is (Verdict.DENIED if is_there else Verdict.NOT_READY)


@pytest.fixture
def authorization() -> Authorization:
    standard = StandardAuthorizer(["User:root"])
    standard.load([ORDERS])
    return Authorization(standard)


def test_the_log_is_kafkas(authorization, caplog):
    caplog.set_level(logging.DEBUG, "kraftcore.authorizer")
    for action in (
        Action(Operation.CREATE, ResourceType.CLUSTER, "kafka-cluster", log_if_denied=False),
        Action(Operation.DESCRIBE, ResourceType.TOPIC, "orders.eu", references=2),
        Action(Operation.READ, ResourceType.TOPIC, "orders.eu"),
        Action(Operation.WRITE, ResourceType.TOPIC, "orders.eu", log_if_allowed=False),
    ):
        authorization.decide(ALICE, action)
    authorization.decide(ALICE._replace(principal="User:root"), Action(Operation.READ, ResourceType.GROUP, "g"))
    rule = (
        "MatchingAcl(acl=StandardAcl[resourceType=TOPIC, resourceName=orders, patternType=PREFIXED, "
        "principal=User:alice, host=*, operation=WRITE, permissionType=ALLOW])"
    )
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        (
            "DEBUG",
            "Principal = User:alice is Allowed operation = DESCRIBE from host = 10.0.0.7 on resource = "
            "Topic:LITERAL:orders.eu for request = CreateTopics with resourceRefCount = 2 based on rule " + rule,
        ),
        (
            "INFO",
            "Principal = User:alice is Denied operation = READ from host = 10.0.0.7 on resource = "
            "Topic:LITERAL:orders.eu for request = CreateTopics with resourceRefCount = 1 based on rule DefaultDeny",
        ),
        (
            "DEBUG",
            "Principal = User:root is Allowed operation = READ from host = 10.0.0.7 on resource = "
            "Group:LITERAL:g for request = CreateTopics with resourceRefCount = 1 based on rule SuperUser",
        ),
    ]
    assert (authorization.allowed, authorization.denied) == (3, 2)


def test_errors_by_the_type_of_the_resource(authorization):
    error = authorization.error
    assert error(ALICE, "WRITE", "TOPIC", ["orders", "orders.eu"]) is ErrorCode.NONE
    assert error(ALICE, "WRITE", "TOPIC", ["orders", "other"]) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert error(ALICE, "READ", "GROUP", ["g"]) is ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert error(ALICE, "ALTER", "CLUSTER") is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert error(ALICE, "CREATE_TOKENS", "USER", ["x"]) is ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    authorization.authorizer.is_ready = False  # type: ignore[attr-defined]
    assert error(ALICE, "WRITE", "TOPIC", ["orders"]) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_an_authorizer_of_an_applications_own_is_named_in_the_log(caplog):
    class Nobody:
        def authorize(self, *question: object) -> Verdict:
            return Verdict.DENIED

    caplog.set_level(logging.INFO, "kraftcore.authorizer")
    Authorization(Nobody()).decide(ALICE, Action(Operation.READ, ResourceType.TOPIC, "t"))
    assert caplog.messages[0].endswith("based on rule Nobody")


def test_a_late_listener_waits_for_the_entries(tmp_path):
    """KIP-801, early.start.listeners: what is not among them serves nobody before the log is there."""
    standard = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    properties = {CLASS_KEY: standard, SUPER_USERS_KEY: "User:ANONYMOUS", EARLY_KEY: " controller, "}
    network = MemoryNetwork()

    @contextlib.asynccontextmanager
    async def controller(number, **more):
        config = NodeConfig(
            node_id=number,
            directory=tmp_path / str(number),
            cluster_id="AAAAAAAAAAAAAAAAAAAAAQ",
            listeners=[f"CONTROLLER://n{number}:9001", f"ADMIN://n{number}:9002"],
            voters="1@n1:9001,2@n2:9001",
            create="join",
        )
        plugin = Controller({**properties, **more})
        async with (
            network.transport(f"n{number}") as transport,
            open_node(config, MetadataMachine(), transport=transport, plugins=[plugin]) as node,
        ):
            yield node

    async def main():
        async with controller(1) as node, trio.open_nursery() as nursery:
            answers = []

            async def ask(port):
                answers.append((port, await plugin_node(node).ask("n1", port, DescribeQuorumRequest(), 60_000)))

            nursery.start_soon(ask, 9002)
            with trio.fail_after(60):
                await ask(9001)
                assert [port for port, _ in answers] == [9001]
                async with controller(2):
                    while len(answers) < 2:
                        await trio.sleep(0.01)
            assert answers[1][0] == 9002
            assert [answer.error_code for _, answer in answers] == [ErrorCode.NONE] * 2
        with pytest.raises(ConfigError, match=r"early.start.listeners contains listener OTHER, but .* in listeners"):
            async with controller(1, **{EARLY_KEY: "OTHER"}):
                pass

    trio.run(main)


def test_part_of_the_log_decides_nothing(tmp_path):
    """A controller that catches up has not seen what denies; as Kafka's AclPublisher it is ready when it has."""
    plugins, seen = [], []
    question = ("User:eve", "h", Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    allowed = Acl(
        ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL, "User:eve", "*", Operation.DESCRIBE, Permission.ALLOW
    )
    creation = CreateAclsRequest.AclCreation

    def verdict():
        return plugins[-1].authorization.authorizer.authorize(*question)

    class Watching(MetadataMachine):
        def apply(self, batch):
            super().apply(batch)
            seen.append((self, self.offset, verdict()))

    def make():
        plugins.append(Controller({CLASS_KEY: STANDARD_AUTHORIZER, SUPER_USERS_KEY: "User:ANONYMOUS"}))
        return plugins[-1:]

    def create(about):
        return CreateAclsRequest(
            creations=[
                creation(
                    resource_type=about.resource_type,
                    resource_name=about.resource_name,
                    resource_pattern_type=about.pattern_type,
                    principal=about.principal,
                    host=about.host,
                    operation=about.operation,
                    permission_type=about.permission_type,
                )
            ]
        )

    async def main():
        async with memory_quorum(tmp_path, Watching, plugins=make, probe=False, fetch_max_bytes=1) as quorum:
            with trio.fail_after(60):
                while not (found := [node for node in quorum.nodes.values() if node.leading_epoch is not None]):
                    await trio.sleep(0.01)
                leader = found[0]
                number = next(each for each in quorum.nodes if each != leader.key.id)
                at = f"n{leader.key.id}", 9000 + leader.key.id

                async def ask(request):
                    answer = await plugin_node(leader).ask(*at, request, 30_000)
                    assert [each.error_code for each in answer.results] == [ErrorCode.NONE]

                await ask(create(allowed))
                await quorum.stop(number)
                for each in range(10):
                    await ask(create(allowed._replace(host=f"h{each}")))
                await ask(create(allowed._replace(permission_type=Permission.DENY)))
                end = leader.high_watermark
                await quorum.start(number)
                while verdict() is Verdict.NOT_READY:
                    await trio.sleep(0.01)
                assert verdict() is Verdict.DENIED
                mine = [(offset, each) for machine, offset, each in seen if machine is quorum.machines[number]]
                early = [each for offset, each in mine if offset < end]
                assert len(early) > 10 and set(early) == {Verdict.NOT_READY}

    run(main, limit_s=120)
