"""Topics: create, delete, describe, list, add partitions. Source: KIP-4, 195, 516, 599, 966; Kafka 4.3.1's client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kraftcore.admin.calls import Calls, all_told, check_active, settle
from kraftcore.admin.router import raise_refusal, refusal
from kraftcore.core.uuid import Uuid
from kraftcore.errors import LocalError, RefusedError, RemoteProtocolError, UnsupportedVersionError
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from kraftcore.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from kraftcore.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from kraftcore.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from kraftcore.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kraftcore.protocol.registry import ApiKey

_BY_NAME, _BY_ID = 4, 12  # versions of Metadata: without creating topics; with topic ids in requests
_MISSING = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name, ErrorCode.UNKNOWN_TOPIC_ID.name)


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create.

    Attributes:
        name: up to 249 ASCII letters, digits, ``.``, ``_``, ``-``.
        partitions: how many, >= 1; None: the cluster's ``num.partitions``.
        replication_factor: replicas of each partition, 1 to 32767; None: the cluster's ``default.replication.factor``.
        assignment: broker ids of each partition's replicas, the preferred leader first; instead of the two numbers.
        configs: values by key; keys that are not in it have their defaults.
    """

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignment: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.assignment is not None and (self.partitions, self.replication_factor) != (None, None):
            raise LocalError(f"topic {self.name}: give an assignment, or numbers of partitions and replicas")


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic that was created, or would be.

    Attributes:
        id: its id; zero when it was only checked.
        partitions: how many; None if the asker may not know, or the broker is older than Kafka 2.4.
        replication_factor: replicas of each partition; None as for ``partitions``.
    """

    id: Uuid
    partitions: int | None
    replication_factor: int | None


@dataclass(frozen=True, slots=True)
class TopicListing:
    """A topic in a list of topics.

    Attributes:
        name: its name.
        id: its id.
        is_internal: whether it is one of Kafka's own, such as ``__consumer_offsets``.
    """

    name: str
    id: Uuid
    is_internal: bool


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition, by a broker's metadata.

    Attributes:
        number: from 0.
        leader_id: broker id; None if there is no leader.
        leader_epoch: -1 if the broker does not say.
        replicas: broker ids, the preferred leader first.
        isr: broker ids of the in-sync replicas.
        eligible_leaders: ids of brokers that may lead though not in sync (KIP-966); None if the broker does not say.
        last_known_eligible: ids of brokers that were last eligible, when no broker is (KIP-966); None if the broker
            does not say.
    """

    number: int
    leader_id: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    eligible_leaders: tuple[int, ...] | None = None
    last_known_eligible: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic and its partitions.

    Attributes:
        name: its name.
        id: its id.
        is_internal: whether it is one of Kafka's own.
        partitions: by number.
    """

    name: str
    id: Uuid
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """How many partitions a topic shall have.

    Attributes:
        total: number of partitions, present ones included.
        assignment: broker ids of each new partition's replicas, in order; None: the controller places them.
    """

    total: int
    assignment: Sequence[Sequence[int]] | None = None


class TopicCalls(Calls):
    """Calls about topics; see ``AdminClient`` for the errors that all of them raise."""

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, retry_throttled: bool = True
    ) -> Mapping[str, CreatedTopic]:
        """Create topics; each by itself, so that some may be created and some refused.

        Args:
            topics: with different names.
            validate_only: check, create nothing.
            retry_throttled: wait and ask again for topics that ``controller_mutation_rate`` holds back.

        Returns:
            The topics' ids and sizes, by name.

        Raises:
            LocalError: a name is given twice.
            PartlyRefusedError: by name. TOPIC_ALREADY_EXISTS (also after an answer got lost), INVALID_TOPIC_EXCEPTION,
                INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG,
                POLICY_VIOLATION, TOPIC_AUTHORIZATION_FAILED, THROTTLING_QUOTA_EXCEEDED.
        """
        listed = tuple(topics)
        wanted = {topic.name: topic for topic in listed}
        if len(wanted) < len(listed):
            raise LocalError("a topic is named twice")

        async def ask(names: list[str]) -> tuple[int, Mapping[str, CreatedTopic | RefusedError]]:
            response = await self._router.call(
                "createTopics",
                CreateTopicsRequest(
                    topics=[_creatable(wanted[name]) for name in names],
                    timeout_ms=self._timeout_ms,
                    validate_only=validate_only,
                ),
                CreateTopicsResponse,
                lambda answer: check_active(each.error_code for each in answer.topics),
            )
            told = {each.name: _created(each) for each in response.topics}
            return response.throttle_time_ms, all_told(names, told)

        return settle(await self._past_quotas(wanted, ask, retry=retry_throttled))

    async def delete_topics(
        self, names: Iterable[str] = (), *, ids: Iterable[Uuid] = (), retry_throttled: bool = True
    ) -> None:
        """Delete topics, by name or by id.

        Args:
            names: of topics.
            ids: of topics (KIP-516), instead of names. Without any, nothing is sent.
            retry_throttled: as for ``create_topics``.

        Raises:
            LocalError: both are given.
            PartlyRefusedError: by name or id. UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID (also after an answer got
                lost), TOPIC_DELETION_DISABLED, TOPIC_AUTHORIZATION_FAILED, THROTTLING_QUOTA_EXCEEDED.
        """
        by_name, by_id = tuple(dict.fromkeys(names)), tuple(dict.fromkeys(ids))
        if by_name and by_id:
            raise LocalError("give names or ids of topics")

        async def ask(keys: list[str | Uuid]) -> tuple[int, Mapping[str | Uuid, bool | RefusedError]]:
            state = DeleteTopicsRequest.DeleteTopicState
            request = DeleteTopicsRequest(
                topics=[state(topic_id=key) if isinstance(key, Uuid) else state(name=key) for key in keys],
                topic_names=[key for key in keys if isinstance(key, str)],
                timeout_ms=self._timeout_ms,
            )
            response = await self._router.call(
                "deleteTopics",
                request,
                DeleteTopicsResponse,
                lambda answer: check_active(each.error_code for each in answer.responses),
                min_version=6 if by_id else 1,
            )
            told: dict[str | Uuid, bool | RefusedError] = {
                each.topic_id if by_id else each.name or "": refusal(each.error_code, each.error_message) or True
                for each in response.responses
            }
            return response.throttle_time_ms, all_told(keys, told)

        keys: tuple[str | Uuid, ...] = by_id or by_name
        settle(await self._past_quotas(keys, ask, retry=retry_throttled))

    async def create_partitions(
        self, wanted: Mapping[str, NewPartitions], *, validate_only: bool = False, retry_throttled: bool = True
    ) -> None:
        """Give topics more partitions (KIP-195); records with a key may go to another partition from then on.

        Args:
            wanted: by name of the topic.
            validate_only: check, change nothing.
            retry_throttled: as for ``create_topics``.

        Raises:
            PartlyRefusedError: by name. UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS (not more than there are),
                INVALID_REPLICA_ASSIGNMENT, POLICY_VIOLATION, TOPIC_AUTHORIZATION_FAILED, THROTTLING_QUOTA_EXCEEDED.
        """

        async def ask(names: list[str]) -> tuple[int, Mapping[str, bool | RefusedError]]:
            topic = CreatePartitionsRequest.CreatePartitionsTopic
            request = CreatePartitionsRequest(
                topics=[topic(name=name, count=wanted[name].total, assignments=_added(wanted[name])) for name in names],
                timeout_ms=self._timeout_ms,
                validate_only=validate_only,
            )
            response = await self._router.call(
                "createPartitions",
                request,
                CreatePartitionsResponse,
                lambda answer: check_active(each.error_code for each in answer.results),
            )
            told = {each.name: refusal(each.error_code, each.error_message) or True for each in response.results}
            return response.throttle_time_ms, all_told(names, told)

        settle(await self._past_quotas(wanted, ask, retry=retry_throttled))

    async def list_topics(self, *, include_internal: bool = True) -> tuple[TopicListing, ...]:
        """All topics that the asker may see, by name. Only through brokers.

        Args:
            include_internal: Kafka's own as well.

        Raises:
            RefusedError: UNSUPPORTED_ENDPOINT_TYPE: the client is connected to controllers.
        """
        self._need_brokers()
        response = await self._router.call(
            "listTopics",
            MetadataRequest(topics=None, allow_auto_topic_creation=False),
            MetadataResponse,
            lambda answer: raise_refusal(answer.error_code, None),
            min_version=1,
        )
        found = (
            TopicListing(topic.name, topic.topic_id, topic.is_internal)
            for topic in response.topics
            if topic.name is not None and (include_internal or not topic.is_internal)
        )
        return tuple(sorted(found, key=lambda topic: topic.name))

    async def describe_topics(
        self, names: Iterable[str], *, partitions_per_answer: int = 2000
    ) -> Mapping[str, TopicDescription]:
        """Topics with their partitions, as one broker knows them now. Only through brokers.

        Args:
            names: of topics.
            partitions_per_answer: most partitions to ask for at once (KIP-966); >= 1.

        Returns:
            By name, in the order of ``names``.

        Raises:
            PartlyRefusedError: by name. UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION.
            RefusedError: UNSUPPORTED_ENDPOINT_TYPE: the client is connected to controllers.
        """
        self._need_brokers()
        wanted = tuple(dict.fromkeys(names))
        if not wanted:
            return {}
        try:
            return settle(all_told(wanted, await self._describe_in_parts(wanted, partitions_per_answer)))
        except UnsupportedVersionError as error:
            if ApiKey.DESCRIBE_TOPIC_PARTITIONS.name not in str(error):
                raise
        topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in wanted]
        found = await self._metadata("describeTopics", topics, _BY_NAME)
        return settle(all_told(wanted, {topic.name or "": _from_metadata(topic) for topic in found.topics}))

    async def describe_topics_by_id(self, ids: Iterable[Uuid]) -> Mapping[Uuid, TopicDescription]:
        """Describe topics by id (KIP-516), as ``describe_topics`` does, but without eligible leaders.

        Raises:
            PartlyRefusedError: by id. UNKNOWN_TOPIC_ID.
            RefusedError: UNSUPPORTED_ENDPOINT_TYPE: the client is connected to controllers.
        """
        self._need_brokers()
        wanted = tuple(dict.fromkeys(ids))
        if not wanted:
            return {}
        topics = [MetadataRequest.MetadataRequestTopic(topic_id=each, name=None) for each in wanted]
        found = await self._metadata("describeTopicsWithIds", topics, _BY_ID)
        return settle(all_told(wanted, {topic.topic_id: _from_metadata(topic) for topic in found.topics}))

    async def _metadata(
        self, name: str, topics: list[MetadataRequest.MetadataRequestTopic], min_version: int
    ) -> MetadataResponse:
        return await self._router.call(
            name,
            MetadataRequest(topics=topics, allow_auto_topic_creation=False),
            MetadataResponse,
            lambda answer: raise_refusal(answer.error_code, None),
            min_version=min_version,
        )

    async def _describe_in_parts(
        self, names: tuple[str, ...], at_once: int
    ) -> Mapping[str, TopicDescription | RefusedError]:
        described: dict[str, TopicDescription | RefusedError] = {}
        # Brokers sort by name; topics before the cursor were in earlier answers.
        left, cursor = sorted(names), None
        while left:
            response = await self._router.call(
                "describeTopicPartitions",
                DescribeTopicPartitionsRequest(
                    topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in left],
                    response_partition_limit=at_once,
                    cursor=cursor,
                ),
                DescribeTopicPartitionsResponse,
                lambda _: None,
            )
            for topic in response.topics:
                _add_part(described, topic)
            following = response.next_cursor
            if following is None:
                break
            where = (following.topic_name, following.partition_index)
            if cursor is not None and where <= (cursor.topic_name, cursor.partition_index):
                raise RemoteProtocolError(f"the cursor does not advance beyond {where}")
            left = [name for name in left if name >= following.topic_name]
            cursor = DescribeTopicPartitionsRequest.Cursor(topic_name=where[0], partition_index=where[1])
        return described


def is_missing(error: object) -> bool:
    """Whether an error says that there is no such topic or partition."""
    return isinstance(error, RefusedError) and error.error in _MISSING


def _creatable(topic: NewTopic) -> CreateTopicsRequest.CreatableTopic:
    creatable = CreateTopicsRequest.CreatableTopic
    return creatable(
        name=topic.name,
        num_partitions=-1 if topic.partitions is None else topic.partitions,
        replication_factor=-1 if topic.replication_factor is None else topic.replication_factor,
        assignments=[
            creatable.CreatableReplicaAssignment(partition_index=number, broker_ids=list(replicas))
            for number, replicas in (topic.assignment or {}).items()
        ],
        configs=[creatable.CreatableTopicConfig(name=key, value=value) for key, value in topic.configs.items()],
    )


def _created(result: CreateTopicsResponse.CreatableTopicResult) -> CreatedTopic | RefusedError:
    error = refusal(result.error_code, result.error_message)
    if error is not None:
        return error
    partitions, factor = result.num_partitions, result.replication_factor
    return CreatedTopic(result.topic_id, None if partitions < 0 else partitions, None if factor < 0 else factor)


def _added(
    wanted: NewPartitions,
) -> list[CreatePartitionsRequest.CreatePartitionsTopic.CreatePartitionsAssignment] | None:
    if wanted.assignment is None:
        return None
    assignment = CreatePartitionsRequest.CreatePartitionsTopic.CreatePartitionsAssignment
    return [assignment(broker_ids=list(replicas)) for replicas in wanted.assignment]


def _add_part(
    described: dict[str, TopicDescription | RefusedError],
    topic: DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic,
) -> None:
    name = topic.name or ""
    error = refusal(topic.error_code, None)
    if error is not None:
        described[name] = error
        return
    parts = tuple(
        PartitionDescription(
            each.partition_index,
            None if each.leader_id < 0 else each.leader_id,
            each.leader_epoch,
            tuple(each.replica_nodes),
            tuple(each.isr_nodes),
            None if each.eligible_leader_replicas is None else tuple(each.eligible_leader_replicas),
            None if each.last_known_elr is None else tuple(each.last_known_elr),
        )
        for each in topic.partitions
    )
    before = described.get(name)
    known = before.partitions if isinstance(before, TopicDescription) else ()
    ordered = sorted((*known, *parts), key=lambda part: part.number)
    described[name] = TopicDescription(name, topic.topic_id, topic.is_internal, tuple(ordered))


def _from_metadata(topic: MetadataResponse.MetadataResponseTopic) -> TopicDescription | RefusedError:
    error = refusal(topic.error_code, None)
    if error is not None:
        return error
    parts = (
        PartitionDescription(
            each.partition_index,
            None if each.leader_id < 0 else each.leader_id,
            each.leader_epoch,
            tuple(each.replica_nodes),
            tuple(each.isr_nodes),
        )
        for each in topic.partitions
    )
    ordered = tuple(sorted(parts, key=lambda part: part.number))
    return TopicDescription(topic.name or "", topic.topic_id, topic.is_internal, ordered)
