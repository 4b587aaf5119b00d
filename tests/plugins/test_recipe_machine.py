"""The state machine alone: commands in, replies and state out, without a node."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from time import thread_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from project import ROOT

from kraftcore.core.batch import build_batch, stamp_batch, validate_batch
from kraftcore.errors import CorruptDataError, LocalError, MissingDependencyError
from kraftcore.plugins.recipes.codec import msgpack_library, pack, unpack
from kraftcore.plugins.recipes.machine import ATOMIC, FORMAT, KINDS, OK, UNKNOWN_CLIENT, RecipeMachine, encode_command
from kraftcore.plugins.recipes.object_states import BAD, CONFLICT, Moment, SetState
from kraftcore.plugins.recipes.sessions import STALE, WINDOW

CLIENT = 7


class Replica:
    """A machine, and a client that numbers its commands."""

    def __init__(self, **settings):
        self.machine = RecipeMachine(**settings)
        self.offset = 0
        self.now_ms = 1_000
        self.number = 0
        self.raw(encode_command(CLIENT, 0, 0, ()))

    def raw(self, *values):
        data = build_batch(values, timestamp_ms=self.now_ms)
        stamp_batch(data, self.offset, 1)
        self.offset += len(values)
        replies = self.machine.apply(validate_batch(data))
        return replies[0] if len(values) == 1 else replies

    def do(self, *operations, version=FORMAT):
        self.number += 1
        return self.raw(encode_command(CLIENT, self.number, self.number, operations, version))

    def ok(self, *operation):
        status, payload = self.do(operation)
        assert status == OK, payload
        return payload[0]

    def snapshot(self):
        class Sink(list):
            append = list.extend

        sink = Sink()
        self.machine.snapshot(sink)
        return list(sink)

    def restored(self):
        other = Replica()
        other.machine.restore(self.snapshot())
        other.offset, other.now_ms, other.number = self.offset, self.now_ms, self.number
        return other


KEYS = st.sampled_from(["a", "b", "c"])
VALUES = st.sampled_from([pack(value) for value in (None, 0, 1, "x", [1, 2], {"k": b"v"})])
ACTIONS = st.one_of(
    st.tuples(st.just("dict"), st.just("set"), KEYS, VALUES),
    st.tuples(st.just("dict"), st.just("pop"), KEYS),
    st.tuples(st.just("dict"), st.just("replace"), KEYS, st.none() | VALUES, VALUES),
    st.tuples(st.just("dict"), st.just("set_default"), KEYS, VALUES),
    st.tuples(st.just("dict"), st.just("update"), st.dictionaries(KEYS, VALUES)),
    st.tuples(st.just("dict"), st.just("clear")),
    st.tuples(st.just("counter"), st.just("add"), st.integers(-5, 5)),
    st.tuples(st.just("counter"), st.just("replace"), st.integers(-2, 2), st.integers(-2, 2)),
    st.tuples(st.just("queue"), st.just("put"), VALUES, st.sampled_from([0, 1, 3])),
    st.tuples(st.just("queue"), st.just("get")),
    st.tuples(st.just("queue"), st.just("clear")),
    st.tuples(st.just("set"), st.just("add"), VALUES),
    st.tuples(st.just("set"), st.just("discard"), VALUES),
    st.tuples(st.just("set"), st.just("pop")),
    st.tuples(st.just("set"), st.just("update"), st.lists(VALUES, max_size=3)),
    st.tuples(st.just("counter"), st.just("check"), st.integers(-2, 2)),
    st.tuples(st.just("dict"), st.just("check"), KEYS, st.just(-1)),
    st.tuples(st.just("list"), st.just("extend"), st.lists(VALUES, max_size=3)),
    st.tuples(st.just("list"), st.just("insert"), st.integers(-3, 3), VALUES),
    st.tuples(st.just("list"), st.just("replace"), st.integers(-2, 2), VALUES, VALUES),
    st.tuples(st.just("list"), st.just("remove"), VALUES),
    st.tuples(st.just("list"), st.just("clear")),
    st.tuples(st.just("priority queue"), st.just("put"), VALUES, st.integers(-2, 2), st.sampled_from([0, 3])),
    st.tuples(st.just("priority queue"), st.just("get")),
    st.tuples(st.just("priority queue"), st.just("clear")),
)


class Model:
    """The same objects as plain Python ones."""

    def __init__(self):
        self.dict, self.counter, self.queue, self.set, self.list, self.heap = {}, 0, [], {}, [], []

    def copy(self):
        return deepcopy(self)

    def state(self):
        return self.dict, self.counter, self.queue, list(self.set), self.list, [item for _, item in self.heap]

    def act(self, kind, verb, *arguments):
        return getattr(self, f"{kind.replace(' ', '_')}_{verb}")(*arguments)

    def dict_set(self, key, value):
        self.dict[key] = value
        return ...

    def dict_pop(self, key):
        return self.dict.pop(key, None)

    def dict_replace(self, key, expected, value):
        if key in self.dict or expected is None:
            if self.dict.get(key) != expected:
                return False
        elif unpack(expected) is not None:
            return False
        self.dict[key] = value
        return True

    def dict_set_default(self, key, value):
        return self.dict.setdefault(key, value)

    def dict_update(self, pairs):
        self.dict.update(pairs)
        return ...

    def dict_clear(self):
        count = len(self.dict)
        self.dict.clear()
        return count

    def dict_check(self, key, version):
        if key in self.dict:
            raise LookupError

    def counter_add(self, delta):
        self.counter += delta
        return self.counter

    def counter_replace(self, expected, value):
        if self.counter != expected:
            return False
        self.counter = value
        return True

    def counter_check(self, expected):
        if self.counter != expected:
            raise LookupError

    def queue_put(self, item, limit):
        if limit and len(self.queue) >= limit:
            return False
        self.queue.append(item)
        return True

    def queue_get(self):
        return self.queue.pop(0) if self.queue else None

    def queue_clear(self):
        count = len(self.queue)
        self.queue.clear()
        return count

    def set_add(self, member):
        new = member not in self.set
        self.set[member] = None
        return new

    def set_discard(self, member):
        return self.set.pop(member, ...) is None

    def set_pop(self):
        member = next(iter(self.set), None)
        self.set.pop(member, None)
        return member

    def set_update(self, members):
        return sum([self.set_add(member) for member in members])

    def list_extend(self, items):
        self.list += items
        return len(self.list)

    def list_insert(self, index, item):
        self.list.insert(index, item)
        return len(self.list)

    def list_replace(self, index, expected, item):
        try:
            if self.list[index] != expected:
                return False
        except IndexError:
            return False
        self.list[index] = item
        return True

    def list_remove(self, item):
        found = item in self.list
        if found:
            self.list.remove(item)
        return found

    def list_clear(self):
        count = len(self.list)
        self.list.clear()
        return count

    def priority_queue_put(self, item, priority, limit):
        if limit and len(self.heap) >= limit:
            return False
        self.heap = sorted([*self.heap, (priority, item)], key=lambda each: each[0])
        return True

    def priority_queue_get(self):
        return ... if self.heap and self.heap.pop(0) else None

    def priority_queue_clear(self):
        count = len(self.heap)
        self.heap.clear()
        return count


def state_of(machine):
    def found(kind, attribute, default):
        state = machine.find(kind, "x")
        return default if state is None else getattr(state, attribute)

    entries = {key: entry.value for key, entry in found("dict", "entries", {}).items()}
    values = entries, found("counter", "value", 0), list(found("queue", "items", ())), list(found("set", "members", ()))
    return *values, found("list", "items", []), list(found("priority queue", "items", {}).values())


@settings(max_examples=100)
@given(st.lists(st.lists(ACTIONS, min_size=1, max_size=4), max_size=25), st.randoms(use_true_random=False))
def test_objects_are_as_python_has_them(commands, random):
    """Single operations and transactions, with retries and restarts from snapshots in between."""
    replica, model = Replica(), Model()
    for actions in commands:
        operations = [(kind, "x", verb, *arguments) for kind, verb, *arguments in actions]
        reply = replica.do(*operations)
        tried = model.copy()
        try:
            wanted = [tried.act(*action) for action in actions]
        except LookupError:
            assert reply.status == CONFLICT
        else:
            model = tried
            assert reply.status == OK
            assert [(... if want is ... else got) for got, want in zip(reply.payload, wanted, strict=True)] == wanted
        assert state_of(replica.machine) == model.state()
        if random.random() < 0.2:
            replica = replica.restored()
            assert state_of(replica.machine) == model.state()
        if random.random() < 0.3:
            assert replica.raw(encode_command(CLIENT, replica.number, replica.number, operations)) == reply
            assert state_of(replica.machine) == model.state()
    assert replica.restored().snapshot() == replica.snapshot()


def test_what_is_as_new_takes_no_room():
    replica = Replica()
    empty = replica.snapshot()
    for verbs in (("put", pack(1), 0), ("get",)):
        replica.ok("queue", "q", *verbs)
    replica.ok("counter", "c", "add", 3)
    replica.ok("counter", "c", "add", -3)
    replica.ok("dict", "d", "pop", "nothing")
    token = replica.ok("lock", "l", "acquire", b"me", 10, pack(None), True)
    assert token == 1
    assert replica.ok("lock", "l", "release", b"me")
    assert [replica.machine.names(kind) for kind in ("queue", "counter", "dict", "lock")] == [[]] * 4
    assert len(replica.snapshot()) == len(empty)


# --- hostile commands -------------------------------------------------------------------------------------------------

BAD_COMMANDS = [
    b"\x00",
    b"\xc1",
    b"hello",
    pack("hello"),
    pack([1, 2, 3]),
    pack([3, CLIENT, 1, 1, [["dict", "d", "clear"]]]),
    pack([1, CLIENT, -1, 1, [["dict", "d", "clear"]]]),
    pack([1, CLIENT, 1.5, 1, [["dict", "d", "clear"]]]),
    pack([1, True, 1, 1, [["dict", "d", "clear"]]]),
    pack([1, [], 1, 1, [["dict", "d", "clear"]]]),
    pack([1, CLIENT, 1, 1, None]),
    pack([1, CLIENT, 1, 1, []]),
    pack([1, CLIENT, 1, 1, "dict"]),
    pack([1, CLIENT, 1, 1, [["dict"]]]),
    pack([1, CLIENT, 1, 1, [["dict", "d", "nothing"]]]),
    pack([1, CLIENT, 1, 1, [["dict", "d", "__init__"]]]),
    pack([1, CLIENT, 1, 1, [["dict", 5, "clear"]]]),
    pack([1, CLIENT, 1, 1, [[["dict"], "d", "clear"]]]),
    pack([1, CLIENT, 1, 1, [["dict", "d", "set", "k"]]]),
    pack([1, CLIENT, 1, 1, [["dict", "d", "set", "k", "not packed"]]]),
    pack([1, CLIENT, 1, 1, [["dict", "d", "update", {"k": 1}]]]),
    pack([1, CLIENT, 1, 1, [["set", "s", "update", [1]]]]),
    pack([1, CLIENT, 1, 1, [["counter", "c", "add", True]]]),
    pack([1, CLIENT, 1, 1, [["counter", "c", "set", 2**64 - 1]]]),
    pack([1, CLIENT, 1, 1, [["lock", "l", "acquire", b"me", 0, b"", True]]]),
    pack([1, CLIENT, 1, 1, [["lock", "l", "acquire", b"me", 2**62, b"", True]]]),
    pack([1, CLIENT, 1, 1, [["lock", "l", "poke"], ["lock", "l", "poke"]]]),
    pack([1, CLIENT, 1, 1, [["queue", "q", "give_back", pack(1)], ["counter", "c", "add", 1]]]),
    pack([1, CLIENT, 1, 1, [["queue", "q", "take", b"me", 0]]]),
    pack([1, CLIENT, 1, 1, [["priority queue", "q", "take", b"me", 2**62]]]),
    pack([1, CLIENT, 1, 1, [["queue", "q", "take", b"me", 10], ["counter", "c", "add", 1]]]),
    pack([1, CLIENT, 1, 1, [["list", "l", "set", 0, pack(1)]]]),
    pack([1, CLIENT, 1, 1, [["list", "l", "extend", [1]]]]),
    pack([1, CLIENT, 1, 1, [["semaphore", "s", "acquire", b"me", 10, b"", True, 0]]]),
    pack([1, CLIENT, 1, 1, [["barrier", "b", "arrive", b"me", -1, 0, 10]]]),
    pack([1, CLIENT, 1, 1, [["barrier", "b", "arrive", b"me", -1, 2, 0]]]),
    pack([1, CLIENT, WINDOW + 1, 1, [["dict", "d", "clear"]]]),
    b"\x81\x90\x01",  # a map with a list as key
    b"\x91" * 2000,
    b"\xdd\xff\xff\xff\xff",
]


@pytest.mark.parametrize("value", BAD_COMMANDS, ids=lambda value: value[:24].hex())
def test_commands_without_sense_are_answered_and_change_nothing(value):
    replica = Replica()
    replica.ok("dict", "d", "set", "k", pack(1))
    replica.number = 0
    fresh = Replica()
    status, text = fresh.raw(value)
    assert status == BAD and isinstance(text, str) and text
    assert not any(fresh.machine.names(kind) for kind in KINDS)
    assert fresh.restored().snapshot() == fresh.snapshot()
    assert len({status for status, _ in replica.raw(value, value, b"\x01")} - {OK, BAD, STALE}) == 0
    assert state_of(fresh.machine) == Model().state()


@given(st.binary(min_size=1, max_size=60))
def test_any_bytes_are_answered(value):
    replica = Replica()
    command = encode_command(CLIENT, 1, 1, [["dict", "x", "set", "k", pack(1)]])
    cut = command[: len(value) % len(command)] or b"\x01"
    flipped = bytes(a ^ b for a, b in zip(command, value.ljust(len(command), b"\x00"), strict=False))
    for reply in replica.raw(value, cut, flipped):
        assert reply.status in (OK, BAD, UNKNOWN_CLIENT, STALE)
    assert replica.restored().snapshot() == replica.snapshot()


def test_a_counter_stays_within_64_bits():
    replica = Replica()
    replica.ok("counter", "c", "set", 2**63 - 1)
    assert replica.do(["counter", "c", "add", 1]).status == BAD
    assert replica.machine.find("counter", "c").value == 2**63 - 1


def test_values_that_cannot_be_packed_are_named():
    for value in (object(), 2**64, {1: {2, 3}}, "\ud800"):
        with pytest.raises(LocalError, match="recipes hold"):
            pack(value)
    assert unpack(pack({"a": [1, (2,), None, b"x", 1.5]})) == {"a": [1, [2], None, b"x", 1.5]}


def test_a_refused_transaction_leaves_a_sets_order_as_it_was():
    replica = Replica()
    members = [pack(number) for number in range(20_000)]  # so many that work for each of them with all others hurts
    replica.ok("set", "s", "update", members)
    discards = [["set", "s", "discard", member] for member in members[::2]]
    refused = [*discards, ["set", "s", "pop"], ["set", "s", "add", pack("new")], ["counter", "c", "check", 1]]
    assert replica.do(*refused).status == CONFLICT
    assert list(replica.machine.find("set", "s").members) == members
    assert [replica.ok("set", "s", "pop") for _ in range(2)] == members[:2]


def test_a_pop_costs_as_much_in_a_large_set_as_in_a_small_one():
    """Compared on one machine in one run: looking at all members popped before costs 10 to 20 times as much here."""

    def cost(size):
        state, moment = SetState("s"), Moment(1)
        state.update(moment, [b"%d" % number for number in range(size)])
        begin = thread_time()
        popped = [state.pop(moment) for _ in range(size)]
        spent = thread_time() - begin
        assert popped == [b"%d" % number for number in range(size)] and state.pop(moment) is None
        return spent / size

    assert min(cost(100_000) for _ in range(2)) < 5 * max(cost(5_000) for _ in range(5))


def test_a_foreign_snapshot_is_refused():
    for values in ([], [b"x"], [pack(["other", 1, 0, 1])], [pack(["recipes", 1, 0, 1]), pack(["dict", "d"])]):
        with pytest.raises(CorruptDataError, match="recipes"):
            RecipeMachine().restore(values)


# --- sessions ---------------------------------------------------------------------------------------------------------


def test_a_retry_out_of_order_is_answered_as_before():
    replica = Replica()
    commands = [encode_command(CLIENT, number, 1, [["counter", "c", "add", 1]]) for number in range(1, 6)]
    first = replica.raw(*(commands[at] for at in (3, 0, 4, 2, 1)))
    assert [reply.payload for reply in first] == [[1], [2], [3], [4], [5]]
    replica = replica.restored()
    again = replica.raw(*(commands[at] for at in (3, 0, 4, 2, 1)))
    assert again == first
    assert replica.machine.find("counter", "c").value == 5
    replica.raw(encode_command(CLIENT, 6, 4, [["counter", "c", "add", 1]]))
    assert [replica.raw(command).status for command in commands] == [STALE, STALE, STALE, OK, OK]
    assert replica.machine.find("counter", "c").value == 6


def test_a_silent_client_is_forgotten_by_the_logs_time():
    replica = Replica(session_expiry_ms=100)
    replica.ok("counter", "c", "add", 1)
    replica.now_ms += 101
    assert replica.do(["counter", "c", "add", 1]).status == UNKNOWN_CLIENT
    assert replica.machine.find("counter", "c").value == 1
    sessions = replica.snapshot()
    replica.raw(encode_command(CLIENT + 1, 0, 0, ()))
    assert len(replica.snapshot()) == len(sessions) + 1  # the counter, the new client
    assert replica.do(["counter", "c", "add", 1]).status == UNKNOWN_CLIENT


def test_time_never_falls():
    replica = Replica()
    replica.ok("lock", "l", "acquire", b"me", 100, pack(None), False)
    replica.now_ms -= 500
    assert replica.ok("lock", "l", "acquire", b"you", 100, pack(None), False) == 0
    assert replica.machine.now_ms == 1_000


# --- an earlier version -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("begin", range(3))
def test_what_an_earlier_version_wrote_is_read_and_replayed_the_same(begin):
    """From the log's beginning, or from one of the snapshots: every reply and every snapshot, byte by byte."""
    kept = json.loads((ROOT / "tests" / "data" / "recipes-earlier.json").read_text())
    snapshots = {count: [bytes.fromhex(value) for value in values] for count, values in kept["snapshots"]}
    replica, first = Replica(session_expiry_ms=20_000), [0, *snapshots][begin]
    replica.machine = RecipeMachine(session_expiry_ms=20_000)
    if first:
        replica.machine.restore(snapshots[first])
    replica.offset = sum(len(values) for _, values, _ in kept["batches"][:first])
    for count, (now_ms, values, replies) in enumerate(kept["batches"][first:], first + 1):
        replica.now_ms = now_ms
        found = replica.raw(*map(bytes.fromhex, values))
        assert [pack(list(reply)).hex() for reply in ([found] if len(values) == 1 else found)] == replies
        if count in snapshots:
            assert replica.snapshot() == snapshots[count]
    assert replica.snapshot() == snapshots[len(kept["batches"])]


