"""CreateTopics, DeleteTopics (by name and by id, KIP-516), CreatePartitions.

Each topic of a request succeeds or fails on its own; the records of all that succeed follow each other. A name that is
given twice is refused, in one answer, and none of its entries is carried out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kraftcore.core.uuid import Uuid
from kraftcore.metadata import Broker
from kraftcore.partition_rules.partition_change import PartitionRules
from kraftcore.plugins.controller.assignments import check_assignment
from kraftcore.plugins.controller.decision import (
    MAX_RECORDS,
    Api,
    Context,
    ControllerResult,
    Record,
    Refusal,
    allow_all,
    check_item_count,
    check_record_count,
    check_time,
)
from kraftcore.plugins.controller.placement import UsableBroker, place
from kraftcore.plugins.controller.topic_configs import (
    created_configs,
    topic_config_records,
    validate_topic_configs,
)
from kraftcore.plugins.controller.topic_names import what_is_wrong
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from kraftcore.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from kraftcore.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from kraftcore.protocol.records.partition_record import PartitionRecord
from kraftcore.protocol.records.remove_topic_record import RemoveTopicRecord
from kraftcore.protocol.records.topic_record import TopicRecord
from kraftcore.protocol.schema import Request
from kraftcore.protocol.topics import METADATA_TOPIC
from kraftcore.security.audit import Action

_TOPIC, _CLUSTER, _CLUSTER_NAME = 2, 4, "kafka-cluster"  # resource types of permissions, and the one cluster's name
_CREATE, _DELETE, _ALTER, _DESCRIBE, _DESCRIBE_CONFIGS = 5, 6, 7, 8, 10  # operations
_USE_DEFAULT: Final = -1
_ANSWERS_CONFIGS_FROM: Final = 5
_FIBONACCI_HASH: Final = 0x9E3779B97F4A7C15
_DUPLICATE: Final = "Duplicate topic name."
_TOO_MANY: Final = "Excessively large number of partitions per request."
_NOBODY_ACTIVE: Final = "All brokers are currently fenced or in controlled shutdown."

_NewTopic = CreateTopicsRequest.CreatableTopic
_Created = CreateTopicsResponse.CreatableTopicResult
_Deleted = DeleteTopicsResponse.DeletableTopicResult
_Grown = CreatePartitionsResponse.CreatePartitionsTopicResult
_Partitions = list[tuple[Sequence[int], list[int]]]


def _may(context: Context, operation: int, names: Iterable[str], *, log_if_denied: bool = True) -> set[str]:
    if context.is_allowed is allow_all:
        return set(names)
    return {name for name in names if context.is_allowed(Action(operation, _TOPIC, name, log_if_denied=log_if_denied))}


def _may_on_cluster(context: Context, operation: int) -> bool:
    """Whether the operation is allowed on the cluster, so that topics need not be asked about one by one."""
    return context.is_allowed(Action(operation, _CLUSTER, _CLUSTER_NAME, log_if_denied=False))


# --- partitions that begin


def _place(context: Context, partitions: int, replication_factor: int) -> list[tuple[int, ...]]:
    """Choose replicas on brokers that may get new replicas."""
    return place(_usable(context), partitions, replication_factor, context.random)


def _usable(context: Context) -> Iterator[UsableBroker]:
    soft = context.soft
    broker: Broker
    for broker in context.image.brokers.values():
        session = soft.session(broker.id, broker.epoch)
        if broker.has_uncordoned_directory and not (session is not None and session.is_shutting_down):
            yield UsableBroker(broker.id, broker.rack, broker.is_fenced)


def _in_sync(context: Context, replicas: Sequence[int]) -> list[int]:
    """The first ISR of a partition: its replicas on active brokers (KIP-841)."""
    brokers = context.image.brokers
    return [broker_id for broker_id in replicas if brokers[broker_id].is_active]


def _rules(context: Context) -> PartitionRules:
    features = context.image.features
    return PartitionRules(features.metadata_version_or_minimum, features.is_elr_on, context.image.brokers)


def _partition_records(rules: PartitionRules, topic_id: Uuid, first: int, partitions: _Partitions) -> list[Record]:
    """Records of new partitions, numbered from ``first``. The first replica in the ISR leads."""
    has_directories = rules.version >= 1
    used = {broker_id for replicas, _ in partitions for broker_id in replicas}
    directories = {broker_id: rules.default_directory(broker_id) for broker_id in used}
    return [
        (
            PartitionRecord(
                partition_id=number,
                topic_id=topic_id,
                replicas=list(replicas),
                isr=isr,
                leader=isr[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=[directories[broker_id] for broker_id in replicas] if has_directories else [],
            ),
            rules.version,
        )
        for number, (replicas, isr) in enumerate(partitions, first)
    ]


def _assigned_in_sync(context: Context, number: int, replicas: Sequence[int]) -> list[int]:
    """The ISR of a partition that an administrator assigned.

    Raises:
        Refusal: INVALID_REPLICA_ASSIGNMENT: no replica could lead it.
    """
    isr = _in_sync(context, replicas)
    if not isr:
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"All brokers specified in the manual partition assignment for partition {number} are fenced or in "
            "controlled shutdown.",
        )
    return isr


def _placed_in_sync(context: Context, replication_factor: int, replicas: Sequence[int]) -> list[int]:
    """The ISR of a partition that was placed.

    Raises:
        Refusal: INVALID_REPLICATION_FACTOR: no replica could lead it.
    """
    isr = _in_sync(context, replicas)
    if not isr:
        text = f"Unable to replicate the partition {replication_factor} time(s): {_NOBODY_ACTIVE}"
        raise Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, text)
    return isr


# --- CreateTopics


def create(context: Context, request: CreateTopicsRequest, version: int) -> ControllerResult:
    """Create topics."""
    check_time(request.timeout_ms)
    check_item_count(len(request.topics), _TOO_MANY)
    counts = _counts(topic.name for topic in request.topics)
    once = [topic for topic in request.topics if counts[topic.name] == 1]
    names = {topic.name for topic in once} - {METADATA_TOPIC}
    creatable = names if _may_on_cluster(context, _CREATE) else _may(context, _CREATE, names)
    describable = _may(context, _DESCRIBE_CONFIGS, creatable, log_if_denied=False)
    wanted = [topic for topic in once if topic.name in creatable]
    if sum(_partition_count(context, topic) for topic in wanted) > MAX_RECORDS:
        raise Refusal(ErrorCode.POLICY_VIOLATION, _TOO_MANY)
    rules = _rules(context)
    records: list[Record] = []
    answer = CreateTopicsResponse()
    for topic in wanted:
        try:
            result, of_topic = _create_one(context, rules, topic, topic.name in describable, version)
            records += of_topic
        except Refusal as refused:
            result = _Created(name=topic.name, error_code=refused.code, error_message=refused.text)
        answer.topics.append(result)
    for name in (name for name, count in counts.items() if count > 1):
        answer.topics.append(_Created(name=name, error_code=ErrorCode.INVALID_REQUEST, error_message=_DUPLICATE))
    for topic in once:
        if topic.name == METADATA_TOPIC:
            error, text = ErrorCode.INVALID_REQUEST, f"Creation of internal topic {METADATA_TOPIC} is prohibited."
        elif topic.name not in creatable:
            error, text = ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed."
        else:
            continue
        answer.topics.append(_Created(name=topic.name, error_code=error, error_message=text))
    check_record_count(len(records))
    return ControllerResult(answer, [] if request.validate_only else records)


def _counts(names: Iterable[str]) -> dict[str, int]:
    """How often each name comes."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return counts


