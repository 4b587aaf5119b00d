"""The rules of every run, checked by logs and messages, without trusting what the replicas say of themselves.

one leader per epoch        at most one replica ever leads an epoch
votes kept                  a replica (id and directory) votes for one candidate an epoch, over all its restarts,
                            and never shows a lower epoch than before
log matching                (offset, epoch) names one batch in all logs, and so it is for the batches before it
durable majority            a leader's committed records are on the disks of a majority of its log's last voter set
committed stays             records that one replica knew to be committed never differ, and are never lost, elsewhere
leader completeness         a new leader's log holds everything committed
clients' high watermark     never falls within the life of a process, never beyond the log
pre-vote                    asking for it does not raise the epoch
voter sets                  at most one uncommitted change of membership in a log; neighbours differ by one voter;
                            below a high watermark the voter set in force is that of the committed records;
                            a leader whose removal is committed does not lead any more
same state                  state machines with the same records applied are equal; snapshots restore that very state
upgrade kept                an upgrade of kraft.version that was answered is committed
linearizable reads          a barrier shows everything acknowledged before it began
progress                    after healing: a leader, new commits, everyone who is up has them (``world`` demands it)
invariant                   executor and replica agree with themselves after every event (``check_invariants``)
floor                       when all is over, a host that begins a quorum alone does not make others lose what their
                            disks say is committed (``world``)
reads end                   after healing no barrier waits that began before (``world``)

A workload's own rules are in its module.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from kraftcore.core.batch import RecordBatch, iter_batches
from kraftcore.core.disk.files import Files
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.protocol.messages.vote import VoteRequest, VoteResponse
from kraftcore.raft.control_records import voter_changes
from kraftcore.raft.events import Effects
from kraftcore.raft.quorum import VoterSet
from kraftcore.raft.roles import Candidate, Role
from kraftcore.storage.committed import CommittedFile

if TYPE_CHECKING:
    from kraftcore.simulation.host import Host, Ticket

_READ_BYTES = 1 << 20


class Violation(Exception):
    """A rule was broken.

    Attributes:
        rule: name of the rule.
        detail: how it was broken, in words.
        about: name, in the trace, of the one of several things that the rule is about; None: the whole run.
    """

    def __init__(self, rule: str, detail: str, about: str | None = None) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule
        self.detail = detail
        self.about = about


class Seen(NamedTuple):
    """A batch in a log."""

    base_offset: int
    next_offset: int
    epoch: int
    crc: int


class Shadow:
    """A host's log as the checker last saw it."""

    def __init__(self) -> None:
        self.batches: list[Seen] = []
        self.start = 0
        self.end = 0
        self.voters: list[tuple[int, VoterSet]] = []
        self.compared = 0  # committed and found equal to the history below here
        self.high_watermark = 0
        self.role: tuple[Role, int] | None = None


