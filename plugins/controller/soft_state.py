"""The active controller's state of brokers that is in no record (KIP-631, Kafka's BrokerHeartbeatManager).

This state is lost with the leadership. The next controller begins with a fresh session for every unfenced broker, and
learns the rest from heartbeats.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

NOT_SHUTTING_DOWN = -1
NO_OFFSET = -1
LONG_AGO = -(2**62)
"""The last contact, milliseconds, that is set for a broker known to be gone: its session is then over."""


class BrokerSession(NamedTuple):
    """The session of one registered broker.

    Attributes:
        broker_epoch: of the registration that the session belongs to.
        contact_ms: when the last heartbeat came, milliseconds.
        metadata_offset: up to which the broker has read the metadata log, by its last heartbeat; -1: unknown, as after
            a change of the registration, as in Kafka.
        shutdown_offset: a controlled shutdown ends when all active brokers have reached this offset; -1: no shutdown.
    """

    broker_epoch: int
    contact_ms: int
    metadata_offset: int = NO_OFFSET
    shutdown_offset: int = NOT_SHUTTING_DOWN

    @property
    def is_shutting_down(self) -> bool:
        """Whether a controlled shutdown has begun under this controller and not ended."""
        return self.shutdown_offset >= 0


class SoftState:
    """The sessions of brokers.

    Decisions change the sessions before their records are appended, as they change the image; until the records are
    appended, former sessions are kept to go back to.

    Attributes:
        sessions: by broker id. A broker that never sent a heartbeat has none.
    """

    __slots__ = ("_changes", "_undo", "sessions")

    def __init__(self) -> None:
        self.sessions: dict[int, BrokerSession] = {}
        self._changes = 0  # number of the last change
        self._undo: deque[tuple[int, int, BrokerSession | None]] = deque()  # change, broker id, its session before

    @classmethod
    def of_unfenced(cls, brokers: Iterable[tuple[int, int]], now_ms: int) -> SoftState:
        """Make the state that a controller begins with.

        Args:
            brokers: id and epoch of each unfenced broker.
            now_ms: when the controller took over, and the sessions begin.
        """
        soft = cls()
        soft.sessions.update((broker_id, BrokerSession(epoch, now_ms)) for broker_id, epoch in brokers)
        return soft

    def update(self, sessions: Mapping[int, BrokerSession | None]) -> int:
        """Make a decision's changes of sessions.

        Returns:
            The change's number, for `take_back` and `settle`.
        """
        self._changes += 1
        for broker_id, session in sessions.items():
            self._undo.append((self._changes, broker_id, self.sessions.get(broker_id)))
            self._set(broker_id, session)
        return self._changes

    def take_back(self, change: int) -> None:
        """Undo this change and all later ones: their records are not appended."""
        while self._undo and self._undo[-1][0] >= change:
            _, broker_id, before = self._undo.pop()
            self._set(broker_id, before)

    def settle(self, change: int) -> None:
        """Keep this change and all earlier ones for good: their records are appended."""
        while self._undo and self._undo[0][0] <= change:
            self._undo.popleft()

    def _set(self, broker_id: int, session: BrokerSession | None) -> None:
        if session is None:
            self.sessions.pop(broker_id, None)
        else:
            self.sessions[broker_id] = session

    def session(self, broker_id: int, broker_epoch: int) -> BrokerSession | None:
        """The session of this registration, or None."""
        session = self.sessions.get(broker_id)
        return session if session is not None and session.broker_epoch == broker_epoch else None

    def is_alive(self, broker_id: int, broker_epoch: int, now_ms: int, timeout_ms: int) -> bool:
        """Whether a heartbeat of this registration came within the session timeout."""
        session = self.session(broker_id, broker_epoch)
        return session is not None and session.contact_ms + timeout_ms >= now_ms

    def expired(self, now_ms: int, timeout_ms: int) -> int | None:
        """The longest silent broker whose last heartbeat is older than the timeout; None: there is none."""
        found = min(self.sessions.items(), key=lambda item: (item[1].contact_ms, item[0]), default=None)
        return found[0] if found is not None and found[1].contact_ms + timeout_ms < now_ms else None
