"""Runs one script on two sides and compares after every step."""

import threading
import time
from collections import Counter

from conformance.target import PATIENCE

from twin import known, normal
from twin.observer import Truncated
from twin.resolve import Resolver
from twin.sides import FORCED, Died

SETTLE = 2.0  # seconds that the published image may need to follow the log
SOFT = ("message", "batching")  # the hard ones: answer, records, image, snapshot, alive


class Difference:
    """One place where the sides differ. Two of the same sign are the same difference at another step or index."""

    def __init__(self, step, op, kind, path, left, right):
        self.step, self.op, self.kind, self.path, self.left, self.right = step, op, kind, path, left, right

    @property
    def sign(self):
        steady = "/".join("*" if isinstance(p, int) else str(p) for p in self.path)
        return f"{self.kind} {self.op} {steady}"

    @property
    def soft(self):
        return self.kind in SOFT

    def json(self):
        return {
            "step": self.step,
            "op": self.op,
            "kind": self.kind,
            "path": list(self.path),
            "left": self.left,
            "right": self.right,
            "sign": self.sign,
        }


def diff(a, b, path=()):
    """Paths where two normalised values differ, outermost list lengths first."""
    if isinstance(a, dict) and isinstance(b, dict):
        for k in sorted(set(a) | set(b), key=str):
            if k not in a or k not in b:
                yield (*path, k), a.get(k, "(absent)"), b.get(k, "(absent)")
            else:
                yield from diff(a[k], b[k], (*path, k))
    elif (
        isinstance(a, (list, tuple))
        and isinstance(b, (list, tuple))
        and any(isinstance(x, (dict, list, tuple)) for x in [*a, *b])
    ):
        for n, (x, y) in enumerate(zip(a, b, strict=False)):
            yield from diff(x, y, (*path, n))
        for n in range(min(len(a), len(b)), max(len(a), len(b))):
            yield (*path, n), a[n] if n < len(a) else "(absent)", b[n] if n < len(b) else "(absent)"
    elif a != b and not (isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and list(a) == list(b)):
        yield path, a, b


class Outcome:
    """What one step did on one side."""

    def __init__(self):
        self.answer, self.messages, self.records, self.raft, self.error = None, {}, [], [], None
        self.body, self.raw = None, None


def label(step):
    return step.get("api") or step["op"]


