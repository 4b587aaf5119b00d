"""What is set for all consumer groups: Kafka's names, defaults and ranges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kraftcore.config.errors import ConfigError
from kraftcore.config.properties import Properties, read_integer

_INT_MAX = 2**31 - 1
_LONG_MAX = 2**62
_MINUTE_MS = 60_000

# field -> (property, lowest, highest); Kafka 4.3.1, GroupCoordinatorConfig
_NUMBERS: Mapping[str, tuple[str, int, int]] = {
    "min_session_timeout_ms": ("group.min.session.timeout.ms", 0, _INT_MAX),
    "max_session_timeout_ms": ("group.max.session.timeout.ms", 0, _INT_MAX),
    "initial_rebalance_delay_ms": ("group.initial.rebalance.delay.ms", 0, _INT_MAX),
    "max_size": ("group.max.size", 1, _INT_MAX),
    "offset_metadata_max_bytes": ("offset.metadata.max.bytes", 0, _INT_MAX),
    "retention_minutes": ("offsets.retention.minutes", 1, _INT_MAX),
    "retention_check_interval_ms": ("offsets.retention.check.interval.ms", 1, _LONG_MAX),
    "commit_timeout_ms": ("offsets.commit.timeout.ms", 1, _INT_MAX),
    "topic_partitions": ("offsets.topic.num.partitions", 1, _INT_MAX),
    "topic_replication_factor": ("offsets.topic.replication.factor", 1, 2**15 - 1),
    "topic_segment_bytes": ("offsets.topic.segment.bytes", 1, _INT_MAX),
}
PROPERTIES = frozenset(key for key, _, _ in _NUMBERS.values())
"""Kafka's properties that set them."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The settings of all consumer groups, by Kafka's names, with its defaults and ranges.

    Attributes:
        min_session_timeout_ms: the shortest session timeout that a member may ask for.
        max_session_timeout_ms: the longest one.
        initial_rebalance_delay_ms: how long an empty group waits for more members before its first generation.
        max_size: number of members that a group may have.
        offset_metadata_max_bytes: longest text beside a committed offset, in UTF-16 code units as Kafka counts.
        retention_minutes: how long committed offsets are kept once the group has no members.
        retention_check_interval_ms: how often offsets are looked for that are to be forgotten.
        commit_timeout_ms: how long an answer waits for its records to be committed.
        topic_partitions: number of partitions that ``__consumer_offsets`` is created with.
        topic_replication_factor: number of replicas that its partitions are created with.
        topic_segment_bytes: size of its segments.
    """

    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3000
    max_size: int = _INT_MAX
    offset_metadata_max_bytes: int = 4096
    retention_minutes: int = 7 * 24 * 60
    retention_check_interval_ms: int = 600_000
    commit_timeout_ms: int = 5000
    topic_partitions: int = 50
    topic_replication_factor: int = 3
    topic_segment_bytes: int = 100 * 1024**2

    def __post_init__(self) -> None:
        for name, (key, low, high) in _NUMBERS.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigError(f"{name} ({key}) is {value}: it must be between {low} and {high}", [name])

    @property
    def retention_ms(self) -> int:
        """``retention_minutes`` in milliseconds."""
        return self.retention_minutes * _MINUTE_MS


def read_group_settings(properties: Properties) -> GroupSettings:
    """The settings in a server's properties.

    Raises:
        ConfigError: a value is no number, or out of range.
    """
    given = {
        name: read_integer(properties, key, low, high)
        for name, (key, low, high) in _NUMBERS.items()
        if key in properties
    }
    return GroupSettings(**given)
