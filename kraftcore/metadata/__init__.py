"""The metadata image: the state of a KRaft cluster as a value that takes records.

    image = Image()
    image.apply_values(batch.values())          # or image.apply(record): every record type of Kafka 4.3.1
    image.brokers[3].is_active
    topic = image.topics.by_name("orders")
    image.partitions.get(topic.id, 0).isr

Parts are read-only mappings of immutable values; records alone change them:

| part | key | value | also |
|---|---|---|---|
| `features` | name | level | `metadata_version`, `level(name)`, `is_elr_on` |
| `brokers` | id | `Broker` | |
| `controllers` | id | `Controller` | |
| `topics` | `Uuid` | `Topic` | `by_name`, `colliding_with` |
| `partitions` | | `Partition` | `get(topic_id, partition_id)`, `of_topic`, `led_by`, `with_isr_member`, ... |
| `configs` | `ConfigResource` | key to value | `of(type, name)` |
| `quotas` | `QuotaEntity` | key to value | `of(entity)` |
| `producer_ids` | | | `next_id` |
| `acls` | `Uuid` | `Acl` | |
| `scram` | `ScramUser` | `ScramCredential` | |
| `tokens` | id | `DelegationToken` | |
| `registration_offsets` | broker id | offset | not part of snapshots |

An active controller's image runs ahead of commits: `run_ahead()` when the controller takes over, `mark(offset)` after
each batch it appends, `committed(offset)` as the high watermark moves, `roll_back(offset)` if a batch could not be
appended after all, `follow()` when it does not lead any more.
"""

from kraftcore.metadata.acls import Acl
from kraftcore.metadata.cluster import Broker, Controller, LevelRange, Listener
from kraftcore.metadata.configs import ConfigResource
from kraftcore.metadata.delta import Delta
from kraftcore.metadata.frozen import FrozenImage
from kraftcore.metadata.image import Image
from kraftcore.metadata.journal import Change
from kraftcore.metadata.machine import MetadataMachine
from kraftcore.metadata.partition import Partition
from kraftcore.metadata.partition_records import changed_partition, partition_of, partition_record
from kraftcore.metadata.quotas import QuotaEntity, quota_entity
from kraftcore.metadata.scram import ScramCredential, ScramUser
from kraftcore.metadata.tokens import DelegationToken
from kraftcore.metadata.topics import Topic
from kraftcore.namespace import listing
from kraftcore.protocol.topics import PartitionKey

__all__ = [
    "Acl",
    "Broker",
    "Change",
    "ConfigResource",
    "Controller",
    "DelegationToken",
    "Delta",
    "FrozenImage",
    "Image",
    "LevelRange",
    "Listener",
    "MetadataMachine",
    "Partition",
    "PartitionKey",
    "QuotaEntity",
    "ScramCredential",
    "ScramUser",
    "Topic",
    "changed_partition",
    "partition_of",
    "partition_record",
    "quota_entity",
]
__dir__ = listing(__all__)
