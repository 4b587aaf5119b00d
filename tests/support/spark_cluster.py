"""Spark's standalone mode as processes of their own: master, workers, executors, and runs of ours whose driver is
apart; any of them can be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from broken import Broken
from kafka_lab import HOST, OURS, free_port, is_listening
from pyspark.find_spark_home import _find_spark_home

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
EXECUTOR = b"CoarseGrainedExecutorBackend"
PATIENCE_S = 600
"""How long a process may take to start, and a run that takes in much may say nothing, on a machine that has much else
to do.
"""
_POLL_S = 0.02
# What is small and cold, on two workers of one core each.
_SETTINGS = {
    "spark.driver.host": HOST, "spark.driver.bindAddress": HOST,
    "spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.executor.extraJavaOptions": QUICK_JVM,
    "spark.driver.extraJavaOptions": QUICK_JVM, "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN", "spark.sql.shuffle.partitions": "2",
    # All workers are there before the first task is handed out.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0", "spark.cores.max": "2",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{PATIENCE_S}s", "spark.locality.wait": "0",
}  # fmt: skip


class NotStartedError(Exception):
    """A process of Spark's did not come up: nothing was found out about ours."""


class Standalone:
    """A master and its workers on loopback.

    Args:
        folder: where they log and work.
        environment: for workers and runs, beside this process's.

    Attributes:
        url: what ``--master`` takes.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.environment = dict(environment or {})
        self.port = free_port()
        self.url = f"spark://{HOST}:{self.port}"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._made = 0

    def start(self, name: str, class_name: str, *arguments: object) -> None:
        """Start a master or a worker."""
        home = self.folder / name
        home.mkdir(parents=True)
        environment = os.environ | self.environment | {
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
        self.processes[name] = process

    def add_workers(self, count: int) -> None:
        """Start workers of one core each, and wait until the master knows them.

        Raises:
            NotStartedError: one ended, or the master does not know it yet.
        """
        names = [f"worker-{self._made + number + 1}" for number in range(count)]
        self._made += count
        for name in names:
            self.start(
                name, "worker.Worker", "--host", HOST, "--webui-port", 0, "--cores", 1, "--memory", "1g",
                "--work-dir", self.folder / name / "work", self.url,
            )  # fmt: skip
        for name in names:
            self.wait_for(name, lambda name=name: "Successfully registered" in self.said(name))

    def wait_for(self, name: str, is_up: Callable[[], bool]) -> None:
        """Wait until a process is up.

        Raises:
            NotStartedError: it ended, or takes too long.
        """
        end = time.monotonic() + PATIENCE_S
        while not is_up():
            ended = self.processes[name].poll() is not None
            if ended or time.monotonic() > end:
                what = "it ended" if ended else f"not within {PATIENCE_S} s"
                raise NotStartedError(f"Spark's {name} did not come up: {what}: {self.said(name)[-2000:]}")
            time.sleep(_POLL_S)

    def said(self, name: str) -> str:
        """What one of them wrote."""
        return (self.folder / name / "log").read_text(errors="replace")

    def workers(self) -> list[str]:
        """Names of those that run."""
        return [name for name, process in self.processes.items() if name != "master" and process.poll() is None]

    def executors(self) -> list[int]:
        """Process ids of the executors that run."""
        return [pid for name in self.workers() for pid in _children(self.processes[name].pid, EXECUTOR)]

    def kill_worker(self, name: str) -> None:
        """SIGKILL; its executor notices, and ends by itself."""
        self.processes[name].kill()
        self.processes[name].wait()

    def run(self, tables: str, inputs: Sequence[str], conf: Mapping[str, str], *options: str) -> Run:
        """Begin ``kraftcore spark run`` here; its driver is this machine's process, and no worker's."""
        command = [*OURS, "spark", "run", "--master", self.url, "--tables", tables, *options]
        for path in inputs:
            command += ["--input", path]
        for key, value in (_SETTINGS | dict(conf)).items():
            command += ["--conf", f"{key}={value}"]
        return Run(command, self.folder, os.environ | self.environment)

    def stop(self) -> None:
        """End all; executors end with their workers."""
        running = list(self.processes.values())
        for process in reversed(running):
            process.terminate()
        for process in running:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Run:
    """A run whose driver is a process group of its own: Python's process and its Java."""

    def __init__(self, command: list[str], folder: Path, environment: Mapping[str, str]) -> None:
        self._log = folder / f"run-{time.monotonic_ns()}"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=folder, stdout=log, stderr=log, env=dict(environment), start_new_session=True
            )

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.process.poll() is not None

    def said(self) -> str:
        """What it wrote."""
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        """SIGKILL to the driver, Python's process and Java alike."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def wait(self) -> int:
        """Its status, once it has ended.

        Raises:
            Broken: it comes no further.
        """
        self.until(lambda: False)
        return self.process.wait()

    def until(self, condition: Callable[[], object]) -> bool:
        """Wait for a condition; False: the run ended before.

        Raises:
            Broken: the run has said nothing more for long.
        """
        said, end = -1, 0.0
        while not self.is_over:
            if condition():
                return True
            if (size := self._log.stat().st_size) > said:
                said, end = size, time.monotonic() + PATIENCE_S
            if time.monotonic() > end:
                raise Broken(f"a run that comes no further: {self.said()[-2000:]}")
            time.sleep(_POLL_S)
        return False


def kill_process(pid: int) -> None:
    """SIGKILL, if it is there."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _children(parent: int, what: bytes) -> list[int]:
    # Process ids of a process's children whose command line names that.
    found = []
    for place in Path("/proc").iterdir():
        if not place.name.isdecimal():
            continue
        with suppress(OSError):
            line = (place / "stat").read_text().rpartition(")")[2].split()
            if int(line[1]) == parent and what in (place / "cmdline").read_bytes():
                found.append(int(place.name))
    return sorted(found)


@contextmanager
def standalone(folder: Path, environment: Mapping[str, str] | None = None) -> Iterator[Standalone]:
    """A master and two workers of one core each."""
    cluster = Standalone(folder, environment)
    try:
        cluster.start("master", "master.Master", "--host", HOST, "--port", cluster.port, "--webui-port", 0)
        cluster.wait_for("master", lambda: is_listening(cluster.port))
        cluster.add_workers(2)
        yield cluster
    finally:
        cluster.stop()