def _partition_count(context: Context, topic: _NewTopic) -> int:
    if topic.assignments:
        return len(topic.assignments)
    if topic.num_partitions == _USE_DEFAULT:
        return context.settings.default_partitions
    return max(topic.num_partitions, 0)


def _create_one(
    context: Context, rules: PartitionRules, topic: _NewTopic, is_describable: bool, version: int
) -> tuple[_Created, list[Record]]:
    name = topic.name
    _check_name(context, name)
    nulls = [each.name for each in topic.configs if each.value is None]
    if nulls:
        text = f"Null value not supported for topic configs: {','.join(nulls)}"
        raise Refusal(ErrorCode.INVALID_CONFIG, text)
    configs = {each.name: each.value for each in topic.configs if each.value is not None}
    validate_topic_configs(context, configs)
    partitions = _assigned(context, topic) if topic.assignments else _placed(context, topic)

    topic_id = Uuid.random(context.random.randbytes)
    result = _Created(name=name, topic_id=topic_id, error_message=None)
    if not is_describable:
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif version >= _ANSWERS_CONFIGS_FROM:
        result.num_partitions = len(partitions)
        result.replication_factor = len(partitions[0][0])
        result.configs = created_configs(context, configs)
    records: list[Record] = [(TopicRecord(name=name, topic_id=topic_id), 0)]
    records += topic_config_records(context, name, configs)
    records += _partition_records(rules, topic_id, 0, partitions)
    return result, records


