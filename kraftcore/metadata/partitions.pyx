"""The partitions of the image: a table of columns; a reader of one partition gets a small object."""

# A partition is a row (`rows`); a topic has the numbers of its rows in the order of the partition ids, which for nearly
# every topic is the place in the list. Records go into rows and out of them without objects (`partition_codec`). While
# somebody may want to go back, the earlier values of changed rows are kept (`undo`): removed rows keep their values and
# their place until nobody can want them back.

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kraftcore.core.bytes cimport load_int64
from kraftcore.core.uuid cimport Uuid, uuid_from
from kraftcore.metadata.frozen_partitions cimport FrozenPartitions
from kraftcore.metadata.partition cimport Partition
from kraftcore.metadata.partition_codec cimport (
    PartitionCodec, PartitionFields, is_partition_record, read_partition_fields,
)
from kraftcore.metadata.rows cimport (
    CHUNK_ROWS, ELR_MEMBER, ISR_MEMBER, LEADERLESS, LED_BY, LIVE, NOT_PREFERRED, REASSIGNING, REPLICA, Row, RowNumbers,
    Rows,
)
from kraftcore.metadata.topic_rows cimport TopicRows
from kraftcore.metadata.undo cimport ADDED, CHANGED, REMOVED, TOPIC_ADDED, TOPIC_REMOVED, Undo, UndoLog

from kraftcore.errors import InvariantError, LocalError, MetadataRecordError
from kraftcore.metadata.journal import Change
from kraftcore.protocol.topics import PartitionKey
from kraftcore.protocol.metadata import encode_metadata_record

cdef enum:
    UUID = 16
    LATEST_VERSION = 2  # of both records; has all fields


@cython.final
@cython.auto_pickle(False)
cdef class Matches:
    """Iterates over the partitions that match a query: pairs of `PartitionKey` and `Partition`.

    ``len()`` is how many are left. Valid until the partitions change.

    Raises:
        LocalError: the partitions have changed since the query was made.
    """

    def __len__(self):
        return self.rows.count - self.done

    def __iter__(self):
        return self

    def __next__(self):
        cdef int64_t row = self.next_row()
        if row < 0:
            raise StopIteration
        return self.table.row_key(<uint32_t>row), self.table.row_value(<uint32_t>row)

    cdef int64_t next_row(self) except -2:
        if self.done == self.rows.count:
            return -1
        if self.changes_made != self.table.changes_made:
            raise LocalError("the partitions changed while they were looked through: ask again")
        self.done += 1
        return self.rows.numbers[self.done - 1]


