"""How a cluster's block ends: with what went wrong, wherever it came up."""

from __future__ import annotations

from collections.abc import Mapping

from kraftcore.errors import NodeStoppedError
from kraftcore.ports.nursery import cancelled_part


def raise_end(
    raised: BaseException | None, fault: BaseException | None, failures: Mapping[int, NodeStoppedError]
) -> None:
    """Raise what a block ends with, if anything.

    Args:
        raised: what its body raised, be it only that it was cancelled.
        fault: what a running node raised, other than that it stopped; it cancelled the body.
        failures: why nodes stopped by themselves, by id. What the body raised may have come of it: it is its cause.
    """
    if fault is not None and (raised is None or cancelled_part(raised)[1] is None):
        raise fault
    raise_with_cause(raised, next(iter(failures.values()), None))


def raise_with_cause(raised: BaseException | None, failure: BaseException | None) -> None:
    """Raise what a block's body raised, if anything, else what failed beside it, which is its cause otherwise."""
    if raised is not None:
        if failure is None or failure is raised or raised.__cause__ is not None or not isinstance(raised, Exception):
            raise raised
        raise raised from failure
    if failure is not None:
        raise failure
