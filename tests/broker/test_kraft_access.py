"""A broker asks the authorizer: what an asker is not allowed to do, and what becomes possible with an entry."""

from __future__ import annotations

import logging

import pytest
import trio
from broker_rig import until
from kraft_rig import open_kraft_rig
from noted_request import NotedRequest

from kraftcore.core.batch import build_batch
from kraftcore.metadata.acls import Acl
from kraftcore.node.authorization import Authorization
from kraftcore.plugins.broker.api.init_producer_id import InitProducerId
from kraftcore.plugins.broker.api.permits import Permits
from kraftcore.plugins.broker.metadata.cache import RequestCache
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.create_acls import CreateAclsRequest
from kraftcore.protocol.messages.delete_records import DeleteRecordsRequest
from kraftcore.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from kraftcore.protocol.messages.describe_configs import DescribeConfigsRequest
from kraftcore.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from kraftcore.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kraftcore.protocol.messages.list_offsets import ListOffsetsRequest
from kraftcore.protocol.messages.metadata import MetadataRequest
from kraftcore.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kraftcore.protocol.messages.produce import ProduceRequest
from kraftcore.security.acl import Operation, PatternType, Permission, ResourceType
from kraftcore.security.authorizer import StandardAuthorizer, Verdict

AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
DENIED, NO_CLUSTER = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class Asker:
    """Somebody without a name; to the controller he may do everything."""

    def __init__(self, rig):
        self.rig = rig

    async def allow(self, operation, kind=ResourceType.TOPIC, name="t"):
        entry = CreateAclsRequest.AclCreation(
            resource_type=kind,
            resource_name=name,
            resource_pattern_type=3,
            principal="User:ANONYMOUS",
            host="*",
            operation=operation,
            permission_type=3,
        )
        before = len(self.rig.image(1).acls)
        answer = await self.rig.ask_controller(CreateAclsRequest(creations=[entry]), 3)
        assert answer.results[0].error_code == 0
        await until(lambda: len(self.rig.image(1).acls) > before)

    async def produce(self):
        kind = ProduceRequest.TopicProduceData
        part = kind.PartitionProduceData(index=0, records=build_batch([b"v"], timestamp_ms=1))
        request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[kind(name="t", partition_data=[part])])
        return (await self.rig.ask(1, request, 9)).responses[0].partition_responses[0].error_code

    async def fetch(self, replica_id=-1):
        kind = FetchRequest.FetchTopic
        asked = kind.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        request = FetchRequest(replica_id=replica_id, max_wait_ms=0, topics=[kind(topic="t", partitions=[asked])])
        return (await self.rig.ask(1, request, 12)).responses[0].partitions[0].error_code

    async def list_offsets(self):
        kind = ListOffsetsRequest.ListOffsetsTopic
        part = kind.ListOffsetsPartition(partition_index=0, timestamp=-1)
        request = ListOffsetsRequest(replica_id=-1, topics=[kind(name="t", partitions=[part])])
        return (await self.rig.ask(1, request, 7)).topics[0].partitions[0].error_code

    async def end_of_epoch(self):
        kind = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        part = kind.OffsetForLeaderPartition(partition=0, leader_epoch=0)
        request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[kind(topic="t", partitions=[part])])
        return (await self.rig.ask(1, request, 4)).topics[0].partitions[0].error_code

    async def delete_records(self):
        kind = DeleteRecordsRequest.DeleteRecordsTopic
        part = kind.DeleteRecordsPartition(partition_index=0, offset=0)
        request = DeleteRecordsRequest(topics=[kind(name="t", partitions=[part])], timeout_ms=10_000)
        return (await self.rig.ask(1, request, 2)).topics[0].partitions[0].error_code

    async def metadata(self, *names):
        topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names] or None
        answer = await self.rig.ask(1, MetadataRequest(topics=topics, include_topic_authorized_operations=True), 12)
        return {told.name: told.error_code for told in answer.topics}

    async def describe(self, *names):
        kind = DescribeTopicPartitionsRequest
        request = kind(topics=[kind.TopicRequest(name=name) for name in names])
        answer = await self.rig.ask(1, request, 0)
        return {told.name: (told.error_code, told.topic_authorized_operations) for told in answer.topics}

    async def configs(self):
        kind = DescribeConfigsRequest.DescribeConfigsResource
        asked = kind(resource_type=2, resource_name="t", configuration_keys=None)
        return (await self.rig.ask(1, DescribeConfigsRequest(resources=[asked]), 4)).results[0].error_code


