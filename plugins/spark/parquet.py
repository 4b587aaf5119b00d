"""Parquet files of tables, written and read without Spark."""

from __future__ import annotations

import errno
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs
import pyarrow.parquet as pq

from kraftcore.errors import CorruptDataError, StorageError
from kraftcore.plugins.spark.frames import Integers, integers, one_chunk

BUCKETS = 32
"""Number of buckets that rows about partitions are divided into. A row group holds one or more whole buckets, so that a
reader can read some buckets without the others."""
GROUP_BYTES = 12 << 20
"""Bytes of log for one row group of a file, up to ``BUCKETS`` groups: half of the log of one share of gold."""
BUCKET_ROWS_MIN = 1 << 16
"""A file with fewer rows is not divided: reading the whole file is as quick."""
STEP = 7
"""A partition's bucket: CRC-32 of its topic's id, plus its number times this, modulo ``BUCKETS``."""
_ROWS = 1 << 17
_KEY = b"kraftcore.buckets"
_LONG = {"key", "value", "body"}
"""Columns whose values hardly ever repeat, so a dictionary would not help."""
_ASKED = {
    "cluster_id",
    "log_id",
    "file_id",
    "offset",
    "base_offset",
    "timestamp",
    "base_timestamp",
    "epoch",
}
"""Columns with statistics, by which readers skip row groups."""
_BUFFER_BYTES = 1 << 18
_LOCAL = pyarrow.fs.LocalFileSystem()
_STEP_ROWS = 1 << 13
"""Values of a column that are encoded at a time."""


def is_bucketed(schema: pa.Schema) -> bool:
    """Whether rows with this schema are about partitions."""
    return {"topic_id", "partition_id"} <= set(schema.names)


def bucket_of(rows: pa.Table) -> Integers:
    """The bucket of each row's partition, 0 to ``BUCKETS`` - 1."""
    topics = one_chunk(rows["topic_id"]).fill_null("").dictionary_encode()
    sums = np.array([zlib.crc32(topic.encode()) for topic in topics.dictionary.to_pylist()], np.int64)
    partitions = integers(rows["partition_id"])
    if not len(sums):
        return partitions % BUCKETS
    found: Integers = (sums[topics.indices.to_numpy()] + partitions * STEP) % BUCKETS
    return found


def sql_of_share(share: tuple[int, int]) -> str:
    """The SQL condition for the rows that ``in_share`` keeps."""
    number, shares = share
    bucket = f"pmod(crc32(coalesce(topic_id, '')) + bigint(coalesce(partition_id, 0)) * {STEP}, {BUCKETS})"
    return f"{bucket} * {shares} div {BUCKETS} = {number}"


