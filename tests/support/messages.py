"""Every message class, and hypothesis strategies that follow the schema."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

import kraftcore.protocol
from kraftcore.core.uuid import Uuid
from kraftcore.core.wire.struct import Field
from kraftcore.protocol.schema import Message, Struct

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
FOLDERS = ("messages", "records", "data")
_RANGES = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    **{name: st.integers(low, high) for name, (low, high) in _RANGES.items()},
    "bool": st.booleans(),
    "float64": st.floats(allow_nan=False),
    "string": _TEXT,
    "bytes": st.binary(max_size=20),
    "records": st.binary(max_size=200),
    "uuid": st.binary(min_size=16, max_size=16).map(Uuid),
}


@cache
def classes() -> dict[str, type[Message]]:
    """All message classes by name; finds them in the files, not through the registry."""
    found = {}
    for folder in FOLDERS:
        package = importlib.import_module(f"{kraftcore.protocol.__name__}.{folder}")
        for entry in pkgutil.iter_modules(package.__path__):
            module = importlib.import_module(f"{package.__name__}.{entry.name}")
            for name, value in vars(module).items():
                if isinstance(value, type) and issubclass(value, Message) and value.__module__ == module.__name__:
                    found[name] = value
    return found


def versions(cls: type[Message]) -> list[int]:
    return [version for low, high in cls.schema.decodable_versions for version in range(low, high + 1)]


def golden_vectors() -> list[tuple[str, int, str, bytes]]:
    """(message name, version, ``default`` or ``filled``, body) as Kafka's own classes wrote them."""
    rows = []
    for line in (GOLDEN / "golden-messages.tsv").read_text().splitlines():
        name, version, kind, text = line.split("\t")
        rows.append((name, int(version), kind, bytes.fromhex(text)))
    return rows


def within(span: tuple[int, int | None] | None, version: int) -> bool:
    return span is not None and span[0] <= version and (span[1] is None or version <= span[1])


def instances(cls: type[Struct], version: int, flexible: bool) -> st.SearchStrategy[Any]:
    """Objects whose fields of this version hold anything the field may hold, all others their defaults."""
    fields = {
        field.name: _values(field, version, flexible)
        for field in cls.__layout__.fields
        if within(field.versions, version)
    }
    built = st.builds(cls, **fields)
    if not flexible:
        return built
    known = {field.tag for field in cls.__layout__.fields if within(field.tagged, version)}
    tags = st.integers(0, 2**32 - 1).filter(lambda tag: tag not in known) | st.integers(100, 110)
    extra = st.just({}) | st.dictionaries(tags, st.binary(max_size=150), max_size=2)
    return st.builds(_with_unknown, built, extra)


def messages(cls: type[Message]) -> st.SearchStrategy[tuple[int, Any]]:
    """(version, message) over all versions of a class."""
    return st.sampled_from(versions(cls)).flatmap(
        lambda version: st.tuples(st.just(version), instances(cls, version, cls.schema.is_flexible(version)))
    )


def _with_unknown(message: Struct, extra: dict[int, bytes]) -> Struct:
    if extra:
        message.unknown_tagged_fields = extra
    return message


def _values(field: Field, version: int, flexible: bool) -> st.SearchStrategy[Any]:
    if field.struct_class is not None:
        value: st.SearchStrategy[Any] = instances(field.struct_class, version, flexible)
    else:
        value = _SCALARS[field.type_name]
    if field.is_array:
        value = st.lists(value, max_size=2)
    if within(field.nullable, version):
        value = st.none() | value
    return value
