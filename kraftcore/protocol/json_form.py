"""Messages as JSON objects, in the form Kafka's own tools print and read.

Keys are Kafka's field names with a small first letter, in schema order. Only the fields of the given version are there,
tagged ones only when they differ from their default. Uuids are text, bytes are base64 (standard alphabet, padded),
numbers are numbers. Unknown tagged fields are left out. Records fields hold the batches' bytes, where Kafka writes an
empty text or the size.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeVar

from kraftcore.core.uuid import Uuid
from kraftcore.core.wire.struct import Field, Struct
from kraftcore.errors import LocalError
from kraftcore.protocol.schema import Message, within

M = TypeVar("M", bound=Message)
_INTEGERS = frozenset({"int8", "int16", "uint16", "int32", "uint32", "int64"})


def to_json_dict(message: Message, version: int) -> dict[str, Any]:
    """A message as a dict that ``json.dumps`` takes.

    Raises:
        LocalError: unknown version, or a field that this version cannot carry is set; the text names it.
    """
    _check_version(type(message), version)
    return _struct_out(message, version, f"{type(message).__name__} v{version}", "")


def from_json_dict(cls: type[M], data: dict[str, Any], version: int) -> M:
    """Build a message from what ``json.loads`` returned.

    Args:
        cls: the message class.
        data: every untagged field of the version must be there; tagged ones may be missing.
        version: the message version.

    Raises:
        LocalError: unknown version, a field missing, unknown, or of the wrong type; the text names it.
    """
    _check_version(cls, version)
    return _struct_in(cls, data, version, f"{cls.__name__} v{version}", "")


def _check_version(cls: type[Message], version: int) -> None:
    if not any(low <= version <= high for low, high in cls.schema.decodable_versions):
        raise LocalError(f"{cls.__name__} has no version {version}")


class _Entry(NamedTuple):
    """What to do with one field in one version."""

    field: Field
    present: bool  # else it must hold its default
    tagged: bool
    nullable: bool
    convert: Callable[[Any], Any] | None


@cache
def _entries(cls: type[Struct], version: int) -> tuple[_Entry, ...]:
    return tuple(
        _Entry(
            field,
            within(field.versions, version),
            within(field.tagged, version),
            within(field.nullable, version),
            _WRITERS.get(field.type_name),
        )
        for field in cls.__layout__.fields
        if within(field.versions, version) or not field.ignorable
    )


def _struct_out(value: Struct, version: int, name: str, path: str) -> dict[str, Any]:
    out = {}
    entries = _entries(type(value), version)  # type: ignore[arg-type]  # mypy takes the class for an instance
    for field, present, tagged, nullable, convert in entries:
        held = getattr(value, field.name)
        if (tagged or not present) and held == field.make_default():
            continue
        if not present:
            raise LocalError(f"{name}, field {path}{field.name}: holds a value that this version cannot carry")
        if held is None:
            if not nullable:
                raise LocalError(f"{name}, field {path}{field.name}: is None, but not nullable in this version")
        elif field.struct_class is not None:
            if field.is_array:
                held = [_struct_out(x, version, name, f"{path}{field.name}[{i}].") for i, x in enumerate(held)]
            else:
                held = _struct_out(held, version, name, f"{path}{field.name}.")
        elif convert is not None:
            held = [convert(item) for item in held] if field.is_array else convert(held)
        elif field.is_array:
            held = list(held)
        out[field.json_name] = held
    return out


def _to_base64(data: bytes) -> str:
    return b64encode(data).decode()


_WRITERS: dict[str, Callable[[Any], Any]] = {"uuid": str, "bytes": _to_base64, "records": _to_base64}


def _struct_in(cls: type[M], data: Any, version: int, name: str, path: str) -> M:
    if not isinstance(data, dict):
        raise LocalError(f"{name}, field {path.rstrip('.') or 'message'}: needs an object, not {type(data).__name__}")
    fields = [field for field in cls.__layout__.fields if within(field.versions, version)]
    unknown = data.keys() - {field.json_name for field in fields}
    if unknown:
        raise LocalError(f"{name}, field {path}{min(unknown)}: this version has no such field")
    values = {}
    for field in fields:
        if field.json_name in data:
            values[field.name] = _value_in(field, data[field.json_name], version, name, path + field.name)
        elif not within(field.tagged, version):
            raise LocalError(f"{name}, field {path}{field.name}: {field.json_name!r} is missing")
    return cls(**values)


def _value_in(field: Field, value: Any, version: int, name: str, path: str) -> Any:
    if value is None:
        if not within(field.nullable, version):
            raise LocalError(f"{name}, field {path}: is null, but the field is not nullable in this version")
        return None
    if field.is_array:
        if not isinstance(value, list):
            raise LocalError(f"{name}, field {path}: needs an array, not {type(value).__name__}")
        return [_one_in(field, item, version, name, f"{path}[{i}]") for i, item in enumerate(value)]
    return _one_in(field, value, version, name, path)


def _one_in(field: Field, value: Any, version: int, name: str, path: str) -> Any:
    if field.struct_class is not None:
        return _struct_in(field.struct_class, value, version, name, path + ".")
    _check_kind(field.type_name, value, f"{name}, field {path}")
    try:
        return _READERS.get(field.type_name, _as_is)(value)
    except ValueError as error:
        raise LocalError(f"{name}, field {path}: {error}") from None


def _check_kind(kind: str, value: Any, where: str) -> None:
    wanted: type | tuple[type, ...] = str
    if kind == "bool":
        wanted = bool
    elif kind in _INTEGERS:
        wanted = int
    elif kind == "float64":
        wanted = (int, float)
    if not isinstance(value, wanted) or (isinstance(value, bool) and kind != "bool"):
        raise LocalError(f"{where}: needs a {kind}, not {value!r}")


def _as_is(value: Any) -> Any:
    return value


def _from_base64(text: str) -> bytes:
    return b64decode(text, validate=True)


_READERS: dict[str, Callable[[Any], Any]] = {
    "uuid": Uuid.from_string,
    "bytes": _from_base64,
    "records": _from_base64,
    "float64": float,
}
