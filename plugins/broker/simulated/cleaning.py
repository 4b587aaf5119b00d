"""What Kafka's cleaner leaves of a log: offsets are missing between batches and within them, some batches are empty.

Ours cleans nothing. Its brokers open, follow, lead and serve logs that Kafka's brokers cleaned; here a log is cleaned
while no process has it open, each broker's by itself, as in Kafka.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from itertools import pairwise
from random import Random
from typing import NamedTuple

from kraftcore.core.batch import RecordBatch, iter_batches
from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.plugins.broker.logdirs.checkpoint import RECOVERY_POINTS, decode_offsets, encode_offsets
from kraftcore.plugins.broker.logdirs.directory import HostedLog

_SHARES = (0.3, 0.5, 0.9)  # of the batches that are changed
_STAYS = 0.3  # share of the records of such a batch that stay
_INTERRUPTED = 0.3  # share of the segments at which the cleaner's process ends before it puts them in place


class Cleaned(NamedTuple):
    """A batch that was changed.

    Attributes:
        before: its checksum.
        after: that of what is left of it, or None.
    """

    before: int
    after: int | None


def clean(disk: SimulatedDisk, hosted: HostedLog, below: int, kept: Collection[int], rng: Random) -> dict[int, Cleaned]:
    """Rewrite a log's segments, but for the last one, durably, and store how far the log is known to be so.

    Args:
        disk: it is on.
        hosted: the log, of a process that ended.
        below: what is here or above stays as it is.
        kept: first offsets of the last batches of producers: their headers stay.
        rng: draws what goes.

    Returns:
        The batches that were changed, by their first offsets.
    """
    left: dict[int, Cleaned] = {}
    folder = hosted.log.folder
    bases = sorted(int(name[:20]) for name in disk.list_folder(folder) if name.endswith(".log"))
    share = rng.choice(_SHARES)
    for base, end in pairwise(bases):
        if end > below:
            break
        path = os.path.join(folder, f"{base:020d}.log")
        found = bytearray()
        for batch in iter_batches(disk.read_file(path)):
            if batch.is_control or rng.random() >= share:
                found += batch.raw
                continue
            records = [record for record in batch if rng.random() < _STAYS]
            if records or batch.base_offset in kept:
                rebuilt = batch.rebuild(records)
                found += rebuilt
                left[batch.base_offset] = Cleaned(batch.crc, RecordBatch(rebuilt).crc)
            else:
                left[batch.base_offset] = Cleaned(batch.crc, None)
        if rng.random() < _INTERRUPTED:
            disk.replace_file(f"{path}.swap", found)
            break
        disk.replace_file(path, found)
    if left:
        path = os.path.join(hosted.directory.path, RECOVERY_POINTS)
        points = decode_offsets(disk.read_file(path)) if disk.exists(path) else {}
        disk.replace_file(path, encode_offsets({**points, hosted.name: bases[-1]}))
    return left
