"""A partition as a value, as `kraftcore.metadata.partitions` returns it, and decisions compute it."""

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
        directories: id of the log directory of each replica, in the same order.
        isr: broker ids of the in-sync replicas.
        elr: eligible leader replicas, which are not in the ISR but have all committed records.
        last_known_elr: replicas that led or could lead last, when no replica can now.
        removing: replicas that a reassignment removes when it ends.
        adding: replicas that a reassignment adds.
        leader: a broker id; -1 without one.
        leader_epoch: one higher with each leader.
        partition_epoch: one higher with each change.
        recovery_state: 0, or 1 while the leader was elected uncleanly and has not recovered (KIP-704).

    Raises:
        LocalError: not as many directories as replicas; leave all out for a partition without known directories.
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
        """Whether the partition has a leader."""
        return self.leader != -1

    @property
    def preferred_leader(self):
        """The first replica; -1 without replicas."""
        return self.replicas[0] if self.replicas else -1

    @property
    def is_led_by_preferred(self):
        """Whether the first replica leads."""
        return self.leader == self.preferred_leader

    @property
    def is_reassigning(self):
        """Whether a reassignment is under way."""
        return bool(self.removing or self.adding)

    def directory_of(self, int broker_id):
        """The directory of a replica.

        Raises:
            LocalError: the broker has no replica.
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
