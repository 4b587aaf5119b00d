"""A controller's settings, read from the properties of its server's file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kraftcore.config.addresses import parse_voters, split_list
from kraftcore.configdef.keys import definitions
from kraftcore.configdef.topics import TopicDefaults
from kraftcore.errors import LocalError
from kraftcore.plugins.controller.decision import ControllerSettings
from kraftcore.plugins.controller.tokens import EXPIRY_TIME_KEY, MAX_LIFETIME_KEY, SECRET_KEY
from kraftcore.security.authorizer import ALLOW_EVERYONE_KEY, CLASS_KEY, SUPER_USERS_KEY

_SESSION: Final = "broker.session.timeout.ms"
_PARTITIONS: Final = "num.partitions"
_FACTOR: Final = "default.replication.factor"
_DELETION: Final = "delete.topic.enable"
_REBALANCES: Final = "auto.leader.rebalance.enable"
_REBALANCE_S: Final = "leader.imbalance.check.interval.seconds"
_UNCLEAN_MS: Final = "unclean.leader.election.interval.ms"
_TOKENS_MS: Final = "delegation.token.expiry.check.interval.ms"
_IDLE_MS: Final = "metadata.max.idle.interval.ms"
_VOTERS: Final = "controller.quorum.voters"
EARLY_KEY: Final = "early.start.listeners"
FAST_FENCING_KEY: Final = "kraftcore.fast.fencing.ms"
_FAST_FENCING_MAX: Final = 2**31 - 1

HONOURED: Final = frozenset(
    {
        _SESSION,
        _PARTITIONS,
        _FACTOR,
        _DELETION,
        _REBALANCES,
        _REBALANCE_S,
        _UNCLEAN_MS,
        _TOKENS_MS,
        _IDLE_MS,
        SECRET_KEY,
        MAX_LIFETIME_KEY,
        EXPIRY_TIME_KEY,
        CLASS_KEY,
        SUPER_USERS_KEY,
        ALLOW_EVERYONE_KEY,
        EARLY_KEY,
        FAST_FENCING_KEY,
        *(synonym.name for key in definitions("topic").values() for synonym in key.synonyms),
    }
)
"""The properties that the controller uses: Kafka's, with defaults of topics' configurations, and kraftcore's own."""


class Periods(NamedTuple):
    """Periods of the active controller's timers, in milliseconds; 0: never.

    Attributes:
        rebalance_ms: ``leader.imbalance.check.interval.seconds``, if ``auto.leader.rebalance.enable``.
        unclean_ms: ``unclean.leader.election.interval.ms``.
        tokens_ms: ``delegation.token.expiry.check.interval.ms``, if tokens are in use.
        idle_ms: ``metadata.max.idle.interval.ms``: after so long without a record a NoOp record is written.
        fast_fencing_ms: ``kraftcore.fast.fencing.ms``, see ``fast_fencing``.
    """

    rebalance_ms: int = 300_000
    unclean_ms: int = 300_000
    tokens_ms: int = 0
    idle_ms: int = 500
    fast_fencing_ms: int = 0


def read_settings(properties: Mapping[str, str], cluster_id: str, node_id: int) -> tuple[ControllerSettings, Periods]:
    """Read a controller's settings from its server's properties.

    Args:
        properties: texts by key; keys that a controller does not use are kept, for they may be brokers' defaults.
        cluster_id: of the quorum.
        node_id: of this controller.

    Raises:
        ConfigValueError: Kafka refuses a value.
        ConfigError: the voters cannot be read.
        LocalError: ``kraftcore.fast.fencing.ms`` is not a number of milliseconds.
    """

    def value(name: str) -> Any:
        key = definitions("broker")[name]
        text = properties.get(name, key.default)
        return None if text is None else key.read(text)

    settings = ControllerSettings(
        cluster_id=cluster_id,
        node_id=node_id,
        session_timeout_ms=value(_SESSION),
        default_partitions=value(_PARTITIONS),
        default_replication_factor=value(_FACTOR),
        is_topic_deletion_enabled=value(_DELETION),
        static_configs=dict(properties),
        static_voters=frozenset(parse_voters(split_list(properties.get(_VOTERS, ""))).ids),
    )
    TopicDefaults(settings.static_configs)  # refuses bad values here, not at the first topic
    periods = Periods(
        rebalance_ms=value(_REBALANCE_S) * 1000 if value(_REBALANCES) else 0,
        unclean_ms=value(_UNCLEAN_MS),
        tokens_ms=value(_TOKENS_MS) if value(SECRET_KEY) else 0,
        idle_ms=value(_IDLE_MS),
        fast_fencing_ms=_fast_fencing_ms(properties),
    )
    return settings, periods


def _fast_fencing_ms(properties: Mapping[str, str]) -> int:
    text = properties.get(FAST_FENCING_KEY, "0").strip()
    if not text.isascii() or not text.isdigit() or int(text) > _FAST_FENCING_MAX:
        raise LocalError(f"{FAST_FENCING_KEY} is {text!r}: it must be milliseconds, 0 (off) to {_FAST_FENCING_MAX}")
    return int(text)
