"""A real cluster of Spark: master and two workers, processes of their own, make the tables that one machine makes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet import Fleet
from golden import GOLDEN
from object_store import ObjectStore, object_store
from spark_cluster import Standalone, standalone
from spark_kills import DRIVER, EXECUTOR, WORKER, Disturbed, Kill
from spark_parts import counted_rows

from kraftcore.plugins import spark as kraft
from kraftcore.plugins.spark.startup import find_java
from kraftcore.plugins.spark.tables import BRONZE, SILVER

pytestmark = [pytest.mark.deep, pytest.mark.long]

INPUTS = [GOLDEN / "dynamic", GOLDEN / "static"]


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    find_java()
    with object_store() as found, pytest.MonkeyPatch.context() as patch:
        for name, value in found.environment.items():
            patch.setenv(name, value)
        yield found


@pytest.fixture(scope="module")
def cluster(store: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with standalone(tmp_path_factory.mktemp("standalone"), store.environment) as found:
        yield found


@pytest.fixture(scope="module")
def made(cluster: Standalone) -> Path:
    """A folder with tables that the cluster made, and Spark's own account of it."""
    folder = cluster.folder
    (folder / "events").mkdir()
    settings = {
        "spark.eventLog.enabled": "true", "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false", "spark.eventLog.dir": (folder / "events").as_uri(),
    }  # fmt: skip
    run = cluster.run(str(folder / "tables"), list(map(str, INPUTS)), settings)
    assert run.wait() == 0, run.said() + cluster.said("worker-1")[-2000:]
    return folder


def test_both_workers_ran_tasks_and_no_other_process_did(made: Path):
    (log,) = (made / "events").iterdir()
    ran: Counter[str] = Counter()
    for line in log.read_text().splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerTaskEnd" and event["Task End Reason"]["Reason"] == "Success":
            ran[event["Task Info"]["Executor ID"]] += 1
    assert set(ran) == {"0", "1"}
    assert all(list((made / name / "work").glob("app-*/*/stderr")) for name in ("worker-1", "worker-2"))


def test_its_tables_are_those_of_one_machine(made: Path, tmp_path: Path):
    kraft.run(lambda: pytest.fail("so little is done without Spark"), INPUTS, tmp_path / "tables")
    found, wanted = rows(made / "tables"), rows(tmp_path / "tables")
    assert found.keys() == wanted.keys() >= {*BRONZE} - {"errors"} | {"gold_leadership", "gold_partition_history"}
    assert len(wanted.keys() & SILVER.keys()) > 10
    for name, those in wanted.items():
        assert found[name] == those, name
    assert wanted["bronze_records"].total() > 1000


def test_a_killed_driver_executor_and_worker_lose_and_double_nothing(
    cluster: Standalone, store: ObjectStore, made: Path, tmp_path: Path
):
    found = Disturbed(cluster, store, Fleet(tmp_path / "in", 3), "killed", 4096)
    assert not found.run([Kill(DRIVER, commits=2)])
    assert found.run([Kill(EXECUTOR, commits=1), Kill(WORKER, commits=2)])
    assert found.killed == {DRIVER: 1, EXECUTOR: 1, WORKER: 1}
    found.check(tmp_path / "undisturbed")
    assert found.rows > 300


def rows(folder: Path) -> dict[str, Counter[str]]:
    """The rows of each table, in no order."""
    return {
        name: Counter(json.dumps(row, default=repr, sort_keys=True) for row in found)
        for name, found in counted_rows(folder).items()
    }
