"""Rounds of faults against real node processes: ``python tests/faults/run.py --rounds 50 --seed 1``.

Prints a line a round and the sum; ends with status 1 at the first round in which a promise was broken, and leaves its
directory for whoever looks for the reason. ``--abuse``: how much a quorum commits under 10,000 hostile connections.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path

import trio

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from faults.abuse import run_siege
from faults.rounds import Broken, run_round


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    parser.add_argument("--seconds", type=float, default=8.0, help="how long things go wrong in a round")
    parser.add_argument("--abuse", action="store_true", help="abuse a plain and a TLS quorum instead")
    options = parser.parse_args()
    return abuse() if options.abuse else rounds(options.seed, options.rounds, options.seconds)


def abuse() -> int:
    for tls in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            figures = run_siege(Path(folder), tls=tls, windows=4, window_s=6.0, connections=10_000, in_flight=64)
        print(f"{'TLS' if tls else 'plain'}: {figures}", flush=True)
    return 0


def rounds(first: int, count: int, seconds: float) -> int:
    total: Counter[str] = Counter()
    recoveries: list[float] = []
    for seed in range(first, first + count):
        folder = Path(tempfile.mkdtemp(prefix=f"kraftcore-faults-{seed}-"))
        begin = time.monotonic()
        try:
            report = trio.run(partial(run_round, seed, folder, seconds))
        except (Broken, AssertionError) as error:
            print(f"seed {seed}: BROKEN: {error}\nsee {folder}")
            return 1
        shutil.rmtree(folder)
        total += report.counts
        recoveries.append(report.recovery_s)
        print(f"{report}; {time.monotonic() - begin:.0f} s", flush=True)
    counts = ", ".join(f"{name} {count}" for name, count in sorted(total.items()))
    print(f"{count} rounds, 0 broken: {counts}; slowest recovery {max(recoveries):.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
