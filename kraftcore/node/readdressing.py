"""All voters' addresses changed: the new ones are written over the old ones, in the files of a node that does not run.

Voters find each other by the endpoints in the records of voters (KIP-853). When all addresses changed at once, none
reaches another one, and only a leader can append newer endpoints. KIP-1347 names the case; Kafka 4.3.1 has no cure.

A record is replaced where it is: offset, epoch, time, ids, directory ids and all other records stay. So whose log is
longest, and which epochs there were, is as before, and elections cannot lose what was committed, on however many nodes
the command ran. To append a record instead would make the log of any node that runs the command look newest, also that
of one that lacks committed records. Replicas agree on the bytes of a record, too: the same addresses give the same
bytes on every node, whatever else its log has.

Each file is replaced by a whole new one. A crash leaves some files with old endpoints and others with new ones, with
the same records at the same offsets, which opens; the command can be run again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kraftcore.core.batch import Record, RecordBatch, build_records_batch
from kraftcore.core.disk.files import File, Files
from kraftcore.core.log import Log
from kraftcore.errors import CorruptDataError, LocalError
from kraftcore.node.recovering import locked_at_rest, open_state
from kraftcore.protocol.control import decode_control_record
from kraftcore.protocol.data.voters_record import VotersRecord
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.raft.control_records import first_batch, kraft_voters, voter_set
from kraftcore.raft.quorum import Endpoint, Voter, VoterSet
from kraftcore.raft.state import RaftState
from kraftcore.storage.meta_properties import METADATA_PARTITION
from kraftcore.storage.snapshot_batches import read_batches
from kraftcore.storage.snapshots import SUFFIX, SnapshotStore

_COPY_BYTES = 1 << 20
_LEFTOVER = ".deleted"  # what has this ending is removed when a node starts, Kafka's or ours
_INDEXES = (".index", ".timeindex")  # they have positions in the segment; a start builds them anew


@dataclass(frozen=True, slots=True)
class Readdressing:
    """What is to be rewritten on one node, or was.

    Attributes:
        key: the node's id and its directory's id.
        before: the voter set in force, with the endpoints as they were found.
        after: the same voters with the new endpoints.
        files: names of the segments and snapshots that hold an endpoint to be replaced, oldest first.
        unknown: ids with an address that are no voters by this node's log, ascending.
    """

    key: ReplicaKey
    before: VoterSet
    after: VoterSet
    files: tuple[str, ...]
    unknown: tuple[int, ...]


def rewrite_endpoints(
    files: Files,
    directory: str,
    own: Endpoint,
    node_id: int,
    addresses: Mapping[int, Endpoint],
    *,
    execute: bool = False,
) -> Readdressing:
    """Replace the voters' endpoints in all records of voters that a node has, in its log and its snapshots.

    Args:
        files: where the directory is.
        directory: the node's metadata directory.
        own: where the node listens, by its own configuration.
        node_id: the id that the directory must have.
        addresses: the new endpoint of each voter by id, all of one listener; of voters whose address stays, that.
        execute: rewrite; else it is only found out what would be rewritten, and nothing changes but what any start
            of the node would change. Durable when it returns.

    Raises:
        LocalError: as `recovering.look`; or the voters are static (kraft.version 0), a voter has no address in
            ``addresses``, or none of that listener in the log, or the node has another one than ``own``.
        LockedError: the node runs.
        CorruptDataError, StorageError: it cannot be read or written; the command can be run again.
    """
    folder = os.path.join(directory, METADATA_PARTITION)
    with locked_at_rest(files, directory, node_id) as (cluster_id, key):
        with open_state(files, directory, cluster_id, key) as (state, log, _):
            _check(state, own, addresses)
            found = Readdressing(
                key,
                state.voters,
                _readdressed(state.voters, addresses),
                tuple(_files_to_rewrite(SnapshotStore(files, folder), log, addresses)),
                tuple(sorted(addresses.keys() - state.voters.ids)),
            )
        if execute:
            for name in found.files:
                _rewrite(files, os.path.join(folder, name), addresses)
    return found


def _check(state: RaftState, own: Endpoint, addresses: Mapping[int, Endpoint]) -> None:
    node_id = state.config.key.id
    if state.version < 1:
        raise LocalError(
            f"the voters of node {node_id} are static (kraft.version 0): their addresses stand in "
            "controller.quorum.voters; change them there, the same on each node, and start the nodes"
        )
    for voter in state.voters:
        if voter.key.id not in addresses:
            known = ", ".join(map(str, voter.endpoints)) or "no address"
            raise LocalError(
                f"voter {voter.key.id} ({known} by this node's log) is not among the new addresses: name all voters, "
                "also those whose address stays"
            )
        wanted = addresses[voter.key.id]
        if voter.endpoint(wanted.name) is None:
            known = ", ".join(map(str, voter.endpoints)) or "none"
            raise LocalError(
                f"voter {voter.key.id} has no endpoint of the listener {wanted.name} in this node's log, which names "
                f"{known}: name the listener so in controller.listener.names, as first one"
            )
    given = addresses.get(node_id)
    if given is not None and given != own:
        raise LocalError(
            f"node {node_id} is said to be at {given}, but its file says {own}: correct the new addresses, or "
            "listeners and advertised.listeners of the file"
        )


def _readdressed(voters: VoterSet, addresses: Mapping[int, Endpoint]) -> VoterSet:
    # By id alone: two nodes, one of which knows an older directory of a voter, write the same bytes.
    def moved(voter: Voter) -> Voter:
        to = addresses.get(voter.key.id)
        return voter if to is None or voter.endpoint(to.name) is None else voter.at(to)

    return VoterSet(tuple(moved(voter) for voter in voters))


def _files_to_rewrite(store: SnapshotStore, log: Log, addresses: Mapping[int, Endpoint]) -> Iterator[str]:
    for snapshot_id in store.ids:
        if _rewritten(first_batch(store, snapshot_id), addresses, store.path(snapshot_id)) is not None:
            yield snapshot_id.file_name
    segments = {}
    for offset in log.control_offsets():
        path = log.segment_at(offset).path + ".log"
        if path not in segments and _rewritten(RecordBatch(log.read(offset, 1)), addresses, path) is not None:
            segments[path] = os.path.basename(path)
    yield from segments.values()


def _rewritten(batch: RecordBatch, addresses: Mapping[int, Endpoint], path: str) -> bytearray | None:
    """A control batch with new endpoints in its records of voters; None if that changes nothing."""
    records = []
    is_changed = False
    for record in batch:
        value = record.value
        body = decode_control_record(record.key, value).body
        if isinstance(body, VotersRecord):
            before = voter_set(body)
            after = _readdressed(before, addresses)
            if after != before:
                _, value = kraft_voters(after)
                is_changed = True
        records.append(Record(value, record.key, record.headers, timestamp_ms=record.timestamp_ms))
    if not is_changed:
        return None
    if _built(batch, list(batch)) != batch.raw:
        raise CorruptDataError(
            f"the record of voters at offset {batch.base_offset} has an encoding that cannot be written again: mend "
            "this node by another way (docs/operating.md)",
            path=path,
        )
    return _built(batch, records)


def _built(batch: RecordBatch, records: list[Record]) -> bytearray:
    return build_records_batch(
        records,
        timestamp_ms=batch.base_timestamp_ms,
        base_offset=batch.base_offset,
        leader_epoch=batch.leader_epoch,
        control=True,
    )


def _rewrite(files: Files, path: str, addresses: Mapping[int, Endpoint]) -> None:
    """Replace a segment or a snapshot by one with new endpoints."""
    part = path + _LEFTOVER
    with files.open(path, read_only=True) as source, files.open(part, create=True) as target:
        target.truncate(0)
        copied = written = 0
        for position, batch in read_batches(source):
            new = _rewritten(batch, addresses, path) if batch.is_control else None
            if new is not None:
                written = _copy(source, copied, position, target, written)
                target.write_at(written, new)
                copied, written = position + batch.size, written + len(new)
        _copy(source, copied, source.size(), target, written)
        target.sync(whole=True)
    if path.endswith(SUFFIX):
        files.set_read_only(part)
    for ending in _INDEXES:
        index = os.path.splitext(path)[0] + ending
        if files.exists(index):
            files.unlink(index)
    files.rename(part, path)
    files.sync_folder(os.path.dirname(path))


def _copy(source: File, begin: int, end: int, target: File, position: int) -> int:
    while begin < end:
        data = source.read_at(begin, min(_COPY_BYTES, end - begin))
        target.write_at(position, data)
        begin, position = begin + len(data), position + len(data)
    return position
