"""What an application brings: how committed records change its state, and how that state is saved and loaded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from kraftcore.core.batch import RecordBatch


class SnapshotSink(Protocol):
    """Where ``StateMachine.snapshot`` writes."""

    def append(self, values: Iterable[bytes]) -> None:
        """Add records, none of them empty; how many calls they come in does not matter.

        Raises:
            StorageError: the disk failed; let it pass, there will be no snapshot.
        """
        ...


class StateMachine:
    """Base class of replicated state machines. Every replica applies the same records in the same order.

    What the methods do must depend on the records alone: no clock, no randomness, nothing from outside. They are
    called one at a time, from the node's own task, and must not wait. If one raises, the node stops: a replica that
    skipped a record would differ from the others for ever.
    """

    def apply(self, batch: RecordBatch) -> Sequence[Any] | None:
        """Take over committed records.

        Args:
            batch: a data batch; ``batch.values()`` are the records' values, the first at ``batch.base_offset``. It is
                handed over once per log position while this object lives. Valid until ``apply`` returns.

        Returns:
            A result per record, for whoever appended it here, or None for none.
        """
        raise NotImplementedError

    def snapshot(self, sink: SnapshotSink) -> None:
        """Write the whole state as records."""
        raise NotImplementedError

    def restore(self, values: Iterable[bytes]) -> None:
        """Forget the present state and take over the one that ``snapshot`` wrote, here or on another replica."""
        raise NotImplementedError
