"""How much a case does."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """How much of each.

    Attributes:
        warm_s, measure_s: of a client that runs for a time.
        first_warm_s: of the first load on a cluster: a JVM has much to compile.
        perf_records: of Kafka's tool, of 100 bytes; a tenth of 1 KB.
        consumed: records of 100 bytes that each consumer reads.
        rate: records/s of the half load.
        among: partitions beside the one of ``single-among``.
        trials: starts and kills.
        settle_s: of load before a kill.
        uses_memory: free memory is taken up before each load, see ``memory``.
    """

    warm_s: float
    measure_s: float
    first_warm_s: float
    perf_records: int
    consumed: int
    rate: int = 50_000
    among: int = 1000
    trials: int = 3
    settle_s: float = 3.0
    uses_memory: bool = True


FULL = Sizes(warm_s=3.0, measure_s=10.0, first_warm_s=15.0, perf_records=2_000_000, consumed=3_000_000)
QUICK = Sizes(warm_s=2.0, measure_s=5.0, first_warm_s=8.0, perf_records=600_000, consumed=1_000_000, trials=1)
SMOKE = Sizes(
    warm_s=0.5,
    measure_s=1.0,
    first_warm_s=0.5,
    perf_records=2000,
    consumed=1000,
    rate=1000,
    among=100,
    trials=1,
    settle_s=0.5,
    uses_memory=False,
)