# --- transactions -----------------------------------------------------------------------------------------------------


def test_watching_begins_and_ends_in_any_thread():
    replica, key, threads = Replica(), ("counter", "c"), 4

    def come_and_go():
        for _ in range(3000):
            seen = []
            watcher = replica.machine.watch(key, seen.append)
            replica.machine.unwatch(watcher)
        return replica.machine.watch(key, seen.append), seen

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(threads) as pool:
            watching = [pool.submit(come_and_go) for _ in range(threads)]
            while not all(future.done() for future in watching):
                replica.ok("counter", "c", "add", 1)
    finally:
        sys.setswitchinterval(interval)
    kept = [future.result() for future in watching]
    for _, seen in kept:
        seen.clear()
    replica.ok("counter", "c", "add", 1)
    assert [len(seen) for _, seen in kept] == [1] * threads


def test_a_transaction_is_all_or_nothing():
    replica = Replica()
    version = replica.ok("dict", "d", "set", "k", pack(1))
    seen = []
    watcher = replica.machine.watch(("dict", "d"), seen.append)
    operations = [
        ["dict", "d", "set", "k", pack(2)],
        ["queue", "q", "put", pack("item"), 0],
        ["set", "s", "add", pack("member")],
        ["counter", "c", "add", 5],
        ["dict", "d", "pop", "k"],
        ["queue", "q", "get"],
    ]
    before = replica.snapshot()[2:]
    assert replica.do(*operations, ["dict", "d", "check", "k", version]).status == CONFLICT
    assert replica.snapshot()[2:] == before
    assert seen == []
    assert replica.do(["dict", "d", "check", "k", version], *operations).status == OK
    assert state_of(replica.machine) == Model().state()
    assert replica.machine.find("counter", "c").value == 5
    assert [key for key, _, _ in seen] == ["k", "k"]
    assert watcher.key == ("dict", "d")


