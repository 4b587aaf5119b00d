"""Options of the whole suite, and how hard property tests search: never against a clock, a slow machine is no failure."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

settings.register_profile("quick", deadline=None)
settings.register_profile("deep", deadline=None, max_examples=3000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the transcripts of tests/scenarios anew")
