"""Runs ``kraftcore observe``: an observer, its records as lines, a progress bar, signals."""

from __future__ import annotations

import base64
import difflib
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import click
import trio

from kraftcore import admin
from kraftcore.admin import Survey, Watch
from kraftcore.cli.admin_tool import Connection
from kraftcore.cli.dump_log import CONTROL_RECORDS, find_record
from kraftcore.cli.observe_state import tell_state
from kraftcore.cli.output import is_terminal, printable
from kraftcore.cli.stopping import Stopping, stopping_for_good
from kraftcore.cli.waiting import telling
from kraftcore.config.addresses import split_list
from kraftcore.core.batch import RecordBatch
from kraftcore.core.dump import BatchPrinter
from kraftcore.core.uuid import METADATA_TOPIC_ID, Uuid
from kraftcore.errors import CorruptDataError, KraftError, LocalError, NodeStoppedError, UnreachableError
from kraftcore.observer import Observer, Progress, Snapshot
from kraftcore.observer import observe as open_observer
from kraftcore.ports.nursery import open_nursery
from kraftcore.protocol.log_contents import ContentsJudge
from kraftcore.protocol.registry import MetadataRecordType
from kraftcore.storage.snapshot_batches import read_batches

ENOUGH_BYTES = 1 << 16  # lines of this size together are written
BAR_PERIOD_S = 0.2
_NONE = "null"
TIME_MAX_MS = 253_402_300_800_000  # the year 10000
_NO_METADATA = (
    "these are an application's own records, no cluster metadata: values are shown as text, and as 0x... (JSON: base64)"
    " where they are none"
)
# Quotes inside of strings are escaped, so this cannot be part of a string.
_TYPE = re.compile(rb',"payload":\{"type":"(\w+)"|,"controlType":"(\w+)"')


@dataclass(frozen=True, slots=True)
class Request:
    """The command's options; see its help."""

    connection: Connection
    directory: str | None
    retention_bytes: int
    from_offset: int | None
    types: frozenset[bytes]
    once: bool
    topic: str
    topic_id: Uuid
    output: str


def type_names(text: str | None) -> frozenset[bytes]:
    """Read --type: ``TopicRecord`` and ``TOPIC_RECORD`` both do.

    Returns:
        Names as they stand in JSON lines; empty for all.

    Raises:
        UsageError: there is no such type.
    """
    names = [*(kind.name for kind in MetadataRecordType), *(kind.name for kind in CONTROL_RECORDS)]
    known = {name.replace("_", ""): name for name in names}
    found = set()
    for given in split_list(text or ""):
        key = given.replace("_", "").upper()
        if key not in known:
            near = difflib.get_close_matches(key, known, 1, 0.5)
            hint = f"; did you mean {_class_name(known[near[0]])}?" if near else ""
            raise click.UsageError(f"--type: there are no records of type {given!r}{hint}")
        found.add(known[key].encode())
    return frozenset(found)


