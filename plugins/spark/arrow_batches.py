"""Reads a byte range of a segment or snapshot as Arrow batches of a view of the data source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraftcore.core.columns import BufferPool, ColumnReader, Damage
from kraftcore.core.columns.headers import batch_headers
from kraftcore.core.columns.partitions import partition_order
from kraftcore.core.columns.record_types import RecordTypes, record_types, rows_of_types
from kraftcore.core.columns.rows import take_rows
from kraftcore.core.columns.typed import RecordColumns
from kraftcore.core.wire.text import to_json_text
from kraftcore.errors import CorruptDataError, RemoteProtocolError
from kraftcore.plugins.spark.contents import holds_metadata
from kraftcore.plugins.spark.filters import Filters
from kraftcore.plugins.spark.parquet import BUCKETS, STEP, is_bucketed
from kraftcore.plugins.spark.stores import LOG, PIECE_BYTES, SNAPSHOT, LogFile, Memory, Source
from kraftcore.plugins.spark.views import (
    IDENTITY,
    PLAIN_VIEWS,
    RecordType,
    field_name,
    find_type,
    stored_schema,
    type_name,
    type_of_code,
    typed_schema,
    view_schema,
)
from kraftcore.protocol.control import decode_control_record
from kraftcore.protocol.metadata import decode_metadata_record

FAIL, DROP, KEEP = "fail", "drop", "keep"
POLICIES = (FAIL, DROP, KEEP)
Columns: TypeAlias = dict[str, pa.Array]
GONE = "gone"
"""The ``Problem.kind`` of bytes whose file was removed before they were read."""
LAYERS = "layers"
"""Given in place of a view: the reader delivers all views that tables need, in one pass."""
ROWS_MAX = 1 << 16
_HEADER_BYTES = 61
_MS_MAX = ((1 << 63) - 1) // 1000
_CHUNK_BYTES = 4 << 20
_POOL = BufferPool()
"""Memory shared by all readers of this process: each range is decoded into the buffers of the range before."""
_COLUMNS = ("offset", "timestamp", "partition_leader_epoch", "is_control", "key", "value", "position")
_CODECS = ["none", "gzip", "snappy", "lz4", "zstd", None, None, None]


@dataclass(frozen=True)
class Range:
    """Batches to read: those of ``file`` that begin at byte ``start`` or later, and before byte ``end``.

    Attributes:
        file: the file.
        start, end: byte positions; a batch begins at ``start``.
        generation: how often the file's end had been cut off and written anew when the range was planned.
        data: the bytes, if tasks cannot open the file (batches of a running quorum); else None.
    """

    file: LogFile
    start: int
    end: int
    generation: int = 0
    data: bytes | None = None

    def open(self) -> Source | Memory:
        """Open the file, or ``data`` in its place."""
        return Source(self.file.path) if self.data is None else Memory(self.file.path, self.data)


@dataclass(frozen=True)
class Problem:
    """Bytes or a record of a file that could not be read.

    Attributes:
        kind: ``torn`` (the file ends inside a batch), ``batch`` (a damaged batch), ``record`` (a record whose value
            cannot be decoded, or is of a type or version that is not known) or ``gone`` (the file was removed before
            it was read).
        position: byte position of the batch.
        size: number of bytes left out; 0 for a record.
        offset: offset of the record; None for a batch.
        reason: the fault, in words.
        is_control: whether the record is a control record.
    """

    kind: str
    position: int
    size: int
    offset: int | None
    reason: str
    is_control: bool = False


class Rows(NamedTuple):
    """Rows of a view, to be stored.

    Attributes:
        view: name of the view.
        batch: the rows, with the columns of ``stored_schema``.
        buckets: the bucket of each row, ascending, if the rows are about partitions; else None.
    """

    view: str
    batch: pa.RecordBatch
    buckets: pa.Array | None


class BrokenOff(NamedTuple):
    """Where a walk over a file's batches ended because a header could not be trusted.

    Attributes:
        path: path of the file.
        position: byte position behind the last batch that was recognized.
        header: the bytes at ``position``, at most the length of a batch header.
        torn: size of the file if it ends inside the batch at ``position``; else 0.
    """

    path: str
    position: int
    header: bytes
    torn: int


@dataclass
class Piece:
    """Bytes with whole batches.

    Attributes:
        base: position of the first byte in the file.
        data: the bytes, up to the end of the last whole batch; valid until the next piece is asked for.
        headers: one row a batch.
        damage: the damaged stretches.
        end: position in the file behind the last batch that was recognized.
        is_torn: whether the last damage is a file that ends inside a batch.
    """

    base: int
    data: memoryview
    headers: pa.RecordBatch
    damage: list[Damage]
    end: int
    is_torn: bool = False


def pieces(source: Source | Memory, start: int, end: int, *, verify: bool = True) -> Iterator[Piece]:
    """Walk over a file's batches from byte ``start`` to ``end``, some MiB at a time; ``verify`` compares checksums.

    The walk ends where a header cannot be trusted: then the last piece's damage reaches to ``end``.
    """
    position, size = start, PIECE_BYTES
    while position < end:
        # The batch that starts before `end` may reach beyond it.
        data = source.piece(position, min(size, max(source.size - position, 0)))
        if not data:
            return
        found = batch_headers(data, end=min(len(data), end - position), base_position=position, verify=verify)
        lost = found.damage[-1] if found.damage and found.damage[-1].position == found.end else None
        if lost is None and found.end == position:
            # One batch is larger than the bytes read, or the file ends inside the batch.
            need = 12 + int.from_bytes(data[8:12], "big") if len(data) >= _HEADER_BYTES else size + 1
            if size < need <= source.size - position:
                size = need
                continue
            lost = Damage(position, end - position, f"the file ends inside a batch: {len(data)} bytes are left")
            yield Piece(position, data[:0], found.batches, [lost], position, is_torn=True)
            return
        if lost is not None:
            lost = Damage(lost.position, end - lost.position, lost.reason)
            damage = [*found.damage[:-1], lost]
            yield Piece(position, data[: found.end - position], found.batches, damage, found.end)
            return
        yield Piece(position, data[: found.end - position], found.batches, found.damage, found.end)
        position, size = found.end, PIECE_BYTES


class RangeReader:
    """Reads ranges as one view.

    Args:
        view: name of the view; ``LAYERS`` for ``read_layers``.
        filters: conditions that rows must meet.
        policy: what damage does: ``fail`` raises, ``drop`` leaves damaged rows out, ``keep`` also delivers rows of
            batches with a wrong checksum and of records that cannot be decoded.

    Attributes:
        broken_off: the places so far where reading ended at damage; the torn end of a growing file does not count.

    Raises:
        LocalError: no such view.
    """

    def __init__(self, view: str, filters: Filters, policy: str = FAIL) -> None:
        self.broken_off: list[BrokenOff] = []
        self.view = view
        self.schema = None if view == LAYERS else view_schema(view)
        self.kind = find_type(view) if view not in (*PLAIN_VIEWS, LAYERS) else None
        self.filters = filters if self.kind is None else filters.for_type(self.kind)
        self.policy = policy
        # The errors view lists records of every type.
        self._codes = None if view in ("errors", LAYERS) else self.filters.codes
        self._decoders: dict[str, RecordColumns] = {}
        self._contents: dict[str, bool] = {}
        self._repeated: tuple[LogFile | None, int, Columns] = (None, 0, {})

    def read(self, part: Range) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range.

        Raises:
            CorruptDataError: damage, with the policy ``fail``; the error names file and position.
            StorageError: the file cannot be read.
        """
        for piece, problems in self._whole_pieces(part):
            self._check(part, problems)
            yield from self._piece(part, piece, problems)

    def read_types(self, part: Range) -> Iterator[tuple[RecordType, pa.RecordBatch]]:
        """Yield typed batches of all record types, each with its type, in one pass.

        Raises:
            As ``read``.
        """
        for piece, problems in self._whole_pieces(part):
            self._check(part, problems)
            for chunk in self._chunks(part, piece):
                codes = _codes(chunk)
                for code, rows in rows_of_types(codes.code, _POOL):
                    kind = type_of_code(code)
                    if kind is not None:
                        columns = self._typed(part, chunk, codes, kind, rows)
                        yield from ((kind, batch) for batch in self._finish(part, columns, typed_schema(kind)))

    def read_layers(self, part: Range) -> Iterator[Rows]:
        """Yield the rows to be stored of the views ``batches``, ``records``, ``errors`` and of all record types, in one
        pass. Records that cannot be decoded are in ``records`` and ``errors`` only. Rows about partitions are in the
        order of their buckets.

        Raises:
            As ``read``.
        """
        for piece, problems in self._whole_pieces(part):
            self._check(part, problems)
            yield from self._named(part, "batches", self._batches(piece))
            for chunk in self._chunks(part, piece, problems):
                codes = _codes(chunk)
                yield from self._named(part, "records", self._plain(chunk, codes))
                bad: list[Problem] = []
                for kind, rows, buckets, fields in self._decoded(chunk, codes, bad):
                    if self.filters.types is None or kind.name in self.filters.types:
                        columns = _in_log(chunk, codes, rows) | _fields(kind, fields)
                        yield from self._named(part, kind.view, columns, buckets)
                problems += self._bad_records(part, bad)
            yield from self._named(part, "errors", self._errors(part, problems))

    def read_torn(self, part: Range) -> Iterator[Rows]:
        """As ``read_layers``, of a range that ends inside a batch: only ``errors``. A later run reads the batch."""
        for _, problems in self._whole_pieces(part):
            yield from self._named(part, "errors", self._errors(part, problems))

    def read_gone(self, part: Range) -> Iterator[Rows]:
        """As ``read_layers``, of a range whose file was removed before it was read: one row of ``errors``."""
        reason = "the file was removed before these bytes were read"
        problem = Problem(GONE, part.start, part.end - part.start, None, reason)
        yield from self._named(part, "errors", self._errors(part, [problem]))

    def _whole_pieces(self, part: Range) -> Iterator[tuple[Piece, list[Problem]]]:
        with part.open() as source:
            for piece in pieces(source, part.start, part.end):
                is_cut = piece.is_torn and part.file.may_grow
                if part.file.source == LOG and not is_cut and any(one.position == piece.end for one in piece.damage):
                    header = bytes(source.read(piece.end, min(_HEADER_BYTES, source.size - piece.end)))
                    torn = source.size if piece.is_torn else 0
                    self.broken_off.append(BrokenOff(part.file.path, piece.end, header, torn))
                yield piece, self._problems(part, piece)

    def _named(self, part: Range, view: str, columns: Columns, buckets: pa.Array | None = None) -> Iterator[Rows]:
        if len(next(iter(columns.values()))):
            yield Rows(view, self._whole(part, columns, stored_schema(view)), buckets)

    def _check(self, part: Range, problems: list[Problem]) -> None:
        if self.policy == FAIL and self.view != "errors":
            for problem in problems:
                if problem.kind != "torn":
                    raise CorruptDataError(problem.reason, position=problem.position, path=part.file.path)

    def _piece(self, part: Range, piece: Piece, problems: list[Problem]) -> Iterator[pa.RecordBatch]:
        if self.view == "batches":
            yield from self._finish(part, self._batches(piece))
            return
        if self.view == "errors":
            for chunk in self._chunks(part, piece, problems):
                problems.extend(self._bad_records(part, self._undecoded(chunk)))
            yield from self._finish(part, self._errors(part, problems))
            return
        for chunk in self._chunks(part, piece):
            yield from self._finish(part, self._rows(part, chunk))

    @staticmethod
    def _problems(part: Range, piece: Piece) -> list[Problem]:
        def kind(damage: Damage) -> str:
            torn = piece.is_torn and part.file.may_grow and damage.position == piece.end
            return "torn" if torn else "batch"

        return [Problem(kind(one), one.position, one.size, None, one.reason) for one in piece.damage]

    def _chunks(self, part: Range, piece: Piece, problems: list[Problem] | None = None) -> Iterator[pa.RecordBatch]:
        # The records of wanted batches. Batches with a right checksum and damaged records are added to `problems`.
        offset = self.filters.offset
        window = None if offset.is_open else (offset.low, offset.high + 1)
        for start, end in self._runs(part, piece):
            reader = ColumnReader(
                piece.data,
                columns=_COLUMNS,
                position=start,
                end=end,
                base_position=piece.base,
                offsets=window,
                types=self._codes,
                verify=False,  # the walk over the headers has compared the checksums
                errors="raise" if self.policy == FAIL and self.view != "errors" else "skip",
                timestamp_unit="us",
                chunk_bytes=_CHUNK_BYTES,
                pool=_POOL,
            )
            try:
                for chunk in reader:
                    yield self._wanted(chunk.to_arrow())
            except CorruptDataError as error:
                raise CorruptDataError(error.reason, position=error.position, path=part.file.path) from None
            if problems is not None:
                told = {problem.position for problem in problems}
                problems += [
                    Problem("batch", one.position, one.size, None, one.reason)
                    for one in reader.damage
                    if one.position not in told
                ]

    def _runs(self, part: Range, piece: Piece) -> Iterator[tuple[int, int]]:
        # Stretches of wanted batches, as positions in the piece.
        headers, filters = piece.headers, self.filters
        if headers.num_rows == 0:
            return
        mask = None if self.policy == KEEP else pc.equal(headers["is_valid"], 1)
        if part.file.source == SNAPSHOT:  # batches with a producer id hold sessions of clients, not metadata
            mask = _both(mask, pc.less(headers["producer_id"], 0))
        if not filters.all_batches:
            for name, low, high in (
                ("epoch", filters.epoch.low, filters.epoch.high),
                ("last_offset", filters.offset.low, None),
                ("base_offset", None, filters.offset.high),
                ("max_timestamp", filters.time_ms.low, None),
                ("base_timestamp", None, filters.time_ms.high),
            ):
                mask = _both(mask, None if low is None else pc.greater_equal(headers[name].cast(pa.int64()), low))
                mask = _both(mask, None if high is None else pc.less_equal(headers[name].cast(pa.int64()), high))
            if filters.control is not None:
                bits = pc.bit_wise_and(headers["attributes"], pa.scalar(0x20, pa.int16()))
                mask = _both(mask, pc.equal(pc.not_equal(bits, 0), filters.control))
        if mask is None or pc.all(mask).as_py():
            yield 0, len(piece.data)
            return
        start = end = -1
        wanted = headers.filter(mask)
        for position, size in zip(wanted["position"].to_pylist(), wanted["size"].to_pylist(), strict=True):
            if position != end:
                if start >= 0:
                    yield start - piece.base, end - piece.base
                start = position
            end = position + size
        if start >= 0:
            yield start - piece.base, end - piece.base

    def _wanted(self, chunk: pa.RecordBatch) -> pa.RecordBatch:
        # The rows within the filters' time span: one batch may hold rows inside and outside of it.
        span = self.filters.time_ms
        if span.is_open:
            return chunk
        times = pc.divide(chunk["timestamp"].cast(pa.int64()), 1000)
        mask = pc.and_(pc.greater_equal(times, span.low), pc.less_equal(times, span.high))
        return chunk if pc.all(mask).as_py() else pa.RecordBatch.from_struct_array(chunk.to_struct_array().filter(mask))

    def _rows(self, part: Range, chunk: pa.RecordBatch) -> Columns:
        codes = _codes(chunk)
        if self.kind is None:
            return self._plain(chunk, codes)
        return self._typed(part, chunk, codes, self.kind, pc.indices_nonzero(pc.equal(codes.code, self.kind.code)))

    def _plain(self, chunk: pa.RecordBatch, codes: RecordTypes) -> Columns:
        # Records with their values undecoded; the view `events` has the bodies as JSON in place of the values.
        names = _names(codes.code, packed=self.view == LAYERS)
        columns = {name: chunk[name] for name in ("offset", "timestamp", "is_control", "key", "value", "position")}
        columns |= {"epoch": chunk["partition_leader_epoch"], "type": names, "version": codes.version}
        if self.filters.types is not None:
            mask = pc.is_in(names.cast(pa.string()), value_set=pa.array(sorted(self.filters.types), pa.string()))
            columns = {name: column.filter(mask) for name, column in columns.items()}
        if self.view == "events":
            columns["body"] = pa.array(
                [
                    _body_text(control, key, value)
                    for control, key, value in zip(
                        *(columns[name].to_pylist() for name in ("is_control", "key", "value")), strict=True
                    )
                ],
                pa.string(),
            )
        return columns

    def _typed(
        self, part: Range, chunk: pa.RecordBatch, codes: RecordTypes, kind: RecordType, rows: pa.Array
    ) -> Columns:
        if self.filters.types is not None and kind.name not in self.filters.types:
            return {"offset": pa.array([], pa.int64())}
        fields, failed = self._decoder(kind).decode(chunk["value"], rows)
        columns = _in_log(chunk, codes, None if len(rows) == len(chunk) else rows)
        if failed and self.policy == FAIL:
            at = failed[0]
            row = rows[at].as_py()
            why = _bad_record(chunk, row).reason
            raise CorruptDataError(
                f"record {columns['offset'][at].as_py()}: {why}",
                position=chunk["position"][row].as_py(),
                path=part.file.path,
            )
        if failed and self.policy == KEEP:
            good = pa.array(_places(len(rows), failed), pa.int64())
            return columns | {name: column.take(good) for name, column in _fields(kind, fields).items()}
        if failed:
            keep = pa.array([place is not None for place in _places(len(rows), failed)])
            columns = {name: column.filter(keep) for name, column in columns.items()}
        return columns | _fields(kind, fields)

    def _decoder(self, kind: RecordType) -> RecordColumns:
        return self._decoders.get(kind.name) or self._decoders.setdefault(kind.name, kind.columns(_POOL))

    def _bad_records(self, part: Range, found: list[Problem]) -> list[Problem]:
        # Undecodable records that count as errors: in an application's log its own records are none.
        if any(not one.is_control for one in found) and not self._is_metadata(part):
            return [one for one in found if one.is_control]
        return found

    def _is_metadata(self, part: Range) -> bool:
        path = part.file.first or part.file.path
        if part.data is None and path not in self._contents:
            self._contents[path] = holds_metadata(path)
        return part.file.is_metadata and self._contents.get(path, True)

    def _undecoded(self, chunk: pa.RecordBatch) -> list[Problem]:
        problems: list[Problem] = []
        for _ in self._decoded(chunk, _codes(chunk), problems):
            pass
        return problems

    def _decoded(
        self, chunk: pa.RecordBatch, codes: RecordTypes, problems: list[Problem]
    ) -> Iterator[tuple[RecordType, pa.Array, pa.Array | None, pa.RecordBatch]]:
        # For each record type in a chunk: the rows that can be decoded, the buckets of rows about partitions, and the
        # decoded fields. Rows that cannot be decoded are added to `problems`.
        others: list[int] = []
        for code, rows in rows_of_types(codes.code, _POOL):
            kind, buckets = type_of_code(code), None
            if kind is None:
                others += rows.to_pylist()
                continue
            if is_bucketed(typed_schema(kind)):
                rows, buckets = partition_order(chunk["value"], rows, BUCKETS, STEP)
            fields, failed = self._decoder(kind).decode(chunk["value"], rows)
            if failed:
                problems += [_bad_record(chunk, rows[at].as_py()) for at in failed]
                good = pa.array([place is not None for place in _places(len(rows), failed)])
                rows, buckets = rows.filter(good), None if buckets is None else buckets.filter(good)
            yield kind, rows, buckets, fields
        found = (_bad_record(chunk, row) for row in sorted(others))
        problems += [problem for problem in found if problem.reason]

    @staticmethod
    def _batches(piece: Piece) -> Columns:
        headers = piece.headers
        attributes = headers["attributes"].cast(pa.int32())

        def bit(mask: int) -> pa.Array:
            return pc.not_equal(pc.bit_wise_and(attributes, mask), 0)

        columns = {name: headers[name] for name in headers.schema.names if name != "attributes"}
        for name in ("base_timestamp", "max_timestamp"):
            columns[name] = _microseconds(headers[name])
        return columns | {
            "compression": pa.array(_CODECS, pa.string()).take(pc.bit_wise_and(attributes, 7)),
            "is_control": bit(0x20),
            "is_transactional": bit(0x10),
            "is_valid": pc.equal(headers["is_valid"], 1),
        }

    @staticmethod
    def _errors(part: Range, problems: list[Problem]) -> Columns:
        return {
            "path": pa.array([part.file.path] * len(problems), pa.string()),
            "position": pa.array([one.position for one in problems], pa.int64()),
            "size": pa.array([one.size for one in problems], pa.int64()),
            "offset": pa.array([one.offset for one in problems], pa.int64()),
            "kind": pa.array([one.kind for one in problems], pa.string()),
            "reason": pa.array([one.reason for one in problems], pa.string()),
        }

    def _finish(self, part: Range, columns: Columns, schema: pa.Schema | None = None) -> Iterator[pa.RecordBatch]:
        # The view's columns in order, identity first, in batches that Spark digests well.
        rows = len(next(iter(columns.values())))
        if rows == 0:
            return
        batch = self._whole(part, columns, schema or self.schema)
        for start in range(0, rows, ROWS_MAX):
            yield batch.slice(start, ROWS_MAX)

    def _whole(self, part: Range, columns: Columns, schema: pa.Schema) -> pa.RecordBatch:
        columns |= self._identity(part, len(next(iter(columns.values()))))
        return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)

    def _identity(self, part: Range, rows: int) -> Columns:
        # Equal for all rows of a file: the columns are made once and sliced.
        file, generation, columns = self._repeated
        if file is not part.file or generation != part.generation or len(columns["generation"]) < rows:
            whole = -(-rows // ROWS_MAX) * ROWS_MAX
            columns = identity_columns(part.file, part.generation, whole, packed=self.view == LAYERS)
            self._repeated = part.file, part.generation, columns
        return {name: column[:rows] for name, column in columns.items()}


def file_rows(files: list[LogFile], rewound: Mapping[str, tuple[int, int]]) -> list[pa.RecordBatch]:
    """The ``files`` view of an inventory.

    Args:
        files: the inventory.
        rewound: by path, how often the file was cut off, and the bytes that were left the last time.
    """
    batches = []
    for file in files:
        generation, position = rewound.get(file.path, (0, 0))
        columns = identity_columns(file, generation, 1)
        columns |= {
            "path": pa.array([file.path]),
            "size": pa.array([file.size], pa.int64()),
            "base_offset": pa.array([file.base_offset], pa.int64()),
            "next_offset": pa.array([file.next_offset], pa.int64()),
            "epoch": pa.array([file.epoch], pa.int32()),
            "rewound_to": pa.array([position if generation else None], pa.int64()),
        }
        schema = view_schema("files")
        batches.append(pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema))
    return batches


