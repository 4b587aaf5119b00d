"""What a kill, a power cut or a failing disk leaves of a broker's directory, drawn from a seed.

Each damage is a function of a folder that says what it did, or None where the folder has nothing of that kind.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

from kraftcore.core.batch import RecordBatch, iter_batches
from kraftcore.errors import CorruptDataError
from kraftcore.plugins.broker.logdirs.checkpoint import (
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    decode_offsets,
    encode_offsets,
)
from kraftcore.plugins.broker.logdirs.clean_shutdown import CLEAN_SHUTDOWN
from kraftcore.plugins.broker.partition import TopicPartition

EPOCHS = "leader-epoch-checkpoint"
Damage = Callable[[random.Random, Path], str | None]
_SUFFIXES = (".index", ".timeindex", ".txnindex", ".snapshot")


def _logs(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def _last(folder: Path) -> Path:
    """The last segment that is not empty."""
    return [path for path in _logs(folder) if path.stat().st_size][-1]


def _earlier(rng: random.Random, folder: Path) -> Path | None:
    last = _last(folder)
    paths = [path for path in _logs(folder) if path < last and path.stat().st_size]
    return rng.choice(paths) if paths else None


def _whole(data: bytes) -> list[RecordBatch]:
    """The batches in front of the first damage."""
    found = []
    try:
        for batch in iter_batches(data):
            found.append(batch)
    except CorruptDataError:
        pass
    return found


def _cut(rng: random.Random, path: Path) -> str:
    data = path.read_bytes()
    size = rng.randrange(len(data))
    path.write_bytes(data[:size])
    return f"{path.name} cut from {len(data)} to {size}"


def _flip(rng: random.Random, path: Path) -> str:
    data = bytearray(path.read_bytes())
    place = rng.randrange(len(data))
    data[place] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return f"{path.name} flipped at {place} of {len(data)}"


def cut_tail(rng: random.Random, folder: Path) -> str | None:
    return _cut(rng, _last(folder))


def flip_tail(rng: random.Random, folder: Path) -> str | None:
    return _flip(rng, _last(folder))


def append_zeros(rng: random.Random, folder: Path) -> str | None:
    path, size = _logs(folder)[-1], rng.choice((1, 11, 61, 4096))
    path.write_bytes(path.read_bytes() + bytes(size))
    return f"{path.name}: {size} zeros behind"


def append_garbage(rng: random.Random, folder: Path) -> str | None:
    path, size = _logs(folder)[-1], rng.choice((1, 11, 61, 300))
    path.write_bytes(path.read_bytes() + rng.randbytes(size))
    return f"{path.name}: {size} bytes of garbage behind"


def flip_earlier(rng: random.Random, folder: Path) -> str | None:
    path = _earlier(rng, folder)
    return path and _flip(rng, path)


def cut_earlier(rng: random.Random, folder: Path) -> str | None:
    path = _earlier(rng, folder)
    return path and _cut(rng, path)


def cut_earlier_between_batches(rng: random.Random, folder: Path) -> str | None:
    path = _earlier(rng, folder)
    if path is None:
        return None
    data = path.read_bytes()
    sizes = [len(batch.to_bytes()) for batch in _whole(data)]
    size = sum(sizes[: rng.randrange(len(sizes) or 1)])
    path.write_bytes(data[:size])
    return f"{path.name} cut from {len(data)} to {size}, behind a batch"


def lose_segment(rng: random.Random, folder: Path) -> str | None:
    path = _earlier(rng, folder)
    if path is not None:
        path.unlink()
    return path and f"{path.name} is gone"


def lose_last_segment(rng: random.Random, folder: Path) -> str | None:
    path = _logs(folder)[-1]
    path.unlink()
    return f"{path.name} is gone"


def spoil_side_file(rng: random.Random, folder: Path) -> str | None:
    suffix = rng.choice(_SUFFIXES)
    paths = sorted(folder.glob(f"*{suffix}"))
    if not paths:
        return None
    path = rng.choice((rng.choice(paths), paths[-1]))
    how = rng.choice(("missing", "empty", "garbage", "too long", "cut"))
    data = path.read_bytes()
    match how:
        case "missing":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
        case "garbage":
            path.write_bytes(rng.randbytes(len(data) or 34))
        case "too long":
            path.write_bytes(data + rng.randbytes(rng.choice((1, 8, 12, 34))))
        case "cut":
            path.write_bytes(data[: rng.randrange(len(data) + 1)])
    return f"{path.name} {how}"


def lose_side_files(rng: random.Random, folder: Path) -> str | None:
    suffixes = rng.sample(_SUFFIXES, rng.randint(1, 4))
    for suffix in suffixes:
        for path in folder.glob(f"*{suffix}"):
            path.unlink()
    return f"all of {', '.join(suffixes)} missing"


def spoil_epochs(rng: random.Random, folder: Path) -> str | None:
    path = folder / EPOCHS
    if not path.exists():
        return None
    how = rng.choice(("missing", "empty", "garbage", "older", "newer"))
    lines = path.read_text().splitlines()
    entries = lines[2:]
    match how:
        case "missing":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
        case "garbage":
            path.write_bytes(rng.randbytes(40))
        case "older":
            _write_epochs(path, entries[: rng.randrange(len(entries) or 1)])
        case "newer":
            _write_epochs(path, [*entries, "90 100000"])
    return f"{EPOCHS} {how}"


def _write_epochs(path: Path, entries: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in ("0", str(len(entries)), *entries)))


def empty_segment_behind(rng: random.Random, folder: Path) -> str | None:
    found = _whole(_last(folder).read_bytes())
    path = folder / f"{found[-1].next_offset if found else 0:020d}.log"
    if path.exists():
        return None
    path.write_bytes(b"")
    return f"{path.name} is there, empty and without indexes"


def leave_behind(rng: random.Random, folder: Path) -> str | None:
    path = rng.choice([*_logs(folder), *folder.glob("*.index"), *folder.glob("*.timeindex")])
    suffix = rng.choice((".deleted", ".cleaned", ".swap"))
    shutil.copy(path, f"{path}{suffix}")
    return f"{path.name}{suffix} is there"


def swap_segment(rng: random.Random, folder: Path) -> str | None:
    path = rng.choice(_logs(folder))
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        each = path.with_suffix(suffix)
        if each.exists():
            each.rename(f"{each}.swap")
    return f"{path.stem} is all .swap"


def stray_file(rng: random.Random, folder: Path) -> str | None:
    name = rng.choice(("lost+found.txt", "00000000000000000000.index.tmp", "x.log.bak", "leader-epoch-checkpoint.tmp"))
    (folder / name).write_bytes(b"stray")
    return f"{name} is there"


def stray_index(rng: random.Random, folder: Path) -> str | None:
    name = f"{rng.choice((0, 7, 100000)):020d}{rng.choice(_SUFFIXES)}"
    if (folder / name).with_suffix(".log").exists():
        return None
    (folder / name).write_bytes(rng.randbytes(rng.choice((0, 24, 34))))
    return f"{name} is there without a log"


def change_checkpoint(rng: random.Random, folder: Path) -> str | None:
    """An entry of an earlier moment, none, or one beyond the log's end."""
    name = TopicPartition(folder.name.rpartition("-")[0], 0)
    file = rng.choice((RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS))
    path = folder.parent / file
    offsets = dict(decode_offsets(path.read_bytes())) if path.exists() else {}
    before = offsets.pop(name, None)
    how = rng.choice(("missing", "older", "older", "beyond the end"))
    if how == "older" and before:
        offsets[name] = rng.randrange(before)
    elif how == "beyond the end":
        offsets[name] = 100_000
    path.write_bytes(encode_offsets(offsets))
    return f"{file}: {offsets.get(name)} instead of {before}"


