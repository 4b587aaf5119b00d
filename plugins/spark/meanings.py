"""What the columns of tables mean. Arrow's schemas carry the meanings to Spark, where DESCRIBE shows them.

A meaning says "null" if, and only if, the column may be null. The tables of gold have theirs beside the functions that
make them, where a column means something else than the column of that name here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import wraps
from typing import TypeVar

import pyarrow as pa

_KEY = b"SPARK::metadata::json"
"""The entry of an Arrow field in which Spark looks for the metadata of its own field, as JSON."""
_COMMENT = "comment"
Given = TypeVar("Given")

_CONFIG_RESOURCES = "2: topic, 4: broker, 8: broker logger, 16: client metrics, 32: group"
_RESOURCES = "2: topic, 3: group, 4: cluster, 5: transactional id, 6: delegation token, 7: user"
_PROTOCOLS = "0: PLAINTEXT, 1: SSL, 2: SASL_PLAINTEXT, 3: SASL_SSL"
_ELR = "eligible leader replicas (KIP-966): not in the ISR, and with all that is committed"
_LAST_ELR = "replicas that were the last in the ELR and are lost to it"

ALIKE: Mapping[str, str] = {
    "cluster_id": "the cluster, from `meta.properties`; without that file `path:` and the folder",
    "node_id": "the node whose directory it is; -1: not known",
    "directory_id": "the id of that directory; empty: not known",
    "source": "the kind of file: `log` (a segment), `snapshot`, `bootstrap` (from when the directory was formatted)",
    "log_id": "a hash of the folder's path: copies of one directory are different logs",
    "file_id": "a hash of the file's path",
    "generation": "how often the file's end had been cut off and written anew before this row was read",
    "snapshot_end_offset": "the offset behind the last one that a snapshot covers; 0 of a bootstrap file; null of logs",
    "offset": "the record's place in the log; in a snapshot or bootstrap file its number there, from 0",
    "timestamp": "when the record was written, by the writer's clock",
    "epoch": "the epoch of the leader that wrote it; of a snapshot, the last epoch that it covers",
    "version": "the version that the record was written in",
    "from_offset": "the record that began the state",
    "to_offset": "the record that ended the state, or the end of the log before a hole; null: the state still holds",
    "from_time": "when the state began",
    "to_time": "when a record ended the state; null: none did",
    "duration_ms": "how long the state held: up to the last record if it still does; 0 if a clock went back",
}
"""The columns that mean the same in many tables."""
COLUMNS = {
    **ALIKE,
    "status": "of that record: `committed`, `uncommitted` (not known to be committed), "
    "`truncated` (overridden by a later leader)",
    # Bronze.
    "path": "the file's path or URI",
    "position": "where the batch begins in the file, in bytes",
    "size": "the bytes of the batch",
    "is_control": "whether it is the quorum's own, not metadata",
    "base_offset": "the first offset of the batch",
    "last_offset": "the last offset of the batch",
    "type": "Kafka's name of the record type; `UNKNOWN_` and a number for others; null: it cannot be read",
    "records.key": "the key, undecoded; null: none, as in all records of metadata",
    "records.value": "the value, undecoded; null: none",
    "events.body": "the value as JSON, as Kafka's dump tool prints it; null: it cannot be decoded",
    "batches.crc": "the checksum in the header (CRC-32C)",
    "batches.base_timestamp": "the time of the first record",
    "batches.max_timestamp": "the latest time of a record",
    "batches.producer_id": "the producer's id; -1: none",
    "batches.producer_epoch": "the producer's epoch; -1: none",
    "batches.base_sequence": "the producer's number for the first record; -1: none",
    "batches.count": "the number of records, as the header says",
    "batches.compression": "`none`, `gzip`, `snappy`, `lz4`, `zstd`; null: not known",
    "batches.is_transactional": "whether the header marks a producer's transaction",
    "batches.is_valid": "whether the bytes have the checksum",
    "errors.size": "the bytes left out; 0 for a record",
    "errors.offset": "the offset of a record; null for bytes",
    "errors.kind": "`torn` (the file ends inside a batch), `batch` (damaged), `record` (not decodable), "
    "`gone` (the file was removed before it was read)",
    "errors.reason": "the fault, in words",
    "files.size": "the bytes of the file when it was listed",
    "files.base_offset": "the first offset of a segment; `snapshot_end_offset` of others",
    "files.next_offset": "the first offset of the folder's next segment; null for the last segment and for others",
    "files.epoch": "the epoch in a snapshot's name; 0 for a bootstrap file, -1 for a segment",
    "files.rewound_to": "the bytes that were left when the end was last cut off; null: it never was",
    # The table of the runs.
    "runs.step": "the step's number, from 0",
    "runs.time": "when it was committed, by the writer's clock",
    "runs.run": "its random name",
    "runs.tables": "the tables that it changed",
    "runs.clusters": "the clusters with rows in the files that it added to bronze and silver",
    "runs.format": "the format of the folder of tables",
    "runs.state": "JSON: the files that count after the step, how far each file of the input was read, and more",
    # Silver: control records.
    "leader_change.leader_id": "the new leader",
    "leader_change.voters": "the voters; version 0 lacks the ids of their directories",
    "leader_change.granting_voters": "the voters that voted for the leader",
    "snapshot_header.last_contained_log_timestamp": "the time of the last record covered, in ms since 1970",
    "kraft_version.kraft_version": "the level of kraft.version from here on",
    "kraft_voters.voters": "the voter set from here on, with the levels of kraft.version that each voter supports",
    # Silver: brokers and controllers.
    "broker_id": "the broker",
    "id": "the broker",
    "controller_id": "the controller",
    "broker_epoch": "the number of the broker's registration; a later one has a higher number",
    "record_epoch": "the number of the broker's registration",
    "incarnation_id": "the id that the process drew when it started",
    "end_points": f"its listeners; `security_protocol` is {_PROTOCOLS}",
    "features": "the levels of each feature that it supports",
    "zk_migration_ready": "whether it could take part in a migration from ZooKeeper",
    "register_broker.is_migrating_zk_broker": "whether the broker came from ZooKeeper and was being migrated",
    "rack": "its rack; null: none",
    "fenced": "whether it is fenced: it may lead no partition and be in no ISR",
    "in_controlled_shutdown": "whether it is shutting down and gives up its leaderships first",
    "log_dirs": "the ids of its log directories",
    "cordoned_log_dirs": "the ids of those that take no new replicas; null: not told",
    "broker_registration_change.fenced": "1: fenced from here on; -1: no longer; 0: as before",
    "broker_registration_change.in_controlled_shutdown": "1: in controlled shutdown from here on; 0: as before",
    "broker_registration_change.log_dirs": "the ids of its log directories; empty: as before",
    "broker_registration_change.cordoned_log_dirs": "the ids of those that take no new replicas; null: as before",
    # Silver: topics and partitions.
    "topic_id": "the topic",
    "topic.name": "the topic's name",
    "partition_id": "the partition's number in the topic, from 0",
    "replicas": "the brokers that have a replica, the preferred leader first",
    "isr": "the replicas in sync",
    "removing_replicas": "the replicas that a reassignment takes away",
    "adding_replicas": "the replicas that a reassignment adds",
    "leader": "the broker that leads; -1: none",
    "leader_recovery_state": "1: the leader recovers after an unclean election; 0: it does not",
    "leader_epoch": "a number that rises with each election",
    "partition_epoch": "a number that rises with each change",
    "directories": "for each of `replicas` the id of its log directory; empty in version 0",
    "eligible_leader_replicas": _ELR,
    "last_known_elr": _LAST_ELR,
    "partition.eligible_leader_replicas": f"{_ELR}; null: none",
    "partition.last_known_elr": f"{_LAST_ELR}; null: none",
    "partition_change.replicas": "the new replicas; null: as before",
    "partition_change.isr": "the new ISR; null: as before",
    "partition_change.removing_replicas": "the new list of them; null: as before",
    "partition_change.adding_replicas": "the new list of them; null: as before",
    "partition_change.leader": "the broker that leads; -1: none; -2: as before",
    "partition_change.leader_recovery_state": "as in `silver_partition`; -1: as before",
    "partition_change.directories": "the new ids, for each of the replicas; null: as before",
    "partition_change.eligible_leader_replicas": "the new ELR; null: as before",
    "partition_change.last_known_elr": "the new list of them; null: as before",
    "clear_elr.topic_name": "the topic; empty: all topics",
    # Silver: the rest.
    "config.resource_type": _CONFIG_RESOURCES,
    "config.resource_name": "the topic's name, the broker's id, ...; empty: the default of all brokers",
    "config.name": "the config's name",
    "config.value": "the value as text, secrets in plain text; null: the config is removed",
    "owner": "the principal, for example `User:alice`",
    "requester": "the principal that asked for it",
    "renewers": "the principals that may renew it",
    "issue_timestamp": "when it was made, in ms since 1970",
    "max_timestamp": "until when it may be renewed, in ms since 1970",
    "expiration_timestamp": "when it ends unless it is renewed, in ms since 1970",
    "token_id": "the token",
    "user_scram_credential.name": "the user's name",
    "remove_user_scram_credential.name": "the user's name",
    "mechanism": "1: SCRAM-SHA-256, 2: SCRAM-SHA-512",
    "salt": "the salt (RFC 5802)",
    "stored_key": "StoredKey (RFC 5802), by which a login is checked",
    "server_key": "ServerKey (RFC 5802), by which the server proves itself",
    "iterations": "how often the password is hashed",
    "feature_level.name": "the feature's name",
    "feature_level": "the finalized level; 0: the feature is removed",
    "entity": "whom it limits: names by type (`user`, `client-id`, `ip`); without a name the default of the type",
    "client_quota.key": "what it limits: `producer_byte_rate`, ...",
    "client_quota.value": "the limit, in the unit of `key`",
    "client_quota.remove": "whether the quota is removed; `value` then means nothing",
    "producer_ids.broker_id": "the broker that got the block",
    "next_producer_id": "the first id behind the block",
    "access_control_entry.id": "the entry",
    "remove_access_control_entry.id": "the entry",
    "access_control_entry.resource_type": _RESOURCES,
    "access_control_entry.resource_name": "the resource's name, or the beginning of names; `*`: all",
    "pattern_type": "3: `resource_name` is a name; 4: it is the beginning of names",
    "principal": "who it is about, for example `User:alice`; `User:*`: everybody",
    "host": "the address that the client comes from; `*`: any",
    "operation": "2: all, 3: read, 4: write, 5: create, 6: delete, 7: alter, 8: describe, 9: cluster action, "
    "10: describe configs, 11: alter configs, 12: idempotent write, 13: create tokens, 14: describe tokens, "
    "15: two phase commit",
    "permission_type": "2: denied, 3: allowed",
    "zk_migration_state": "0: none, 1: before the migration, 2: during it, 3: after it",
    "begin_transaction.name": "a name for people; null: none",
    "abort_transaction.reason": "why it was dropped; null: not told",
}
"""The meaning of a column, by ``column``, or by ``view.column`` where the column of one view means something else."""


def of_view(view: str, schema: pa.Schema) -> pa.Schema:
    """The schema of a view of the data source, or of the table of the runs, with the meanings of its columns."""
    return _described(schema, view, {})


def gold(of: str = "", /, **meanings: str) -> Callable[[Callable[[Given], pa.Table]], Callable[[Given], pa.Table]]:
    """A decorator for a function that makes a table of gold: the table's schema has the meanings of its columns.

    Args:
        of: the view whose columns other columns mean the same as; empty: no view in particular.
        meanings: by column, for columns that mean something of their own.
    """

    def decorated(make: Callable[[Given], pa.Table]) -> Callable[[Given], pa.Table]:
        @wraps(make)
        def made(given: Given) -> pa.Table:
            rows = make(given)
            return pa.Table.from_arrays(rows.columns, schema=_described(rows.schema, of, meanings))

        return made

    return decorated


def meaning(column: pa.Field) -> str:
    """The meaning of a column of ``of_view`` or ``gold``."""
    return str(json.loads(column.metadata[_KEY])[_COMMENT])


def _described(schema: pa.Schema, view: str, own: Mapping[str, str]) -> pa.Schema:
    fields = []
    for field in schema:
        text = own.get(field.name) or COLUMNS.get(f"{view}.{field.name}") or COLUMNS[field.name]
        fields.append(field.with_metadata({_KEY: json.dumps({_COMMENT: text}).encode()}))
    return pa.schema(fields)
