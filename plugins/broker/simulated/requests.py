"""What a simulated broker remembers of requests that it answers, and what it must not pass over."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple, Self

from kraftcore.errors import StorageError
from kraftcore.metadata import PartitionKey
from kraftcore.plugins.broker.partition import TopicPartition

_logger = logging.getLogger("kraftcore.broker")


class Written(NamedTuple):
    """A batch that came for a partition.

    Attributes:
        key: topic id and number.
        epoch: leader epoch.
        records: the batch.
        replicas: how many the partition had: there may be more when the answer tells of it, with other partitions.
    """

    key: PartitionKey
    epoch: int
    records: bytes
    replicas: int


class Asked(NamedTuple):
    """What a consumer asked ListOffsets for.

    Attributes:
        key: topic id and number of the partition that it got to.
        timestamp: asked for.
        end: up to which that asker could read then.
    """

    key: PartitionKey
    timestamp: int
    end: int


class Noted:
    """A request that is being answered.

    Attributes:
        request: itself.
        written: batches that a producer sent.
        asked: what a consumer wants to know.
        is_over: it was answered, or never will be.
        waits: its connection waits for the answer.
    """

    def __init__(self, request: Any) -> None:
        self.request = request
        self.written: dict[TopicPartition, Written] = {}
        self.asked: dict[TopicPartition, Asked] = {}
        self.is_over = self.waits = False


class Unexpected(logging.Handler):
    """A context: what production logs as unexpected, and goes on with other requests, is raised at its end."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._first: BaseException | None = None

    def __enter__(self) -> Self:
        _logger.addHandler(self)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        _logger.removeHandler(self)
        first, self._first = self._first, None
        if first is not None and error is None:
            raise first

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        error = None if record.exc_info is None else record.exc_info[1]
        if error is not None and self._first is None and not isinstance(error, StorageError):
            self._first = error