class ByName:
    """An application's authorizer: everybody may do everything to the topics of one name."""

    def authorize(self, principal, host, operation, resource_type, resource_name):
        return Verdict.ALLOWED if resource_name == "mine" else Verdict.DENIED


@pytest.mark.parametrize(
    ("authorizer", "topics", "error"),
    [
        (StandardAuthorizer(), [], NO_CLUSTER),
        (StandardAuthorizer(), ["a", "app-1", "b"], NO_CLUSTER),
        (StandardAuthorizer(), [], ErrorCode.NONE),
        (ByName(), ["a", "mine"], ErrorCode.NONE),
        (ByName(), ["a", "b"], NO_CLUSTER),
    ],
    ids=["nothing is allowed", "nothing of three", "a prefix of no topic", "one of two by name", "none by name"],
)
def test_ids_are_for_whoever_may_write_to_some_topic_there_or_not(authorizer, topics, error, caplog):
    if isinstance(authorizer, StandardAuthorizer):
        kind, prefixed = ResourceType.TOPIC, PatternType.PREFIXED
        entry = Acl(kind, "app-", prefixed, "User:ANONYMOUS", "*", Operation.WRITE, Permission.ALLOW)
        authorizer.load([entry] if error is ErrorCode.NONE else [])
    caplog.set_level(logging.INFO, "kraftcore.authorizer")
    cache = RequestCache()
    cache.topics = {name: {} for name in topics}
    authorization = Authorization(authorizer)
    ids = InitProducerId(None, cache, Permits(lambda: authorization), Started(), None, None)
    context = NotedRequest(5, "h:1", "B")
    answer = ids.respond(InitProducerIdRequest(producer_id=-1, producer_epoch=-1, transactional_id=None), context)
    assert (ErrorCode.NONE if answer is None else answer.error_code) == error
    lines = [each.getMessage() for each in caplog.records]
    assert len(lines) == (0 if error is ErrorCode.NONE else 1), lines  # however many topics there are
    assert all("Denied operation = WRITE" in line and "Topic:LITERAL:*" in line for line in lines)


class Started:
    """Takes what is to be answered in the background."""

    def answer(self, context, work):
        pass


def test_each_request_is_asked_about(tmp_path):
    async def main():
        async with open_kraft_rig(tmp_path) as rig:
            rig.controller_properties |= {**AUTHORIZER, "super.users": "User:ANONYMOUS"}
            rig.broker_properties |= AUTHORIZER
            await rig.begin(1)
            asker = Asker(rig)
            for ask in (asker.produce, asker.fetch, asker.list_offsets, asker.end_of_epoch, asker.delete_records):
                assert await ask() == DENIED, ask
            assert await asker.fetch(replica_id=2) == DENIED
            assert await asker.configs() == DENIED
            assert (await asker.metadata(), await asker.metadata("t", "u")) == ({}, {"t": DENIED, "u": DENIED})
            assert (await asker.describe(), await asker.describe("t")) == ({}, {"t": (DENIED, -(2**31))})
            answer = await rig.ask(1, InitProducerIdRequest(transactional_id=None), 5)
            assert answer.error_code == NO_CLUSTER
            for request, version in ((DescribeLogDirsRequest(topics=None), 4), (DescribeClientQuotasRequest(), 1)):
                assert (await rig.ask(1, request, version)).error_code == NO_CLUSTER

            await asker.allow(Operation.DESCRIBE)
            assert await asker.list_offsets() == await asker.end_of_epoch() == 0
            assert await asker.metadata() == {"t": 0}
            assert await asker.describe() == {"t": (0, 1 << Operation.DESCRIBE)}
            assert await asker.produce() == DENIED
            await asker.allow(Operation.WRITE)
            assert await asker.produce() == 0
            assert (await rig.ask(1, InitProducerIdRequest(transactional_id=None), 5)).error_code == 0
            assert await asker.fetch() == DENIED
            await asker.allow(Operation.READ)
            assert await asker.fetch() == 0
            await asker.allow(Operation.DELETE)
            assert await asker.delete_records() == 0
            await asker.allow(Operation.DESCRIBE_CONFIGS)
            assert await asker.configs() == 0
            # Topics are made for whoever may make them.
            await asker.allow(Operation.DESCRIBE, name="u")
            assert await asker.metadata("u") == {"u": DENIED}
            await asker.allow(Operation.CREATE, name="u")
            assert await asker.metadata("u") == {"u": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            await until(lambda: rig.row("u"))
            await asker.allow(Operation.DESCRIBE, ResourceType.CLUSTER, "kafka-cluster")
            assert (await rig.ask(1, DescribeLogDirsRequest(topics=None), 4)).error_code == 0

    trio.run(main)
