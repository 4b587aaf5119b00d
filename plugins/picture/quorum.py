"""What each controller answers, who leads, who lags, and that in sentences."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from kraftcore.admin.router import REASONS
from kraftcore.ports.transport import Address
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.describe_cluster import DescribeClusterResponse
from kraftcore.protocol.messages.describe_quorum import DescribeQuorumResponse, ReplicaState

SILENT_MS = 5_000
"""A voter that has not fetched for so long is said to be silent."""
LAG_MAX = 1_000
"""A voter that lacks more records is said to lag."""
Json = dict[str, Any]
_Part = DescribeQuorumResponse.TopicData.PartitionData


class Says(StrEnum):
    """What a controller answers."""

    NOTHING_YET = "not asked yet"
    LEADS = "leads"
    FOLLOWS = "answers"
    REFUSES = "refuses"
    SILENT = "does not answer"


class Level(StrEnum):
    """How bad a sentence is."""

    GOOD = "good"
    WARN = "warn"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Sentence:
    """Something to tell people.

    Attributes:
        level: how bad it is.
        text: in words.
        help: what to do about it; empty: nothing need be done.
    """

    level: Level
    text: str
    help: str = ""


@dataclass(frozen=True, slots=True)
class Controller:
    """A controller that is asked.

    Attributes:
        address: where.
        id: node id; None while nobody has told it.
        says: what it answers.
        since_ms: since when it says so.
        text: more of its answer, in words; may be empty.
        believes: the leader by its own account, -1 for none; None: it was not asked.
    """

    address: Address
    id: int | None = None
    says: Says = Says.NOTHING_YET
    since_ms: int = 0
    text: str = ""
    believes: int | None = None

    @property
    def name(self) -> str:
        """Id and address for people."""
        return str(self.address) if self.id is None else f"controller {self.id} ({self.address})"


@dataclass(frozen=True, slots=True)
class Replica:
    """A voter or observer, as the leader told; see `ReplicaState`. Times are of this process's clock."""

    id: int
    directory_id: str
    is_voter: bool
    log_end_offset: int
    lag: int
    fetched_ms: int | None
    caught_up_ms: int | None


@dataclass(frozen=True, slots=True)
class Told:
    """The last answer of a leader.

    Attributes:
        at_ms: when it came.
        address: from where.
        leader_id, epoch, high_watermark, end_offset: as told.
        replicas: voters, then observers.
    """

    at_ms: int
    address: Address
    leader_id: int
    epoch: int
    high_watermark: int
    end_offset: int
    replicas: tuple[Replica, ...]

    @property
    def voters(self) -> tuple[Replica, ...]:
        """Those that vote."""
        return tuple(each for each in self.replicas if each.is_voter)