class Pair:
    """Two sides working through one script in step."""

    def __init__(self, left, right, settle=SETTLE):
        self.sides, self.settle = (left, right), settle
        self.codes, self.record_types, self.waited, self.seconds = Counter(), Counter(), 0, 0.0

    def both(self, f):
        """f(side) on both at once; an exception of either is raised here."""
        out = [None, None]

        def work(n):
            try:
                out[n] = f(self.sides[n])
            except Exception as e:
                out[n] = e

        t = threading.Thread(target=work, args=(1,))
        t.start()
        work(0)
        t.join()
        for x in out:
            if isinstance(x, Exception):
                raise x
        return out

    def run(self, script, stop=None, progress=None):
        """All differences; with stop(difference) true, those up to there. Leaves both controllers down."""
        found = []
        start = time.monotonic()

        def add(new):
            found.extend(new)
            return bool(stop and any(stop(d) for d in new))

        try:
            for s in self.sides:
                s.use(script.get("properties", {}))
            self.both(lambda s: s.fresh(script.get("release")))
            if add(self.step(-1, {"op": "start"})) or any(d.kind == "alive" for d in found):
                return found
            for n, step in enumerate(script["steps"]):
                if progress:
                    progress(n, len(script["steps"]), found)
                if add(self.step(n, step)):
                    return found
                if any(d.kind == "alive" for d in found):
                    return found
            add(self.final(len(script["steps"])))
            return found
        finally:
            self.seconds = time.monotonic() - start
            for s in self.sides:
                s.kill()

    # -- one step
    def step(self, n, step):
        outcomes = self.both(lambda s: self.guarded(s, step))
        down = [str(o) if isinstance(o, str) else "running" for o in outcomes]
        if down != ["running", "running"]:
            d = Difference(n, label(step), "alive", (), *down)
            d.outcomes = None
            return [d]
        if step.get("api") in normal.LATER:
            end = time.monotonic() + self.settle * PATIENCE
            while time.monotonic() < end and list(self.compare(n, step, outcomes)):
                self.waited += 1
                time.sleep(0.05)
                outcomes = self.both(lambda s: self.one(s, step))
        if step.get("api"):
            for code in set(normal.error_codes(outcomes[0].raw)):
                self.codes[step["api"], code] += 1
        for batch in outcomes[0].records:
            for r in batch:
                self.record_types[r["kind"], r["version"]] += 1
        return self.compare(n, step, outcomes)

    def guarded(self, side, step):
        """The outcome, or a text when this side cannot go on."""
        try:
            return self.one(side, step)
        except (Died, Truncated, TimeoutError) as e:
            return f"{type(e).__name__}: {e}"

    def one(self, side, step):
        if "op" in step:
            return {"start": self.start, "restart": self.restart, "snapshot": self.snapshot}[step["op"]](side)
        out = Outcome()
        body = {}
        try:
            body = Resolver(side).value(step["body"])
            out.body = body
            out.raw = side.call(step["api"], step["version"], body)
        except (OSError, ValueError) as e:
            out.error = (
                "no answer in time"
                if isinstance(e, TimeoutError)
                else "connection closed"
                if isinstance(e, ConnectionError)
                else repr(e)
            )
        self.follow(side, out)
        if out.raw is not None:
            out.answer, out.messages = normal.answer(
                side.symbols, step["api"], out.raw, side.observer.offset, body.get("BrokerId"), side.observer.last_epoch
            )
        else:
            out.answer = {"error": out.error}
        return out

    def follow(self, side, out):
        """The records that were appended."""
        for _ in range(100):
            try:
                out.records, out.raft = normal.log(side.symbols, side.read())
                return
            except (LookupError, OSError) as e:  # a controller that has just resigned is back in a moment
                side.check_alive()
                last = e
                time.sleep(0.05)
        raise Died(f"{side.name}: the log cannot be read: {last!r}")

    def start(self, side, **more):
        side.start(**more)
        out = Outcome()
        out.records, out.raft = normal.log(side.symbols, side.wait_ready())
        return out

    def restart(self, side):
        """kill -9 and a start."""
        side.kill()
        return self.start(side)

    def snapshot(self, side):
        """A restart that writes a snapshot at once, and another that has to begin from it: the log below is gone."""
        side.kill()
        first = self.start(side, **FORCED)
        side.wait_snapshot()
        side.kill()
        side.drop_log()
        out = self.start(side)
        out.records, out.raft = first.records + out.records, first.raft + out.raft
        return out

    # -- comparing
    def compare(self, n, step, outcomes):
        a, b = outcomes
        op = label(step)
        out = [Difference(n, op, "answer", p, x, y) for p, x, y in diff(a.answer, b.answer)]
        flat_a, flat_b = [r for batch in a.records for r in batch], [r for batch in b.records for r in batch]
        out += [Difference(n, op, "records", p, x, y) for p, x, y in diff_records(flat_a, flat_b)]
        if a.messages.keys() == b.messages.keys():
            out += [
                Difference(n, op, "message", (p,), x, b.messages[p])
                for p, x in a.messages.items()
                if x != b.messages[p]
            ]
        if flat_a == flat_b and [len(x) for x in a.records] != [len(x) for x in b.records]:
            out.append(Difference(n, op, "batching", (), [len(x) for x in a.records], [len(x) for x in b.records]))
        if out:
            self.last = outcomes
            for d in out:
                d.outcomes = outcomes
        return out

    def final(self, n):
        """The whole image of both logs, and on each side its newest snapshot against its own log."""
        views = [s.image.view(s.symbols) for s in self.sides]
        out = [Difference(n, "end", "image", p, x, y) for p, x, y in diff(*views)]
        for s in self.sides:
            snapshots = s.snapshots()
            if snapshots:
                at = max(snapshots)
                want, got = s.image_at(at[0]).view(s.symbols), s.snapshot_image(snapshots[at]).view(s.symbols)
                out += [
                    Difference(n, "end", "snapshot", (s.name, *p), x, y)
                    for p, x, y in diff(want, got)
                    if known.fault_of_kafka(s, p, x, y) is None
                ]
        for d in out:
            d.outcomes = None
        return out


def diff_records(a, b):
    """Records are lined up by type and subject first, so that one left out does not make all after it differ."""
    if a == b:
        return
    if [r["kind"] for r in a] == [r["kind"] for r in b]:
        yield from (((*p[:1], a[p[0]]["kind"], *p[1:]), x, y) for p, x, y in diff(a, b))
        return
    rest = list(b)
    for n, r in enumerate(a):
        if r in rest:
            rest.remove(r)
        else:
            yield (n, r["kind"]), r, "(absent)"
    for n, r in enumerate(rest):
        yield (n, r["kind"]), "(absent)", r
    if not rest and len(a) == len(b):
        yield ("order",), [r["kind"] for r in a], [r["kind"] for r in b]
