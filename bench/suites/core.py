"""The compiled core: batches, messages, the log on disk."""

from __future__ import annotations

from pathlib import Path

from bench import cases_batch, cases_log, cases_wire
from bench.harness import Case, Effort, Sum


def cases(folder: Path, effort: Effort) -> list[Case | Sum]:
    """All cases; the log's come last, because what they write keeps the disk busy for a while."""
    return [*cases_batch.cases(), *cases_wire.cases(), *cases_log.cases(folder, effort)]
