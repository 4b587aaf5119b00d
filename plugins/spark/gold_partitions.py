"""The history of every partition: leader, ISR and ELR, and how long it was offline or short of replicas."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraftcore.plugins.spark.canonical import EVENT, Canonical
from kraftcore.plugins.spark.frames import (
    Integers,
    Mask,
    before,
    codes,
    constant,
    distinct,
    equals,
    except_lists,
    integers,
    last_known,
    one_chunk,
    ordered,
    pick,
    present,
    running_sum,
    stacked,
    starts,
    take,
    where,
)
from kraftcore.plugins.spark.gold_state import KNOWN as KNOWN_FROM_SNAPSHOT
from kraftcore.plugins.spark.gold_state import RESOURCE_BROKER, RESOURCE_TOPIC, pairs
from kraftcore.plugins.spark.meanings import gold

_KEY = ["topic_id", "partition_id"]
_LISTS = ["isr", "replicas", "removing_replicas", "adding_replicas", "eligible_leader_replicas", "last_known_elr"]
_STATE = [*_LISTS, "directories", "leader", "leader_recovery_state"]
_EPOCHS = ["leader_epoch", "partition_epoch"]
_IDS = pa.list_(pa.field("element", pa.int32()))
NO_LEADER, NO_LEADER_CHANGE, NO_RECOVERY_CHANGE = -1, -2, -1
_MIN_ISR = "min.insync.replicas"
_INT_MAX = (1 << 31) - 1
# What began a state: a number while rows are made, in the column `change` a word.
CREATED, CHANGED, REMOVED, CLEARED, CONFIGURED, KNOWN = range(6)
_WORDS = pa.array(["created", "changed", "removed", "elr cleared", "configured", KNOWN_FROM_SNAPSHOT])


@gold(
    topic="the topic's name",
    partition="the partition's number in the topic, from 0",
    change="what began the state: `created`, `changed`, `elr cleared`, `configured` (a config changed `min_isr`), "
    "`known from a snapshot` (a record before the snapshot began it)",
    min_isr="min.insync.replicas of the topic, else of the cluster, else 1; at most the number of `replicas`",
    previous_leader="the leader in the state before; null: no state is before it",
    previous_isr="the ISR in the state before; null: no state is before it",
    is_offline="whether it has no leader",
    is_under_replicated="whether the ISR is smaller than `replicas` without `adding_replicas`",
    is_under_min_isr="whether the ISR is smaller than `min_isr`",
    is_leader_change="whether the leader differs from the state before",
    isr_removed="the replicas that left the ISR; null: no state is before it",
    isr_added="the replicas that joined the ISR; null: no state is before it",
)
def partitions(canonical: Canonical) -> pa.Table:
    """One row a state of a partition: whether it is offline, under-replicated or under min ISR, and how long.

    ``change`` names what began the state; ``known from a snapshot``: a record before the snapshot did. ``min_isr`` is
    the topic's value, else the cluster's, else 1, and at most the number of replicas (Kafka's effective minimum).
    """
    events = stacked([_records(canonical), _changes(canonical)])
    keys = events.select(["era", *_KEY]).take(
        pa.array(distinct(integers(events["era"]), codes(events["topic_id"]), integers(events["partition_id"])))
    )
    topics = canonical.state("topic").select(["era", "at", "topic_id", "name"])
    events = stacked([
        events, _ends(canonical, keys), _elr_cleared(canonical, keys, topics),
        *_min_isr(canonical, keys, topics),
    ])  # fmt: skip
    return _States(canonical, events, topics).rows()


def _event(rows: pa.Table, change: int, *names: str) -> pa.Table:
    found = rows.select([*EVENT, *names])
    return found.append_column("change", constant(change, len(rows), pa.int8()))


def _records(canonical: Canonical) -> pa.Table:
    # Records with a partition's whole state. Lists that an old version of the record lacks are empty.
    rows = canonical.state("partition")
    found = rows.select([*EVENT, *_KEY, "directories", "leader", "leader_recovery_state", *_EPOCHS])
    change = np.where(equals(rows["source"], "snapshot"), KNOWN, CREATED)
    found = found.append_column("change", pa.array(change, pa.int8()))
    for name in _LISTS:
        found = found.append_column(
            name, pc.coalesce(one_chunk(rows[name]), pa.scalar([], rows.schema.field(name).type))
        )
    return found


def _changes(canonical: Canonical) -> pa.Table:
    rows = canonical.state("partition_change")
    found = _event(rows, CHANGED, *_KEY, *_LISTS, "directories")
    for name, nothing in (("leader", NO_LEADER_CHANGE), ("leader_recovery_state", NO_RECOVERY_CHANGE)):
        column = one_chunk(rows[name])
        kept = pc.if_else(pc.not_equal(column, nothing), column, pa.scalar(None, column.type))
        found = found.append_column(name, kept)
    return found


def _of_partitions(
    events: pa.Table, keys: pa.Table, *columns: tuple[str, str], change: int, names: tuple[str, ...] = ()
) -> pa.Table:
    # Events of topics, or of all topics, repeated for each partition they concern.
    lefts, rights = pairs(events, keys, *columns)
    found = _event(events, change, *names).take(pa.array(lefts))
    for name in _KEY:
        found = found.append_column(name, take(keys[name], rights))
    return found


def _ends(canonical: Canonical, keys: pa.Table) -> pa.Table:
    removed = canonical.state("remove_topic")
    return _of_partitions(removed, keys, ("era", "era"), ("topic_id", "topic_id"), change=REMOVED)


def _elr_cleared(canonical: Canonical, keys: pa.Table, topics: pa.Table) -> pa.Table:
    # KIP-966: the ELR is cleared for one topic, or, with an empty name, for all.
    rows = canonical.state("clear_elr").select([*EVENT, "topic_name"])
    lefts, rights = pairs(rows, topics, ("era", "era"))
    hit = rows.take(pa.array(lefts))
    names, made_at = take(topics["name"], rights), take(topics["at"], rights)
    same = pc.equal(one_chunk(hit["topic_name"]), names).to_numpy(zero_copy_only=False)
    wanted = equals(hit["topic_name"], "") | same
    wanted &= integers(made_at) <= integers(hit["at"])
    hit = where(hit.append_column("topic_id", take(topics["topic_id"], rights)), wanted)
    found = _of_partitions(hit, keys, ("era", "era"), ("topic_id", "topic_id"), change=CLEARED)
    for name in ("eligible_leader_replicas", "last_known_elr"):
        found = found.append_column(name, constant([], len(found), _IDS))
    return found


def _min_isr(canonical: Canonical, keys: pa.Table, topics: pa.Table) -> tuple[pa.Table, pa.Table]:
    # Each value of the config is an event of all partitions that it concerns.
    rows = canonical.state("config").select([*EVENT, "resource_type", "resource_name", "name", "value"])
    values = where(rows, equals(rows["name"], _MIN_ISR))
    numbers = pa.array([_number(value) for value in values["value"].to_pylist()], pa.int32())
    values = values.append_column("number", numbers)
    of_topic = where(values, equals(values["resource_type"], RESOURCE_TOPIC))
    of_topic = stacked([of_topic, _removals(canonical, topics)])
    lefts, rights = pairs(of_topic, topics, ("era", "era"), ("resource_name", "name"))
    of_topic = of_topic.take(pa.array(lefts)).append_column("topic_id", take(topics["topic_id"], rights))
    topic = _of_partitions(
        of_topic, keys, ("era", "era"), ("topic_id", "topic_id"), change=CONFIGURED, names=("number",)
    )
    of_all = where(values, equals(values["resource_type"], RESOURCE_BROKER) & equals(values["resource_name"], ""))
    cluster = _of_partitions(of_all, keys, ("era", "era"), change=CONFIGURED, names=("number",))
    return (
        topic.rename_columns({"number": "topic_min_isr"}),
        cluster.rename_columns({"number": "cluster_min_isr"}),
    )


def _removals(canonical: Canonical, topics: pa.Table) -> pa.Table:
    # The configs of a topic end with the topic: a later topic of the same name begins without them.
    rows = canonical.state("remove_topic").select([*EVENT, "topic_id"])
    lefts, rights = pairs(rows, topics, ("era", "era"), ("topic_id", "topic_id"))
    found = rows.select(EVENT).take(pa.array(lefts))
    found = found.append_column("resource_name", take(topics["name"], rights))
    return found.append_column("number", constant(0, len(found), pa.int32()))


def _number(value: str | None) -> int:
    try:
        number = int(value or "0")
    except ValueError:  # Kafka refuses such a value, but a log may hold one
        return 0
    return number if 0 <= number <= _INT_MAX else 0


class _States:
    # Makes whole states from changes, and counts the epochs that a change raises without holding them.

    def __init__(self, canonical: Canonical, events: pa.Table, topics: pa.Table) -> None:
        self._canonical = canonical
        self._events = events
        self._topics = topics.take(pa.array(distinct(integers(topics["era"]), codes(topics["topic_id"]))))
        things = [integers(events["era"]), codes(events["topic_id"]), integers(events["partition_id"])]
        self._order = ordered(*things, integers(events["at"]), integers(events["seq"]))
        self._things = [key[self._order] for key in things]
        self._change = integers(events["change"])[self._order]
        self._of_thing = starts(*self._things)
        created = np.isin(self._change, (CREATED, KNOWN)).astype(np.int64)
        self._life = starts(*self._things, running_sum(created, self._of_thing))
        removed = running_sum((self._change == REMOVED).astype(np.int64), self._of_thing)
        self._is_over = removed > (self._change == REMOVED)

    def rows(self) -> pa.Table:
        canonical, order = self._canonical, self._order
        leader = self._last("leader", self._life)
        leaders = integers(self._events["leader"])
        known = (leader >= 0) | np.isin(
            self._change, (CREATED, KNOWN, CHANGED, REMOVED)
        )  # other changes come before the partition was created
        known &= ~self._is_over  # not changes after the partition was removed
        spots = np.flatnonzero(known)
        lasting = canonical.lasting(
            self._events, order[spots], starts(*(key[spots] for key in self._things)),
            np.flatnonzero(self._change[spots] != REMOVED),
        )  # fmt: skip
        kept = spots[self._change[spots] != REMOVED]
        previous = before(self._life)
        found = {name: self._take(name, order[kept]) for name in _KEY}
        found |= {"topic": self._topic(order[kept]), "change": _WORDS.take(pa.array(self._change[kept]))}
        for name in _STATE:
            found[name] = self._take(name, self._last(name, self._life)[kept])
        elected = (self._change == CHANGED) & present(self._events["leader"])[order]
        raised = {"leader_epoch": elected, "partition_epoch": self._change == CHANGED}
        for name in _EPOCHS:
            added = pa.array(running_sum(raised[name].astype(np.int64), self._life)[kept])
            found[name] = pc.add(self._take(name, self._last(name, self._life)[kept]).cast(pa.int64()), added)
        replicas = pc.list_value_length(found["replicas"])
        found["min_isr"] = pc.min_element_wise(self._min_isr(kept), replicas)
        found["previous_leader"] = pick(leaders, self._before(leader, previous)[kept]).cast(pa.int32())
        isr = self._last("isr", self._life)
        found["previous_isr"] = self._take("isr", self._before(isr, previous)[kept])
        rows = pa.table(found | lasting | _judged(found))
        return canonical.named(rows.rename_columns({"partition_id": "partition"}))

    def _last(self, name: str, begins: Mask) -> Integers:
        # For each event, in order, the row of the last event with a value in the column; -1: no event has one.
        spots = last_known(present(self._events[name])[self._order], begins)
        return np.where(spots < 0, -1, self._order[np.maximum(spots, 0)]) if len(spots) else spots

    @staticmethod
    def _before(last: Integers, previous: Integers) -> Integers:
        return np.where(previous < 0, -1, last[np.maximum(previous, 0)]) if len(last) else last

    def _take(self, name: str, rows: Integers) -> pa.Array:
        return take(self._events[name], rows)

    def _topic(self, rows: Integers) -> pa.Array:
        wanted = self._events.select(["era", "topic_id"]).take(pa.array(rows))
        lefts, rights = pairs(wanted, self._topics, ("era", "era"), ("topic_id", "topic_id"))
        found = np.full(len(rows), -1)
        found[lefts] = rights
        return take(self._topics["name"], found)

    def _min_isr(self, kept: Integers) -> pa.Array:
        values = []
        for name in ("topic_min_isr", "cluster_min_isr"):
            value = self._take(name, self._last(name, self._of_thing)[kept])
            values.append(pc.if_else(pc.greater(value, 0), value, pa.scalar(None, pa.int32())))
        return pc.coalesce(*values, pa.scalar(1, pa.int32()))


def _judged(found: dict[str, pa.Array]) -> dict[str, pa.Array]:
    # The columns that say what a state means.
    leader, previous = found["leader"], found["previous_leader"]
    settled = except_lists(found["replicas"], found["adding_replicas"])
    size = pc.list_value_length(found["isr"])
    return {
        "is_offline": pc.equal(leader, NO_LEADER),
        "is_under_replicated": pc.less(size, pc.list_value_length(settled)),
        "is_under_min_isr": pc.less(size, found["min_isr"]),
        "is_leader_change": pa.array(integers(leader, NO_LEADER_CHANGE) != integers(previous, NO_LEADER_CHANGE)),
        "isr_removed": except_lists(found["previous_isr"], found["isr"]),
        "isr_added": except_lists(found["isr"], found["previous_isr"]),
    }
