"""Typed records of logs and snapshots as Arrow batches, in this process and without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from kraftcore.errors import LocalError
from kraftcore.plugins.spark.arrow_batches import FAIL, POLICIES, RangeReader
from kraftcore.plugins.spark.filters import FILTERS, Filters
from kraftcore.plugins.spark.ranges import split_into_ranges
from kraftcore.plugins.spark.stores import Inventory
from kraftcore.plugins.spark.views import RecordType
from kraftcore.storage.meta_properties import METADATA_PARTITION


def read_typed(
    paths: Sequence[str | Path], *, errors: str = FAIL, folder: str = METADATA_PARTITION, **filters: str
) -> Iterator[tuple[RecordType, pa.RecordBatch]]:
    """Decode all records below some paths in one pass. Needs pyarrow; needs neither PySpark nor Java.

    Args:
        paths: files, folders, globs or URIs, as for the data source.
        errors: what becomes of damaged rows: ``fail``, ``drop`` or ``keep``.
        folder: name of the folders that hold a log.
        filters: options of the data source: ``offset_from``, ``time_to``, ``types``, ...

    Yields:
        A record type, and a ``pyarrow.RecordBatch`` with the columns of its silver table.

    Raises:
        LocalError: a path that matches nothing, or a value that cannot be read.
        CorruptDataError: damage, with ``errors="fail"``.
        StorageError: a file cannot be read.
    """
    if errors not in POLICIES:
        raise LocalError(f"errors={errors!r} is none of {', '.join(POLICIES)}")
    unknown = sorted(filters.keys() - FILTERS)
    if unknown:
        raise LocalError(f"unknown filter {unknown[0]!r}: known are {', '.join(sorted(FILTERS))}")
    wanted = Filters.from_options(filters)
    files = Inventory(folder=folder).files(map(str, paths))
    reader = RangeReader("records", wanted, errors)
    for part in split_into_ranges(files, wanted):
        yield from reader.read_types(part)
