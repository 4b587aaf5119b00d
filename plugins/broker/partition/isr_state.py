"""The ISR as the controller knows it, and the change of the ISR that is on its way to the controller.

There is one proposal at a time. Until it is answered the leader counts on both sets (``maximal``): whichever ISR the
controller has, no record is committed that one of its members lacks. Source: KIP-497, KIP-841.
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
    """The ISR of a partition as the controller knows it, and the proposed change.

    Args:
        members: the broker ids of the assigned ISR.

    Attributes:
        committed: the ISR that the controller last told.
        maximal: the members of the ISR, and those that the proposal adds.
        proposal: the proposal on its way, or None.
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
        """Begin a change; no other may be on its way."""
        self.proposal = proposal
        self.maximal = frozenset((*self.committed, *proposal.isr))

    def commit(self, members: tuple[int, ...]) -> None:
        """Take over the ISR that the controller tells."""
        self.committed = members
        self.maximal = frozenset(members)
        self.proposal = None

    def answered(self, answer: IsrAnswer, leader_epoch: int, partition_epoch: int) -> bool:
        """Take over the answer to the proposal.

        Args:
            answer: the controller's answer.
            leader_epoch: the partition's present leader epoch.
            partition_epoch: the partition's present partition epoch.

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
