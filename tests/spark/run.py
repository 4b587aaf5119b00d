"""Kills by seed on a cluster of Spark's: ``python tests/spark/run.py --seeds 1..10``.

A standalone master and two workers, tables on an object store. A seed makes a fleet that is taken in, grows, and is
taken in again; meanwhile drivers, executors and workers get SIGKILL at random moments, until a run ends by itself. Then
all rows that count are compared with an undisturbed run. Prints a line a seed and the sum; ends with status 1 at the
first row that was lost or doubled, and leaves the directory. Where a process of Spark's does not come up, as on a
machine that has too much to do, nothing was found out: status 2.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from broken import Broken
from object_store import object_store
from spark_cluster import NotStartedError, standalone
from spark_kills import disturbed_by_seed

from kraftcore.plugins.spark.startup import find_java


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="1..10", metavar="FIRST..LAST", help="one, or a span of them")
    options = parser.parse_args()
    first, _, last = options.seeds.partition("..")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="kraftcore-spark-kills-"))
    find_java()
    killed: Counter[str] = Counter()
    rows = left = 0
    at = "before the first seed"
    try:
        with object_store() as store, standalone(folder / "cluster", store.environment) as cluster:
            os.environ.update(store.environment)
            for seed in range(int(first), int(last or first) + 1):
                begun, at = time.monotonic(), f"seed {seed}"
                found = disturbed_by_seed(cluster, store, folder / f"seed-{seed}", seed)
                killed += found.killed
                rows += found.rows
                left += found.left
                text = ", ".join(f"{count} {name}" for name, count in sorted(found.killed.items()))
                text += f"; {found.rows} rows, {found.left} files left, {time.monotonic() - begun:.0f} s"
                print(f"seed {seed}: killed {text}", flush=True)
    except KeyboardInterrupt:
        return 130
    except Broken as error:
        print(f"{at}: BROKEN: {error}\nsee {folder}", flush=True)
        return 1
    except NotStartedError as error:
        print(f"{at}: nothing found out: {error}\nsee {folder}", flush=True)
        return 2
    shutil.rmtree(folder)
    print(f"killed {dict(killed)}; {rows} rows, none lost, none doubled; {left} files left and cleaned up")
    return 0


if __name__ == "__main__":
    sys.exit(main())
