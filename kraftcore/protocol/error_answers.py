"""Responses that carry a chosen error, made of any request by what the schemas say.

An error stands where a client looks for it: in each partition, topic, group or resource that was asked for, if the
response has a place for it there, else in the response as a whole. Where there are both places, errors of partitions
and topics (``OF_PARTS``) stand in the parts, all others in the whole, as Kafka 4.3.1 answers.

A part of the response belongs to the part of the request that has a key in common with it, whatever the key's name in
this API: a topic, for instance, is ``name``, ``topic`` or ``topic_name``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from kraftcore.core.uuid import Uuid
from kraftcore.core.wire.struct import Field
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.registry import api_of, response_class
from kraftcore.protocol.schema import Request, Response, Struct, within

OF_PARTS = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
"""Errors that are about a partition or a topic, and about no request as a whole."""
_CODES = ("error_code", "partition_error_code")
_TEXTS = ("error_message",)
_TOPIC = ("name", "topic", "topic_name")
_SAME = {
    "topic": "name",
    "topic_name": "name",
    "partition": "index",
    "partition_index": "index",
    "partition_id": "index",
}
_KEYS = frozenset(
    {
        "group_id",
        "group_instance_id",
        "index",
        "key",
        "member_id",
        "name",
        "producer_id",
        "resource_name",
        "resource_type",
        "topic_id",
        "transactional_id",
    }
)
_UNKNOWN = ("offset", "watermark", "_id")
"""How the names of numbers end that are -1 where nothing is known."""
_NO_SESSION = "session_id"


def error_response(request: Request, version: int, error: ErrorCode, text: str | None = None) -> Response:
    """The response that carries an error for all that a request asks for.

    Args:
        request: its body.
        version: of it.
        error: which one.
        text: in words, beside each error code that has a place for it.
    """
    kind = response_class(api_of(type(request)).key)
    return kind(**_filled(kind, request, version, (error, text), is_part=False))


def can_carry_error(kind: type[Request], version: int) -> bool:
    """Whether ``error_response`` finds a place for an error in the response to this kind of request."""
    response = response_class(api_of(kind).key)
    return bool(_own_code(response, version) or _parts(response, kind, version))


def named_topics(request: Struct) -> Iterator[str | Uuid]:
    """The topics that a request names, by their names or ids."""
    for field, keys in _topic_fields(type(request)):
        for each in getattr(request, field.name) or ():
            if field.struct_class is None:
                yield each
                continue
            yield from (value for key in keys if (value := getattr(each, key)))
            yield from named_topics(each)


def names_topics(kind: type[Struct]) -> bool:
    """Whether requests of this kind name topics."""
    return any(
        keys or field.struct_class is None or names_topics(field.struct_class) for field, keys in _topic_fields(kind)
    )


@cache
def _topic_fields(kind: type[Struct]) -> tuple[tuple[Field, tuple[str, ...]], ...]:
    """The lists of a struct that topics are found in, or below, and which fields of their elements name one."""
    found = []
    for field in kind.__layout__.fields:
        if not field.is_array or field.name.startswith("forgotten"):
            continue
        is_of_topics = field.name.startswith("topic")
        if field.struct_class is None:
            if is_of_topics and field.type_name == "string":
                found.append((field, ()))
            continue
        names = {each.name for each in field.struct_class.__layout__.fields}
        wanted = ("topic_id", *(_TOPIC if is_of_topics else _TOPIC[1:]))
        found.append((field, tuple(each for each in wanted if each in names)))
    return tuple(found)


# --- places for the error ---------------------------------------------------------------------------------------------


@cache
def _present(kind: type[Struct], version: int) -> tuple[Field, ...]:
    return tuple(field for field in kind.__layout__.fields if within(field.versions, version))


def _own_code(kind: type[Struct], version: int) -> str | None:
    return next((field.name for field in _present(kind, version) if field.name in _CODES), None)


@cache
def _parts(kind: type[Struct], source: type[Struct], version: int) -> Mapping[str, Field]:
    """The lists of a response that have a place for the error, each with the list of the request it answers."""
    found = {}
    for field in _present(kind, version):
        if field.is_array and field.struct_class is not None and _has_code(field.struct_class, version):
            asked = _asked_by(field.struct_class, source, version)
            if asked is not None:
                found[field.name] = asked
    return found


@cache
def _has_code(kind: type[Struct], version: int) -> bool:
    return _own_code(kind, version) is not None or any(
        field.struct_class is not None and _has_code(field.struct_class, version) for field in _present(kind, version)
    )


def _asked_by(part: type[Struct], source: type[Struct], version: int) -> Field | None:
    """The list of a request whose elements have a key in common with a part of the response."""
    keys = _keys(part, version)
    lists = [field for field in _present(source, version) if field.is_array]
    for field in lists:
        if field.struct_class is not None and keys.keys() & _keys(field.struct_class, version).keys():
            return field
    for field in lists:
        if field.struct_class is None and field.type_name in keys.values():
            return field
    if all(field.name in (*_CODES, *_TEXTS) or _is_of_errors(field, version) for field in _present(part, version)):
        return next((field for field in lists if field.struct_class is not None), None)  # answered in the same order
    return None


def _is_of_errors(field: Field, version: int) -> bool:
    return field.struct_class is not None and _has_code(field.struct_class, version)


@cache
def _keys(kind: type[Struct], version: int) -> Mapping[str, str]:
    """The types of the keys of a struct, by the name that is the same in all APIs."""
    plain = (field for field in _present(kind, version) if field.struct_class is None and not field.is_array)
    named = ((_SAME.get(field.name, field.name), field.type_name) for field in plain)
    return {name: type_name for name, type_name in named if name in _KEYS}


# --- filling them -----------------------------------------------------------------------------------------------------


def _filled(
    kind: type[Struct], source: Any, version: int, told: tuple[ErrorCode, str | None], *, is_part: bool
) -> dict[str, Any]:
    """The fields of a response, or of a part of it that answers ``source``, a struct or a plain value."""
    error, text = told
    parts = _parts(kind, type(source), version) if isinstance(source, Struct) else {}
    code = _own_code(kind, version)
    asked = {name: getattr(source, field.name) or () for name, field in parts.items()}
    is_below = any(asked.values()) and (code is None or error in OF_PARTS)
    values: dict[str, Any] = {}
    for field in _present(kind, version):
        if field.name in asked:
            below = asked[field.name] if is_below else ()
            struct_class = field.struct_class
            values[field.name] = [
                struct_class(**_filled(struct_class, each, version, told, is_part=True)) for each in below
            ]
        elif field.is_array or field.struct_class is not None:
            continue
        elif field.name == code:
            values[code] = ErrorCode.NONE if is_below else error
        elif field.name in _TEXTS:
            if not is_below:
                values[field.name] = text
        elif is_part and (key := _SAME.get(field.name, field.name)) in _KEYS:
            values[field.name] = _key_of(source, key, field)
        elif field.name.endswith(_UNKNOWN) and field.type_name.startswith("int") and field.name != _NO_SESSION:
            values[field.name] = -1
    return values


def _key_of(source: Any, key: str, field: Field) -> Any:
    if isinstance(source, Struct):
        found = (each.name for each in source.__layout__.fields if _SAME.get(each.name, each.name) == key)
        name = next(found, None)
        return field.make_default() if name is None else getattr(source, name)
    kind = {"uuid": Uuid, "string": str}.get(field.type_name, int)
    return source if isinstance(source, kind) else field.make_default()
