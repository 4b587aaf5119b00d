"""Feature levels of Kafka 4.3.1: what each metadata.version means, and the features that hang on it.

A level is finalized for the whole cluster (KIP-584). metadata.version decides which record versions the controller
writes and which api versions brokers use among themselves; the other features switch on single abilities. A release
(``4.3``, ``3.9-IV0``) names a metadata.version, and by it a default level of every other feature.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from types import MappingProxyType
from typing import Self

from kraftcore.errors import LocalError
from kraftcore.namespace import listing

__all__ = ["Feature", "FeatureLevel", "MetadataVersion", "default_levels", "feature", "supported_levels"]
__dir__ = listing(__all__)

METADATA_VERSION = "metadata.version"


class MetadataVersion(IntEnum):
    """Levels of metadata.version that Kafka 4.3.1 knows; the last one is not yet stable.

    Attributes:
        release: the release it belongs to, ``4.0``.
        text: Kafka's name of the level, ``4.0-IV1``.
        changes_records: the step to this level changed record formats; going back across it could lose metadata.
    """

    release: str
    text: str
    changes_records: bool

    def __new__(cls, level: int, text: str, changes_records: bool) -> Self:
        """A member from its tuple of facts."""
        member = int.__new__(cls, level)
        member._value_ = level
        member.text = text
        member.release = text.partition("-")[0]
        member.changes_records = changes_records
        return member

    V3_3_IV3 = 7, "3.3-IV3", True  # the oldest that can be run; controlled shutdown in broker registrations
    V3_4_IV0 = 8, "3.4-IV0", True  # migration from ZooKeeper (KIP-866)
    V3_5_IV0 = 9, "3.5-IV0", False  # tiered storage
    V3_5_IV1 = 10, "3.5-IV1", False  # replica epoch in Fetch (KIP-903)
    V3_5_IV2 = 11, "3.5-IV2", True  # SCRAM records
    V3_6_IV0 = 12, "3.6-IV0", False  # a shrinking ISR no longer raises the leader epoch
    V3_6_IV1 = 13, "3.6-IV1", True  # metadata transactions (KIP-868)
    V3_6_IV2 = 14, "3.6-IV2", True  # delegation tokens
    V3_7_IV0 = 15, "3.7-IV0", True  # controller registration (KIP-919)
    V3_7_IV1 = 16, "3.7-IV1", False  # reserved
    V3_7_IV2 = 17, "3.7-IV2", True  # directory assignment (KIP-858)
    V3_7_IV3 = 18, "3.7-IV3", False  # reserved
    V3_7_IV4 = 19, "3.7-IV4", False  # Fetch 16 (KIP-951)
    V3_8_IV0 = 20, "3.8-IV0", False
    V3_9_IV0 = 21, "3.9-IV0", False  # dynamic voters by default (KIP-853)
    V4_0_IV0 = 22, "4.0-IV0", False  # group.version 1 by default (KIP-848)
    V4_0_IV1 = 23, "4.0-IV1", True  # eligible leader replicas (KIP-966)
    V4_0_IV2 = 24, "4.0-IV2", False  # transaction.version 2 by default (KIP-890)
    V4_0_IV3 = 25, "4.0-IV3", False  # ListOffsets 10 (KIP-1075)
    V4_1_IV0 = 26, "4.1-IV0", False  # eligible leader replicas by default
    V4_1_IV1 = 27, "4.1-IV1", False  # Fetch 18 (KIP-1166)
    V4_2_IV0 = 28, "4.2-IV0", False  # share.version 1 by default (KIP-932)
    V4_2_IV1 = 29, "4.2-IV1", False  # streams.version 1 by default (KIP-1071)
    V4_3_IV0 = 30, "4.3-IV0", True  # cordoned log directories
    V4_4_IV0 = 31, "4.4-IV0", False  # unstable

    @classmethod
    def from_level(cls, level: int) -> MetadataVersion:
        """The version with this level.

        Raises:
            LocalError: no such level.
        """
        try:
            return cls(level)  # type: ignore[call-arg]
        except ValueError:
            raise LocalError(f"no metadata.version has level {level}; known are {min(cls):d} to {max(cls):d}") from None

    @classmethod
    def from_text(cls, text: str, *, unstable: bool = False) -> MetadataVersion:
        """Read a release (``3.9``, ``3.9.1``) or a level's name (``3.9-IV0``).

        A release stands for its newest stable level. Everything from a second dot on is ignored, as Kafka does.

        Args:
            text: the release or name.
            unstable: also accept levels that are not stable yet.

        Raises:
            LocalError: unknown; the text is the one Kafka's tools print.
        """
        name = ".".join(text.split(".")[:2])
        found = None
        for level in cls:
            if level.text == name or (level.release == name and level.is_stable):
                found = level
        if found is None or not (found.is_stable or unstable):
            known = ", ".join(level.text for level in cls if level.is_stable or unstable)
            raise LocalError(f"Unknown metadata.version '{text}'. Supported metadata.version are: {known}")
        return found

    @property
    def is_stable(self) -> bool:
        """True up to the latest level that Kafka 4.3.1 uses in production."""
        return self <= LATEST_PRODUCTION_LEVEL

    @cached_property
    def register_broker_record_version(self) -> int:
        """Version in which RegisterBrokerRecord is written."""
        return self._first_reached(
            (MetadataVersion.V4_3_IV0, 4), (MetadataVersion.V3_7_IV2, 3), (MetadataVersion.V3_4_IV0, 2), otherwise=1
        )

    @cached_property
    def partition_record_version(self) -> int:
        """Version in which PartitionRecord and PartitionChangeRecord are written."""
        return self._first_reached((MetadataVersion.V4_0_IV1, 2), (MetadataVersion.V3_7_IV2, 1), otherwise=0)

    @cached_property
    def fetch_version(self) -> int:
        """Version of Fetch between brokers."""
        return self._first_reached(
            (MetadataVersion.V4_1_IV1, 18),
            (MetadataVersion.V3_9_IV0, 17),
            (MetadataVersion.V3_7_IV4, 16),
            (MetadataVersion.V3_5_IV1, 15),
            (MetadataVersion.V3_5_IV0, 14),
            otherwise=13,
        )

    @cached_property
    def list_offsets_version(self) -> int:
        """Version of ListOffsets between brokers."""
        return self._first_reached(
            (MetadataVersion.V4_2_IV1, 11),
            (MetadataVersion.V4_0_IV3, 10),
            (MetadataVersion.V3_9_IV0, 9),
            (MetadataVersion.V3_5_IV0, 8),
            otherwise=7,
        )

    def records_change_between(self, other: MetadataVersion) -> bool:
        """Whether record formats differ between two levels, in either direction; then Kafka refuses a downgrade."""
        low, high = sorted((self, other))
        return any(level.changes_records for level in MetadataVersion if low < level <= high)

    def _first_reached(self, *steps: tuple[MetadataVersion, int], otherwise: int) -> int:
        return next((version for level, version in steps if self >= level), otherwise)


LATEST_PRODUCTION_LEVEL = 30
MINIMUM_METADATA_VERSION = MetadataVersion.V3_3_IV3
LATEST_PRODUCTION = MetadataVersion.from_level(LATEST_PRODUCTION_LEVEL)


@dataclass(frozen=True, slots=True)
class FeatureLevel:
    """One level of a feature.

    Attributes:
        level: the level; 0 is off.
        default_from: from this metadata.version on, new clusters start at this level or a higher one.
        dependencies: least level of each feature it needs.
    """

    level: int
    default_from: MetadataVersion
    dependencies: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


class Feature:
    """A feature besides metadata.version. ``FEATURES`` lists them in Kafka's order.

    Attributes:
        name: ``kraft.version`` ...
        levels: all levels, lowest first.
    """

    __slots__ = ("levels", "name")

    def __init__(self, name: str, *levels: FeatureLevel) -> None:
        self.name = name
        self.levels = levels

    @property
    def max_level(self) -> int:
        """The highest level; all levels of Kafka 4.3.1's features are stable."""
        return self.levels[-1].level

    def at(self, level: int) -> FeatureLevel:
        """The level with this number.

        Raises:
            LocalError: no such level.
        """
        for known in self.levels:
            if known.level == level:
                return known
        raise LocalError(f"Feature level {level} is not supported for feature {self.name}")

    def default_level(self, metadata_version: MetadataVersion) -> int:
        """The level that a cluster formatted at this metadata.version starts with."""
        reached = [known.level for known in self.levels if known.default_from <= metadata_version]
        return max(reached, default=0)

    def __repr__(self) -> str:
        return f"<Feature {self.name} 0-{self.max_level}>"


