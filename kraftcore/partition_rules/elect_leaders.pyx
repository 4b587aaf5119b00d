"""Elections in all partitions that need one, as ElectLeaders without a list asks for (KIP-460).

Results and records of a topic stand in the order of its partitions. A partition that does not change has no record, and
an error for its result: nobody who may lead was found.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t

from kraftcore.core.uuid cimport Uuid
from kraftcore.core.wire.struct cimport new_struct
from kraftcore.partition_rules.partition_change cimport PartitionRules
from kraftcore.metadata.partitions cimport Matches, Partitions

from kraftcore.errors import LocalError
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.elect_leaders import ElectLeadersResponse

cdef enum:
    STATE_UNCHANGED = -1

cdef object Result = ElectLeadersResponse.ReplicaElectionResult.PartitionResult
cdef object NONE = ErrorCode.NONE


@cython.final
@cython.auto_pickle(False)
cdef class LeaderElections:
    """Holds one kind of election.

    Args:
        rules: by which partitions change.
        needing: the partitions to elect leaders of.
        election: the kind, an ``Election``.
        error: the ``ErrorCode`` where nobody is found; its message goes with it.
    """

    cdef PartitionRules rules
    cdef Matches needing
    cdef dict places  # by topic id: partition id << 32 | row, of each
    cdef object election
    cdef object error
    cdef object message

    def __init__(self, PartitionRules rules not None, Matches needing not None, election not None, error not None):
        cdef dict places = {}
        cdef int64_t row = needing.next_row()
        cdef Uuid topic_id, last = None
        cdef list found = []
        cdef Partitions table = needing.table
        self.rules = rules
        self.needing = needing
        self.places = places
        self.election = election
        self.error = error
        self.message = error.message
        while row >= 0:
            topic_id = table.topic_of_row(<uint32_t>row).id
            if topic_id is not last:
                found = places.setdefault(topic_id, [])
                last = topic_id
            found.append(<int64_t>table.id_of_row(<uint32_t>row) << 32 | row)
            row = needing.next_row()

    def __contains__(self, Uuid topic_id not None):
        return topic_id in self.places

    def hold(self, Uuid topic_id not None, int min_isr, list records not None):
        """Elect leaders of a topic's partitions, once.

        Args:
            topic_id: of the topic.
            min_isr: its min.insync.replicas, at most its replication factor.
            records: gets the records of the partitions that change, each with its version.

        Returns:
            The results in the order of the partitions; an empty list for a topic that needs no election.

        Raises:
            LocalError: partitions changed since they were looked for.
        """
        cdef list places = self.places.pop(topic_id, []), results = []
        cdef Partitions table = self.needing.table
        cdef int64_t place
        cdef int32_t partition_id
        cdef object record, result, version = self.rules.version
        if self.needing.changes_made != table.changes_made:
            raise LocalError("the partitions changed while leaders of them were elected: begin anew")
        places.sort()
        for place in places:
            partition_id = <int32_t>(place >> 32)
            record = self.rules.changed(
                topic_id,
                partition_id,
                table.row_value(<uint32_t>place),
                min_isr,
                self.election,
                None,
                None,
                None,
                None,
                STATE_UNCHANGED,
                None,
            )
            result = new_struct(Result)
            result.partition_id = partition_id
            if record is None:
                result.error_code = self.error
                result.error_message = self.message
            else:
                records.append((record, version))
                result.error_code = NONE
                result.error_message = None
            results.append(result)
        return results
