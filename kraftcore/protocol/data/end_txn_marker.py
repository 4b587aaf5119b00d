"""EndTxnMarker."""

from __future__ import annotations

from kraftcore.protocol.schema import Data, int32


class EndTxnMarker(Data, versions=(0, 0)):
    """Body of a commit or abort marker."""

    coordinator_epoch: int = int32()
