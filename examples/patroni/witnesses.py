"""Clients of the cluster that write, and note what they were told: the proof that nothing was lost, and no two led."""

import threading
import time
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple

import psycopg
from lab import Member

PATIENCE_S = 30
PAUSE_S = 0.005
AGAIN_S = 0.05


def connect(members: list[Member], **more: Any) -> psycopg.Connection[Any]:
    """Connect to one of them."""
    return psycopg.connect(
        host=",".join("127.0.0.1" for _ in members),
        port=",".join(str(member.postgres_port) for member in members),
        user="postgres",
        dbname="postgres",
        connect_timeout=2,
        autocommit=True,
        **more,
    )


class Witness(threading.Thread):
    """Connects, works, and begins anew whenever that fails."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.work()
            except psycopg.Error:
                self._stopping.wait(AGAIN_S)

    @abstractmethod
    def work(self) -> None: ...

    def stop(self) -> None:
        self._stopping.set()
        if self.is_alive():
            self.join(PATIENCE_S)


class Writer(Witness):
    """Adds one row after the other, each in a transaction of its own; a row's number is never used again."""

    def __init__(self, members: list[Member]) -> None:
        super().__init__()
        self._members = members
        self._number = 0
        self._acknowledged: list[tuple[float, float, int]] = []  # when it began, when it was acknowledged, its number

    def work(self) -> None:
        with connect(self._members, target_session_attrs="read-write") as connection:
            notices: list[str] = []
            connection.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
            connection.execute("CREATE TABLE IF NOT EXISTS rows (number bigint PRIMARY KEY)")
            connection.execute("CREATE TABLE IF NOT EXISTS probes (member text)")
            while not self._stopping.wait(PAUSE_S):
                self._number += 1
                notices.clear()
                began = time.monotonic()
                connection.execute("INSERT INTO rows VALUES (%s)", (self._number,))
                if not notices:  # one may say that a commit did not wait for its second copy
                    self._acknowledged.append((began, time.monotonic(), self._number))

    def acknowledged_since(self, moment: float) -> bool:
        """Whether a row was acknowledged that began after the moment."""
        return bool(self._acknowledged) and self._acknowledged[-1][0] >= moment

    def numbers(self) -> list[int]:
        """All rows that were acknowledged."""
        return [number for _, _, number in self._acknowledged]

    def longest_gap(self, since: float) -> float:
        """The longest time without an acknowledgement that ended after the moment, in seconds."""
        times = [acknowledged for _, acknowledged, _ in self._acknowledged]
        first = max(bisect_left(times, since) - 1, 0)
        return max(after - before for before, after in zip(times[first:], times[first + 1 :], strict=False))


class Write(NamedTuple):
    """A commit that one member acknowledged, by its own disk alone."""

    began: float
    acknowledged: float
    member: str
    timeline: int


class Prober(Witness):
    """Tries to write to one member, all the time, and does not ask for a second copy.

    So a primary that should be none is found, also when there is nobody who would copy what it takes.
    """

    def __init__(self, member: Member) -> None:
        super().__init__()
        self._member = member
        self.writes: list[Write] = []

    def work(self) -> None:
        text = "INSERT INTO probes VALUES (%s) RETURNING pg_walfile_name(pg_current_wal_insert_lsn())"
        options = "-c synchronous_commit=local -c log_min_messages=panic"  # refusals would fill PostgreSQL's log
        with connect([self._member], options=options) as connection:
            while not self._stopping.wait(AGAIN_S):
                began = time.monotonic()
                with suppress(psycopg.errors.ReadOnlySqlTransaction):  # a replica, as it should be
                    for (file,) in connection.execute(text, (self._member.name,)):
                        timeline = int(file[:8], 16)  # as the name of a file of WAL begins
                        self.writes.append(Write(began, time.monotonic(), self._member.name, timeline))


def contradictions(writes: Iterable[Write]) -> list[str]:
    """What shows that two members took writes at the same time.

    Each promotion begins a timeline with the next number. So no two members have written on the same one, and once a
    write on one was acknowledged, none that begins later is acknowledged on an earlier one.
    """
    found = []
    owners: dict[int, str] = {}
    newest, acknowledged = 0, 0
    by_end = sorted(writes, key=lambda write: write.acknowledged)
    for write in sorted(by_end):
        owner = owners.setdefault(write.timeline, write.member)
        if owner != write.member:
            found.append(f"{owner} and {write.member} have both written on timeline {write.timeline}")
        while by_end[acknowledged].acknowledged < write.began:
            newest = max(newest, by_end[acknowledged].timeline)
            acknowledged += 1
        if write.timeline < newest:
            found.append(f"{write.member} wrote on timeline {write.timeline} when {newest} had begun")
    return found


def rows_missing(member: Member, numbers: list[int]) -> list[int]:
    """The rows that a member lacks; one that has just come back is given time to start, and to catch up."""
    due = time.monotonic() + PATIENCE_S
    missing = set(numbers)
    while missing and time.monotonic() < due:
        with suppress(psycopg.OperationalError), connect([member]) as connection:
            missing = set(numbers).difference(number for (number,) in connection.execute("SELECT number FROM rows"))
        time.sleep(AGAIN_S)
    return sorted(missing)
