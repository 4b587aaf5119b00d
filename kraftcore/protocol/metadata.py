"""Values of the data records in the metadata log (frame: KIP-631)."""

from __future__ import annotations

from kraftcore.core.wire import RecordCodec
from kraftcore.namespace import listing
from kraftcore.protocol.registry import MetadataRecordType, record_class
from kraftcore.protocol.schema import MetadataRecord

__all__ = ["MetadataRecordType", "decode_metadata_record", "encode_metadata_record"]
__dir__ = listing(__all__)

_codec: RecordCodec[MetadataRecord] = RecordCodec(record_class)

decode_metadata_record = _codec.decode
encode_metadata_record = _codec.encode