def identity_columns(file: LogFile, generation: int, rows: int, *, packed: bool = False) -> Columns:
    """The columns ``views.IDENTITY`` of ``rows`` rows of one file; ``packed``: texts as dictionaries."""
    values = {
        "cluster_id": file.identity.cluster_id,
        "node_id": file.identity.node_id,
        "directory_id": file.identity.directory_id,
        "source": file.source,
        "log_id": file.log_id,
        "file_id": file.file_id,
        "generation": generation,
        "snapshot_end_offset": file.base_offset if file.source == SNAPSHOT else None,
    }
    if file.source not in (LOG, SNAPSHOT):
        values["snapshot_end_offset"] = 0
    columns = {}
    first = pa.array(np.zeros(rows, np.int32))
    for name, kind in IDENTITY:
        value = values[name]
        if packed and kind == pa.string():
            columns[name] = pa.DictionaryArray.from_arrays(
                first if value is not None else pa.nulls(rows, pa.int32()), pa.array([value or ""], kind)
            )
        elif value is None:
            columns[name] = pa.nulls(rows, kind)
        elif kind == pa.string():
            columns[name] = pa.repeat(pa.scalar(value, kind), rows)
        else:
            columns[name] = pa.array(np.full(rows, value, kind.to_pandas_dtype()))
    return columns


