"""What becomes of a state machine that does not do its part."""

from __future__ import annotations

import errno

import pytest
import trio
from nodes import Lab, Values, run

from kraftcore import StateMachine
from kraftcore.errors import LocalError, NodeStoppedError, SnapshotLaterError, StateMachineError, StorageError
from kraftcore.node.events import Noted, SnapshotTaken


class NoSnapshot(Values):
    def snapshot(self, sink) -> None:
        sink.append([b"half of it"])
        raise KeyError("which half?")


class NoRestore(Values):
    def restore(self, values) -> None:
        raise TypeError("what is this?")


class TooMany(Values):
    def apply(self, batch):
        return [1, 2, 3]


class Mapped(Values):
    def apply(self, batch):
        return dict.fromkeys(batch.values(), 1)


class Unordered(Values):
    def apply(self, batch):
        return set(batch.values())


class Uncountable(Values):
    def apply(self, batch):
        return (value for value in batch.values())


def check(error: NodeStoppedError, method: str, text: str, cause: type | None) -> StateMachineError:
    found = error.__cause__
    assert isinstance(found, StateMachineError)
    assert found.method == method
    assert text in str(found)
    assert str(found) in str(error)
    assert cause is None or isinstance(found.__cause__, cause)
    return found


@pytest.mark.parametrize(
    ("machine", "value", "text", "cause"),
    [
        (Values, b"raise", "Values.apply raised ValueError: the machine does not like this, for", ValueError),
        (TooMany, b"a", "TooMany.apply returned 3 results for the 1 records at offsets", None),
        (Mapped, b"a", "Mapped.apply raised ", Exception),
        (Unordered, b"a", "Unordered.apply raised TypeError: 'set' object is not subscriptable, for", TypeError),
        (Uncountable, b"a", "Uncountable.apply raised TypeError: object of type 'generator' has no len()", TypeError),
    ],
)
@pytest.mark.parametrize("settings", [{}, {"client_id": "me", "sequence": 0}])
def test_an_apply_that_fails_is_named_with_its_offset(machine, value, text, cause, settings):
    async def main():
        lab = Lab()
        with pytest.raises(NodeStoppedError) as caught:
            async with lab.node(1, machine=machine) as node:
                await node.wait_leader()
                end = node.status().log_end_offset
                await node.append(value, **settings)
        found = check(caught.value, "apply", text, cause)
        assert found.offset == end
        assert f"at offsets {end} to {end}" in str(found)

    run(main)


def test_a_snapshot_that_fails_is_said_and_the_node_goes_on(caplog):
    async def main():
        lab = Lab(snapshot_bytes=300)
        async with lab.node(1, machine=NoSnapshot) as node:
            await node.wait_leader()
            notes = node.events(Noted)
            for number in range(10):
                await node.append(b"value %d" % number)
            assert "NoSnapshot.snapshot raised KeyError: 'which half?'" in (await anext(notes)).text
            with pytest.raises(StateMachineError, match="of the state below offset") as caught:
                await node.snapshot_now()
            assert caught.value.offset == node.high_watermark
            assert isinstance(caught.value.__cause__, KeyError)
            await node.append(b"more")
            assert node.status().snapshots == ((0, 0),)
            assert not [
                name for name in lab.disks[1].list_folder("/data/__cluster_metadata-0") if name.endswith(".part")
            ]

    run(main)
    assert "which half?" in caplog.text
    assert any(record.exc_info for record in caplog.records)


class HalfDone(Values):
    """Nothing to sum up between "begin" and "end"."""

    def snapshot(self, sink):
        if self.values.count(b"begin") > self.values.count(b"end"):
            raise SnapshotLaterError("something is half done")
        super().snapshot(sink)


def test_a_snapshot_that_is_due_where_something_is_half_done_is_taken_later(caplog):
    async def main():
        lab = Lab(snapshot_bytes=300)
        async with lab.node(1, machine=HalfDone) as node:
            await node.wait_leader()
            taken = node.events(SnapshotTaken)
            await node.append(b"begin")
            for number in range(10):
                await node.append(b"value %d" % number)
            with pytest.raises(SnapshotLaterError, match="half done"):
                await node.snapshot_now()
            end = await node.append(b"end")
            assert (await anext(taken)).end_offset > end.offset  # no other 300 bytes were needed

    run(main)
    assert "snapshot" not in caplog.text


