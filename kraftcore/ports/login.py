"""What a transport asks of whoever logs in on the connections it makes: frames to send, before any request goes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from kraftcore.ports.transport import Address, Parts


class ClientSession(Protocol):
    """One connection's login. One frame is on its way at a time; each is answered before the next.

    The correlation ids of its frames are below 0, so that they are told from those of requests.
    """

    async def prepare(self) -> None:
        """Get what the next login needs: before ``begin``, and before every ``renew``.

        Raises:
            AuthenticationError: there is nothing to log in with, for example because a file cannot be read now.
        """
        ...

    def begin(self) -> Parts:
        """The first frame on a new connection."""
        ...

    def renew(self) -> Parts:
        """The first frame of another login on the same connection, once the one before is complete (KIP-368).

        Raises:
            AuthenticationError: the other side offers no login any more.
        """
        ...

    def take(self, frame: bytes) -> Parts | None:
        """The frame to send when this one came; None: the login is complete.

        Raises:
            AuthenticationError: the other side refused it, or did not prove who it is.
        """
        ...

    @property
    def lifetime_ms(self) -> int | None:
        """For how long the last complete login holds; None: for as long as the connection does."""
        ...


Login: TypeAlias = Callable[[Address], ClientSession]
"""Makes the session of a connection to an address."""
