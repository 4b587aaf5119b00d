"""DefaultPrincipalData."""

from __future__ import annotations

from kraftcore.protocol.schema import Data, boolean, string


class DefaultPrincipalData(Data, versions=(0, 0), flexible_from=0):
    """A principal as Envelope and delegation tokens carry it (KIP-590)."""

    type: str = string()
    name: str = string()
    token_authenticated: bool = boolean()
