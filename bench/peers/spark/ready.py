"""Spark's ceiling: a source that hands over Arrow batches which lie ready in files, one file a task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from kraftcore.plugins.spark.worker import settle


class ReadySource(DataSource):
    """Reads the files ``0.arrow``, ``1.arrow``, ... of a folder.

    Its workers are told what ours are, so that the two differ by the reading alone.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        settle()

    @classmethod
    def name(cls) -> str:
        return "ready"

    def _files(self) -> list[Path]:
        folder = Path(self.options["path"])
        return sorted(folder.glob("*.arrow"), key=lambda file: int(file.stem))

    def schema(self) -> StructType:
        with pa.OSFile(str(self._files()[0])) as file:
            return from_arrow_schema(pa.ipc.open_file(file).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        return ReadyReader([str(file) for file in self._files()])


class ReadyReader(DataSourceReader):
    """One task a file."""

    def __init__(self, files: list[str]) -> None:
        self.files = files

    def partitions(self) -> Sequence[InputPartition]:
        settle()
        return [InputPartition(number) for number in range(len(self.files))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        settle()
        with pa.memory_map(self.files[partition.value]) as file:
            reader = pa.ipc.open_file(file)
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)


def write(folder: Path, tasks: Sequence[Sequence[Any]]) -> None:
    """Put the batches of each task into a file."""
    folder.mkdir(parents=True)
    for number, batches in enumerate(tasks):
        place = str(folder / f"{number}.arrow")
        with pa.OSFile(place, "wb") as file, pa.ipc.new_file(file, batches[0].schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
