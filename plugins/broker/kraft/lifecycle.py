"""A broker's life as its controller sees it, without I/O: the next request, and what the answer means.

    starting ──registered──> recovering ──unfenced──> running ──asked to stop──> leaving ──may go──> gone

``request()`` is what is to be sent now; ``answered()`` takes the answer and says when to ask for the next one, which is
sooner if ``is_awaited``, readiness, a failed directory or the wish to leave has something to tell. While it is not
ready the broker has itself fenced. An epoch that the controller does not know any more leads back to a registration.
Source: Kafka 4.3.1, BrokerLifecycleManager, which asks every 10 ms until it has caught up; KIP-631, KIP-841.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any

from kraftcore.core.uuid import Uuid
from kraftcore.metadata.registration import BrokerIdentity, registration
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from kraftcore.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse

NO_EPOCH = -1
AGAIN_MS = 50
"""Milliseconds until the next request when a controller did not answer, or is not the active one."""
_LATER_MS = 500  # until the next request when the controller refused one
_LEAVING_MS = 100


class Stage(Enum):
    """How far a broker is."""

    STARTING = auto()
    RECOVERING = auto()
    RUNNING = auto()
    LEAVING = auto()
    GONE = auto()


class Lifecycle:
    """Registers a broker with its controller, sends its heartbeats, and asks for its controlled shutdown.

    Args:
        who: see `BrokerIdentity`.
        directories: ids of the log directories that are online at the moment.
        failed_directories: ids of the log directories that are offline at the moment.
        heartbeat_ms: milliseconds between two heartbeats, ``broker.heartbeat.interval.ms``.
        previous_epoch: broker epoch of the run before, if that stopped in order; else -1.

    Attributes:
        stage: see `Stage`.
        broker_epoch: of the registration; -1 before.
        is_ready: the logs are open and carry out the metadata: the broker asks to be unfenced.
        is_caught_up: a controller said that it had applied its own registration.
        refusal: name of the error with which the last request was refused; None: it was not.
    """

    def __init__(
        self,
        who: BrokerIdentity,
        directories: Callable[[], Sequence[Uuid]],
        failed_directories: Callable[[], Sequence[Uuid]],
        heartbeat_ms: int,
        previous_epoch: int,
    ) -> None:
        self.stage = Stage.STARTING
        self.broker_epoch = NO_EPOCH
        self.is_ready = False
        self.is_caught_up = False
        self.refusal: str | None = None
        self._who = who
        self._directories = directories
        self._failed_directories = failed_directories
        self._heartbeat_ms = heartbeat_ms
        self._previous_epoch = previous_epoch
        self._is_registered = False
        self._wants_to_leave = False
        self._told_offset = -1

    def leave(self) -> None:
        """Ask for a controlled shutdown; without a registration there is nothing to leave."""
        self._wants_to_leave = True
        self.stage = Stage.LEAVING if self._is_registered else Stage.GONE

    def request(self, offset: int) -> BrokerRegistrationRequest | BrokerHeartbeatRequest:
        """The next request: a registration, or a heartbeat.

        Args:
            offset: of the last metadata record that took effect here; -1: none.
        """
        if not self._is_registered:
            return registration(self._who, self._directories(), self._previous_epoch)
        self._told_offset = offset
        return BrokerHeartbeatRequest(
            broker_id=self._who.broker_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=offset,
            want_fence=not self.is_ready,
            want_shut_down=self._wants_to_leave,
            offline_log_dirs=sorted(self._failed_directories()),
        )

    def is_awaited(self, offset: int) -> bool:
        """Whether the controller waits to hear that this broker has applied an offset, and was not told yet.

        The controller unfences no broker that has not applied its own registration, whose offset is the broker epoch.
        """
        return self.stage is Stage.RECOVERING and self._told_offset < self.broker_epoch <= offset

    def answered(self, answer: Any) -> int:
        """Read the answer to a request.

        Args:
            answer: the response, or a `Failure`.

        Returns:
            In how many milliseconds the next request is due.
        """
        if isinstance(answer, Failure):
            self.refusal = None if answer in (Failure.REFUSED, Failure.TIMED_OUT, Failure.RESET) else answer.name
            return AGAIN_MS
        error = ErrorCode.of(answer.error_code)
        self.refusal = None
        if error is ErrorCode.NOT_CONTROLLER:
            return AGAIN_MS
        if error is not ErrorCode.NONE:
            self.refusal = error.name
            if error in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED) and self._is_registered:
                self._lose_registration()
            return _LATER_MS
        if isinstance(answer, BrokerRegistrationResponse):
            return self._registered(answer.broker_epoch)
        if isinstance(answer, BrokerHeartbeatResponse):
            return self._heartbeat_answered(answer)
        return _LATER_MS

    def _lose_registration(self) -> None:
        """The controller does not know the broker epoch any more: it has ended the registration, or lost it."""
        self._previous_epoch = self.broker_epoch
        self._is_registered = False
        if self._wants_to_leave:
            self.stage = Stage.GONE
        else:
            self.stage = Stage.STARTING

    def _registered(self, broker_epoch: int) -> int:
        self._is_registered = True
        self.broker_epoch = broker_epoch
        self.stage = Stage.LEAVING if self._wants_to_leave else Stage.RECOVERING
        return 0

    def _heartbeat_answered(self, answer: BrokerHeartbeatResponse) -> int:
        self.is_caught_up = self.is_caught_up or answer.is_caught_up
        if self.stage is Stage.LEAVING:
            if answer.should_shut_down:
                self.stage = Stage.GONE
            return min(_LEAVING_MS, self._heartbeat_ms)
        if self.stage is Stage.RECOVERING:
            if not answer.is_fenced:
                self.stage = Stage.RUNNING
        elif answer.is_fenced:
            # Sessions may end while the network is slow: the next heartbeat asks at once to be unfenced again.
            self.stage = Stage.RECOVERING
            return 0
        return self._heartbeat_ms
