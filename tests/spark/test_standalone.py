"""A real cluster of Spark: master and two workers, processes of their own, make the tables that one machine makes."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from golden import GOLDEN
from kafka_lab import OURS, free_port, is_listening, wait_for
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession
from spark_parts import LIMIT_S

from kraftcore.plugins import spark as kraft
from kraftcore.plugins.spark.startup import find_java
from kraftcore.plugins.spark.tables import BRONZE, SILVER

INPUTS = [GOLDEN / "dynamic", GOLDEN / "static"]
HOST = "127.0.0.1"
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Standalone:
    """Spark's standalone mode on loopback.

    Attributes:
        url: what ``--master`` takes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"spark://{HOST}:{self.port}"
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, class_name: str, *arguments: object) -> None:
        """Start a master or a worker."""
        home = self.folder / name
        home.mkdir()
        environment = os.environ | {
            "SPARK_NO_DAEMONIZE": "1", "SPARK_LOCAL_IP": HOST, "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM, "SPARK_LOCAL_DIRS": str(home / "scratch"),
        }  # fmt: skip
        command = [
            Path(_find_spark_home()) / "bin" / "spark-class",
            f"org.apache.spark.deploy.{class_name}",
            *arguments,
        ]
        with (home / "log").open("wb") as log:
            process = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log, cwd=home, env=environment)
        self.processes.append(process)

    def said(self, name: str) -> str:
        """What one of them wrote."""
        return (self.folder / name / "log").read_text(errors="replace")

    def stop(self) -> None:
        """End all; executors end with their workers."""
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def standalone(folder: Path) -> Iterator[Standalone]:
    """A master and two workers of one core each."""
    cluster = Standalone(folder)
    try:
        cluster.start("master", "master.Master", "--host", HOST, "--port", cluster.port, "--webui-port", 0)
        wait_for("the master to listen", lambda: is_listening(cluster.port))
        for name in ("worker-1", "worker-2"):
            cluster.start(
                name, "worker.Worker", "--host", HOST, "--webui-port", 0, "--cores", 1, "--memory", "1g",
                "--work-dir", folder / name / "work", cluster.url,
            )  # fmt: skip
        for name in ("worker-1", "worker-2"):
            wait_for(f"{name} to register", lambda name=name: "Successfully registered" in cluster.said(name))
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tables that the cluster made, and Spark's own account of it."""
    folder = tmp_path_factory.mktemp("standalone")
    (folder / "events").mkdir()
    find_java()
    settings = {
        "spark.driver.host": HOST, "spark.driver.bindAddress": HOST,
        "spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.executor.extraJavaOptions": QUICK_JVM,
        "spark.driver.extraJavaOptions": QUICK_JVM, "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN", "spark.sql.shuffle.partitions": "2",
        # All workers are there before the first task is handed out.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0", "spark.cores.max": "2",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{LIMIT_S}s",
        "spark.locality.wait": "0", "spark.eventLog.enabled": "true", "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false", "spark.eventLog.dir": (folder / "events").as_uri(),
    }  # fmt: skip
    with standalone(folder) as cluster:
        command = [*OURS, "spark", "run", "--master", cluster.url, "--tables", str(folder / "tables")]
        for path in INPUTS:
            command += ["--input", str(path)]
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=2 * LIMIT_S, check=False)
        assert done.returncode == 0, done.stderr + cluster.said("worker-1")[-2000:]
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


def test_its_tables_are_those_of_one_machine(made: Path, session: SparkSession, tmp_path: Path):
    kraft.run(session, INPUTS, tmp_path / "tables")
    names = tables(tmp_path / "tables")
    assert tables(made / "tables") == names
    assert names >= {*BRONZE} - {"errors"} | {"gold_leadership", "gold_partition_history"}
    assert len(names & set(SILVER)) > 10
    for name in sorted(names):
        assert rows(made / "tables" / name) == rows(tmp_path / "tables" / name), name
    assert sum(rows(made / "tables" / "bronze_records").values()) > 1000


def tables(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("_")}


def rows(folder: Path) -> Counter[str]:
    """The rows of a table, in no order, from its files alone."""
    files = [str(file) for file in folder.rglob("*.parquet")]
    if not files:
        return Counter()
    table = ds.dataset(files, partitioning="hive", partition_base_dir=str(folder)).to_table()
    return Counter(json.dumps(row, default=repr, sort_keys=True) for row in table.to_pylist())
