"""The Arrow schemas of the views of the data source, and the record types that have a view."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import pyarrow as pa

from kraftcore.core.columns import BufferPool
from kraftcore.core.columns.record_types import CONTROL_BASE
from kraftcore.core.columns.typed import RecordColumns
from kraftcore.errors import LocalError
from kraftcore.plugins.spark import meanings
from kraftcore.protocol.control import CONTROL_BODIES, ControlRecordType
from kraftcore.protocol.registry import MetadataRecordType, record_class

TIMESTAMP = pa.timestamp("us", tz="UTC")
IDENTITY = [
    ("cluster_id", pa.string()),
    ("node_id", pa.int32()),
    ("directory_id", pa.string()),
    ("source", pa.string()),
    ("log_id", pa.int64()),
    ("file_id", pa.int64()),
    ("generation", pa.int32()),
    ("snapshot_end_offset", pa.int64()),
]
_PLACE = [("offset", pa.int64()), ("timestamp", TIMESTAMP), ("epoch", pa.int32())]
_RECORDS = [
    *IDENTITY,
    *_PLACE,
    ("is_control", pa.bool_()),
    ("type", pa.string()),
    ("version", pa.int32()),
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("position", pa.int64()),
]
_EVENTS = [
    *IDENTITY,
    *_PLACE,
    ("is_control", pa.bool_()),
    ("type", pa.string()),
    ("version", pa.int32()),
    ("body", pa.string()),
]
_BATCHES = [
    *IDENTITY,
    ("position", pa.int64()),
    ("base_offset", pa.int64()),
    ("last_offset", pa.int64()),
    ("size", pa.int32()),
    ("epoch", pa.int32()),
    ("crc", pa.int64()),
    ("base_timestamp", TIMESTAMP),
    ("max_timestamp", TIMESTAMP),
    ("producer_id", pa.int64()),
    ("producer_epoch", pa.int16()),
    ("base_sequence", pa.int32()),
    ("count", pa.int32()),
    ("compression", pa.string()),
    ("is_control", pa.bool_()),
    ("is_transactional", pa.bool_()),
    ("is_valid", pa.bool_()),
]
_ERRORS = [
    *IDENTITY,
    ("path", pa.string()),
    ("position", pa.int64()),
    ("size", pa.int64()),
    ("offset", pa.int64()),
    ("kind", pa.string()),
    ("reason", pa.string()),
]
_FILES = [
    *IDENTITY,
    ("path", pa.string()),
    ("size", pa.int64()),
    ("base_offset", pa.int64()),
    ("next_offset", pa.int64()),
    ("epoch", pa.int32()),
    ("rewound_to", pa.int64()),
]
_PLAIN = {"records": _RECORDS, "events": _EVENTS, "batches": _BATCHES, "errors": _ERRORS, "files": _FILES}
PLAIN_VIEWS = tuple(_PLAIN)
"""The views that are not for one record type."""
_REPEATED = {"cluster_id", "directory_id", "source", "type"}
"""Columns of texts that are the same in many rows."""
_ALWAYS_THERE = {name for name, _ in IDENTITY} - {"snapshot_end_offset"}
"""Columns that are never null in any view."""
_OF_RECORDS = {"offset", "timestamp", "epoch", "version", "is_control", "position"}
"""Columns that are never null in views of records or batches."""
_TAKEN = {name for name, _ in [*IDENTITY, *_PLACE, ("version", None)]}


@dataclass(frozen=True)
class RecordType:
    """A record type, which has a view and a table of silver.

    Attributes:
        name: Kafka's name, for example ``PARTITION_CHANGE_RECORD`` or ``LEADER_CHANGE``.
        view: name of the view: ``partition_change``, ``leader_change``.
        code: number of the type in ``kraftcore.core.columns.record_types``.
    """

    name: str
    view: str
    code: int

    @property
    def is_control(self) -> bool:
        """Whether records of the type are control records."""
        return self.code >= CONTROL_BASE

    @property
    def message_class(self) -> type:
        """The message class of the value."""
        return CONTROL_BODIES[self.code - CONTROL_BASE] if self.is_control else record_class(self.code)

    def is_version(self, name: str) -> bool:
        """Whether a field of the value is the version, which control records hold and the column ``version`` has."""
        return self.is_control and name == "version"

    def columns(self, pool: BufferPool | None = None) -> RecordColumns:
        """A decoder for values; its columns use memory of the pool."""
        return RecordColumns(self.message_class, framed=not self.is_control, pool=pool)


def _types() -> tuple[RecordType, ...]:
    data = [RecordType(kind.name, kind.name.lower().removesuffix("_record"), int(kind)) for kind in MetadataRecordType]
    control = [
        RecordType(ControlRecordType(number).name, ControlRecordType(number).name.lower(), CONTROL_BASE + number)
        for number in CONTROL_BODIES
    ]
    return (*control, *data)


RECORD_TYPES = _types()
TYPES_BY_VIEW = {kind.view: kind for kind in RECORD_TYPES}
_BY_CODE = {kind.code: kind for kind in RECORD_TYPES}
_BY_NAME = {kind.name: kind for kind in RECORD_TYPES}


def find_type(text: str) -> RecordType | None:
    """A record type by the name of its view, Kafka's name or the class name; None: no such type."""
    flat = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text).upper()
    flat = flat.removesuffix("_MESSAGE")
    return _BY_NAME.get(flat) or _BY_NAME.get(flat + "_RECORD") or TYPES_BY_VIEW.get(text.lower())


