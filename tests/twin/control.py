"""Play scripts of a controller of the ZooKeeper era, and of clients, on Kafka 3.9.1 and on a broker of ours.

    python tests/twin/control.py --libs FOLDER --seeds 1..20 --steps 300

FOLDER holds the jars of org.apache.kafka:kafka_2.13:3.9.1, its ZooKeeper and slf4j-reload4j. Ends with status 1 when
there are differences.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from broker_twin.control import Rule, is_of_its_release
from broker_twin.pair import hard


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--libs", type=Path, required=True)
    parser.add_argument("--seeds", default="1", help="A..B, or a list with commas")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--shown", type=int, default=1, help="differences of one kind in full")
    options = parser.parse_args()
    first, dots, last = options.seeds.partition("..")
    seeds = range(int(first), int(last) + 1) if dots else map(int, options.seeds.split(","))
    signs: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder, Rule(options.libs, Path(folder)) as rule:
        for seed in seeds:
            found = [each for each in hard(rule.run(seed, options.steps)) if not is_of_its_release(each)]
            print(f"seed {seed}: {options.steps} steps, {len(found)} differences", flush=True)
            for each in found:
                signs[each.sign] += 1
                if signs[each.sign] <= options.shown:
                    print(f"  {each}", flush=True)
        print(dict(rule.codes))
    for sign, count in signs.most_common():
        print(f"{count:5} {sign}")
    return bool(signs)


if __name__ == "__main__":
    sys.exit(main())