# --- locks ------------------------------------------------------------------------------------------------------------


def acquire(replica, owner, lease_ms=100, wait=True):
    return replica.ok("lock", "l", "acquire", owner, lease_ms, pack(owner), wait)


def test_a_lock_goes_on_in_line():
    replica = Replica()
    assert acquire(replica, b"a") == 1
    assert acquire(replica, b"b") == 0
    assert acquire(replica, b"c") == 0
    assert acquire(replica, b"a") == 1  # asks again: the same grant
    assert replica.ok("lock", "l", "release", b"a") is True
    assert replica.ok("lock", "l", "release", b"a") is False
    replica = replica.restored()
    assert acquire(replica, b"b") == 2
    assert replica.ok("lock", "l", "release", b"b") is True
    assert acquire(replica, b"c") == 3


def test_a_lease_ends_unless_renewed():
    replica = Replica()
    assert acquire(replica, b"a") == 1
    replica.now_ms += 60
    assert replica.ok("lock", "l", "renew", b"a", 1) == 1
    replica.now_ms += 60
    assert replica.ok("lock", "l", "renew", b"a", 1) == 1
    assert acquire(replica, b"b", wait=False) == 0
    replica.now_ms += 100
    assert replica.ok("lock", "l", "renew", b"a", 1) == 0
    assert acquire(replica, b"a") == 2  # another grant, another token
    assert replica.ok("lock", "l", "renew", b"a", 1) == 2  # nobody prolongs it with the old one
    replica.now_ms += 100
    assert acquire(replica, b"b") == 3