@cython.final
@cython.auto_pickle(False)
cdef class Partitions:
    """All partitions of the image. Only records change it."""

    def __cinit__(self):
        self.rows = Rows()
        self.codec = PartitionCodec(self.rows)
        self.log = UndoLog()
        self.topics = {}
        self.numbered = []
        self.free_numbers = []

    # --- questions --------------------------------------------------------------------------------------------------

    def __len__(self):
        return self.rows.counts.live

    @property
    def memory_bytes(self):
        """C memory of rows and vectors, without what malloc adds and without the lists of topics."""
        return self.rows.memory_bytes + self.log.room * sizeof(Undo)

    @property
    def vector_count(self):
        """How many different lists of brokers and of directories are kept; what memory depends on besides `len`."""
        return self.rows.brokers.live + self.rows.directories.live

    def get(self, Uuid topic_id not None, int32_t partition_id):
        """One partition, or None."""
        return self.find(topic_id, partition_id)

    cdef Partition find(self, Uuid topic_id, int32_t partition_id):
        cdef TopicRows topic = self.topics.get(topic_id)
        return None if topic is None else self.find_in(topic, partition_id)

    cdef Partition find_in(self, TopicRows topic, int32_t partition_id):
        cdef int64_t position = self.position_of(topic, partition_id)
        return None if position < 0 else self.row_value(topic.rows[position])

    def count(self, Uuid topic_id not None):
        """How many partitions a topic has; 0 for an unknown one."""
        cdef TopicRows topic = self.topics.get(topic_id)
        return 0 if topic is None else topic.count

    def of_topic(self, Uuid topic_id not None):
        """The partitions of a topic with their ids, in the order of the ids; empty for an unknown topic."""
        cdef TopicRows topic = self.topics.get(topic_id)
        cdef uint32_t i
        if topic is None:
            return []
        return [(self.id_of_row(topic.rows[i]), self.row_value(topic.rows[i])) for i in range(topic.count)]

    def led_by(self, int32_t broker_id):
        """Partitions that a broker leads."""
        return self.matches(self.rows.find(LED_BY, broker_id))

    def with_isr_member(self, int32_t broker_id):
        """Partitions that have a broker in their ISR."""
        return self.matches(self.rows.find(ISR_MEMBER, broker_id))

    def with_elr_member(self, int32_t broker_id):
        """Partitions that have a broker among their eligible leader replicas."""
        return self.matches(self.rows.find(ELR_MEMBER, broker_id))

    def with_replica(self, int32_t broker_id):
        """Partitions that have a broker among their replicas."""
        return self.matches(self.rows.find(REPLICA, broker_id))

    def without_leader(self):
        """Partitions without a leader."""
        return self.matches(self.rows.find(LEADERLESS, -1))

    def not_led_by_preferred(self):
        """Partitions whose first replica does not lead."""
        return self.matches(self.rows.find(NOT_PREFERRED, -1))

    def reassigning(self):
        """Partitions under reassignment."""
        return self.matches(self.rows.find(REASSIGNING, -1))

    def in_directory(self, int32_t broker_id, Uuid directory_id not None):
        """Partitions whose replica on a broker is in this directory."""
        cdef RowNumbers found = RowNumbers.__new__(RowNumbers)
        cdef RowNumbers all = self.rows.find(REPLICA, broker_id)
        cdef size_t i
        cdef Row row
        for i in range(all.count):
            self.rows.load(all.numbers[i], &row)
            if self.is_in(&row, broker_id, directory_id):
                found.add(all.numbers[i])
        return self.matches(found)

    def leadership_count(self, int32_t broker_id):
        """How many partitions a broker leads; costs nothing."""
        return self.rows.leadership_count(broker_id)

    @property
    def leaderless_count(self):
        """How many partitions have no leader; costs nothing."""
        return self.rows.counts.leaderless

    @property
    def not_preferred_count(self):
        """How many partitions are not led by their first replica; costs nothing."""
        return self.rows.counts.not_preferred

    @property
    def reassigning_count(self):
        """How many partitions are under reassignment; costs nothing."""
        return self.rows.counts.reassigning

    cdef bint is_in(self, const Row *row, int32_t broker_id, Uuid directory_id) noexcept:
        cdef const int32_t *replicas = self.rows.brokers.ints(row.replicas)
        cdef const uint8_t *data = self.rows.directories.data(row.directories)
        cdef uint32_t i
        for i in range(self.rows.brokers.count(row.replicas)):
            if (
                replicas[i] == broker_id
                and <uint64_t>load_int64(data + UUID * i) == directory_id.high
                and <uint64_t>load_int64(data + UUID * i + 8) == directory_id.low
            ):
                return True
        return False

    cdef Matches matches(self, RowNumbers rows):
        cdef Matches made = Matches.__new__(Matches)
        made.table = self
        made.rows = rows
        made.changes_made = self.changes_made
        return made

    cdef int32_t id_of_row(self, uint32_t row) noexcept:
        return self.rows.chunk(row).partition_id[row & (CHUNK_ROWS - 1)]

    cdef TopicRows topic_of_row(self, uint32_t row):
        return <TopicRows>self.numbered[self.rows.chunk(row).topic[row & (CHUNK_ROWS - 1)]]

    cdef bint is_live(self, uint32_t row) noexcept:
        return self.rows.chunk(row).flags[row & (CHUNK_ROWS - 1)] & LIVE != 0

    cdef object row_key(self, uint32_t row):
        return PartitionKey(self.topic_of_row(row).id, self.id_of_row(row))

    cdef Partition row_value(self, uint32_t row):
        cdef Row values
        self.rows.load(row, &values)
        return self.make(&values)

    cdef Partition make(self, const Row *row):
        cdef Partition made = Partition.__new__(Partition)
        made.replicas = self.rows.brokers.view(row.replicas)
        made.directories = self.rows.directories.view(row.directories)
        made.isr = self.rows.brokers.view(row.isr)
        made.elr = self.rows.brokers.view(row.elr)
        made.last_known_elr = self.rows.brokers.view(row.last_known_elr)
        made.removing = self.rows.brokers.view(row.removing)
        made.adding = self.rows.brokers.view(row.adding)
        made.leader = row.leader
        made.leader_epoch = row.leader_epoch
        made.partition_epoch = row.partition_epoch
        made.recovery_state = row.recovery_state
        return made

    cdef int64_t position_of(self, TopicRows topic, int32_t partition_id) noexcept:
        # Where a partition is in its topic's list; where it would have to be as -1 - place.
        cdef int64_t low = 0, high = topic.count, middle
        cdef int32_t found
        if high == 0:
            return -1
        if 0 <= partition_id < high and self.id_of_row(topic.rows[partition_id]) == partition_id:
            return partition_id
        if self.id_of_row(topic.rows[high - 1]) < partition_id:
            return -1 - high
        while low < high:
            middle = (low + high) // 2
            found = self.id_of_row(topic.rows[middle])
            if found == partition_id:
                return middle
            if found < partition_id:
                low = middle + 1
            else:
                high = middle
        return -1 - low

    # --- records ----------------------------------------------------------------------------------------------------

    def add_topic(self, Uuid topic_id not None):
        """Add a topic, without partitions yet.

        Raises:
            LocalError: the topic exists already.
        """
        cdef TopicRows topic
        if topic_id in self.topics:
            raise LocalError(f"there is a topic with the id {topic_id}")
        topic = TopicRows.__new__(TopicRows)
        topic.id = topic_id
        topic.stamp = self.stamp
        if self.free_numbers:
            topic.number = self.free_numbers.pop()
            self.numbered[topic.number] = topic
        else:
            topic.number = <uint32_t>len(self.numbered)
            self.numbered.append(topic)
        self.topics[topic_id] = topic
        if self.noting:
            self.log.add(TOPIC_ADDED, topic.number, 0, NULL)

    def remove_topic(self, Uuid topic_id not None):
        """Remove a topic with its partitions.

        Raises:
            LocalError: there is no topic with this id.
        """
        cdef TopicRows topic = self.topics.pop(topic_id, None)
        cdef uint32_t i
        if topic is None:
            raise LocalError(f"there is no topic with the id {topic_id}")
        self.changes_made += 1
        self.last = None
        for i in range(topic.count):
            self.rows.set_live(topic.rows[i], False)
        if self.noting:
            self.log.add(TOPIC_REMOVED, topic.number, 0, NULL)
        else:
            self.free_topic(topic)

    def on_partition(self, record):
        """Set a partition as a whole, new or not.

        Raises:
            MetadataRecordError: there is no such topic, or values do not fit together.
            LocalError: values that the record cannot carry.
        """
        self._on_record(record)

    def on_change(self, record):
        """Change a partition; fields at their defaults change nothing.

        Raises:
            MetadataRecordError: there is no such partition, or values do not fit together.
            LocalError: values that the record cannot carry.
        """
        self._on_record(record)

    def _on_record(self, record):
        cdef list values = [encode_metadata_record(record, LATEST_VERSION)]
        if self.take(values, 0) != 1:
            raise InvariantError(f"{record!r} was encoded and cannot be read")

    def take(self, list values not None, Py_ssize_t start):
        """Apply the run of PartitionRecord and PartitionChangeRecord values at the front of a list.

        Args:
            values: encoded metadata records of any type.
            start: where to begin.

        Returns:
            The index of the first value that is of another type, or damaged; or the list's length.

        Raises:
            MetadataRecordError: a record does not fit; all records before it are applied.
        """
        cdef PartitionFields fields
        cdef const uint8_t *p
        cdef const uint8_t *end
        cdef Py_ssize_t i, count = len(values)
        self.changes_made += 1
        for i in range(start, count):
            value = values[i]
            if not PyBytes_CheckExact(value):
                return i
            p = <const uint8_t *>PyBytes_AS_STRING(value)
            end = p + PyBytes_GET_SIZE(value)
            if not is_partition_record(p, end) or not read_partition_fields(p, end, &fields):
                return i
            reason = self.take_over(&fields)
            if reason is not None:
                name = "PartitionChangeRecord" if fields.is_change else "PartitionRecord"
                raise MetadataRecordError(name, reason)
        return count

    def clear_elr(self, Uuid topic_id not None):
        """Empty the ELR and last known ELR of a topic's partitions.

        That raises the partition epoch of partitions that had an ELR (KIP-966; seen in Kafka 4.3.1).
        """
        cdef TopicRows topic = self.topics[topic_id]
        cdef Row before, after
        cdef uint32_t i
        self.changes_made += 1
        for i in range(topic.count):
            self.rows.load(topic.rows[i], &before)
            if before.elr or before.last_known_elr:
                after = before
                after.elr = after.last_known_elr = 0
                after.partition_epoch += 1
                self.rows.take(&after)
                self.change_row(topic.rows[i], &before, &after)

    cdef TopicRows topic_of(self, const uint8_t *topic_id):
        cdef TopicRows last = self.last
        if (
            last is not None
            and last.id.high == <uint64_t>load_int64(topic_id)
            and last.id.low == <uint64_t>load_int64(topic_id + 8)
        ):
            return last
        self.last = self.topics.get(uuid_from(topic_id))
        return self.last

    cdef object take_over(self, const PartitionFields *fields):
        # Returns None, or why the record does not fit; then nothing is changed.
        cdef TopicRows topic = self.topic_of(fields.topic_id)
        cdef Row before, after
        cdef const Row *base = &before if fields.is_change else NULL
        cdef int64_t position
        if topic is None:
            return f"there is no topic with the id {uuid_from(fields.topic_id)}"
        position = self.position_of(topic, fields.partition_id)
        if position >= 0:
            self.rows.load(topic.rows[position], &before)
        elif fields.is_change:
            return f"there is no partition {fields.partition_id} of the topic with the id {topic.id}"
        if fields.recovery_state not in (0, 1) and not (fields.is_change and fields.recovery_state == -1):
            return f"{fields.recovery_state} is no leader recovery state: 0 and 1 are"
        if not self.codec.directories_fit(fields, base):
            return f"not as many directories as replicas, in partition {fields.partition_id} of topic {topic.id}"
        self.codec.fill(fields, base, &after)
        if position >= 0:
            self.change_row(topic.rows[position], &before, &after)
        else:
            self.add_row(topic, <uint32_t>(-1 - position), fields.partition_id, &after)
        return None

    cdef int change_row(self, uint32_t row, const Row *before, const Row *after) except -1:
        # Takes over the references of `after`.
        if self.noting:
            self.log.add(CHANGED, 0, row, before)
        self.rows.count_row(before, -1)
        self.rows.store(row, after)
        self.rows.count_row(after, 1)
        if not self.noting:
            self.rows.release(before)
        return 0

    cdef int add_row(self, TopicRows topic, uint32_t position, int32_t partition_id, const Row *values) except -1:
        # Takes over the references of `values`.
        cdef uint32_t row = self.rows.new_row(topic.number, partition_id)
        self.rows.store(row, values)
        topic = self.own(topic)
        topic.insert(position, row)
        self.rows.set_live(row, True)
        if self.noting:
            self.log.add(ADDED, 0, row, NULL)
        return 0

    cdef TopicRows own(self, TopicRows topic):
        # The topic's list, no longer shared with a frozen copy.
        if topic.stamp != self.stamp:
            topic = topic.copy(self.stamp)
            self.topics[topic.id] = topic
            self.numbered[topic.number] = topic
            self.last = None
        return topic

    cdef int unlink_row(self, uint32_t row) except -1:
        # Takes a row out of its topic; it keeps its values.
        cdef TopicRows topic = self.own(self.topic_of_row(row))
        cdef int64_t position = self.position_of(topic, self.id_of_row(row))
        if position < 0 or topic.rows[position] != row:
            raise InvariantError(f"row {row} is not among those of its topic {topic.id}")
        topic.remove(<uint32_t>position)
        return self.rows.set_live(row, False)

    cdef int link_row(self, uint32_t row) except -1:
        # Puts it back.
        cdef TopicRows topic = self.own(self.topic_of_row(row))
        cdef int64_t position = self.position_of(topic, self.id_of_row(row))
        if position >= 0:
            raise InvariantError(f"row {row} is among those of its topic {topic.id} already")
        topic.insert(<uint32_t>(-1 - position), row)
        return self.rows.set_live(row, True)

    cdef int free_row(self, uint32_t row) except -1:
        # Of a row that is not live.
        cdef Row values
        self.rows.load(row, &values)
        self.rows.free_row(row)
        self.rows.release(&values)
        return 0

    cdef int free_topic(self, TopicRows topic) except -1:
        # A topic that nobody can want back, and its rows.
        cdef uint32_t i
        for i in range(topic.count):
            self.free_row(topic.rows[i])
        self.numbered[topic.number] = None
        self.free_numbers.append(topic.number)
        return 0

    # --- going back -------------------------------------------------------------------------------------------------

    @property
    def position(self):
        """The position behind the newest noted change; positions stay valid when old changes are forgotten."""
        return self.log.position()

    def note_changes(self):
        """Note changes from now on, so that they can be undone."""
        self.noting = True

    def undo_to(self, int64_t position):
        """Take back every change behind a position, newest first."""
        cdef Undo entry
        self.changes_made += 1
        self.last = None
        while self.log.position() > position:
            self.log.end -= 1
            entry = self.log.entries[self.log.end]
            self.undo(&entry)

    def take_back(self, int64_t position):
        """Take back changes as `undo_to` does, but as new changes, which can be undone in their turn."""
        cdef int64_t i
        cdef Undo entry
        self.changes_made += 1
        self.last = None
        for i in range(self.log.position() - 1, position - 1, -1):
            entry = self.log.at(i)[0]
            self.repeat_backwards(&entry)

    def forget_below(self, int64_t position):
        """Forget the changes below a position: they will not be undone any more."""
        while self.log.first < self.log.end and self.log.base + <int64_t>self.log.first < position:
            self.forget(&self.log.entries[self.log.first])
            self.log.forget_first()

    def switch_off(self):
        """Forget all changes, and note no more."""
        self.forget_below(self.log.position())
        self.noting = False

    cdef int undo(self, const Undo *entry) except -1:
        cdef Row now
        cdef TopicRows topic
        cdef uint32_t i
        if entry.kind == CHANGED:
            self.rows.load(entry.row, &now)
            self.rows.count_row(&now, -1)
            self.rows.store(entry.row, &entry.values)
            self.rows.count_row(&entry.values, 1)
            self.rows.release(&now)
        elif entry.kind == ADDED:
            self.unlink_row(entry.row)
            self.free_row(entry.row)
        elif entry.kind == REMOVED:
            self.link_row(entry.row)
        else:
            topic = <TopicRows>self.numbered[entry.topic]
            if entry.kind == TOPIC_ADDED:
                del self.topics[topic.id]
                self.free_topic(topic)
            else:
                self.topics[topic.id] = topic
                for i in range(topic.count):
                    self.rows.set_live(topic.rows[i], True)
        return 0

    cdef int repeat_backwards(self, const Undo *entry) except -1:
        # The opposite of a change, as a change.
        cdef Row values
        cdef TopicRows topic, again
        cdef uint32_t i, row
        if entry.kind == CHANGED:
            row = self.successor(entry.row)
            self.rows.load(row, &values)
            self.rows.take(&entry.values)
            self.change_row(row, &values, &entry.values)
        elif entry.kind == ADDED:
            row = self.successor(entry.row)
            self.unlink_row(row)
            self.log.add(REMOVED, 0, row, NULL)
        elif entry.kind == TOPIC_ADDED:
            self.remove_topic((<TopicRows>self.numbered[entry.topic]).id)
        elif entry.kind == TOPIC_REMOVED:
            # New rows with the same values; the old ones go when their removal is forgotten.
            topic = <TopicRows>self.numbered[entry.topic]
            self.add_topic(topic.id)
            for i in range(topic.count):
                again = <TopicRows>self.topics[topic.id]
                self.rows.load(topic.rows[i], &values)
                self.rows.take(&values)
                self.add_row(again, i, self.id_of_row(topic.rows[i]), &values)
        else:
            raise InvariantError("a removed row outlived the change that removed it")
        return 0

    cdef uint32_t successor(self, uint32_t row) except 0xFFFFFFFF:
        # The live row of a partition: its topic may have been removed and, with new rows, brought back.
        cdef TopicRows topic
        cdef int64_t position
        if self.is_live(row):
            return row
        topic = <TopicRows>self.topics[self.topic_of_row(row).id]
        position = self.position_of(topic, self.id_of_row(row))
        if position < 0:
            raise InvariantError(f"row {row} has no successor in topic {topic.id}")
        return topic.rows[position]

    cdef int forget(self, const Undo *entry) except -1:
        if entry.kind == CHANGED:
            self.rows.release(&entry.values)
        elif entry.kind == REMOVED:
            self.free_row(entry.row)
        elif entry.kind == TOPIC_REMOVED:
            self.free_topic(<TopicRows>self.numbered[entry.topic])
        return 0

    # --- changes and frozen copies ----------------------------------------------------------------------------------

    def changes(self, int64_t start, int64_t end):
        """The differences between two positions, both of them not yet forgotten.

        Returns:
            A dict of `Change` by `PartitionKey`.
        """
        cdef dict before = {}, after = {}, result = {}
        cdef uint32_t row
        self.first_values(start, end, before)
        self.first_values(end, self.log.position(), after)
        for number, value in before.items():
            row = number
            if number in after:
                now = after[number]
            else:
                now = self.row_value(row) if self.is_live(row) else None
            key = self.row_key(row)
            known = result.get(key)
            if known is not None:  # the same topic id again: one of both rows at any time
                value = value or known.before
                now = now or known.after
            result[key] = Change(value, now)
        return {key: change for key, change in result.items() if change.before != change.after}

    cdef int first_values(self, int64_t start, int64_t end, dict found) except -1:
        # By row, what it was before the first change between the positions; None: not there.
        cdef int64_t i
        cdef uint32_t j
        cdef Undo *entry
        cdef TopicRows topic
        for i in range(start, end):
            entry = self.log.at(i)
            if entry.kind == CHANGED:
                if entry.row not in found:
                    found[entry.row] = self.make(&entry.values)
            elif entry.kind == ADDED:
                found.setdefault(entry.row, None)
            elif entry.kind == REMOVED:
                if entry.row not in found:
                    found[entry.row] = self.row_value(entry.row)
            elif entry.kind == TOPIC_REMOVED:
                topic = <TopicRows>self.numbered[entry.topic]
                for j in range(topic.count):
                    if topic.rows[j] not in found:
                        found[topic.rows[j]] = self.row_value(topic.rows[j])
        return 0

    def freeze(self):
        """Copy the present partitions, for a snapshot: costs a pointer for each thousand partitions and each topic.

        Chunks of rows and lists of topics are shared with the copy; the table copies each of them before it first
        changes it.
        """
        cdef FrozenPartitions made = FrozenPartitions.__new__(FrozenPartitions)
        made.rows = self.rows.freeze()
        made.codec = PartitionCodec(made.rows)
        made.topics = self.topics.copy()
        self.stamp += 1
        return made
