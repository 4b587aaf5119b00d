"""What an application brings: how committed records change its state, and how that state is saved and loaded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import TYPE_CHECKING, Any, Generic, Protocol

from kraftcore.core.batch import RecordBatch
from kraftcore.errors import LocalError

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # with the defaults that Python has from 3.13 (PEP 696)

    Result_co = TypeVar("Result_co", covariant=True, default=Any)
    Machine_co = TypeVar("Machine_co", bound="StateMachine", covariant=True, default=Any)
else:
    from typing import TypeVar

    Result_co = TypeVar("Result_co", covariant=True)
    Machine_co = TypeVar("Machine_co", bound="StateMachine", covariant=True)

Result = TypeVar("Result")
Machine = TypeVar("Machine", bound="StateMachine")


class SnapshotSink(Protocol):
    """Where ``StateMachine.snapshot`` writes."""

    def append(self, values: Iterable[bytes]) -> None:
        """Add records, none of them empty; how many calls they come in does not matter.

        Raises:
            StorageError: the disk failed; let it pass, there will be no snapshot.
        """
        ...

    def append_later(self, values: Iterable[bytes]) -> None:
        """Add records that are read one by one after ``snapshot`` returned, by another thread, while ``apply`` goes on.

        For states too large to be gathered at once: they must come from a copy that nothing changes any more. An error
        while they are read means that there will be no snapshot.
        """
        ...


class StateMachine(Generic[Result_co]):
    """Base class of replicated state machines. Every replica applies the same records in the same order.

    For type checkers ``StateMachine[int]`` says what ``apply`` returns for each record, and so what ``append`` does;
    without that, anything.

    What the methods do must depend on the records alone: no clock, no randomness, nothing from outside. They are
    called one at a time, from the node's own task, and must not wait. If ``apply`` or ``restore`` raises, the node
    stops: a replica that skipped a record would differ from the others for ever. If ``snapshot`` raises, there is no
    snapshot: the node goes on, says so in its log, and tries again when the next one is due.
    """

    def apply(self, batch: RecordBatch[bytes]) -> Sequence[Result_co] | None:
        """Take over committed records.

        Args:
            batch: a data batch; ``batch.values()`` are the records' values, the first at ``batch.base_offset``. It is
                handed over once per log position while this object lives. Valid until ``apply`` returns.

        Returns:
            A result per record, for whoever appended it here, or None for none.
        """
        raise NotImplementedError

    def snapshot(self, sink: SnapshotSink) -> None:
        """Write the whole state as records.

        Raises:
            SnapshotLaterError: not here, for something is half done; it is called again when more is applied.
        """
        raise NotImplementedError

    def restore(self, values: Iterable[bytes]) -> None:
        """Forget the present state and take over the one that ``snapshot`` wrote, here or on another replica."""
        raise NotImplementedError

    def restored(self, end_offset: int) -> None:
        """What ``restore`` took over is the state that all records below ``end_offset`` make. May be left out."""


def check_state_machine(machine: object) -> None:
    """Refuse what cannot be one, before any record comes.

    Raises:
        LocalError: it is a class, not an object of one; or a method is missing, asynchronous or a generator. The
            message says which.
    """
    if isinstance(machine, type):
        raise LocalError(
            f"the state machine is the class {machine.__name__}: give an object of it, {machine.__name__}()"
        )
    kind = type(machine)
    names = ("apply", "snapshot", "restore")
    missing = [name for name in names if not callable(getattr(machine, name, None)) or _is_inherited(machine, name)]
    if missing:
        raise LocalError(
            f"the state machine, of class {kind.__name__}, has no {' and no '.join(missing)}: "
            f"it needs {', '.join(names)} (see kraftcore.StateMachine)"
        )
    for name in (*names, "restored"):
        method = getattr(machine, name, None)
        if iscoroutinefunction(method) or isasyncgenfunction(method):
            raise LocalError(f"{kind.__name__}.{name} is asynchronous: a state machine's methods are plain functions")
        if isgeneratorfunction(method):  # a call would do nothing: a snapshot, for one, would be empty
            raise LocalError(f"{kind.__name__}.{name} has a yield: a state machine's methods are plain functions")


def _is_inherited(machine: object, name: str) -> bool:
    return getattr(getattr(machine, name), "__func__", None) is getattr(StateMachine, name)
