"""The Spark data source ``kraft``: log directories, snapshots and single files as tables, in batch and as a stream.

    spark.read.format("kraft").option("view", "partition_change").load("/backup/*/controller-?")
    spark.readStream.format("kraft").load("/var/lib/kafka")

Options: see ``KraftDataSource``. Nothing needs to be set or registered: Spark finds the module ``pyspark_kraft`` by
its name.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from kraftcore.errors import LocalError
from kraftcore.plugins.spark.decode import FAIL, POLICIES, Range, RangeReader, file_rows
from kraftcore.plugins.spark.filters import Filters
from kraftcore.plugins.spark.plan import (
    RANGE_BYTES,
    Progress,
    Tracker,
    limit_bytes,
    new_ranges,
    pack,
    plan,
    progress_from_json,
    progress_to_json,
    read_ranges,
)
from kraftcore.plugins.spark.stores import Inventory, LogFile
from kraftcore.plugins.spark.views import view_schema
from kraftcore.storage.meta_properties import METADATA_PARTITION

_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"
_KNOWN = {
    "view", "path", "paths", "errors", "folder", "cluster_id", "node_id", "sources", "range_bytes",
    "max_bytes_per_trigger",
    "offset_from", "offset_to", "time_from", "time_to", "epoch_from", "epoch_to", "control", "type", "types",
    "clock_skew_ms",
}  # fmt: skip


class Settings:
    """The options of one read, checked.

    Raises:
        LocalError: an option that is unknown or has a value that is none.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        given = {name.lower() for name in options}
        unknown = sorted(given - _KNOWN)
        if unknown:
            raise LocalError(f"unknown option {unknown[0]!r}: known are {', '.join(sorted(_KNOWN))}")
        self.view = options.get("view") or "records"
        self.policy = options.get("errors") or FAIL
        if self.policy not in POLICIES:
            raise LocalError(f"option errors={self.policy!r} is none of {', '.join(POLICIES)}")
        self.filters = Filters.from_options(options)
        self.range_bytes = self._number(options, "range_bytes", RANGE_BYTES, 1 << 10)
        self.trigger_bytes = self._number(options, "max_bytes_per_trigger", 0, 1)
        self.sources = {part.strip() for part in (options.get("sources") or "").split(",") if part.strip()}
        self._paths = self._read_paths(options)
        node_id = options.get("node_id")
        self.inventory = Inventory(
            folder=options.get("folder") or METADATA_PARTITION,
            cluster_id=options.get("cluster_id"),
            node_id=None if node_id is None else self._number(options, "node_id", 0, -1),
        )

    @staticmethod
    def _number(options: Mapping[str, str], name: str, default: int, least: int) -> int:
        text = options.get(name)
        if text is None:
            return default
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise LocalError(f"option {name}={text!r} is not a whole number from {least} on")
        return value

    @staticmethod
    def _read_paths(options: Mapping[str, str]) -> list[str]:
        paths = json.loads(options["paths"]) if options.get("paths") else []
        if options.get("path"):
            text = options["path"]
            paths += json.loads(text) if text.startswith("[") else [text]
        if not paths:
            raise LocalError("nothing to read: give .load(path), or a list of paths as JSON in the option 'paths'")
        return [str(path) for path in paths]

    def files(self) -> list[LogFile]:
        """What there is to read now."""
        found = self.inventory.files(self._paths)
        return [file for file in found if not self.sources or file.source in self.sources]


class Part(InputPartition):
    """What one task reads.

    Attributes:
        ranges: stretches of files; or None, and then ``rows`` holds finished batches.
    """

    def __init__(self, ranges: tuple[Range, ...], rows: Any = None) -> None:
        super().__init__(None)
        self.ranges = ranges
        self.rows = rows


