"""Values, commands and snapshots as bytes: MessagePack, the same bytes for the same value."""

from __future__ import annotations

from functools import cache
from typing import Any

from kraftcore.errors import LocalError, MissingDependencyError


@cache
def msgpack_library() -> Any:
    """The library.

    Raises:
        MissingDependencyError: it is not installed.
    """
    try:
        import msgpack
    except ImportError as error:
        raise MissingDependencyError("recipes need msgpack: pip install 'kraftcore[recipes]'") from error
    return msgpack


def pack(value: Any) -> bytes:
    """Encode an application's value; as ``encode``, and ``unpack`` can read it.

    Raises:
        LocalError: it holds a value of another type, or a dict with a list, tuple or dict as a key.
    """
    packed = encode(value)
    if not isinstance(value, str | bytes | int | float | None):
        try:
            unpack(packed)
        except ValueError as error:  # every reader of the object would fail
            raise LocalError(f"recipes cannot read this value again: {error}") from error
    return packed


def encode(value: Any) -> bytes:
    """Encode a value.

    Args:
        value: None, a bool, an int of 64 bits, a float, str, bytes, or lists, tuples and dicts of these. A dict is
            encoded in its own order; a tuple comes back as a list.

    Raises:
        LocalError: the value has another type.
    """
    try:
        packed: bytes = msgpack_library().packb(value)
    except (TypeError, ValueError, OverflowError) as error:
        kinds = "None, bools, 64-bit ints, floats, str, bytes, lists and dicts"
        raise LocalError(f"recipes hold {kinds}: {error}") from error
    return packed


def unpack(data: bytes) -> Any:
    """Decode what ``encode`` made.

    Raises:
        ValueError: the bytes cannot be decoded.
    """
    try:
        return msgpack_library().unpackb(data, strict_map_key=False)
    except MissingDependencyError:
        raise
    except Exception as error:  # msgpack has no common base class, and unhashable keys are a TypeError
        raise ValueError(f"no MessagePack: {error}") from error
