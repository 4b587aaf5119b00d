"""``.kafka_cleanshutdown``: a broker stopped in order. Source: Kafka 4.3.1, CleanShutdownFileHandler."""

from __future__ import annotations

import json

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
NO_EPOCH = -1


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    """The file's content; the epoch is that of the run that stopped."""
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def decode_clean_shutdown(data: bytes) -> int:
    """The broker epoch in the file; -1 if there is none, as in files of earlier versions of Kafka."""
    try:
        epoch = json.loads(data)["brokerEpoch"]
    except (ValueError, KeyError, TypeError):
        return NO_EPOCH
    return epoch if isinstance(epoch, int) and not isinstance(epoch, bool) else NO_EPOCH
