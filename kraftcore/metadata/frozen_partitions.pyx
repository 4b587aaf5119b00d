"""The partitions of one moment, for a snapshot that is written while the image moves on."""

cimport cython
from libc.stdint cimport int32_t, uint32_t

from kraftcore.core.uuid cimport Uuid
from kraftcore.metadata.rows cimport CHUNK_ROWS, LIVE, Row
from kraftcore.metadata.topic_rows cimport TopicRows


@cython.final
@cython.auto_pickle(False)
cdef class FrozenPartitions:
    """All partitions of one moment, as records. May be read in another thread."""

    def __len__(self):
        return self.rows.counts.live

    def values(self, Uuid topic_id not None, int version, uint32_t start=0, uint32_t count=0xFFFFFFFF):
        """Encoded PartitionRecords of a topic, in the order of the partition ids.

        Args:
            topic_id: a topic of that moment.
            version: of the records, 0 to 2; below 2 without ELR, at 0 without directories.
            start: how many partitions to skip.
            count: most partitions to encode.
        """
        cdef TopicRows topic = self.topics[topic_id]
        cdef list made = []
        cdef uint32_t i, row
        cdef int32_t partition_id
        cdef Row values
        start = min(start, topic.count)
        for i in range(start, start + min(count, topic.count - start)):
            row = topic.rows[i]
            self.rows.load(row, &values)
            partition_id = self.rows.chunk(row).partition_id[row & (CHUNK_ROWS - 1)]
            made.append(self.codec.encode(&values, topic_id, partition_id, version))
        return made

    def tells_directories(self):
        """Whether any replica's directory is known; version 0 of the record cannot hold it."""
        cdef uint32_t row
        for row in range(self.rows.size):
            if self.rows.chunk(row).flags[row & (CHUNK_ROWS - 1)] & LIVE and self.codec.tells_directories(
                self.rows.chunk(row).directories[row & (CHUNK_ROWS - 1)]
            ):
                return True
        return False

    def has_elr(self):
        """Whether any partition has eligible or last known leaders; versions 0 and 1 of the record cannot hold them."""
        cdef uint32_t row, i
        for row in range(self.rows.size):
            i = row & (CHUNK_ROWS - 1)
            if self.rows.chunk(row).flags[i] & LIVE and (
                self.rows.chunk(row).elr[i] or self.rows.chunk(row).last_known_elr[i]
            ):
                return True
        return False
