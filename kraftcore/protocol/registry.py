"""Which class belongs to an api key or record type. Classes are imported when first asked for, not before."""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from importlib import import_module
from typing import NamedTuple, cast

from kraftcore.errors import UnsupportedVersionError
from kraftcore.namespace import listing
from kraftcore.protocol.schema import Message, MetadataRecord, Request, Response

__all__ = [
    "Api",
    "ApiKey",
    "MetadataRecordType",
    "api_of",
    "apis_on",
    "record_class",
    "request_class",
    "response_class",
]
__dir__ = listing(__all__)


class ApiKey(IntEnum):
    """Numbers of the apis, removed ones included."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


class MetadataRecordType(IntEnum):
    """Types of the records in the metadata log, with Kafka's names. 6, 13 and 16 were never released."""

    REGISTER_BROKER_RECORD = 0
    UNREGISTER_BROKER_RECORD = 1
    TOPIC_RECORD = 2
    PARTITION_RECORD = 3
    CONFIG_RECORD = 4
    PARTITION_CHANGE_RECORD = 5
    FENCE_BROKER_RECORD = 7
    UNFENCE_BROKER_RECORD = 8
    REMOVE_TOPIC_RECORD = 9
    DELEGATION_TOKEN_RECORD = 10
    USER_SCRAM_CREDENTIAL_RECORD = 11
    FEATURE_LEVEL_RECORD = 12
    CLIENT_QUOTA_RECORD = 14
    PRODUCER_IDS_RECORD = 15
    BROKER_REGISTRATION_CHANGE_RECORD = 17
    ACCESS_CONTROL_ENTRY_RECORD = 18
    REMOVE_ACCESS_CONTROL_ENTRY_RECORD = 19
    NO_OP_RECORD = 20
    ZK_MIGRATION_STATE_RECORD = 21
    REMOVE_USER_SCRAM_CREDENTIAL_RECORD = 22
    BEGIN_TRANSACTION_RECORD = 23
    END_TRANSACTION_RECORD = 24
    ABORT_TRANSACTION_RECORD = 25
    REMOVE_DELEGATION_TOKEN_RECORD = 26
    REGISTER_CONTROLLER_RECORD = 27
    CLEAR_ELR_RECORD = 28


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _load(folder: str, module: str, name: str) -> type[Message]:
    return cast(type[Message], getattr(import_module(f"kraftcore.protocol.{folder}.{module}"), name))


@cache
def request_class(api_key: int) -> type[Request]:
    """The request class of an api.

    Raises:
        UnsupportedVersionError: no such api.
    """
    name = _api_name(api_key)
    return cast(type[Request], _load("messages", name.lower(), _camel(name) + "Request"))


@cache
def response_class(api_key: int) -> type[Response]:
    """The response class of an api.

    Raises:
        UnsupportedVersionError: no such api.
    """
    name = _api_name(api_key)
    return cast(type[Response], _load("messages", name.lower(), _camel(name) + "Response"))


@cache
def record_class(record_type: int) -> type[MetadataRecord]:
    """The class of a metadata record type.

    Raises:
        UnsupportedVersionError: no such type.
    """
    try:
        name = MetadataRecordType(record_type).name
    except ValueError:
        raise UnsupportedVersionError(f"metadata record type {record_type} is not known") from None
    return cast(type[MetadataRecord], _load("records", name.lower(), _camel(name)))


def _api_name(api_key: int) -> str:
    try:
        return ApiKey(api_key).name
    except ValueError:
        raise UnsupportedVersionError(f"api key {api_key} is not known") from None


def message_names() -> list[str]:
    """The names of all requests and responses."""
    return [_camel(key.name) + kind for key in ApiKey for kind in ("Request", "Response")]


def record_names() -> list[str]:
    """The names of all records of the metadata log."""
    return [_camel(kind.name) for kind in MetadataRecordType]


def apis_on(listener: str) -> list[ApiKey]:
    """Apis that Kafka 4.3.1 serves on a kind of listener, ``broker`` or ``controller``; imports all of them."""
    return [key for key in ApiKey if listener in request_class(key).schema.listeners]


class Api(NamedTuple):
    """What a request or response class is on the wire."""

    key: int
    min_version: int
    max_version: int


@cache
def api_of(cls: type[Request | Response]) -> Api:
    """The api key of a class, and the first and last version that Kafka 4.3.1 speaks.

    Raises:
        UnsupportedVersionError: no version of it is spoken any more.
    """
    schema = cls.schema
    if schema.api_key is None or schema.versions is None:
        raise UnsupportedVersionError(f"{cls.__name__} is not spoken by Kafka 4.3.1")
    return Api(schema.api_key, *schema.versions)