def _class_name(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def run_observer(request: Request) -> None:
    """Observe until a signal ends it, or with ``once`` until everything is printed.

    Raises:
        KraftError: it could not begin, or had to end.
        OSError: the output cannot be written.
    """
    if sys.stdout is None and request.output != "none":
        raise LocalError("the output is closed: redirect it to a file, or ask for --output none")
    try:
        trio.run(_Run(request).run)
    except UnreachableError as error:
        said = "\n".join((f"no controller answers: {error.last_failure}", *error.findings))
        raise click.ClickException(printable(said)) from None


class _Run:
    def __init__(self, request: Request) -> None:
        self._request = request
        self._lines = _Lines(request)
        self._observer: Observer | None = None

    async def run(self) -> None:
        failure: BaseException | None = None
        with trio.open_signal_receiver(*stopping_for_good()) as signals:
            async with trio.open_nursery() as nursery:
                observing = trio.CancelScope()
                nursery.start_soon(_obey, signals, Stopping(lambda _: observing.cancel(), self._temporary))
                try:
                    with observing:
                        await self._observe(nursery)
                except NodeStoppedError as error:
                    failure = error.__cause__ if isinstance(error.__cause__, KraftError) else error
                except (KraftError, OSError) as error:
                    failure = error  # outside the nursery, which would wrap it in a group
                nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure

    def _temporary(self) -> str | None:
        """The mirror's directory, if it is removed when the command ends."""
        return None if self._observer is None or self._request.directory is not None else self._observer.directory

    async def _observe(self, nursery: trio.Nursery) -> None:
        request = self._request
        async with (
            telling() as watch,
            open_observer(
                request.connection.controllers,
                request.directory,
                topic=request.topic,
                topic_id=request.topic_id,
                tls=request.connection.tls(),
                sasl=request.connection.sasl(),
                timing=request.connection.timing(),
                retention_bytes=request.retention_bytes,
                watch=watch,
            ) as observer,
            admin.connect(
                bootstrap_controllers=request.connection.controllers,
                tls=request.connection.tls(),
                sasl=request.connection.sasl(),
                watch=watch,
            ) as client,
        ):
            self._observer = observer
            nursery.start_soon(catch_up, observer, watch)
            if is_terminal(sys.stderr) and not is_terminal(sys.stdout):  # nor between the lines on one terminal
                nursery.start_soon(show_progress, observer)
            async with open_nursery() as telling_state:
                telling_state.start_soon(partial(tell_state, observer, client, is_followed=not request.once))
                await self._hand_out(observer)
                telling_state.cancel_scope.cancel()

    async def _hand_out(self, observer: Observer) -> None:
        request = self._request
        end = await observer.caught_up() if request.once or request.output == "none" else None
        if request.output == "none":
            while not request.once:
                await observer.changed()
            return
        await self._print(observer, end)

    async def _print(self, observer: Observer, end: int | None) -> None:
        offset = self._request.from_offset if self._request.from_offset is not None else end
        if end is not None and offset is not None and offset >= end:
            return
        async for item in observer.batches(self._request.from_offset):
            if isinstance(item, Snapshot):
                await self._print_snapshot(item)
                offset = item.end_offset
            else:
                self._lines.add(item)
                offset = item.next_offset
            done = end is not None and offset >= end
            if done or offset >= observer.high_watermark or self._lines.size > ENOUGH_BYTES:
                await self._lines.write()
            if done:
                return

    async def _print_snapshot(self, snapshot: Snapshot) -> None:
        with snapshot.open() as reader:
            self._lines.add_snapshot(snapshot)
            for _, batch in read_batches(reader.raw.file):
                self._lines.add(batch, in_snapshot=True)
                if self._lines.size > ENOUGH_BYTES:
                    await self._lines.write()


async def catch_up(observer: Observer, watch: Watch) -> None:
    """Tell, by ``watch``, what an observer waits for until it has caught up."""
    with watch("what is committed", _Catching(observer)), suppress(NodeStoppedError):  # told by the observer's block
        await observer.caught_up()


@dataclass(frozen=True, slots=True)
class _Catching:
    """Describes how far an observer has caught up."""

    observer: Observer
    survey: Survey | None = None

    @property
    def last_failure(self) -> str:
        """Why not all committed records are here yet, for people."""
        found = self.observer.progress
        if found.leader_high_watermark is None:
            return "no leader has answered yet"
        done, total = _portion(found)
        return f"{done} of {total} {'records' if found.snapshot_bytes is None else 'bytes of a snapshot'} are here"


async def _obey(signals: Any, stopping: Stopping) -> None:
    async for number in signals:
        stopping.take(number)


class _Lines:
    """Turns batches into the requested lines, and gathers lines until they are written."""

    def __init__(self, request: Request) -> None:
        self._types = request.types
        self._as_json = request.output == "json"
        self._from_offset = request.from_offset or 0
        self._printed: list[bytes] = []
        self._ready: list[bytes] = []
        self.size = 0
        self._contents = ContentsJudge() if request.topic_id == METADATA_TOPIC_ID else None
        self._printer = self._make_printer(self._contents is not None)

    def _make_printer(self, is_metadata: bool) -> BatchPrinter:
        return BatchPrinter(
            self._printed.append,
            deep=True,
            contents=True,
            as_json=True,
            metadata_records=find_record if is_metadata else None,
            control_records={number: (number.name, label, body) for number, (label, body) in CONTROL_RECORDS.items()},
        )

    def _judge(self, batch: RecordBatch) -> None:
        # Whether the log is an application's own: decided by its first records, for good.
        contents = self._contents
        if contents is None:
            return
        is_metadata = None
        with suppress(CorruptDataError):  # told when it is printed
            is_metadata = contents.look(batch.values())
        if is_metadata is not None:
            self._contents = None
        if is_metadata is False:
            self._printer = self._make_printer(is_metadata=False)
            click.echo(_NO_METADATA, err=True)

    def add(self, batch: RecordBatch, *, in_snapshot: bool = False) -> None:
        """Add a batch's records."""
        if not batch.is_control and not (in_snapshot and batch.producer_id >= 0):  # what nodes remember of clients
            self._judge(batch)
        data = batch.to_bytes()
        try:
            self._printer.feed(data, 0, len(data))
        except CorruptDataError as error:  # its checksum was right: the leader wrote it so
            told = {"kind": "record", "offset": batch.base_offset, "error": f"cannot be read: {error.reason}"}
            self._printed.append(json.dumps(told, separators=(",", ":")).encode() + b"\n")
        lines = b"".join(self._printed).split(b"\n")
        self._printed.clear()
        for line in lines:
            if line.startswith(b'{"kind":"record"'):
                self._take(line)

    def add_snapshot(self, snapshot: Snapshot) -> None:
        """Add a line for a snapshot; its records follow."""
        self._from_offset = 0
        if self._as_json:
            self._put(b'{"kind":"snapshot","endOffset":%d,"epoch":%d}' % (snapshot.end_offset, snapshot.epoch))
        else:
            self._put(b"snapshot of everything below %d, epoch %d:" % (snapshot.end_offset, snapshot.epoch))

    def _take(self, line: bytes) -> None:
        if self._types:
            found = _TYPE.search(line)
            if found is None or (found[1] or found[2]) not in self._types:
                return
        if self._as_json and not self._from_offset:
            self._put(line)
            return
        record = json.loads(line)
        if record["offset"] >= self._from_offset:
            self._put(line if self._as_json else as_text(record).encode())

    def _put(self, line: bytes) -> None:
        self._ready += (line, b"\n")
        self.size += len(line) + 1

    async def write(self) -> None:
        """Write the gathered lines, in a thread, so that a slow reader of the output holds up nothing else."""
        data = b"".join(self._ready)
        self._ready.clear()
        self.size = 0
        if data:
            await trio.to_thread.run_sync(_write, data, abandon_on_cancel=True)


def _write(data: bytes) -> None:
    # Past Python's buffer: a thread that is left behind must not hold its lock.
    view = memoryview(data)
    number = sys.stdout.fileno()
    while view:
        view = view[os.write(number, view) :]


def as_text(record: dict[str, Any]) -> str:
    """A record as a line for people."""
    time = record.get("timestamp", -1)
    when = "-"
    if 0 < time < TIME_MAX_MS:
        when = datetime.fromtimestamp(time / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")[:23]
    payload = record.get("payload")
    raw = _quoted(payload) if payload is not None else _hex(record.get("payloadBase64"))
    if "controlType" in record:
        kind, body = str(record["controlType"]), _quoted(record.get("data"))
    elif "error" in record:
        kind, body = "UNKNOWN", f"{record['error']}: {raw}"
    elif isinstance(payload, dict):
        kind, body = payload["type"], _quoted(payload["data"])
    else:
        key = _quoted(record["key"]) if record.get("key") is not None else _hex(record.get("keyBase64"))
        kind, body = "record", raw if key == _NONE else f"{key}: {raw}"
    return f"{record['offset']:>8}  {when:<23}  {kind:<24}  {body}"


def _quoted(value: object) -> str:
    return printable(json.dumps(value, ensure_ascii=False))


def _hex(encoded: str | None) -> str:
    return _NONE if encoded is None else "0x" + base64.b64decode(encoded).hex()


# --- progress ---------------------------------------------------------------------------------------------------------


async def show_progress(observer: Observer) -> None:
    """Show on the terminal how far an observer has caught up, until it has."""
    with click.progressbar(length=1, label="Catching up", file=sys.stderr) as bar:
        for done, total in _steps(observer):
            bar.length = max(total, 1)
            bar.update(done - bar.pos)
            await trio.sleep(BAR_PERIOD_S)


def _steps(observer: Observer) -> Iterator[tuple[int, int]]:
    found = observer.progress
    while not found.is_caught_up:
        yield _portion(found)
        found = observer.progress
    yield max(found.high_watermark, 1), max(found.high_watermark, 1)


def _portion(found: Progress) -> tuple[int, int]:
    if found.snapshot_bytes is not None and found.snapshot_size:
        return found.snapshot_bytes, found.snapshot_size
    return found.high_watermark, found.leader_high_watermark or 1
