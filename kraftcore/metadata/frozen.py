"""The image of one moment, as the records of a snapshot: in Kafka's order, in the versions of a metadata.version.

Source of the order and of the fields that a version lacks: Kafka 4.3.1, org.apache.kafka.image.*Image.write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from kraftcore.errors import LocalError
from kraftcore.metadata.acls import Acls, acl_records
from kraftcore.metadata.cluster import Broker, Brokers, Controllers, broker_record, controller_record
from kraftcore.metadata.configs import Configs, config_records
from kraftcore.metadata.features import Features, feature_records
from kraftcore.metadata.partitions import Partitions
from kraftcore.metadata.producer_ids import ProducerIds, producer_ids_records
from kraftcore.metadata.quotas import Quotas, quota_records
from kraftcore.metadata.scram import Scram, scram_records
from kraftcore.metadata.tokens import Tokens, token_records
from kraftcore.metadata.topics import Topic, Topics
from kraftcore.protocol.features import LATEST_PRODUCTION, MetadataVersion
from kraftcore.protocol.metadata import decode_metadata_record, encode_metadata_record
from kraftcore.protocol.records.topic_record import TopicRecord
from kraftcore.protocol.schema import MetadataRecord

_PARTITIONS = 1024  # partitions that are encoded at a time


class Parts(Protocol):
    """The parts of an image."""

    features: Features
    brokers: Brokers
    controllers: Controllers
    topics: Topics
    partitions: Partitions
    configs: Configs
    quotas: Quotas
    producer_ids: ProducerIds
    acls: Acls
    scram: Scram
    tokens: Tokens


class FrozenImage:
    """The state of an image at one moment. It never changes, so another thread may read it.

    Making it costs a copy of each dict, a pointer for each topic and for each thousand partitions: some milliseconds
    for a million partitions. While it lives the image copies chunks of 1,024 partitions before it changes them.

    Args:
        image: to be frozen.
    """

    def __init__(self, image: Parts) -> None:
        self._features = image.features.snapshot()
        self._metadata_version = image.features.metadata_version
        self._brokers = image.brokers.snapshot()
        self._controllers = image.controllers.snapshot()
        self._topics = image.topics.snapshot()
        self._partitions = image.partitions.freeze()
        self._configs = image.configs.snapshot()
        self._quotas = image.quotas.snapshot()
        self._producer_ids = image.producer_ids.snapshot()
        self._acls = image.acls.snapshot()
        self._scram = image.scram.snapshot()
        self._tokens = image.tokens.snapshot()

    def losses(self, metadata_version: MetadataVersion) -> list[str]:
        """The state that records of a metadata.version cannot hold, in Kafka's words; empty if they hold all of it."""
        found = _broker_losses(self._brokers.values(), metadata_version)
        if self._controllers and metadata_version < MetadataVersion.V3_7_IV0:
            found.append("controller registration data")
        if metadata_version < MetadataVersion.V3_7_IV2 and self._partitions.tells_directories():
            found.append("the directory assignment state of one or more replicas")
        if metadata_version < MetadataVersion.V4_0_IV1 and self._partitions.has_elr():
            found.append("the eligible or last known leaders of one or more partitions")
        if self._scram and metadata_version < MetadataVersion.V3_5_IV2:
            found.append(f"ScramImage({', '.join(sorted({user.name for user in self._scram}))})")
        if self._tokens and metadata_version < MetadataVersion.V3_6_IV2:
            found.append(f"DelegationTokenImage({', '.join(self._tokens)})")
        return found

    def values(self, metadata_version: MetadataVersion | None = None) -> Iterator[bytes]:
        """Encoded records, which give an empty image this state.

        Args:
            metadata_version: decides on the versions of the records, and is the level in the first record; None: the
                finalized one. An image that has none gets the records of the latest version, and no level.

        Raises:
            LocalError: the version cannot hold all of the state; the text is Kafka's.
        """
        version = metadata_version or self._metadata_version or LATEST_PRODUCTION
        losses = self.losses(version)
        if losses:
            raise LocalError(
                "Metadata has been lost because the following could not be represented in metadata.version "
                f"{version.text}: {losses[0]}"
            )
        return self._values(version, metadata_version or self._metadata_version)

    def records(self, metadata_version: MetadataVersion | None = None) -> Iterator[tuple[MetadataRecord, int]]:
        """The records of `values`, decoded: each with its version."""
        return (decode_metadata_record(value) for value in self.values(metadata_version))

    def _values(self, version: MetadataVersion, stated: MetadataVersion | None) -> Iterator[bytes]:
        yield from _encoded(feature_records(self._features, stated))
        broker_version = version.register_broker_record_version
        yield from _encoded((broker_record(each) for each in self._brokers.values()), broker_version)
        yield from _encoded(controller_record(each) for each in self._controllers.values())
        for topic in self._topics.values():
            yield from self._topic_values(topic, version.partition_record_version)
        yield from _encoded(config_records(self._configs))
        yield from _encoded(quota_records(self._quotas))
        yield from _encoded(producer_ids_records(self._producer_ids))
        yield from _encoded(acl_records(self._acls))
        yield from _encoded(scram_records(self._scram))
        yield from _encoded(token_records(self._tokens))

    def _topic_values(self, topic: Topic, version: int) -> Iterator[bytes]:
        yield encode_metadata_record(TopicRecord(name=topic.name, topic_id=topic.id), 0)
        start = 0
        while values := self._partitions.values(topic.id, version, start, _PARTITIONS):
            yield from values
            start += len(values)


def _encoded(records: Iterable[MetadataRecord], version: int = 0) -> Iterator[bytes]:
    return (encode_metadata_record(record, version) for record in records)


def _broker_losses(brokers: Iterable[Broker], version: MetadataVersion) -> list[str]:
    found = dict.fromkeys(
        text
        for broker in brokers
        for text, is_told, least in (
            ("the isMigratingZkBroker state of one or more brokers", broker.is_migrating, MetadataVersion.V3_4_IV0),
            ("the online log directories of one or more brokers", broker.directories, MetadataVersion.V3_7_IV2),
            (
                "the cordoned log directories of one or more brokers",
                broker.cordoned_directories is not None,
                MetadataVersion.V4_3_IV0,
            ),
        )
        if is_told and version < least
    )
    return list(found)
