"""Records of the metadata log, one module each, imported when first asked for."""

from typing import TYPE_CHECKING

from kraftcore.namespace import listing
from kraftcore.protocol.lazy import loader
from kraftcore.protocol.registry import record_names

if TYPE_CHECKING:
    from kraftcore.protocol.records.abort_transaction_record import AbortTransactionRecord as AbortTransactionRecord
    from kraftcore.protocol.records.access_control_entry_record import (
        AccessControlEntryRecord as AccessControlEntryRecord,
    )
    from kraftcore.protocol.records.begin_transaction_record import BeginTransactionRecord as BeginTransactionRecord
    from kraftcore.protocol.records.broker_registration_change_record import (
        BrokerRegistrationChangeRecord as BrokerRegistrationChangeRecord,
    )
    from kraftcore.protocol.records.clear_elr_record import ClearElrRecord as ClearElrRecord
    from kraftcore.protocol.records.client_quota_record import ClientQuotaRecord as ClientQuotaRecord
    from kraftcore.protocol.records.config_record import ConfigRecord as ConfigRecord
    from kraftcore.protocol.records.delegation_token_record import DelegationTokenRecord as DelegationTokenRecord
    from kraftcore.protocol.records.end_transaction_record import EndTransactionRecord as EndTransactionRecord
    from kraftcore.protocol.records.feature_level_record import FeatureLevelRecord as FeatureLevelRecord
    from kraftcore.protocol.records.fence_broker_record import FenceBrokerRecord as FenceBrokerRecord
    from kraftcore.protocol.records.no_op_record import NoOpRecord as NoOpRecord
    from kraftcore.protocol.records.partition_change_record import PartitionChangeRecord as PartitionChangeRecord
    from kraftcore.protocol.records.partition_record import PartitionRecord as PartitionRecord
    from kraftcore.protocol.records.producer_ids_record import ProducerIdsRecord as ProducerIdsRecord
    from kraftcore.protocol.records.register_broker_record import RegisterBrokerRecord as RegisterBrokerRecord
    from kraftcore.protocol.records.register_controller_record import (
        RegisterControllerRecord as RegisterControllerRecord,
    )
    from kraftcore.protocol.records.remove_access_control_entry_record import (
        RemoveAccessControlEntryRecord as RemoveAccessControlEntryRecord,
    )
    from kraftcore.protocol.records.remove_delegation_token_record import (
        RemoveDelegationTokenRecord as RemoveDelegationTokenRecord,
    )
    from kraftcore.protocol.records.remove_topic_record import RemoveTopicRecord as RemoveTopicRecord
    from kraftcore.protocol.records.remove_user_scram_credential_record import (
        RemoveUserScramCredentialRecord as RemoveUserScramCredentialRecord,
    )
    from kraftcore.protocol.records.topic_record import TopicRecord as TopicRecord
    from kraftcore.protocol.records.unfence_broker_record import UnfenceBrokerRecord as UnfenceBrokerRecord
    from kraftcore.protocol.records.unregister_broker_record import UnregisterBrokerRecord as UnregisterBrokerRecord
    from kraftcore.protocol.records.user_scram_credential_record import (
        UserScramCredentialRecord as UserScramCredentialRecord,
    )
    from kraftcore.protocol.records.zk_migration_state_record import ZkMigrationStateRecord as ZkMigrationStateRecord
else:
    __all__ = record_names()
    __dir__ = listing(__all__)
    __getattr__ = loader(__name__)
