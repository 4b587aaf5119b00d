"""The states of locks, semaphores and barriers, and the operations on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

from kraftcore.plugins.recipes.object_states import (
    BAD,
    CONFLICT,
    INT_MAX,
    Moment,
    ObjectState,
    Operation,
    OperationRefusal,
)

LEASE_MAX_MS = 366 * 24 * 3_600_000


def check_lease(lease_ms: int) -> None:
    """Refuse a time that is none for a lease."""
    if not 0 < lease_ms <= LEASE_MAX_MS:
        raise OperationRefusal(BAD, f"a lease lasts 1 to {LEASE_MAX_MS} ms, not {lease_ms}")


class Claim(NamedTuple):
    """A claim on a lock, of its holder or of a waiting owner.

    Attributes:
        owner: the claim's own id.
        token: the fencing token; 0 while waiting.
        deadline_ms: the log's time at which it lapses, unless renewed.
        lease_ms: how long a grant lasts.
        info: the owner's packed ``info``.
    """

    owner: bytes
    token: int
    deadline_ms: int
    lease_ms: int
    info: bytes


class LeaseState(ObjectState):
    """So many holders at a time, each by a lease; the others wait in order.

    A lease ends by the log's time, which is looked at only during operations; waiting owners cause some, as they renew
    their places.

    Attributes:
        holders: claims with a lease, by owner, the oldest first.
        waiting: claims without, by owner, the first in line first.
        permits: how many holders there may be.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.holders: dict[bytes, Claim] = {}
        self.waiting: dict[bytes, Claim] = {}
        self.permits = 1

    @property
    def is_empty(self) -> bool:
        """See the base class."""
        return not self.holders and not self.waiting

    def _pass_time(self, at: Moment) -> None:
        """Drop lapsed claims, and grant what is free to the first in line."""
        for claims in (self.waiting, self.holders):
            lapsed = [owner for owner, claim in claims.items() if claim.deadline_ms <= at.now_ms]
            for owner in lapsed:
                del claims[owner]
                if claims is self.holders:
                    self.changed(at)
        while self.waiting and len(self.holders) < self.permits:
            owner = next(iter(self.waiting))
            self._grant(at, self.waiting.pop(owner))

    def _grant(self, at: Moment, claim: Claim) -> None:
        deadline_ms = at.now_ms + claim.lease_ms
        self.holders[claim.owner] = claim._replace(token=at.next_token, deadline_ms=deadline_ms)
        at.next_token += 1
        self.changed(at)

    def _token_of(self, owner: bytes) -> int:
        holder = self.holders.get(owner)
        return 0 if holder is None else holder.token

    def _acquire(self, at: Moment, owner: bytes, lease_ms: int, info: bytes, wait: bool) -> int:
        check_lease(lease_ms)
        self._pass_time(at)
        claim = Claim(owner, 0, at.now_ms + lease_ms, lease_ms, info)
        holder = self.holders.get(owner)
        if holder is not None:
            self.holders[owner] = holder._replace(deadline_ms=claim.deadline_ms, lease_ms=lease_ms, info=info)
        elif len(self.holders) < self.permits:
            self._grant(at, claim)
        elif wait:
            self.waiting[owner] = claim  # one that waits already keeps its place
        return self._token_of(owner)

    def renew(self, at: Moment, owner: bytes, token: int) -> int:
        """Prolong a lease (with its token) or a place in line (token 0); returns as ``acquire``."""
        self._pass_time(at)
        holder, waiting = self.holders.get(owner), self.waiting.get(owner)
        if holder is not None and token in (0, holder.token):
            self.holders[owner] = holder._replace(deadline_ms=at.now_ms + holder.lease_ms)
        elif waiting is not None:
            self.waiting[owner] = waiting._replace(deadline_ms=at.now_ms + waiting.lease_ms)
        return self._token_of(owner)

    def release(self, at: Moment, owner: bytes) -> bool:
        """Give up the lease or the place in line; returns whether a lease was held."""
        self._pass_time(at)
        self.waiting.pop(owner, None)
        if self.holders.pop(owner, None) is None:
            return False
        self.changed(at)
        self._pass_time(at)
        return True

    def poke(self, at: Moment) -> None:
        """Drop lapsed claims by the log's time."""
        self._pass_time(at)

    def check(self, at: Moment, token: int) -> None:
        """Refuse unless there is a lease with this token."""
        if not any(each.token == token and each.deadline_ms > at.now_ms for each in self.holders.values()):
            raise OperationRefusal(CONFLICT, f"the {self.kind} {self.name!r} is not held with token {token}")

    def rows(self) -> Iterator[list[Any]]:
        """See the base class."""
        for claims in (self.holders, self.waiting):
            for claim in claims.values():
                yield list(claim)

    def load(self, rows: Iterable[list[Any]]) -> None:
        """See the base class."""
        for row in rows:
            claim = Claim(*row)
            (self.holders if claim.token else self.waiting)[claim.owner] = claim

    operations: ClassVar[Mapping[str, Operation]] = {
        "renew": (renew, (bytes, int)),
        "release": (release, (bytes,)),
        "poke": (poke, ()),
        "check": (check, (int,)),
    }


