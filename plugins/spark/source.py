"""The Spark data source ``kraft``: log directories, snapshots and single files as tables, in batch and as a stream.

    spark.read.format("kraft").option("view", "partition_change").load("/backup/*/controller-?")
    spark.readStream.format("kraft").load("/var/lib/kafka")

Options: see ``KraftDataSource``. The source needs no registration: Spark finds the module ``pyspark_kraft``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from kraftcore.errors import LocalError
from kraftcore.plugins.spark.arrow_batches import FAIL, POLICIES, Range, RangeReader, file_rows
from kraftcore.plugins.spark.filters import FILTERS, Filters
from kraftcore.plugins.spark.place import Place
from kraftcore.plugins.spark.ranges import (
    RANGE_BYTES,
    Progress,
    Tracker,
    limit_bytes,
    new_ranges,
    pack,
    progress_from_json,
    progress_to_json,
    read_ranges,
    split_into_ranges,
)
from kraftcore.plugins.spark.stores import BOOTSTRAP, LOG, SNAPSHOT, Inventory, LogFile, expand
from kraftcore.plugins.spark.views import view_schema
from kraftcore.storage.meta_properties import METADATA_PARTITION

if TYPE_CHECKING:
    from kraftcore.plugins.spark.live import Quorum

EARLIEST, LATEST = "earliest", "latest"
_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"
_KNOWN = FILTERS | {
    "view", "path", "paths", "errors", "folder", "cluster_id", "node_id", "sources", "range_bytes",
    "max_bytes_per_trigger", "pushdown",
    "bootstrap_controllers", "topic", "mirror", "start", "tls_ca", "tls_certificate", "tls_key", "timeout_ms",
    "write_id", "checkpointlocation",
}  # fmt: skip


class Settings:
    """The checked options of a read.

    Raises:
        LocalError: an option is unknown, or its value cannot be read.
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
        self.pushdown = options.get("pushdown") or "false"
        if self.pushdown not in ("true", "false"):
            raise LocalError(f"option pushdown={self.pushdown!r} is neither true nor false")
        self.range_bytes = self._number(options, "range_bytes", RANGE_BYTES, 1 << 10)
        self.trigger_bytes = self._number(options, "max_bytes_per_trigger", 0, 1)
        self.sources = {part.strip() for part in (options.get("sources") or "").split(",") if part.strip()}
        for one in sorted(self.sources - {LOG, SNAPSHOT, BOOTSTRAP}):
            raise LocalError(f"option sources: {one!r} is none of {LOG}, {SNAPSHOT}, {BOOTSTRAP}")
        self.place = Place.from_options(options)
        self.start = options.get("start") or EARLIEST
        if self.start not in (EARLIEST, LATEST):
            raise LocalError(f"option start={self.start!r} is neither {EARLIEST} nor {LATEST}")
        self._paths = self._read_paths(options)
        node_id = options.get("node_id")
        self.folder = options.get("folder") or METADATA_PARTITION
        self.cluster_id = options.get("cluster_id")
        self.node_id = None if node_id is None else self._number(options, "node_id", 0, -1)
        self.inventory = Inventory(
            folder=self.folder,
            cluster_id=self.cluster_id,
            node_id=self.node_id,
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
        paths = []
        for name in ("paths", "path"):
            text = options.get(name)
            if text:
                is_list = name == "paths" or (text.startswith("[") and not os.path.lexists(text))
                paths += _listed(text, name) if is_list else [text]
        if options.get("bootstrap_controllers"):
            if paths:
                raise LocalError("name paths or bootstrap_controllers, not both: a quorum is no folder")
            if options.get("view") == "files":
                raise LocalError("a running quorum has no files to list: view=files is for folders")
        elif not paths:
            raise LocalError("nothing to read: give .load(path), or a list of paths as JSON in the option 'paths'")
        return paths

    def quorum(self) -> Quorum:
        """Begin to follow the running quorum that the options name.

        Raises:
            LocalError: the options name no quorum.
            KraftError: the quorum cannot be reached, or the mirror belongs to another quorum.
        """
        if self.place is None:
            raise LocalError("name a quorum: option bootstrap_controllers")
        from kraftcore.plugins.spark.live import Quorum

        return Quorum(self.place, self.cluster_id, self.node_id)

    def files(self) -> list[LogFile]:
        """The files that there are to read now."""
        found = self.inventory.files(self._paths)
        return [file for file in found if not self.sources or file.source in self.sources]

    def unread(self, files: Iterable[LogFile]) -> list[str]:
        """The paths, with globs resolved, that none of these files lies below."""
        held = {str(place) for file in files for place in (PurePath(file.path), *PurePath(file.path).parents)}
        return [path for path in expand(self._paths) if str(PurePath(path)) not in held]


def _listed(text: str, name: str) -> list[str]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise LocalError(f"option {name}={text!r} is no JSON list of paths")
    return found


class Part(InputPartition):
    """The input of one task.

    Attributes:
        ranges: ranges to read.
        rows: finished batches in place of ranges, or None.
    """

    def __init__(self, ranges: tuple[Range, ...], rows: Sequence[pa.RecordBatch] | None = None) -> None:
        super().__init__(None)
        self.ranges = ranges
        self.rows = rows


class KraftDataSource(DataSource):
    """Reads logs of KRaft quorums.

    Options:
        view: ``records`` (the default), ``events`` (with bodies as JSON), ``batches``, ``errors``, ``files``, or a
            record type: ``partition_change``, ``leader_change``, ...: typed columns.
        path, paths: segments, snapshots, folders at any depth above logs, globs, URIs that pyarrow knows; or a JSON
            list of such paths.
        errors: ``fail`` at damage (the default), ``drop`` or ``keep`` damaged rows.
        sources: some of ``log``, ``snapshot``, ``bootstrap``; all if left out.
        offset_from, offset_to, time_from, time_to, epoch_from, epoch_to: bounds, the upper ones exclusive.
        control: ``true``: control records only; ``false``: other records only.
        types: record types, with commas.
        bootstrap_controllers: ``host:port`` of some controllers of a running quorum, in place of a path: an observer
            reads the committed records. See ``Place.from_options`` for ``topic``, ``mirror``, ``timeout_ms`` and TLS.
        start: where a stream from a quorum begins: ``earliest`` (the default) or ``latest``.
        write_id: names a write, so that a repeated write is appended once.
        clock_skew_ms: the most by which leaders' clocks differ, in ms; see ``Filters``.
        range_bytes: bytes of a file for one task.
        max_bytes_per_trigger: bytes of one micro-batch of a stream; no limit if left out.
        cluster_id, node_id: ids in place of those in ``meta.properties``.
        folder: name of the folders that hold a log.
        pushdown: ``true``: a batch read also skips rows by the query's own conditions. Spark (as of 4.3) keeps one plan
            for each ``load()``, whatever the query: use such a DataFrame once, in one query only. Needs
            ``spark.sql.python.filterPushdown.enabled``, which ``session()`` sets.
    """

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "kraft"

    def schema(self) -> StructType:
        """Columns of the view."""
        return from_arrow_schema(view_schema(Settings(self.options).view))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader for a batch read."""
        # Spark refuses a reader with pushFilters() unless push-down is on; then a worker with this module asks for it.
        settings = Settings(self.options)
        return (FilteringReader if settings.pushdown == "true" and _PUSHDOWN_WORKER in sys.modules else KraftReader)(
            settings
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A reader for a stream."""
        settings = Settings(self.options)
        return KraftStreamReader(settings) if settings.place is None else QuorumStreamReader(settings)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A writer that appends the rows of a batch write to a running quorum."""
        from kraftcore.plugins.spark.sink import QuorumWriter

        return QuorumWriter(Settings(self.options).place, self.options.get("write_id"), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """A writer that appends the rows of a stream to a running quorum."""
        from kraftcore.plugins.spark.sink import QuorumStreamWriter

        return QuorumStreamWriter(
            Settings(self.options).place, self.options.get("write_id"), schema, overwrite=overwrite
        )


class _Reader:
    # Plans tasks in the process that makes it, and reads them in workers.

    def __init__(self, settings: Settings) -> None:
        self._view = settings.view
        self._policy = settings.policy
        self._filters = settings.filters
        self._settings = settings

    def __getstate__(self) -> dict[str, object]:
        # Workers get no more than `read` needs.
        return {name: self.__dict__[name] for name in ("_view", "_policy", "_filters")}

    def _tasks(self, ranges: Iterable[Range]) -> list[Part]:
        return [Part(group) for group in pack(ranges, self._settings.range_bytes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches of one task.

        Raises:
            CorruptDataError: damage, with the policy ``fail``.
            StorageError: a file cannot be read.
        """
        if not isinstance(partition, Part):
            return iter(())
        if partition.rows is not None:
            return iter(partition.rows)
        return read_ranges(partition.ranges, RangeReader(self._view, self._filters, self._policy))


class _StreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def getDefaultReadLimit(self) -> ReadLimit:
        """At most ``max_bytes_per_trigger`` bytes; all that is there without that option."""
        return ReadMaxBytes(self._settings.trigger_bytes) if self._settings.trigger_bytes else ReadAllAvailable()


class KraftReader(_Reader, DataSourceReader):
    """Reads files, or what a running quorum has committed when the query is planned."""

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks of the read."""
        if self._settings.place is not None:
            return self._tasks(self._committed()) or [Part(())]
        files = self._settings.files()
        if self._view == "files":
            return [Part((), file_rows(files, {}))]
        reader = RangeReader(self._view, self._filters)
        ranges = split_into_ranges(files, reader.filters, self._settings.range_bytes)
        return self._tasks(ranges) or [Part(())]

    def _committed(self) -> list[Range]:
        # What a running quorum has committed by now.
        with self._settings.quorum() as quorum:
            end = quorum.caught_up()
            span = self._filters.offset
            return quorum.ranges(max(span.low, 0), min(span.high + 1, end), self._settings.range_bytes)


class FilteringReader(KraftReader):
    """A reader that also uses the conditions of the query."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keep the filters that can be used; Spark applies all filters again."""
        if self._view not in ("batches", "errors", "files"):
            self._filters = self._filters.push(filters)
        return filters


class KraftStreamReader(_StreamReader):
    """Follows files: appended records, new segments and snapshots, and ends that were cut off and written anew."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._target: Progress | None = None
        self._stopped = False
        self._tracker = Tracker(report_torn=settings.view == "errors")

    def initialOffset(self) -> dict[str, str]:
        """The progress of a stream that has read nothing."""
        return {"progress": "{}"}

    def prepareForTriggerAvailableNow(self) -> None:
        """Let the next look at the files be the last one."""
        self._stopped = True

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:
        """The end of the next micro-batch."""
        before = progress_from_json(start["progress"])
        files = self._settings.files()
        if self._target is None or not self._stopped:
            self._target = self._tracker.advance(before, files)
        after = self._target
        if isinstance(limit, ReadMaxBytes):
            after = limit_bytes(before, after, files, limit.max_bytes, self._settings.range_bytes)
        return {"progress": progress_to_json(after)}

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """The tasks between two states of progress."""
        before, after = progress_from_json(start["progress"]), progress_from_json(end["progress"])
        files = self._settings.files()
        if self._view == "files":
            changed = [file for file in files if before.get(file.path) != after.get(file.path)]
            rewound = {path: (reached.generation, reached.rewound) for path, reached in after.items()}
            return [Part((), file_rows(changed, rewound))]
        return self._tasks(new_ranges(before, after, files, self._settings.range_bytes))


class QuorumStreamReader(_StreamReader):
    """Follows a running quorum: each committed record once. The stream's offset is the log's offset."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._quorum: Quorum | None = None
        self._target: int | None = None

    def _follow(self) -> Quorum:
        if self._quorum is None:
            _end_in_order()
            self._quorum = self._settings.quorum()
            self._quorum.caught_up()
        return self._quorum

    def initialOffset(self) -> dict[str, int]:
        """Offset 0, or with ``start=latest`` the high watermark."""
        quorum = self._follow()
        return {"offset": 0 if self._settings.start == EARLIEST else quorum.caught_up()}

    def prepareForTriggerAvailableNow(self) -> None:
        """Let the stream end at the high watermark of now."""
        self._target = self._follow().caught_up()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """The end of the next micro-batch."""
        quorum = self._follow()
        begin = int(start["offset"])
        end = max(begin, quorum.high_watermark() if self._target is None else self._target)
        if isinstance(limit, ReadMaxBytes) and end > begin:
            end = quorum.end_for_bytes(begin, end, limit.max_bytes)
        return {"offset": end}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """The tasks between two offsets."""
        quorum = self._follow()
        if quorum.high_watermark() < int(end["offset"]):
            quorum.caught_up()  # after a restart with an empty mirror
        return self._tasks(quorum.ranges(int(start["offset"]), int(end["offset"]), self._settings.range_bytes))

    def stop(self) -> None:
        """Stop the observer."""
        if self._quorum is not None:
            self._quorum.close()


def _end_in_order() -> None:
    """Exit on SIGTERM, by which Spark ends a query's process, so that the temporary mirror is removed."""
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
