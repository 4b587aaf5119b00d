from __future__ import annotations

from pathlib import Path

import pytest

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


@pytest.fixture(scope="session")
def golden() -> Path:
    return GOLDEN
