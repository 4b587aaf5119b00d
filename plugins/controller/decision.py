"""What every decision of the controller is made of.

    def decide(context: Context, request: ..., version: int) -> ControllerResult

A decision either returns records and an answer, or raises ``Refusal``, which changes nothing. Items of a request that
are refused one by one are answered one by one; a ``Refusal`` inside an item is caught where the items are walked.
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
"""Records that one request of an administrator may write (Kafka's ``MAX_RECORDS_PER_USER_OP``), and records a batch."""

_TOO_LARGE: Final = "Unable to perform excessively large batch operation."

Record = tuple[MetadataRecord, int]
"""A record of the metadata log and the version it is written in."""


class Randomness(Protocol):
    """What decisions draw from: ``random.Random``, or something that plays it."""

    def randrange(self, stop: int, /) -> int:
        """A number from 0 to below ``stop``."""

    def shuffle(self, values: MutableSequence[Any], /) -> None:
        """Mix the list in place."""

    def randbytes(self, count: int, /) -> bytes:
        """So many random bytes."""


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """What the controller's own configuration file says, as far as decisions need it.

    Attributes:
        cluster_id: of the cluster it belongs to.
        node_id: of this controller.
        session_timeout_ms: ``broker.session.timeout.ms``: a broker that is silent for longer is fenced.
        default_partitions: ``num.partitions``.
        default_replication_factor: ``default.replication.factor``.
        is_topic_deletion_enabled: ``delete.topic.enable``.
        max_elections: elections in one go of the timers for preferred and unclean leaders.
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
        """What the file says of a server's key, or the key's default.

        Raises:
            ConfigValueError: a value that Kafka refuses.
            KeyError: no such key.
        """
        key = definitions("broker")[name]
        text = self.static_configs.get(name, key.default)
        return None if text is None else key.read(text)


def allow_all(action: Action) -> bool:
    """What holds without an authorizer."""
    return True


@dataclass(slots=True)
class Context:
    """What a decision may look at. It changes none of it.

    Attributes:
        image: the metadata image with everything that was appended, committed or not.
        soft: what only the leader knows.
        now_ms: the time, from any fixed point, never going back.
        next_offset: the offset that the first record of this decision gets.
        settings: what the controller's file says.
        random: the only source of randomness.
        kraft_version: finalized level of kraft.version, which the consensus keeps and not the image.
        is_allowed: whether whoever asks may do something to one resource. What a whole request needs is asked
            before its decision.
        caller: who asks.
        wall_ms: milliseconds since 1970, for what records and answers say of times.
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
    """What a decision asks of the consensus before its records are appended.

    Attributes:
        level: the level of kraft.version to go to.
        validate_only: only see whether it could.
    """

    level: int
    validate_only: bool


@dataclass(slots=True)
class ControllerResult:
    """What a decision gives: what is to be appended and answered; named as in Kafka's controller.

    Attributes:
        answer: sent when the records, and all that were decided before, are committed; None for a timer's decision.
        records: in the order in which they must stand in the log.
        is_atomic: the records must take effect together: one batch, or one transaction. Otherwise they may be split
            over batches, each at most ``MAX_RECORDS`` long.
        sessions: what becomes of the soft state, unless the records are not appended: a broker's new session, None to
            forget the broker. To be taken over by ``SoftState.update``.
        is_more: a timer's decision that stopped at its limit: decide again at once.
        kraft_upgrade: the consensus is to do this first; if it refuses, ``features.refused_upgrade`` is the answer and
            nothing is appended.
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
        message: the words that go with it, or None where Kafka's answer has none.
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(code.name, message or "")
        self.code = code
        self.text = message

    @classmethod
    def in_general_words(cls, code: ErrorCode) -> Refusal:
        """With the text that belongs to the code itself."""
        return cls(code, code.message)


class Api(NamedTuple):
    """What the controller does with one kind of request.

    Attributes:
        decide: of the context, the request and its version. Raises ``Refusal``.
        refuse: the answer that carries an error for the whole request: of the request, its version, the error and its
            message, None for none.
    """

    decide: Callable[[Context, Any, int], ControllerResult]
    refuse: Callable[[Any, int, ErrorCode, str | None], Response]


def check_record_count(count: int) -> None:
    """See that one request writes no more than it may.

    Raises:
        Refusal: POLICY_VIOLATION in Kafka's words.
    """
    check_item_count(count)


def check_item_count(count: int, text: str = _TOO_LARGE) -> None:
    """See that one request names no more items than it may change.

    Items that are refused, or change nothing, take time as well: some megabytes of them would hold up the controller,
    and the consensus beside it, for seconds.

    Raises:
        Refusal: POLICY_VIOLATION, with this text.
    """
    if count > MAX_RECORDS:
        raise Refusal(ErrorCode.POLICY_VIOLATION, text)


def check_time(timeout_ms: int) -> None:
    """See that a request leaves time to carry it out: what waits in a queue would have run out of it.

    Raises:
        Refusal: REQUEST_TIMED_OUT, without words, as in Kafka.
    """
    if timeout_ms <= 0:
        raise Refusal(ErrorCode.REQUEST_TIMED_OUT)
