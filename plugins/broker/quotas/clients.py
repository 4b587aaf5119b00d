"""Client quotas: how many bytes a second a client may write and fetch, without I/O.

A client that takes more is told for how long to be silent, and nothing is read from its connection for so long
(KIP-219). A quota is set for a user, for a client id or for both. Of the quotas that apply the most specific one
counts, and all clients to whom it applies by the same names share it (KIP-13, KIP-55). Each broker counts for itself.
Source: Kafka 4.3.1, ClientQuotaManager.

Not enforced: ``request_percentage``, ``connection_creation_rate``.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isnan
from typing import NamedTuple, TypeAlias

from kraftcore.metadata import Image
from kraftcore.metadata.quotas import QuotaEntity, Quotas, quota_entity
from kraftcore.node.registry import RequestContext
from kraftcore.plugins.broker.quotas.rates import QuotaWindow, Rate
from kraftcore.plugins.broker.work.deadlines import Deadlines
from kraftcore.protocol.messages.produce import ProduceResponse

LONGEST_MUTE_MS = 600_000
"""The longest time that a connection is not read: meanwhile the broker does not notice that the client left."""
_LONGEST_TOLD_MS = 2**31 - 1  # the largest throttle_time_ms
_ROOM = 1000  # the number of rates above which unused ones are removed
_Sharers: TypeAlias = tuple[str | None, str | None]


class Limit(NamedTuple):
    """The quota of a client.

    Attributes:
        rate: the most bytes a second.
        sharers: names of the user and of the client id that share the rate; None: any.
    """

    rate: float
    sharers: _Sharers


def limit_of(quotas: Quotas, key: str, user: str, client_id: str) -> Limit | None:
    """The quota that counts for a client, as in Kafka's ``DefaultQuotaCallback``; None: there is none."""
    for entity, sharers in _entities(user, client_id):
        rate = quotas.of(entity).get(key)
        if rate is not None:
            # Kafka's controller takes a rate that is no number; no client is held back by it there either.
            return None if isnan(rate) else Limit(rate, sharers)
    return None


def _entities(user: str, client_id: str) -> list[tuple[QuotaEntity, _Sharers]]:
    """Entities of quotas that apply to a client, the most specific first."""
    found: list[tuple[QuotaEntity, _Sharers]] = []
    for name in (user, None):
        for client in (client_id, None):
            found.append((quota_entity({"user": name, "client-id": client}), (user, client_id)))
        found.append((quota_entity({"user": name}), (user, None)))
    return [*found, *((quota_entity({"client-id": client}), (None, client_id)) for client in (client_id, None))]


class ByteRates:
    """The byte rates of all clients, of writing or of fetching.

    Args:
        key: the quota's key: ``producer_byte_rate`` or ``consumer_byte_rate``.
        window: the window over which rates are taken.
    """

    def __init__(self, key: str, window: QuotaWindow) -> None:
        self._key = key
        self._window = window
        self._rates: dict[_Sharers, Rate] = {}

    def __len__(self) -> int:
        """How many rates are kept."""
        return len(self._rates)

    def record(self, quotas: Quotas, context: RequestContext, size: int, now_ms: int, *, keeps: bool = True) -> int:
        """Count bytes that a client writes or fetches.

        Args:
            quotas: the quotas that are set.
            context: the context of the client's request.
            size: the number of bytes.
            now_ms: the time, milliseconds since 1970.
            keeps: whether the client gets the bytes even if they are too many; if not, too many do not count.

        Returns:
            For how long the client is to be silent, milliseconds; 0: it may go on.
        """
        limit = self.limit(quotas, context)
        if limit is None:
            return 0
        rate = self._rates.get(limit.sharers)
        if rate is None:
            self._make_room(now_ms)
            rate = self._rates[limit.sharers] = Rate(self._window)
        rate.record(size, now_ms)
        throttle_ms = min(rate.excess_ms(limit.rate, now_ms), _LONGEST_TOLD_MS)
        if throttle_ms and not keeps:
            rate.record(-size, now_ms)
        return throttle_ms

    def limit(self, quotas: Quotas, context: RequestContext) -> Limit | None:
        """How much a client may take; None: there is no limit."""
        return limit_of(quotas, self._key, context.asker.principal.name, context.client_id or "")

    def most(self, quotas: Quotas, context: RequestContext) -> int | None:
        """The most bytes at once for which a client is not throttled longer than the window; None: no limit."""
        limit = self.limit(quotas, context)
        window = self._window
        return None if limit is None else int(limit.rate * (window.samples - 1) * window.sample_ms / 1000)

    def _make_room(self, now_ms: int) -> None:
        if len(self._rates) >= _ROOM and len(self._rates) % _ROOM == 0:
            self._rates = {key: rate for key, rate in self._rates.items() if not rate.is_at_rest(now_ms)}


