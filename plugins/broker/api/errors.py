"""What a client is told when something was refused, or went wrong."""

from __future__ import annotations

from kraftcore.errors import ClosedError, CorruptDataError, KraftError, RefusedError, StorageError
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.protocol.error_codes import ErrorCode


def code_of(replicas: Replicas, name: TopicPartition, error: KraftError) -> ErrorCode:
    """The code for an error that came up at a partition; a log that failed goes offline."""
    if isinstance(error, RefusedError):
        return ErrorCode[error.error]
    if isinstance(error, (StorageError, CorruptDataError)):
        return replicas.failed(name, error)
    # A log that was closed, or takes nothing since a sync failed: clients and coordinators ask again.
    return ErrorCode.KAFKA_STORAGE_ERROR if isinstance(error, ClosedError) else ErrorCode.UNKNOWN_SERVER_ERROR