def test_who_waits_and_falls_silent_loses_its_place():
    replica = Replica()
    assert acquire(replica, b"a", lease_ms=1000) == 1
    assert acquire(replica, b"b", lease_ms=50) == 0
    assert acquire(replica, b"c", lease_ms=5000) == 0
    replica.now_ms += 60
    replica.ok("lock", "l", "release", b"a")
    assert acquire(replica, b"c", lease_ms=5000) == 2


def test_a_check_fences_a_holder_whose_lease_ended():
    replica = Replica()
    token = acquire(replica, b"a")
    write = ["dict", "d", "set", "k", pack(1)]
    assert replica.do(["lock", "l", "check", token], write).status == OK
    replica.now_ms += 100
    assert replica.do(["lock", "l", "check", token], write).status == CONFLICT
    assert acquire(replica, b"b") == token + 1
    assert replica.do(["lock", "l", "check", token], write).status == CONFLICT


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["acquire", "try", "renew", "release", "poke"]), st.integers(0, 2), st.integers(0, 80)
        ),
        max_size=40,
    )
)
def test_one_holder_and_growing_tokens(steps):
    replica = Replica()
    tokens, last = {}, 0
    for verb, who, passed in steps:
        replica.now_ms += passed
        owner = b"%d" % who
        if verb in ("acquire", "try"):
            token = acquire(replica, owner, wait=verb == "acquire")
        elif verb == "renew":
            token = replica.ok("lock", "l", "renew", owner, tokens.get(who, 0))
        else:
            replica.ok("lock", "l", verb, *([owner] if verb == "release" else []))
            token = 0
        if token:
            assert token >= last
            assert token not in [held for other, held in tokens.items() if other != who]
            tokens[who] = last = token
        assert replica.restored().snapshot() == replica.snapshot()


