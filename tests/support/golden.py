"""Where the data that real Kafka wrote lies."""

from pathlib import Path

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
GOLDEN_FILES = sorted([*GOLDEN.rglob("*.log"), *GOLDEN.rglob("*.checkpoint"), *GOLDEN.rglob("*.log.deleted")])
