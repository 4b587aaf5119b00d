"""Writes rows to a running quorum: each value of the column ``value`` becomes one record, exactly once.

Tasks only gather rows, so a task that is tried again appends nothing. The driver's commit appends the rows in the order
of the tasks. Each batch has a client id, made of the query's name and the batch's place within the epoch; Spark's epoch
is the client's epoch, and a client appends one batch in each epoch. The nodes remember each client's last batch
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
"""Most records of one batch."""
BATCH_BYTES = 1 << 20
_EPOCHS = 1 << 15
"""Number of epochs of one client: an epoch is a signed number of 16 bits."""
_QUERY_ID = "sql.streaming.queryId"


@dataclass
class Rows(WriterCommitMessage):
    """The rows that one task gathered.

    Attributes:
        task: number of the task's partition.
        query_id: id of the stream; None for a batch write.
        values: one value for each record.
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
    """Appends the rows of a batch write. A write with the option ``write_id`` may be repeated and is appended once."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Append the rows that the tasks gathered."""
        append(self.place, self.write_id or uuid.uuid4().hex, 0, _in_order(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: no row was appended yet."""


class QuorumStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Appends the rows of a stream. The writer's name is ``write_id`` or the query's id, which the checkpoint keeps."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Append the rows of one epoch."""
        found = [message for message in messages if isinstance(message, Rows)]
        name = self.write_id or next((message.query_id for message in found if message.query_id), None)
        values = _in_order(messages)
        if values and name is None:
            raise LocalError("Spark does not tell the query's id: name the stream with the option write_id")
        append(self.place, name or "", batchId, values)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: no row was appended yet."""


def _in_order(messages: list[WriterCommitMessage | None]) -> list[bytes]:
    found = sorted((message for message in messages if isinstance(message, Rows)), key=lambda message: message.task)
    return [value for message in found for value in message.values]


def append(place: Place, name: str, epoch: int, values: list[bytes]) -> None:
    """Append the records of one epoch. Calls with the same arguments append the records once.

    Args:
        place: the quorum.
        name: name of the query, unique among all writers.
        epoch: number of the epoch, >= 0 and growing.
        values: values of the records; the same in each call for one epoch.

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
    except UnreachableError as error:  # Spark shows only the text
        raise explained(error) from None
