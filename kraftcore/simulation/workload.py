"""The base class of workloads: the state machines of the hosts, the clients, and their rules.

The consensus, its faults and its rules belong to the world; a workload brings the rest. Workloads of other packages are
passed in, so that the simulator does not import them.
"""

from __future__ import annotations

from kraftcore.core.batch import RecordBatch
from kraftcore.core.wire.struct import Struct
from kraftcore.simulation.host import Host, Ticket
from kraftcore.simulation.machine import Replicated
from kraftcore.simulation.options import Options
from kraftcore.simulation.world import World


class Workload:
    """Base class. One object serves one run; what it raises as ``checks.Violation`` ends it.

    Args:
        world: of the run. Its hosts have not begun yet.

    Attributes:
        answered: how many requests of clients were answered as committed.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.answered = 0

    @classmethod
    def adapt(cls, options: Options) -> Options:
        """Change a seed's options to those that this workload supports."""
        return options

    def schedule(self) -> None:
        """Plan the first events."""
        raise NotImplementedError

    def ask(self) -> None:
        """Let a client ask for one thing more, which is to be answered as all faults have ended."""
        raise NotImplementedError

    def make_machine(self, host: Host) -> Replicated:
        """The state machine of a process that begins."""
        raise NotImplementedError

    def committed(self, batch: RecordBatch) -> None:
        """Records are committed for the first time anywhere; called in their order."""

    def started(self, host: Host) -> None:
        """A process has its executor."""

    def handled(self, host: Host) -> None:
        """A process has done something."""

    def leading(self, host: Host, epoch: int) -> None:
        """See ``executor.ExecutorHooks``."""

    def leading_ended(self, host: Host) -> None:
        """See ``executor.ExecutorHooks``."""

    def serves(self, message: Struct) -> bool:
        """Whether this request is for ``received`` and not for the consensus."""
        return False

    def received(self, host: Host, ticket: Ticket) -> None:
        """A host got a request."""

    def healed(self) -> None:
        """All faults of the world end; those of the workload are to end, too."""

    def lacks(self) -> str | None:
        """What must still come about after all faults have ended, for the message if it does not; None: nothing."""
        return None

    def check_end(self) -> None:
        """The run ended well so far."""
