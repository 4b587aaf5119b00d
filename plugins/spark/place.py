"""The address of a running quorum, from options of the data source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kraftcore.errors import LocalError, UnreachableError
from kraftcore.protocol.topics import METADATA_TOPIC

if TYPE_CHECKING:
    from kraftcore.admin import Timing
    from kraftcore.transports.tcp import TlsFiles


@dataclass(frozen=True)
class Place:
    """Which quorum, and how to reach it.

    Attributes:
        controllers: ``host:port`` of some controllers.
        topic: name of the quorum's log.
        mirror: directory of the observer's mirror, kept between runs; None: a temporary one.
        tls_files: PEM files of certificate, key and authorities; all None: no TLS.
        timeout_ms: how long to look for the quorum, in ms, > 0.
    """

    controllers: tuple[str, ...]
    topic: str = METADATA_TOPIC
    mirror: str | None = None
    tls_files: tuple[str | None, str | None, str | None] = (None, None, None)
    timeout_ms: int = 60_000

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Place | None:
        """Read ``bootstrap_controllers``, ``topic``, ``mirror``, ``tls_ca``, ``tls_certificate``, ``tls_key`` and
        ``timeout_ms``; None where no quorum is named.

        Raises:
            LocalError: a value that cannot be read.
        """
        text = options.get("bootstrap_controllers")
        if not text:
            return None
        ca, certificate, key = (options.get(f"tls_{name}") for name in ("ca", "certificate", "key"))
        timeout = options.get("timeout_ms") or "60000"
        if not timeout.isdecimal() or int(timeout) == 0:
            raise LocalError(f"option timeout_ms={timeout!r} is not a whole number from 1 on")
        return cls(
            tuple(part.strip() for part in text.split(",") if part.strip()),
            options.get("topic") or METADATA_TOPIC,
            options.get("mirror"),
            (certificate, key, ca),
            int(timeout),
        )

    def tls(self) -> TlsFiles | None:
        """Files for TLS; None: no TLS."""
        from kraftcore.transports.tcp import TlsFiles

        return TlsFiles(*self.tls_files) if any(self.tls_files) else None

    def timing(self) -> Timing:
        """Timeouts for calls of an admin client."""
        from kraftcore.admin import Timing

        return Timing(self.timeout_ms, min(self.timeout_ms, 30_000))


def explained(error: UnreachableError) -> UnreachableError:
    """The same error with the failure of the last attempt in its text."""
    return UnreachableError(
        f"{error}: {error.last_failure}", last_failure=error.last_failure, outcome_unknown=error.outcome_unknown
    )