_OFF = FeatureLevel(0, MetadataVersion.V3_3_IV3)
KRAFT_VERSION = Feature("kraft.version", _OFF, FeatureLevel(1, MetadataVersion.V3_9_IV0))
TRANSACTION_VERSION = Feature(
    "transaction.version",
    _OFF,
    FeatureLevel(1, MetadataVersion.V4_0_IV2),
    FeatureLevel(2, MetadataVersion.V4_0_IV2),
)
GROUP_VERSION = Feature("group.version", _OFF, FeatureLevel(1, MetadataVersion.V4_0_IV0))
ELIGIBLE_LEADER_REPLICAS_VERSION = Feature(
    "eligible.leader.replicas.version",
    _OFF,
    FeatureLevel(1, MetadataVersion.V4_1_IV0, MappingProxyType({METADATA_VERSION: int(MetadataVersion.V4_0_IV1)})),
)
SHARE_VERSION = Feature("share.version", _OFF, FeatureLevel(1, MetadataVersion.V4_2_IV0))
STREAMS_VERSION = Feature("streams.version", _OFF, FeatureLevel(1, MetadataVersion.V4_2_IV1))
FEATURES = (
    KRAFT_VERSION,
    TRANSACTION_VERSION,
    GROUP_VERSION,
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    SHARE_VERSION,
    STREAMS_VERSION,
)