class LockState(LeaseState):
    """One holder at a time."""

    kind = "lock"

    def acquire(self, at: Moment, owner: bytes, lease_ms: int, info: bytes, wait: bool) -> int:
        """Take the lock, or a place in line; returns the token, 0 if another owner holds it."""
        return self._acquire(at, owner, lease_ms, info, wait)

    operations = {**LeaseState.operations, "acquire": (acquire, (bytes, int, bytes, bool))}


class MembersState(LeaseState):
    """As many holders as there are members of a group."""

    kind = "members"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.permits = INT_MAX

    def acquire(self, at: Moment, owner: bytes, lease_ms: int, info: bytes, wait: bool) -> int:
        """Be a member; returns the token."""
        return self._acquire(at, owner, lease_ms, info, wait)

    operations = {**LeaseState.operations, "acquire": (acquire, (bytes, int, bytes, bool))}


class SemaphoreState(LeaseState):
    """Several holders at a time; how many is what the last one to ask said."""

    kind = "semaphore"

    def acquire(self, at: Moment, owner: bytes, lease_ms: int, info: bytes, wait: bool, permits: int) -> int:
        """Take a permit, or a place in line; returns the token, 0 if none is free."""
        if permits < 1:
            raise OperationRefusal(BAD, f"a semaphore has 1 permit or more, not {permits}")
        self.permits = permits
        return self._acquire(at, owner, lease_ms, info, wait)

    def rows(self) -> Iterator[list[Any]]:
        """See the base class."""
        yield [self.permits]
        yield from super().rows()

    def load(self, rows: Iterable[list[Any]]) -> None:
        """See the base class."""
        for row in rows:
            if len(row) == 1:
                (self.permits,) = row
            else:
                super().load([row])

    operations = {**LeaseState.operations, "acquire": (acquire, (bytes, int, bytes, bool, int))}


class BarrierState(ObjectState):
    """Where so many owners wait for each other.

    Attributes:
        generation: how many times all have come.
        waiting: the log's time at which an owner's place lapses, by owner, the first to come first.
        passed: the owners that all came the last time.
    """

    kind = "barrier"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.generation = 0
        self.waiting: dict[bytes, int] = {}
        self.passed: set[bytes] = set()

    @property
    def is_empty(self) -> bool:
        """See the base class."""
        return not self.generation and not self.waiting

    def arrive(self, at: Moment, owner: bytes, joined: int, parties: int, lease_ms: int) -> list[Any]:
        """Come, or renew one's place.

        Args:
            at: see `Moment`.
            owner: whose place it is.
            joined: the generation that the owner was told before; -1: it is new.
            parties: how many are to come.
            lease_ms: how long the place is kept.

        Returns:
            The generation that there is now, and whether all have come.
        """
        if parties < 1 or not 0 < lease_ms <= LEASE_MAX_MS:
            known = f"{parties} parties whose places are kept for {lease_ms} ms"
            raise OperationRefusal(
                BAD, f"a barrier has 1 party or more, and keeps places 1 to {LEASE_MAX_MS} ms: not {known}"
            )
        # Who was away for so long that it was not of the last time either is let through: the others went on.
        if owner in self.passed or (owner not in self.waiting and 0 <= joined < self.generation - 1):
            return [self.generation, True]
        for lapsed in [one for one, deadline_ms in self.waiting.items() if deadline_ms <= at.now_ms]:
            del self.waiting[lapsed]
        self.waiting[owner] = at.now_ms + lease_ms
        if len(self.waiting) < parties:
            return [self.generation, False]
        self.generation += 1
        self.passed = set(self.waiting)
        self.waiting.clear()
        self.changed(at)
        return [self.generation, True]

    def leave(self, at: Moment, owner: bytes) -> bool:
        """Wait no longer; returns whether all had come before."""
        self.waiting.pop(owner, None)
        return owner in self.passed

    def rows(self) -> Iterator[list[Any]]:
        """See the base class."""
        yield [self.generation, *sorted(self.passed)]
        for owner, deadline_ms in self.waiting.items():
            yield [owner, deadline_ms]

    def load(self, rows: Iterable[list[Any]]) -> None:
        """See the base class."""
        for first, *rest in rows:
            if isinstance(first, int):
                self.generation, self.passed = first, set(rest)
            else:
                self.waiting[first] = rest[0]

    operations = {"arrive": (arrive, (bytes, int, int, int)), "leave": (leave, (bytes,))}
