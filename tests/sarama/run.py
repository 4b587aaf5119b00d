"""sarama's functional tests at Kafka and at ours: ``python tests/sarama/run.py --busy 2``.

sarama is a Kafka client in Go. Its tests that need neither transactions nor a proxy that cuts connections run one after
the other, each a process of its own, at three brokers of Kafka and at ``kraftcore up --brokers 3``, by turns, all on
loopback. Needs Go, Java and Maven. A line a test; ends with status 1 if one passes with Kafka and fails with ours, and
then leaves the directory with what each test printed.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import signal
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from sarama import clusters
from sarama.module import LEFT_OUT, Sarama
from sarama.toxiproxy import Toxiproxy
from sarama.turns import FAILED, PASSED, Outcome, busy, run_test

KAFKA, OURS = "kafka", "kraftcore"
CLUSTERS = {KAFKA: clusters.kafka, OURS: clusters.kraftcore}


def main() -> int:
    left_out = f"Left out are tests that need {', '.join(LEFT_OUT)}."
    parser = argparse.ArgumentParser(description=f"{__doc__}\n{left_out}")
    parser.add_argument("--test", default="", metavar="REGEX", help="only those whose names have a match")
    parser.add_argument("--target", action="append", choices=CLUSTERS, help="only this cluster")
    parser.add_argument("--busy", type=int, default=0, metavar="N", help="beside N processes that are never idle")
    parser.add_argument("--json", action="store_true", help="an object a test instead of a line")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sarama = Sarama()
    names = [name for name in sarama.names if re.search(options.test, name)]
    folder = Path(tempfile.mkdtemp(prefix="kraftcore-sarama-"))
    targets = options.target or list(CLUSTERS)
    try:
        found = run(sarama, names, targets, folder, options)
    except KeyboardInterrupt:
        return 130
    if not options.json:
        report(found, targets)
    if any(map(is_broken, found.values())):
        print(f"see {folder}", file=sys.stderr)
        return 1
    shutil.rmtree(folder)
    return 0


def run(
    sarama: Sarama, names: list[str], targets: list[str], folder: Path, options: argparse.Namespace
) -> dict[str, dict[str, Outcome]]:
    """Each test at each cluster, which come first by turns."""
    found: dict[str, dict[str, Outcome]] = {}
    with ExitStack() as stack:
        proxy = stack.enter_context(Toxiproxy())
        ports = {}
        for target in targets:
            home = folder / target
            home.mkdir()
            ports[target] = stack.enter_context(CLUSTERS[target](home))
        stack.enter_context(busy(options.busy))
        for number, name in enumerate(names):
            outcomes = {}
            for target in targets if number % 2 == 0 else targets[::-1]:
                proxy.brokers = ports[target]
                outcomes[target] = run_test(sarama, proxy, name, folder / f"{name}-{target}.txt")
            found[name] = {target: outcomes[target] for target in targets}
            if options.json:
                shown = {target: asdict(outcome) for target, outcome in found[name].items()}
                print(json.dumps({"test": name, "busy": options.busy, **shown}), flush=True)
            else:
                print(line_of(name, found[name]), flush=True)
    return found


def line_of(name: str, outcomes: dict[str, Outcome]) -> str:
    return f"{name:52}" + "".join(
        f"  {target} {outcome.result:7}{outcome.seconds:6.1f} s" for target, outcome in outcomes.items()
    )


def is_broken(outcomes: dict[str, Outcome]) -> bool:
    """Whether a test fails with ours and passes with Kafka, if that was asked."""
    ours, kafka = outcomes.get(OURS), outcomes.get(KAFKA)
    return ours is not None and ours.result == FAILED and (kafka is None or kafka.result == PASSED)


def report(found: dict[str, dict[str, Outcome]], targets: list[str]) -> None:
    """Print why tests failed, how many passed, and which fail with ours alone."""
    print()
    for name, outcomes in found.items():
        for target, outcome in outcomes.items():
            if outcome.result == FAILED:
                print(f"{name} fails with {target}: {outcome.reason}")
    passed = {target: sum(outcomes[target].result == PASSED for outcomes in found.values()) for target in targets}
    sums = ", ".join(f"{count} with {target}" for target, count in passed.items())
    print(f"of {len(found)} tests pass {sums}")
    broken = [name for name, outcomes in found.items() if is_broken(outcomes)]
    print(f"those that fail with {OURS} alone: {', '.join(broken) or 'none'}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
