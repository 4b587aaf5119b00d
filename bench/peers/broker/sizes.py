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
        warm_rounds, rounds: of topics that are made and made again; the first ones are not counted.
        some, wide: partitions of ``topic-64`` and ``topic-1000``, and of what is made again.
        topics: of one partition, made in one request.
        deletions: of a topic of ``some`` partitions, before ``again-64-late``.
        opened: partitions of the broker that is started.
        session_s: between the end of a broker and its start: more than ``broker.session.timeout.ms``.
        rest_s: clusters are at rest when they were for so long.
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
    warm_rounds: int = 3
    rounds: int = 5
    some: int = 64
    wide: int = 1000
    topics: int = 1000
    deletions: int = 100
    opened: int = 10_000
    session_s: float = 7.0
    rest_s: float = 1.0
    uses_memory: bool = True


FULL = Sizes(warm_s=3.0, measure_s=10.0, first_warm_s=15.0, perf_records=2_000_000, consumed=3_000_000)
QUICK = Sizes(
    warm_s=2.0,
    measure_s=5.0,
    first_warm_s=8.0,
    perf_records=600_000,
    consumed=1_000_000,
    trials=1,
    warm_rounds=2,
    rounds=2,
    wide=200,
    topics=200,
    deletions=20,
    opened=2000,
)
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
    warm_rounds=0,
    rounds=1,
    some=4,
    wide=8,
    topics=5,
    deletions=2,
    opened=20,
    session_s=0.0,
    rest_s=0.1,
    uses_memory=False,
)
