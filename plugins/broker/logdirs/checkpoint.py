"""Offset checkpoint files: text, one line each: version ``0``, number of entries, then ``topic partition offset``."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kraftcore.errors import CorruptDataError
from kraftcore.plugins.broker.partition import TopicPartition

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANED = "cleaner-offset-checkpoint"
"""Up to where Kafka's cleaner has been in each log, which it writes when it is done with one (LogCleanerManager)."""

_LINE = re.compile(r"(\S+) ([0-9]{1,10}) ([0-9]{1,19})", re.ASCII)


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """The file's content, by topic and partition."""
    lines = [f"{topic} {partition} {offset}\n" for (topic, partition), offset in sorted(offsets.items())]
    return f"0\n{len(lines)}\n{''.join(lines)}".encode()


def decode_offsets(data: bytes, path: str | None = None) -> dict[TopicPartition, int]:
    """Read a file's content.

    Raises:
        CorruptDataError: it is no such file; the message names the line.
    """
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise CorruptDataError("not text", position=error.start, path=path) from None
    if len(lines) < 3 or lines[0] != "0" or lines[-1] != "":
        raise CorruptDataError("not a version 0 checkpoint with a whole last line", path=path)
    if lines[1] != str(len(lines) - 3):
        raise CorruptDataError(f"line 2: {lines[1][:20]!r} entries announced, {len(lines) - 3} found", path=path)
    found = {}
    for number, line in enumerate(lines[2:-1], 3):
        match = _LINE.fullmatch(line)
        if match is None:
            raise CorruptDataError(f"line {number}: expected topic, partition, offset, got {line[:80]!r}", path=path)
        found[TopicPartition(match[1], int(match[2]))] = int(match[3])
    return found