def _check_name(context: Context, name: str) -> None:
    topics = context.image.topics
    if topics.by_name(name) is not None:
        raise Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    colliding = topics.colliding_with(name)
    if colliding is not None:
        text = f"Topic '{name}' collides with existing topic: {colliding}"
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, text)
    why = what_is_wrong(name)
    if why is not None:
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, why)


def _assigned(context: Context, topic: _NewTopic) -> _Partitions:
    """Replicas and ISR of each partition, by number, as the request assigns them."""
    for is_set, what in (
        (topic.replication_factor != _USE_DEFAULT, "replication factor"),
        (topic.num_partitions != _USE_DEFAULT, "numPartitions"),
    ):
        if is_set:
            text = f"A manual partition assignment was specified, but {what} was not set to -1."
            raise Refusal(ErrorCode.INVALID_REQUEST, text)
    partitions: dict[int, tuple[Sequence[int], list[int]]] = {}
    replication_factor = None
    for assignment in topic.assignments:
        number, replicas = assignment.partition_index, assignment.broker_ids
        if number in partitions:
            text = f"Found multiple manual partition assignments for partition {number}"
            raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        check_assignment(context, replicas, replication_factor)
        replication_factor = len(replicas)
        partitions[number] = replicas, _assigned_in_sync(context, number, replicas)
    if any(number not in partitions for number in range(len(partitions))):
        text = "partitions should be a consecutive 0-based integer sequence"
        raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    return [partitions[number] for number in range(len(partitions))]


def _placed(context: Context, topic: _NewTopic) -> _Partitions:
    """Choose replicas and ISR of each partition, by number."""
    factor, count = topic.replication_factor, topic.num_partitions
    if factor < _USE_DEFAULT or factor == 0:
        text = "Replication factor must be larger than 0, or -1 to use the default value."
        raise Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, text)
    if count < _USE_DEFAULT or count == 0:
        text = "Number of partitions was set to an invalid non-positive value."
        raise Refusal(ErrorCode.INVALID_PARTITIONS, text)
    if factor == _USE_DEFAULT:
        factor = context.settings.default_replication_factor
    if count == _USE_DEFAULT:
        count = context.settings.default_partitions
    try:
        placed = _place(context, count, factor)
    except Refusal as refused:
        text = f"Unable to replicate the partition {factor} time(s): {refused.text}"
        raise Refusal(refused.code, text) from None
    return [(replicas, _placed_in_sync(context, factor, replicas)) for replicas in placed]


# --- DeleteTopics


