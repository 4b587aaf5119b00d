"""The requests of clients and of other brokers that every broker answers: one entry a request.

`BrokerParts` has what a handler may need: ``replicas``, ``cache``, ``controllers`` (the way to the controller),
``deadlines``, ``now_ms``, ``image`` under a KRaft controller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kraftcore.metadata import Image
from kraftcore.node.registry import DESCRIBE_CLUSTER, Access, ListenerType, Priority, RequestHandler
from kraftcore.plugins.broker.api import not_coordinator
from kraftcore.plugins.broker.api.alter_replica_log_dirs import AlterReplicaLogDirs
from kraftcore.plugins.broker.api.auto_create import AutoCreate
from kraftcore.plugins.broker.api.config_changes import CHANGES, ConfigChanges
from kraftcore.plugins.broker.api.delete_records import DeleteRecords
from kraftcore.plugins.broker.api.describe_cluster import DescribeCluster
from kraftcore.plugins.broker.api.describe_delegation_token import DescribeDelegationToken
from kraftcore.plugins.broker.api.describe_log_dirs import DescribeLogDirs
from kraftcore.plugins.broker.api.describe_producers import DescribeProducers
from kraftcore.plugins.broker.api.describe_topic_partitions import DescribeTopicPartitions
from kraftcore.plugins.broker.api.describe_users import DescribeClientQuotas, DescribeUserScramCredentials
from kraftcore.plugins.broker.api.forwarding import Forwarding
from kraftcore.plugins.broker.api.image_questions import QUESTIONS, ImageQuestions, settings_of
from kraftcore.plugins.broker.api.init_producer_id import InitProducerId
from kraftcore.plugins.broker.api.list_config_resources import ListConfigResources
from kraftcore.plugins.broker.api.list_offsets import ListOffsets
from kraftcore.plugins.broker.api.list_transactions import ListTransactions
from kraftcore.plugins.broker.api.metadata import Metadata
from kraftcore.plugins.broker.api.offset_for_leader_epoch import OffsetForLeaderEpoch
from kraftcore.plugins.broker.api.produce import Produce
from kraftcore.plugins.broker.api.write_txn_markers import WriteTxnMarkers
from kraftcore.plugins.broker.broker_parts import BrokerParts
from kraftcore.plugins.broker.groups.handlers import group_handlers
from kraftcore.plugins.broker.producers.ids import ProducerIds
from kraftcore.plugins.controller.access import ACCESS
from kraftcore.plugins.controller.envelope import FORWARDABLE
from kraftcore.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kraftcore.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from kraftcore.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from kraftcore.protocol.messages.delete_records import DeleteRecordsRequest
from kraftcore.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from kraftcore.protocol.messages.describe_cluster import DescribeClusterRequest
from kraftcore.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from kraftcore.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from kraftcore.protocol.messages.describe_producers import DescribeProducersRequest
from kraftcore.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from kraftcore.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from kraftcore.protocol.messages.end_txn import EndTxnRequest
from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kraftcore.protocol.messages.list_config_resources import ListConfigResourcesRequest
from kraftcore.protocol.messages.list_offsets import ListOffsetsRequest
from kraftcore.protocol.messages.list_transactions import ListTransactionsRequest
from kraftcore.protocol.messages.metadata import MetadataRequest
from kraftcore.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kraftcore.protocol.messages.produce import ProduceRequest
from kraftcore.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from kraftcore.protocol.registry import api_of


def client_handlers(parts: BrokerParts) -> Iterator[RequestHandler]:
    """The handlers of the requests that a broker answers on its listeners, with either kind of controller."""
    for each in _client_handlers(parts):
        yield each._replace(respond=parts.leadership_wait.held(each.kind, parts.background.running(each.respond)))


def _client_handlers(parts: BrokerParts) -> Iterator[RequestHandler]:
    config, replicas = parts.config, parts.replicas
    permits, background = parts.permits, parts.background
    produce = Produce(
        replicas,
        parts.cache,
        parts.leaders,
        parts.deadlines,
        max_message_bytes=parts.max_message_bytes,
        now_ms=parts.now_ms,
        permits=permits,
        rules_of=parts.record_rules,
        gate=parts.gate,
        wall_ms=parts.wall_ms,
        do_aside=parts.do_aside,
        quotas=parts.quotas,
    )
    delete_records = DeleteRecords(
        replicas, parts.cache, permits, background, parts.disk, parts.now_ms, parts.may_delete
    )
    is_kraft = parts.image is not None
    forwarding = Forwarding(parts.controllers.send_to_controller, background, parts.cache, replicas)
    creating = None
    if is_kraft and config.auto_create_topics:
        factor = config.default_replication_factor
        creating = AutoCreate(forwarding, background, config.num_partitions, factor).create
    # Brokers of Kafka 4.3.1 ask each other in the versions that metadata.version says, without looking (KIP-584). Under
    # control requests: the versions of Kafka 3.9.1, but for those that Kafka 4 dropped.
    handlers: tuple[tuple[Any, tuple[int, int], Any], ...] = (
        (ProduceRequest, (3, 13 if is_kraft else 11), produce),
        (FetchRequest, (4, 18 if is_kraft else 17), parts.fetch),
        (ListOffsetsRequest, (1, 11 if is_kraft else 9), ListOffsets(replicas, permits, parts.do_aside)),
        (MetadataRequest, (0, 13 if is_kraft else 12), Metadata(parts.cache, parts.cluster_id, permits, creating)),
        (OffsetForLeaderEpochRequest, (2, 4), OffsetForLeaderEpoch(replicas, permits)),
        (DeleteRecordsRequest, (0, 2), delete_records),
        (AlterReplicaLogDirsRequest, (1, 2), AlterReplicaLogDirs(parts.moves, permits, background)),
        (DescribeLogDirsRequest, (1, 5 if is_kraft else 4), DescribeLogDirs(parts.dirs, replicas, permits)),
        (
            DescribeClusterRequest,
            (0, 2 if is_kraft else 1),
            DescribeCluster(parts.cache, parts.cluster_id, permits, parts.image),
        ),
    )
    for kind, versions, handler in handlers:
        yield broker_handler(kind, versions, handler.respond)._replace(
            # Kafka 4 answers from version 3 on and names 0, without which librdkafka does not compress (KAFKA-18659).
            advertised_from=0 if kind is ProduceRequest and is_kraft else None,
            is_awaited=kind in (DeleteRecordsRequest, AlterReplicaLogDirsRequest),
        )
    yield from group_handlers(parts)
    if parts.image is not None:
        yield from _kraft_handlers(parts, parts.image, forwarding)


def _kraft_handlers(parts: BrokerParts, image: Callable[[], Image], forwarding: Forwarding) -> Iterator[RequestHandler]:
    """What a broker answers from the metadata, or has a KRaft controller answer."""
    config, permits, background = parts.config, parts.permits, parts.background
    changes = ConfigChanges(forwarding, background, image, config.node_id)
    passed_on = [each for each in FORWARDABLE if "broker" in each.schema.listeners]
    for kind in sorted(passed_on, key=lambda each: api_of(each).key):
        respond = changes.respond if kind in CHANGES else forwarding.respond
        yield broker_handler(kind, None, respond)
    questions = ImageQuestions(
        image, settings_of(parts.cluster_id, config.node_id, config.static_configs), permits, parts.now_ms
    )
    for kind in QUESTIONS:
        asked = broker_handler(kind, None, questions.respond)
        yield asked._replace(access=ACCESS.get(kind), refuse=questions.refuse)
    for kind, handler, access in (
        (DescribeUserScramCredentialsRequest, DescribeUserScramCredentials(image), DESCRIBE_CLUSTER),
        (DescribeClientQuotasRequest, DescribeClientQuotas(image), Access("DESCRIBE_CONFIGS")),
        (ListConfigResourcesRequest, ListConfigResources(image, parts.cache), Access("DESCRIBE_CONFIGS")),
    ):
        yield broker_handler(kind, None, handler.respond)._replace(access=access)
    if parts.gate is not None and parts.transactions_topic is not None:
        ids = ProducerIds(config.node_id, parts.broker_epoch, parts.controllers.send_to_controller, background.start)
        init_producer_id = InitProducerId(
            ids, parts.cache, permits, background, parts.transactions_topic, parts.refusals
        )
        yield broker_handler(InitProducerIdRequest, (0, 5), init_producer_id.respond)
        around = parts.deadlines, parts.now_ms, parts.record_rules
        markers = WriteTxnMarkers(parts.replicas, parts.groups, parts.gate, permits, *around)
        yield broker_handler(WriteTxnMarkersRequest, None, markers.respond)
    yield broker_handler(AddPartitionsToTxnRequest, None, not_coordinator.AddPartitionsToTxn().respond)
    yield broker_handler(AddOffsetsToTxnRequest, None, not_coordinator.add_offsets)
    yield broker_handler(EndTxnRequest, None, not_coordinator.end_txn)
    topics = DescribeTopicPartitions(parts.cache, image, permits)
    yield broker_handler(DescribeTopicPartitionsRequest, None, topics.respond)
    producers = DescribeProducers(parts.replicas, parts.cache, permits)
    yield broker_handler(DescribeProducersRequest, None, producers.respond)
    tokens = DescribeDelegationToken(image, config.static_configs, permits)
    yield broker_handler(DescribeDelegationTokenRequest, None, tokens.respond)
    yield broker_handler(ListTransactionsRequest, None, ListTransactions(parts.replicas).respond)


def broker_handler(
    kind: Any, versions: tuple[int, int] | None, respond: Any, priority: Priority = Priority.DATA
) -> RequestHandler:
    """A handler on a broker's listeners; an error in it breaks the asker's connection, and nothing else."""
    return RequestHandler(
        kind,
        respond,
        priority=priority,
        versions=versions,
        owner="broker",
        is_vital=False,
        listener_type=ListenerType.BROKER,
    )
