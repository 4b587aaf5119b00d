"""Damage copies of a broker's directory by seed, have Kafka open one and ours another; compare what they serve.

    python tests/twin/recovery.py --seeds 1..20

Ends with status 1 when there are differences. CONF_PATIENCE scales every deadline.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from broker_twin.directories import Directories
from broker_twin.recovery import Recovery
from broker_twin.recovery_rules import unexplained
from kafka_tools import KafkaTools


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="1", help="A..B, or a list with commas")
    parser.add_argument("--all", action="store_true", help="also what may differ")
    options = parser.parse_args()
    first, dots, last = options.seeds.partition("..")
    seeds = range(int(first), int(last) + 1) if dots else map(int, options.seeds.split(","))
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with Directories(KafkaTools(), place) as directories:
            recovery = Recovery(directories, place)
            for seed in seeds:
                found = recovery.run(seed)
                wrong = [each for each in found if options.all or unexplained(each)]
                count += len(wrong)
                print("\n".join([f"seed {seed}: {len(found)} logs differ", *map(str, wrong)]), flush=True)
    return bool(count)


if __name__ == "__main__":
    sys.exit(main())