def delete(context: Context, request: DeleteTopicsRequest, version: int) -> ControllerResult:
    """Delete topics, by name or (from version 6 on) by id."""
    if not context.settings.is_topic_deletion_enabled:
        if version < 3:
            raise Refusal(ErrorCode.INVALID_REQUEST, "This version does not support topic deletion.")
        raise Refusal(ErrorCode.TOPIC_DELETION_DISABLED)
    check_time(request.timeout_ms)
    check_item_count(len(request.topic_names) + len(request.topics))
    results: list[_Deleted] = []
    names = Counter(request.topic_names)
    ids: Counter[Uuid] = Counter()
    for each in request.topics:
        if each.name is not None and each.topic_id:
            text = "You may not specify both topic name and topic id."
            results.append(_deleted(each.name, each.topic_id, ErrorCode.INVALID_REQUEST, text))
        elif each.name is not None:
            names[each.name] += 1
        elif each.topic_id:
            ids[each.topic_id] += 1
        else:
            text = "Neither topic name nor id were specified."
            results.append(_deleted(None, Uuid(), ErrorCode.INVALID_REQUEST, text))
    results += [
        _deleted(name, Uuid(), ErrorCode.INVALID_REQUEST, _DUPLICATE) for name, count in names.items() if count > 1
    ]
    results += [
        _deleted(None, topic_id, ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
        for topic_id, count in ids.items()
        if count > 1
    ]
    found = _found_to_delete(context, names, ids, results)
    records: list[Record] = []
    for topic_id, name in found.items():
        records.append((RemoveTopicRecord(topic_id=topic_id), 0))
        results.append(_deleted(name, topic_id, ErrorCode.NONE, None))
    check_record_count(len(records))
    return ControllerResult(DeleteTopicsResponse(responses=results), records)


def _found_to_delete(
    context: Context, names: Counter[str], ids: Counter[Uuid], results: list[_Deleted]
) -> dict[Uuid, str]:
    """Names by id of the topics that exist and may be deleted; all other topics are added to the results."""
    topics = context.image.topics
    found: dict[Uuid, str] = {}
    failed = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for topic_id in (topic_id for topic_id, count in ids.items() if count == 1):
        topic = topics.get(topic_id)
        if topic is None:
            error = ErrorCode.UNKNOWN_TOPIC_ID
            results.append(_deleted(None, topic_id, error, error.message))
        elif not _may_delete(context, topic.name):
            shown = topic.name if _may(context, _DESCRIBE, [topic.name]) else None
            results.append(_deleted(shown, topic_id, failed, failed.message))
        else:
            found[topic_id] = topic.name
    for name in (name for name, count in names.items() if count == 1):
        topic = topics.by_name(name)
        may_delete = _may_delete(context, name)
        if not may_delete and (topic is not None or not _may(context, _DESCRIBE, [name])):
            results.append(_deleted(name, Uuid(), failed, failed.message))
        elif topic is None:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            results.append(_deleted(name, Uuid(), error, error.message))
        elif topic.id in ids:
            found.pop(topic.id, None)
            text = "The provided topic name maps to an ID that was already supplied."
            results.append(_deleted(name, topic.id, ErrorCode.INVALID_REQUEST, text))
        else:
            found[topic.id] = name
    return found


def _may_delete(context: Context, name: str) -> bool:
    return _may_on_cluster(context, _DELETE) or bool(_may(context, _DELETE, [name]))


def _deleted(name: str | None, topic_id: Uuid, error: ErrorCode, message: str | None) -> _Deleted:
    return _Deleted(name=name, topic_id=topic_id, error_code=error, error_message=message)


# --- CreatePartitions


def create_partitions(context: Context, request: CreatePartitionsRequest, version: int) -> ControllerResult:
    """Add partitions to topics.

    Kafka 4.3.1 writes the first 10,000 records of a request that asks for more, and resigns; here the request is
    refused, as CreateTopics is.
    """
    check_time(request.timeout_ms)
    check_item_count(len(request.topics), _TOO_MANY)
    counts = Counter(topic.name for topic in request.topics)
    answer = CreatePartitionsResponse()
    for name in (name for name, count in counts.items() if count > 1):
        answer.results.append(_Grown(name=name, error_code=ErrorCode.INVALID_REQUEST, error_message=_DUPLICATE))
    once = [topic for topic in request.topics if counts[topic.name] == 1]
    alterable = _may(context, _ALTER, (topic.name for topic in once))
    growing: list[tuple[_Grown, CreatePartitionsRequest.CreatePartitionsTopic, Uuid, int]] = []
    total = 0
    for topic in once:
        result = _Grown(name=topic.name)
        answer.results.append(result)
        if topic.name not in alterable:
            result.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            continue
        try:
            topic_id, present = _check_growth(context, topic)
        except Refusal as refused:
            result.error_code, result.error_message = refused.code, refused.text
        else:
            growing.append((result, topic, topic_id, present))
            total += topic.count - present
    if total > MAX_RECORDS:
        raise Refusal(ErrorCode.POLICY_VIOLATION, _TOO_MANY)
    records: list[Record] = []
    for result, topic, topic_id, present in growing:
        try:
            records += _grow(context, topic, topic_id, present)
        except Refusal as refused:
            result.error_code, result.error_message = refused.code, refused.text
    return ControllerResult(answer, [] if request.validate_only else records)


def _check_growth(context: Context, topic: CreatePartitionsRequest.CreatePartitionsTopic) -> tuple[Uuid, int]:
    """The topic's id and its present number of partitions, if the request is an increase."""
    known = context.image.topics.by_name(topic.name)
    if known is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    present = context.image.partitions.count(known.id)
    if topic.count == present:
        raise Refusal(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if topic.count < present:
        raise Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {present} partition(s); {topic.count} would not be an increase.",
        )
    additional = topic.count - present
    if topic.assignments is not None and len(topic.assignments) != additional:
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {additional} additional partition(s), but only {len(topic.assignments)} "
            "assignment(s) were specified.",
        )
    return known.id, present


