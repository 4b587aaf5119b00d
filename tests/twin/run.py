"""Play scripts made from seeds on two controllers, and compare every answer and every record.

    python tests/twin/run.py --seeds 1..24 --steps 300            # Kafka beside kraftcore
    python tests/twin/run.py --seeds 7 --first --shrink           # the first difference, and the smallest script for it
    python tests/twin/run.py --fields --seeds 2 --steps 150       # bad values in every field of every request
    python tests/twin/run.py --replay found/seed7-1.json          # a saved one again
    python tests/twin/run.py --seeds 2,4,9 --right kafka --mutate all    # each planted fault must be found

Ends with status 1 when there are differences; each is saved with its script. CONF_PATIENCE scales every deadline.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from kafka_tools import KafkaTools
from twin import fields, proxy, report
from twin.generate import generate
from twin.session import Session

SHOWN = 20  # differences in full, of one script
REPORT_EVERY_S = 5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="1", help="A..B, or a list with commas")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--replay", type=Path, help="a saved script or difference, instead of seeds")
    parser.add_argument("--left", choices=["kafka", "kraftcore"], default="kafka")
    parser.add_argument("--right", choices=["kafka", "kraftcore"], default="kraftcore")
    parser.add_argument("--mutate", choices=["all", *proxy.MUTATIONS], help="break the right side on purpose")
    parser.add_argument("--fields", action="store_true", help="with bad values in every field of every request")
    parser.add_argument(
        "--no-authorizer", action="store_true", help="requests about access then answer SECURITY_DISABLED"
    )
    parser.add_argument("--ignore", action="append", default=[], help="leave out differences whose sign has this text")
    parser.add_argument("--hard", action="store_true", help="leave out error messages and the bounds of batches")
    parser.add_argument("--first", action="store_true", help="stop at the first difference")
    parser.add_argument("--shrink", action="store_true", help="look for the smallest script of the first difference")
    parser.add_argument("--save", type=Path, default=Path("found"), help="where differences are saved")
    parser.add_argument("--coverage", action="store_true", help="which error codes and record types were met")
    parser.add_argument("--print-script", action="store_true", help="print the scripts and do nothing else")
    options = parser.parse_args()
    if options.print_script:
        for _, script in scripts(options):
            print(json.dumps(script, indent=1))
        return 0
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that the controllers go, too
    try:
        if options.mutate == "all":
            missed = [name for name in proxy.MUTATIONS if not is_caught(options, name)]
            print(f"missed: {', '.join(missed) or 'none'} of {len(proxy.MUTATIONS)}")
            return bool(missed)
        return compare(options)
    except KeyboardInterrupt:
        return 130


def scripts(options):
    """Names and scripts."""
    if options.replay:
        data = json.loads(options.replay.read_text())
        yield options.replay.stem, data.get("script", data)
        return
    first, dots, last = options.seeds.partition("..")
    seeds = range(int(first), int(last) + 1) if dots else map(int, options.seeds.split(","))
    for seed in seeds:
        if options.fields:
            yield f"fields{seed}", fields.script(seed, options.steps)
        else:
            yield f"seed{seed}", generate(seed, options.steps, not options.no_authorizer)


def session(options, folder, mutation=None):
    kafka = KafkaTools() if "kafka" in (options.left, options.right) else None
    return Session(Path(folder), kafka, (options.left, options.right), mutation=mutation)


def is_caught(options, mutation):
    """Whether a seed shows a planted fault."""
    with tempfile.TemporaryDirectory() as folder, session(options, folder, mutation) as twins:
        for name, script in scripts(options):
            found, _ = twins.run(script, lambda _: True)
            if found:
                print(f"{mutation:<22} caught at step {found[0].step} of {name}: {found[0].sign}", flush=True)
                return True
    print(f"{mutation:<22} MISSED", flush=True)
    return False


def compare(options):
    codes, record_types, status = Counter(), Counter(), 0
    with tempfile.TemporaryDirectory() as folder, session(options, folder, options.mutate) as twins:

        def counts(difference):
            return not (options.hard and difference.soft) and not any(
                text in difference.sign for text in options.ignore
            )

        shown = 0.0

        def progress(step, total, found):
            nonlocal shown
            if time.monotonic() - shown > REPORT_EVERY_S and sys.stderr.isatty():
                shown = time.monotonic()
                print(f"  step {step}/{total}, {sum(map(counts, found))} differences", file=sys.stderr, flush=True)

        for name, script in scripts(options):
            found, pair = twins.run(script, counts if options.first else None, progress)
            found = [d for d in found if counts(d) and not fields.is_better(script, d)]
            codes += pair.codes
            record_types += pair.record_types
            steps = len(script["steps"])
            kinds = report.signs(found)
            print(
                f"{name}: {steps} steps in {pair.seconds:.0f} s, {len(found)} differences of {len(kinds)} kinds",
                flush=True,
            )
            for k, (d, times) in enumerate(kinds):
                print(f"\n{'=' * 8} x{times}  {d.sign}")
                print(twins.explain(script, d) if k < SHOWN else "  (not shown)")
                print(f"  saved      {save(options.save, f'{name}-{k + 1}', d, script)}")
            status |= bool(found)
            if found and options.shrink:
                first = next((d for d in found if not d.soft), found[0])
                print(f"\nshrinking: {first.sign}", flush=True)
                small, d = twins.smallest(
                    script, first.sign, lambda text: print("  " + text, file=sys.stderr, flush=True)
                )
                if small is None:
                    continue
                print(f"smallest script: {len(small['steps'])} of {steps} steps\n{report.listing(small)}")
                print(twins.explain(small, d))
                print(f"  saved      {save(options.save, f'{name}-small', d, small)}", flush=True)
    if options.coverage:
        print("\n" + report.coverage(codes, record_types))
    return status


def save(folder, name, difference, script):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    seen = None
    if getattr(difference, "outcomes", None):
        sides = zip(("left", "right"), difference.outcomes, strict=True)
        seen = {side: {"answer": o.answer, "messages": o.messages, "records": o.records} for side, o in sides}
    path.write_text(
        json.dumps({"difference": difference.json(), "outcomes": seen, "script": script}, indent=1, default=str)
    )
    return path


if __name__ == "__main__":
    sys.exit(main())
