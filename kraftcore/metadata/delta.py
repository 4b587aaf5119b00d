"""The changes of the image between two offsets, for readers that follow it: brokers and observers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kraftcore.core.uuid import Uuid
from kraftcore.metadata.acls import Acl
from kraftcore.metadata.cluster import Broker, Controller
from kraftcore.metadata.configs import ConfigResource
from kraftcore.metadata.journal import Change
from kraftcore.metadata.partition import Partition
from kraftcore.metadata.quotas import QuotaEntity
from kraftcore.metadata.scram import ScramCredential, ScramUser
from kraftcore.metadata.tokens import DelegationToken
from kraftcore.metadata.topics import Topic
from kraftcore.protocol.topics import PartitionKey


@dataclass(frozen=True, slots=True)
class Delta:
    """Changes by part and key; a value that is as before is left out, however often it changed meanwhile.

    A removed topic's partitions and configuration are removed with it, and are in here, too.

    Attributes:
        features: levels by name.
        brokers: registrations by id.
        controllers: registrations by id.
        topics: by id.
        partitions: by topic id and partition id.
        configs: all values of a resource, by resource.
        quotas: all quotas of an entity, by entity.
        acls: by id.
        scram: credentials by user and mechanism.
        tokens: by id.
        next_producer_id: if it changed.
    """

    features: Mapping[str, Change[int]]
    brokers: Mapping[int, Change[Broker]]
    controllers: Mapping[int, Change[Controller]]
    topics: Mapping[Uuid, Change[Topic]]
    partitions: Mapping[PartitionKey, Change[Partition]]
    configs: Mapping[ConfigResource, Change[Mapping[str, str]]]
    quotas: Mapping[QuotaEntity, Change[Mapping[str, float]]]
    acls: Mapping[Uuid, Change[Acl]]
    scram: Mapping[ScramUser, Change[ScramCredential]]
    tokens: Mapping[str, Change[DelegationToken]]
    next_producer_id: Change[int] | None

    @property
    def is_empty(self) -> bool:
        """Whether nothing changed."""
        return not any(getattr(self, name) for name in self.__slots__)
