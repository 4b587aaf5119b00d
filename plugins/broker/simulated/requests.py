"""What a simulated broker remembers of requests that it answers, and what it must not pass over."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple, Protocol, Self, TypeAlias

from kraftcore.errors import StorageError
from kraftcore.metadata import PartitionKey
from kraftcore.node.registry import Asker, RequestContext
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.broker.simulated.process import LISTENER

_logger = logging.getLogger("kraftcore.broker")
Connection: TypeAlias = tuple[int, int, int]
"""Who asks, which of its processes, and which of the connections between the two."""


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


class OffsetQuestion(NamedTuple):
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
        self.asked: dict[TopicPartition, OffsetQuestion] = {}
        self.is_over = self.waits = False


class Serving(Protocol):
    """The broker that serves a request."""

    def answered(self, exchange: Exchange, response: Any) -> None:
        """Judge an answer, and send it."""

    def broken(self, exchange: Exchange) -> None:
        """Break the connection of a request that was not answered."""

    def finished(self, exchange: Exchange) -> None:
        """A request is answered: go on with those that wait behind it on its connection."""

    def held_up(self, exchange: Exchange) -> None:
        """Keep requests that come on the connection of this one until it is answered."""


class Exchange(RequestContext):
    """A request that a broker serves, in one of its processes, until it is answered or its connection is broken."""

    def __init__(
        self,
        broker: Serving,
        run: int,
        connection: Connection,
        correlation_id: int,
        version: int,
        noted: Noted,
    ) -> None:
        super().__init__(Asker(LISTENER, f"10.0.0.2:{1000 + abs(connection[0])}"), version)
        self._broker = broker
        self.run = run
        self.connection = connection
        self.correlation_id = correlation_id
        self.noted = noted

    def answer(self, response: Any) -> None:
        """Send the response."""
        self._broker.answered(self, response)

    def close(self) -> None:
        """Break the connection."""
        self._broker.broken(self)

    def answer_nothing(self) -> None:
        """End the request without an answer."""
        self._broker.finished(self)

    def wait(self) -> None:
        """Have what comes on the connection wait."""
        self._broker.held_up(self)


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