@settings(max_examples=40)
@given(
    st.integers(1, 3),
    st.lists(
        st.tuples(st.sampled_from(["acquire", "release", "poke"]), st.integers(0, 4), st.integers(0, 40)), max_size=40
    ),
)
def test_a_semaphore_never_has_too_many_holders(permits, steps):
    replica, tokens = Replica(), set()
    for verb, who, passed in steps:
        replica.now_ms += passed
        owner = b"%d" % who
        if verb == "acquire":
            tokens.add(replica.ok("semaphore", "s", "acquire", owner, 100, pack(who), True, permits))
        else:
            replica.ok("semaphore", "s", verb, *([owner] if verb == "release" else []))
        state = replica.machine.find("semaphore", "s")
        if state is not None:
            assert len(state.holders) <= permits
            assert len(state.holders) == permits or not state.waiting, "somebody waits for what is free"
            held = [claim.token for claim in state.holders.values()]
            assert held == sorted(set(held))
        assert replica.restored().snapshot() == replica.snapshot()
    assert len(tokens - {0}) <= replica.number


def arrive(replica, owner, joined=-1, parties=2, lease_ms=100):
    return replica.ok("barrier", "b", "arrive", owner, joined, parties, lease_ms)


def test_a_barrier_opens_again_and_again_for_those_that_came():
    replica = Replica()
    for generation in range(3):
        assert arrive(replica, b"a%d" % generation) == [generation, False]
        replica = replica.restored()
        assert arrive(replica, b"a%d" % generation, generation) == [generation, False]  # renews its place
        assert arrive(replica, b"b%d" % generation) == [generation + 1, True]
        assert arrive(replica, b"a%d" % generation, generation) == [generation + 1, True]
        assert replica.ok("barrier", "b", "leave", b"a%d" % generation) is True
    assert arrive(replica, b"a0", 0) == [3, True]  # it was away for two times


