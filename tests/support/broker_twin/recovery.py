"""The same damaged directory, opened by Kafka and by ours: what each serves of it, and leaves on disk."""

from __future__ import annotations

import random
import re
import shutil
import time
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka_lab import NodeDiedError, wait_for

from broker_twin import damage
from broker_twin.directories import STOPS, TOPICS, WRITERS, Base, Directories, produce, times_of
from broker_twin.normal import differences
from broker_twin.side import Side
from kraftcore.core.batch import Record, RecordBatch, build_records_batch, iter_batches
from kraftcore.core.log.listing import LISTING_NAME
from kraftcore.errors import CorruptDataError
from kraftcore.plugins.broker.logdirs.clean_shutdown import CLEAN_SHUTDOWN
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.describe_producers import DescribeProducersRequest
from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.protocol.messages.list_offsets import ListOffsetsRequest
from kraftcore.protocol.messages.metadata import MetadataRequest
from kraftcore.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest

_EARLIEST, _LATEST = -2, -1
_FETCH_BYTES = 1 << 20
_EPOCHS = range(10)
_SETTLED_S = 5
UNREADABLE = "unreadable"
OFFLINE, ENDED = "offline", "the broker ends"
_CHECKPOINT = re.compile(r"ERROR Error while reading checkpoint file \S+/([^/\s]+)/([^/\s]+) ")
_LOG = re.compile(r"Error while loading logs in \S+/([^/\s]+) in ")


@dataclass(frozen=True)
class Found:
    """A log of which the two make different things.

    Attributes:
        topic: whose.
        damages: what was done to it.
        is_clean: whether the directory has the file of a stop in order.
        writer: who wrote it last.
        theirs, ours: what is seen of it.
        truth: the batches that were written to it.
    """

    topic: str
    damages: tuple[str, ...]
    is_clean: bool
    writer: str
    theirs: dict[str, Any]
    ours: dict[str, Any]
    truth: dict[int, bytes]

    @property
    def aspects(self) -> dict[str, list[tuple[str, Any, Any]]]:
        """Where they differ, by what was asked for: the place, Kafka's value and ours."""
        if self.theirs["state"] != self.ours["state"]:
            return {"state": [("state", self.theirs["state"], self.ours["state"])]}
        return {
            name: found
            for name in sorted(self.theirs.keys() | self.ours.keys())
            if (found := [*differences(self.theirs.get(name), self.ours.get(name))])
        }

    def __str__(self) -> str:
        how = f"{self.writer}, {'stopped in order' if self.is_clean else 'killed'}; {'; '.join(self.damages)}"
        lines = [f"{self.topic} ({how})"]
        for name, found in self.aspects.items():
            told = [f"{path.strip('.')} {theirs!r:.60} / {ours!r:.60}" for path, theirs, ours in found[:4]]
            more = f"; {len(found) - 4} more" if len(found) > 4 else ""
            lines.append(f"    {name}: {'; '.join(told)}{more}")
        return "\n".join(lines)