def test_a_restore_that_fails_stops_the_node():
    async def main():
        lab = Lab()
        async with lab.node(1) as node:
            await node.wait_leader()
            await node.append(b"a")
            end, _ = await node.snapshot_now()
        with pytest.raises(NodeStoppedError) as caught:
            async with lab.node(1, machine=NoRestore):
                await trio.sleep_forever()
        found = check(caught.value, "restore", "NoRestore.restore raised TypeError: what is this?, for", TypeError)
        assert found.offset == end

    run(main)


def test_a_disk_that_fails_while_old_segments_are_deleted_stops_the_node():
    async def main():
        lab = Lab(retention_bytes=1000, cleaning_period_ms=1000, snapshot_bytes=500, segment_bytes=2000)
        with pytest.raises(NodeStoppedError) as caught:
            async with lab.node(1) as node:
                await node.wait_leader()
                lab.disks[1].inject("rename", code=errno.EIO, times=-1, path="0" * 20)
                for number in range(200):
                    await node.append(b"value %d" % number)
                await trio.sleep_forever()
        assert isinstance(caught.value.__cause__, StorageError)

    run(main)


class Empty:
    pass


class Half(StateMachine):
    def apply(self, batch):
        return None


class Waiting(Values):
    async def apply(self, batch):
        return None


class Yielding(Values):
    def snapshot(self, sink):
        yield b"nobody takes this"


@pytest.mark.parametrize(
    ("machine", "text"),
    [
        (Values, r"the class Values: give an object of it, Values\(\)"),
        (Empty(), "of class Empty, has no apply and no snapshot and no restore: it needs"),
        (None, "of class NoneType, has no apply"),
        (Half(), "of class Half, has no snapshot and no restore"),
        (StateMachine(), "has no apply and no snapshot and no restore"),
        (Waiting(), "Waiting.apply is asynchronous"),
        (Yielding(), "Yielding.snapshot has a yield"),
    ],
)
def test_what_is_no_state_machine_is_refused_at_once(machine, text):
    async def main():
        lab = Lab()
        with pytest.raises(LocalError, match=text):
            async with lab.node(1, machine=lambda: machine):
                pass
        assert not lab.disks[1].exists("/data")

    run(main)


def test_a_machine_need_not_derive_from_the_base_class():
    class Own:
        apply, snapshot, restore = Values.apply, Values.snapshot, Values.restore
        values, batches = (), 0

        def __init__(self) -> None:
            self.values = []

    async def main():
        async with Lab().node(1, machine=Own) as node:
            await node.wait_leader()
            assert (await node.append(b"a")).result == 1

    run(main)


def test_records_read_later_may_fail_and_the_node_goes_on():
    class Late(Values):
        def snapshot(self, sink) -> None:
            def values():
                yield b"one"
                raise KeyError("which next?")

            sink.append_later(values())

    async def main():
        async with Lab(snapshot_bytes=300).node(1, machine=Late) as node:
            await node.wait_leader()
            notes = node.events(Noted)
            for number in range(10):
                await node.append(b"value %d" % number)
            assert "Late.snapshot gave records that raised KeyError: 'which next?'" in (await anext(notes)).text
            with pytest.raises(StateMachineError, match="of the state below offset"):
                await node.snapshot_now()
            await node.append(b"more")

    run(main)


@pytest.mark.parametrize("record", [5, [1, 2], "text"])
@pytest.mark.parametrize("method", ["append", "append_later"])
def test_records_of_a_snapshot_are_bytes(record, method):
    class Odd(Values):
        def snapshot(self, sink) -> None:
            getattr(sink, method)([record])

    async def main():
        async with Lab().node(1, machine=Odd) as node:
            await node.wait_leader()
            await node.append(b"a")
            with pytest.raises(StateMachineError, match=f"a snapshot's record is bytes, not {type(record).__name__}"):
                await node.snapshot_now()

    run(main)
