"""Checks of replicas that an administrator chose for a partition."""

from __future__ import annotations

from collections.abc import Sequence

from kraftcore.plugins.controller.decision import Context, Refusal
from kraftcore.protocol.error_codes import ErrorCode


def check_assignment(context: Context, replicas: Sequence[int], replication_factor: int | None = None) -> None:
    """Check that a partition can have these replicas.

    Args:
        context: of the decision.
        replicas: broker ids, first the preferred leader.
        replication_factor: how many replicas there must be; None: any number.

    Raises:
        Refusal: INVALID_REPLICA_ASSIGNMENT: the number of replicas is wrong, or a broker unknown or named twice.
    """
    if not replicas:
        _refuse("an empty replica list.")
    brokers = context.image.brokers
    before = None
    for broker_id in sorted(replicas):
        if broker_id not in brokers:
            _refuse(f"broker {broker_id}, but no such broker is registered.")
        if broker_id == before:
            _refuse(f"the broker {broker_id} more than once.")
        before = broker_id
    if replication_factor is not None and len(replicas) != replication_factor:
        _refuse(
            f"a partition with {len(replicas)} replica(s), but this is not consistent with previous partitions, "
            f"which have {replication_factor} replica(s)."
        )


def _refuse(why: str) -> None:
    raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {why}")
