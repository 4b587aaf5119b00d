"""What a backup says of itself: a record in a snapshot that says of which cluster the snapshot is, and of which moment.

A snapshot in Kafka's format names no cluster. The note is a NoOpRecord (KIP-835), which every reader skips, with a
tagged field that no reader but this one knows; so the file stays a snapshot that Kafka and its tools read.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from kraftcore.errors import CorruptDataError, RemoteProtocolError
from kraftcore.protocol.metadata import decode_metadata_record, encode_metadata_record
from kraftcore.protocol.records.no_op_record import NoOpRecord

_TAG = 0x6B72  # far from those that Kafka counts up from 0


@dataclass(frozen=True, slots=True)
class BackupNote:
    """The content of the note.

    Attributes:
        cluster_id: of the quorum.
        end_offset: the snapshot contains everything below it.
        epoch: leader epoch of the last record in it.
        records: number of data records in the snapshot, without the note.
    """

    cluster_id: str
    end_offset: int
    epoch: int
    records: int

    def encode(self) -> bytes:
        """The note as a metadata record."""
        record = NoOpRecord()
        record.unknown_tagged_fields = {_TAG: json.dumps(asdict(self), separators=(",", ":")).encode()}
        return encode_metadata_record(record, 0)

    @classmethod
    def decode(cls, value: bytes | None, path: str) -> BackupNote | None:
        """Read a snapshot's first data record.

        Returns:
            None if it is no note.

        Raises:
            CorruptDataError: it is one that cannot be read.
        """
        try:
            record, _ = decode_metadata_record(value or b"")
        except RemoteProtocolError:
            return None
        data = (record.unknown_tagged_fields or {}).get(_TAG) if isinstance(record, NoOpRecord) else None
        if data is None:
            return None
        try:
            found = json.loads(bytes(data))
            return cls(str(found["cluster_id"]), *(int(found[name]) for name in ("end_offset", "epoch", "records")))
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptDataError(f"the backup's note cannot be read: {error!r}", path=path) from None
