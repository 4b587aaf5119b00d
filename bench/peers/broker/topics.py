"""Topics made, made again and opened: from the request, or a broker's start, to the last leader that serves.

All clusters stand at the same time and take turns: a JVM has served such rounds before it is measured.
"""

from __future__ import annotations

import signal
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

from bench.peers.broker.asker import Asker, Made, Places
from bench.peers.broker.cluster import BROKERS, running
from bench.peers.broker.sizes import Sizes
from bench.peers.controller.nodes import Contender
from bench.peers.controller.sizes import Sample, events
from bench.peers.controller.wire import Topic, Unexpected, placed
from bench.scenes import FAILURES, FoundBy

LATE, MANY, RESTART = "again-64-late", "topics-1000", "restart-10000"
REPLICAS = 3
STOP_S = 600.0
A_TOPIC = 1000
"""Partitions of each topic that a broker is started with: Kafka's controller bounds what one request writes."""


def play(
    contenders: Sequence[Contender], folder: Path, sizes: Sizes, wanted: set[str], told: Callable[[str], None]
) -> FoundBy:
    """Play the cases of topics that are made and deleted; then, on clusters of their own, the starts of a broker."""
    if made := wanted - {RESTART}:
        yield from in_turns(contenders, folder, made, partial(making, sizes, told))
    if RESTART in wanted:
        yield from in_turns(contenders, folder, {RESTART}, partial(restarting, sizes, told))


class Side:
    """A contender's cluster, and what its cases took; one that fails takes no more turns.

    Attributes:
        took: seconds, by case.
        answered: seconds to the answers of CreateTopics, by case.
        abouts: what was done, by case.
        deleted: partitions so far.
        failed: why it takes no more turns.
        mark, places: of the broker that is started again, one partition and all.
    """

    def __init__(self, contender: Contender) -> None:
        self.contender = contender
        self.took: dict[str, list[float]] = defaultdict(list)
        self.answered: dict[str, list[float]] = defaultdict(list)
        self.abouts: dict[str, str] = {}
        self.deleted = 0
        self.failed: Exception | None = None
        self.names = 0
        self.mark: Places = set()
        self.places: Places = set()

    def start(self, folder: Path, stack: ExitStack) -> None:
        """Until all brokers serve; the stack ends it."""
        self.cluster = stack.enter_context(running(self.contender, folder))
        self.cluster.topic("first", 1)
        # The last broker: the first is the one that is started again.
        self.asker = stack.enter_context(closing(Asker(self.cluster, BROKERS[-1])))

    def turn(self, play: Callable[[Side], None]) -> None:
        """Let it play, unless it failed before."""
        if self.failed is None:
            try:
                play(self)
            except FAILURES as reason:
                self.failed = reason

    def topics(self, count: int, partitions: int) -> list[Topic]:
        """So many, placed by the controller, of names that were never used."""
        self.names += count
        names = [f"bench-{number:06d}" for number in range(self.names - count, self.names)]
        return [Topic(name=name, num_partitions=partitions, replication_factor=REPLICAS) for name in names]

    def delete(self, topics: list[Topic]) -> None:
        self.asker.delete(topics)
        self.deleted += sum(topic.num_partitions for topic in topics)

    def note(self, case: str, made: Made, about: str) -> None:
        self.took[case].append(made.served_s)
        self.answered[case].append(made.answered_s)
        self.abouts[case] = about

    def sample(self, case: str) -> Sample | Exception:
        """What a case took; or why nothing is known of it."""
        if not self.took[case]:
            return self.failed or Unexpected("did not come to it")
        text = self.abouts[case]
        if self.answered[case]:
            text += f", the answer after {statistics.median(self.answered[case]) * 1e3:.0f} ms"
        return events(self.took[case], text)


def in_turns(
    contenders: Sequence[Contender], folder: Path, wanted: set[str], playing: Callable[[Sequence[Side], set[str]], None]
) -> FoundBy:
    """Start all clusters, have them play, and say what was found."""
    sides = [Side(contender) for contender in contenders]
    with ExitStack() as stack:
        for side in sides:
            side.turn(partial(Side.start, folder=folder, stack=stack))
        playing(sides, wanted)
    for case in sorted(wanted):
        for side in sides:
            yield case, side.contender.name, side.sample(case)


def turns(sides: Sequence[Side], number: int) -> Sequence[Side]:
    """In this order in one round, in the other in the next."""
    return sides if number % 2 else list(reversed(sides))


def rested(sides: Sequence[Side], seconds: float) -> None:
    """Wait until nobody's cluster still works off what came before."""
    for side in sides:
        side.turn(lambda each: each.cluster.wait_at_rest(seconds))


# --- made, and made again ---------------------------------------------------------------------------------------------