class KraftDataSource(DataSource):
    """Reads logs of KRaft quorums.

    Options:
        view: ``records`` (the default), ``events`` (with bodies as JSON), ``batches``, ``errors``, ``files``, or a
            record type: ``partition_change``, ``leader_change``, ...: typed columns.
        path, paths: folders at any depth above logs, segments, snapshots; globs; URIs that pyarrow knows; a JSON list.
        errors: ``fail`` at damage (the default), ``drop`` or ``keep`` damaged rows.
        sources: of ``log``, ``snapshot``, ``bootstrap``; all if left out.
        offset_from, offset_to, time_from, time_to, epoch_from, epoch_to: bounds, the upper ones exclusive.
        control, types: control records or not; record types.
        clock_skew_ms: how far leaders' clocks may differ, for time bounds.
        range_bytes: size of a task's share, in bytes.
        max_bytes_per_trigger: of a stream; no limit if left out.
        cluster_id, node_id: in place of those in ``meta.properties``.
        folder: name of the folders that hold a log.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "kraft"

    def schema(self) -> StructType:
        """Columns of the view."""
        return from_arrow_schema(view_schema(Settings(self.options).view))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch reader."""
        # Spark refuses a reader that takes filters unless their push-down is on; then, only this worker asks for one.
        kind = FilteringReader if _PUSHDOWN_WORKER in sys.modules else KraftReader
        return kind(Settings(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream reader."""
        return KraftStreamReader(Settings(self.options))


class KraftReader(DataSourceReader):
    """Plans tasks in one process and reads them in others."""

    def __init__(self, settings: Settings) -> None:
        self._view = settings.view
        self._policy = settings.policy
        self._filters = settings.filters
        self._settings: Settings | None = settings

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_settings": None}

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks."""
        assert self._settings is not None  # noqa: S101
        files = self._settings.files()
        if self._view == "files":
            return [Part((), file_rows(files, {}))]
        reader = RangeReader(self._view, self._filters)
        ranges = plan(files, reader.filters, self._settings.range_bytes)
        return [Part(group) for group in pack(ranges, self._settings.range_bytes)] or [Part(())]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Arrow batches of one task."""
        return read_part(partition, self._view, self._filters, self._policy)


class FilteringReader(KraftReader):
    """Also uses the filters of the query."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Note what can be used; Spark applies all of them again."""
        if self._view not in ("batches", "errors", "files"):
            self._filters = self._filters.push(filters)
        return filters


class KraftStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows files: what was appended, new segments and snapshots, and ends that were cut off and written anew."""

    def __init__(self, settings: Settings) -> None:
        self._view = settings.view
        self._policy = settings.policy
        self._filters = settings.filters
        self._settings: Settings | None = settings
        self._target: Progress | None = None
        self._stopped = False
        self._tracker = Tracker(report_torn=settings.view == "errors")

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_settings": None, "_target": None}

    def initialOffset(self) -> dict[str, Any]:
        """Nothing was read."""
        return {"progress": "{}"}

    def getDefaultReadLimit(self) -> ReadLimit:
        """By bytes, if the option asks for it."""
        assert self._settings is not None  # noqa: S101
        return ReadMaxBytes(self._settings.trigger_bytes) if self._settings.trigger_bytes else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """From the next look on, nothing counts that comes later."""
        self._stopped = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """How far to read next."""
        assert self._settings is not None  # noqa: S101
        before = progress_from_json(start["progress"])
        files = self._settings.files()
        if self._target is None or not self._stopped:
            self._target = self._tracker.advance(before, files)
        after = self._target
        if isinstance(limit, ReadMaxBytes):
            after = limit_bytes(before, after, files, limit.max_bytes, self._settings.range_bytes)
        return {"progress": progress_to_json(after)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks between two states."""
        assert self._settings is not None  # noqa: S101
        before, after = progress_from_json(start["progress"]), progress_from_json(end["progress"])
        files = self._settings.files()
        if self._view == "files":
            changed = [file for file in files if before.get(file.path) != after.get(file.path)]
            rewound = {path: (reached.generation, reached.rewound) for path, reached in after.items()}
            return [Part((), file_rows(changed, rewound))]
        ranges = new_ranges(before, after, files, self._settings.range_bytes)
        return [Part(group) for group in pack(ranges, self._settings.range_bytes)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Arrow batches of one task."""
        return read_part(partition, self._view, self._filters, self._policy)


def read_part(partition: InputPartition, view: str, filters: Filters, policy: str) -> Iterator[Any]:
    """Arrow batches of one task.

    Raises:
        CorruptDataError: damage, with the policy ``fail``.
        StorageError: a file cannot be read.
    """
    if not isinstance(partition, Part):
        return iter(())
    if partition.rows is not None:
        return iter(partition.rows)
    return read_ranges(partition.ranges, RangeReader(view, filters, policy))
