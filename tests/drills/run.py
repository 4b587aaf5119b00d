"""Drills of whole clusters: ``python tests/drills/run.py --seconds 300``.

Three kraftcore controllers (``kraftcore server``), three unmodified Kafka brokers, Kafka's producers, consumers and
tools, all on loopback; needs Java and about 3 GiB of memory. A line a drill; ends with status 1 at the first one in
which a promise was broken, and leaves its directory for whoever looks for the reason.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from broken import Broken
from drills.cluster import Cluster
from drills.mixed import MixedVerdict, mixed_rounds
from drills.replacement import replace_and_return
from drills.verdict import Verdict
from drills.work import DRILLS
from kafka_tools import KafkaTools

REPLACEMENT, MIXED = "replacement", "mixed-brokers"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*DRILLS, REPLACEMENT, MIXED]
    parser.add_argument("--drill", action="append", choices=names, help="only this one; repeatable")
    parser.add_argument("--seconds", type=float, default=300.0, help="how long the active controller is killed")
    parser.add_argument("--rounds", type=int, default=50, help="of faults at brokers of Kafka and ours")
    parser.add_argument("--seed", type=int, help="run the drills in another order, drawn from this")
    parser.add_argument("--json", action="store_true", help="an object a drill instead of a line")
    options = parser.parse_args()
    wanted = options.drill or names
    folder = Path(tempfile.mkdtemp(prefix="kraftcore-drills-"))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        run(wanted, folder, options)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        (folder / "failure").write_text(traceback.format_exc())  # with the ends of all nodes' logs
        print(f"BROKEN: {type(error).__name__}: {error}".partition("\n--- ")[0] + f"\nsee {folder}", flush=True)
        return 1
    shutil.rmtree(folder)
    return 0


def run(wanted: list[str], folder: Path, options: argparse.Namespace) -> None:
    """The drills of one cluster, then those that have their own."""
    kafka = KafkaTools()
    order = [name for name in DRILLS if name in wanted]
    if options.seed is not None:
        Random(options.seed).shuffle(order)
    if order:
        release = "4.0" if "features" in order else "4.3"
        home = folder / "cluster"
        home.mkdir()
        with Cluster(kafka, home, release) as cluster:
            for name in order:
                report(name, options, lambda name=name: _on(cluster, name, options.seconds))
    if REPLACEMENT in wanted:
        home = folder / REPLACEMENT
        home.mkdir()
        report(REPLACEMENT, options, lambda: replace_and_return(kafka, home))
    if MIXED in wanted:
        for is_ours, rounds in ((True, (options.rounds + 1) // 2), (False, options.rounds // 2)):
            home = folder / f"{MIXED}-{is_ours}"
            home.mkdir()
            drill = partial(mixed_rounds, kafka, home, rounds, options.seed or 0, is_ours=is_ours)
            report(MIXED, options, drill)


def _on(cluster: Cluster, name: str, seconds: float) -> Verdict:
    DRILLS[name](cluster, seconds)
    return cluster.check()


def report(name: str, options: argparse.Namespace, drill: Callable[[], Verdict | MixedVerdict]) -> None:
    """Run one, and say how it went."""
    begin = time.monotonic()
    if not options.json:
        print(f"{name} ...", end=" ", flush=True)
    try:
        verdict = drill()
    except Broken as error:
        raise Broken(f"{name}: {error}") from error
    took = time.monotonic() - begin
    if options.json:
        print(json.dumps({"drill": name, **vars(verdict), "seconds": round(took, 1)}), flush=True)
    else:
        print(f"{verdict}; {took:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
