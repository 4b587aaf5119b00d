"""Log lines, one for each kind, about requests that kraftcore's brokers refuse, with the setting that avoids them."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from kraftcore.node.registry import RequestContext


class Unsupported(Enum):
    """A kind of request that is refused, whatever is in it."""

    TRANSACTIONS = (
        "asks for transactions, and no broker alive coordinates them: set no transactional.id (with "
        "enable.idempotence=true producers are idempotent without it), or add brokers of Kafka to the cluster"
    )
    CONSUMER_PROTOCOL = (
        "joins a group by the consumer protocol, which is not coordinated here: set group.protocol=classic"
    )


class Refusals:
    """Says each kind once.

    Args:
        log: writes a line of the broker's log.
    """

    def __init__(self, log: Callable[[str], object]) -> None:
        self._log = log
        self._said: set[Unsupported] = set()

    def __call__(self, kind: Unsupported, context: RequestContext) -> None:
        """Log a refused request, if it is the first of its kind."""
        if kind not in self._said:
            self._said.add(kind)
            name = context.client_id or "(without client.id)"
            self._log(f"client {name} at {context.asker.peer} {kind.value}; said once")