def groups_for(size: int) -> int:
    """Number of row groups of a file about partitions: a power of two up to ``BUCKETS``.

    Args:
        size: bytes of all logs in the folder of tables.
    """
    return min(1 << (max(-(-size // GROUP_BYTES), 1) - 1).bit_length(), BUCKETS)


def _leaves(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    # The Parquet columns (path, type) of a table's column; lists and structs have several.
    if pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    elif pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(f"{path}.{field.name}", field.type)
    else:
        yield path, kind


@lru_cache(maxsize=256)
def _settings(schema: pa.Schema) -> dict[str, object]:
    # Settings of Parquet's writer for a schema.
    leaves = dict(leaf for field in schema for leaf in _leaves(field.name, field.type))
    differences = [path for path, kind in leaves.items() if pa.types.is_int64(kind) or pa.types.is_timestamp(kind)]
    plain = {path for path, kind in leaves.items() if pa.types.is_boolean(kind) or pa.types.is_float64(kind)}
    return {
        "compression": "snappy",  # with small row groups Zstandard takes more time than it saves
        # Offsets and times grow in small steps; other columns have few distinct values.
        "column_encoding": dict.fromkeys(differences, "DELTA_BINARY_PACKED") or None,
        "use_dictionary": sorted(leaves.keys() - _LONG - plain - set(differences)) or False,
        "write_statistics": [name for name in schema.names if name in _ASKED] or False,
        "write_batch_size": _STEP_ROWS,
        "store_schema": False,
    }


class TableFile:
    """Writes one file, row group by row group.

    Args:
        target: path of the file; None: ``close`` returns the bytes.
        schema: the columns.
        groups: number of row groups if the rows are about partitions: a power of two up to ``BUCKETS``.

    Raises:
        StorageError: the file cannot be made; from ``add`` and ``close``: the file cannot be written.
    """

    def __init__(self, target: str | None, schema: pa.Schema, groups: int = BUCKETS) -> None:
        self.rows = 0
        self._target = target
        self._schema = schema
        self._groups = groups
        with self._told():
            self._sink = (
                pa.BufferOutputStream()
                if target is None
                else _LOCAL.open_output_stream(target, buffer_size=_BUFFER_BYTES, compression=None)
            )
        self._kept: list[pa.RecordBatch] = []
        self._ends: list[Integers] = []
        self._pending = 0
        self._is_bucketed = is_bucketed(schema)
        self._writer = pq.ParquetWriter(self._sink, schema, **_settings(schema))

    def add(self, batch: pa.RecordBatch, buckets: pa.Array | None = None) -> None:
        """Add a batch's rows.

        Args:
            batch: the rows.
            buckets: the bucket of each row, if the rows are about partitions and sorted by bucket; None: the rows are
                in any order. Give buckets with all batches of a file or with none.
        """
        self.rows += batch.num_rows
        self._kept.append(batch)
        if buckets is not None:
            self._ends.append(np.cumsum(np.bincount(buckets, minlength=BUCKETS)))
        self._pending += batch.num_rows
        if self._pending >= _ROWS and not self._is_bucketed:
            with self._told():
                self._flush()

    def close(self) -> bytes:
        """Write the remaining rows and close the file.

        Returns:
            The file's bytes, if there is no path; else none.
        """
        with self._told():
            if self._is_bucketed and self.rows >= BUCKET_ROWS_MIN:
                self._write_buckets()
            else:
                self._flush()
            self._writer.close()
            if isinstance(self._sink, pa.BufferOutputStream):
                return bytes(self._sink.getvalue())
            self._sink.close()
        return b""

    @contextmanager
    def _told(self) -> Iterator[None]:
        # Turns errors of Arrow, which lack the file's name, into ours.
        try:
            yield
        except OSError as error:
            number = error.errno or errno.EIO
            raise StorageError(number, os.strerror(number), self._target or "") from None

    def _flush(self) -> None:
        if self._kept:
            rows = pa.Table.from_batches(self._kept, self._schema).unify_dictionaries()
            self._writer.write_table(rows, row_group_size=_ROWS)
        self._kept, self._pending = [], 0

    def _write_buckets(self) -> None:
        if not self._ends:
            rows = pa.Table.from_batches(self._kept, self._schema).combine_chunks()
            buckets = bucket_of(rows)
            self._kept = rows.take(pa.array(np.argsort(buckets, kind="stable"))).to_batches()
            self._ends = [np.cumsum(np.bincount(buckets, minlength=BUCKETS))]
        groups = []
        step = BUCKETS // self._groups
        for first in range(0, BUCKETS, step):
            starts = (ends[first - 1] if first else 0 for ends in self._ends)
            spans = zip(self._kept, starts, (ends[first + step - 1] for ends in self._ends), strict=True)
            rows = pa.Table.from_batches([one.slice(start, end - start) for one, start, end in spans], self._schema)
            if len(rows):
                self._writer.write_table(rows.unify_dictionaries(), row_group_size=len(rows))
                groups.append(list(range(first, first + step)))
        self._writer.add_key_value_metadata({_KEY: json.dumps(groups).encode()})


def read_files(
    paths: Sequence[str], schema: pa.Schema, *, where: pc.Expression | None = None, share: tuple[int, int] | None = None
) -> pa.Table:
    """Rows of files as one table.

    Args:
        paths: the files.
        schema: the columns wanted.
        where: condition that rows must meet; None: all rows.
        share: (number from 0, number of shares): rows of this share of the partitions; None: all rows.

    Raises:
        CorruptDataError: a file is not whole Parquet.
        StorageError: a file cannot be read.
    """
    if not paths:
        return schema.empty_table()
    try:
        return _read(paths, schema, where, share)
    except MemoryError:
        raise
    except (pa.ArrowException, OSError) as error:
        for path in paths:
            _check(path)
        raise CorruptDataError(_first_line(error), path=paths[0]) from None


def _check(path: str) -> None:
    # Raises if this file cannot be read.
    try:
        pq.read_table(path, partitioning=None)
    except FileNotFoundError:
        raise StorageError(errno.ENOENT, "a commit names it, and it is gone", path) from None
    except PermissionError as error:
        raise StorageError(error.errno or errno.EACCES, error.strerror or "not readable", path) from None
    except (pa.ArrowException, OSError) as error:
        raise CorruptDataError(f"not whole Parquet: {_first_line(error)}", path=path) from None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _read(
    paths: Sequence[str], schema: pa.Schema, where: pc.Expression | None, share: tuple[int, int] | None
) -> pa.Table:
    if share is None:
        # Files of earlier versions have Spark's timestamps of 96 bits.
        options = ds.ParquetFragmentScanOptions()
        read = ds.ParquetReadOptions(coerce_int96_timestamp_unit="us")
        whole = ds.dataset(list(paths), schema=schema, format=ds.ParquetFileFormat(read, options))
        return whole.to_table(filter=where)
    parts = [_read_share(path, schema, share) for path in paths]
    rows = pa.concat_tables(parts) if parts else schema.empty_table()
    return rows if where is None else rows.filter(where)


def _read_share(path: str, schema: pa.Schema, share: tuple[int, int]) -> pa.Table:
    number, shares = share
    with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
        groups = json.loads((file.metadata.metadata or {}).get(_KEY, b"null"))
        if groups is None:
            return in_share(file.read(schema.names).select(schema.names).cast(schema), share)
        # In files of earlier versions each group is one bucket, written as a number.
        buckets = [one if isinstance(one, list) else [one] for one in groups]
        found = [{bucket * shares // BUCKETS == number for bucket in one} for one in buckets]
        wanted = [at for at, one in enumerate(found) if True in one]
        rows = file.read_row_groups(wanted, schema.names).select(schema.names).cast(schema)
        return in_share(rows, share) if any(len(one) > 1 for one in found) else rows


def in_share(rows: pa.Table, share: tuple[int, int]) -> pa.Table:
    """The rows of one share (number from 0, number of shares) of the partitions; shares differ by at most a bucket."""
    number, shares = share
    return rows.filter(pa.array(bucket_of(rows) * shares // BUCKETS == number))


def to_bytes(rows: pa.Table | Sequence[pa.RecordBatch]) -> bytes:
    """The bytes of a file with a table's rows, or with the rows of batches of one schema."""
    file = TableFile(None, rows.schema if isinstance(rows, pa.Table) else rows[0].schema)
    for batch in rows.to_batches() if isinstance(rows, pa.Table) else rows:
        file.add(batch)
    return file.close()


def count_by_cluster(paths: Sequence[str], clusters: Sequence[str]) -> dict[str, int]:
    """Number of records by cluster, from files of ``bronze_batches``."""
    schema = pa.schema([("cluster_id", pa.string()), ("count", pa.int32())])
    rows = read_files(paths, schema, where=pc.field("cluster_id").isin(list(clusters)))
    sums = rows.group_by("cluster_id").aggregate([("count", "sum")])
    return dict(zip(sums["cluster_id"].to_pylist(), sums["count_sum"].to_pylist(), strict=True))
