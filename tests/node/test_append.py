"""What becomes of a record that is appended."""

from __future__ import annotations

import time

import pytest
import trio
import trio.testing
from nodes import Lab, run

from kraftcore.core.batch import iter_batches
from kraftcore.errors import LocalError, NotLeaderError, OutcomeUnknownError, OverloadedError
from kraftcore.node.clock import Clock


def test_a_record_is_answered_with_its_offset_and_result():
    async def main():
        lab = Lab()
        async with lab.node(1) as node:
            await node.wait_leader()
            first = await node.append(b"a")
            second = await node.append(b"b")
            assert (first.result, second.result, second.offset) == (1, 2, first.offset + 1)
            assert lab.machines[1].values == [b"a", b"b"]

    run(main)


def test_what_is_appended_together_lies_together():
    async def main():
        async with Lab().node(1) as node:
            await node.wait_leader()
            many = await node.append_many([b"a", b"b", b"c"])
            assert many.results == [1, 2, 3]
            batch = next(iter_batches(node.read(many.offset)))
            assert (batch.base_offset, batch.values()) == (many.offset, [b"a", b"b", b"c"])

    run(main)


def test_what_there_is_of_a_record_and_of_nodes_is_shown_in_one_line():
    async def main():
        async with Lab().quorum() as (leader, follower, *_):
            future = leader.append_nowait(b"a")
            assert repr(future) == f"<TaskProposal of {future.size} bytes, not ended yet>"
            ended = await future.wait()
            assert repr(future) == f"<TaskProposal of {future.size} bytes, at offset {ended.offset}>"
            status = leader.status()
            voters = ", ".join(map(str, sorted(status.voters.ids)))
            assert repr(status).startswith(
                f"<Status of 1: leader, epoch {status.epoch}, leader 1, voters {voters}, log 0"
            )
            assert "\n" not in repr(status) and len(repr(status)) < 200
            seen = next(each for each in status.replicas if each.key == follower.key)
            assert repr(seen) == f"<ReplicaStatus {follower.key.id}: voter, {seen.lag} behind>"
            assert f"{follower.key.id}: {seen.lag}" in repr(status)
            failed = type(future)(b"b", 5, False)
            failed.fail(LocalError("why"))
            assert repr(failed) == "<TaskProposal of 5 bytes, LocalError: why>"

    run(main)


def test_many_callers_share_batches_and_each_gets_its_own_result():
    async def main():
        lab = Lab()
        async with lab.quorum() as (leader, *_):
            found = {}

            async def worker(number):
                for turn in range(5):
                    value = b"%d-%d" % (number, turn)
                    found[value] = await leader.append(value)

            async with trio.open_nursery() as nursery:
                for number in range(100):
                    nursery.start_soon(worker, number)
            values = lab.machines[1].values
            assert len(values) == 500
            assert all(values[answer.result - 1] == value for value, answer in found.items())
            assert len({answer.offset for answer in found.values()}) == 500
            assert lab.machines[1].batches < 50

    run(main)


def test_callers_of_the_only_voter_share_batches():
    async def main():
        lab = Lab()
        async with lab.node(1) as node:
            await node.wait_leader()
            await node.append(b"alone")
            before = lab.machines[1].batches
            async with trio.open_nursery() as nursery:
                for number in range(64):
                    nursery.start_soon(node.append, b"%d" % number)
            assert lab.machines[1].batches - before <= 2  # of the first to come, and of all others

    run(main)


def test_every_replica_applies_the_same():
    async def main():
        lab = Lab()
        async with lab.quorum() as nodes:
            for number in range(20):
                await nodes[0].append(b"%d" % number)
            for node in nodes:
                await node.read_barrier()
            assert len({tuple(machine.values) for machine in lab.machines.values()}) == 1
            assert len(lab.machines[3].values) == 20

    run(main)


def test_futures_end_without_a_task_that_waits():
    async def main():
        async with Lab().node(1) as node:
            await node.wait_leader()
            seen = []
            proposal = node.append_nowait(b"a")
            proposal.add_done_callback(lambda done: seen.append(done.result().result))
            assert (await proposal.wait()).result == 1
            proposal.add_done_callback(lambda done: seen.append("late"))
            assert seen == [1, "late"]

    run(main)


def test_a_cancelled_wait_does_not_undo_the_record():
    async def main():
        lab = Lab()
        async with lab.quorum() as (leader, *_):
            with trio.move_on_after(0):
                await leader.append(b"kept")
            await leader.append(b"next")
            assert lab.machines[1].values == [b"kept", b"next"]

    run(main)


def test_a_full_node_refuses_futures_and_lets_tasks_wait():
    async def main():
        lab = Lab(delay_ms=50, max_batch_bytes=2000, max_bytes_in_flight=2000)
        async with lab.quorum() as (leader, *_):
            waiting = [leader.append_nowait(b"x" * 500) for _ in range(4)]
            with pytest.raises(OverloadedError, match="in flight"):
                leader.append_nowait(b"x")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(leader.append, b"later")
                await trio.testing.wait_all_tasks_blocked()
                assert leader.status().bytes_in_flight >= 2000
            assert all(proposal.done for proposal in waiting)
            assert leader.status().bytes_in_flight == 0
            assert lab.machines[1].values[-1] == b"later"

    run(main)


