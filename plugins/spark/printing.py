"""Prints rows as JSON, CSV, Parquet or as a table for people.

Python has no year beyond 9999, no interval of months and no dict with lists as keys. Spark converts such values to
numbers, texts and lists before they reach Python.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from kraftcore.errors import LocalError

Value: TypeAlias = Any
"""A value of a column, of any of Spark's types."""
_NULL = "null"
_CUT_MIN = 8
"""A column of a table is cut to this many characters at least."""
_EPOCH = datetime(1970, 1, 1)
_CYCLE_DAYS = 146_097
"""Days in 400 years, after which the calendar repeats itself."""
_DAY_MICROS = 86_400_000_000
_ESCAPES = {number: f"\\x{number:02x}" for number in (*range(32), *range(127, 160)) if chr(number) not in "\t\n"}
"""Control characters: a terminal would obey those in a name or value of a log."""


@dataclass(frozen=True)
class Rows:
    """Rows to print.

    Attributes:
        schema: names and Spark's types of the columns.
        values: the rows; values that Python may lack are numbers, texts and lists of entries, see ``_held``.
        to_arrow: makes an Arrow table of the rows.
    """

    schema: T.StructType
    values: Iterable[Sequence[Value]]
    to_arrow: Callable[[], pa.Table]

    @classmethod
    def of_spark(cls, rows: DataFrame) -> Rows:
        """Rows of a DataFrame, read when they are printed."""
        schema = rows.schema
        held, fields = rows, schema.fields
        if any(_is_odd(field.dataType) for field in fields):
            named = rows.toDF(*(f"c{place}" for place in range(len(fields))))  # names may have dots, or be the same
            held = named.select(*(_held(named[f"c{place}"], field.dataType) for place, field in enumerate(fields)))
        return cls(schema, _Local(held), rows.toArrow)

    @classmethod
    def of_arrow(cls, rows: pa.Table) -> Rows:
        """Rows of an Arrow table."""
        schema: T.StructType = from_arrow_schema(rows.schema)
        columns = [
            [_held_value(one, field.dataType) for one in rows.column(place).to_pylist()]
            for place, field in enumerate(schema)
        ]
        return cls(schema, list(zip(*columns, strict=True)), lambda: rows)

    def names(self, form: str) -> list[str]:
        """The columns' names, for a form that has each name once.

        Raises:
            LocalError: two columns have one name.
        """
        twice = [name for name, count in Counter(self.schema.names).items() if count > 1]
        if twice:
            raise LocalError(f"two columns are called {twice[0]}, which {form} cannot hold: rename one with AS")
        return list(self.schema.names)


@dataclass(frozen=True)
class _Local:
    rows: DataFrame

    def __iter__(self) -> Iterator[Sequence[Value]]:
        yield from self.rows.toLocalIterator()


def json_lines(rows: Rows, more: Mapping[str, str] | None = None) -> Iterator[str]:
    """One JSON object for each row; the members ``more`` come first in each.

    Raises:
        LocalError: two columns have one name.
    """
    rows.names("an object of JSON")
    for row in rows.values:
        yield json.dumps({**(more or {}), **_plain(row, rows.schema)}, allow_nan=False)


def csv_lines(rows: Rows) -> Iterator[str]:
    """CSV (RFC 4180), the heading first: values as in JSON, lists and objects as JSON; null is an empty field."""
    yield _record(rows.schema.names)
    kinds = [field.dataType for field in rows.schema]
    for row in rows.values:
        plain = [_plain(value, kind) for value, kind in zip(row, kinds, strict=True)]
        yield _record(["" if one is None else one if isinstance(one, str) else json.dumps(one) for one in plain])


def _record(fields: Sequence[str]) -> str:
    found = io.StringIO()
    csv.writer(found, lineterminator="\r\n").writerow(fields)  # quotes what has one of these ends
    return found.getvalue().removesuffix("\r\n")


def parquet_bytes(rows: Rows) -> bytes:
    """A Parquet file of the rows.

    Raises:
        LocalError: two columns have one name.
    """
    rows.names("a Parquet file")
    found = io.BytesIO()
    pq.write_table(rows.to_arrow(), found)
    return found.getvalue()


def table_lines(rows: Rows, width: int | None = None) -> Iterator[str]:
    """The lines of a table for people, the heading first.

    Args:
        rows: the rows.
        width: columns of the terminal. A table that is wider has long values cut (``…``); where even that does not
            fit, each row becomes a block with a line for each value. None: nothing is cut.
    """
    kinds = [field.dataType for field in rows.schema]
    cells = [[_cell(value, kind) for value, kind in zip(row, kinds, strict=True)] for row in rows.values]
    names = [name.translate(_ESCAPES) for name in rows.schema.names]
    widths = [max([len(name), *(len(row[place]) for row in cells)]) for place, name in enumerate(names)]
    if width is not None and not (widths := _fitting(widths, width - 2 * (len(widths) - 1))):
        longest = max(map(len, names))
        for number, row in enumerate(cells, 1):
            yield f"row {number}:"
            yield from (f"  {name.ljust(longest)}  {cell}" for name, cell in zip(names, row, strict=True))
        return
    for row in (names, *cells):
        cut = (_cut(cell, size).ljust(size) for cell, size in zip(row, widths, strict=True))
        yield "  ".join(cut).rstrip()