def test_who_fell_silent_at_a_barrier_is_not_counted_and_comes_anew():
    replica = Replica()
    assert arrive(replica, b"silent") == [0, False]
    replica.now_ms += 100
    assert arrive(replica, b"a") == [0, False]
    assert arrive(replica, b"b") == [1, True]
    assert replica.restored().ok("barrier", "b", "leave", b"silent") is False
    assert arrive(replica, b"silent", 0) == [1, False]
    assert replica.ok("barrier", "b", "leave", b"silent") is False
    assert arrive(replica, b"c") == [1, False]


# --- giving back ------------------------------------------------------------------------------------------------------


def test_an_item_that_comes_back_is_where_it_was():
    replica = Replica()
    for item in (b"a", b"b"):
        replica.ok("queue", "q", "put", item, 0)
    assert replica.ok("queue", "q", "get") == b"a"
    replica.ok("queue", "q", "give_back", b"a")
    assert list(replica.machine.find("queue", "q").items) == [b"a", b"b"]


def test_an_item_of_a_priority_queue_that_comes_back_late_displaces_none():
    replica = Replica()
    replica.ok("priority queue", "q", "put", b"early", 0, 0)
    taken = replica.ok("priority queue", "q", "get")
    replica = replica.restored()
    refused = [["priority queue", "q", "put", b"refused", 0, 0], ["counter", "c", "check", 1]]
    assert replica.do(*refused).status == CONFLICT
    replica.ok("priority queue", "q", "put", b"late", 0, 0)
    replica.ok("priority queue", "q", "put", b"urgent", -1, 0)
    replica.ok("priority queue", "q", "give_back", *taken)
    assert list(replica.machine.find("priority queue", "q").items.values()) == [b"urgent", b"early", b"late"]