def _both(mask: pa.Array | None, other: pa.Array | None) -> pa.Array | None:
    if other is None:
        return mask
    return other if mask is None else pc.and_(mask, other)


def _codes(chunk: pa.RecordBatch) -> RecordTypes:
    key, value, is_control = (_whole(chunk[name]) for name in ("key", "value", "is_control"))
    return record_types(key, value, is_control, _POOL)


def _in_log(chunk: pa.RecordBatch, codes: RecordTypes, rows: pa.Array | None) -> Columns:
    # The columns that say where rows of a chunk stand in the log; `rows` None: all rows.
    columns = {"offset": chunk["offset"], "timestamp": chunk["timestamp"]}
    columns |= {"epoch": chunk["partition_leader_epoch"], "version": codes.version}
    if rows is None:
        return columns
    return dict(zip(columns, take_rows(list(columns.values()), rows, _POOL), strict=True))


def _whole(array: pa.Array) -> pa.Array:
    return array if array.offset == 0 else pa.concat_arrays([array])


def _microseconds(milliseconds: pa.Array) -> pa.Array:
    # A number too large for 64 bits of microseconds becomes the largest or least that fits.
    limited = pc.max_element_wise(pc.min_element_wise(milliseconds, _MS_MAX), -_MS_MAX)
    return pc.multiply(limited, 1000).cast(pa.timestamp("us", tz="UTC"))


