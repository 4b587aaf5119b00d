"""ControlRecordTypeSchema."""

from __future__ import annotations

from kraftcore.protocol.schema import Data, int16


class ControlRecordTypeSchema(Data, versions=(0, 0)):
    """Key of a control record: its version, then its type."""

    type: int = int16()
