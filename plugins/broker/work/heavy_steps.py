"""Work that would hold the event loop for long: how much is done on the loop, and how the rest is handed to a thread.

Such work is handed to a ``DoAside``, with a function that is called on the loop when the work is done. A broker has
threads for it (``heavy_threads``), the simulator lets virtual time pass, and ``do_here`` does the work at once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import TypeAlias, TypeVar

BATCH_BYTES = 1024 * 1024
"""Bytes that a batch may decompress to on the loop."""
REQUEST_BATCHES = 4
"""How many times ``BATCH_BYTES`` may be decompressed, or copied and checked, on the loop for one request."""
COMPRESSING = 16
"""How many bytes of work a byte counts for that has to be compressed; the slowest levels take longer still.

A request without compressed batches, of at most ``BATCH_BYTES / COMPRESSING`` bytes, is light whatever its topics
ask for.
"""

_T = TypeVar("_T")
HeavySteps: TypeAlias = Generator[Callable[[], object], None, _T]
"""A generator that yields work for a ``DoAside``. It is resumed when the work is done, with the work's error if any."""

Done: TypeAlias = Callable[[Exception | None], None]
"""Called once on the loop, with the error that the work raised, or None."""
DoAside: TypeAlias = Callable[[Callable[[], object], Done], None]
"""Has work done, which uses nothing that the loop changes meanwhile, and then calls ``Done`` on the loop."""


class LoopRoom:
    """How many bytes of one request may still be decompressed, or copied and checked, on the loop.

    Args:
        most: bytes that a batch may decompress to.

    Attributes:
        most: as given.
        left: bytes that are left for the request; below 0 when its last batch had more.
    """

    __slots__ = ("left", "most")

    def __init__(self, most: int = BATCH_BYTES) -> None:
        self.most = most
        self.left = REQUEST_BATCHES * most

    @property
    def batch_bytes(self) -> int:
        """How many bytes the next batch may decompress to."""
        return max(min(self.left, self.most), 0)


def others_first() -> None:
    """Do nothing: a request that has a thread do this goes on after other requests were served."""


def do_here(work: Callable[[], object], done: Done) -> None:
    """Do the work at once: a `DoAside` without threads."""
    done(failure_of(work))


def run_steps(
    steps: HeavySteps[_T], do_aside: DoAside, done: Callable[[_T], None], fail: Callable[[Exception], None]
) -> None:
    """Run a generator and have its work done aside; ``done`` gets what it returns, or ``fail`` what it raises."""

    def go_on(resume: Callable[[], Callable[[], object]]) -> None:
        try:
            work = resume()
        except StopIteration as end:
            done(end.value)
        except Exception as error:
            fail(error)
        else:
            do_aside(work, lambda error: go_on(partial(next, steps) if error is None else partial(steps.throw, error)))

    go_on(partial(next, steps))


def failure_of(work: Callable[[], object]) -> Exception | None:
    """Do the work; return its error, or None."""
    try:
        work()
    except Exception as error:
        return error
    return None
