"""The in-sync replicas as the controller knows them, and the change that is on its way to it.

One proposal at a time. Until it is answered the leader counts on the larger of both sets (``maximal``): whichever the
controller has, no record is committed that one of its in-sync replicas lacks. Source: KIP-497, KIP-841.
"""

from __future__ import annotations

from kraftcore.plugins.broker.partition.state import IsrAnswer, IsrProposal
from kraftcore.protocol.error_codes import ErrorCode

# The controller says that it did not take the proposal, and that the state it was based on holds.
NOT_APPLIED = {ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA}
# It is unknown what holds now: the controller will tell. Until then the proposal stands.
AWAIT_ASSIGNMENT = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NEW_LEADER_ELECTED,
}


class Isr:
    """The in-sync replicas of a partition as the controller knows them, and the change that was asked for.

    Args:
        members: broker ids, as assigned.

    Attributes:
        committed: as the controller last said.
        maximal: everybody who is in sync now, or may be by the proposal.
        proposal: on its way, or None.
    """

    __slots__ = ("committed", "maximal", "proposal")

    def __init__(self, members: tuple[int, ...]) -> None:
        self.committed = members
        self.maximal = frozenset(members)
        self.proposal: IsrProposal | None = None

    @property
    def is_settled(self) -> bool:
        """Whether no proposal is on its way."""
        return self.proposal is None

    def propose(self, proposal: IsrProposal) -> None:
        """Begin a change; there is none under way."""
        self.proposal = proposal
        self.maximal = frozenset((*self.committed, *proposal.isr))

    def commit(self, members: tuple[int, ...]) -> None:
        """The controller says who is in sync."""
        self.committed = members
        self.maximal = frozenset(members)
        self.proposal = None

    def answered(self, answer: IsrAnswer, leader_epoch: int, partition_epoch: int) -> bool:
        """Take an answer in.

        Args:
            answer: to the proposal under way.
            leader_epoch: the partition's now.
            partition_epoch: likewise.

        Returns:
            Whether the proposal is to be sent again.
        """
        if answer.error in NOT_APPLIED:
            self.commit(self.committed)
        elif answer.error is ErrorCode.NONE:
            if answer.leader_epoch == leader_epoch and answer.partition_epoch >= partition_epoch:
                self.commit(answer.isr)
        else:
            return answer.error not in AWAIT_ASSIGNMENT
        return False
