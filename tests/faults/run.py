"""Rounds of faults against real node processes: ``python tests/faults/run.py --rounds 50 --seed 1``.

Prints a line a round and the sum; ends with status 1 at the first round in which a promise was broken, and leaves its
directory for whoever looks for the reason. ``--abuse``: what a quorum of three processes commits, and the most memory
that one of them takes, in windows without and with hostile connections, 10,000 of each kind; ``standing``: half-open
logins that stay, all there before a window begins. ``--frames N``: so many
frames that are almost sound, at a controller, drawn from ``--seed``; a line after each tenth. ``--handshakes N``: the
same with logins at a listener with SASL. ``--broker-abuse``: as ``--abuse``, of three brokers that acknowledge with
acks=all: what they acknowledge, and the most memory that one of them takes.

They come from this process, whose share of a core is shown: on a machine of few cores the quorum lacks it. "us each"
is what a connection costs the nodes, microseconds of processor time beyond what their commits take.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path

import trio

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from broken import Broken
from faults.abuse import STANDING, Figures, run_siege
from faults.broker_siege import run_broker_siege
from faults.frames import run_frames
from faults.handshakes import run_handshakes
from faults.rounds import run_round
from kafka_tools import KafkaTools

QUORUMS = ("plain", "TLS", "SASL", STANDING)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    parser.add_argument("--seconds", type=float, default=8.0, help="how long things go wrong in a round")
    parser.add_argument("--abuse", action="store_true", help="abuse quorums instead: plain, with TLS, with SASL")
    parser.add_argument("--quorum", action="append", choices=QUORUMS, help="with --abuse, only this; may be repeated")
    parser.add_argument("--connections", type=int, default=10_000, help="of each kind of abuse")
    parser.add_argument("--window", type=float, default=2.0, help="seconds of one window, without abuse or with it")
    parser.add_argument("--windows", type=int, default=8, help="of both, for each kind")
    parser.add_argument("--in-flight", type=int, default=64, help="proposals at a time")
    parser.add_argument("--json", action="store_true", help="figures of abuse also as JSON, a line a kind")
    parser.add_argument("--frames", type=int, default=0, help="send so many spoilt frames to a controller instead")
    parser.add_argument("--handshakes", type=int, default=0, help="try so many spoilt logins at a controller instead")
    parser.add_argument("--broker-abuse", action="store_true", help="abuse three brokers instead")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if options.frames:
            return frames(options.seed, options.frames)
        if options.handshakes:
            return handshakes(options.seed, options.handshakes)
        if options.broker_abuse:
            return broker_abuse(options)
        return abuse(options) if options.abuse else rounds(options.seed, options.rounds, options.seconds)
    except KeyboardInterrupt:
        return 130


def abuse(options: argparse.Namespace) -> int:
    about = (__doc__ or "").partition("``--abuse``: ")[2]
    print(about[:1].upper() + about[1:])
    for name in options.quorum or QUORUMS:
        with tempfile.TemporaryDirectory() as folder:
            found = run_siege(
                Path(folder),
                tls=name == "TLS",
                sasl=name in ("SASL", STANDING),
                standing=name == STANDING,
                windows=options.windows,
                window_s=options.window,
                connections=options.connections,
                in_flight=options.in_flight,
            )
        print(f"A {name} quorum:\n{Figures.HEAD}", *found, sep="\n", flush=True)
        if options.json:
            for figures in found:
                print(json.dumps({"quorum": name, **figures.row()}), flush=True)
    return 0


def broker_abuse(options: argparse.Namespace) -> int:
    folder = Path(tempfile.mkdtemp(prefix="kraftcore-brokers-"))
    try:
        found = run_broker_siege(
            folder, windows=options.windows, window_s=options.window, connections=options.connections
        )
    except Broken as error:
        print(f"BROKEN: {error}\nsee {folder}")
        return 1
    shutil.rmtree(folder)
    print(f"Three brokers, records acknowledged with acks=all:\n{Figures.HEAD}", *found, sep="\n", flush=True)
    if options.json:
        for figures in found:
            print(json.dumps({"brokers": 3, **figures.row()}), flush=True)
    return 0


def frames(seed: int, count: int) -> int:
    folder = Path(tempfile.mkdtemp(prefix=f"kraftcore-frames-{seed}-"))
    try:
        report = run_frames(KafkaTools(), folder, seed, count, 10, lambda report: print(report, flush=True))
    except Broken as error:
        print(f"seed {seed}: BROKEN: {error}\nsee {folder}")
        return 1
    shutil.rmtree(folder)
    print(f"{report.frames} frames, none without an answer or an end")
    return 0


def handshakes(seed: int, count: int) -> int:
    folder = Path(tempfile.mkdtemp(prefix=f"kraftcore-handshakes-{seed}-"))
    try:
        report = run_handshakes(folder, seed, count, 10, lambda report: print(report, flush=True))
    except Broken as error:
        print(f"seed {seed}: BROKEN: {error}\nsee {folder}")
        return 1
    shutil.rmtree(folder)
    print(f"{report.logins} logins, none without an answer or an end, nobody let in without a right to")
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
