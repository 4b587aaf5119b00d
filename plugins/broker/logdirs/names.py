"""The names of folders in a log directory: ``topic-partition``, and their names on the move and after deletion."""

from __future__ import annotations

import re
from collections.abc import Callable

from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.protocol.topics import METADATA_TOPIC

_PARTITION = re.compile(r"([a-zA-Z0-9._-]{1,249})-([0-9]{1,10})", re.ASCII)
_DELETED = re.compile(r"\S+\.[0-9a-f]{32}-delete", re.ASCII)
_FUTURE = re.compile(r"(\S+)\.[0-9a-f]{32}-future", re.ASCII)
_NAME_MAX = 255


def partition_of(folder: str) -> TopicPartition | None:
    """The partition whose folder has this name; None for any other folder."""
    match = _PARTITION.fullmatch(folder)
    if match is None or int(match[2]) > 2**31 - 1 or match[2] != str(int(match[2])):
        return None
    return TopicPartition(match[1], int(match[2]))


def is_legal(name: TopicPartition) -> bool:
    """Whether a partition can have a folder: its topic's name is a legal one, its number not negative.

    The metadata log's folder is not a broker's.
    """
    return partition_of(str(name)) == name and name.topic not in (".", "..", METADATA_TOPIC)


def is_deleted(folder: str) -> bool:
    """Whether a folder has the name of one that waits for its deletion."""
    return _DELETED.fullmatch(folder) is not None


def deleted_name(name: TopicPartition, randbytes: Callable[[int], bytes]) -> str:
    """What the folder of a partition is called from its deletion on: ``topic-partition.<32 hex digits>-delete``.

    The topic's name is cut where the whole would be longer than a file system takes.
    """
    return _renamed(name, randbytes, "delete")


def future_of(folder: str) -> TopicPartition | None:
    """The partition that a folder is to become the log of (KIP-113); None for any other folder."""
    match = _FUTURE.fullmatch(folder)
    return None if match is None else partition_of(match[1])


def future_name(name: TopicPartition, randbytes: Callable[[int], bytes]) -> str | None:
    """What the folder is called that a partition moves to: ``topic-partition.<32 hex digits>-future``.

    None: no file system would take it.
    """
    found = f"{name}.{randbytes(16).hex()}-future"
    return found if len(found) <= _NAME_MAX else None


def stray_name(name: TopicPartition, randbytes: Callable[[int], bytes]) -> str:
    """What the folder of a partition is called that the metadata knows nothing of: ``topic-partition.<32>-stray``."""
    return _renamed(name, randbytes, "stray")


def _renamed(name: TopicPartition, randbytes: Callable[[int], bytes], why: str) -> str:
    suffix = f"-{name.partition}.{randbytes(16).hex()}-{why}"
    return name.topic[: _NAME_MAX - len(suffix)] + suffix