def _fitting(widths: Sequence[int], space: int) -> list[int]:
    # Widths of columns that fill at most the space: the widest are cut to one width. Empty: it would be too small.
    rest, most = space, max(widths, default=0)
    for place, one in enumerate(sorted(widths)):
        share = rest // (len(widths) - place)
        if one > share:
            most = share
            break
        rest -= one
    return [min(one, most) for one in widths] if most >= min(_CUT_MIN, max(widths, default=0)) else []


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else f"{text[: size - 1]}…"


def _is_odd(kind: T.DataType) -> bool:
    # Whether a value of this type may be one that Python cannot hold.
    if isinstance(kind, T.StructType):
        return any(_is_odd(field.dataType) for field in kind)
    if isinstance(kind, T.ArrayType):
        return _is_odd(kind.elementType)
    if isinstance(kind, T.MapType):
        return not isinstance(kind.keyType, T.StringType) or _is_odd(kind.valueType)
    return isinstance(
        kind, T.TimestampType | T.TimestampNTZType | T.DateType | T.YearMonthIntervalType | T.CalendarIntervalType
    )


def _held(column: Column, kind: T.DataType) -> Column:
    # The column with odd values as numbers, texts and lists of entries.
    if not _is_odd(kind):
        return column
    if isinstance(kind, T.TimestampType):
        return F.unix_micros(column)
    if isinstance(kind, T.TimestampNTZType):
        return column - F.lit("1970-01-01").cast("timestamp_ntz")
    if isinstance(kind, T.DateType):
        return F.unix_date(column)
    if isinstance(kind, T.ArrayType):
        return F.transform(column, lambda one: _held(one, kind.elementType))
    if isinstance(kind, T.MapType):
        entry = T.StructType([T.StructField("key", kind.keyType), T.StructField("value", kind.valueType)])
        return F.transform(F.map_entries(column), lambda one: _held(one, entry))
    if isinstance(kind, T.StructType):
        fields = [_held(column.getField(field.name), field.dataType).alias(field.name) for field in kind]
        return F.when(column.isNotNull(), F.struct(*fields))
    return column.cast("string")


def _held_value(value: Value, kind: T.DataType) -> Value:
    # What ``_held`` makes of a column's values, of a value of Arrow's.
    if value is None:
        return None
    if isinstance(kind, T.StructType):
        return tuple(_held_value(value[field.name], field.dataType) for field in kind)
    if isinstance(kind, T.ArrayType):
        return [_held_value(one, kind.elementType) for one in value]
    if isinstance(kind, T.MapType):
        return [(_held_value(key, kind.keyType), _held_value(one, kind.valueType)) for key, one in value]
    if isinstance(kind, T.TimestampType | T.TimestampNTZType):
        return (value.replace(tzinfo=None) - _EPOCH) // timedelta(microseconds=1)
    return value


def _plain(value: Value, kind: T.DataType) -> Any:
    # The value as JSON has it.
    if value is None:
        return None
    if isinstance(kind, T.StructType):
        return {field.name: _plain(one, field.dataType) for field, one in zip(kind, value, strict=True)}
    if isinstance(kind, T.ArrayType):
        return [_plain(one, kind.elementType) for one in value]
    if isinstance(kind, T.MapType):
        entries = value.items() if isinstance(value, dict) else value
        return {_key(key, kind.keyType): _plain(one, kind.valueType) for key, one in entries}
    if isinstance(kind, T.TimestampType | T.TimestampNTZType):
        return f"{_moment(value, 'T', 'auto')}+00:00"
    if isinstance(kind, T.DateType):
        return _moment(value * _DAY_MICROS, "T", "auto").partition("T")[0]
    if isinstance(value, Decimal):
        return _number(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    return value if isinstance(value, bool | int | str) else str(value)


def _key(value: Value, kind: T.DataType) -> str:
    plain = _plain(value, kind)
    return plain if isinstance(plain, str) else json.dumps(plain)


def _number(value: Decimal) -> int | float | str:
    # A text only if a double, which readers of JSON use for numbers, would lose digits.
    if value == value.to_integral_value():
        return int(value)
    return float(value) if Decimal(repr(float(value))) == value else str(value)


def _moment(value: int | timedelta, separator: str, precision: str) -> str:
    # A year that Python lacks is written as a year with the same calendar, with its number replaced.
    micros = value if isinstance(value, int) else value // timedelta(microseconds=1)
    days, rest = divmod(micros, _DAY_MICROS)
    cycles, days = divmod(days, _CYCLE_DAYS)
    found = _EPOCH + timedelta(days=days, microseconds=rest)
    year = found.year + 400 * cycles
    text = found.isoformat(sep=separator, timespec=precision)[4:]
    return (f"{year:04d}" if 0 <= year <= 9999 else f"{year:+05d}") + text


def _cell(value: Value, kind: T.DataType) -> str:
    if value is None:
        return _NULL
    if isinstance(kind, T.TimestampType | T.TimestampNTZType):
        return _moment(value, " ", "milliseconds")
    plain = str(value) if isinstance(value, Decimal) else _plain(value, kind)
    return (plain if isinstance(plain, str) else json.dumps(plain)).translate(_ESCAPES)
