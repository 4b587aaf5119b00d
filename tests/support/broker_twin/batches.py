"""What producers of a script send: sound batches, and each way to spoil one."""

from __future__ import annotations

import random
import struct
import time
import zlib
from typing import Any

from broker_twin.side import Side
from kraftcore.core.batch import Record, build_records_batch
from kraftcore.core.crc32c import crc32c

FLAWS = (
    "checksum", "magic-0", "magic-1", "magic-3", "control", "no-records", "count", "length", "cut", "transactional",
    "last-offset", "base-offset", "leader-epoch", "future", "no-time", "log-append-time", "zeros", "nothing",
    "twice", "large", "no-key", "garbage-behind",
    "past", "set-0", "set-1",
)  # fmt: skip
CODECS = (0, 0, 0, 1, 2, 3, 4)
_CRC, _ATTRIBUTES, _LAST_DELTA, _COUNT, _MAGIC, _LENGTH, _EPOCH = 17, 21, 23, 57, 16, 8, 12


def draw(rng: random.Random, flaw: str | None) -> dict[str, Any]:
    """A batch of a script."""
    return {
        "count": rng.choice((1, 1, 2, 5, 40)),
        "size": rng.choice((0, 1, 10, 200)),
        "codec": rng.choice(CODECS),
        "flaw": flaw,
        "tag": rng.randrange(1 << 30),
        "headers": rng.random() < 0.2,
        "keyed": rng.random() < 0.5,
    }


def bytes_of(params: dict[str, Any], side: Side) -> bytes:
    """The bytes that a side is sent."""
    flaw = params["flaw"]
    if flaw == "nothing":
        return b""
    if flaw == "zeros":
        return bytes(100)
    rng = random.Random(params["tag"])
    now = params["now"]
    hour = 3_600_000
    times = {"future": now + 26 * hour, "past": now - 26 * hour, "no-time": -1}
    if flaw in ("set-0", "set-1"):
        return _message_set(int(flaw[-1]), now)
    producer_id, epoch = side.producers.get(params.get("producer", ""), (-1, -1))
    size = 20_000 if flaw == "large" else params["size"]
    records = [
        Record(
            rng.randbytes(size),
            rng.randbytes(3) if params["keyed"] and flaw != "no-key" else None,
            [("h", b"v")] if params["headers"] else [],
            timestamp_ms=times.get(flaw or "", now + number),
        )
        for number in range(params["count"])
    ]
    batch = build_records_batch(
        [] if flaw == "no-records" else records,
        compression=params["codec"],
        base_offset=7 if flaw == "base-offset" else 0,
        leader_epoch=3 if flaw == "leader-epoch" else -1,
        producer_id=producer_id,
        producer_epoch=epoch + params.get("epoch_delta", 0) if producer_id >= 0 else -1,
        base_sequence=params.get("sequence", -1) if producer_id >= 0 else -1,
        transactional=flaw == "transactional",
        control=flaw == "control",
        timestamp_type=1 if flaw == "log-append-time" else 0,
        **({"timestamp_ms": now} if flaw == "no-records" else {}),
    )
    return _spoiled(batch, flaw)


def _message_set(magic: int, now: int) -> bytes:
    """What producers sent before batches: one sound message of that format."""
    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", now) if magic else b"") + struct.pack(">ii", -1, 1) + b"v"
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


def _spoiled(batch: bytearray, flaw: str | None) -> bytes:
    match flaw:
        case "checksum":
            batch[_CRC] ^= 1
        case "magic-0" | "magic-1" | "magic-3":
            batch[_MAGIC] = int(flaw[-1])
        case "count":
            _put(batch, _COUNT, ">i", struct.unpack_from(">i", batch, _COUNT)[0] + 1)
        case "last-offset":
            _put(batch, _LAST_DELTA, ">i", struct.unpack_from(">i", batch, _LAST_DELTA)[0] + 1)
        case "length":
            struct.pack_into(">i", batch, _LENGTH, len(batch))
        case "cut":
            return bytes(batch[:-1])
        case "twice":
            return bytes(batch) * 2
        case "garbage-behind":
            return bytes(batch) + b"\1\2\3"
    return bytes(batch)


def _put(batch: bytearray, place: int, form: str, value: int) -> None:
    struct.pack_into(form, batch, place, value)
    _seal(batch)


def _seal(batch: bytearray) -> None:
    struct.pack_into(">I", batch, _CRC, crc32c(bytes(batch[_ATTRIBUTES:])))


def now_ms() -> int:
    """Of the script's records."""
    return int(time.time() * 1000)
