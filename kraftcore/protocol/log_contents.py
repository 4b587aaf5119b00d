"""Whether a log holds a cluster's metadata, or an application's own records: name and topic id may be the same."""

from __future__ import annotations

from collections.abc import Iterable

from kraftcore.errors import RemoteProtocolError
from kraftcore.protocol.metadata import decode_metadata_record

_VALUES_MAX = 64
_FRAME = b"\x01"


class ContentsJudge:
    """Judges a log by the values of its first data records.

    Attributes:
        is_metadata: True once one of them was a metadata record; False once the first ones were none, by the first
            byte (the frame version, KIP-631) or 64 of them; None before.
        seen: how many values it saw.
    """

    def __init__(self) -> None:
        self.is_metadata: bool | None = None
        self.seen = 0

    def look(self, values: Iterable[bytes | None]) -> bool | None:
        """Take in the values of one batch's data records, and return ``is_metadata``; once that is known, it stays."""
        framed = False
        for value in values:
            if self.is_metadata is not None:
                return self.is_metadata
            self.seen += 1
            framed |= value is not None and value.startswith(_FRAME)
            if _is_metadata(value):
                self.is_metadata = True
            elif self.seen == _VALUES_MAX:
                self.is_metadata = False
        if self.is_metadata is None and self.seen and not framed:
            self.is_metadata = False
        return self.is_metadata


def _is_metadata(value: bytes | None) -> bool:
    try:
        return value is not None and decode_metadata_record(value) is not None
    except RemoteProtocolError:
        return False
