"""The options that a seed draws before it runs: each seed has its own mix of faults (swarm testing)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from random import Random

FAULTS = (
    "loss",
    "delay",
    "duplicate",
    "reorder",
    "partition",
    "pause",
    "drift",
    "crash",
    "disk",
    "full",
    "slow-fsync",
    "members",
    "replace",
    "transfer",
    "upgrade",
    "old-versions",
    "clean-stop",
    "linger",
    "reluctance",
    "gathering",
    "retries",
    "decisions",
    "lost-disks",
    "rounds",
    "leases",
)
LATER = frozenset(
    {"linger", "reluctance", "gathering", "retries", "decisions", "lost-disks", "rounds", "leases"}
)  # came when there were kept seeds: drawn last, so that those mean the same


@dataclass(frozen=True, slots=True)
class Options:
    """One run. Times in milliseconds of simulated time; ``every`` is a mean, 0 never.

    Attributes:
        nodes: voters at the start.
        spares: observers at the start, which may be made voters.
        minutes: length of the phase with faults.
        kraft_version: 0 static voters, 1 dynamic ones.
        loss: share of messages lost.
        duplicate: share that arrives twice.
        reorder: share that is overtaken.
        delay_ms: of a message, largest; the smallest is a tenth.
        partition_every: cuts of the network, of ``partition_ms`` each.
        asymmetric: share of them that cut one direction only.
        pause_every: stops of a whole machine, of up to ``pause_ms``.
        drift: clocks run so much faster or slower, at most.
        crash_every: crashes, ``down_ms`` long.
        disk_every: failing operations of a disk; the process dies of it.
        full_every: full disks.
        flush_ms: of a flush, largest.
        slow_fsync_ms: of some flushes.
        members_every: requests to add or remove a voter.
        replace_every: disks replaced by empty ones.
        transfer_every: requests to hand leadership over, or to give it up.
        upgrade_every: requests to raise kraft.version.
        stop_every: clean stops.
        append_every: batches proposed.
        barrier_every: linearizable reads.
        value_bytes: of a record, at most.
        segment_bytes: of the logs.
        snapshot_bytes: committed bytes between snapshots.
        retention_bytes: of log and snapshots.
        chunk_bytes: of a FetchSnapshot and of a Fetch.
        election_timeout_ms: as in `RaftConfig`.
        fetch_timeout_ms: as in `RaftConfig`.
        auto_join: spares and replaced disks ask to become voters by themselves.
        fast_failover: see `RaftConfig`.
        old_hosts: how many hosts speak older versions of the protocol.
        high_watermark_linger_ms: as in `RaftConfig`.
        reluctant_hosts: how many voters, a minority, lead only while no other can.
        gathers: proposals wait for those before them, as in a node, and share batches; else each is a batch at once.
        max_batch_bytes: of proposals and decisions.
        apply_bytes: applied in one go.
        retries: share of proposals that are numbered, and proposed again anywhere until their outcome is known.
        decisions: share of proposals that are decisions: their records name the offset they were decided for.
        lost_every: disks replaced whose hosts format themselves: a static voter again as one, others as somebody who is
            to begin a quorum, and asks before.
        comes_alone: at the end one more loses its disk and begins a quorum without asking; nobody may lose anything.
        observer_linger_ms: as in `RaftConfig`.
        leader_lease_ms: as in `RaftConfig`. Clocks then run as fast or slow as leases allow.
        lease_of_some_ms: likewise, of every third host.
        lease_cuts_every: with leases, a leader that asks for one is cut off for so long that others stand.
        lease_reads_every: with leases, further linearizable reads.
    """

    nodes: int
    spares: int
    minutes: float
    kraft_version: int
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    delay_ms: float = 5.0
    partition_every: int = 0
    partition_ms: int = 0
    asymmetric: float = 0.0
    pause_every: int = 0
    pause_ms: int = 0
    drift: float = 0.0
    crash_every: int = 0
    down_ms: int = 1
    disk_every: int = 0
    full_every: int = 0
    flush_ms: float = 2.0
    slow_fsync_ms: int = 0
    members_every: int = 0
    replace_every: int = 0
    transfer_every: int = 0
    upgrade_every: int = 0
    stop_every: int = 0
    append_every: int = 300
    barrier_every: int = 2000
    value_bytes: int = 100
    segment_bytes: int = 1 << 16
    snapshot_bytes: int = 1 << 14
    retention_bytes: int = 1 << 15
    chunk_bytes: int = 1 << 20
    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    auto_join: bool = False
    fast_failover: bool = True
    old_hosts: int = 0
    high_watermark_linger_ms: int = 0
    reluctant_hosts: int = 0
    gathers: bool = False
    max_batch_bytes: int = 1 << 20
    apply_bytes: int = 1 << 20
    retries: float = 0.0
    decisions: float = 0.0
    lost_every: int = 0
    comes_alone: bool = False
    observer_linger_ms: int = 0
    leader_lease_ms: int = 0
    lease_of_some_ms: int = 0
    lease_cuts_every: int = 0
    lease_reads_every: int = 0

    def __str__(self) -> str:
        return " ".join(f"{field.name}={_brief(getattr(self, field.name))}" for field in fields(self))


def _brief(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def draw_options(seed: int, nodes: int, minutes: float, faults: Collection[str] = FAULTS) -> Options:
    """Draw a seed's options. Each of the allowed faults takes part with a chance of its own."""
    rng = Random(f"options-{seed}")
    on = {fault for fault in FAULTS if fault not in LATER and rng.random() < 0.6 and fault in faults}

    def every(fault: str, low: int, high: int) -> int:
        value = int(low * (high / low) ** rng.random())
        return value if fault in on else 0

    dynamic = rng.random() < 0.8
    election_timeout_ms = rng.choice((300, 500, 1000, 1000, 1500))
    loss, duplicate, reorder = (rng.random() ** 2 * 0.2 for _ in range(3))
    delay_ms = rng.choice((1.0, 3.0, 10.0)) if "delay" not in on else rng.choice((20.0, 60.0, 150.0))
    snapshot_bytes = int(1500 * 30 ** rng.random())
    options = Options(
        nodes=nodes,
        spares=rng.randrange(3) if "members" in on and dynamic else 0,
        minutes=minutes,
        kraft_version=1 if dynamic else 0,
        loss=loss if "loss" in on else 0.0,
        duplicate=duplicate if "duplicate" in on else 0.0,
        reorder=reorder if "reorder" in on else 0.0,
        delay_ms=delay_ms,
        partition_every=every("partition", 4_000, 40_000),
        partition_ms=int(500 * 30 ** rng.random()),
        asymmetric=rng.random() * 0.6,
        pause_every=every("pause", 3_000, 30_000),
        pause_ms=int(200 * 40 ** rng.random()),
        drift=rng.random() * 0.15 if "drift" in on else 0.0,
        crash_every=every("crash", 2_500, 25_000),
        down_ms=int(100 * 60 ** rng.random()),
        disk_every=every("disk", 8_000, 60_000),
        full_every=every("full", 15_000, 90_000),
        flush_ms=rng.choice((0.5, 2.0, 10.0)),
        slow_fsync_ms=rng.choice((50, 400, 3000)) if "slow-fsync" in on else 0,
        members_every=every("members", 3_000, 20_000) if dynamic else 0,
        replace_every=every("replace", 15_000, 90_000) if dynamic else 0,
        transfer_every=every("transfer", 5_000, 40_000),
        upgrade_every=0 if dynamic else every("upgrade", 5_000, 30_000),
        stop_every=every("clean-stop", 10_000, 60_000),
        append_every=int(100 * 8 ** rng.random()),
        barrier_every=int(1000 * 6 ** rng.random()),
        value_bytes=rng.choice((20, 100, 600)),
        segment_bytes=rng.choice((4_096, 20_000, 1 << 20)),
        snapshot_bytes=snapshot_bytes,
        retention_bytes=int(snapshot_bytes * rng.choice((0.5, 2, 5))),
        chunk_bytes=rng.choice((700, 4_000, 1 << 20)),
        election_timeout_ms=election_timeout_ms,
        fetch_timeout_ms=election_timeout_ms * rng.choice((1, 2, 2)),
        auto_join=dynamic and rng.random() < 0.3,
        fast_failover=rng.random() < 0.8,
        old_hosts=rng.randrange(nodes) if "old-versions" in on else 0,
        high_watermark_linger_ms=rng.choice((0, 1, 1, 5, 50)) if "linger" in faults else 0,
        reluctant_hosts=rng.randrange((nodes + 1) // 2) if "reluctance" in faults else 0,
        gathers=rng.random() < 0.8 if "gathering" in faults else False,
        max_batch_bytes=rng.choice((3_000, 20_000, 1 << 20)) if "gathering" in faults else 1 << 20,
        apply_bytes=rng.choice((1, 3_000, 1 << 20)) if "gathering" in faults else 1 << 20,
        retries=rng.choice((0.0, 0.2, 0.5)) if "retries" in faults else 0.0,
        decisions=rng.choice((0.0, 0.2, 0.5)) if "decisions" in faults else 0.0,
        lost_every=rng.choice((0, 4_000, 10_000, 25_000)) if "lost-disks" in faults else 0,
        comes_alone=rng.random() < 0.5 if "lost-disks" in faults else False,
        observer_linger_ms=rng.choice((0, 1, 10, 10, 100)) if "rounds" in faults else 0,
    )
    # The time in which a wrong lease shows is short.
    is_leased = "leases" in faults and delay_ms <= 10 and rng.random() < 0.6
    return _with_leases(options, rng) if is_leased else options


def _with_leases(options: Options, rng: Random) -> Options:
    # A lease can only be wrong where it is about as long as it takes until the others elect somebody, or the leader
    # finds out that it is alone.
    lease_ms = int(options.fetch_timeout_ms * rng.choice((0.6, 1, 1.3, 2, 3)))
    return replace(
        options,
        leader_lease_ms=lease_ms,
        lease_of_some_ms=int(lease_ms * rng.choice((0, 0, 0.5, 1))),
        lease_cuts_every=int(2_000 * 2.5 ** rng.random()),
        lease_reads_every=50,
    )