class Checker:
    """Checks the rules for all hosts of one world.

    Args:
        on_records: called with every batch of records when the history grows by it.

    Attributes:
        history: every committed batch, in order.
        end: offset where the history ends.
        acknowledged_end: the offset below which everything was acknowledged to some client.
        leaders: number of the leading host by epoch.
        kraft_version: the level committed in the history.
        commits: how often the history grew.
    """

    def __init__(self, on_records: Callable[[RecordBatch], None]) -> None:
        self._on_records = on_records
        self.history: list[Seen] = []
        self.end = 0
        self.acknowledged_end = 0
        self.leaders: dict[int, int] = {}
        self.voters: list[tuple[int, VoterSet]] = []
        self.kraft_version = 0
        self._at: dict[int, Seen] = {}
        self._names: dict[tuple[int, int], tuple[int, int, int]] = {}
        self._votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}
        self._states: dict[int, bytes | None] = {}
        self._shadows: dict[int, Shadow] = {}
        self._top_epoch = 0

    # --- hooks of the hosts -------------------------------------------------------------------------------------------

    def started(self, host: Host) -> None:
        """A process opened its log."""
        self._shadows[host.number] = Shadow()
        self._follow_log(host, self._shadows[host.number])

    def crashed(self, host: Host) -> None:
        """A process dies in the middle of its work; the unsynced end of its log may be lost or not."""
        if host.replica.role is not Role.PROSPECTIVE:
            self._top_epoch = max(self._top_epoch, host.replica.epoch)

    def before_sending(self, host: Host, effects: Effects) -> None:
        """Check effects before they become visible to other hosts."""
        replica = host.replica
        if replica.epoch < host.shows_epoch:
            raise Violation("votes kept", f"host {host.number} showed epoch {host.shows_epoch}, now {replica.epoch}")
        host.shows_epoch = replica.epoch
        saved = effects.election_state
        if isinstance(replica.state.role, Candidate):
            self._voted(host, replica.epoch, host.key)
        elif saved is not None and saved.leader_id == host.number:
            self._voted(host, saved.epoch, saved.voted_key or host.key)  # a sole voter is a candidate for no event
        for reply in effects.replies:
            if isinstance(reply.message, VoteResponse):
                self._answered_vote(host, reply.ticket, reply.message)

    def after_event(self, host: Host, effects: Effects) -> None:
        """A host handled an event."""
        shadow = self._shadows[host.number]
        log = host.log
        if effects.restore is not None:  # the log was replaced
            shadow.batches.clear()
            shadow.voters.clear()
        if log.log_end_offset != shadow.end or log.log_start_offset != shadow.start or effects.restore is not None:
            self._follow_log(host, shadow)
        replica = host.replica
        role = (replica.role, replica.epoch)
        if role != shadow.role:
            self._raised(host)
            shadow.role = role
            host.world.role_changed(host)
            if replica.role is Role.LEADER:
                self._elected(host, shadow)
        if effects.high_watermark is not None:
            self._committed(host, shadow, effects.high_watermark)
            if replica.role is Role.LEADER:
                self._still_voter(host, effects.high_watermark)
                self._durable(host, shadow, effects.high_watermark)
        if effects.voters is not None:
            self._check_voter_sets(host)

    def applied(self, host: Host, offset: int, digest: bytes | None) -> None:
        """A state machine applied everything below ``offset``; ``digest`` is None where there is none."""
        known = self._states.get(offset)
        if known is None:
            self._states[offset] = digest
        elif digest is not None and digest != known:
            raise Violation("same state", f"host {host.number} has another state at offset {offset} than others had")

    def restored(self, host: Host) -> None:
        """A state machine was loaded from a snapshot."""
        offset = host.executor.applier.offset
        if offset not in self._states:
            raise Violation("same state", f"host {host.number} restored {offset}, where nobody ever was")
        self.applied(host, offset, host.machine.digest)

    def holding(self, offset: int) -> Seen | None:
        """The committed batch that holds an offset."""
        at = bisect_right(self.history, offset, key=lambda seen: seen.base_offset) - 1
        found = self.history[at] if at >= 0 else None
        return found if found is not None and offset < found.next_offset else None

    def upgraded(self, level: int) -> None:
        """An administrator learns that kraft.version is at least this."""
        if level > self.kraft_version:
            raise Violation(
                "upgrade kept", f"kraft.version {level} is said to be in force, committed is {self.kraft_version}"
            )

    # --- votes --------------------------------------------------------------------------------------------------------

    def _answered_vote(self, host: Host, ticket: Ticket, response: VoteResponse) -> None:
        request = ticket.message
        if not isinstance(request, VoteRequest) or not response.topics:
            return
        asked, told = request.topics[0].partitions[0], response.topics[0].partitions[0]
        if told.vote_granted and not asked.pre_vote:
            saved = host.quorum_file.read()
            voted_id = None if saved is None or saved.voted_key is None else saved.voted_key.id
            if saved is None or (saved.epoch, voted_id) != (asked.replica_epoch, asked.replica_id):
                raise Violation("votes kept", f"host {host.number} grants a vote that is not on its disk: {saved}")
            self._voted(host, asked.replica_epoch, ReplicaKey(asked.replica_id, asked.replica_directory_id))

    def _voted(self, host: Host, epoch: int, candidate: ReplicaKey) -> None:
        # A static voter is the same one with every disk.
        voter = ReplicaKey(host.number) if host.world.is_static else host.key
        before = self._votes.setdefault((voter, epoch), candidate)
        if before.id != candidate.id:
            raise Violation("votes kept", f"{voter} voted for {before.id} and {candidate.id} in epoch {epoch}")

    def _raised(self, host: Host) -> None:
        epoch = host.replica.epoch
        if epoch > self._top_epoch:
            if host.replica.role is Role.PROSPECTIVE:
                raise Violation("pre-vote", f"host {host.number} raised its epoch to {epoch} to ask for pre-votes")
            self._top_epoch = epoch

    def _elected(self, host: Host, shadow: Shadow) -> None:
        epoch = host.replica.epoch
        other = self.leaders.setdefault(epoch, host.number)
        if other != host.number:
            raise Violation("one leader per epoch", f"hosts {other} and {host.number} lead epoch {epoch}")
        if epoch < max(self.leaders):
            return  # late votes: a later leader may have committed since
        if shadow.end < self.end:
            raise Violation(
                "leader completeness",
                f"host {host.number} leads epoch {epoch}, its log ends at {shadow.end}, {self.end} is committed",
            )
        voters = self._in_force(host, shadow)
        granted = sum(1 for key in voters.keys if self._granted(key, epoch) == host.number)
        if granted < len(voters) // 2 + 1:
            raise Violation(
                "one leader per epoch", f"host {host.number} leads epoch {epoch} by {granted} votes of {voters}"
            )
        for mine in reversed(shadow.batches):
            if mine.next_offset <= self.end:
                if self._at.get(mine.base_offset) != mine:
                    raise Violation("leader completeness", f"host {host.number} leads epoch {epoch} with {mine}")
                break

    # --- logs ---------------------------------------------------------------------------------------------------------

    def _follow_log(self, host: Host, shadow: Shadow) -> None:
        log = host.log
        start, end = log.log_start_offset, log.log_end_offset
        batches = shadow.batches
        if start > shadow.start:
            del batches[: next((at for at, seen in enumerate(batches) if seen.next_offset > start), len(batches))]
        while batches and batches[-1].next_offset > end:
            batches.pop()
        while shadow.voters and shadow.voters[-1][0] >= end:
            shadow.voters.pop()
        offset = batches[-1].next_offset if batches else start
        previous = batches[-1].epoch if batches else -1
        while offset < end:
            for batch in iter_batches(log.read(offset, _READ_BYTES), verify=False):
                seen = Seen(batch.base_offset, batch.next_offset, batch.leader_epoch, batch.crc)
                self._name(host, seen, previous)
                batches.append(seen)
                if batch.is_control:
                    shadow.voters += [(at, voters) for at, _, voters in voter_changes(batch) if voters is not None]
                offset, previous = seen.next_offset, seen.epoch
        shadow.start, shadow.end = start, end
        shadow.compared = min(shadow.compared, end)

    def _name(self, host: Host, seen: Seen, previous: int) -> None:
        place = (seen.base_offset, seen.epoch)
        known = self._names.get(place)
        if known is None:
            self._names[place] = (seen.crc, seen.next_offset, previous)
            return
        if known[:2] != (seen.crc, seen.next_offset) or (previous >= 0 and known[2] >= 0 and previous != known[2]):
            raise Violation(
                "log matching",
                f"host {host.number} has {seen} after epoch {previous}; "
                f"at that offset and epoch (crc, next offset, epoch before) are {known}",
            )
        if known[2] < 0 <= previous:
            self._names[place] = (*known[:2], previous)

    def _committed(self, host: Host, shadow: Shadow, high_watermark: int) -> None:
        if high_watermark < shadow.high_watermark or high_watermark > host.log.log_end_offset:
            raise Violation(
                "clients' high watermark",
                f"host {host.number}: {shadow.high_watermark} to {high_watermark}, log end {host.log.log_end_offset}",
            )
        shadow.high_watermark = high_watermark
        first = len(shadow.batches)
        while first and shadow.batches[first - 1].base_offset >= shadow.compared:
            first -= 1
        for seen in shadow.batches[first:]:
            if seen.next_offset > high_watermark:
                break
            self._compare(host, seen)
            shadow.compared = seen.next_offset

    def _compare(self, host: Host, seen: Seen) -> None:
        if seen.base_offset < self.end:
            if self._at.get(seen.base_offset) != seen:
                raise Violation(
                    "committed stays",
                    f"host {host.number} knows {seen} as committed, it was {self._at.get(seen.base_offset)}",
                )
            return
        if seen.base_offset > self.end:
            raise Violation("committed stays", f"host {host.number} commits {seen}, the history ends at {self.end}")
        self.history.append(seen)
        self._at[seen.base_offset] = seen
        self.end = seen.next_offset
        batch = RecordBatch(host.log.read(seen.base_offset, 1), verify=False)
        if batch.is_control:
            for offset, version, voters in voter_changes(batch):
                if voters is not None:
                    self.voters.append((offset, voters))
                if version is not None:
                    self.kraft_version = version
        else:
            self._on_records(batch)

    # --- voter sets ---------------------------------------------------------------------------------------------------

    def _check_voter_sets(self, host: Host) -> None:
        entries = list(host.replica.state.voter_sets)
        changes = 0
        for (_, before), (offset, after) in pairwise(entries):
            count = _changed(before, after)
            if count > 1:
                raise Violation("voter sets", f"host {host.number}: {before} to {after} at offset {offset}")
            if count and offset >= self.end:
                changes += 1
        if changes > 1:
            raise Violation("voter sets", f"host {host.number} has {changes} uncommitted changes from {self.end} on")

    def _in_force(self, host: Host, shadow: Shadow) -> VoterSet:
        """The voter set that a host's log puts in force, read from its records."""
        first = shadow.batches[0].base_offset if shadow.batches else shadow.end
        said = next(((at, voters) for at, voters in reversed(self.voters) if at < first), (-1, host.world.first_voters))
        return max([said, *shadow.voters[-1:]], key=lambda entry: entry[0])[1]

    def _granted(self, key: ReplicaKey, epoch: int) -> int | None:
        found = self._votes.get((key, epoch)) or self._votes.get((ReplicaKey(key.id), epoch))
        return None if found is None else found.id

    def _durable(self, host: Host, shadow: Shadow, high_watermark: int) -> None:
        voters = self._in_force(host, shadow)
        have = 0
        for key in voters.keys:
            other = next((other for other in host.world.hosts if key.matches(other.key)), None)
            # A voter whose disk was replaced since had it, for all that one can tell.
            have += other is None or (other.incarnation > 0 and other.log.flushed_offset >= high_watermark)
            # A static voter has one name with every disk: the same holds until the new one counts.
            have += other is not None and not key.has_directory and other.has_forgotten
        if have < len(voters) // 2 + 1:
            raise Violation(
                "durable majority", f"host {host.number} commits up to {high_watermark}, which {have} of {voters} have"
            )

    def _still_voter(self, host: Host, high_watermark: int) -> None:
        said = next(((at, voters) for at, voters in reversed(self.voters) if at < high_watermark), None)
        start = host.replica.state.role.epoch_start_offset  # type: ignore[union-attr]
        if said is not None and said[0] >= start and not said[1].is_voter(host.key):
            raise Violation("voter sets", f"host {host.number} leads, its removal at {said[0]} is committed")

    def check_all(self, hosts: list[Host]) -> None:
        """Make the comparisons that are too slow for every event."""
        for host in hosts:
            if not host.is_up:
                continue
            state = host.replica.state
            known = state.high_watermark
            if known is not None and known > 0:
                mine = state.voter_sets.last_committed(known)
                said = next((voters for offset, voters in reversed(self.voters) if offset < known), None)
                if said is not None and mine.keys != said.keys:
                    raise Violation("voter sets", f"host {host.number} has {mine} below {known}, committed is {said}")
            state.voter_sets.check_invariants()

    def check_end(self, hosts: list[Host]) -> None:
        """Check that every host that is up has applied the whole history."""
        self.check_all(hosts)
        for host in hosts:
            if host.is_up:
                host.log.check_invariants()
                self._follow_log(host, self._shadows[host.number])
                self.applied(host, host.executor.applier.offset, host.machine.digest)