class Recovery:
    """Seeds on the bases of ``directories``."""

    def __init__(self, directories: Directories, folder: Path) -> None:
        self._directories = directories
        self._folder = folder
        self.damaged = 0

    def run(self, seed: int) -> list[Found]:
        """Damage a copy, have both open it, and compare."""
        rng = random.Random(seed)
        writer, stop = rng.choice(WRITERS), rng.choice(STOPS)
        base = self._directories.base(writer, stop)
        drawn = self._folder / f"{seed}"
        shutil.copytree(base.folder, drawn)
        done = {}
        for topic in TOPICS:
            made = [each(rng, drawn / f"{topic}-0") for each in damage.draw(rng)]
            done[topic] = [told for told in made if told]
        common = damage.of_directory(rng, drawn)
        is_clean = (drawn / CLEAN_SHUTDOWN).exists()
        self.damaged += sum(map(bool, done.values()))
        views: dict[str, dict[str, dict[str, Any]]] = {}
        views["kraftcore"] = self._open("kraftcore", drawn, f"{seed}-ours", base)
        ended: set[str] = set()
        while "Kafka" not in views:
            name = f"{seed}-theirs{len(ended)}"
            try:
                views["Kafka"] = self._open("Kafka", drawn, name, base)
            except NodeDiedError:
                # One file that it cannot load ends it. What it makes of the others is seen without that one's damage.
                cause = _cause((self._folder / f"{name}.out").read_text())
                assert cause not in ended, f"{cause} is not damaged, and Kafka cannot load it"
                ended.add(cause)
                if (base.folder / cause).is_dir():
                    shutil.rmtree(drawn / cause)
                    shutil.copytree(base.folder / cause, drawn / cause)
                else:
                    shutil.copy(base.folder / cause, drawn / cause)
        views["Kafka"] |= {topic: {"state": ENDED} for topic in TOPICS if f"{topic}-0" in ended}
        return [
            Found(topic, (*done[topic], *common), is_clean, writer, theirs, ours, base.batches[topic])
            for topic in TOPICS
            if (theirs := views["Kafka"][topic]) != (ours := views["kraftcore"][topic])
        ]

    def _open(self, who: str, drawn: Path, name: str, base: Base) -> dict[str, dict[str, Any]]:
        """Start one on a copy; what it serves, by topic, and what it leaves."""
        shutil.copytree(drawn, self._folder / name)
        node = self._directories.node(who, name)
        with self._directories.started(node) as side:
            _settle(side)
            views = {topic: _view(side, topic, base.batches[topic]) for topic in TOPICS}
        for topic, view in views.items():
            view["disk"] = _disk(node.folder / f"{topic}-0")
        return views


def _cause(told: str) -> str:
    """What Kafka could not load: a checkpoint, or the folder of a topic."""
    checkpoint = _CHECKPOINT.search(told)
    if checkpoint is None:
        return _LOG.findall(told)[0]
    folder, file = checkpoint.groups()
    return folder if folder.endswith("-0") else file


def _settle(side: Side) -> None:
    """Wait until all topics have leaders, or nothing changes any more."""
    last: list[Any] = []

    def is_settled() -> bool:
        asked = [MetadataRequest.MetadataRequestTopic(name=name) for name in TOPICS]
        answer = side.ask("setup", MetadataRequest(topics=asked), 12)
        if isinstance(answer, str):
            return False
        codes = {topic.name: _latest(side, topic.name) for topic in answer.topics}
        if all(code == 0 for code in codes.values()):
            return True
        if not last or last[0] != codes:
            last[:] = [codes, time.monotonic()]
        return any(code == 0 for code in codes.values()) and time.monotonic() - last[1] > _SETTLED_S

    wait_for("topics to be online, or not", is_settled)


def _latest(side: Side, topic: str) -> int:
    found = _offset(side, topic, _LATEST)
    return 0 if isinstance(found, tuple) else 1


def _offset(side: Side, topic: str, when: int, isolation: int = 0) -> Any:
    kind = ListOffsetsRequest.ListOffsetsTopic
    asked = kind(name=topic, partitions=[kind.ListOffsetsPartition(partition_index=0, timestamp=when)])
    answer = side.ask("client", ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[asked]), 7)
    if isinstance(answer, str):
        return answer
    part = answer.topics[0].partitions[0]
    return ErrorCode(part.error_code).name if part.error_code else (part.offset, part.timestamp, part.leader_epoch)


def _view(side: Side, topic: str, held: dict[int, bytes]) -> dict[str, Any]:
    """What a client sees of a partition; and what it sees when it has written to it."""
    first, last = _offset(side, topic, _EARLIEST), _offset(side, topic, _LATEST)
    if not isinstance(first, tuple) or not isinstance(last, tuple):
        return {"state": OFFLINE}
    found: dict[str, Any] = {"state": "online", "start": first, "end": last}
    found["stable"] = _offset(side, topic, _LATEST, 1)
    found["times"] = {str(when): _offset(side, topic, when) for when in times_of(held)}
    found["epochs"] = {str(epoch): _epoch_end(side, topic, epoch) for epoch in _EPOCHS}
    found["producers"] = _producers(side, topic)
    found["read"] = dict(_read(side, topic, list(held), first[0], last[0]))
    found["committed"] = dict(_read(side, topic, list(held), first[0], last[0], 1))
    found["aborted"] = _fetch(side, topic, first[0], 1)[2]
    record = Record(b"more", timestamp_ms=max(times_of(held)) + 1)  # of the last segment, if that is there
    found["repeated"], found["next"] = {}, {}
    for newest in _last_batches(held):
        numbers: dict[str, Any] = {"producer_id": newest.producer_id, "producer_epoch": newest.producer_epoch}
        again = build_records_batch([record] * newest.count, base_sequence=newest.base_sequence, **numbers)
        found["repeated"][str(newest.producer_id)] = _taken(produce(side, topic, again))
        batch = build_records_batch([record], base_sequence=newest.base_sequence + newest.count, **numbers)
        found["next"][str(newest.producer_id)] = _taken(produce(side, topic, batch))
    found["appended"] = _taken(produce(side, topic, build_records_batch([record])))
    after = _offset(side, topic, _LATEST)
    found["end after"] = after
    found["read after"] = dict(_read(side, topic, list(held), last[0], after[0])) if isinstance(after, tuple) else None
    return found


