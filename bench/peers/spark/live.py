"""How long a committed record takes to a streaming query: a quorum of three processes, and Spark's own file source.

Records come at moments drawn from one seed, whether or not those before were seen: a record that meets a running
micro-batch waits for its end, as it would in life.
"""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from bench import inputs
from bench.harness import Missing, Timing
from bench.peers.nodes.catalog import PEERS
from kraftcore import admin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from bench.peers.spark.session import Session

FILES = "Spark, its own file source"
WARM = 10
"""First records are not counted: workers and classes are being loaded."""
PAUSE_S = (0.2, 0.8)
PATIENCE_S = 60.0
_PREFIX = b"live-"


class Watch:
    """When records were appended and when a query's foreachBatch had them, in seconds of one clock."""

    def __init__(self, count: int) -> None:
        self.begun = [0.0] * count
        self.committed = [0.0] * count
        self._seen: dict[int, float] = {}
        self._news = threading.Condition()

    def take(self, values: Iterable[bytes]) -> None:
        """A micro-batch is here."""
        now = time.perf_counter()
        with self._news:
            for value in values:
                if value.startswith(_PREFIX):
                    self._seen.setdefault(int(value.removeprefix(_PREFIX)), now)
            self._news.notify_all()

    def wait(self, number: int, failure: Callable[[], object]) -> None:
        """Until a record was seen.

        Raises:
            Missing: it was not, within a minute, or the query failed.
        """
        deadline = time.monotonic() + PATIENCE_S
        with self._news:
            while number not in self._seen:
                self._news.wait(0.5)
                if error := failure():
                    raise Missing(str(error).splitlines()[0])
                if time.monotonic() > deadline:
                    raise Missing(f"record {number} was not seen within {PATIENCE_S:g} s")

    def timing(self, note: str) -> Timing:
        """Latency of every record but the first ones, from the append's beginning; the summary in milliseconds."""
        numbers = range(min(WARM, len(self.begun) // 2), len(self.begun))
        latencies = [self._seen[number] - self.begun[number] for number in numbers]
        commits = [self.committed[number] - self.begun[number] for number in numbers]
        details = {
            "records": float(len(latencies)),
            "p50_ms": _ms(statistics.median(latencies)),
            "p99_ms": _ms(sorted(latencies)[max(0, -(-99 * len(latencies) // 100) - 1)]),
            "max_ms": _ms(max(latencies)),
            "append_p50_ms": _ms(statistics.median(commits)),
        }
        shown = ", ".join(f"{name.replace('_ms', '')} {details[name]:g} ms" for name in ("p50_ms", "p99_ms", "max_ms"))
        return Timing(latencies, 1, f"{shown}; {note}", details=details)


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 1)


def quorum(session: Session, folder: Path, count: int) -> Timing:
    """A quorum of kraftcore nodes, read by our data source.

    Raises:
        Missing: it does not start, or its records are not seen.
    """
    (peer,) = (peer for peer in PEERS if peer.name == "kraftcore")
    with peer.start("load", folder) as cluster:
        cluster.ready()
        controllers = cluster.places[0].peers
        rows = session.spark.readStream.format("kraft").option("bootstrap_controllers", ",".join(controllers)).load()
        watch = Watch(count)

        def append(numbers: Iterable[int]) -> None:
            trio.run(_append, controllers, watch, numbers)

        _follow(rows, folder / "live-checkpoint", watch, append)
    return watch.timing("from the append's beginning to foreachBatch having the row; three processes, trigger 0 s")


async def _append(controllers: tuple[str, ...], watch: Watch, numbers: Iterable[int]) -> None:
    async with admin.connect(bootstrap_controllers=controllers) as client:
        for number in numbers:
            watch.begun[number] = time.perf_counter()
            await client.append([b"%s%d" % (_PREFIX, number)], client_id=1, sequence=number)
            watch.committed[number] = time.perf_counter()


def files(session: Session, folder: Path, count: int) -> Timing:
    """Small text files that are moved into a folder, which Spark watches itself: what its micro-batches cost.

    Raises:
        Missing: they are not seen.
    """
    place = folder / "live-files"
    place.mkdir()
    watch = Watch(count)

    def append(numbers: Iterable[int]) -> None:
        for number in numbers:
            file = folder / "live-next.txt"
            file.write_bytes(b"%s%d\n" % (_PREFIX, number))
            watch.begun[number] = time.perf_counter()
            file.rename(place / f"{number}.txt")
            watch.committed[number] = time.perf_counter()

    _follow(session.spark.readStream.text(str(place)), folder / "live-files-checkpoint", watch, append)
    return watch.timing("files moved into a folder; no Python worker, no quorum")


def _follow(rows: DataFrame, checkpoint: Path, watch: Watch, append: Callable[[Iterable[int]], None]) -> None:
    # Start the query, append record after record, see them all.
    def take(batch: DataFrame, _: int) -> None:
        watch.take(
            bytes(row.value) if isinstance(row.value, bytes | bytearray) else row.value.encode()
            for row in batch.select("value").collect()
        )

    query = rows.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(take).start()
    try:
        append(_paced(watch, query.exception))
        watch.wait(len(watch.begun) - 1, query.exception)
    finally:
        query.stop()


def _paced(watch: Watch, failure: Callable[[], object]) -> Iterable[int]:
    source = random.Random(inputs.SEED)
    for number in range(len(watch.begun)):
        yield number
        if number == 0:
            watch.wait(0, failure)  # the query runs
        time.sleep(source.uniform(*PAUSE_S))
