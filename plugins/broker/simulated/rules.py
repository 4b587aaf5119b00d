"""What must hold of replicated partitions, judged from logs, answers and committed metadata.

acknowledged        who is told that a record is committed (acks=all) is told the truth: all in sync have it, and so do
                    as many replicas as ``min.insync.replicas`` asks for
committed stays     a new leader has everything that was committed, unless its election was unclean, or it lost power
                    and was the last of the ISR
logs agree          below the high watermark every replica has the same batches, byte for byte, and epochs never fall
in sync             each replica that the controller has in the ISR has all committed records, but for deleted ones
high watermark      of a leader never falls within its epoch; lies within the log
consumers           read committed records alone; are never told of an earlier end than before by a leader that knows
                    as much
order               a leader appends what producers write to a partition in the order in which the requests came, also
                    where some of them wait: what they have is looked at aside
times               who asks for the first record of a time is told of a committed one, and of none that comes behind
                    another one that he could read
own records         a log holds nothing but what was written to that topic: not what another of its name held
once                what a producer numbers and sends again is committed once
sequences           of what a producer numbers nothing is missing between two committed batches, and after a newer epoch
                    of it comes no older one: a fenced producer stays fenced
producers           what a replica knows of a producer is what its log says: so leader and followers know the same; not
                    where the log directory failed, for no request is served from there
transactions        who reads what is committed of transactions gets records of none that is open, and those that were
                    aborted, and no others, are named to him; below a last stable offset none is open
log start           of a process's log never falls, but where it begins anew; is never above the high watermark
proposed            a leader proposes nobody for the ISR whom it knows to be fenced, shutting down or gone (KIP-841)
KIP-841, epochs     and the other rules of controllers: see there

Brokers sync nothing before they acknowledge, as Kafka's: what a power cut takes from one replica the others have. Where
the last replica in sync loses power, records are lost by the rules; the truth is cut there, and counted. So it is where
Kafka 4.3.1 itself lets a replica lead that was removed and has deleted its log: one that a reassignment removed while
fewer than ``min.insync.replicas`` were in sync stays in the ELR. And where it makes a replica the ISR, without saying
that it recovers, as a reassignment is cancelled and nobody else is left.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Protocol

from kraftcore.core.batch import RecordBatch, iter_batches
from kraftcore.core.log import Log
from kraftcore.errors import InvariantError
from kraftcore.metadata import Image, PartitionKey
from kraftcore.metadata import Partition as Row
from kraftcore.metadata.partition import NO_LEADER, RECOVERING
from kraftcore.plugins.broker.partition import Partition, TopicPartition
from kraftcore.plugins.broker.replicas import HostedPartition
from kraftcore.plugins.broker.simulated.cleaning import Cleaned
from kraftcore.plugins.broker.simulated.truth import (
    ABORTED,
    COMMITTED,
    PLAIN,
    TRANSACTIONAL,
    Seen,
    Shadow,
    Truth,
    seen_of,
)
from kraftcore.plugins.controller.simulated.rules import Rules
from kraftcore.simulation.checks import Violation

_OUTCOMES = {ABORTED: "aborted", COMMITTED: "committed"}
_SEQUENCES = 2**31  # then they begin at 0 again


class Watched(Protocol):
    """A broker, as far as it is looked into."""

    number: int

    @property
    def hosted(self) -> Mapping[TopicPartition, HostedPartition]:
        """Its partitions."""

    def is_offline(self, name: TopicPartition) -> bool:
        """Whether the log of a partition is in a directory that failed."""


class _Known:
    """What was last seen of a partition in one process."""

    __slots__ = ("high_watermark", "leader_epoch", "led", "log", "opened", "state")

    def __init__(self, log: Log) -> None:
        self.state: tuple[Any, ...] = ()
        self.log = log  # another one when the partition was deleted and made anew
        self.opened = log.log_end_offset
        self.led = False
        self.leader_epoch = -1
        self.high_watermark = 0


class PartitionRules:
    """Watches one run.

    Args:
        controllers: the rules of its controllers; they have what is committed.
        min_isr: ``min.insync.replicas`` of all topics.
        tell: is told what happens to a partition: on which broker (0: none), the partition's name, what; or None.

    Attributes:
        truths: by topic id and number.
        acknowledged: offset below which acks=all was answered, by topic id and number.
        losses: how often records were lost as the rules allow.
    """

    def __init__(self, controllers: Rules, min_isr: int, tell: Callable[[int, str, str], None] | None = None) -> None:
        self.truths: dict[PartitionKey, Truth] = {}
        self.acknowledged: dict[PartitionKey, int] = {}
        self.losses = 0
        self._controllers = controllers
        self._min_isr = min_isr
        self._tell = tell
        self._names: dict[PartitionKey, str] = {}
        self._rows: dict[PartitionKey, Row] = {}
        self._shadows: dict[PartitionKey, dict[int, Shadow]] = {}
        self._known: dict[int, dict[PartitionKey, _Known]] = {}
        self._numbered: set[int] = set()
        self._written: dict[int, set[PartitionKey]] = {}
        self._came: dict[int, dict[TopicPartition, list[int]]] = {}  # contents of batches, by broker, in order
        self._times: dict[int, int] = {}  # of all records of a batch, by its content
        self._decided: dict[tuple[int, int], int] = {}
        self._unclean: dict[PartitionKey, int] = {}  # the newest epoch that began with an unclean election
        self._told: dict[PartitionKey, tuple[int, int]] = {}  # leader epoch and end, as told to consumers
        self._states: dict[PartitionKey, int] = {}  # leader epoch as last seen in what is committed

    # --- what the controllers decide ----------------------------------------------------------------------------------

    def committed(self) -> None:
        """The metadata moved on."""
        image = self._controllers.reference
        for topic_id in image.topics:
            for number, each in image.partitions.of_topic(topic_id):
                key = PartitionKey(topic_id, number)
                if self._tell is not None:
                    self._tell_row(self._tell, key, each)
                self._note_removed(key, each)
                self._note_reverted(key, each)
                if each.leader_epoch != self._states.get(key):
                    self._states[key] = each.leader_epoch
                    if each.recovery_state == RECOVERING and each.leader != NO_LEADER:
                        self._unclean[key] = max(self._unclean.get(key, -1), each.leader_epoch)
                self._check_in_sync(key)

    def _name(self, key: PartitionKey) -> str:
        """What people call a partition: topic and number."""
        name = self._names.get(key)
        if name is None:
            topic = self._controllers.reference.topics.get(key.topic_id)
            if topic is None:
                return f"{key.topic_id}-{key.partition_id}"
            name = self._names[key] = f"{topic.name}-{key.partition_id}"
        return name

    def _broken(self, rule: str, key: PartitionKey, detail: str) -> Violation:
        name = self._name(key)
        return Violation(rule, f"{name} of topic {key.topic_id}: {detail}", name)

    def _tell_row(self, tell: Callable[[int, str, str], None], key: PartitionKey, row: Row) -> None:
        before = self._rows.get(key)
        if row != before:
            made = f"made, topic {key.topic_id}; " if before is None else ""
            elr = f", elr {list(row.elr)}" if row.elr else ""
            unclean = ", recovering" if row.recovery_state == RECOVERING else ""
            tell(
                0,
                self._name(key),
                f"{made}controller: leader {row.leader}, epoch {row.leader_epoch}, isr {list(row.isr)}{elr}{unclean}, "
                f"replicas {list(row.replicas)}, partition epoch {row.partition_epoch}",
            )

    def _note_removed(self, key: PartitionKey, row: Row) -> None:
        """Kafka 4.3.1 leaves replicas in the ELR that a reassignment removed below ``min.insync.replicas``.

        They delete their logs, or never had one, and may lead without an unclean election when they are replicas again.
        """
        for member in {*row.elr} - {*row.replicas}:
            self._shadow(key, member).is_damaged = True

    def _shadow(self, key: PartitionKey, number: int) -> Shadow:
        truth = self.truths.setdefault(key, Truth(key))
        return self._shadows.setdefault(key, {}).setdefault(number, Shadow(truth.resets))

    def _note_reverted(self, key: PartitionKey, row: Row) -> None:
        """Kafka 4.3.1 makes a replica the ISR that is not in it where a reassignment is cancelled, none of the replicas
        before it is in sync, and unclean elections are allowed; and does not say that it recovers."""
        before = self._rows.get(key)
        self._rows[key] = row
        is_over = before is not None and before.adding and not row.adding and row.isr
        if before is not None and is_over and not {*before.isr, *before.elr} & {*row.isr}:
            self._unclean[key] = max(self._unclean.get(key, -1), row.leader_epoch)

    def _check_in_sync(self, key: PartitionKey) -> None:
        truth = self.truths.get(key)
        partition = self._controllers.reference.partitions.get(*key)
        if truth is None or partition is None or self._unclean.get(key, -1) > truth.epoch:
            return
        for member in partition.isr:
            shadow = self._shadows[key].get(member)
            start, end = (0, 0) if shadow is None else (shadow.start, shadow.end)
            is_short = end < truth.end or start > truth.start
            if is_short and not (shadow is not None and (shadow.is_damaged or shadow.resets != truth.resets)):
                raise self._broken(
                    "in sync",
                    key,
                    f"{truth.start} to {truth.end} is committed, broker {member} of isr {list(partition.isr)} has "
                    f"{start} to {end}",
                )

    # --- brokers ------------------------------------------------------------------------------------------------------

    def started(self, number: int) -> None:
        """A broker's process opened its logs."""
        self._known[number] = {}
        self._came[number] = {}

    def lost_power(self, number: int, ends: Mapping[PartitionKey, int]) -> None:
        """A broker starts after a power cut.

        Args:
            number: of the broker.
            ends: of the logs that it still has.
        """
        for key, shadows in self._shadows.items():
            shadow = shadows.get(number)
            if shadow is not None and ends.get(key, 0) < shadow.end:
                shadow.is_damaged = True

    def cleaned(self, number: int, key: PartitionKey, left: Mapping[int, Cleaned]) -> None:
        """A cleaner rewrote a broker's log while no process had it open.

        Args:
            number: of the broker.
            key: topic id and number.
            left: the batches that it changed, by their first offsets.
        """
        self.truths[key].clean(left)
        self._shadows[key][number].forget()
        for each in left.values():
            if each.after is not None:
                self._written.setdefault(each.after, set()).add(key)

    def last_numbered(self, number: int, key: PartitionKey) -> set[int]:
        """Where in a broker's log the last batch of each producer is; a cleaner leaves its header ."""
        shadow = self._shadows.get(key, {}).get(number)
        return set() if shadow is None else {seen.base_offset for seen in shadow.numbered.values()}

    def check(self, broker: Watched) -> None:
        """A broker handled an event."""
        for replica in broker.hosted.values():
            topic_id = replica.hosted.topic_id
            if topic_id is None:
                raise Violation("own records", f"broker {broker.number}: {replica.hosted.name} has no topic id")
            self._check(broker, PartitionKey(topic_id, replica.hosted.name.partition), replica.partition)

    def _check(self, broker: Watched, key: PartitionKey, partition: Partition) -> None:
        number, log = broker.number, partition.log
        known = self._known[number].get(key)
        if known is None or known.log is not log:
            known = self._known[number][key] = _Known(log)
        leads, epoch, high_watermark = partition.leading is not None, partition.leader_epoch, partition.high_watermark
        state = (log.log_end_offset, log.log_start_offset, log.last_epoch, leads, epoch, high_watermark)
        if log.closed or state == known.state:
            return
        whose = f"broker {number} in epoch {epoch}"
        if self._tell is not None:
            self._tell_state(self._tell, number, partition, known)
        falls = known.state and log.log_start_offset < known.state[1] < known.state[0]
        if falls and log.log_end_offset >= known.state[1]:  # else all is gone: its leader's log ended below its start
            raise self._broken("log start", key, f"{whose}: falls from {known.state[1]} to {log.log_start_offset}")
        try:
            partition.check_invariants()
        except InvariantError as error:
            raise self._broken("high watermark", key, f"{whose}: {error}") from error
        shadow, truth = self._shadow(key, number), self.truths[key]
        if known.state and known.state[1] < log.log_start_offset <= known.state[0]:
            truth.start = max(truth.start, log.log_start_offset)
        known.state = state
        new = shadow.follow(log)
        self._check_new(whose, key, shadow, new, partition)
        if leads:
            self._check_order(whose, key, new, partition, self._came[number].get(partition.name, []), known.opened)
        if not broker.is_offline(
            partition.name
        ):  # the snapshot may have failed after the append; a start reads it anew
            self._check_producers(whose, key, shadow, partition)
        if leads and not (known.led and known.leader_epoch == epoch):
            self._elected(whose, key, truth, shadow, epoch)
        elif leads and high_watermark < known.high_watermark:
            raise self._broken("high watermark", key, f"{whose}: falls from {known.high_watermark} to {high_watermark}")
        known.led, known.leader_epoch, known.high_watermark = leads, epoch, high_watermark
        if epoch < truth.epoch:
            return  # it does not know yet that records were lost
        if leads and high_watermark > truth.end:
            self._compare(whose, truth, shadow, truth.end)
            self._check_numbered(whose, truth, truth.extend(shadow.batches, high_watermark), shadow)
            self._check_in_sync(key)
        self._compare(whose, truth, shadow, high_watermark)
        if shadow.is_damaged and shadow.end >= truth.end:
            shadow.is_damaged = truth.first_difference(shadow.batches, truth.end) is not None

    def _tell_state(
        self, tell: Callable[[int, str, str], None], number: int, partition: Partition, known: _Known
    ) -> None:
        log = partition.log
        is_cut = bool(known.state) and log.log_end_offset < known.state[0]
        role = "leads" if partition.leading is not None else "follows" if partition.is_following else "stands"
        tell(
            number,
            str(partition.name),
            f"{role} in epoch {partition.leader_epoch}, log {log.log_start_offset}-{log.log_end_offset}"
            f"{f' cut from {known.state[0]}' if is_cut else ''} of epoch {log.last_epoch}, "
            f"high watermark {partition.high_watermark}",
        )

    def _check_numbered(self, whose: str, truth: Truth, new: list[Seen], shadow: Shadow) -> None:
        """What producers numbered is committed once, in their order; a leader knows only producers of its batches."""
        for seen in new:
            if seen.producer_id < 0:
                continue
            is_marker = seen.kind in (ABORTED, COMMITTED)
            other, last = truth.places.get(seen.crc), truth.numbered.get(seen.producer_id)
            if seen.crc in self._numbered:
                if other is not None and other >= shadow.start:
                    raise self._broken("once", truth.key, f"{whose}: {seen} is committed at {other} as well")
                truth.places[seen.crc] = seen.base_offset
            truth.numbered[seen.producer_id] = seen
            if last is None or last.base_offset < shadow.start or truth.is_cleaned(last.base_offset, seen.base_offset):
                continue
            expected = (last.last + 1) % _SEQUENCES if seen.producer_epoch == last.producer_epoch else 0
            if seen.producer_epoch < last.producer_epoch or (seen.first != expected and not is_marker):
                raise self._broken("sequences", truth.key, f"{whose}: {seen} is committed behind {last}")

    def _check_producers(self, whose: str, key: PartitionKey, shadow: Shadow, partition: Partition) -> None:
        known = partition.producers.all
        cleaned = self.truths[key].cleaned
        for producer_id, seen in shadow.numbered.items():
            state = known.get(producer_id)
            if state is not None and state.batches and state.batches[-1].first_offset in cleaned:
                continue  # a snapshot knows what was its last batch when what followed had been cut off
            told = (-1, -1, -1)
            if state is not None and state.batches:
                told = (state.epoch, state.batches[-1].last_sequence, state.batches[-1].last_offset)
            elif state is not None:
                told = (state.epoch, -1, -1)
            is_marker = seen.kind in (ABORTED, COMMITTED)  # begins an epoch of its own
            if told != (seen.producer_epoch, seen.last, -1 if is_marker else seen.next_offset - 1):
                raise self._broken(
                    "producers", key, f"{whose}: epoch, sequence and offset are {told}, the log has {seen}"
                )
        for producer_id, state in known.items():
            last = state.batches[-1] if state.batches else None
            if last is None or producer_id in shadow.numbered or last.first_offset in cleaned:
                continue
            if last.last_offset >= shadow.start:
                raise self._broken("producers", key, f"{whose}: of {state} the log has nothing")
        first = min(shadow.open.values(), default=partition.high_watermark)
        stable = partition.last_stable_offset
        if stable > max(first, shadow.start):
            raise self._broken("transactions", key, f"{whose}: stable up to {stable}, {shadow.open} are open")

    def _check_new(self, whose: str, key: PartitionKey, shadow: Shadow, new: list[Seen], partition: Partition) -> None:
        at = len(shadow.batches) - len(new)
        for before, seen in pairwise(shadow.batches[max(at - 1, 0) :]):
            if seen.epoch < before.epoch:
                raise self._broken("logs agree", key, f"{whose}: {seen} follows {before}")
        for seen in new:
            if seen.kind in (ABORTED, COMMITTED):
                if self._decided.get((seen.producer_id, seen.producer_epoch)) != seen.kind:
                    raise self._broken("own records", key, f"{whose}: nobody decided {seen}")
            elif key not in self._written.get(seen.crc, ()):
                raise self._broken("own records", key, f"{whose}: nobody wrote {seen} to it")
        epochs = [entry.epoch for entry in partition.log.epoch_entries()]
        if epochs != sorted(set(epochs)):
            raise self._broken("logs agree", key, f"{whose}: leader epochs {epochs}")

    def _check_order(
        self, whose: str, key: PartitionKey, new: list[Seen], partition: Partition, came: list[int], opened: int
    ) -> None:
        """What its process appends as a leader; batches of transactions do not wait for others (``kafka_leader``)."""
        for seen in new:
            if seen.kind != PLAIN or seen.epoch != partition.leader_epoch or seen.base_offset < opened:
                continue
            if seen.crc not in came:
                raise self._broken("order", key, f"{whose}: {seen} is appended behind what came after it")
            del came[: came.index(seen.crc) + 1]

    def _elected(self, whose: str, key: PartitionKey, truth: Truth, shadow: Shadow, epoch: int) -> None:
        if epoch < truth.led:
            return  # it learns late that it was elected: a later leader may have committed since
        truth.led = epoch
        is_unclean = truth.epoch < self._unclean.get(key, -1) <= epoch
        has_less = shadow.end < truth.end
        difference = truth.first_difference(shadow.batches, truth.end)
        if has_less or difference is not None:
            if not (is_unclean or shadow.is_damaged):
                raise self._broken(
                    "committed stays",
                    key,
                    f"{whose} leads with a log to {shadow.end}, {truth.end} is committed; differs: {difference}",
                )
            if self._tell is not None:
                why = "an unclean election" if is_unclean else "what a power cut took"
                self._tell(0, self._name(key), f"records are lost by the rules, by {why}: {truth.end} was committed")
            truth.cut(shadow, epoch)
            self.losses += 1
            self.acknowledged[key] = min(self.acknowledged.get(key, 0), truth.end)
            self._told.pop(key, None)
            shadow.resets, shadow.is_damaged = truth.resets, False
        elif is_unclean:
            truth.outvoted(shadow, epoch)
            shadow.resets = truth.resets

    def _compare(self, whose: str, truth: Truth, shadow: Shadow, below: int) -> None:
        above = shadow.compared if shadow.resets == truth.resets else 0
        difference = truth.first_difference(shadow.batches, below, above)
        if difference is None:
            if below <= truth.end:  # a high watermark beyond that is of before records were lost
                shadow.compared = below
                shadow.resets = truth.resets
        elif shadow.resets == truth.resets:
            raise self._broken("logs agree", truth.key, f"{whose} has {difference}; committed is {truth.batches[-3:]}")

    # --- requests and answers -----------------------------------------------------------------------------------------

    def written(self, key: PartitionKey, records: Any) -> None:
        """A producer's records reached a broker that has the partition."""
        batch = RecordBatch(records, verify=False)
        self._written.setdefault(batch.crc, set()).add(key)
        self._times[batch.crc] = batch.max_timestamp_ms

    def came(self, number: int, name: TopicPartition, records: Any) -> None:
        """A broker takes up a producer's request: what is in it for a partition."""
        self._came[number].setdefault(name, []).append(RecordBatch(records, verify=False).crc)

    def numbered(self, records: Any) -> None:
        """A batch that may be sent again, and is to be in the log once."""
        self._numbered.add(RecordBatch(records, verify=False).crc)

    def decided(self, producer_id: int, epoch: int, *, is_commit: bool) -> None:
        """How a transaction ends whose markers have this epoch."""
        self._decided[producer_id, epoch] = COMMITTED if is_commit else ABORTED

    def told_committed(
        self, number: int, key: PartitionKey, epoch: int, base: int, records: Any, replicas: int
    ) -> None:
        """A producer that asked for acks=all is told that its records are committed.

        Args:
            number: of the broker that tells it.
            key: topic id and number.
            epoch: leader epoch in which the records came.
            base: offset that it tells.
            records: as they came.
            replicas: how many there were at least since the records came, as the broker knows.
        """
        truth = self.truths[key]
        if epoch < truth.epoch:
            return
        crc = RecordBatch(records, verify=False).crc
        place = truth.holding(base)
        if place == len(truth.batches) or (truth.batches[place].base_offset, truth.batches[place].crc) != (base, crc):
            raise self._broken(
                "acknowledged", key, f"broker {number} acknowledges {base}, {truth.end} is committed: {crc}"
            )
        end = truth.batches[place].next_offset
        holders = [each for each, shadow in self._shadows[key].items() if shadow.end >= end]
        is_told_again = end <= self.acknowledged.get(key, 0)  # then enough had it, and may be none of the replicas now
        if not is_told_again and len(holders) < min(self._min_isr, replicas):
            raise self._broken(
                "acknowledged", key, f"{base} is acknowledged, only {holders} have it; {self._min_isr} are to"
            )
        self.acknowledged[key] = max(self.acknowledged.get(key, 0), end)
        if self._tell is not None:
            self._tell(number, self._name(key), f"acknowledges {base}-{end} (acks=all)")

    def read(self, number: int, key: PartitionKey, partition: Partition, records: bytes) -> None:
        """A consumer is sent records."""
        truth = self.truths.get(key)
        if truth is None or partition.leader_epoch < truth.epoch or not records:
            return
        if self._shadows[key][number].resets != truth.resets:
            return
        batches = [seen_of(batch) for batch in iter_batches(records, verify=False)]
        difference = truth.first_difference(batches, batches[-1].next_offset)
        if difference is not None or batches[-1].next_offset > truth.end:
            raise self._broken("consumers", key, f"broker {number} sends {batches[-1]}; {truth.end} is committed")

    def read_committed(
        self, number: int, key: PartitionKey, partition: Partition, records: bytes, aborted: Iterable[tuple[int, int]]
    ) -> None:
        """A consumer of what is committed of transactions is sent records.

        Args:
            number: of the broker.
            key: topic id and number.
            partition: there.
            records: that are sent.
            aborted: transactions that he is told were aborted: first offset and producer id.
        """
        truth = self.truths.get(key)
        if truth is None or partition.leader_epoch < truth.epoch or self._shadows[key][number].resets != truth.resets:
            return
        left = sorted(aborted)
        leaves_out: set[int] = set()
        for batch in iter_batches(records, verify=False):
            seen = seen_of(batch)
            while left and left[0][0] < seen.next_offset:
                leaves_out.add(left.pop(0)[1])
            if seen.kind == ABORTED:
                leaves_out.discard(seen.producer_id)
            if seen.kind != TRANSACTIONAL:
                continue
            outcome = truth.outcomes.get(seen.base_offset)
            if outcome is None:
                if self._stood_at_start(number, key, seen):
                    continue
                raise self._broken("transactions", key, f"broker {number} sends {seen}, whose transaction is open")
            if (outcome == ABORTED) != (seen.producer_id in leaves_out):
                raise self._broken(
                    "transactions", key, f"broker {number} sends {seen}, {_OUTCOMES[outcome]}, aborted: {aborted}"
                )

    def _stood_at_start(self, number: int, key: PartitionKey, seen: Seen) -> bool:
        """Whether a marker ended the transaction in the log that a process began with: it counts as committed, as in
        Kafka."""
        opened = self._known[number][key].opened
        return any(
            each.producer_id == seen.producer_id and each.kind in (ABORTED, COMMITTED)
            for each in self._shadows[key][number].batches
            if seen.base_offset < each.base_offset < opened
        )

    def told_end(self, key: PartitionKey, epoch: int, end: int) -> None:
        """A consumer is told where the committed records end."""
        truth = self.truths.get(key)
        if truth is None or epoch < truth.epoch:
            return
        before = self._told.get(key, (-1, 0))
        if epoch >= before[0]:
            if end < before[1]:
                raise self._broken("consumers", key, f"said to end at {end} in epoch {epoch}, before that at {before}")
            self._told[key] = (epoch, end)

    def told_time(
        self, number: int, key: PartitionKey, partition: Partition, wanted: int, end: int, told: tuple[int, int]
    ) -> None:
        """A consumer is told of the first record of a time or later.

        Args:
            number: of the broker.
            key: topic id and number.
            partition: there.
            wanted: the time.
            end: how far the consumer could read when it asked.
            told: offset and time of the record; -1: there is none.
        """
        truth, shadow = self.truths.get(key), self._shadows.get(key, {}).get(number)
        if truth is None or shadow is None or partition.leader_epoch < truth.epoch or shadow.resets != truth.resets:
            return
        offset, time = told
        limit = end if offset < 0 else offset
        for seen in shadow.batches:
            if seen.next_offset > limit:
                break
            if self._times.get(seen.crc, -1) >= wanted and seen.base_offset not in truth.cleaned:
                raise self._broken("times", key, f"broker {number} tells {told} for {wanted}, and not {seen}")
        if offset < 0 or offset < partition.log.log_start_offset:
            return  # what it tells may be deleted now
        place = truth.holding(offset)
        found = truth.batches[place] if place < len(truth.batches) else None
        is_first = found is not None and (
            offset in (found.base_offset, partition.log.log_start_offset) or found.base_offset in truth.cleaned
        )
        if found is None or not is_first or time < wanted or self._times.get(found.crc, time) != time:
            raise self._broken("times", key, f"broker {number} tells {told} for {wanted}; there is {found}")

    def proposed(
        self, number: int, key: PartitionKey, isr: Collection[int], before: Collection[int], image: Image
    ) -> None:
        """A leader decides to propose an ISR.

        Args:
            number: of its broker.
            key: topic id and number.
            isr: who shall be in it.
            before: who is in it as far as the leader knows, which may hear later of that than of brokers.
            image: all that it knows.
        """
        if self._tell is not None:
            self._tell(number, self._name(key), f"proposes isr {list(isr)}")
        for member in isr:
            broker = image.brokers.get(member)
            is_active = broker is not None and broker.is_active
            if member not in (number, *before) and not is_active:
                raise self._broken("proposed", key, f"broker {number} proposes {member}, which it knows as {broker}")

    # --- the end ------------------------------------------------------------------------------------------------------

    def lacking(self, alive: Collection[Watched]) -> Iterator[str]:
        """What is missing from full ISRs on brokers that live, and hold the partition in a directory that works."""
        image = self._controllers.reference
        for topic in image.topics.values():
            for number, each in image.partitions.of_topic(topic.id):
                name = TopicPartition(topic.name, number)
                living = {broker.number for broker in alive if not broker.is_offline(name)}
                expected = living & set(each.replicas)
                if each.leader != NO_LEADER and set(each.isr) != expected:
                    yield f"{topic.name}-{number} is in sync on {each.isr}, alive are {sorted(expected)}: {each}"

    def check_end(self) -> None:
        """All faults have ended long ago: each replica in sync has the committed records, and nothing else there."""
        image = self._controllers.reference
        for key, truth in self.truths.items():
            partition = image.partitions.get(*key)
            for member in () if partition is None else partition.isr:
                shadow = self._shadows[key].get(member)
                batches = [] if shadow is None else shadow.batches
                difference = truth.first_difference(batches, truth.end)
                if difference is not None:
                    raise self._broken("logs agree", key, f"broker {member} has {difference} at the end")
