"""How many logins there were; as Kafka counts them by listener."""

from __future__ import annotations

from kraftcore.dataclass import dataclass


@dataclass(slots=True)
class LoginCounts:
    """Of one listener, since the node started.

    Attributes:
        succeeded: connections that proved who they are, by SASL or by what a principal builder makes of a certificate.
        failed: connections that were turned away.
        renewed: sessions that proved it anew (KIP-368).
        not_renewed: sessions that ended because the proof failed the second time.
    """

    succeeded: int = 0
    failed: int = 0
    renewed: int = 0
    not_renewed: int = 0

    def count(self, *, is_good: bool, is_again: bool) -> None:
        """One login has ended."""
        match is_good, is_again:
            case True, False:
                self.succeeded += 1
            case False, False:
                self.failed += 1
            case True, True:
                self.renewed += 1
            case _:
                self.not_renewed += 1