class Bystander(Checker):
    """Checks nothing: there are two quorums of one name, which only ``check_kept`` can judge."""

    def __init__(self) -> None:
        super().__init__(_ignore)

    def started(self, host: Host) -> None:
        """See `Checker`."""

    def crashed(self, host: Host) -> None:
        """See `Checker`."""

    def before_sending(self, host: Host, effects: Effects) -> None:
        """See `Checker`."""

    def after_event(self, host: Host, effects: Effects) -> None:
        """See `Checker`."""

    def applied(self, host: Host, offset: int, digest: bytes | None) -> None:
        """See `Checker`."""

    def restored(self, host: Host) -> None:
        """See `Checker`."""

    def upgraded(self, level: int) -> None:
        """See `Checker`."""

    def check_all(self, hosts: list[Host]) -> None:
        """See `Checker`."""


def _ignore(batch: RecordBatch) -> None:
    pass


def known_committed(disk: Files, folder: str) -> int:
    """The offset below which everything is committed, by the file on a disk; 0 without a file."""
    known = CommittedFile(disk, folder).read()
    return 0 if known is None else known.offset


def check_kept(host: Host, known: int, history: list[Seen]) -> None:
    """Check that a host still has the records that were committed by the file on its disk.

    Args:
        host: the host, which is up.
        known: the offset in the file.
        history: the committed batches.

    Raises:
        Violation: a record is lost.
    """
    log = host.log
    latest = host.store.latest
    covered = 0 if latest is None else latest.end_offset
    if max(log.log_end_offset, covered) < known:
        raise Violation("floor", f"host {host.number} ends at {log.log_end_offset}, {known} was known as committed")
    for seen in history:
        if seen.base_offset >= log.log_start_offset and seen.next_offset <= known:
            found = next(iter_batches(log.read(seen.base_offset, 1), verify=False))
            if (found.base_offset, found.leader_epoch, found.crc) != (seen.base_offset, seen.epoch, seen.crc):
                raise Violation("floor", f"host {host.number} lost {seen}, which was known as committed")


def _changed(before: VoterSet, after: VoterSet) -> int:
    """By how many voters two sets differ; a voter that learned its directory id stays the same."""
    gone = sum(1 for voter in before if not _stays(voter.key, after))
    new = sum(1 for voter in after if (old := before.get(voter.key.id)) is None or not old.key.matches(voter.key))
    return gone + new


def _stays(key: ReplicaKey, voters: VoterSet) -> bool:
    entry = voters.get(key.id)
    return entry is not None and key.matches(entry.key)
