"""A partition as a value: what `kraftcore.metadata.partitions` hands out, and what decisions compute."""

cimport cython

from kraftcore.core.uuid import MIGRATING_DIRECTORY as _MIGRATING
from kraftcore.errors import LocalError

NO_LEADER = -1
RECOVERED, RECOVERING = 0, 1
_FIELDS = (
    "replicas",
    "directories",
    "isr",
    "elr",
    "last_known_elr",
    "removing",
    "adding",
    "leader",
    "leader_epoch",
    "partition_epoch",
    "recovery_state",
)


@cython.final
@cython.freelist(64)
cdef class Partition:
    """One partition, immutable (KIP-631; ELR: KIP-966; directories: KIP-858).

    Attributes:
        replicas: broker ids; the first one is the preferred leader.
        directories: of each replica, in the same order, the id of its log directory on the broker.
        isr: broker ids of the in-sync replicas.
        elr: eligible leader replicas: not in the ISR, but they hold all that was committed.
        last_known_elr: who led or could lead last, when nobody can now.
        removing: replicas that a reassignment takes away when it ends.
        adding: replicas that it adds.
        leader: a broker id; -1 without one.
        leader_epoch: one higher with each leader.
        partition_epoch: one higher with each change.
        recovery_state: 0, or 1 while the leader was elected uncleanly and has not recovered (KIP-704).

    Raises:
        LocalError: not as many directories as replicas; leave them out for a partition that was never told any.
    """

    def __init__(
        self,
        replicas=(),
        *,
        directories=None,
        isr=(),
        elr=(),
        last_known_elr=(),
        removing=(),
        adding=(),
        int leader=-1,
        int leader_epoch=0,
        int partition_epoch=0,
        int recovery_state=0,
    ):
        self.replicas = tuple(replicas)
        if directories is None:
            self.directories = (_MIGRATING,) * len(self.replicas)
        else:
            self.directories = tuple(directories)
        if len(self.directories) != len(self.replicas):
            raise LocalError(f"{len(self.directories)} directories for {len(self.replicas)} replicas")
        self.isr = tuple(isr)
        self.elr = tuple(elr)
        self.last_known_elr = tuple(last_known_elr)
        self.removing = tuple(removing)
        self.adding = tuple(adding)
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.recovery_state = recovery_state

    @property
    def has_leader(self):
        """Somebody leads."""
        return self.leader != -1

    @property
    def preferred_leader(self):
        """The first replica; -1 without replicas."""
        return self.replicas[0] if self.replicas else -1

    @property
    def is_led_by_preferred(self):
        """The first replica leads."""
        return self.leader == self.preferred_leader

    @property
    def is_reassigning(self):
        """A reassignment is under way."""
        return bool(self.removing or self.adding)

    def directory_of(self, int broker_id):
        """The directory of a replica.

        Raises:
            LocalError: the broker is no replica.
        """
        try:
            return self.directories[self.replicas.index(broker_id)]
        except ValueError:
            raise LocalError(f"broker {broker_id} is none of the replicas {self.replicas}") from None

    def replace(self, **changes):
        """A copy with other values of some fields.

        """
        fields = {name: getattr(self, name) for name in _FIELDS}
        fields.update(changes)
        return Partition(**fields)

    def __eq__(self, other):
        if not isinstance(other, Partition):
            return NotImplemented
        return self._key() == (<Partition>other)._key()

    def __hash__(self):
        return hash(self._key())

    def __reduce__(self):
        return _unpickle, self._key()

    def __repr__(self):
        return f"Partition({', '.join([f'{name}={getattr(self, name)!r}' for name in _FIELDS])})"

    def _key(self):
        return (
            self.replicas,
            self.directories,
            self.isr,
            self.elr,
            self.last_known_elr,
            self.removing,
            self.adding,
            self.leader,
            self.leader_epoch,
            self.partition_epoch,
            self.recovery_state,
        )


def _unpickle(*values):
    return Partition(**dict(zip(_FIELDS, values, strict=True)))
