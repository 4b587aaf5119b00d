"""The error codes that clients get for the errors of a partition."""

from __future__ import annotations

from kraftcore.errors import ClosedError, CorruptDataError, KraftError, RefusedError, StorageError
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.protocol.error_codes import ErrorCode


def code_of(replicas: Replicas, name: TopicPartition, error: KraftError) -> ErrorCode:
    """The code for an error of a partition; after an error of its disk or log, `Replicas.failed` takes it offline."""
    if isinstance(error, RefusedError):
        return ErrorCode[error.error]
    if isinstance(error, (StorageError, CorruptDataError)):
        return replicas.failed(name, error)
    # A log is closed when its partition goes, or after a failed sync: clients and coordinators ask again.
    return ErrorCode.KAFKA_STORAGE_ERROR if isinstance(error, ClosedError) else ErrorCode.UNKNOWN_SERVER_ERROR
