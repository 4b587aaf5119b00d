"""The compiled rules against the plain ones: any partition, any brokers, anything wanted of it.

Lists are drawn without regard to each other: an ISR may name brokers that are no replicas, a leader may be nobody.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_partition_rules import PlainIsrProposals, PlainLeaderElections, PlainPartitionRules

from kraftcore.core.uuid import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, Uuid
from kraftcore.errors import LocalError, RefusedError
from kraftcore.metadata import Broker, Image, Partition, PartitionKey, partition_record
from kraftcore.partition_rules.elect_leaders import LeaderElections
from kraftcore.partition_rules.isr_change import IsrProposals
from kraftcore.partition_rules.leader_choice import Election
from kraftcore.partition_rules.partition_change import PartitionRules
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.features import MetadataVersion
from kraftcore.protocol.messages.alter_partition import AlterPartitionRequest
from kraftcore.protocol.records.topic_record import TopicRecord

TOPICS = [Uuid(bytes(15) + bytes([letter])) for letter in b"TU"]
HOMES = [Uuid(bytes([1]) + bytes(14) + bytes([number])) for number in range(4)]
WHERE = st.sampled_from([*HOMES, LOST_DIRECTORY, UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY])
IDS = st.sampled_from((0, 1, 2, 3, 17, 65_537, 2**31 - 1))
SOME = st.lists(IDS, unique=True, max_size=5).map(tuple)
ONE = st.one_of(IDS, st.just(-1))
VERSIONS = st.sampled_from((MetadataVersion.V4_3_IV0, MetadataVersion.V3_7_IV1, MetadataVersion.V3_5_IV2))
ELECTIONS = st.sampled_from(Election)
LATEST = MetadataVersion.V4_3_IV0
LESS = st.sampled_from(((), (), ()))


@st.composite
def partitions(draw: st.DrawFn) -> Partition:
    replicas = draw(SOME)
    return Partition(
        replicas=replicas,
        directories=[draw(WHERE) for _ in replicas],
        isr=draw(st.one_of(st.just(replicas), SOME)),
        elr=draw(st.one_of(LESS, SOME)),
        last_known_elr=draw(st.one_of(LESS, SOME)),
        removing=draw(st.one_of(LESS, SOME)),
        adding=draw(st.one_of(LESS, SOME)),
        leader=draw(st.one_of(ONE, st.just(replicas[0] if replicas else -1))),
        leader_epoch=draw(st.integers(0, 2)),
        partition_epoch=draw(st.integers(0, 2)),
        recovery_state=draw(st.integers(0, 1)),
    )


@st.composite
def some_brokers(draw: st.DrawFn) -> dict[int, Broker]:
    return {
        number: Broker(
            number,
            draw(st.integers(5, 6)),
            HOMES[0],
            is_fenced=draw(st.sampled_from((False, False, True))),
            is_shutting_down=draw(st.sampled_from((False, False, True))),
            directories=tuple(draw(st.lists(st.sampled_from(HOMES), unique=True))),
        )
        for number in draw(st.lists(IDS, unique=True))
    }


@st.composite
def both_rules(draw: st.DrawFn) -> tuple[PartitionRules, PlainPartitionRules, dict[int, Broker]]:
    brokers = draw(some_brokers())
    excepted = {name: draw(ONE) for name in draw(st.sets(st.sampled_from(("without", "including", "unclean"))))}
    given = (draw(VERSIONS), draw(st.booleans()), brokers)
    return PartitionRules(*given, **excepted), PlainPartitionRules(*given, **excepted), brokers


WANTED = st.fixed_dictionaries(
    {"election": ELECTIONS},
    optional={
        "isr": SOME,
        "replicas": SOME.filter(len),
        "removing": SOME,
        "adding": SOME,
        "recovery_state": st.integers(0, 1),
        "directory": st.tuples(IDS, WHERE),
    },
)


@given(both_rules(), partitions(), st.integers(0, 4), WANTED)
def test_a_change(rules, before, min_isr, wanted):
    compiled, plain, _ = rules
    if wanted["election"] is Election.PREFERRED and not before.replicas:
        return  # nobody is preferred
    expected = plain.change(TOPICS[0], 7, before, min_isr, **wanted)
    assert compiled.change(TOPICS[0], 7, before, min_isr, **wanted) == expected
    assert compiled.version == plain.version
    for broker_id in (0, 1, 17, -1):
        assert compiled.may_lead(broker_id, before) == plain.may_lead(broker_id, before)
        assert compiled.default_directory(broker_id) == plain.default_directory(broker_id)


@st.composite
def images(draw: st.DrawFn) -> Image:
    image = Image()
    for topic_id in TOPICS:
        image.apply(TopicRecord(name=str(topic_id), topic_id=topic_id))
        for number in range(draw(st.integers(0, 4))):
            image.apply(partition_record(topic_id, number, draw(partitions()), LATEST))
    return image


@given(both_rules(), images(), IDS, st.tuples(st.integers(0, 4), ELECTIONS), st.tuples(st.integers(0, 4), ELECTIONS))
def test_a_refresh_of_what_the_table_finds(rules, image, broker_id, first, second):
    compiled, plain, _ = rules
    terms = dict(zip(TOPICS, (first, second), strict=True)).__getitem__
    for question in (image.partitions.with_isr_member, image.partitions.with_replica):
        found = [(key, partition) for key, partition in question(broker_id) if partition.replicas]
        expected = plain.refresh(found, terms)
        assert compiled.refresh(iter(found), terms) == expected
        if len(found) == len(question(broker_id)):
            assert compiled.refresh(question(broker_id), terms) == expected


@given(both_rules(), images(), st.integers(0, 4), st.sampled_from((Election.PREFERRED, Election.UNCLEAN)))
def test_elections_wherever_one_is_needed(rules, image, min_isr, election):
    compiled, plain, _ = rules
    question = (
        image.partitions.not_led_by_preferred if election is Election.PREFERRED else image.partitions.without_leader
    )
    if not all(partition.replicas for _, partition in question()):
        return  # nobody is preferred
    error = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    expected, found = [], []
    for kind, rule, outcome in ((PlainLeaderElections, plain, expected), (LeaderElections, compiled, found)):
        elections = kind(rule, question(), election, error)
        for topic_id in (*TOPICS, TOPICS[0]):  # a second time there is nothing left
            records = []
            is_needed = topic_id in elections
            outcome.append((is_needed, elections.hold(topic_id, min_isr, records), records))
    assert found == expected


def test_partitions_that_change_before_their_election():
    image = Image()
    image.apply(TopicRecord(name="t", topic_id=TOPICS[0]))
    image.apply(partition_record(TOPICS[0], 0, Partition((1, 2), isr=(1, 2), leader=2), LATEST))
    rules = PartitionRules(LATEST, True, {})
    error = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    elections = LeaderElections(rules, image.partitions.not_led_by_preferred(), Election.PREFERRED, error)
    image.apply(partition_record(TOPICS[0], 0, Partition((1,), isr=(1,), leader=1), LATEST))
    with pytest.raises(LocalError, match="begin anew"):
        elections.hold(TOPICS[0], 1, [])


@st.composite
def proposals(draw: st.DrawFn) -> AlterPartitionRequest.TopicData.PartitionData:
    kind = AlterPartitionRequest.TopicData.PartitionData
    members = draw(st.lists(IDS, max_size=4))
    epochs = st.sampled_from((-1, 5, 5, 6))
    return kind(
        partition_index=draw(st.integers(0, 4)),
        leader_epoch=draw(st.integers(0, 2)),
        partition_epoch=draw(st.integers(0, 2)),
        new_isr=draw(st.lists(IDS, max_size=3)) if draw(st.booleans()) else members,
        new_isr_with_epochs=[kind.BrokerState(broker_id=each, broker_epoch=draw(epochs)) for each in members],
        leader_recovery_state=draw(st.sampled_from((0, 0, 0, 1, 1, 2))),
    )


@st.composite
def sensible_proposals(draw: st.DrawFn, image: Image) -> AlterPartitionRequest.TopicData.PartitionData:
    """Of a partition that is there, with its epochs, and members that it may have."""
    wanted = draw(proposals())
    partition = image.partitions.get(TOPICS[0], wanted.partition_index)
    if partition is not None and draw(st.integers(0, 9)):
        wanted.leader_epoch, wanted.partition_epoch = partition.leader_epoch, partition.partition_epoch
        if partition.replicas:
            members = draw(st.lists(st.sampled_from(partition.replicas), unique=True))
            wanted.new_isr = members = [*{*members, partition.leader}]
            kind = AlterPartitionRequest.TopicData.PartitionData.BrokerState
            epoch = draw(st.sampled_from((-1, 5)))
            wanted.new_isr_with_epochs = [kind(broker_id=each, broker_epoch=epoch) for each in members]
    return wanted


@given(st.data(), both_rules(), images(), st.booleans(), st.integers(0, 4), ELECTIONS)
def test_proposals_of_isrs(data, rules, image, names_epochs, min_isr, election):
    compiled, plain, brokers = rules
    leaders = {partition.leader for _, partition in image.partitions.of_topic(TOPICS[0])}
    sender = data.draw(st.sampled_from(sorted({1, *leaders})))
    wanted = data.draw(st.lists(sensible_proposals(image), max_size=4))
    for each in wanted if not names_epochs else ():
        each.new_isr = []
    expected, found = [], []
    for kind, rule, records, results in (
        (PlainIsrProposals, plain, [], expected),
        (IsrProposals, compiled, [], found),
    ):
        proposed = kind(image.partitions, rule, brokers, sender, names_epochs)
        try:
            results.append(proposed.take(TOPICS[0], wanted, min_isr, election, records))
        except RefusedError as refused:
            results.append(str(refused))
        results.append(records)
    assert found == expected


def test_partitions_that_change_while_they_are_refreshed():
    image = Image()
    image.apply(TopicRecord(name="t", topic_id=TOPICS[0]))
    for number in range(2):
        image.apply(partition_record(TOPICS[0], number, Partition((1, 2), isr=(1, 2), leader=1), LATEST))

    def terms(topic_id: Uuid) -> tuple[int, Election]:
        image.apply(partition_record(TOPICS[0], 0, Partition((1,), isr=(1,), leader=1), LATEST))
        return 1, Election.ONLINE

    rules = PartitionRules(MetadataVersion.V4_3_IV0, True, {})
    with pytest.raises(LocalError, match="changed while"):
        rules.refresh(image.partitions.with_isr_member(1), terms)


def test_what_is_no_partition_is_refused():
    rules = PartitionRules(MetadataVersion.V4_3_IV0, True, {})
    with pytest.raises(TypeError):
        rules.refresh([(PartitionKey(TOPICS[0], 0), None)], lambda _: (1, Election.ONLINE))
    with pytest.raises(TypeError):
        rules.change(TOPICS[0], 0, None, 1)
    with pytest.raises((TypeError, ValueError)):
        rules.change(TOPICS[0], 0, Partition((1,)), 1, directory=(1,))


def test_what_is_no_proposal_is_refused():
    image = Image()
    image.apply(TopicRecord(name="t", topic_id=TOPICS[0]))
    rules = PartitionRules(MetadataVersion.V4_3_IV0, True, {})
    proposed = IsrProposals(image.partitions, rules, {}, 1, True)
    for wrong in (AlterPartitionRequest(), None, 7):
        with pytest.raises(TypeError, match="partition_index belongs to PartitionData"):
            proposed.take(TOPICS[0], [wrong], 1, Election.ONLINE, [])
