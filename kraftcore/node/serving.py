"""The handlers of the consensus's own requests. Source of the access that each needs: Kafka 4.3.1, ControllerApis."""

from __future__ import annotations

from kraftcore.errors import InvariantError
from kraftcore.node.registry import (
    ALTER_CLUSTER,
    CLUSTER_ACTION,
    DESCRIBE_CLUSTER,
    Access,
    Priority,
    RequestContext,
    RequestHandler,
)
from kraftcore.protocol.messages.add_raft_voter import AddRaftVoterRequest
from kraftcore.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftcore.protocol.messages.describe_quorum import DescribeQuorumRequest
from kraftcore.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from kraftcore.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from kraftcore.protocol.messages.update_raft_voter import UpdateRaftVoterRequest
from kraftcore.protocol.messages.vote import VoteRequest
from kraftcore.protocol.schema import Request

_ACCESS: dict[type[Request], Access] = {
    AddRaftVoterRequest: ALTER_CLUSTER,
    BeginQuorumEpochRequest: CLUSTER_ACTION,
    DescribeQuorumRequest: DESCRIBE_CLUSTER,
    EndQuorumEpochRequest: CLUSTER_ACTION,
    FetchRequest: CLUSTER_ACTION,
    FetchSnapshotRequest: CLUSTER_ACTION,
    RemoveRaftVoterRequest: ALTER_CLUSTER,
    UpdateRaftVoterRequest: CLUSTER_ACTION,
    VoteRequest: CLUSTER_ACTION,
}


def consensus_handlers() -> tuple[RequestHandler, ...]:
    """A handler for each request of the consensus, which the replica answers."""
    return tuple(
        RequestHandler(kind, _never, access, Priority.CONSENSUS, owner="consensus") for kind, access in _ACCESS.items()
    )


def _never(request: Request, context: RequestContext) -> None:
    raise InvariantError(f"{type(request).__name__} goes to the replica")
