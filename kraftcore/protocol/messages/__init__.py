"""Requests and responses, one module an api. ``from kraftcore.protocol.messages import FetchRequest`` loads one."""

from typing import TYPE_CHECKING

from kraftcore.namespace import listing
from kraftcore.protocol.lazy import loader
from kraftcore.protocol.registry import message_names

if TYPE_CHECKING:
    from kraftcore.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest as AddOffsetsToTxnRequest
    from kraftcore.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse as AddOffsetsToTxnResponse
    from kraftcore.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest as AddPartitionsToTxnRequest
    from kraftcore.protocol.messages.add_partitions_to_txn import (
        AddPartitionsToTxnResponse as AddPartitionsToTxnResponse,
    )
    from kraftcore.protocol.messages.add_raft_voter import AddRaftVoterRequest as AddRaftVoterRequest
    from kraftcore.protocol.messages.add_raft_voter import AddRaftVoterResponse as AddRaftVoterResponse
    from kraftcore.protocol.messages.allocate_producer_ids import (
        AllocateProducerIdsRequest as AllocateProducerIdsRequest,
    )
    from kraftcore.protocol.messages.allocate_producer_ids import (
        AllocateProducerIdsResponse as AllocateProducerIdsResponse,
    )
    from kraftcore.protocol.messages.alter_client_quotas import AlterClientQuotasRequest as AlterClientQuotasRequest
    from kraftcore.protocol.messages.alter_client_quotas import AlterClientQuotasResponse as AlterClientQuotasResponse
    from kraftcore.protocol.messages.alter_configs import AlterConfigsRequest as AlterConfigsRequest
    from kraftcore.protocol.messages.alter_configs import AlterConfigsResponse as AlterConfigsResponse
    from kraftcore.protocol.messages.alter_partition import AlterPartitionRequest as AlterPartitionRequest
    from kraftcore.protocol.messages.alter_partition import AlterPartitionResponse as AlterPartitionResponse
    from kraftcore.protocol.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest as AlterPartitionReassignmentsRequest,
    )
    from kraftcore.protocol.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsResponse as AlterPartitionReassignmentsResponse,
    )
    from kraftcore.protocol.messages.alter_replica_log_dirs import (
        AlterReplicaLogDirsRequest as AlterReplicaLogDirsRequest,
    )
    from kraftcore.protocol.messages.alter_replica_log_dirs import (
        AlterReplicaLogDirsResponse as AlterReplicaLogDirsResponse,
    )
    from kraftcore.protocol.messages.alter_share_group_offsets import (
        AlterShareGroupOffsetsRequest as AlterShareGroupOffsetsRequest,
    )
    from kraftcore.protocol.messages.alter_share_group_offsets import (
        AlterShareGroupOffsetsResponse as AlterShareGroupOffsetsResponse,
    )
    from kraftcore.protocol.messages.alter_user_scram_credentials import (
        AlterUserScramCredentialsRequest as AlterUserScramCredentialsRequest,
    )
    from kraftcore.protocol.messages.alter_user_scram_credentials import (
        AlterUserScramCredentialsResponse as AlterUserScramCredentialsResponse,
    )
    from kraftcore.protocol.messages.api_versions import ApiVersionsRequest as ApiVersionsRequest
    from kraftcore.protocol.messages.api_versions import ApiVersionsResponse as ApiVersionsResponse
    from kraftcore.protocol.messages.assign_replicas_to_dirs import (
        AssignReplicasToDirsRequest as AssignReplicasToDirsRequest,
    )
    from kraftcore.protocol.messages.assign_replicas_to_dirs import (
        AssignReplicasToDirsResponse as AssignReplicasToDirsResponse,
    )
    from kraftcore.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest as BeginQuorumEpochRequest
    from kraftcore.protocol.messages.begin_quorum_epoch import BeginQuorumEpochResponse as BeginQuorumEpochResponse
    from kraftcore.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest as BrokerHeartbeatRequest
    from kraftcore.protocol.messages.broker_heartbeat import BrokerHeartbeatResponse as BrokerHeartbeatResponse
    from kraftcore.protocol.messages.broker_registration import BrokerRegistrationRequest as BrokerRegistrationRequest
    from kraftcore.protocol.messages.broker_registration import BrokerRegistrationResponse as BrokerRegistrationResponse
    from kraftcore.protocol.messages.consumer_group_describe import (
        ConsumerGroupDescribeRequest as ConsumerGroupDescribeRequest,
    )
    from kraftcore.protocol.messages.consumer_group_describe import (
        ConsumerGroupDescribeResponse as ConsumerGroupDescribeResponse,
    )
    from kraftcore.protocol.messages.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequest as ConsumerGroupHeartbeatRequest,
    )
    from kraftcore.protocol.messages.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatResponse as ConsumerGroupHeartbeatResponse,
    )
    from kraftcore.protocol.messages.controlled_shutdown import ControlledShutdownRequest as ControlledShutdownRequest
    from kraftcore.protocol.messages.controlled_shutdown import ControlledShutdownResponse as ControlledShutdownResponse
    from kraftcore.protocol.messages.controller_registration import (
        ControllerRegistrationRequest as ControllerRegistrationRequest,
    )
    from kraftcore.protocol.messages.controller_registration import (
        ControllerRegistrationResponse as ControllerRegistrationResponse,
    )
    from kraftcore.protocol.messages.create_acls import CreateAclsRequest as CreateAclsRequest
    from kraftcore.protocol.messages.create_acls import CreateAclsResponse as CreateAclsResponse
    from kraftcore.protocol.messages.create_delegation_token import (
        CreateDelegationTokenRequest as CreateDelegationTokenRequest,
    )
    from kraftcore.protocol.messages.create_delegation_token import (
        CreateDelegationTokenResponse as CreateDelegationTokenResponse,
    )
    from kraftcore.protocol.messages.create_partitions import CreatePartitionsRequest as CreatePartitionsRequest
    from kraftcore.protocol.messages.create_partitions import CreatePartitionsResponse as CreatePartitionsResponse
    from kraftcore.protocol.messages.create_topics import CreateTopicsRequest as CreateTopicsRequest
    from kraftcore.protocol.messages.create_topics import CreateTopicsResponse as CreateTopicsResponse
    from kraftcore.protocol.messages.delete_acls import DeleteAclsRequest as DeleteAclsRequest
    from kraftcore.protocol.messages.delete_acls import DeleteAclsResponse as DeleteAclsResponse
    from kraftcore.protocol.messages.delete_groups import DeleteGroupsRequest as DeleteGroupsRequest
    from kraftcore.protocol.messages.delete_groups import DeleteGroupsResponse as DeleteGroupsResponse
    from kraftcore.protocol.messages.delete_records import DeleteRecordsRequest as DeleteRecordsRequest
    from kraftcore.protocol.messages.delete_records import DeleteRecordsResponse as DeleteRecordsResponse
    from kraftcore.protocol.messages.delete_share_group_offsets import (
        DeleteShareGroupOffsetsRequest as DeleteShareGroupOffsetsRequest,
    )
    from kraftcore.protocol.messages.delete_share_group_offsets import (
        DeleteShareGroupOffsetsResponse as DeleteShareGroupOffsetsResponse,
    )
    from kraftcore.protocol.messages.delete_share_group_state import (
        DeleteShareGroupStateRequest as DeleteShareGroupStateRequest,
    )
    from kraftcore.protocol.messages.delete_share_group_state import (
        DeleteShareGroupStateResponse as DeleteShareGroupStateResponse,
    )
    from kraftcore.protocol.messages.delete_topics import DeleteTopicsRequest as DeleteTopicsRequest
    from kraftcore.protocol.messages.delete_topics import DeleteTopicsResponse as DeleteTopicsResponse
    from kraftcore.protocol.messages.describe_acls import DescribeAclsRequest as DescribeAclsRequest
    from kraftcore.protocol.messages.describe_acls import DescribeAclsResponse as DescribeAclsResponse
    from kraftcore.protocol.messages.describe_client_quotas import (
        DescribeClientQuotasRequest as DescribeClientQuotasRequest,
    )
    from kraftcore.protocol.messages.describe_client_quotas import (
        DescribeClientQuotasResponse as DescribeClientQuotasResponse,
    )
    from kraftcore.protocol.messages.describe_cluster import DescribeClusterRequest as DescribeClusterRequest
    from kraftcore.protocol.messages.describe_cluster import DescribeClusterResponse as DescribeClusterResponse
    from kraftcore.protocol.messages.describe_configs import DescribeConfigsRequest as DescribeConfigsRequest
    from kraftcore.protocol.messages.describe_configs import DescribeConfigsResponse as DescribeConfigsResponse
    from kraftcore.protocol.messages.describe_delegation_token import (
        DescribeDelegationTokenRequest as DescribeDelegationTokenRequest,
    )
    from kraftcore.protocol.messages.describe_delegation_token import (
        DescribeDelegationTokenResponse as DescribeDelegationTokenResponse,
    )
    from kraftcore.protocol.messages.describe_groups import DescribeGroupsRequest as DescribeGroupsRequest
    from kraftcore.protocol.messages.describe_groups import DescribeGroupsResponse as DescribeGroupsResponse
    from kraftcore.protocol.messages.describe_log_dirs import DescribeLogDirsRequest as DescribeLogDirsRequest
    from kraftcore.protocol.messages.describe_log_dirs import DescribeLogDirsResponse as DescribeLogDirsResponse
    from kraftcore.protocol.messages.describe_producers import DescribeProducersRequest as DescribeProducersRequest
    from kraftcore.protocol.messages.describe_producers import DescribeProducersResponse as DescribeProducersResponse
    from kraftcore.protocol.messages.describe_quorum import DescribeQuorumRequest as DescribeQuorumRequest
    from kraftcore.protocol.messages.describe_quorum import DescribeQuorumResponse as DescribeQuorumResponse
    from kraftcore.protocol.messages.describe_share_group_offsets import (
        DescribeShareGroupOffsetsRequest as DescribeShareGroupOffsetsRequest,
    )
    from kraftcore.protocol.messages.describe_share_group_offsets import (
        DescribeShareGroupOffsetsResponse as DescribeShareGroupOffsetsResponse,
    )
    from kraftcore.protocol.messages.describe_topic_partitions import (
        DescribeTopicPartitionsRequest as DescribeTopicPartitionsRequest,
    )
    from kraftcore.protocol.messages.describe_topic_partitions import (
        DescribeTopicPartitionsResponse as DescribeTopicPartitionsResponse,
    )
    from kraftcore.protocol.messages.describe_transactions import (
        DescribeTransactionsRequest as DescribeTransactionsRequest,
    )
    from kraftcore.protocol.messages.describe_transactions import (
        DescribeTransactionsResponse as DescribeTransactionsResponse,
    )
    from kraftcore.protocol.messages.describe_user_scram_credentials import (
        DescribeUserScramCredentialsRequest as DescribeUserScramCredentialsRequest,
    )
    from kraftcore.protocol.messages.describe_user_scram_credentials import (
        DescribeUserScramCredentialsResponse as DescribeUserScramCredentialsResponse,
    )
    from kraftcore.protocol.messages.elect_leaders import ElectLeadersRequest as ElectLeadersRequest
    from kraftcore.protocol.messages.elect_leaders import ElectLeadersResponse as ElectLeadersResponse
    from kraftcore.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest as EndQuorumEpochRequest
    from kraftcore.protocol.messages.end_quorum_epoch import EndQuorumEpochResponse as EndQuorumEpochResponse
    from kraftcore.protocol.messages.end_txn import EndTxnRequest as EndTxnRequest
    from kraftcore.protocol.messages.end_txn import EndTxnResponse as EndTxnResponse
    from kraftcore.protocol.messages.envelope import EnvelopeRequest as EnvelopeRequest
    from kraftcore.protocol.messages.envelope import EnvelopeResponse as EnvelopeResponse
    from kraftcore.protocol.messages.expire_delegation_token import (
        ExpireDelegationTokenRequest as ExpireDelegationTokenRequest,
    )
    from kraftcore.protocol.messages.expire_delegation_token import (
        ExpireDelegationTokenResponse as ExpireDelegationTokenResponse,
    )
    from kraftcore.protocol.messages.fetch import FetchRequest as FetchRequest
    from kraftcore.protocol.messages.fetch import FetchResponse as FetchResponse
    from kraftcore.protocol.messages.fetch_snapshot import FetchSnapshotRequest as FetchSnapshotRequest
    from kraftcore.protocol.messages.fetch_snapshot import FetchSnapshotResponse as FetchSnapshotResponse
    from kraftcore.protocol.messages.find_coordinator import FindCoordinatorRequest as FindCoordinatorRequest
    from kraftcore.protocol.messages.find_coordinator import FindCoordinatorResponse as FindCoordinatorResponse
    from kraftcore.protocol.messages.get_telemetry_subscriptions import (
        GetTelemetrySubscriptionsRequest as GetTelemetrySubscriptionsRequest,
    )
    from kraftcore.protocol.messages.get_telemetry_subscriptions import (
        GetTelemetrySubscriptionsResponse as GetTelemetrySubscriptionsResponse,
    )
    from kraftcore.protocol.messages.heartbeat import HeartbeatRequest as HeartbeatRequest
    from kraftcore.protocol.messages.heartbeat import HeartbeatResponse as HeartbeatResponse
    from kraftcore.protocol.messages.incremental_alter_configs import (
        IncrementalAlterConfigsRequest as IncrementalAlterConfigsRequest,
    )
    from kraftcore.protocol.messages.incremental_alter_configs import (
        IncrementalAlterConfigsResponse as IncrementalAlterConfigsResponse,
    )
    from kraftcore.protocol.messages.init_producer_id import InitProducerIdRequest as InitProducerIdRequest
    from kraftcore.protocol.messages.init_producer_id import InitProducerIdResponse as InitProducerIdResponse
    from kraftcore.protocol.messages.initialize_share_group_state import (
        InitializeShareGroupStateRequest as InitializeShareGroupStateRequest,
    )
    from kraftcore.protocol.messages.initialize_share_group_state import (
        InitializeShareGroupStateResponse as InitializeShareGroupStateResponse,
    )
    from kraftcore.protocol.messages.join_group import JoinGroupRequest as JoinGroupRequest
    from kraftcore.protocol.messages.join_group import JoinGroupResponse as JoinGroupResponse
    from kraftcore.protocol.messages.leader_and_isr import LeaderAndIsrRequest as LeaderAndIsrRequest
    from kraftcore.protocol.messages.leader_and_isr import LeaderAndIsrResponse as LeaderAndIsrResponse
    from kraftcore.protocol.messages.leave_group import LeaveGroupRequest as LeaveGroupRequest
    from kraftcore.protocol.messages.leave_group import LeaveGroupResponse as LeaveGroupResponse
    from kraftcore.protocol.messages.list_config_resources import (
        ListConfigResourcesRequest as ListConfigResourcesRequest,
    )
    from kraftcore.protocol.messages.list_config_resources import (
        ListConfigResourcesResponse as ListConfigResourcesResponse,
    )
    from kraftcore.protocol.messages.list_groups import ListGroupsRequest as ListGroupsRequest
    from kraftcore.protocol.messages.list_groups import ListGroupsResponse as ListGroupsResponse
    from kraftcore.protocol.messages.list_offsets import ListOffsetsRequest as ListOffsetsRequest
    from kraftcore.protocol.messages.list_offsets import ListOffsetsResponse as ListOffsetsResponse
    from kraftcore.protocol.messages.list_partition_reassignments import (
        ListPartitionReassignmentsRequest as ListPartitionReassignmentsRequest,
    )
    from kraftcore.protocol.messages.list_partition_reassignments import (
        ListPartitionReassignmentsResponse as ListPartitionReassignmentsResponse,
    )
    from kraftcore.protocol.messages.list_transactions import ListTransactionsRequest as ListTransactionsRequest
    from kraftcore.protocol.messages.list_transactions import ListTransactionsResponse as ListTransactionsResponse
    from kraftcore.protocol.messages.metadata import MetadataRequest as MetadataRequest
    from kraftcore.protocol.messages.metadata import MetadataResponse as MetadataResponse
    from kraftcore.protocol.messages.offset_commit import OffsetCommitRequest as OffsetCommitRequest
    from kraftcore.protocol.messages.offset_commit import OffsetCommitResponse as OffsetCommitResponse
    from kraftcore.protocol.messages.offset_delete import OffsetDeleteRequest as OffsetDeleteRequest
    from kraftcore.protocol.messages.offset_delete import OffsetDeleteResponse as OffsetDeleteResponse
    from kraftcore.protocol.messages.offset_fetch import OffsetFetchRequest as OffsetFetchRequest
    from kraftcore.protocol.messages.offset_fetch import OffsetFetchResponse as OffsetFetchResponse
    from kraftcore.protocol.messages.offset_for_leader_epoch import (
        OffsetForLeaderEpochRequest as OffsetForLeaderEpochRequest,
    )
    from kraftcore.protocol.messages.offset_for_leader_epoch import (
        OffsetForLeaderEpochResponse as OffsetForLeaderEpochResponse,
    )
    from kraftcore.protocol.messages.produce import ProduceRequest as ProduceRequest
    from kraftcore.protocol.messages.produce import ProduceResponse as ProduceResponse
    from kraftcore.protocol.messages.push_telemetry import PushTelemetryRequest as PushTelemetryRequest
    from kraftcore.protocol.messages.push_telemetry import PushTelemetryResponse as PushTelemetryResponse
    from kraftcore.protocol.messages.read_share_group_state import (
        ReadShareGroupStateRequest as ReadShareGroupStateRequest,
    )
    from kraftcore.protocol.messages.read_share_group_state import (
        ReadShareGroupStateResponse as ReadShareGroupStateResponse,
    )
    from kraftcore.protocol.messages.read_share_group_state_summary import (
        ReadShareGroupStateSummaryRequest as ReadShareGroupStateSummaryRequest,
    )
    from kraftcore.protocol.messages.read_share_group_state_summary import (
        ReadShareGroupStateSummaryResponse as ReadShareGroupStateSummaryResponse,
    )
    from kraftcore.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest as RemoveRaftVoterRequest
    from kraftcore.protocol.messages.remove_raft_voter import RemoveRaftVoterResponse as RemoveRaftVoterResponse
    from kraftcore.protocol.messages.renew_delegation_token import (
        RenewDelegationTokenRequest as RenewDelegationTokenRequest,
    )
    from kraftcore.protocol.messages.renew_delegation_token import (
        RenewDelegationTokenResponse as RenewDelegationTokenResponse,
    )
    from kraftcore.protocol.messages.sasl_authenticate import SaslAuthenticateRequest as SaslAuthenticateRequest
    from kraftcore.protocol.messages.sasl_authenticate import SaslAuthenticateResponse as SaslAuthenticateResponse
    from kraftcore.protocol.messages.sasl_handshake import SaslHandshakeRequest as SaslHandshakeRequest
    from kraftcore.protocol.messages.sasl_handshake import SaslHandshakeResponse as SaslHandshakeResponse
    from kraftcore.protocol.messages.share_acknowledge import ShareAcknowledgeRequest as ShareAcknowledgeRequest
    from kraftcore.protocol.messages.share_acknowledge import ShareAcknowledgeResponse as ShareAcknowledgeResponse
    from kraftcore.protocol.messages.share_fetch import ShareFetchRequest as ShareFetchRequest
    from kraftcore.protocol.messages.share_fetch import ShareFetchResponse as ShareFetchResponse
    from kraftcore.protocol.messages.share_group_describe import ShareGroupDescribeRequest as ShareGroupDescribeRequest
    from kraftcore.protocol.messages.share_group_describe import (
        ShareGroupDescribeResponse as ShareGroupDescribeResponse,
    )
    from kraftcore.protocol.messages.share_group_heartbeat import (
        ShareGroupHeartbeatRequest as ShareGroupHeartbeatRequest,
    )
    from kraftcore.protocol.messages.share_group_heartbeat import (
        ShareGroupHeartbeatResponse as ShareGroupHeartbeatResponse,
    )
    from kraftcore.protocol.messages.stop_replica import StopReplicaRequest as StopReplicaRequest
    from kraftcore.protocol.messages.stop_replica import StopReplicaResponse as StopReplicaResponse
    from kraftcore.protocol.messages.streams_group_describe import (
        StreamsGroupDescribeRequest as StreamsGroupDescribeRequest,
    )
    from kraftcore.protocol.messages.streams_group_describe import (
        StreamsGroupDescribeResponse as StreamsGroupDescribeResponse,
    )
    from kraftcore.protocol.messages.streams_group_heartbeat import (
        StreamsGroupHeartbeatRequest as StreamsGroupHeartbeatRequest,
    )
    from kraftcore.protocol.messages.streams_group_heartbeat import (
        StreamsGroupHeartbeatResponse as StreamsGroupHeartbeatResponse,
    )
    from kraftcore.protocol.messages.sync_group import SyncGroupRequest as SyncGroupRequest
    from kraftcore.protocol.messages.sync_group import SyncGroupResponse as SyncGroupResponse
    from kraftcore.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest as TxnOffsetCommitRequest
    from kraftcore.protocol.messages.txn_offset_commit import TxnOffsetCommitResponse as TxnOffsetCommitResponse
    from kraftcore.protocol.messages.unregister_broker import UnregisterBrokerRequest as UnregisterBrokerRequest
    from kraftcore.protocol.messages.unregister_broker import UnregisterBrokerResponse as UnregisterBrokerResponse
    from kraftcore.protocol.messages.update_features import UpdateFeaturesRequest as UpdateFeaturesRequest
    from kraftcore.protocol.messages.update_features import UpdateFeaturesResponse as UpdateFeaturesResponse
    from kraftcore.protocol.messages.update_metadata import UpdateMetadataRequest as UpdateMetadataRequest
    from kraftcore.protocol.messages.update_metadata import UpdateMetadataResponse as UpdateMetadataResponse
    from kraftcore.protocol.messages.update_raft_voter import UpdateRaftVoterRequest as UpdateRaftVoterRequest
    from kraftcore.protocol.messages.update_raft_voter import UpdateRaftVoterResponse as UpdateRaftVoterResponse
    from kraftcore.protocol.messages.vote import VoteRequest as VoteRequest
    from kraftcore.protocol.messages.vote import VoteResponse as VoteResponse
    from kraftcore.protocol.messages.write_share_group_state import (
        WriteShareGroupStateRequest as WriteShareGroupStateRequest,
    )
    from kraftcore.protocol.messages.write_share_group_state import (
        WriteShareGroupStateResponse as WriteShareGroupStateResponse,
    )
    from kraftcore.protocol.messages.write_txn_markers import WriteTxnMarkersRequest as WriteTxnMarkersRequest
    from kraftcore.protocol.messages.write_txn_markers import WriteTxnMarkersResponse as WriteTxnMarkersResponse
else:
    __all__ = message_names()
    __dir__ = listing(__all__)
    __getattr__ = loader(__name__)
