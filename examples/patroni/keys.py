"""The state machine below Patroni: keys with versions that are changed on conditions, and end by themselves."""

import json
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from kraftcore import SnapshotSink, StateMachine
from kraftcore.core.batch import RecordBatch


class Key(NamedTuple):
    value: str
    created: int
    """The offset of the record that made the key, which later writes leave as it is."""
    changed: int
    """The offset of the record that wrote the key last."""
    expires_ms: int | None
    """When the key ends, by the log's time; None: it stays."""


Watcher = Callable[[str, Key | None, Key | None], None]
"""Is told a key's name, and what it was before and after; of what a snapshot brought it is told nothing."""


class Keys(StateMachine[int]):
    """A record is an object of JSON with a ``verb``: ``set``, ``delete``, ``delete_all`` or ``tick``.

    ``set`` and ``delete`` have a ``key``, and in ``if`` what its fields have to be: ``{"created": null}`` says that
    there must be no such key. ``set`` has a ``value``, and perhaps a ``ttl_ms``. ``delete_all`` deletes every key that
    begins with ``key``. ``tick`` changes nothing; as every record, it brings the time: that of its batch, which the
    leader of the quorum stamped. Keys whose time is over by then are gone before the record is looked at.

    A record's result is its offset, or 0 if its condition does not hold.
    """

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._now_ms = 0
        self._keys: dict[str, Key] = {}

    def get(self, key: str) -> Key | None:
        """May be called by any thread: it reads one object, which never changes."""
        return self._keys.get(key)

    def below(self, prefix: str) -> dict[str, Key]:
        """All keys that begin with the prefix, without it. For the node's own thread."""
        return {key[len(prefix) :]: found for key, found in self._keys.items() if key.startswith(prefix)}

    def apply(self, batch: RecordBatch[bytes]) -> list[int]:
        self._now_ms = max(self._now_ms, batch.max_timestamp_ms)
        over = [key for key, found in self._keys.items() if (found.expires_ms or self._now_ms + 1) <= self._now_ms]
        for key in over:
            self._put(key, None)
        return [self._obey(json.loads(value), offset) for offset, value in enumerate(batch.values(), batch.base_offset)]

    def _obey(self, command: dict[str, Any], offset: int) -> int:
        match command:
            case {"verb": "set", "key": str(key), "value": str(value), "if": dict(wanted)}:
                found = self._keys.get(key)
                if not _holds(found, wanted):
                    return 0
                created = offset if found is None else found.created
                ttl_ms = command.get("ttl_ms")
                self._put(key, Key(value, created, offset, None if ttl_ms is None else self._now_ms + ttl_ms))
            case {"verb": "delete", "key": str(key), "if": dict(wanted)}:
                if not _holds(self._keys.get(key), wanted):
                    return 0
                self._put(key, None)
            case {"verb": "delete_all", "key": str(prefix)}:
                for key in [key for key in self._keys if key.startswith(prefix)]:
                    self._put(key, None)
            case {"verb": "tick"}:
                pass
            case _:
                return 0  # of another version of this program
        return offset

    def _put(self, key: str, after: Key | None) -> None:
        before = self._keys.pop(key, None)
        if after is not None:
            self._keys[key] = after
        self._watcher(key, before, after)

    def snapshot(self, sink: SnapshotSink) -> None:
        sink.append([json.dumps({"version": 1, "now_ms": self._now_ms}).encode()])
        sink.append(json.dumps([key, *found]).encode() for key, found in self._keys.items())

    def restore(self, values: Iterable[bytes]) -> None:
        rows = map(json.loads, values)
        self._now_ms = next(rows, {"now_ms": 0})["now_ms"]
        self._keys = {key: Key(*fields) for key, *fields in rows}


def _holds(found: Key | None, wanted: dict[str, Any]) -> bool:
    return all(getattr(found, field, None) == value for field, value in wanted.items())
