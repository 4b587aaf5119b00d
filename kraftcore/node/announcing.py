"""A node's changes of role, leader and voters, as events and as lines in the operator's log."""

from __future__ import annotations

import logging
from collections.abc import Callable

from kraftcore.node.event_hub import EventHub
from kraftcore.node.events import Elected, LeaderChanged, Noted, RoleChanged, VotersChanged
from kraftcore.raft.quorum import VoterSet
from kraftcore.raft.roles import Role

_logger = logging.getLogger("kraftcore.node")


class RoleNews:
    """Tells which changes of role people should read of.

    While no leader answers, a voter takes the same few roles again and again, every few seconds: only the first of
    each is news, until a leader answers or another epoch begins.
    """

    def __init__(self) -> None:
        self._told: set[tuple[Role, int]] = set()

    def heard(self, leader_id: int | None) -> None:
        """Take who leads; None: no leader answers."""
        if leader_id is not None:
            self._told.clear()

    def is_news(self, role: Role, epoch: int) -> bool:
        """Whether to tell of a change to that role; asked once for each change."""
        if any(epoch != known for _, known in self._told):
            self._told.clear()
        before = len(self._told)
        self._told.add((role, epoch))
        return len(self._told) > before


class Announcer:
    """Announces each change of role, leader or voters once, to subscribers and in the log.

    In the log, changes of role that are no news (`RoleNews`) are of the level DEBUG.

    Args:
        label: the node's id, or what else people know it by.
        events: hands the events out.
        now_s: returns seconds of a monotonic clock, which measures how long elections take.

    Attributes:
        label: as given.
    """

    def __init__(self, label: str, events: EventHub, now_s: Callable[[], float]) -> None:
        self.label = label
        self._events = events
        self._now_s = now_s
        self._role: tuple[Role, int] | None = None
        self._news = RoleNews()
        self._leader: tuple[int | None, int] | None = None
        self._asking_since: float | None = None  # seconds; None: no election of this node is under way

    def role(self, role: Role, epoch: int) -> bool:
        """Announce the node's role and epoch; returns whether they are new."""
        now = (role, epoch)
        if now == self._role:
            return False
        self._role = now
        if role is Role.PROSPECTIVE and self._asking_since is None:
            self._asking_since = self._now_s()
        level = logging.INFO if self._news.is_news(role, epoch) else logging.DEBUG
        _logger.log(level, "node %s: %s in epoch %d", self.label, role.value, epoch)
        self._events.tell(RoleChanged(role, epoch))
        return True

    def leader(self, leader_id: int | None, epoch: int) -> None:
        """Announce the leader; None: no leader answers."""
        self._news.heard(leader_id)
        before, self._leader = self._leader, (leader_id, epoch)
        if self._leader == before or (leader_id is None and before is not None and before[0] is None):
            return  # another epoch without a leader is no news
        if leader_id is not None and self._asking_since is not None:
            self._events.tell(Elected(self._now_s() - self._asking_since))
            self._asking_since = None
        who = "no leader answers" if leader_id is None else f"node {leader_id} leads"
        _logger.info("node %s: %s in epoch %d", self.label, who, epoch)
        self._events.tell(LeaderChanged(leader_id, epoch))

    def voters(self, voters: VoterSet) -> None:
        """Announce the voter set in force."""
        _logger.info("node %s: the voters are %s", self.label, ", ".join(map(str, sorted(voters.ids))))
        self._events.tell(VotersChanged(voters))

    def alarm(self, text: str) -> None:
        """Log an alarm: a leader would have this node drop committed records."""
        _logger.critical("node %s: %s", self.label, text)
        self._events.tell(Noted(text))

    def note(self, text: str, error: BaseException | None = None) -> None:
        """Log something that should not happen; an application's error with its traceback."""
        level = logging.WARNING if error is None else logging.ERROR
        _logger.log(level, "node %s: %s", self.label, text, exc_info=error)
        self._events.tell(Noted(text))
