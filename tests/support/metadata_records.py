"""Metadata records of every type, drawn from so small a world that they often meet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from kraftcore.core.uuid import Uuid
from kraftcore.metadata import Image
from kraftcore.protocol.metadata import MetadataRecordType
from kraftcore.protocol.records.access_control_entry_record import AccessControlEntryRecord
from kraftcore.protocol.records.broker_registration_change_record import BrokerRegistrationChangeRecord
from kraftcore.protocol.records.clear_elr_record import ClearElrRecord
from kraftcore.protocol.records.client_quota_record import ClientQuotaRecord
from kraftcore.protocol.records.config_record import ConfigRecord
from kraftcore.protocol.records.delegation_token_record import DelegationTokenRecord
from kraftcore.protocol.records.feature_level_record import FeatureLevelRecord
from kraftcore.protocol.records.fence_broker_record import FenceBrokerRecord
from kraftcore.protocol.records.no_op_record import NoOpRecord
from kraftcore.protocol.records.partition_change_record import PartitionChangeRecord
from kraftcore.protocol.records.partition_record import PartitionRecord
from kraftcore.protocol.records.producer_ids_record import ProducerIdsRecord
from kraftcore.protocol.records.register_broker_record import RegisterBrokerRecord
from kraftcore.protocol.records.register_controller_record import RegisterControllerRecord
from kraftcore.protocol.records.remove_access_control_entry_record import RemoveAccessControlEntryRecord
from kraftcore.protocol.records.remove_delegation_token_record import RemoveDelegationTokenRecord
from kraftcore.protocol.records.remove_topic_record import RemoveTopicRecord
from kraftcore.protocol.records.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
from kraftcore.protocol.records.topic_record import TopicRecord
from kraftcore.protocol.records.unfence_broker_record import UnfenceBrokerRecord
from kraftcore.protocol.records.unregister_broker_record import UnregisterBrokerRecord
from kraftcore.protocol.records.user_scram_credential_record import UserScramCredentialRecord
from kraftcore.protocol.records.zk_migration_state_record import ZkMigrationStateRecord
from kraftcore.protocol.schema import MetadataRecord

KIND = MetadataRecordType
TRANSACTIONS = (KIND.BEGIN_TRANSACTION_RECORD, KIND.END_TRANSACTION_RECORD, KIND.ABORT_TRANSACTION_RECORD)

_uuids = st.sampled_from([Uuid(bytes([number]) * 16) for number in (1, 2, 3)])
_names = st.sampled_from(["a", "a.b", "a_b"])
_principals = st.sampled_from(["User:a", "User:b"])
_numbers = st.sampled_from([1, 2, 3])
_epochs = st.sampled_from([1, 2])
_brokers = st.lists(_numbers, max_size=3, unique=True)
_directories = st.lists(_uuids, max_size=2, unique=True)


def _listeners(kind: Any) -> st.SearchStrategy[list[Any]]:
    one = st.builds(kind, name=_names, host=_names, port=_numbers, security_protocol=st.integers(0, 3))
    return st.lists(one, max_size=2, unique_by=lambda each: each.name)


def _features(kind: Any) -> st.SearchStrategy[list[Any]]:
    one = st.builds(kind, name=_names, min_supported_version=_numbers, max_supported_version=_numbers)
    return st.lists(one, max_size=2, unique_by=lambda each: each.name)


def _quota_entities() -> st.SearchStrategy[list[ClientQuotaRecord.EntityData]]:
    kind = ClientQuotaRecord.EntityData
    one = st.builds(kind, entity_type=st.sampled_from(["client-id", "user"]), entity_name=st.none() | _names)
    return st.lists(one, min_size=1, max_size=2, unique_by=lambda each: each.entity_type)


_MADE: dict[MetadataRecordType, st.SearchStrategy[MetadataRecord]] = {
    KIND.REGISTER_BROKER_RECORD: st.builds(
        RegisterBrokerRecord,
        broker_id=_numbers,
        broker_epoch=_epochs,
        incarnation_id=_uuids,
        end_points=_listeners(RegisterBrokerRecord.BrokerEndpoint),
        features=_features(RegisterBrokerRecord.BrokerFeature),
        rack=st.none() | _names,
        fenced=st.booleans(),
        in_controlled_shutdown=st.booleans(),
        is_migrating_zk_broker=st.booleans(),
        log_dirs=_directories,
        cordoned_log_dirs=st.none() | _directories,
    ),
    KIND.UNREGISTER_BROKER_RECORD: st.builds(UnregisterBrokerRecord, broker_id=_numbers, broker_epoch=_epochs),
    KIND.FENCE_BROKER_RECORD: st.builds(FenceBrokerRecord, id=_numbers, epoch=_epochs),
    KIND.UNFENCE_BROKER_RECORD: st.builds(UnfenceBrokerRecord, id=_numbers, epoch=_epochs),
    KIND.BROKER_REGISTRATION_CHANGE_RECORD: st.builds(
        BrokerRegistrationChangeRecord,
        broker_id=_numbers,
        broker_epoch=_epochs,
        fenced=st.integers(-1, 2),
        in_controlled_shutdown=st.integers(0, 2),
        log_dirs=_directories,
        cordoned_log_dirs=st.none() | _directories,
    ),
    KIND.REGISTER_CONTROLLER_RECORD: st.builds(
        RegisterControllerRecord,
        controller_id=_numbers,
        incarnation_id=_uuids,
        zk_migration_ready=st.booleans(),
        end_points=_listeners(RegisterControllerRecord.ControllerEndpoint),
        features=_features(RegisterControllerRecord.ControllerFeature),
    ),
    KIND.TOPIC_RECORD: st.builds(TopicRecord, name=_names, topic_id=_uuids),
    KIND.REMOVE_TOPIC_RECORD: st.builds(RemoveTopicRecord, topic_id=_uuids),
    KIND.PARTITION_RECORD: st.builds(
        PartitionRecord,
        topic_id=_uuids,
        partition_id=st.integers(0, 3),
        replicas=_brokers,
        isr=_brokers,
        leader=st.integers(-1, 3),
        leader_epoch=st.just(0),
        partition_epoch=st.just(0),
        leader_recovery_state=st.integers(0, 1),
        eligible_leader_replicas=st.none() | _brokers,
        last_known_elr=st.none() | _brokers,
        adding_replicas=_brokers,
    ),
    KIND.PARTITION_CHANGE_RECORD: st.builds(
        PartitionChangeRecord,
        topic_id=_uuids,
        partition_id=st.integers(0, 3),
        isr=st.none() | _brokers,
        leader=st.integers(-2, 3),
        leader_recovery_state=st.integers(-1, 2),
        removing_replicas=st.none() | _brokers,
        eligible_leader_replicas=st.none() | _brokers,
    ),
    KIND.CLEAR_ELR_RECORD: st.builds(ClearElrRecord, topic_name=st.just("") | _names),
    KIND.CONFIG_RECORD: st.builds(
        ConfigRecord,
        resource_type=st.sampled_from([2, 4]),
        resource_name=_names,
        name=_names,
        value=st.none() | _names,
    ),
    KIND.CLIENT_QUOTA_RECORD: st.builds(
        ClientQuotaRecord, entity=_quota_entities(), key=_names, value=st.floats(0, 9), remove=st.booleans()
    ),
    KIND.PRODUCER_IDS_RECORD: st.builds(ProducerIdsRecord, broker_id=_numbers, next_producer_id=st.integers(0, 9)),
    KIND.ACCESS_CONTROL_ENTRY_RECORD: st.builds(
        AccessControlEntryRecord,
        id=_uuids,
        resource_type=st.just(2),
        resource_name=_names,
        pattern_type=st.just(3),
        principal=_names,
        host=_names,
        operation=st.just(3),
        permission_type=st.just(3),
    ),
    KIND.REMOVE_ACCESS_CONTROL_ENTRY_RECORD: st.builds(RemoveAccessControlEntryRecord, id=_uuids),
    KIND.USER_SCRAM_CREDENTIAL_RECORD: st.builds(
        UserScramCredentialRecord,
        name=_names,
        mechanism=st.integers(0, 2),
        salt=st.binary(max_size=3),
        stored_key=st.binary(max_size=3),
        server_key=st.binary(max_size=3),
        iterations=_numbers,
    ),
    KIND.REMOVE_USER_SCRAM_CREDENTIAL_RECORD: st.builds(
        RemoveUserScramCredentialRecord, name=_names, mechanism=st.integers(1, 2)
    ),
    KIND.DELEGATION_TOKEN_RECORD: st.builds(
        DelegationTokenRecord,
        owner=_principals,
        requester=_principals,
        renewers=st.lists(_principals, max_size=2),
        issue_timestamp=_numbers,
        max_timestamp=_numbers,
        expiration_timestamp=_numbers,
        token_id=_names,
    ),
    KIND.REMOVE_DELEGATION_TOKEN_RECORD: st.builds(RemoveDelegationTokenRecord, token_id=_names),
    KIND.FEATURE_LEVEL_RECORD: st.one_of(
        st.builds(FeatureLevelRecord, name=_names, feature_level=st.integers(0, 2)),
        st.builds(FeatureLevelRecord, name=st.just("metadata.version"), feature_level=st.sampled_from([5, 30])),
    ),
    KIND.NO_OP_RECORD: st.builds(NoOpRecord),
    KIND.ZK_MIGRATION_STATE_RECORD: st.builds(ZkMigrationStateRecord, zk_migration_state=st.integers(0, 4)),
}


def records_of(kind: MetadataRecordType) -> st.SearchStrategy[MetadataRecord]:
    """Records of one type; not of the three that bound transactions."""
    return _MADE[kind]


records = st.one_of(*_MADE.values())
"""Records of any type, transactions aside."""


def state_of(image: Image) -> dict[str, Mapping[Any, Any]]:
    """All that an image tells, as plain dicts."""
    parts = (
        "features",
        "brokers",
        "controllers",
        "topics",
        "configs",
        "quotas",
        "producer_ids",
        "acls",
        "scram",
        "tokens",
    )
    found: dict[str, Mapping[Any, Any]] = {name: dict(getattr(image, name)) for name in parts}
    found["partitions"] = {
        (topic_id, number): each for topic_id in image.topics for number, each in image.partitions.of_topic(topic_id)
    }
    assert len(found["partitions"]) == len(image.partitions)
    for topic in image.topics.values():
        assert image.topics.by_name(topic.name) == topic
    return found
