"""Hosts, clients and administrators, their faults, and the healing at the end.

A run has two phases. In the first all faults of the options happen. Then the network heals, a majority of the voters is
up again (some other voters may stay down), and within a bound there must be progress: a leader, new batches committed,
every host that is up caught up, every earlier linearizable read answered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from kraftcore.core.batch import RecordBatch
from kraftcore.core.wire.struct import Struct
from kraftcore.errors import InvariantError, KraftError, StateMachineError
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.frames import encode_request
from kraftcore.protocol.messages.add_raft_voter import AddRaftVoterRequest
from kraftcore.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftcore.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from kraftcore.raft.events import Barrier, Outcome, RaftConfig, Resign, Transfer, Upgrade
from kraftcore.raft.quorum import VersionRange, Voter, VoterSet, static_voters
from kraftcore.raft.roles import Role
from kraftcore.simulation.agenda import Agenda
from kraftcore.simulation.checks import Bystander, Checker, Violation, check_kept, known_committed
from kraftcore.simulation.host import FOLDER, Application, Host, raft_config
from kraftcore.simulation.network import Network
from kraftcore.simulation.options import Options
from kraftcore.simulation.timeline import Timeline

ADMIN = -1
PROGRESS_MS = 60_000
_CHECK_MS = 5_000


class Work(Application, Protocol):
    """The members of a workload that a world uses; see ``workload.Workload``."""

    # ruff: noqa: D102

    answered: int

    def committed(self, batch: RecordBatch) -> None: ...
    def healed(self) -> None: ...
    def schedule(self) -> None: ...
    def ask(self) -> None: ...
    def lacks(self) -> str | None: ...
    def check_end(self) -> None: ...


class World:
    """One run.

    Args:
        seed: everything is drawn from it.
        options: what it drew.
        make_workload: makes the workload; see ``workload.Workload``.
        timeline: remembers what happened; None: nothing is remembered.
        event_limit: end the phase with faults after so many events.

    Attributes:
        judge: has seen everything up to then, and tells what it was.
        is_over: what was promised is checked; only what comes of a host that begins alone is looked at.
    """

    def __init__(
        self,
        seed: int,
        options: Options,
        make_workload: Callable[[World], Work],
        timeline: Timeline | None = None,
        event_limit: int | None = None,
    ) -> None:
        self.seed = seed
        self.options = options
        self.timeline = timeline
        self.agenda = Agenda()
        self.checker = self.judge = Checker(self._committed)
        self.rng = Random(f"world-{seed}")
        self.network = Network(self.agenda, Random(f"network-{seed}"), options)
        self.calm = False
        self.reads: list[Read] = []
        self._event_limit = event_limit
        self._stay_down: set[int] = set()
        self._admin_until = self._replaced_until = 0
        self._wants_upgrade = self._cuts_next_lease = self.is_over = False
        self._correlation_id = 0
        old = set(self.rng.sample(range(1, options.nodes + 1), options.old_hosts))
        count = options.nodes + options.spares
        self.hosts = [Host(self, number, is_old=number in old) for number in range(1, count + 1)]
        self._by_name = {host.endpoint.host: host for host in self.hosts}
        self.network.peers.update({host.number: host for host in self.hosts})
        self.network.peers[ADMIN] = _Admin()
        first = [Voter(host.key, (host.endpoint,), VersionRange(0, 1)) for host in self.hosts[: options.nodes]]
        self.first_voters = VoterSet(tuple(first))
        self.is_static = options.kraft_version == 0
        if options.kraft_version:
            self._static = VoterSet()
            for host in self.hosts[: options.nodes]:
                host.format(self.first_voters)
        else:
            self._static = self.first_voters = static_voters((voter.key.id, voter.endpoints[0]) for voter in first)
        self.workload = make_workload(self)

    # --- run ----------------------------------------------------------------------------------------------------------

    def run(self, report: Callable[[float], None] | None = None) -> None:
        """Run both phases.

        Args:
            report: called now and then with the share of simulated time that has passed.

        Raises:
            Violation: a rule was broken.
        """
        try:
            for host in self.hosts:
                self.agenda.after_ms(self.rng.random() * 500, host.start)
            self._plan()
            end = int(self.options.minutes * 60_000_000)
            self._run_until(end, self._event_limit, report)
            self._heal()
            self._demand_progress()
            self.checker.check_end(self.hosts)
            self.workload.check_end()
            if self.options.comes_alone:
                self._begin_alone()
        except Violation:
            raise
        except StateMachineError as error:
            if isinstance(error.__cause__, Violation):  # the checks listen to the machines
                raise error.__cause__ from None
            raise Violation("invariant", str(error)) from error
        except InvariantError as error:
            raise Violation("invariant", str(error)) from error
        except KraftError as error:
            raise Violation("error", f"{type(error).__name__}: {error}") from error

    def _run_until(self, end: int, limit: int | None = None, report: Callable[[float], None] | None = None) -> None:
        agenda = self.agenda
        check_at = agenda.now + _CHECK_MS * 1000
        while agenda.now < end and (limit is None or agenda.count < limit):
            agenda.step()
            if agenda.now >= check_at:
                check_at = agenda.now + _CHECK_MS * 1000
                self.checker.check_all(self.hosts)
                if self.timeline is not None:
                    self.timeline.sample(agenda.now, self.hosts)
                if report is not None:
                    report(min(agenda.now / end, 1.0))

    def _plan(self) -> None:
        options = self.options
        self.workload.schedule()
        self.every(options.barrier_every, self._read)
        self.every(options.lease_cuts_every, self._wait_for_lease)
        self.every(options.lease_reads_every, self._read)
        self.every(options.partition_every, self._partition)
        self.every(options.pause_every, self._pause)
        self.every(options.crash_every, self._crash)
        self.every(options.disk_every, self._fail_disk)
        self.every(options.full_every, self._fill_disk)
        self.every(options.members_every, self._change_members)
        self.every(options.replace_every, self._replace_disk)
        self.every(options.transfer_every, self._transfer)
        if not (options.lost_every and self.is_static):  # an upgrade may name directories that are lost meanwhile
            self.every(options.upgrade_every, self._upgrade)
        self.every(options.lost_every, self._lose_disk)
        self.every(options.stop_every, self._stop)

    def every(self, mean_ms: float, action: Callable[[], None]) -> None:
        """Call ``action`` again and again, at random times; never if ``mean_ms`` is 0."""
        if not mean_ms:
            return

        def happen() -> None:
            if self.is_over:
                return
            action()
            self.agenda.after_ms(self.rng.expovariate(1 / mean_ms), happen)

        self.agenda.after_ms(1000 + self.rng.expovariate(1 / mean_ms), happen)

    def _committed(self, batch: RecordBatch) -> None:
        self.workload.committed(batch)

    # --- what hosts ask -----------------------------------------------------------------------------------------------

    def raft_config(self, host: Host) -> RaftConfig:
        """The configuration of a host's replica."""
        servers = tuple((other.endpoint.host, other.endpoint.port) for other in self.hosts)
        return raft_config(host, self._static, servers if self.options.kraft_version else ())

    def host_at(self, name: str) -> Host:
        """The host with a host name."""
        return self._by_name[name]

    def flush_delay_ms(self, host: Host) -> float:
        """How long a flush takes."""
        if self.options.slow_fsync_ms and not self.calm and host.rng.random() < 0.05:
            return host.rng.random() * self.options.slow_fsync_ms
        return self.options.flush_ms * (0.2 + 0.8 * host.rng.random())

    def cuts_power_while_installing(self, host: Host) -> bool:
        """Whether the power goes between two steps of a received snapshot's way into the log's place."""
        return bool(self.options.crash_every) and not self.calm and host.rng.random() < 0.2

    def connections_broke(self, host: Host) -> None:
        """A process died: whoever waits for an answer of it notices."""
        for other in self.hosts:
            if other.is_up:
                for request_id, (_, target, *_) in other.outstanding.items():
                    if target == host.number:
                        self.network.fail(host.number, other.number, other.incarnation, request_id, Failure.RESET)

    def down(self, host: Host) -> None:
        """A host is down: when it comes back."""
        if host.number in self._stay_down:
            return
        delay = 300.0 if self.calm else self.options.down_ms * (0.1 + 2 * self.rng.random() ** 2)
        self.agenda.after_ms(delay, self._start, host)

    def _start(self, host: Host) -> None:
        if host.number not in self._stay_down:
            host.start()

    def note(self, host: Host | None, kind: str, text: str) -> None:
        """Something worth a line of the trace happened."""
        if self.timeline is not None:
            self.timeline.note(self.agenda.now, host, kind, text)

    def tell(self, number: int, about: str, text: str) -> None:
        """Something happened to one of the many things of a workload; see `Timeline.told`."""
        if self.timeline is not None:
            self.timeline.told(self.agenda.now, number, about, text)

    def note_message(self, source: Host, target: Host | None, message: Struct, number: int = 0) -> None:
        """A message was sent."""
        if self._cuts_next_lease and isinstance(message, BeginQuorumEpochRequest):
            self._cuts_next_lease = False
            self.agenda.after_ms(0, self._cut_off, source)
        if self.timeline is not None:
            self.timeline.message(self.agenda.now, source, number if target is None else target.number, message)

    def high_watermark_moved(self, host: Host) -> None:
        """For the picture."""
        if self.timeline is not None:
            self.timeline.sample(self.agenda.now, [host])

    def role_changed(self, host: Host) -> None:
        """A replica has another role, or another epoch."""
        if host.replica.role is Role.LEADER:
            if self._wants_upgrade:
                self.agenda.after_ms(0, self._upgrade)
            if self.options.leader_lease_ms:
                self.agenda.after_ms(self.options.delay_ms, self._ask)  # so that a former leader's reads are outdated
        if self.timeline is not None:
            self.timeline.role(self.agenda.now, host)

    # --- clients ------------------------------------------------------------------------------------------------------

    def leader(self) -> Host | None:
        """The host that leads the highest epoch, if one is up and does."""
        leading = [host for host in self.hosts if host.is_up and host.replica.role is Role.LEADER]
        return max(leading, key=lambda host: host.replica.epoch, default=None)

    def somebody(self) -> Host | None:
        """A random host that is up, or None."""
        up = [host for host in self.hosts if host.is_up]
        return self.rng.choice(up) if up else None

    def _ask(self) -> None:
        if not self.is_over:
            self.workload.ask()

    def _read(self) -> None:
        # Also of one that only believes to lead.
        leading = [host for host in self.hosts if host.is_up and host.replica.role is Role.LEADER]
        host = self.rng.choice(leading) if leading else self.somebody()
        if host is not None:
            self._read_from(host)

    def _read_from(self, host: Host) -> None:
        known = self.checker.acknowledged_end
        read = Read(host, host.incarnation, self.agenda.now)
        self.reads = [*(read for read in self.reads if read.waits), read]

        def done(outcome: Outcome) -> None:
            self.reads.remove(read)
            if outcome.error is ErrorCode.NONE and outcome.offset < known:
                raise Violation(
                    "linearizable reads", f"a barrier gave {outcome.offset}, {known} was acknowledged before"
                )

        host.deliver(host.incarnation, Barrier(done))

    # --- faults -------------------------------------------------------------------------------------------------------

    def _partition(self) -> None:
        if self.calm or len(self.hosts) < 2:
            return
        numbers = [host.number for host in self.hosts]
        if self.rng.random() < 0.4 and (leader := self.leader()) is not None:
            inside = {leader.number, *self.rng.sample(numbers, self.rng.randrange(2))}
        else:
            inside = set(self.rng.sample(numbers, self.rng.randrange(1, len(numbers))))
        self._cut(inside, self.options.partition_ms)

    def _wait_for_lease(self) -> None:
        self._cuts_next_lease = True

    def _cut_off(self, leader: Host) -> None:
        """Cut a leader off, perhaps while its process stands still, and perhaps while others start again."""
        timeout_ms = self.options.fetch_timeout_ms
        if self.calm:
            return
        if self.rng.random() < 0.5:
            self._stand_still(leader, timeout_ms * (0.8 + 0.6 * self.rng.random()))
        start_again = 0.7 if self.rng.random() < 0.4 else 0.0
        for host in self.hosts:
            if host is not leader and host.is_up and self.rng.random() < start_again:
                host.die(power=False)
                self.agenda.after_ms(timeout_ms * 0.3 * self.rng.random(), self._start, host)
        # The voters may still promise what they were asked for.
        self.agenda.after_ms(self.rng.random() * 2 * self.options.delay_ms, self._cut, {leader.number}, 2 * timeout_ms)

    def _cut(self, inside: set[int], length_ms: float) -> None:
        numbers = [host.number for host in self.hosts]
        cut = {(a, b) for a in inside for b in numbers if b not in inside}
        if self.rng.random() >= self.options.asymmetric:
            cut |= {(b, a) for a, b in cut}
        elif self.rng.random() < 0.5:
            cut = {(b, a) for a, b in cut}
        self.network.blocked |= cut
        self.note(None, "partition", f"{sorted(inside)} cut off, {len(cut)} directions")
        self.agenda.after_ms(length_ms * (0.2 + self.rng.random()), self._rejoin, cut)

    def _rejoin(self, cut: set[tuple[int, int]]) -> None:
        self.network.blocked -= cut
        self.note(None, "rejoined", f"{len(self.network.blocked)} directions still cut")

    def _pause(self) -> None:
        host = self.somebody()
        if host is None or self.calm:
            return
        self._stand_still(host, self.options.pause_ms * (0.1 + self.rng.random()))

    def _stand_still(self, host: Host, length: float) -> None:
        host.paused_until = max(host.paused_until, self.agenda.now + int(length * 1000))
        self.note(host, "paused", f"{length:.0f} ms")

    def _crash(self) -> None:
        host = self.leader() if self.rng.random() < 0.4 else self.somebody()
        if host is None or self.calm:
            return
        if self.rng.random() < 0.5:
            host.fuse = self.rng.randrange(12)  # in the middle of carrying effects out
        else:
            host.die(power=self.rng.random() < 0.6)

    def _fail_disk(self) -> None:
        host = self.somebody()
        if host is not None and not self.calm:
            operation = self.rng.choice(("any", "write", "sync", "rename", "sync_folder", "truncate"))
            host.disk.inject(operation, after=self.rng.randrange(20))

    def _fill_disk(self) -> None:
        host = self.somebody()
        if host is not None and not self.calm:
            host.disk.capacity = host.disk.used_bytes + self.rng.randrange(5000)
            self.note(host, "disk fills", f"{host.disk.capacity} bytes")
            self.agenda.after_ms(2000 + self.rng.random() * 4000, self._empty_disk, host)

    def _empty_disk(self, host: Host) -> None:
        host.disk.capacity = None

    def _stop(self) -> None:
        host = self.leader() if self.rng.random() < 0.5 else self.somebody()
        if host is not None and not self.calm:
            self.note(host, "stopping", "")
            host.stop()
            self.agenda.after_ms(self.rng.random() * 3000, self._close, host, host.incarnation)

    def _close(self, host: Host, incarnation: int) -> None:
        if host.incarnation == incarnation:
            host.close()

    # --- administrators -----------------------------------------------------------------------------------------------

    def voter_sets(self) -> list[VoterSet]:
        """Every voter set that is in force on some host, up or not."""
        return [host.replica.voters for host in self.hosts if hasattr(host, "replica") and len(host.replica.voters)]

    def _is_alive(self, key: ReplicaKey) -> bool:
        return any(key.matches(host.key) for host in self.hosts if host.number not in self._stay_down)

    def _survives(self, voters: VoterSet, without: ReplicaKey | None = None) -> bool:
        alive = sum(1 for key in voters.keys if self._is_alive(key) and (without is None or not key.matches(without)))
        return alive >= voters.majority

    def _change_members(self) -> None:
        leader = self.leader()
        if leader is None or self.calm or leader.replica.kraft_version < 1 or self.agenda.now < self._replaced_until:
            return
        voters = leader.replica.voters
        dead = [key for key in voters.keys if not self._is_alive(key)]
        outside = [host for host in self.hosts if host.number not in voters.ids]
        choice = self.rng.random()
        if dead and choice < 0.6:
            self._remove(leader, self.rng.choice(dead))
        elif outside and (choice < 0.8 or len(voters) < 3):
            self._add(leader, self.rng.choice(outside))
        elif len(voters) > 1:
            key = (
                leader.key if self.rng.random() < 0.3 and voters.is_voter(leader.key) else self.rng.choice(voters.keys)
            )
            self._remove(leader, key)

    def _remove(self, leader: Host, key: ReplicaKey) -> None:
        # Whom he likes, also one that is needed: it is the leader that refuses what could never be committed.
        self.note(leader, "remove", str(key.id))
        self._administer(
            leader,
            RemoveRaftVoterRequest(cluster_id="simulated", voter_id=key.id, voter_directory_id=key.directory_id),
        )

    def _add(self, leader: Host, host: Host) -> None:
        self.note(leader, "add", str(host.number))
        listener = AddRaftVoterRequest.Listener(
            name=host.endpoint.name, host=host.endpoint.host, port=host.endpoint.port
        )
        self._administer(
            leader,
            AddRaftVoterRequest(
                cluster_id="simulated",
                timeout_ms=2000,
                voter_id=host.number,
                voter_directory_id=host.directory_id,
                listeners=[listener],
            ),
        )

    def _administer(self, leader: Host, message: Any) -> None:
        self._admin_until = self.agenda.now + 10_000_000
        self._read_from(leader)  # so that the voters change while it waits
        self._correlation_id += 1
        version = type(message).schema.versions[1]
        self.network.request(
            ADMIN, leader.number, 0, self._correlation_id, encode_request(message, version, self._correlation_id)
        )

    def _replace_disk(self) -> None:
        # Only what a quorum can survive, and not while an administrator shrinks it.
        host = self.somebody()
        if host is None or self.calm or self.agenda.now < self._admin_until:
            return
        sets = self.voter_sets() + [voters for _, voters in self.checker.voters[-2:]]
        if not all(self._survives(voters, host.key) for voters in sets):
            return
        # A leader cannot know yet that this voter is gone for good, and might refuse too little.
        self._admin_until = self._replaced_until = self.agenda.now + 5_000_000
        host.die(power=True)
        host.install_disk()
        self.note(host, "new disk", str(host.directory_id))

    def _lose_disk(self) -> None:
        # As above; and those that may have forgotten stay a minority, whoever has which records.
        host = self.somebody()
        if host is None or self.calm or self.agenda.now < self._admin_until:
            return
        if not self.is_static and not self.checker.end:
            return  # nobody can tell that there are voters that never had an election
        sets = self.voter_sets() + [voters for _, voters in self.checker.voters[-2:]]
        forgot = {host.number, *(other.number for other in self.hosts if other.has_forgotten)}
        if len(forgot) * 2 >= self.options.nodes or not all(self._survives(voters, host.key) for voters in sets):
            return
        self._admin_until = self._replaced_until = self.agenda.now + 5_000_000
        self.note(host, "loses its disk", "")
        host.lose_disk(is_static=self.is_static, after_us=int(8000 * self.options.delay_ms))

    def _transfer(self) -> None:
        leader = self.leader()
        if leader is None or self.calm:
            return
        if self.rng.random() < 0.3:
            leader.deliver(leader.incarnation, Resign())
        else:
            target = self.rng.choice(self.hosts).number
            self.note(leader, "transfer", f"to {target}")
            leader.deliver(leader.incarnation, Transfer(_ignore, target))

    def _upgrade(self) -> None:
        leader = self.leader()
        if leader is not None:
            self._wants_upgrade = True  # until it is answered: a leader that dies does not
            self.note(leader, "upgrade", "kraft.version 1")
            if self.options.crash_every and not self.calm and self.rng.random() < 0.5:
                leader.fuse = self.rng.randrange(3, 9)  # so that the next leader inherits it
            leader.deliver(leader.incarnation, Upgrade(self._upgraded, 1))

    def _upgraded(self, outcome: Outcome) -> None:
        if outcome.error is ErrorCode.NONE:
            self._wants_upgrade = False
            self.checker.upgraded(1)

    # --- healing ------------------------------------------------------------------------------------------------------

    def _heal(self) -> None:
        self.calm = self.network.calm = True
        self.network.blocked.clear()
        self.note(None, "healed", "")
        sets = self.voter_sets() + [voters for _, voters in self.checker.voters[-2:]]
        # Whoever may have forgotten something has to hear from every other voter.
        must_all_be_up = any(host.has_forgotten for host in self.hosts)
        for host in self.rng.sample(self.hosts, self.rng.randrange(len(self.hosts) // 2 + 1)):
            if must_all_be_up:
                break
            self._stay_down.add(host.number)
            if not all(self._survives(voters) for voters in sets):
                self._stay_down.discard(host.number)
        for host in self.hosts:  # a pause ends by itself: what waits for that must not come after what happens now
            host.fuse = None
            host.disk.clear_faults()
            host.disk.capacity = None
            if host.number in self._stay_down:
                self.note(host, "stays down", "")
                host.die(power=True)
            elif not host.is_up:
                self.agenda.after_ms(self.rng.random() * 1000, host.start)
            elif host.replica.state.shutting_down:
                host.close()
        self.workload.healed()

    def _demand_progress(self) -> None:
        started = self.agenda.now
        late: list[Read] = []
        self._run_until(started + 3_000_000)  # what was under way ends
        goal = self.workload.answered + 3
        lacking: str | None = None
        while self.agenda.now < started + PROGRESS_MS * 1000:
            known = self.checker.acknowledged_end
            self.workload.ask()
            self._run_until(self.agenda.now + 400_000)
            late = [read for read in self.reads if read.waits and read.began < started]
            lacking = self.workload.lacks()
            if self.workload.answered >= goal and self._all_have(known) and not late and lacking is None:
                return
        if late:
            raise Violation(
                "reads end", f"{len(late)} read barriers wait {PROGRESS_MS} ms after healing: {self.describe()}"
            )
        raise Violation("progress", f"{PROGRESS_MS} ms after healing: {lacking or self.describe()}")

    def _all_have(self, offset: int) -> bool:
        alive = [host for host in self.hosts if host.number not in self._stay_down]
        return all(host.is_up and host.executor.applier.offset >= offset for host in alive)

    # --- afterwards: one comes alone ----------------------------------------------------------------------------------

    def _begin_alone(self) -> None:
        """A host whose disk was lost begins a quorum and asks nobody: what the others know to be committed stays."""
        self.is_over = True
        for host in self.hosts:
            if host.is_up:
                host.stop()
        self._run_until(self.agenda.now + 1_000_000)
        self._stay_down = {host.number for host in self.hosts}
        top = 0
        for host in self.hosts:
            if host.is_up:
                top = max(top, host.replica.epoch)
                host.close()
        history, self.checker = self.judge.history, Bystander()
        stranger = self.hosts[0]
        kept = {host: known_committed(host.disk, FOLDER) for host in self.hosts if host is not stranger}
        stranger.install_disk()
        stranger.format_alone(top + 5)
        self._stay_down.clear()
        stranger.start()
        self._run_until(self.agenda.now + 2_000_000)
        for host in kept:
            host.start()
        self._run_until(self.agenda.now + 10_000_000)
        for host, known in kept.items():
            check_kept(host, known, history)

    def describe(self) -> str:
        """The state of all hosts in a line."""
        parts = []
        for host in self.hosts:
            if not host.is_up:
                parts.append(f"{host.number} down")
                continue
            replica = host.replica
            parts.append(
                f"{host.number} {replica.role.value} epoch {replica.epoch} log {host.log.log_start_offset}-"
                f"{host.log.log_end_offset} hw {replica.high_watermark} voters {sorted(replica.voters.ids)}"
            )
        return "; ".join(parts)


@dataclass(eq=False, slots=True)
class Read:
    """A linearizable read that has not been answered.

    Attributes:
        host: that was asked.
        incarnation: of that host's process.
        began: when the read began, microseconds.
    """

    host: Host
    incarnation: int
    began: int

    @property
    def waits(self) -> bool:
        """Whether the process that was asked still runs."""
        return self.host.is_up and self.host.incarnation == self.incarnation


class _Admin:
    """Sends requests of operators and ignores the answers."""

    is_up = True
    refuses = False

    def receive_request(self, source: int, incarnation: int, correlation_id: int, frame: bytes) -> None:
        """Nothing: no host sends requests to an administrator."""

    def receive_response(self, incarnation: int, correlation_id: int, frame: bytes) -> None:
        """An answer; what happened shows in the logs."""

    def receive_failure(self, incarnation: int, correlation_id: int, failure: Failure) -> None:
        """The leader is gone."""


def _ignore(outcome: Outcome) -> None:
    """How a request ended does not matter."""
