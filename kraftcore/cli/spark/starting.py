"""Starts Spark for a command, keeps Java's words in a log file, and tells Spark's errors in one line."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from kraftcore.cli.spark.options import SparkOptions, pairs
from kraftcore.cli.spark.screen import Screen
from kraftcore.errors import KraftError

_WAITED = "Exception thrown in awaitResult"
"""Spark's words for a failed job that it waited for; the error itself is the cause."""


class Starter:
    """Starts Spark when it is called for the first time.

    Args:
        options: where and how Spark runs.
        screen: shows that Spark is being started.
        log: file for Java's words; None: one in the runtime folder.
    """

    def __init__(self, options: SparkOptions, screen: Screen, log: Path | None = None) -> None:
        from kraftcore.plugins import spark as kraft

        os.environ["TZ"] = "UTC"  # PySpark hands out times of this process's zone
        time.tzset()
        self._start = kraft.session  # first: without the extra this fails, and says what to install
        self._master = options.master
        self._screen = screen
        self._settings = {"spark__driver__memory": options.memory, "spark__sql__shuffle__partitions": "8"}
        for key, value in pairs("--conf", options.conf).items():
            self._settings[key.replace(".", "__")] = value
        self._session: Any = None
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self.log = log

    def __call__(self) -> Any:
        """Return the session, started if need be."""
        if self._session is None:
            from kraftcore.plugins.spark.runtime import runtime_folder

            self._screen.stage("starting Spark")
            # Otherwise Spark makes a folder in the working directory.
            self._scratch = tempfile.TemporaryDirectory(prefix="kraftcore-spark-", ignore_cleanup_errors=True)
            self._settings.setdefault("spark__sql__warehouse__dir", self._scratch.name)
            self.log = self.log or runtime_folder() / f"spark-{os.getpid()}.log"
            self._session = self._start(self._master, log=self.log, **self._settings)
            self._screen.clear()
        return self._session

    def close(self) -> None:
        """Stop Spark if it was started."""
        from py4j.protocol import Py4JError

        if self._session is not None:
            with suppress(Py4JError, OSError):  # Java may have ended
                self._session.stop()
        if self._scratch is not None:
            self._scratch.cleanup()


@contextmanager
def starting(options: SparkOptions, screen: Screen, log: Path | None = None) -> Iterator[Starter]:
    """Give a starter to the block; an error of Spark's becomes one line that names the log, which else is removed."""
    starter = Starter(options, screen, log)
    from py4j.protocol import Py4JError
    from pyspark.errors import AnalysisException, PySparkException
    from pyspark.logger import PySparkLogger

    # PySpark prints each refused query as a JSON line of its own.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
    is_log_needed = False
    try:
        yield starter
    except (PySparkException, Py4JError) as error:
        is_log_needed = not isinstance(error, AnalysisException)
        raise click.ClickException(told(error, starter.log)) from None
    except KraftError:
        is_log_needed = log is not None  # it also holds what the command itself said
        raise
    finally:
        screen.clear()
        starter.close()
        if starter.log is not None and not is_log_needed:
            starter.log.unlink(missing_ok=True)


def told(error: Exception, log: Path | None) -> str:
    """An error of Spark's in one line, with the name of the log if that may tell more."""
    from pyspark.errors import AnalysisException

    said = _one_line(error)
    return said if log is None or isinstance(error, AnalysisException) else f"{said} (Spark's log: {log})"


def _one_line(error: Exception) -> str:
    # Spark's error message without stack and plan.
    java = getattr(error, "java_exception", None)
    while java is not None and _WAITED in str(java.toString()) and java.getCause() is not None:
        java = java.getCause()
    text = str(error) if java is None else str(java.toString())
    lines = [line.strip() for line in text.split("\nJVM stacktrace")[0].splitlines()]
    said = next((line for line in lines if line), type(error).__name__)
    return re.sub(r"^(?:[\w$]+\.)+[\w$]*(?:Exception|Error): ", "", said).rstrip(";")
