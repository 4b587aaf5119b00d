"""Writes rows to a running quorum: the column ``value`` (binary or text), a record a row, each exactly once.

Tasks only gather rows; whoever commits the write appends them, in the order of the tasks, so that a task that is
tried again appends nothing. Each batch is numbered: its client is named by the query and the batch's place within the
epoch, and Spark's epoch is the client's, in which it has one batch. The nodes remember what a client's last batch was
(``kraftcore.node``, sessions), so a batch that is sent again after a lost answer, a new leader or a restart is in the
log once.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, StringType, StructType

from kraftcore.errors import LocalError, UnreachableError
from kraftcore.plugins.spark.place import Place, explained
from kraftcore.plugins.spark.ranges import grouped

BATCH_ROWS = 512
"""Records of one batch, at most."""
BATCH_BYTES = 1 << 20
_EPOCHS = 1 << 15
"""Of a client: they are 16 bits, signed."""
_QUERY_ID = "sql.streaming.queryId"


@dataclass
class Rows(WriterCommitMessage):
    """What one task gathered.

    Attributes:
        task: number of its partition.
        query_id: of the stream, or None.
        values: a record each.
    """

    task: int
    query_id: str | None
    values: list[bytes]


class _Writer:
    def __init__(self, place: Place | None, write_id: str | None, schema: StructType, *, overwrite: bool) -> None:
        if place is None:
            raise LocalError("rows go to a running quorum: name it with the option bootstrap_controllers")
        if overwrite:
            raise LocalError("a log cannot be overwritten: write with mode('append'), or outputMode('append')")
        names = [field.name for field in schema.fields]
        if names != ["value"] or not isinstance(schema["value"].dataType, BinaryType | StringType):
            raise LocalError(f"one column named value, binary or text, is written; these are {', '.join(names)}")
        self.place = place
        self.write_id = write_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Gather the rows of one task.

        Raises:
            LocalError: a null or an empty value.
        """
        values: list[bytes] = []
        for batch in iterator:
            for value in batch["value"].to_pylist():
                if not value:
                    raise LocalError("a record's value may be neither null nor empty")
                values.append(value.encode() if isinstance(value, str) else value)
        context = TaskContext.get()
        if context is None:
            return Rows(0, None, values)
        return Rows(context.partitionId(), context.getLocalProperty(_QUERY_ID), values)


class QuorumWriter(_Writer, DataSourceArrowWriter):
    """Of one write. With the option ``write_id`` it may be repeated, and is appended once."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Append what the tasks gathered."""
        append(self.place, self.write_id or uuid.uuid4().hex, 0, _in_order(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing was appended."""


class QuorumStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Of a stream; the query's id, which its checkpoint keeps, names it unless ``write_id`` does."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Append one epoch."""
        found = [message for message in messages if isinstance(message, Rows)]
        name = self.write_id or next((message.query_id for message in found if message.query_id), None)
        values = _in_order(messages)
        if values and name is None:
            raise LocalError("Spark does not tell the query's id: name the stream with the option write_id")
        append(self.place, name or "", batchId, values)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing was appended."""


def _in_order(messages: list[WriterCommitMessage | None]) -> list[bytes]:
    found = sorted((message for message in messages if isinstance(message, Rows)), key=lambda message: message.task)
    return [value for message in found for value in message.values]


def append(place: Place, name: str, epoch: int, values: list[bytes]) -> None:
    """Append the records of one epoch, each once however often this is called.

    Args:
        place: the quorum.
        name: of the query: nobody else's.
        epoch: >= 0; larger in each of the query's epochs.
        values: the same each time.

    Raises:
        RefusedError, UnreachableError, UnsupportedVersionError: see ``AdminClient.append``.
    """
    if not values:
        return
    import trio

    from kraftcore import admin
    from kraftcore.executor.sessions import producer_id_of

    async def run() -> None:
        async with admin.connect(
            bootstrap_controllers=place.controllers,
            topic=place.topic,
            tls=place.tls(),
            timing=place.timing(),
            client_id="kraftcore-spark",
        ) as client:
            turn, number = divmod(epoch, _EPOCHS)
            # The same values are cut in the same way each time, so a repeated epoch has the same numbers.
            for place_in_epoch, part in enumerate(grouped(values, len, BATCH_BYTES, BATCH_ROWS)):
                client_id = producer_id_of(f"{name}/{turn}/{place_in_epoch}")
                await client.append(part, client_id=client_id, client_epoch=number, sequence=0)

    try:
        trio.run(run)
    except UnreachableError as error:  # Spark shows the text alone
        raise explained(error) from None