@pytest.mark.parametrize("values", [[], [b""], [b"a", b""]])
def test_empty_records_are_refused(values):
    async def main():
        async with Lab().node(1) as node:
            await node.wait_leader()
            with pytest.raises(LocalError, match="empty"):
                await node.append_many(values)
            with pytest.raises(LocalError, match="empty"):
                await node.append(b"")

    run(main)


def test_what_does_not_fit_a_batch_is_refused():
    async def main():
        async with Lab(max_batch_bytes=4096).node(1) as node:
            await node.wait_leader()
            with pytest.raises(LocalError, match="do not fit a batch of at most 4096"):
                await node.append(b"x" * 4096)
            assert (await node.append(b"fits")).result == 1

    run(main)


def test_a_follower_names_the_leader():
    async def main():
        async with Lab().quorum() as (_, follower, _):
            with pytest.raises(NotLeaderError) as caught:
                await follower.append(b"a")
            assert caught.value.leader_id == 1
            assert caught.value.leader_endpoint == "CONTROLLER://n1:9093"

    run(main)


def test_a_leader_that_is_cut_off_does_not_know_what_became_of_its_records():
    async def main():
        lab = Lab(fetch_timeout_ms=600, fetch_max_wait_ms=200, election_timeout_ms=300)
        async with lab.quorum() as (old, *others):
            await old.append(b"committed")
            lab.network.cut("n1", ["n2", "n3"])
            with pytest.raises(OutcomeUnknownError):
                await old.append(b"lost")
            with pytest.raises(NotLeaderError):
                await old.append(b"refused")
            await others[0].append(b"new", forward=True)
            lab.network.heal()
            await old.read_barrier()
            assert lab.machines[1].values == [b"committed", b"new"]

    run(main)


def test_a_leader_with_a_lease_answers_reads_without_the_others():
    async def main():
        lab = Lab(leader_lease_ms=10_000)
        async with lab.quorum() as (leader, *_):
            found = await leader.append(b"a")
            await leader.read_barrier()
            lab.network.cut("n1", ["n2", "n3"])
            assert await leader.read_barrier(forward=False) > found.offset
            lab.network.heal()

    run(main)


def test_a_clock_for_leases_goes_on_while_the_machine_sleeps(monkeypatch):
    slept_s = 0.0
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    if boot is None:
        pytest.skip("this system has no such clock")
    before = time.clock_gettime
    monkeypatch.setattr(time, "clock_gettime", lambda which: before(which) + slept_s * (which == boot))

    async def main():
        nonlocal slept_s
        clock, other = Clock(counts_sleep=True), Clock()
        assert abs(clock.now_ms() - other.now_ms()) < 1000
        slept_s = 3600.0
        ahead_ms = clock.now_ms() - other.now_ms()
        assert 3_599_000 < ahead_ms < 3_601_000
        assert abs(clock.trio_time(clock.now_ms()) - trio.current_time()) < 1

    trio.run(main)


@pytest.mark.parametrize("value", ["text", [1, 2], {b"a": 1}, 7])
@pytest.mark.parametrize("settings", [{}, {"client_id": 1, "sequence": 0}, {"forward": True}])
def test_what_is_no_bytes_is_refused_and_the_node_goes_on(value, settings):
    async def main():
        async with Lab().node(1) as node:
            await node.wait_leader()
            with pytest.raises(LocalError, match=f"a record is bytes, not {type(value).__name__}"):
                await node.append(value, **settings)
            with pytest.raises(LocalError, match=f"a record is bytes, not {type(value).__name__}"):
                await node.append_many([b"a", value], **settings)
            with pytest.raises(LocalError, match="a record is bytes"):
                node.append_nowait(value)
            with pytest.raises(LocalError, match="put the one into a list"):
                await node.append_many("text", **settings)
            assert (await node.append(b"a")).result == 1

    run(main)


@pytest.mark.parametrize(("client_id", "sequence"), [(1.5, 0), (1, 0.5), (1, "0"), (b"me", 0)])
def test_numbers_of_clients_are_numbers(client_id, sequence):
    async def main():
        async with Lab().node(1) as node:
            await node.wait_leader()
            with pytest.raises(LocalError, match="int"):
                await node.append(b"a", client_id=client_id, sequence=sequence)

    run(main)


def test_what_a_caller_changes_later_is_not_appended():
    async def main():
        async with Lab().node(1, append_linger_ms=50) as node:
            await node.wait_leader()
            buffer, value, found = [b"a", b"b"], bytearray(b"c"), {}

            async def append(name, function, what):
                found[name] = await function(what)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(append, "many", node.append_many, buffer)
                nursery.start_soon(append, "one", node.append, value)
                nursery.start_soon(append, "last", node.append, b"d")
                await trio.sleep(0.01)
                buffer.clear()
                value[:] = b"?"
            assert sorted(node.state_machine.values) == [b"a", b"b", b"c", b"d"]
            many, one, last = found["many"], found["one"], found["last"]
            taken = [*range(many.offset, many.offset + 2), one.offset, last.offset]
            assert len(set(taken)) == 4
            values = {
                batch.base_offset + at: each
                for batch in iter_batches(node.read(min(taken)))
                for at, each in enumerate(batch.values())
            }
            assert [values[offset] for offset in taken] == [b"a", b"b", b"c", b"d"]

    run(main)
