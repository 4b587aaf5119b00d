"""Options of the whole suite; property tests never run against a clock: a slow machine is no failure."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import suite_run
from hypothesis import settings
from kafka_tools import KafkaMissingError, KafkaTools

MEMORY, ROOM = Path("/dev/shm"), 4 << 30  # where tests write, if there is so much room: no test waits for a disk
IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ

settings.register_profile("quick", deadline=None, max_examples=50)
settings.register_profile("deep", deadline=None, max_examples=3000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
if IS_WORKER:  # among others, each has a part of a processor
    os.environ.setdefault("CONF_PATIENCE", "3")

# A shell's background jobs ignore it, and so would every program that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write anew: transcripts, tables and answers in docs, drawings"
    )
    parser.addoption("--deep", action="store_true", help="run what the quick tier leaves out, and nothing else")
    parser.addoption("--measure", action="store_true", help="keep how long each file took: support/suite_seconds.tsv")
    parser.addoption(
        "--target",
        choices=["kafka", "kraftcore"],
        help="what tests/conformance and tests/controller_suite test; without it, both in turn, and kraftcore",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("numprocesses", None) and not IS_WORKER:
        config.pluginmanager.register(suite_run.Progress(config, sys.stdout), "progress")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    return suite_run.spread_over(config)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> suite_run.LongestFirst:
    return suite_run.LongestFirst(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if collection_path.is_file() and suite_run.is_left_out(collection_path, config) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    suite_run.choose_tier(config, items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        report.sections.append(("what to do next", suite_run.next_steps(item.nodeid)))
    return report


@pytest.fixture(scope="session")
def kafka() -> KafkaTools:
    """Real Kafka. Its absence is a failure, not a skip: a green run means that Kafka agreed."""
    try:
        return KafkaTools()
    except KafkaMissingError as error:
        pytest.fail(str(error), pytrace=False)
