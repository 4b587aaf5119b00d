"""Short forms of the drills on one cluster, and whether the verdict notices what it must."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from broken import Broken
from drills.cluster import Cluster
from drills.load import At, Told, judge
from drills.mixed import first_loss
from drills.work import DRILLS
from kafka_tools import KafkaTools

from kraftcore.core.batch import build_batch

SECONDS = 20.0


@pytest.fixture(scope="module")
def cluster(kafka: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Begins with metadata.version 4.0."""
    with Cluster(kafka, tmp_path_factory.mktemp("drills"), "4.0") as found:
        yield found


SHORT = [name for name in DRILLS if name not in ("transactions", "elections", "brokers", "disk")]


@pytest.mark.deep
@pytest.mark.parametrize("name", SHORT)
def test_a_drill(name: str, cluster: Cluster) -> None:
    DRILLS[name](cluster, SECONDS)
    verdict = cluster.check()
    assert verdict.transactions
    assert verdict.images == 12


TOLD = "acknowledged\tt\t0\t0\ta\ncommitted\tt\t0\t1\tb\naborted\tc"
PRESENT = [(At("t", 0, 0), "a"), (At("t", 0, 1), "b")]


def test_a_record_that_is_not_where_it_was_acknowledged_is_noticed() -> None:
    log = bytes(build_batch([b"a", b"b"], base_offset=4, timestamp_ms=1))
    assert first_loss(log, 0, {(0, 4): b"a", (0, 5): b"b", (1, 9): b"elsewhere"}) is None
    assert "b'c' was acknowledged at 6 of partition 0: None is there" in str(first_loss(log, 0, {(0, 6): b"c"}))
    assert "b'c' was acknowledged at 5 of partition 0: b'b' is there" in str(first_loss(log, 0, {(0, 5): b"c"}))


def test_what_is_whole_passes() -> None:
    told = Told(TOLD + "\nerror\tproducer\tretriable\tTimeout\nacknowledged\tgone\t0\t0\tz")
    judge(told, [*PRESENT, (At("t", 0, 2), "never told")], {"t"})
    assert told.kinds == {"retriable": 1}


@pytest.mark.parametrize(
    ("told", "present", "reason"),
    [
        (TOLD, PRESENT[:1], "b was acknowledged at .* where there is None"),
        (TOLD, [PRESENT[0], (At("t", 0, 1), "x")], "b was acknowledged at .* where there is x"),
        (TOLD, [*PRESENT, (At("t", 0, 2), "a")], "more than once: ..a"),
        (TOLD, [*PRESENT, (At("t", 0, 2), "c")], "aborted transactions: ..c"),
        (TOLD + "\nerror\tgroup\tfatal\tFenced", PRESENT, "more than retriable errors: ..group fatal Fenced"),
    ],
)
def test_a_broken_promise_is_noticed(told: str, present: list[tuple[At, str]], reason: str) -> None:
    with pytest.raises(Broken, match=reason):
        judge(Told(told), present, {"t"})