TAIL = (cut_tail, cut_tail, flip_tail, append_zeros, append_garbage, empty_segment_behind)
MIDDLE = (flip_earlier, cut_earlier, cut_earlier_between_batches, lose_segment, lose_last_segment)
SIDE = (spoil_side_file, spoil_side_file, lose_side_files, spoil_epochs, stray_index)
REST = (leave_behind, swap_segment, stray_file, change_checkpoint, change_checkpoint)
_GROUPS = (TAIL, TAIL, MIDDLE, SIDE, SIDE, REST)


def draw(rng: random.Random) -> list[Damage]:
    """One or two kinds for a folder, or none."""
    count = rng.choice((0, 1, 1, 1, 1, 2, 2))
    return [rng.choice(rng.choice(_GROUPS)) for _ in range(count)]


def of_directory(rng: random.Random, directory: Path) -> list[str]:
    """To what is there once for all topics."""
    done = []
    clean = directory / CLEAN_SHUTDOWN
    if clean.exists() and rng.random() < 0.4:
        clean.unlink()
        done.append("not stopped in order")
    for file in (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS):
        path = directory / file
        if rng.random() < 0.1 and path.exists():
            how = rng.choice(("missing", "empty", "garbage"))
            if how == "missing":
                path.unlink()
            else:
                path.write_bytes(b"" if how == "empty" else rng.randbytes(30))
            done.append(f"{file} {how}")
    return done
