"""What started programs do at SIGHUP, whatever runs the tests: under nohup it is ignored."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def hung_up_by(action: signal.Handlers) -> Iterator[None]:
    """What is started meanwhile does this at SIGHUP."""
    before = signal.signal(signal.SIGHUP, action)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)