class _Producing(RequestContext):
    """The answering of a Produce request, which throttles the client."""

    __slots__ = ("_inner", "_throttle")

    def __init__(self, inner: RequestContext, throttle: Callable[[RequestContext], int]) -> None:
        super().__init__(inner.asker, inner.version, inner.client_id, inner.size)
        self._inner = inner
        self._throttle = throttle

    def answer(self, response: ProduceResponse) -> None:
        """Answer with the throttle time, and stop reading from the client for that long."""
        response.throttle_time_ms = self._throttle(self._inner)
        self._inner.answer(response)

    def answer_nothing(self) -> None:
        """Stop reading from the client for its throttle time."""
        self._throttle(self._inner)
        self._inner.answer_nothing()

    def close(self) -> None:
        """Break the client's connection."""
        self._inner.close()

    def wait(self) -> None:
        """Take up nothing more of the client's connection until the Produce is answered."""
        self._inner.wait()

    def mute(self) -> Callable[[], None]:
        """Take up nothing more of the client's connection until what this returns is called."""
        return self._inner.mute()


class ClientQuotas:
    """Holds clients to their quotas.

    Args:
        image: the committed metadata, as it is now.
        deadlines: resume reading from connections.
        now_ms: the time, milliseconds since 1970.
        window: of the rates.
    """

    def __init__(
        self,
        image: Callable[[], Image],
        deadlines: Deadlines,
        now_ms: Callable[[], int],
        window: QuotaWindow,
    ) -> None:
        self._image = image
        self._deadlines = deadlines
        self._now_ms = now_ms
        self._produced = ByteRates("producer_byte_rate", window)
        self._fetched = ByteRates("consumer_byte_rate", window)

    def of_producer(self, context: RequestContext) -> RequestContext:
        """The context of a Produce, whose answer says for how long the client is to be silent, and silences it."""
        if not self._image().quotas:
            return context
        return _Producing(context, self._throttle_producer)

    def _throttle_producer(self, context: RequestContext) -> int:
        """Count an answered Produce, and stop reading from its client; return for how many milliseconds."""
        throttle_ms = self._produced.record(self._image().quotas, context, context.size, self._now_ms())
        if throttle_ms:
            self._mute(context, throttle_ms)
        return throttle_ms

    def fetch_max_bytes(self, context: RequestContext, max_bytes: int) -> int:
        """The most bytes of records in an answer to a consumer; ``max_bytes`` where no quota says less."""
        quotas = self._image().quotas
        most = self._fetched.most(quotas, context) if quotas else None
        return max_bytes if most is None else min(most, max_bytes)

    def fetch(self, context: RequestContext, size: int) -> int:
        """Count bytes of records for a consumer.

        Returns:
            0; or for how long the consumer is silent from now on, milliseconds: then it gets no records.
        """
        quotas = self._image().quotas
        if not quotas:
            return 0
        throttle_ms = self._fetched.record(quotas, context, size, self._now_ms(), keeps=False)
        if throttle_ms:
            self._mute(context, throttle_ms)
        return throttle_ms

    def _mute(self, context: RequestContext, throttle_ms: int) -> None:
        self._deadlines.after(min(throttle_ms, LONGEST_MUTE_MS), context.mute())