def _names(codes: pa.Array, *, packed: bool) -> pa.Array:
    # The names of record types; packed: as a dictionary.
    encoded = codes.dictionary_encode()
    names = pa.array([type_name(code) for code in encoded.dictionary.to_pylist()], pa.string())
    if packed and not names.null_count:
        return pa.DictionaryArray.from_arrays(encoded.indices, names)
    found = names.take(encoded.indices)
    return found.dictionary_encode() if packed else found


def _fields(kind: RecordType, fields: pa.RecordBatch) -> Columns:
    # The fields of records, by column of the view.
    return {field_name(name): fields[name] for name in fields.schema.names if not kind.is_version(name)}


def _places(rows: int, failed: list[int]) -> list[int | None]:
    # For each row its index among the decoded rows; None for rows that failed.
    places: list[int | None] = []
    missing = set(failed)
    good = 0
    for row in range(rows):
        if row in missing:
            places.append(None)
        else:
            places.append(good)
            good += 1
    return places


def _bad_record(chunk: pa.RecordBatch, row: int) -> Problem:
    control, key, value = (chunk[name][row].as_py() for name in ("is_control", "key", "value"))
    position, offset = (chunk[name][row].as_py() for name in ("position", "offset"))
    return Problem("record", position, 0, offset, _why(control, key, value), control)


def _why(control: bool, key: bytes | None, value: bytes | None) -> str:
    # Why a record cannot be decoded, in the words of the decoder of objects; empty if the record can be decoded.
    if value is None:
        return "the record has no value"
    try:
        if control:
            found = decode_control_record(key, value)
            return "" if found.body is not None else f"control record type {found.type} is not known"
        decode_metadata_record(value)
    except RemoteProtocolError as error:
        return str(error)
    return ""


def _body_text(control: bool, key: bytes | None, value: bytes | None) -> str | None:
    # The record as Kafka's dump tool prints it; None if the record cannot be decoded.
    try:
        if control:
            found = decode_control_record(key, value)
            return None if found.body is None else to_json_text(found.body, found.version).decode()
        if value is None:
            return None
        record, version = decode_metadata_record(value)
        return to_json_text(record, version).decode()
    except RemoteProtocolError:
        return None