def feature(name: str) -> Feature:
    """Find a feature besides metadata.version by name.

    Raises:
        LocalError: unknown.
    """
    for known in FEATURES:
        if known.name == name:
            return known
    raise LocalError(f"Unknown feature: {name}")


def default_levels(metadata_version: MetadataVersion) -> dict[str, int]:
    """Level of every feature, metadata.version first, for a cluster formatted at this metadata.version.

    kraft.version is part of it; formatting decides that one by whether the voters are dynamic.
    """
    return {
        METADATA_VERSION: int(metadata_version),
        **{each.name: each.default_level(metadata_version) for each in FEATURES},
    }


def dependencies(name: str, level: int) -> Mapping[str, int]:
    """Least level of each feature that this level needs.

    Raises:
        LocalError: unknown feature or level.
    """
    if name == METADATA_VERSION:
        MetadataVersion.from_level(level)
        return MappingProxyType({})
    return feature(name).at(level).dependencies


def check_dependencies(levels: Mapping[str, int]) -> None:
    """Check that a set of finalized levels fits together.

    Args:
        levels: level by feature name, metadata.version among them.

    Raises:
        LocalError: an unknown feature or level, or a dependency that is not met, in Kafka's words.
    """
    for name in levels:
        check_dependencies_of(name, levels)


def check_dependencies_of(name: str, levels: Mapping[str, int]) -> None:
    """Check that the level of one feature fits to those of the others.

    Args:
        name: the feature.
        levels: level by feature name, metadata.version and this one among them.

    Raises:
        LocalError: an unknown feature or level, or a dependency that is not met, in Kafka's words.
    """
    level = levels[name]
    needs = dependencies(name, level)
    least = MINIMUM_METADATA_VERSION
    if name != METADATA_VERSION and level >= 1 and levels.get(METADATA_VERSION, 0) < least:
        raise LocalError(
            f"{name} could not be set to {level} because it depends on metadata.version={least:d} ({least.text})"
        )
    for needed, least_level in needs.items():
        if levels.get(needed, 0) < least_level:
            raise LocalError(f"{name} could not be set to {level} because it depends on {needed} level {least_level}")


def supported_levels() -> dict[str, tuple[int, int]]:
    """Lowest and highest level of each feature that this release supports, metadata.version first."""
    return {
        METADATA_VERSION: (int(MINIMUM_METADATA_VERSION), LATEST_PRODUCTION_LEVEL),
        **{each.name: (0, each.max_level) for each in FEATURES},
    }
