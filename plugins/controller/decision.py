"""The parts of every decision: its context, records, answer and refusals.

    def decide(context: Context, request: ..., version: int) -> ControllerResult

A decision either returns records and an answer, or raises ``Refusal``, which changes nothing. Where each item of a
request has its own result, a ``Refusal`` of an item is caught in the loop over the items.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableSequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from kraftcore.configdef.keys import definitions
from kraftcore.errors import RefusedError
from kraftcore.metadata import Image
from kraftcore.plugins.controller.caller import UNKNOWN_CALLER, Caller
from kraftcore.plugins.controller.soft_state import BrokerSession, SoftState
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.schema import MetadataRecord, Response
from kraftcore.security.audit import Action

MAX_RECORDS: Final = 10_000
"""Most records of one administrator's request (Kafka's ``MAX_RECORDS_PER_USER_OP``), and of one batch."""

_TOO_LARGE: Final = "Unable to perform excessively large batch operation."

Record = tuple[MetadataRecord, int]
"""A record of the metadata log and the version it is written in."""


class Randomness(Protocol):
    """The source of random numbers: ``random.Random``, or a stand-in."""

    def randrange(self, stop: int, /) -> int:
        """A number from 0 to below ``stop``."""

    def shuffle(self, values: MutableSequence[Any], /) -> None:
        """Shuffle the list in place."""

    def randbytes(self, count: int, /) -> bytes:
        """Return ``count`` random bytes."""


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """The settings in the controller's own configuration file that decisions need.

    Attributes:
        cluster_id: of the controller's cluster.
        node_id: of this controller.
        session_timeout_ms: ``broker.session.timeout.ms``: a broker that is silent for longer is fenced.
        default_partitions: ``num.partitions``.
        default_replication_factor: ``default.replication.factor``.
        is_topic_deletion_enabled: ``delete.topic.enable``.
        max_elections: most elections in one decision of the timers for preferred and unclean leaders.
        static_configs: the properties of the file. Some, such as ``log.retention.ms``, are defaults of dynamic configs.
        static_voters: ids of ``controller.quorum.voters``; empty where voters are dynamic (KIP-853).
    """

    cluster_id: str
    node_id: int = 0
    session_timeout_ms: int = 9_000
    default_partitions: int = 1
    default_replication_factor: int = 1
    is_topic_deletion_enabled: bool = True
    max_elections: int = 1_000
    static_configs: Mapping[str, str] = field(default_factory=dict)
    static_voters: frozenset[int] = frozenset()

    def value(self, name: str) -> Any:
        """The value of a server's key in the file, or the key's default.

        Raises:
            ConfigValueError: Kafka refuses the value.
            KeyError: there is no such key.
        """
        key = definitions("broker")[name]
        text = self.static_configs.get(name, key.default)
        return None if text is None else key.read(text)


def allow_all(action: Action) -> bool:
    """Allow every action, as without an authorizer."""
    return True


@dataclass(slots=True)
class Context:
    """The state that a decision reads, and must not change.

    Attributes:
        image: the metadata image with everything that was appended, committed or not.
        soft: the state that only the leader has.
        now_ms: milliseconds from any fixed point, never going back.
        next_offset: the offset that the first record of this decision gets.
        settings: of the controller's file.
        random: the only source of randomness.
        kraft_version: finalized level of kraft.version, which the consensus keeps, not the image.
        is_allowed: whether the caller may do an operation on one resource. The permission for the whole request is
            checked before the decision.
        caller: the sender of the request.
        wall_ms: milliseconds since 1970, for times in records and answers.
    """

    image: Image
    soft: SoftState
    now_ms: int
    next_offset: int
    settings: ControllerSettings
    random: Randomness
    kraft_version: int = 1
    is_allowed: Callable[[Action], bool] = allow_all
    caller: Caller = UNKNOWN_CALLER
    wall_ms: int = 0


class KRaftUpgrade(NamedTuple):
    """An upgrade that a decision asks of the consensus before its records are appended.

    Attributes:
        level: the new level of kraft.version.
        validate_only: only find out whether the upgrade would be refused.
    """

    level: int
    validate_only: bool


@dataclass(slots=True)
class ControllerResult:
    """The result of a decision: records to append, and the answer; named as in Kafka's controller.

    Attributes:
        answer: sent when these records and all of earlier decisions are committed; None for a timer's decision.
        records: in the order that they must have in the log.
        is_atomic: the records must take effect together: one batch, or one transaction. Otherwise they may be split
            over batches, each at most ``MAX_RECORDS`` long.
        sessions: changes of the soft state, for ``SoftState.update``: by broker id its new session, None to forget the
            broker. They are taken back if the records are not appended.
        is_more: whether a timer's decision stopped at its limit and is to be decided again at once.
        kraft_upgrade: the consensus makes this upgrade first; if it refuses, ``features.refused_upgrade`` is the answer
            and nothing is appended.
    """

    answer: Response | None
    records: list[Record] = field(default_factory=list)
    is_atomic: bool = True
    sessions: Mapping[int, BrokerSession | None] = field(default_factory=dict)
    is_more: bool = False
    kraft_upgrade: KRaftUpgrade | None = None


class Refusal(RefusedError):
    """A request, or one item of it, is refused; nothing is written for it.

    Args:
        code: Kafka's error.
        message: the error's words in the answer, or None where Kafka's answer has none.
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(code.name, message or "")
        self.code = code
        self.text = message

    @classmethod
    def in_general_words(cls, code: ErrorCode) -> Refusal:
        """Make a refusal with the code's own general text."""
        return cls(code, code.message)


class Api(NamedTuple):
    """How the controller decides about one kind of request, and refuses it.

    Attributes:
        decide: takes the context, the request and its version. Raises ``Refusal``.
        refuse: makes the answer that carries an error for the whole request from the request, its version, the error
            and its message, which may be None.
    """

    decide: Callable[[Context, Any, int], ControllerResult]
    refuse: Callable[[Any, int, ErrorCode, str | None], Response]


def check_record_count(count: int) -> None:
    """Check that one request writes no more records than it may.

    Raises:
        Refusal: POLICY_VIOLATION in Kafka's words.
    """
    check_item_count(count)


def check_item_count(count: int, text: str = _TOO_LARGE) -> None:
    """Check that one request names no more items than it may change.

    Refused items, and items without a change, take time as well: some megabytes of them would hold up the controller,
    and the consensus in its process, for seconds.

    Raises:
        Refusal: POLICY_VIOLATION, with ``text``.
    """
    if count > MAX_RECORDS:
        raise Refusal(ErrorCode.POLICY_VIOLATION, text)


def check_time(timeout_ms: int) -> None:
    """Check that a request's timeout is above 0: in Kafka it would time out while it waits in a queue.

    Raises:
        Refusal: REQUEST_TIMED_OUT, without a message, as in Kafka.
    """
    if timeout_ms <= 0:
        raise Refusal(ErrorCode.REQUEST_TIMED_OUT)
