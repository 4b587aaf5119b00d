"""Whether a node works, and whether it should get work: what probes and load balancers ask.

A node is ready if it follows a leader that commits, and has applied what is committed. An open port shows neither, nor
does a leader's id that the node remembers; so these are judged by answers of the leader and by the high watermark:

* the leader has answered a Fetch of this node within the fetch timeout; if this node leads, a majority of the voters
  has fetched from it within that time;
* no record has waited longer than that for its commit while none was committed;
* this node has applied all committed records but a few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kraftcore.executor.executor import Executor
from kraftcore.raft.roles import Role

MAX_LAG = 10_000
"""Committed records that a node which is ready may lack by default."""


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a node works, and why it should get no work.

    Attributes:
        is_live: whether the node runs; a node that has stopped does not run again.
        reasons: why the node is not ready, a sentence each; empty: it is ready.
    """

    is_live: bool
    reasons: tuple[str, ...] = ()

    @property
    def is_ready(self) -> bool:
        """Whether the node follows a leader that commits, or is one, and lags little."""
        return not self.reasons


def troubles(
    executor: Executor, now_ms: int, fetch_timeout_ms: int, max_lag: int, who_answers: Callable[[], str]
) -> Iterator[str]:
    """The reasons why a running node is not ready.

    Args:
        executor: of the node.
        now_ms: the node's time.
        fetch_timeout_ms: of the node.
        max_lag: so many committed records may be not applied.
        who_answers: returns which voters answer and which do not, for people.
    """
    replica = executor.replica
    silent_ms = replica.leader_silent_ms(now_ms)
    if replica.alarm is not None:
        yield replica.alarm
    if replica.answering_leader_id is None:
        yield f"no leader has answered for {_seconds(silent_ms)}: {who_answers()}"
    elif replica.role is Role.LEADER and silent_ms > fetch_timeout_ms:
        yield f"it leads without a majority: for {_seconds(silent_ms)} too few voters have fetched; {who_answers()}"
    since_ms = executor.uncommitted_since_ms
    if since_ms is not None and now_ms - since_ms > fetch_timeout_ms and not executor.is_installing:
        first, end = executor.high_watermark, executor.log.log_end_offset
        yield f"nothing has been committed for {_seconds(now_ms - since_ms)}, and offsets {first} to {end - 1} wait"
    committed = replica.told_high_watermark
    if committed is None:
        yield "no leader has told yet what is committed"
    elif committed - executor.applier.offset > max_lag:
        yield (
            f"{committed - executor.applier.offset} committed records, up to offset {committed - 1}, are not applied "
            f"here: {max_lag} may be"
        )


def _seconds(duration_ms: int) -> str:
    return f"{duration_ms / 1000:.0f} s" if duration_ms >= 10_000 else f"{duration_ms / 1000:.1f} s"