def _last_batches(held: dict[int, bytes]) -> list[RecordBatch]:
    """Of each producer that numbers its batches, and has no transactions."""
    found: dict[int, RecordBatch] = {}
    for data in held.values():
        for batch in iter_batches(data):
            if batch.base_sequence >= 0 and not batch.is_transactional:
                found[batch.producer_id] = batch
    return list(found.values())


def _taken(answer: Any) -> Any:
    return answer if isinstance(answer, str) else (ErrorCode(answer.error_code).name, answer.base_offset)


def _epoch_end(side: Side, topic: str, epoch: int) -> Any:
    kind = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    asked = kind(topic=topic, partitions=[kind.OffsetForLeaderPartition(partition=0, leader_epoch=epoch)])
    answer = side.ask("client", OffsetForLeaderEpochRequest(replica_id=-1, topics=[asked]), 4)
    if isinstance(answer, str):
        return answer
    part = answer.topics[0].partitions[0]
    return part.error_code, part.leader_epoch, part.end_offset


def _producers(side: Side, topic: str) -> list[dict[str, Any]]:
    kind = DescribeProducersRequest.TopicRequest
    answer = side.ask("client", DescribeProducersRequest(topics=[kind(name=topic, partition_indexes=[0])]), 0)
    producers = [] if isinstance(answer, str) else answer.topics[0].partitions[0].active_producers
    return sorted(
        (
            {name: getattr(each, name) for name in type(each).__slots__ if name != "last_timestamp"}
            for each in producers
        ),
        key=lambda each: each["producer_id"],
    )


def _fetch(side: Side, topic: str, offset: int, isolation: int = 0) -> tuple[int, bytes, list[Any]]:
    kind = FetchRequest.FetchTopic
    asked = kind(
        topic=topic,
        partitions=[kind.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES)],
    )
    request = FetchRequest(max_wait_ms=0, min_bytes=0, isolation_level=isolation, topics=[asked])
    answer = side.ask("client", request, 12)
    if isinstance(answer, str):
        return -1, b"", []
    part = answer.responses[0].partitions[0]
    aborted = sorted((each.first_offset, each.producer_id) for each in part.aborted_transactions or ())
    return part.error_code, bytes(part.records or b""), aborted


def _read(
    side: Side, topic: str, bases: list[int], start: int, end: int, isolation: int = 0
) -> Iterator[tuple[str, Any]]:
    """What a consumer reads that checks checksums: offsets with values, and where it cannot go on."""
    at = start
    while at < end:
        code, data, _ = _fetch(side, topic, at, isolation)
        last = at
        if not code:
            try:
                for batch in iter_batches(data):
                    for record in batch:
                        if record.offset >= at:
                            yield str(record.offset), bytes(record.value or b"").hex()
                    last = max(last, batch.next_offset)
            except CorruptDataError:
                pass  # what lies there is damaged, or the answer was cut
        if last == at:
            if isolation and not code and not data:
                return  # nothing that is committed
            yield str(at), UNREADABLE
            following = bisect_right(bases, at)
            last = bases[following] if following < len(bases) else end
        at = last


def _disk(folder: Path) -> dict[str, Any]:
    """The files of a log that was closed in order."""
    if not folder.is_dir():
        return {"names": []}
    names = sorted(path.name for path in folder.iterdir() if path.suffix != ".deleted" and path.name != LISTING_NAME)
    return {
        "names": dict.fromkeys(names, True),
        "logs": {name: (folder / name).read_bytes().hex() for name in names if name.endswith(".log")},
    }