# --- taken for a time -------------------------------------------------------------------------------------------------

LENDING = {"queue": lambda number: (pack(number), 0), "priority queue": lambda number: (pack(number), 0, 0)}
TAKERS = [b"a", b"b", b"c"]
STEP = st.sampled_from(["put", "get", "take", "renew", "finish", "release", "refused", "restart"])


@pytest.mark.parametrize("kind", LENDING)
@settings(max_examples=60)
@given(steps=st.lists(st.tuples(STEP, st.sampled_from(TAKERS), st.integers(0, 60)), max_size=40))
def test_an_item_is_with_one_taker_or_at_its_place(kind, steps):
    replica, number = Replica(), 0
    waiting, taken = [], {}  # numbers of items in the order they were put; owner -> number, end, token

    def pass_time():
        for owner, (item, end_ms, _) in list(taken.items()):
            if end_ms <= replica.now_ms:
                del taken[owner]
                waiting.append(item)
                waiting.sort()

    for verb, owner, passed in steps:
        replica.now_ms += passed
        if verb == "restart":
            replica = replica.restored()
            continue
        if verb == "put":
            number += 1
            assert replica.ok(kind, "q", "put", *LENDING[kind](number))
            waiting.append(number)
            continue
        if verb == "refused":
            gone = [[kind, "q", "get"], [kind, "q", "finish", owner], ["counter", "c", "check", 1]]
            assert replica.do(*gone, version=ATOMIC).status == CONFLICT
            continue
        pass_time()
        if verb == "get":
            found = replica.ok(kind, "q", "get")
            item = found if found is None or kind == "queue" else found[2]
            assert item == (pack(waiting.pop(0)) if waiting else None)
        elif verb == "take":
            found = replica.ok(kind, "q", "take", owner, 100)
            if owner in taken:
                assert found == [taken[owner][2], pack(taken[owner][0])]
            elif waiting:
                assert found[0] > max((token for _, _, token in taken.values()), default=0)
                taken[owner] = waiting.pop(0), replica.now_ms + 100, found[0]
                assert found[1] == pack(taken[owner][0])
            else:
                assert found is None
        elif verb == "renew":
            item, _, token = taken.get(owner, (0, 0, 0))
            assert replica.ok(kind, "q", "renew", owner, token) == token
            if token:
                taken[owner] = item, replica.now_ms + 100, token
                assert replica.ok(kind, "q", "renew", owner, token + 1) == 0
        else:
            found = taken.pop(owner, None)
            assert replica.ok(kind, "q", verb, owner) is (found is not None)
            if verb == "release" and found is not None:
                waiting.append(found[0])
                waiting.sort()
        state = replica.machine.find(kind, "q")
        assert [unpack(item) for item in (state.packed() if state else ())] == waiting
        assert (state.size() if state else 0) == len(waiting)
        assert replica.restored().snapshot() == replica.snapshot()


