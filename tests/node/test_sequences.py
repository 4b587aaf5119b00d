"""Which numbered proposals are applied, which are retries, which are refused: on every replica the same."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from nodes import Lab, Values, outside, run, values_in_log

from kraftcore.core.batch import RecordBatch, build_batch
from kraftcore.errors import RefusedError, SequenceError
from kraftcore.executor.applier import Applier
from kraftcore.executor.proposals import ProposalQueue
from kraftcore.executor.sessions import Session, session_batch_value, session_of_batch

USED, SKIPPED, FENCED = "DUPLICATE_SEQUENCE_NUMBER", "OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_PRODUCER_EPOCH"


async def refused(name: str, text: str, next_sequence: int | None, append, *arguments, **settings) -> None:
    with pytest.raises(SequenceError, match=text) as caught:
        await append(*arguments, **settings)
    assert caught.value.error == name
    assert caught.value.next_sequence == next_sequence
    assert isinstance(caught.value, RefusedError)


def test_a_program_that_numbers_from_0_again_is_told():
    async def main():
        lab = Lab()
        async with lab.node(1) as node:
            await node.wait_leader()
            for number in range(3):
                await node.append(b"first run, %d" % number, client_id="me", sequence=number)
            for number in range(3):
                await refused(
                    USED,
                    r"ended with sequence 2 in epoch 0, at offset \d+; .*next one begins with 3. Nothing was applied",
                    3,
                    node.append,
                    b"second run, %d" % number,
                    client_id="me",
                    sequence=number,
                )
            assert lab.machines[1].values == [b"first run, 0", b"first run, 1", b"first run, 2"]
            await node.append(b"second run, 0", client_id="me", sequence=3)

    run(main)


@pytest.mark.parametrize("sequence", [2, 7])
def test_numbers_may_not_be_left_out(sequence):
    async def main():
        lab = Lab()
        async with lab.node(1) as node:
            await node.wait_leader()
            await node.append(b"a", client_id="me", sequence=0)
            text = f"left out are 1 to {sequence - 1}: begin with 1"
            await refused(SKIPPED, text, 1, node.append, b"b", client_id="me", sequence=sequence)
            await node.append(b"c", client_id="me", sequence=1)
            assert lab.machines[1].values == [b"a", b"c"]

    run(main)


def test_a_retry_has_the_same_records():
    async def main():
        lab = Lab()
        async with lab.node(1) as node:
            await node.wait_leader()
            first = await node.append_many([b"a", b"b"], client_id="me", sequence=0)
            assert await node.append_many([b"a", b"b"], client_id="me", sequence=0) == first
            again = "other records had this number"
            await refused(USED, again, 2, node.append_many, [b"a", b"c"], client_id="me", sequence=0)
            await refused(USED, again, 2, node.append_many, [b"ab", b"c"], client_id="me", sequence=0)
            await refused(USED, again, 2, node.append_many, [b"b"], client_id="me", sequence=1)
            await refused(USED, "gone beyond", 2, node.append_many, [b"a"], client_id="me", sequence=0)
            await refused(USED, "gone beyond", 2, node.append_many, [b"a"] * 3, client_id="me", sequence=0)
            assert lab.machines[1].values == [b"a", b"b"]

    run(main)


def test_what_is_forwarded_is_judged_likewise():
    async def main():
        lab = Lab()
        async with lab.quorum() as (leader, follower, _):
            numbered = {"client_id": "me", "forward": True}
            first = await follower.append(b"a", sequence=0, **numbered)
            second = await follower.append(b"b", sequence=1, **numbered)
            assert await leader.append(b"b", sequence=1, **numbered) == second
            for node in (leader, follower):
                await refused(USED, "ended with sequence 1", 2, node.append, b"a", sequence=0, **numbered)
                await refused(USED, "ended with sequence 1", 2, node.append, b"c", sequence=1, **numbered)
                await refused(SKIPPED, "left out are 2 to 4", 2, node.append, b"c", sequence=5, **numbered)
            for node in (leader, follower):
                await node.read_barrier()
                assert node.state_machine.values == [b"a", b"b"]
            assert second.offset == first.offset + 1

    run(main)


def test_different_records_with_one_number_at_the_same_time():
    """One of them is applied; the others are not told that they were."""

    async def main():
        lab = Lab()
        async with lab.quorum() as nodes:
            ends = []

            async def one(node, value):
                try:
                    ends.append((value, (await node.append(value, client_id=7, sequence=0, forward=True)).offset))
                except SequenceError as error:
                    ends.append((value, error.error))

            async with trio.open_nursery() as nursery:
                for number in range(9):
                    nursery.start_soon(one, nodes[number % 3], b"%d" % (number % 5))
            await nodes[1].read_barrier()
            (applied,) = lab.machines[2].values
            assert {value for value, end in ends if end != USED} == {applied}
            assert sum(end == USED for _, end in ends) >= 7

    run(main)


def test_clients_outside_are_told_by_produce():
    async def main():
        lab = Lab()
        async with lab.quorum() as (leader, *_), outside(lab) as client:
            first = await client.append([b"a", b"b"], client_id=7, sequence=3)
            assert await client.append([b"a", b"b"], client_id=7, sequence=3) == first
            await refused(USED, "ended with sequence 4", None, client.append, [b"a", b"c"], client_id=7, sequence=3)
            await refused(USED, "ended with sequence 4", None, client.append, [b"a"], client_id=7, sequence=0)
            await refused(SKIPPED, "left out are 5 to 5", None, client.append, [b"a"], client_id=7, sequence=6)
            assert lab.machines[1].values == [b"a", b"b"]
            with pytest.raises(RefusedError, match="INVALID_RECORD: .* out of range"):
                await client.append([b"a"], client_id=7, sequence=2**31 - 1)
            assert leader.status().bytes_in_flight == 0

    run(main)


def test_a_later_epoch_of_a_client_begins_anew():
    async def main():
        lab = Lab()
        async with lab.quorum() as (leader, *_), outside(lab) as client:
            await client.append([b"a", b"b"], client_id=7, sequence=0)
            again = await client.append([b"c"], client_id=7, client_epoch=3, sequence=0)
            assert await client.append([b"c"], client_id=7, client_epoch=3, sequence=0) == again
            later = {"client_id": 7, "client_epoch": 4}
            await refused(SKIPPED, "begin with 0", None, client.append, [b"x"], sequence=1, **later)
            earlier = {"client_id": 7, "client_epoch": 2}
            await refused(FENCED, "in epoch 3 by now", None, client.append, [b"x"], sequence=2, **earlier)
            await client.append([b"d"], client_id=7, client_epoch=3, sequence=1)
            assert lab.machines[1].values == [b"a", b"b", b"c", b"d"]
            assert values_in_log(leader)[-1] == b"d"

    run(main)


def test_a_replica_that_came_by_a_snapshot_judges_likewise():
    async def main():
        lab = Lab(retention_bytes=1000, cleaning_period_ms=1000, snapshot_bytes=500, segment_bytes=2000)
        async with lab.node(1) as old:
            await old.wait_leader()
            await old.append_many([b"a", b"b"], client_id="me", sequence=0)
            for number in range(100):
                await old.append(b"value %d" % number)
            while old.status().log_start_offset == 0:
                await trio.sleep(0.05)
            async with lab.node(2) as new:
                while len(old.status().voters) < 2:
                    await trio.sleep(0.01)
                await new.read_barrier()
                await old.transfer_leadership(2)
                while not new.is_leader:
                    await trio.sleep(0.01)
                me = {"client_id": "me"}
                await refused(USED, "gone beyond", 2, new.append, b"a", sequence=0, **me)
                await refused(USED, "other records", 2, new.append_many, [b"a", b"x"], sequence=0, **me)
                await refused(SKIPPED, "begin with 2", 2, new.append, b"x", sequence=3, **me)
                assert (await new.append_many([b"a", b"b"], sequence=0, **me)).results is None  # not kept in snapshots
                await new.append(b"c", sequence=2, **me)
                await old.read_barrier()
                assert lab.machines[1].values == lab.machines[2].values

    run(main)


# --- every replica the same -------------------------------------------------------------------------------------------


class Batches:
    """A log of whole batches, for an applier."""

    def __init__(self, batches: list[bytearray]) -> None:
        self._batches = [bytes(batch) for batch in batches]
        self._starts = [int.from_bytes(batch[:8]) for batch in self._batches]

    def read(self, offset: int, max_bytes: int, *, up_to: int) -> bytes:
        return self._batches[self._starts.index(offset)]


class Snapshot:
    """What an applier collected, as one reads it."""

    def __init__(self, values, sessions, timestamp_ms: int) -> None:
        self.last_contained_log_timestamp_ms = timestamp_ms
        self._made = [build_batch([value], timestamp_ms=1) for value in values]
        self._made += [
            build_batch(
                [session_batch_value(session)],
                timestamp_ms=session.timestamp_ms,
                producer_id=number,
                producer_epoch=session.epoch,
                base_sequence=session.sequence,
            )
            for number, session in sessions
        ]

    def batches(self):
        return (RecordBatch(batch) for batch in self._made)


EXPIRY_MS = 50
proposals = st.tuples(
    st.sampled_from([-1, 1, 1, 2]),  # client
    st.sampled_from([0, 0, 0, 1]),  # epoch
    st.integers(0, 5),  # sequence
    st.lists(st.sampled_from([b"a", b"b"]), min_size=1, max_size=2),
    st.integers(0, 120),  # time, which need not rise: leaders' clocks differ
)


@given(st.lists(proposals, max_size=25), st.integers(0, 25))
def test_replicas_agree_whether_they_began_with_the_log_or_a_snapshot(made, cut):
    batches, offset = [], 0
    for client, epoch, sequence, values, time_ms in made:
        numbered = {} if client < 0 else {"producer_id": client, "producer_epoch": epoch, "base_sequence": sequence}
        batches.append(build_batch(values, timestamp_ms=time_ms, base_offset=offset, leader_epoch=1, **numbered))
        offset += len(values)
    cut_offset = sum(len(values) for *_, values, _ in made[:cut])

    def replica():
        return Applier(Values(), Batches(batches), ProposalQueue(1 << 20, 1 << 20), EXPIRY_MS)

    whole, first, restored = replica(), replica(), replica()
    whole.apply(offset, 1 << 30)
    first.apply(cut_offset, 1 << 30)
    values, sessions = first.collect()
    restored.restore(Snapshot(values, sessions, first.timestamp_ms), cut_offset, 1)
    restored.apply(offset, 1 << 30)
    assert list(restored.collect()[0]) == list(whole.collect()[0])
    for number, session in whole.sessions.entries():
        other = restored.sessions.find(number)
        assert (other.epoch, other.sequence, other.digest, other.offset, other.timestamp_ms) == (
            session.epoch,
            session.sequence,
            session.digest,
            session.offset,
            session.timestamp_ms,
        )
    assert restored.sessions.now_ms == whole.sessions.now_ms


def test_forgotten_clients_take_no_memory():
    """Whether or not a snapshot is ever written; those that go on are kept, also after a snapshot."""
    made = [(client, client * 10) for client in range(200)] + [(1000, 2000 + EXPIRY_MS // 2)]
    made += [(7, 2000 + EXPIRY_MS // 2 + 1)]

    def batch(offset, client, time_ms):
        return build_batch(
            [b"x"], timestamp_ms=time_ms, base_offset=offset, leader_epoch=1, producer_id=client, producer_epoch=0,
            base_sequence=0 if client != 7 or offset < 200 else 1,
        )  # fmt: skip

    batches = [batch(offset, *each) for offset, each in enumerate(made)]
    applier = Applier(Values(), Batches(batches), ProposalQueue(1 << 20, 1 << 20), EXPIRY_MS)
    applier.apply(len(batches), 1 << 30)
    remembered = {client for client, time_ms in made if applier.sessions.now_ms - time_ms <= EXPIRY_MS}
    assert 2 < len(remembered) < 200
    assert len(applier.sessions) == len(remembered)
    values, sessions = applier.collect()
    assert {client for client, _ in sessions} == remembered
    late = batch(len(batches), 1001, applier.sessions.now_ms + EXPIRY_MS)
    restored = Applier(Values(), Batches([*batches, late]), ProposalQueue(1 << 20, 1 << 20), EXPIRY_MS)
    restored.restore(Snapshot(values, sessions, applier.timestamp_ms), len(batches), 1)
    assert len(restored.sessions) == len(remembered)
    restored.apply(len(batches) + 1, 1 << 30)
    assert [client for client, _ in restored.sessions.entries()] == [7, 1001]


def test_a_session_keeps_what_a_snapshot_can_hold():
    session = Session(3, 17, b"12345678", 2**40, 99)
    (batch,) = Snapshot([], [(5, session)], 0).batches()
    assert session_of_batch(batch) == (5, session)