def making(sizes: Sizes, told: Callable[[str], None], sides: Sequence[Side], wanted: set[str]) -> None:
    """Topics of each width, made, deleted, made again; many topics; and again after many were deleted."""
    for number in range(-sizes.warm_rounds, sizes.rounds):
        for width, partitions in ((1, 1), (64, sizes.some), (1000, sizes.wide)):
            if not {f"topic-{width}", f"again-{width}"} & wanted and width != 64:
                continue
            for side in turns(sides, number):
                told(f"{side.contender.name}, {partitions} partitions, round {number + 1}")
                rested(sides, sizes.rest_s)
                side.turn(partial(made_twice, width=width, partitions=partitions, counts=number >= 0))
        if MANY in wanted:
            for side in turns(sides, number):
                told(f"{side.contender.name}, {sizes.topics} topics, round {number + 1}")
                rested(sides, sizes.rest_s)
                side.turn(partial(made_many, count=sizes.topics, counts=number >= 0))
    if LATE in wanted:
        for side in sides:
            told(f"{side.contender.name}, {sizes.deletions} topics made and deleted")
            side.turn(partial(deleted_many, count=sizes.deletions, partitions=sizes.some))
        for number in range(sizes.rounds):
            for side in turns(sides, number):
                told(f"{side.contender.name}, {sizes.some} partitions after many deletions, round {number + 1}")
                rested(sides, sizes.rest_s)
                side.turn(partial(made_late, partitions=sizes.some))


def made_twice(side: Side, *, width: int, partitions: int, counts: bool) -> None:
    """A topic; and, as soon as its deletion is answered, another one of its name."""
    topics = side.topics(1, partitions)
    about = f"one topic of {partitions} partitions of {REPLICAS} replicas"
    for case, text in ((f"topic-{width}", about), (f"again-{width}", f"{about}, deleted just before")):
        made = side.asker.make(topics)
        side.delete(topics)
        if counts:
            side.note(case, made, text)


def made_many(side: Side, *, count: int, counts: bool) -> None:
    """Many topics in one request."""
    topics = side.topics(count, 1)
    made = side.asker.make(topics)
    side.delete(topics)
    if counts:
        side.note(MANY, made, f"{count} topics of one partition of {REPLICAS} replicas, in one request")


def deleted_many(side: Side, *, count: int, partitions: int) -> None:
    """Topics made and deleted, one after the other; of the same name, as tests do it that make theirs anew."""
    topics = side.topics(1, partitions)
    for _ in range(count):
        side.asker.make(topics)
        side.delete(topics)


def made_late(side: Side, *, partitions: int) -> None:
    """As `made_twice`, when much was deleted before."""
    before, topics = side.deleted, side.topics(1, partitions)
    side.asker.make(topics)
    side.delete(topics)
    made = side.asker.make(topics)
    side.delete(topics)
    early = side.took["again-64"]
    compared = f"; again-64 of this run: {statistics.median(early) * 1e3:.0f} ms" if early else ""
    side.note(LATE, made, f"{partitions} partitions again, after {before} were deleted{compared}")


# --- started ----------------------------------------------------------------------------------------------------------


def restarting(sizes: Sizes, told: Callable[[str], None], sides: Sequence[Side], wanted: set[str]) -> None:
    """A broker with many partitions, of which it has the only replica, is stopped in order and started."""
    for side in sides:
        told(f"{side.contender.name}, {sizes.opened} partitions are made")
        side.turn(partial(filled, partitions=sizes.opened))
    for number in range(sizes.trials):
        for side in turns(sides, number):
            told(f"{side.contender.name}, start {number + 1} with {sizes.opened} partitions")
            rested(sides, sizes.rest_s)
            side.turn(partial(restarted, partitions=sizes.opened, session_s=sizes.session_s))


def filled(side: Side, *, partitions: int) -> None:
    """So many partitions on one broker; one is a topic of its own."""
    widths = [1, *(min(A_TOPIC, partitions - first) for first in range(1, partitions, A_TOPIC))]
    topics = [placed(f"many-{number}", BROKERS[:1], width) for number, width in enumerate(widths)]
    side.mark, *rest = (side.asker.make([topic]).places for topic in topics)
    side.places = side.mark.union(*rest)


def restarted(side: Side, *, partitions: int, session_s: float) -> None:
    """From the start of the process to the last partition that took a record.

    It is started when its former session has ended: until then a controller, Kafka's or ours, refuses a second
    process of its id, and the figure would be the rest of that time.
    """
    node = side.cluster.brokers[0]
    if not node.stop(signal.SIGTERM, STOP_S):
        raise Unexpected(f"the broker with {partitions} partitions did not end within {STOP_S:g} s")
    time.sleep(session_s)
    begun = time.perf_counter()
    node.start()
    side.asker.serve(side.mark)  # asking for all of them all the time would slow the start down
    first_s = time.perf_counter() - begun
    side.asker.serve(side.places)
    side.took[RESTART].append(time.perf_counter() - begun)
    about = f"a broker with {partitions} partitions, stopped in order"
    side.abouts[RESTART] = f"{about}; the last time its first one served after {first_s:.1f} s"
