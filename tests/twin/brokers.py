"""Play scripts of clients' requests, made from seeds, on a broker of Kafka and on one of ours; compare every answer.

    python tests/twin/brokers.py --seeds 1..20 --steps 400

Ends with status 1 when there are differences. CONF_PATIENCE scales every deadline.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from broker_twin.pair import Pair, hard
from kafka_tools import KafkaTools


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="1", help="A..B, or a list with commas")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--texts", action="store_true", help="texts for people, too")
    parser.add_argument("--shown", type=int, default=2, help="differences of one kind in full")
    parser.add_argument("--coverage", action="store_true", help="which error codes were met")
    options = parser.parse_args()
    first, dots, last = options.seeds.partition("..")
    seeds = range(int(first), int(last) + 1) if dots else map(int, options.seeds.split(","))
    signs: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder, Pair(KafkaTools(), Path(folder)) as pair:
        for seed in seeds:
            found = pair.run(seed, options.steps)
            found = found if options.texts else hard(found)
            print(f"seed {seed}: {options.steps} steps, {len(found)} differences", flush=True)
            for each in found:
                signs[each.sign] += 1
                if signs[each.sign] <= options.shown:
                    print(f"  {each}", flush=True)
        if options.coverage:
            for (kind, code), count in sorted(pair.codes.items()):
                print(f"{kind:20} {code:4} {count}")
    for sign, count in signs.most_common():
        print(f"{count:5} {sign}")
    return bool(signs)


if __name__ == "__main__":
    sys.exit(main())
