"""Where the replicas of new partitions go: Kafka's striped, rack-aware placement (its StripedReplicaPlacer).

Each call spreads replicas over racks, and leaders and replicas over brokers, whatever partitions brokers have already:

* Racks take turns, and so do the brokers within a rack. Each partition begins one rack further than the one before,
  and in a rack one broker further than when that rack was last used.
* The leader comes from the first rack in turn that has an unfenced broker. The other replicas come from the racks in
  turn, but the leader's rack is passed over once; in a rack, fenced brokers come when the unfenced ones are used up.
* The first rack, and the first broker of each rack, are drawn at random. When as many partitions are placed as there
  are unfenced brokers, racks and brokers are shuffled, so that the same groups of brokers do not come again and again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kraftcore.plugins.controller.decision import Randomness, Refusal
from kraftcore.protocol.error_codes import ErrorCode


class UsableBroker(NamedTuple):
    """A broker that may get new replicas.

    Attributes:
        id: its node id.
        rack: name of its rack, or None; all brokers without a rack share one.
        is_fenced: whether it is fenced: it may then become a follower, but not the leader.
    """

    id: int
    rack: str | None
    is_fenced: bool


def place(
    brokers: Iterable[UsableBroker], partitions: int, replication_factor: int, random: Randomness
) -> list[tuple[int, ...]]:
    """Choose the replicas of new partitions, the first of each unfenced.

    Args:
        brokers: to choose from: registered, not shutting down, with a directory that is not cordoned.
        partitions: how many to place.
        replication_factor: replicas of each.
        random: draws the first rack and brokers, and shuffles.

    Raises:
        Refusal: INVALID_REPLICATION_FACTOR: it is not positive, or there are not enough brokers.
    """
    striped = _Stripes(brokers, random)
    striped.check(replication_factor)
    return [striped.next_replicas(replication_factor) for _ in range(partitions)]


class _Ring:
    """Brokers that take turns. A new round begins one broker further than the round before."""

    __slots__ = ("brokers", "offset", "round", "taken")

    def __init__(self) -> None:
        self.brokers: list[int] = []
        self.offset = 0
        self.taken = 0
        self.round = 0

    def next(self, number: int) -> int | None:
        """The next broker in round ``number``; None when each had its turn."""
        size = len(self.brokers)
        if not size:
            return None
        if self.round != number:
            self.round = number
            self.taken = 0
            self.offset = (self.offset + 1) % size
        if self.taken == size:
            return None
        broker = self.brokers[(self.offset + self.taken) % size]
        self.taken += 1
        return broker


class _Rack:
    __slots__ = ("fenced", "unfenced")

    def __init__(self) -> None:
        self.unfenced = _Ring()
        self.fenced = _Ring()

    def next(self, number: int) -> int | None:
        broker = self.unfenced.next(number)
        return self.fenced.next(number) if broker is None else broker


class _Stripes:
    """The racks in turn."""

    __slots__ = ("_first", "_racks", "_random", "_registered", "_round", "_unfenced")

    def __init__(self, brokers: Iterable[UsableBroker], random: Randomness) -> None:
        by_name: dict[str | None, _Rack] = {}
        self._registered = self._unfenced = 0
        for broker in brokers:
            rack = by_name.setdefault(broker.rack, _Rack())
            (rack.fenced if broker.is_fenced else rack.unfenced).brokers.append(broker.id)
            self._registered += 1
            self._unfenced += not broker.is_fenced
        self._racks = [by_name[name] for name in sorted(by_name, key=lambda name: (name is not None, name or ""))]
        for ring in self._rings():
            if ring.brokers:
                ring.brokers.sort()
                ring.offset = random.randrange(len(ring.brokers))
        self._first = random.randrange(len(self._racks)) if self._racks else 0
        self._round = 0
        self._random = random

    def _rings(self) -> Iterator[_Ring]:
        for rack in self._racks:
            yield rack.fenced
            yield rack.unfenced

    def check(self, replication_factor: int) -> None:
        if replication_factor <= 0:
            why = f"Invalid replication factor {replication_factor}: the replication factor must be positive."
        elif not self._unfenced:
            why = "All brokers are currently fenced, or have all their log directories cordoned."
        elif replication_factor > self._registered:
            why = (
                f"The target replication factor of {replication_factor} cannot be reached because only "
                f"{self._registered} broker(s) are registered or some brokers have all their log directories cordoned."
            )
        else:
            return
        raise Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, why)

    def next_replicas(self, replication_factor: int) -> tuple[int, ...]:
        if self._round == self._unfenced > 1:
            self._shuffle()
        racks, number = self._racks, self._round
        self._first %= len(racks)
        leaders_rack = self._first
        while (broker := racks[leaders_rack].unfenced.next(number)) is None:
            leaders_rack = (leaders_rack + 1) % len(racks)
        replicas = [broker]
        position = self._first
        to_pass_over = leaders_rack
        while len(replicas) < replication_factor:
            if position == to_pass_over:
                to_pass_over = -1
            elif (broker := racks[position].next(number)) is not None:
                replicas.append(broker)
            position = (position + 1) % len(racks)
        self._round += 1
        self._first += 1
        return tuple(replicas)

    def _shuffle(self) -> None:
        self._random.shuffle(self._racks)
        for ring in self._rings():
            self._random.shuffle(ring.brokers)
        self._round = 0
