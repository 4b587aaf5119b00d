"""Counts of logins by listener, as Kafka counts them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class LoginCounts:
    """Counts of one listener's logins since the node started.

    Attributes:
        succeeded: connections that were authenticated, by SASL or by a certificate.
        failed: connections whose authentication failed.
        renewed: sessions that were authenticated again (KIP-368).
        not_renewed: sessions that ended because the second authentication failed.
    """

    succeeded: int = 0
    failed: int = 0
    renewed: int = 0
    not_renewed: int = 0

    def count(self, *, is_good: bool, is_again: bool) -> None:
        """Count a login that ended: whether it succeeded, and whether it renews a session."""
        match is_good, is_again:
            case True, False:
                self.succeeded += 1
            case False, False:
                self.failed += 1
            case True, True:
                self.renewed += 1
            case _:
                self.not_renewed += 1
