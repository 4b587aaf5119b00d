"""Any sequence of records: the image goes back, tells what changed, and comes out of its own records as it was."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from metadata_records import TRANSACTIONS, records, records_of, state_of

from kraftcore.errors import LocalError, MetadataRecordError, UnsupportedVersionError
from kraftcore.metadata import Delta, Image
from kraftcore.metadata.frozen import FrozenImage
from kraftcore.protocol.features import MetadataVersion
from kraftcore.protocol.metadata import MetadataRecordType, decode_metadata_record, encode_metadata_record
from kraftcore.protocol.records.abort_transaction_record import AbortTransactionRecord
from kraftcore.protocol.records.begin_transaction_record import BeginTransactionRecord
from kraftcore.protocol.records.end_transaction_record import EndTransactionRecord
from kraftcore.protocol.registry import record_class
from kraftcore.protocol.schema import MetadataRecord

State = dict[str, Any]
BOUNDS = (BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord)
_bounds = st.sampled_from(BOUNDS).map(lambda kind: kind())
# A quarter of them begin or end transactions, or try to.
with_transactions = st.integers(0, 3).flatmap(lambda which: records if which else _bounds)


def accepted(image: Image, record: MetadataRecord) -> bool:
    """Whether the image took the record; if not, it must be as before."""
    before = state_of(image)
    try:
        image.apply(record)
    except MetadataRecordError as error:
        assert type(record).__name__ in str(error), "refused by name"
        assert state_of(image) == before
        return False
    return True


def changed(before: State, delta: Delta) -> State:
    """A state with the changes of a delta; each must begin at what was there."""
    found = {name: dict(part) for name, part in before.items()}
    changes: dict[str, Any] = {name: getattr(delta, name) for name in before if name != "producer_ids"}
    changes["producer_ids"] = {} if delta.next_producer_id is None else {"next": delta.next_producer_id}
    for name, part in changes.items():
        for key, (old, new) in part.items():
            assert found[name].get(key) == old != new
            if new is None:
                del found[name][key]
            else:
                found[name][key] = new
    return found


class AheadAndBack(RuleBasedStateMachine):
    """An active controller's image: each mark's state is known from applying the records anew."""

    def __init__(self) -> None:
        super().__init__()
        self.image = Image(ahead=True)
        self.taken: list[MetadataRecord] = []
        self.offset = 0
        self.marks: list[tuple[int, int]] = []  # offset, records taken
        self.frozen: list[tuple[FrozenImage, State]] = []

    def anew(self, count: int | None = None) -> Image:
        image = Image(ahead=True)
        for record in self.taken[:count]:
            image.apply(record)
        return image

    @rule(drawn=st.lists(records, min_size=1, max_size=6))
    def apply(self, drawn: list[MetadataRecord]) -> None:
        self.take(drawn)

    @rule(kind=st.sampled_from(BOUNDS))
    def bound_transaction(self, kind: type[MetadataRecord]) -> None:
        self.take([kind()])

    def take(self, drawn: list[MetadataRecord]) -> None:
        self.taken += [record for record in drawn if accepted(self.image, record)]

    @rule()
    def mark(self) -> None:
        self.offset += 1
        self.image.mark(self.offset)
        self.marks.append((self.offset, len(self.taken)))

    @precondition(lambda self: self.marks)
    @rule(data=st.data())
    def roll_back(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.marks) - 1))
        offset, count = self.marks[at]
        assert self.image.roll_back(offset if at else None) == offset
        del self.taken[count:], self.marks[at + 1 :]
        again = self.anew()
        assert state_of(self.image) == state_of(again)
        assert self.image.in_transaction == again.in_transaction

    @precondition(lambda self: self.marks)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.marks) - 1))
        self.image.committed(self.marks[at][0])
        del self.marks[:at]

    @precondition(lambda self: self.marks)
    @rule(data=st.data())
    def tell_changes(self, data: st.DataObject) -> None:
        until = data.draw(st.none() | st.sampled_from(self.marks))
        before = state_of(self.anew(self.marks[0][1]))
        after = self.anew(None if until is None else until[1])
        delta = self.image.delta(None if until is None else until[0])
        assert changed(before, delta) == state_of(after)
        assert delta.is_empty == (before == state_of(after))

    @rule()
    def freeze(self) -> None:
        self.frozen.append((self.image.freeze(), state_of(self.image)))

    @precondition(lambda self: self.frozen)
    @rule()
    def look_at_frozen(self) -> None:
        frozen, wanted = self.frozen.pop()
        image = Image()
        image.apply_values(frozen.values(MetadataVersion.V4_3_IV0))
        wanted["features"] = {**wanted["features"], "metadata.version": 30}
        assert state_of(image) == wanted


TestAheadAndBack = AheadAndBack.TestCase
TestAheadAndBack.settings = settings(stateful_step_count=25)


@given(drawn=st.lists(with_transactions, max_size=30))
def test_held_back_or_at_once_comes_to_the_same(drawn: list[MetadataRecord]) -> None:
    """A follower sees a transaction when it ends, the leader at once; between transactions they agree."""
    follower, leader = Image(), Image(ahead=True)
    seen = state_of(follower)
    for record in drawn:
        if accepted(leader, record):
            follower.apply(record)
        assert follower.in_transaction == leader.in_transaction
        if leader.in_transaction:
            assert state_of(follower) == seen
        else:
            seen = state_of(follower)
            assert seen == state_of(leader)


@given(drawn=st.lists(with_transactions, max_size=30), data=st.data())
def test_leadership_lost(drawn: list[MetadataRecord], data: st.DataObject) -> None:
    """The image of who led goes back to what a follower has at the committed offset."""
    leader = Image(ahead=True)
    taken = []
    for record in drawn:
        if accepted(leader, record):
            taken.append(record)
            leader.mark(len(taken))
    if not taken:
        return
    committed = data.draw(st.integers(1, len(taken)))
    leader.committed(committed)
    assert leader.follow() == committed
    follower = Image()
    for record in taken[:committed]:
        follower.apply(record)
    for record in taken[committed:]:  # what the next leader wrote may well be the same
        assert state_of(leader) == state_of(follower)
        leader.apply(record)
        follower.apply(record)
    assert state_of(leader) == state_of(follower)


@given(drawn=st.lists(records, max_size=30), level=st.sampled_from(list(MetadataVersion)))
def test_snapshots_lose_nothing_without_a_word(drawn: list[MetadataRecord], level: MetadataVersion) -> None:
    """At any metadata.version a snapshot holds all, or is refused."""
    image, again = Image(), Image()
    for record in drawn:
        accepted(image, record)
    frozen = image.freeze()
    losses = frozen.losses(level)
    if losses:
        with pytest.raises(LocalError, match="could not be represented in metadata.version"):
            frozen.values(level)
        return
    for record, version in frozen.records(level):
        assert version <= type(record).schema.decodable_versions[-1][1]
        again.apply(record)
    wanted = state_of(image)
    wanted["features"]["metadata.version"] = int(level)
    assert state_of(again) == wanted


@pytest.mark.parametrize("kind", [each for each in MetadataRecordType if each not in TRANSACTIONS])
def test_every_type_and_version_is_applied(kind: MetadataRecordType) -> None:
    """No type of the registry is passed over; each version of it comes to what the decoded record comes to."""

    @given(record=records_of(kind), data=st.data())
    @settings(max_examples=20)
    def check(record: MetadataRecord, data: st.DataObject) -> None:
        image, other = Image(), Image()
        low, high = record_class(kind).schema.decodable_versions[-1]
        try:
            value = encode_metadata_record(record, data.draw(st.integers(low, high)))
        except LocalError:
            return  # a lower version does not have what was drawn
        for before in data.draw(st.lists(records, max_size=5)):
            if accepted(image, before):
                other.apply(before)
        if accepted(image, decode_metadata_record(value)[0]):
            other.apply_values([value])
        else:
            with pytest.raises(MetadataRecordError):
                other.apply_values([value])
        assert state_of(image) == state_of(other)

    check()


def test_a_type_that_nobody_knows_is_refused_by_name() -> None:
    class TomorrowsRecord(MetadataRecord, api_key=999, versions=(0, 0), flexible_from=0):
        """Of a later release."""

    with pytest.raises(MetadataRecordError, match="TomorrowsRecord cannot be applied"):
        Image().apply(TomorrowsRecord())
    with pytest.raises(UnsupportedVersionError, match="type 99 is not known"):
        Image().apply_values([b"\x01\x63\x00\x00"])
