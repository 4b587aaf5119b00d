"""Finalized features of the image (KIP-584)."""

from __future__ import annotations

from collections.abc import Iterator

from kraftcore.errors import MetadataRecordError
from kraftcore.metadata.journal import Part
from kraftcore.protocol.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    MINIMUM_METADATA_VERSION,
    MetadataVersion,
)
from kraftcore.protocol.records.feature_level_record import FeatureLevelRecord


class Features(Part[str, int]):
    """Level by feature name, metadata.version among them; a missing feature is at level 0.

    kraft.version is not in it: it belongs to the quorum (KRaftVersion control records), and a FeatureLevel record of it
    is ignored, as in Kafka.
    """

    __slots__ = ()

    @property
    def metadata_version(self) -> MetadataVersion | None:
        """The finalized level of metadata.version; None while the log has none."""
        level = self._items.get(METADATA_VERSION)
        return None if level is None else _KNOWN_LEVELS[level]

    @property
    def metadata_version_or_minimum(self) -> MetadataVersion:
        """The finalized level, or the lowest known level while the log has none."""
        return self.metadata_version or MINIMUM_METADATA_VERSION

    @property
    def is_elr_on(self) -> bool:
        """Whether eligible leader replicas are kept (KIP-966)."""
        return self.level(ELIGIBLE_LEADER_REPLICAS_VERSION.name) > 0

    def level(self, name: str) -> int:
        """The finalized level of a feature, 0 if it has none."""
        return self._items.get(name, 0)

    def on_feature_level(self, record: FeatureLevelRecord) -> None:
        """Set a level; 0 removes the feature.

        Raises:
            MetadataRecordError: the metadata.version is unknown.
        """
        name, level = record.name, record.feature_level
        if name == METADATA_VERSION and level not in _KNOWN_LEVELS:
            raise MetadataRecordError(record, f"metadata.version {level} is not known")
        if name == KRAFT_VERSION.name:
            return
        if level == 0:
            self.drop(name)
        else:
            self.put(name, level)


_KNOWN_LEVELS = {int(level): level for level in MetadataVersion}


def feature_records(levels: dict[str, int], metadata_version: MetadataVersion | None) -> Iterator[FeatureLevelRecord]:
    """The records of the levels in a snapshot: metadata.version first, for all other records depend on it."""
    if metadata_version is not None:
        yield FeatureLevelRecord(name=METADATA_VERSION, feature_level=int(metadata_version))
    for name, level in levels.items():
        if name != METADATA_VERSION:
            yield FeatureLevelRecord(name=name, feature_level=level)