class QuorumPicture:
    """The controllers of a quorum and their answers.

    Args:
        topic: name of the quorum's log.

    Attributes:
        cluster_id: empty until somebody tells it.
        told: the last answer of a leader; None before the first one.
        leaderless_ms: since when no leader answers; None while one does, and before anybody was asked.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._controllers: dict[Address, Controller] = {}
        self._voters: set[int] = set()
        self._relays: dict[Address, bool] = {}  # brokers, and whether they tell what the leader answers
        self.cluster_id = ""
        self.told: Told | None = None
        self.leaderless_ms: int | None = None

    # --- answers in ---------------------------------------------------------------------------------------------------

    def know(self, address: Address, node_id: int | None, now_ms: int) -> None:
        """Take note of a controller, which is to be asked from now on."""
        known = self._controllers.get(address)
        if known is None:
            self._controllers[address] = Controller(address, node_id, since_ms=now_ms)
        elif node_id is not None and known.id != node_id:
            self._controllers[address] = replace(known, id=node_id)

    def know_voters(self, voters: Iterable[tuple[int, Address | None]], now_ms: int) -> None:
        """Take note of who votes, and where: None for a voter that nobody gave an address of."""
        found = dict(voters)
        if found:
            self._voters = set(found)
        for node_id, at in found.items():
            if at is not None:
                self.know(at, node_id, now_ms)

    def described(self, address: Address, answer: DescribeQuorumResponse | Failure, now_ms: int) -> None:
        """Take in the answer to a DescribeQuorum, or why there is none."""
        if isinstance(answer, Failure):
            says = Says.REFUSES if answer in (Failure.UNAUTHENTICATED, Failure.UNSUPPORTED_VERSION) else Says.SILENT
            self._says(address, says, REASONS[answer], now_ms)
        else:
            self._quorum_told(address, answer, now_ms)
        self._judge(now_ms)

    def relayed(self, address: Address, answer: DescribeQuorumResponse | Failure, now_ms: int) -> None:
        """Take in the answer of a broker, which passes a DescribeQuorum on to the leader."""
        part = None if isinstance(answer, Failure) else self._part(answer)
        self._relays[address] = part is not None and not part.error_code
        if part is not None and not part.error_code and not isinstance(answer, Failure):
            self._leader_told(address, answer, part, now_ms)
        self._judge(now_ms)

    def _judge(self, now_ms: int) -> None:
        if any(self._relays.values()) or any(each.says is Says.LEADS for each in self._controllers.values()):
            self.leaderless_ms = None
        elif self.leaderless_ms is None:
            self.leaderless_ms = now_ms

    def listed(self, address: Address, answer: DescribeClusterResponse, now_ms: int) -> None:
        """Take in the answer to a DescribeCluster: who the controllers are, and whom this one believes to lead."""
        if answer.error_code:
            return
        self.cluster_id = self.cluster_id or answer.cluster_id
        known = self._controllers.get(address)
        if known is not None:
            self._controllers[address] = replace(known, believes=answer.controller_id)
        for node in answer.brokers:
            self.know(Address(node.host, node.port), node.broker_id, now_ms)

    def _quorum_told(self, address: Address, answer: DescribeQuorumResponse, now_ms: int) -> None:
        part = self._part(answer)
        code = ErrorCode.UNKNOWN_SERVER_ERROR if part is None else ErrorCode.of(answer.error_code or part.error_code)
        if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self._says(address, Says.FOLLOWS, "", now_ms)
        elif part is None or code is not ErrorCode.NONE:
            self._says(address, Says.REFUSES, code.message or code.name, now_ms)
        else:
            self.know(address, part.leader_id, now_ms)
            self._says(address, Says.LEADS, "", now_ms)
            self._leader_told(address, answer, part, now_ms)

    def _part(self, answer: DescribeQuorumResponse) -> _Part | None:
        found = (part for topic in answer.topics if topic.topic_name == self._topic for part in topic.partitions)
        return next(found, None)

    def _leader_told(self, address: Address, answer: DescribeQuorumResponse, part: _Part, now_ms: int) -> None:
        places = {
            node.node_id: Address(node.listeners[0].host, node.listeners[0].port)
            for node in answer.nodes
            if node.listeners
        }
        self.know_voters(((each.replica_id, places.get(each.replica_id)) for each in part.current_voters), now_ms)
        if self.told is None or part.leader_epoch >= self.told.epoch:
            self.told = _told(address, part, now_ms)

    def _says(self, address: Address, says: Says, text: str, now_ms: int) -> None:
        known = self._controllers.get(address) or Controller(address)
        since_ms = known.since_ms if known.says is says else now_ms
        self._controllers[address] = replace(known, says=says, text=text, since_ms=since_ms)

    # --- what is seen -------------------------------------------------------------------------------------------------

    @property
    def addresses(self) -> list[Address]:
        """Whom to ask."""
        return list(self._controllers)

    @property
    def leader(self) -> Told | None:
        """The last answer of the leader that answers now; None: no leader answers."""
        return self.told if self.leaderless_ms is None else None

    def answer(self, now_ms: int) -> tuple[Sentence, ...]:
        """What an operator is to know, the most important first."""
        if self.told is None and all(each.says is Says.NOTHING_YET for each in self._controllers.values()):
            if not self._relays:
                return (Sentence(Level.WARN, "Nobody has answered yet."),)
            text = "No broker that was named tells who leads, and no controller is known."
            return (Sentence(Level.BAD, text, "Name the controllers: --bootstrap-controller."),)
        leader = self.leader
        if leader is None:
            return tuple(self._without_leader(now_ms))
        found = [*_silent(leader), *self._unreached(leader, now_ms)]
        if not found:
            count = len(leader.voters)
            text = f"Controller {leader.leader_id} leads epoch {leader.epoch}; "
            found = [
                Sentence(Level.GOOD, text + ("its one voter is itself." if count == 1 else f"{count} voters fetch."))
            ]
        return tuple(found)

    def _without_leader(self, now_ms: int) -> Iterable[Sentence]:
        answering = {
            each.id if self._voters else each.address
            for each in self._controllers.values()
            if each.says in (Says.FOLLOWS, Says.LEADS) and (not self._voters or each.id in self._voters)
        }
        total = len(self._voters) or len(self._controllers)
        need = total // 2 + 1
        text = f"No leader answers, for {_seconds(now_ms - (self.leaderless_ms or now_ms))}. "
        who = "voters" if self._voters else "controllers that are known"
        text += f"{len(answering)} of {total} {who} {'answers' if len(answering) == 1 else 'answer'}"
        if not self._voters:
            yield Sentence(Level.BAD, f"{text}.", "Name all controllers, so that each is asked.")
        elif len(answering) >= need:
            yield Sentence(Level.BAD, f"{text}, {need} are needed: an election is due.", "Look again in some seconds.")
        else:
            lacking = need - len(answering)
            yield Sentence(
                Level.BAD,
                f"{text}, {need} are needed: nothing can be committed.",
                f"Start {lacking} more of those that do not answer. If their disks are lost: kraftcore storage "
                "recover-quorum, on one that answers.",
            )
        for each in self._controllers.values():
            yield Sentence(Level.WARN, self._account(each, now_ms))

    def _account(self, each: Controller, now_ms: int) -> str:
        text = f"{each.name} {each.says}"
        if each.text:
            text += f": {each.text}"
        if each.says is Says.FOLLOWS and each.believes is not None:
            knows = "it knows no leader" if each.believes < 0 else f"it takes controller {each.believes} for the leader"
            text += f", and {knows}"
        return f"{text}, for {_seconds(now_ms - each.since_ms)}."

    def _unreached(self, leader: Told, now_ms: int) -> Iterable[Sentence]:
        # Those that the quorum reaches and cannot be asked from here do no harm to the quorum.
        fetching = {each.id for each in leader.replicas if not _is_silent(each, leader)}
        for each in self._controllers.values():
            if each.says in (Says.SILENT, Says.REFUSES):
                more = "; the quorum reaches it all the same" if each.id in fetching else ""
                text = self._account(each, now_ms).removesuffix(".") + f"{more}."
                yield Sentence(Level.WARN, text, "Look at its log." if each.id not in fetching else "")

    def controllers(self) -> dict[str, Json]:
        """The controllers by address, as JSON values."""
        return {
            str(each.address): {
                "address": str(each.address),
                "id": -1 if each.id is None else each.id,
                "says": each.says.value,
                "text": each.text,
                "sinceMs": each.since_ms,
                "isVoter": each.id in self._voters,
            }
            for each in self._controllers.values()
        }

    def replicas(self) -> dict[str, Json]:
        """Voters and observers by id and directory id, as the leader told last, as JSON values."""
        told = self.told
        if told is None:
            return {}
        leads = told.leader_id if self.leader is not None else None
        return {
            f"{each.id} {each.directory_id}": {
                "id": each.id,
                "directoryId": each.directory_id,
                "role": "observer" if not each.is_voter else "leader" if each.id == leads else "voter",
                "logEndOffset": each.log_end_offset,
                "lag": each.lag,
                "lastFetchMs": each.fetched_ms or 0,
                "lastCaughtUpMs": each.caught_up_ms or 0,
                "isSilent": _is_silent(each, told),
            }
            for each in told.replicas
        }


def _told(address: Address, part: _Part, now_ms: int) -> Told:
    states = [(each, True) for each in part.current_voters] + [(each, False) for each in part.observers]
    own = next((each for each, _ in states if each.replica_id == part.leader_id), None)
    end = (
        own.log_end_offset
        if own is not None
        else max([part.high_watermark, *(each.log_end_offset for each, _ in states)])
    )
    # The leader's times are by its clock: its own last fetch is its present.
    present = max(
        [own.last_fetch_timestamp if own is not None else -1, *(each.last_fetch_timestamp for each, _ in states)]
    )

    def here(time_ms: int) -> int | None:
        return None if time_ms < 0 else now_ms - max(present - time_ms, 0)

    def replica(each: ReplicaState, is_voter: bool) -> Replica:
        return Replica(
            each.replica_id,
            str(each.replica_directory_id),
            is_voter,
            each.log_end_offset,
            max(end - max(each.log_end_offset, 0), 0),
            here(each.last_fetch_timestamp),
            here(each.last_caught_up_timestamp),
        )

    found = tuple(replica(each, is_voter) for each, is_voter in states)
    return Told(now_ms, address, part.leader_id, part.leader_epoch, part.high_watermark, end, found)


def _is_silent(each: Replica, told: Told) -> bool:
    return each.id != told.leader_id and (each.fetched_ms is None or told.at_ms - each.fetched_ms > SILENT_MS)


def _silent(leader: Told) -> Iterable[Sentence]:
    voters = leader.voters
    silent = [each for each in voters if _is_silent(each, leader)]
    if len(voters) - len(silent) < len(voters) // 2 + 1:
        text = (
            f"Controller {leader.leader_id} says that it leads, but no majority fetches from it: nothing is committed."
        )
        yield Sentence(Level.BAD, text, "Start the voters that are silent.")
    elif leader.high_watermark < 0:
        text = f"Controller {leader.leader_id} leads epoch {leader.epoch}, and has committed nothing in it yet."
        yield Sentence(Level.WARN, text)
    for each in silent:
        heard = "never" if each.fetched_ms is None else f"for {_seconds(leader.at_ms - each.fetched_ms)} not"
        yield Sentence(Level.WARN, f"Voter {each.id} has {heard} fetched from the leader.", "Look whether it runs.")
    for each in voters:
        if each not in silent and each.lag > LAG_MAX:
            yield Sentence(Level.WARN, f"Voter {each.id} lacks {each.lag:,} records.")


def _seconds(ms: int) -> str:
    return f"{max(ms, 0) // 1000} s" if ms < 600_000 else f"{ms // 60_000} min"