def type_of_code(code: int) -> RecordType | None:
    """A record type by its code; None: unknown code."""
    return _BY_CODE.get(code)


def type_name(code: int) -> str | None:
    """Kafka's name for a code, ``UNKNOWN_<n>`` or ``UNKNOWN_CONTROL_<n>``; None: the record has no readable type."""
    known = _BY_CODE.get(code)
    if known is not None:
        return known.name
    if code >= CONTROL_BASE - (1 << 15):
        number = code - CONTROL_BASE
        return ControlRecordType(number).name if number in (0, 1) else f"UNKNOWN_CONTROL_{number}"
    return None if code < 0 else f"UNKNOWN_{code}"


def field_name(name: str) -> str:
    """The column of a record's field: the field's name, with ``record_`` before it if another column has that name."""
    return f"record_{name}" if name in _TAKEN else name


@cache
def typed_schema(kind: RecordType) -> pa.Schema:
    """The Arrow schema of a record type's view; a control record's field ``version`` is the column ``version``."""
    fields = [(name, value) for name, value in [*IDENTITY, *_PLACE, ("version", pa.int32())]]
    fields += [
        (field_name(field.name), field.type) for field in kind.columns().schema if not kind.is_version(field.name)
    ]
    return meanings.of_view(kind.view, pa.schema(fields))


@cache
def view_schema(view: str) -> pa.Schema:
    """The Arrow schema of a view.

    Raises:
        LocalError: no such view.
    """
    if view in _PLAIN:
        return meanings.of_view(view, pa.schema(_PLAIN[view]))
    kind = find_type(view)
    if kind is None:
        raise LocalError(
            f"there is no view {view!r}: choose {', '.join(_PLAIN)}, or a record type such as partition_change"
        )
    return typed_schema(kind)


@cache
def stored_schema(view: str) -> pa.Schema:
    """``view_schema`` for rows that are stored: texts that repeat are dictionaries, and columns that are never null say
    so. Such rows take less time to write.

    Raises:
        LocalError: no such view.
    """
    columns = view_schema(view)
    never = _ALWAYS_THERE | (_OF_RECORDS if view not in ("errors", "files") else set())
    kind = None if view in _PLAIN else find_type(view)
    if kind is not None:
        never |= {field_name(one.name) for one in kind.columns().schema if not one.nullable}

    def field(one: pa.Field) -> pa.Field:
        repeated = pa.dictionary(pa.int32(), pa.string()) if one.name in _REPEATED else one.type
        return pa.field(one.name, repeated, one.name not in never)

    return pa.schema([field(one) for one in columns])
