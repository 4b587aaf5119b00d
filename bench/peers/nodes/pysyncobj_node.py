"""A node of PySyncObj with a journal file; three of these processes form a cluster.

PySyncObj never flushes its journal, and has no setting for it: what it acknowledged survives a killed process, but
not a power cut. ``--msync`` adds a flush after each appended entry; that is our patch, no feature of the library.
"""

from __future__ import annotations

import argparse
import logging
import threading
import time
from pathlib import Path
from typing import Any

from pysyncobj import SyncObj, SyncObjConf, journal, replicated  # type: ignore[import-not-found]

from bench.peers.nodes import control


class Counter(SyncObj):  # type: ignore[misc]
    """The state machine counts, as everybody's does."""

    def __init__(self, own: str, others: list[str], settings: SyncObjConf) -> None:
        self.count = 0
        super().__init__(own, others, settings)

    @replicated  # type: ignore[untyped-decorator]
    def put(self, value: bytes) -> int:
        self.count += 1
        return self.count


class Load:
    """A closed loop by callbacks, in the library's own thread: a waiting thread per caller would only slow it down."""

    def __init__(self, counter: Counter, request: dict[str, Any]) -> None:
        self.counter = counter
        self.value = control.value(request["value_bytes"])
        self.batch = request["batch"]
        self.latencies_s: list[float] = []
        self.errors = 0
        self.measuring = False
        self.stopped = False

    def propose(self) -> None:
        """Propose a batch; when its last value is applied, propose the next."""
        begin = time.perf_counter()
        waiting = self.batch
        failed = False

        def done(result: object, error: int) -> None:
            nonlocal waiting, failed
            waiting -= 1
            failed = failed or error != 0
            if waiting or self.stopped:
                return
            if failed:
                self.errors += 1
                threading.Timer(0.001, self.propose).start()
                return
            if self.measuring:
                self.latencies_s.append(time.perf_counter() - begin)
            self.propose()

        for _ in range(self.batch):
            self.counter.put(self.value, callback=done)

    def run(self, request: dict[str, Any]) -> control.Answer:
        for _ in range(request["in_flight"]):
            self.propose()
        time.sleep(request["warm_s"])
        begin = time.perf_counter()
        self.measuring = True
        time.sleep(request["measure_s"])
        self.measuring, self.stopped = False, True
        return control.summary(self.latencies_s, self.errors, time.perf_counter() - begin)


def propose_once(counter: Counter, timeout_s: float) -> bool:
    """Propose one value and wait for it."""
    applied = threading.Event()
    errors: list[int] = []

    def done(result: object, error: int) -> None:
        errors.append(error)
        applied.set()

    counter.put(b"try", callback=done)
    return applied.wait(timeout_s) and errors[0] == 0


def flush_every_entry() -> None:
    """Make the journal durable before the library goes on."""
    add = journal.FileJournal.add

    def add_and_flush(self: journal.FileJournal, *entry: object) -> None:
        add(self, *entry)
        self.flush()

    journal.FileJournal.add = add_and_flush


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--id", type=int, required=True)
    parser.add_argument("--peers", required=True)
    parser.add_argument("--control", required=True)
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--msync", action="store_true")
    parser.add_argument("--batch", action="store_true", help="the library's default: entries wait for its 50 ms tick")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    options.dir.mkdir(parents=True)
    if options.msync:
        flush_every_entry()
    peers = options.peers.split(",")
    own = peers.pop(options.id)
    settings = SyncObjConf(journalFile=str(options.dir / "journal"), appendEntriesUseBatch=options.batch)
    counter = Counter(own, peers, settings)

    def handle(request: dict[str, Any]) -> control.Answer:
        if request["op"] == "status":
            return {"leader": bool(counter._isLeader())}
        if request["op"] == "try":
            return {"ok": propose_once(counter, request["timeout_ms"] / 1000)}
        return Load(counter, request).run(request)

    control.serve(options.control, handle)


if __name__ == "__main__":
    main()
