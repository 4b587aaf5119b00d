"""Work that would hold the event loop for long: how much is done at once, and what hands the rest to a thread.

Who has such work gives it away with what is to be called when it is done, on the loop (``DoAside``): production has
threads for it (``heavy_threads``), the simulator virtual time, and whoever has neither does it at once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import TypeAlias, TypeVar

BATCH_BYTES = 1024 * 1024
"""Bytes that a batch may decompress to on the loop."""
REQUEST_BATCHES = 4
"""For one request so many times that is decompressed on the loop, or copied and checked."""
COMPRESSING = 16
"""For how many bytes one counts that is compressed: the slowest levels take longer still.

A request of no more than the part of ``BATCH_BYTES`` that this makes, none of it compressed, is light whatever is done
with it.
"""

_T = TypeVar("_T")
HeavySteps: TypeAlias = Generator[Callable[[], object], None, _T]
"""Yields work as ``DoAside`` takes it, and is resumed when that is done, or with the error that it raised."""

Done: TypeAlias = Callable[[Exception | None], None]
"""Called once, with what the work raised, or None."""
DoAside: TypeAlias = Callable[[Callable[[], object], Done], None]
"""Have work done that touches nothing of the loop's, then ``Done`` called on the loop."""


class LoopRoom:
    """How many bytes may still be looked at on the loop for one request.

    Args:
        most: bytes that a batch may decompress to.

    Attributes:
        most: as given.
        left: so many; below 0 when the last look was at more.
    """

    __slots__ = ("left", "most")

    def __init__(self, most: int = BATCH_BYTES) -> None:
        self.most = most
        self.left = REQUEST_BATCHES * most

    @property
    def batch_bytes(self) -> int:
        """How many of them a batch may decompress to."""
        return max(min(self.left, self.most), 0)


def others_first() -> None:
    """Nothing: whoever has it done aside goes on when others were served."""


def do_here(work: Callable[[], object], done: Done) -> None:
    """Do it at once."""
    done(failure_of(work))


def run_steps(
    steps: HeavySteps[_T], do_aside: DoAside, done: Callable[[_T], None], fail: Callable[[Exception], None]
) -> None:
    """Run all steps, the work aside; ``done`` gets what the generator returns, or ``fail`` what it raises."""

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
    """Do it: what it raised, or None."""
    try:
        work()
    except Exception as error:
        return error
    return None