@pytest.mark.parametrize("kind", LENDING)
def test_an_item_is_finished_with_other_changes_or_not_at_all(kind):
    replica = Replica()
    replica.ok(kind, "q", "put", *LENDING[kind](1))
    assert replica.ok(kind, "q", "take", b"me", 100) == [1, pack(1)]
    done = [[kind, "q", "finish", b"me"], ["counter", "c", "add", 1]]
    assert replica.do(*done, ["counter", "c", "check", 7], version=ATOMIC).status == CONFLICT
    replica = replica.restored()
    replica.now_ms += 99
    assert replica.ok(kind, "q", "take", b"you", 100) is None
    assert replica.do(*done, version=ATOMIC) == (OK, [True, 1])
    status, text = replica.do(*done, version=ATOMIC)
    assert (status, text) == (CONFLICT, f"the lease of an item of {kind} 'q' ended")
    replica.now_ms += 100
    assert replica.ok(kind, "q", "take", b"you", 100) is None
    assert replica.machine.find("counter", "c").value == 1


def test_a_get_that_is_given_back_displaces_nothing_that_came_back():
    replica = Replica()
    for number in (1, 2, 3):
        replica.ok("queue", "q", "put", pack(number), 0)
    for owner in TAKERS:
        replica.ok("queue", "q", "take", owner, 100)
    replica.ok("queue", "q", "release", b"c")
    replica.ok("queue", "q", "release", b"b")
    assert replica.ok("queue", "q", "get") == pack(2)
    replica.ok("queue", "q", "give_back", pack(2))
    replica.ok("queue", "q", "release", b"a")
    assert [unpack(item) for item in replica.machine.find("queue", "q").packed()] == [1, 2, 3]
    assert replica.ok("queue", "q", "clear") == 3
    assert replica.machine.find("queue", "q") is None


# --- watching ---------------------------------------------------------------------------------------------------------


def test_a_snapshot_tells_watchers_what_differs():
    ahead, behind = Replica(), Replica()
    for key in "abc":
        ahead.ok("dict", "d", "set", key, pack(1))
        behind.ok("dict", "d", "set", key, pack(1))
    seen = []
    watcher = behind.machine.watch(("dict", "d"), seen.append)
    ahead.ok("dict", "d", "pop", "a")
    ahead.ok("dict", "d", "set", "b", pack(2))
    ahead.ok("dict", "d", "set", "d", pack(3))
    behind.machine.restore(ahead.snapshot())
    assert [(key, entry and unpack(entry.value)) for key, entry, _ in seen] == [("a", None), ("b", 2), ("d", 3)]
    behind.machine.unwatch(watcher)
    behind.machine.restore(Replica().snapshot())
    assert len(seen) == 3


@pytest.mark.parametrize("others", [[], [["counter", "c", "add", 1]]])
def test_a_transaction_that_finds_a_queue_full_does_nothing_and_old_ones_replay_as_they_were(others):
    put = ["queue", "jobs", "put", pack("second"), 1]
    replica = Replica()
    replica.ok("queue", "jobs", "put", pack("first"), 1)
    status, text = replica.do(*others, put, version=ATOMIC)
    assert (status, text) == (CONFLICT, "queue 'jobs' is full: it holds 1 items")
    assert replica.machine.find("counter", "c") is None
    assert replica.do(*others, put).payload[-1] is False  # as an old log has it: the rest is done
    assert (replica.machine.find("counter", "c") is not None) == bool(others)
    assert list(replica.machine.find("queue", "jobs").items) == [pack("first")]
    replica.ok("queue", "jobs", "get")
    assert replica.do(*others, put, version=ATOMIC).status == OK


def test_wrong_arguments_are_named():
    assert Replica().do(["counter", "c", "add", 1.5]) == (BAD, "counter.add takes (64-bit int), and was given (float)")
    assert Replica().do(["dict", "d", "replace", "k", 1, None]) == (
        BAD,
        "dict.replace takes (str, bytes or NoneType, bytes), and was given (str, int, NoneType)",
    )


def test_without_msgpack_there_is_no_machine(monkeypatch):
    """Said where the program is written, not when the first command comes."""
    monkeypatch.setitem(sys.modules, "msgpack", None)
    msgpack_library.cache_clear()
    try:
        with pytest.raises(MissingDependencyError, match=r"pip install 'kraftcore\[recipes\]'"):
            RecipeMachine()
    finally:
        msgpack_library.cache_clear()
