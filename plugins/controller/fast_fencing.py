"""Fast fencing: finds brokers whose addresses refuse connections; no sockets, tasks or clock.

A broker can be silent for many reasons, so its session waits for it to come back. If its address, which accepted
connections before, refuses them, its process is gone (or its host refuses connections). With fast fencing the active
controller probes every broker that has a session, and ends the session of a broker that refuses for long enough. That
includes fenced brokers, which cannot register again before their session ends. A broker that does not answer at all, or
was never reached from here, keeps its session.

The caller (`watching`, the simulator) sends the probes that are ``due``, and reports their outcomes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from kraftcore.metadata import Broker
from kraftcore.protocol.failure import Failure

PROBE_TIMEOUT_MS: Final = 2_000
"""How long a probe waits for an answer."""
_AGAIN: Final = 4  # probes of a refusing broker before its session is ended


class Incarnation(NamedTuple):
    """A registration of a broker.

    Attributes:
        broker_id: its id.
        broker_epoch: its epoch.
    """

    broker_id: int
    broker_epoch: int


class Probe(NamedTuple):
    """A request, of any kind, to be sent to a broker to see whether it still listens.

    Attributes:
        whom: the broker.
        host: of the broker's listener.
        port: of the broker's listener.
        refusals: how many probes in a row were refused before. Each needs a lane without a pause after a refusal.
    """

    whom: Incarnation
    host: str
    port: int
    refusals: int = 0


@dataclass(slots=True)
class _Watched:
    host: str
    port: int
    due_ms: int
    is_fenced: bool
    is_asked: bool = False  # a probe is on its way
    was_there: bool = False
    refuses_since: int | None = None
    refusals: int = 0


class Presence:
    """Finds brokers that are gone, because their addresses refuse connections (fast fencing).

    Args:
        patience_ms: how long a broker must refuse, and how often all other brokers are probed, milliseconds.
    """

    def __init__(self, patience_ms: int) -> None:
        self._patience_ms = patience_ms
        self._watched: dict[Incarnation, _Watched] = {}

    def watch(self, brokers: Iterable[Broker], now_ms: int) -> None:
        """Watch exactly those of these brokers, which have a session, that have a listener."""
        before, self._watched = self._watched, {}
        for each in brokers:
            if not each.listeners:
                continue
            whom, place = Incarnation(each.id, each.epoch), each.listeners[0]
            known = before.get(whom)
            if known is None or (known.host, known.port) != (place.host, place.port):
                known = _Watched(place.host, place.port, now_ms, each.is_fenced)
            elif known.is_fenced and not each.is_fenced:  # a broker listens by the time it is unfenced
                known.due_ms = now_ms
            known.is_fenced = each.is_fenced
            self._watched[whom] = known

    def forget(self) -> None:
        """Watch no broker any more: this controller is not active."""
        self._watched.clear()

    def has_reached(self, broker_id: int) -> bool:
        """Whether a broker is watched, and has accepted a connection."""
        return any(each.was_there for whom, each in self._watched.items() if whom.broker_id == broker_id)

    def due(self, now_ms: int) -> Iterator[Probe]:
        """The probes to be sent now; each is to be reported by ``answered``."""
        for whom, each in self._watched.items():
            if not each.is_asked and each.due_ms <= now_ms:
                each.is_asked = True
                yield Probe(whom, each.host, each.port, each.refusals)

    @property
    def due_ms(self) -> int | None:
        """When ``due`` has the next probe; None: not before another method is called."""
        return min((each.due_ms for each in self._watched.values() if not each.is_asked), default=None)

    def answered(self, probe: Probe, failure: Failure | None, now_ms: int) -> bool:
        """Take the outcome of a probe.

        Args:
            probe: the probe.
            failure: why there was no answer; None: there was one.
            now_ms: the time, milliseconds.

        Returns:
            Whether the broker is gone: its session is to be ended.
        """
        each = self._watched.get(probe.whom)
        if each is None or (each.host, each.port) != (probe.host, probe.port):
            return False
        each.is_asked = False
        if failure is Failure.RESET:  # the broker may have died just now
            each.due_ms = now_ms
            return False
        each.due_ms = now_ms + self._patience_ms
        if failure is not Failure.REFUSED:
            each.was_there = each.was_there or failure is None
            each.refuses_since = None
            each.refusals = 0
            return False
        if not each.was_there:
            return False
        if each.refuses_since is None:
            each.refuses_since = now_ms
        each.refusals += 1
        end_ms = each.refuses_since + self._patience_ms
        if now_ms < end_ms:
            each.due_ms = min(now_ms + max(self._patience_ms // _AGAIN, 1), end_ms)
            return False
        del self._watched[probe.whom]
        return True
