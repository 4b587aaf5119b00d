"""Runs of a fleet on a cluster of Spark's, tables on an object store, whose driver, executors and workers are killed.

What counts in the end is compared row by row with an undisturbed run of this process on a local folder.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from broken import Broken
from fleet import Fleet, comparable
from object_store import BUCKET, ObjectStore, jars
from spark_cluster import Standalone, kill_process
from spark_parts import counted_rows

from kraftcore.plugins import spark as kraft
from kraftcore.plugins.spark.commits import RUNS, Commits
from kraftcore.plugins.spark.folders import StoreFolder

DRIVER, EXECUTOR, WORKER = "driver", "executor", "worker"
WORKERS = 2


@dataclass(frozen=True)
class Kill:
    """One process is killed in mid-run.

    Attributes:
        victim: ``driver``, ``executor`` or ``worker``.
        commits: so many steps the run has committed by then.
        after_s: so many seconds later.
    """

    victim: str
    commits: int = 0
    after_s: float = 0.0


class Disturbed:
    """Tables of a fleet that runs on a cluster make.

    Args:
        cluster: where.
        store: where inputs and tables are.
        fleet: what is taken in.
        place: folder in the store.
        batch_bytes: of one micro-batch: many steps, so that kills meet some.

    Attributes:
        killed: processes killed while a run was at work, by kind.
        rows: compared so far.
        left: files of no state, which clean-ups deleted.
    """

    def __init__(self, cluster: Standalone, store: ObjectStore, fleet: Fleet, place: str, batch_bytes: int) -> None:
        self._cluster = cluster
        self._store = store
        self._fleet = fleet
        self._place = place
        self._options = (f"range_bytes={batch_bytes}", f"max_bytes_per_trigger={batch_bytes}")
        self.killed: Counter[str] = Counter()
        self.rows = self.left = 0
        scratch = cluster.folder / "scratch"
        scratch.mkdir(exist_ok=True)
        self._conf = {
            "spark.driver.extraClassPath": ":".join(map(str, jars())), "spark.local.dir": str(scratch),
            "spark.hadoop.fs.s3a.buffer.dir": str(scratch),
        } | {f"spark.hadoop.{name}": value for name, value in store.hadoop.items()}  # fmt: skip
        store.upload(fleet.folder, f"{place}/in")

    def grow(self, names: list[str]) -> None:
        """Let clusters' logs grow."""
        self._fleet.grow(names)
        self._store.upload(self._fleet.folder, f"{self._place}/in")

    def run(self, kills: Sequence[Kill]) -> bool:
        """Run, and kill meanwhile, in this order.

        Returns:
            Whether the run ended well; False: its driver was killed.

        Raises:
            Broken: it ended with an error, or what it made is not what an undisturbed run makes.
        """
        self._cluster.add_workers(WORKERS - len(self._cluster.workers()))
        options = [part for option in self._options for part in ("--option", option)]
        run = self._cluster.run(
            f"s3a://{BUCKET}/{self._place}/tables", [f"s3://{BUCKET}/{self._place}/in"], self._conf, *options
        )
        try:
            begun, there = self._next_commit(), self._names()
            for kill in kills:
                wanted = begun + kill.commits
                if not run.until(lambda wanted=wanted: self._next_commit() >= wanted and self._names() - there):
                    break
                time.sleep(kill.after_s)
                if run.is_over or not self._kill(kill.victim, run):
                    continue
                self.killed[kill.victim] += 1
                if kill.victim == DRIVER:
                    return False
            if run.wait() != 0:
                raise Broken(f"a run failed: {run.said()[-3000:]}")
        finally:
            run.kill()
        return True

    def _kill(self, victim: str, run: Any) -> bool:
        if victim == DRIVER:
            run.kill()
        elif victim == WORKER:
            self._cluster.kill_worker(self._cluster.workers()[-1])
            self._cluster.add_workers(1)
        else:
            executors = self._cluster.executors()
            if not executors:
                return False
            kill_process(executors[-1])
        return True

    def _names(self) -> set[str]:
        # The files of tables and the rows of commits, without logs.
        names = self._store.names(f"{self._place}/tables")
        return {name for name in names if name.endswith(".parquet") and "/_delta_log/" not in name}

    def _next_commit(self) -> int:
        names = self._store.names(f"{self._place}/tables/{RUNS}/_delta_log")
        return max((int(name[:20]) + 1 for name in names if re.fullmatch(r"\d{20}\.json", name)), default=0)

    def check(self, home: Path) -> None:
        """Compare what counts with undisturbed runs, one after each growth, as here: a segment that was read while it
        ended inside a batch is of another generation from there on.

        Args:
            home: those runs' tables.

        Raises:
            Broken: a row is missing, or there twice, or a file that no commit names is left after a clean-up.
        """
        kraft.run(_no_spark, [self._fleet.folder], home)
        wanted = comparable(counted_rows(home))
        found = comparable(self._store.rows(f"{self._place}/tables"))
        if found.keys() != wanted.keys():
            raise Broken(f"tables {sorted(found.keys() ^ wanted.keys())}")
        for table, clusters in wanted.items():
            for cluster in clusters.keys() | found[table].keys():
                rows, others = clusters.get(cluster, Counter()), found[table].get(cluster, Counter())
                if rows != others:
                    raise Broken(f"{table} of {cluster}: lost {rows - others}, more than once {others - rows}")
                self.rows += rows.total()
        # Nobody else is at work, so all that is of no state may go.
        place = f"s3a://{BUCKET}/{self._place}/tables"
        commits = Commits(StoreFolder(place))
        left = self._names() - commits.last().names()
        self.left += sum(not name.startswith(f"{RUNS}/") for name in left)
        commits.clean(0)
        files = {name for name in self._names() if not name.startswith(f"{RUNS}/")}
        if files != commits.last().names():
            raise Broken(f"files of nobody: {sorted(files ^ commits.last().names())[:5]}")
        if len(self._names() - files) != 1:
            raise Broken(f"rows of forgotten states: {sorted(self._names() - files)}")
        if comparable(self._store.rows(f"{self._place}/tables")) != wanted:
            raise Broken("a clean-up has changed what counts")


def _no_spark() -> Any:
    raise AssertionError("so little is done without Spark")


def disturbed_by_seed(cluster: Standalone, store: ObjectStore, folder: Path, seed: int) -> Disturbed:
    """A fleet that is taken in, grows and is taken in again, each time with random kills until a run ends by itself.

    Raises:
        Broken: a promise was not kept.
    """
    random = Random(seed)
    fleet = Fleet(folder / "in", random.randint(3, 8))
    found = Disturbed(cluster, store, fleet, f"seed-{seed}", random.choice((3072, 4096, 8192)))
    for stage in range(2):
        if stage:
            found.grow(random.sample(fleet.names, random.randint(1, len(fleet.names))))
        drivers = random.randint(1, 2)
        while not found.run(_plan(random, with_driver=drivers > 0)):
            drivers -= 1
        found.check(folder / "undisturbed")
    return found


def _plan(random: Random, *, with_driver: bool) -> list[Kill]:
    victims = random.choices((EXECUTOR, WORKER), (3, 1), k=random.randint(0, 3)) + [DRIVER] * with_driver
    commits = sorted(random.randint(0, 6) for _ in victims)
    return [Kill(*one, random.uniform(0, 0.8)) for one in zip(victims, commits, strict=True)]
