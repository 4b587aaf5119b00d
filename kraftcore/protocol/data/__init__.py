"""Messages that travel or rest inside others: headers, control records, principals, group metadata, quorum state."""

from typing import TYPE_CHECKING

from kraftcore.protocol.lazy import loader

if TYPE_CHECKING:
    from kraftcore.protocol.data.consumer_protocol_assignment import (
        ConsumerProtocolAssignment as ConsumerProtocolAssignment,
    )
    from kraftcore.protocol.data.consumer_protocol_subscription import (
        ConsumerProtocolSubscription as ConsumerProtocolSubscription,
    )
    from kraftcore.protocol.data.control_record_type_schema import ControlRecordTypeSchema as ControlRecordTypeSchema
    from kraftcore.protocol.data.default_principal_data import DefaultPrincipalData as DefaultPrincipalData
    from kraftcore.protocol.data.end_txn_marker import EndTxnMarker as EndTxnMarker
    from kraftcore.protocol.data.headers import RequestHeader as RequestHeader
    from kraftcore.protocol.data.headers import ResponseHeader as ResponseHeader
    from kraftcore.protocol.data.kraft_version_record import KRaftVersionRecord as KRaftVersionRecord
    from kraftcore.protocol.data.leader_change_message import LeaderChangeMessage as LeaderChangeMessage
    from kraftcore.protocol.data.quorum_state_data import QuorumStateData as QuorumStateData
    from kraftcore.protocol.data.snapshot_footer_record import SnapshotFooterRecord as SnapshotFooterRecord
    from kraftcore.protocol.data.snapshot_header_record import SnapshotHeaderRecord as SnapshotHeaderRecord
    from kraftcore.protocol.data.voters_record import VotersRecord as VotersRecord
else:
    __getattr__ = loader(__name__)