def _grow(
    context: Context, topic: CreatePartitionsRequest.CreatePartitionsTopic, topic_id: Uuid, present: int
) -> list[Record]:
    sample = context.image.partitions.get(topic_id, _sampled_partition(present))
    if sample is None:
        raise Refusal(ErrorCode.UNKNOWN_SERVER_ERROR)  # partition numbers with gaps, which no decision makes
    factor = len(sample.replicas)
    partitions: _Partitions = []
    if topic.assignments is None:
        for replicas in _place(context, topic.count - present, factor):
            partitions.append((replicas, _placed_in_sync(context, factor, replicas)))
    else:
        for number, assignment in enumerate(topic.assignments, present):
            check_assignment(context, assignment.broker_ids, factor)
            partitions.append((assignment.broker_ids, _assigned_in_sync(context, number, assignment.broker_ids)))
    return _partition_records(_rules(context), topic_id, present, partitions)


def _sampled_partition(count: int) -> int:
    """The number of the partition that gives a topic its replication factor, where partitions' factors differ.

    Kafka 4.3.1 takes the partition that its hash table yields first: of those in the lowest slot, the newest. A slot is
    the upper bits of the number times a constant. The table doubles when three quarters of its entries, and of one
    more, exceed its size; it is resized before a change of a partition, and without a change all factors are the same.
    """
    slots = 2
    while (count + 1) * 3 > slots * 4:
        slots *= 2
    span = 2**64 // slots
    return next((number for number in range(count - 1, 0, -1) if number * _FIBONACCI_HASH % 2**64 < span), 0)


# --- whole requests refused


def _refuse_create(
    request: CreateTopicsRequest, version: int, error: ErrorCode, message: str | None
) -> CreateTopicsResponse:
    results = [_Created(name=topic.name, error_code=error, error_message=message) for topic in request.topics]
    return CreateTopicsResponse(topics=results)


def _refuse_delete(
    request: DeleteTopicsRequest, version: int, error: ErrorCode, message: str | None
) -> DeleteTopicsResponse:
    """Refuse without the message, as Kafka does."""
    results = [_deleted(name, Uuid(), error, None) for name in request.topic_names]
    results += [_deleted(each.name, each.topic_id, error, None) for each in request.topics]
    return DeleteTopicsResponse(responses=results)


def _refuse_create_partitions(
    request: CreatePartitionsRequest, version: int, error: ErrorCode, message: str | None
) -> CreatePartitionsResponse:
    results = [_Grown(name=topic.name, error_code=error, error_message=message) for topic in request.topics]
    return CreatePartitionsResponse(results=results)


APIS: dict[type[Request], Api] = {
    CreateTopicsRequest: Api(create, _refuse_create),
    DeleteTopicsRequest: Api(delete, _refuse_delete),
    CreatePartitionsRequest: Api(create_partitions, _refuse_create_partitions),
}
