"""Who becomes leader of a partition.

A candidate is active, its directory is online (KIP-841, KIP-858), and it is in the ISR, or, with an empty ISR, among
the eligible leader replicas (ELR, KIP-966). The first row that finds somebody decides:

===================================================  ======  =========  =======
who                                                  ONLINE  PREFERRED  UNCLEAN
===================================================  ======  =========  =======
the first replica, if a candidate                              1st
the present leader, if a candidate                   1st       2nd        1st
the first replica that is a candidate                2nd       3rd        2nd
with ISR and ELR empty: the last known leader *      3rd       4th        3rd
the first replica that may lead at all *                                  4th
nobody                                               4th       5th        5th
===================================================  ======  =========  =======

\\* These elections are unclean: the leader may lack committed records.

Source: Kafka 4.3.1, PartitionChangeBuilder.electLeader. What else a change of leader does to a partition stands in
`partition_change`.
"""

from enum import Enum

cimport cython
from libc.stdint cimport int32_t

from kraftcore.core.uuid cimport Uuid
from kraftcore.metadata.partition cimport Partition

cdef enum:
    NO_LEADER = -1


class Election(Enum):
    """Whom a change may make leader; see the table above."""

    ONLINE = 0
    PREFERRED = 1
    UNCLEAN = 2


cdef object PREFERRED_ELECTION = Election.PREFERRED
cdef object UNCLEAN_ELECTION = Election.UNCLEAN


@cython.final
@cython.auto_pickle(False)
cdef class LeaderChoice:
    """Chooses leaders for the changes of one decision.

    Args:
        brokers: the registered brokers, by id.
        is_elr_on: eligible.leader.replicas.version is 1 or higher.
        without: a broker that may not lead any more, although the image still shows it active; -1: none.
        including: a broker that may lead already, although the image still shows it fenced; -1: none.
        unclean: a broker whose last shutdown was unclean; it does not lead; -1: none.
    """

    def __init__(self, brokers not None, bint is_elr_on, int32_t without, int32_t including, int32_t unclean):
        self.brokers = brokers
        self.asked = {without: None, unclean: None}
        self.is_elr_on = is_elr_on
        self.including = including

    cdef tuple choose(self, Partition before, object election, tuple isr, tuple elr, tuple replicas):
        # The leader, and whether the election is an unclean one.
        cdef tuple among = isr if len(isr) > 0 else elr
        cdef object replica, last
        if election is PREFERRED_ELECTION and len(replicas) > 0 and self.is_candidate(replicas[0], among, before):
            return replicas[0], False
        if self.is_candidate(before.leader, among, before):
            return before.leader, False
        for replica in replicas:
            if self.is_candidate(replica, among, before):
                return replica, False
        if len(among) == 0 and self.is_elr_on and len(before.last_known_elr) == 1:
            last = before.last_known_elr[0]
            if self.can_lead(last, before):
                return last, True
        if election is UNCLEAN_ELECTION:
            for replica in replicas:
                if self.can_lead(replica, before):
                    return replica, True
        return NO_LEADER, False

    cdef bint is_candidate(self, object broker_id, tuple among, Partition partition) except -1:
        return broker_id in among and self.can_lead(broker_id, partition)

    cdef bint can_lead(self, object broker_id, Partition partition) except -1:
        cdef Py_ssize_t place, count = min(len(partition.replicas), len(partition.directories))
        cdef Uuid where
        broker = self.asked.get(broker_id, self)
        if broker is self:  # not asked for yet
            broker = self.brokers.get(broker_id)
            if broker is not None and not (broker.is_active or broker_id == self.including):
                broker = None
            self.asked[broker_id] = broker
        if broker is None:
            return False
        for place in range(count):
            if partition.replicas[place] == broker_id:
                where = partition.directories[place]
                if where is not None and where.high and where in broker.directories:  # nearly always; no reserved id
                    return True
                return broker.has_online_directory(where)
        return False
