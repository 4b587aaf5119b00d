"""Options of the whole suite; property tests never run against a clock: a slow machine is no failure."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import settings
from kafka_tools import KafkaMissingError, KafkaTools

settings.register_profile("quick", deadline=None)
settings.register_profile("deep", deadline=None, max_examples=3000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

# A shell's background jobs ignore it, and so would every program that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write anew: transcripts, tables and answers in docs, drawings"
    )
    parser.addoption(
        "--target",
        choices=["kafka", "kraftcore"],
        help="what tests/conformance and tests/controller_suite test; without it, both in turn, and kraftcore",
    )


@pytest.fixture(scope="session")
def kafka() -> KafkaTools:
    """Real Kafka. Its absence is a failure, not a skip: a green run means that Kafka agreed."""
    try:
        return KafkaTools()
    except KafkaMissingError as error:
        pytest.fail(str(error), pytrace=False)
