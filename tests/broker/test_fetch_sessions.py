"""Fetch sessions (KIP-227), the leader's side and the follower's: what is remembered, told, forgotten and refused."""

from __future__ import annotations

from itertools import count
from random import Random

import pytest
import trio
from broker_rig import until
from kraft_rig import open_kraft_rig

from kraftcore.core.uuid import ZERO_UUID, Uuid
from kraftcore.plugins.broker.api.fetch_sessions import EVICTION_MS, REST_MS, FetchSessions, PartitionData, Reader
from kraftcore.plugins.broker.partition import TopicPartition, View
from kraftcore.plugins.broker.replication.leader_session import LeaderSession, Wanted
from kraftcore.plugins.broker.work.turns import Turn, at_once
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.fetch import FetchRequest

ID = Uuid.random()
NAMES = {ID: "t"}


class Clock:
    ms = 1000

    def __call__(self):
        return self.ms


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def sessions(clock):
    return make_sessions(clock)


def make_sessions(clock, on_end=lambda session: None):
    numbers = count(100)
    return FetchSessions(2, NAMES.get, clock, lambda low, high: next(numbers), on_end)


def request(offsets, session_id=0, epoch=0, forget=(), topic="t", topic_id=ZERO_UUID):
    kind = FetchRequest.FetchTopic
    asked = [kind.FetchPartition(partition=number, fetch_offset=offset) for number, offset in offsets.items()]
    forgotten = [FetchRequest.ForgottenTopic(topic=topic, topic_id=topic_id, partitions=list(forget))] if forget else []
    topics = [kind(topic=topic, topic_id=topic_id, partitions=asked)] if offsets else []
    return FetchRequest(session_id=session_id, session_epoch=epoch, topics=topics, forgotten_topics_data=forgotten)


def data(number, high_watermark=5, records=b"", error=ErrorCode.NONE, **more):
    return PartitionData(
        partition_index=number,
        high_watermark=high_watermark,
        log_start_offset=0,
        records=records,
        error_code=error,
        **more,
    )


def serve(sessions, sent, answers, version=12, is_of_follower=False):
    """(error, session, numbers of the partitions told)"""
    context = at_once(sessions.context(sent, version, Turn()))
    if context.error is not ErrorCode.NONE:
        return context.error, 0, []
    found = [(each, answers[each.fields.partition]) for each in context.to_read()]
    error, number, told = sessions.finish(context, found, version, is_of_follower=is_of_follower)
    return error, number, [each.partition_index for _, each in told]


def test_a_partition_that_is_named_again_is_asked_once_with_what_was_said_last(sessions):
    sent = request({0: 1, 1: 5})
    (again,) = request({0: 2}).topics
    sent.topics += [again, again]
    for epoch in (-1, 0):
        sent.session_epoch = epoch
        context = at_once(sessions.context(sent, 12, Turn()))
        assert [(each.name.partition, each.fields.fetch_offset) for each in context.asked] == [(0, 2), (1, 5)]
    by_id = request({0: 1}, topic_id=ID)
    by_id.topics *= 3
    assert len(at_once(sessions.context(by_id, 13, Turn())).asked) == 1
    by_id.topics[0].topic_id = Uuid.random()  # that nobody knows
    assert len(at_once(sessions.context(by_id, 13, Turn())).asked) == 1


def test_only_what_is_new_is_asked_and_told(sessions):
    answers = {number: data(number) for number in range(3)}
    assert serve(sessions, request({0: 1, 1: 2, 2: 3}), answers) == (ErrorCode.NONE, 100, [0, 1, 2])
    assert serve(sessions, request({}, 100, 1), answers) == (ErrorCode.NONE, 100, [])
    answers[1] = data(1, 6)
    assert serve(sessions, request({}, 100, 2), answers) == (ErrorCode.NONE, 100, [1])
    answers[0] = data(0, records=b"x")
    assert serve(sessions, request({}, 100, 3), answers)[2] == [0]
    assert serve(sessions, request({2: 9}, 100, 4, forget=[1]), answers)[2] == [0]
    # What was answered with records comes last from then on.
    context = at_once(sessions.context(request({}, 100, 5), 12, Turn()))
    for asked in (context.asked, context.to_read()):
        assert [(each.fields.partition, each.fields.fetch_offset) for each in asked] == [(2, 9), (0, 1)]


def test_what_went_wrong_is_told_again_when_it_is_over(sessions):
    answers = {0: data(0)}
    serve(sessions, request({0: 1}), answers)
    for epoch, told in ((1, [0]), (2, [0])):
        answers[0] = data(0, -1, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert serve(sessions, request({}, 100, epoch), answers)[2] == told
    answers[0] = data(0)
    assert serve(sessions, request({}, 100, 3), answers)[2] == [0]
    assert serve(sessions, request({}, 100, 4), answers)[2] == []


def test_a_high_watermark_that_a_follower_passed_over_is_told_again(sessions):
    """Where logs diverge it is cut first; what it was told in an earlier epoch it does not take."""
    answers = {0: data(0), 1: data(1)}
    serve(sessions, request({0: 9, 1: 5}), answers)
    answers[0] = data(0, diverging_epoch=PartitionData.EpochEndOffset(epoch=0, end_offset=5))
    assert serve(sessions, request({}, 100, 1), answers)[2] == [0]
    answers[0] = data(0)
    assert [serve(sessions, request({0: 5}, 100, epoch), answers)[2] for epoch in (2, 3)] == [[0], []]
    later = request({1: 5}, 100, 4)
    later.topics[0].partitions[0].current_leader_epoch = 1
    assert serve(sessions, later, answers)[2] == [1]
    assert serve(sessions, request({}, 100, 5), answers)[2] == []


def test_what_does_not_fit_a_session_is_refused(sessions):
    answers = {0: data(0)}
    serve(sessions, request({0: 1}), answers)
    assert serve(sessions, request({}, 77, 1), answers)[0] is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert serve(sessions, request({}, 100, 2), answers)[0] is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert serve(sessions, request({}, 100, 1), answers, version=13)[0] is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    first = at_once(sessions.context(request({}, 100, 1), 12, Turn()))
    second = at_once(sessions.context(request({}, 100, 2), 12, Turn()))
    # The answer to the first comes too late.
    (asked,) = second.asked
    found = [(asked, data(0))]
    assert sessions.finish(first, found, 12, is_of_follower=False)[0] is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert sessions.finish(second, found, 12, is_of_follower=False)[0] is ErrorCode.NONE


def test_a_session_ends_when_nothing_is_left_of_it_or_its_client_says_so(sessions):
    answers = {0: data(0)}
    serve(sessions, request({0: 1}), answers)
    assert serve(sessions, request({}, 100, 1, forget=[0]), answers) == (ErrorCode.NONE, 0, [])
    assert len(sessions) == 0
    serve(sessions, request({0: 1}), answers)
    assert serve(sessions, request({0: 1}, 101, -1), answers) == (ErrorCode.NONE, 0, [0])
    assert len(sessions) == 0
    # Whoever begins anew gives the one he had back.
    serve(sessions, request({0: 1}), answers)
    assert serve(sessions, request({0: 1}, 102, 0), answers)[1] == 103
    assert len(sessions) == 1


def test_topics_are_named_by_id(sessions):
    kept = request({0: 1}, topic="", topic_id=ID)
    assert serve(sessions, kept, {0: data(0)}, version=13)[1] == 100
    assert [each.name for each in at_once(sessions.context(request({}, 100, 1), 13, Turn())).asked] == [
        TopicPartition("t", 0)
    ]
    unknown = at_once(sessions.context(request({0: 1}, topic="", topic_id=Uuid.random()), 13, Turn()))
    assert [each.name for each in unknown.asked] == [None]
    gone = request({}, 100, 2, forget=[0], topic="", topic_id=ID)
    assert not at_once(sessions.context(gone, 13, Turn())).asked


def test_there_is_a_bounded_number_of_them(sessions, clock):
    def begin(partitions=1, is_of_follower=False):
        numbers = dict.fromkeys(range(partitions), 0)
        answers = {number: data(number) for number in numbers}
        return serve(sessions, request(numbers), answers, is_of_follower=is_of_follower)[1]

    assert [begin(), begin(), begin()] == [100, 101, 0]
    assert begin(is_of_follower=True) == 102  # before a consumer
    assert len(sessions) == 2
    assert begin(9) == 0  # none is old enough
    clock.ms += EVICTION_MS + 1
    assert begin() == 103  # before one that nobody used
    for session, epoch in ((102, 1), (103, 1)):
        at_once(sessions.context(request({}, session, epoch), 12, Turn()))
    clock.ms += EVICTION_MS
    at_once(sessions.context(request({}, 103, 2), 12, Turn()))
    clock.ms += 1
    assert begin() == 104
    assert len(sessions) == 2


def test_one_that_is_in_use_gives_way_to_more_partitions_alone(clock):
    ids = count(100)
    sessions = FetchSessions(1, NAMES.get, clock, lambda low, high: next(ids))

    def begin(partitions):
        numbers = dict.fromkeys(range(partitions), 0)
        return serve(sessions, request(numbers), {number: data(number) for number in numbers})[1]

    assert begin(2) == 100
    clock.ms += EVICTION_MS
    at_once(sessions.context(request({}, 100, 1), 12, Turn()))
    clock.ms += 1
    assert [begin(2), begin(3)] == [0, 101]


READER = Reader(View.REPLICA, 2, 7)


def test_what_is_at_rest_is_not_read_until_it_changes_or_some_time_went_by(sessions, clock):
    answers = {number: data(number) for number in range(3)}
    serve(sessions, request({0: 1, 1: 2, 2: 3}), answers)
    epochs = count(1)

    def read(offsets=None, reader=READER, reads_all=False):
        context = at_once(sessions.context(request(offsets or {}, 100, next(epochs)), 12, Turn()))
        context.session.begin_read(reader, reads_all=reads_all)
        found = context.to_read()
        for each in found:
            context.session.rest(each)
        return [each.fields.partition for each in found]

    assert [read(), read()] == [[0, 1, 2], []]
    ((asked, session),) = sessions.asking_for(TopicPartition("t", 1))
    assert [session.move(asked), session.move(asked)] == [True, False]
    assert [read(), read({2: 4}), read()] == [[1], [2], []]
    clock.ms += REST_MS - 1
    assert read() == []
    clock.ms += 1
    assert [read(), read()] == [[0, 1, 2], []]
    for reader in (READER._replace(broker_epoch=8), READER._replace(replica_id=3), Reader(View.CONSUMER, -1, -1)):
        assert [read(reader=reader), read(reader=reader)] == [[0, 1, 2], []]
    assert read(reader=reader, reads_all=True) == [0, 1, 2]


def test_a_partition_is_looked_up_in_the_sessions_that_are_about_it(clock):
    answers = {number: data(number) for number in range(2)}
    ended = []
    sessions = make_sessions(clock, ended.append)

    def asking(number):
        return [session.id for _, session in sessions.asking_for(TopicPartition("t", number))]

    serve(sessions, request({0: 1, 1: 2}), answers)
    serve(sessions, request({1: 2}), answers)
    assert [asking(0), asking(1), asking(2)] == [[100], [100, 101], []]
    serve(sessions, request({}, 100, 1, forget=[1]), answers)
    assert [asking(0), asking(1)] == [[100], [101]]
    serve(sessions, request({}, 101, -1), answers)
    assert (asking(1), [each.id for each in ended]) == ([], [101])
    sessions.clear()
    assert (asking(0), [each.id for each in ended]) == ([], [101, 100])


def want(session, wanted, by_id=True):
    """Ask for exactly these partitions."""
    for name in [TopicPartition("t", number) for number in range(6)]:
        if name in wanted:
            session.want(name, wanted[name])
        else:
            session.want_no_more(name)
    return session.ask(by_id=by_id)


def test_a_follower_asks_for_what_changed():
    session = LeaderSession()
    one, two = TopicPartition("t", 0), TopicPartition("t", 1)
    wanted = {one: Wanted(ID, 0, 0, -1, 0), two: Wanted(ID, 0, 0, -1, 0)}
    asked = want(session, wanted)
    assert (asked.session_id, asked.epoch, asked.asked) == (0, 0, wanted)
    session.answered(ErrorCode.NONE, 7)
    asked = want(session, {one: wanted[one], two: wanted[two]._replace(offset=3)})
    assert (asked.session_id, asked.epoch, list(asked.asked), dict(asked.forgotten)) == (7, 1, [two], {})
    session.answered(ErrorCode.NONE, 7)
    again = wanted[one]._replace(topic_id=Uuid.random())
    asked = want(session, {one: again})
    assert (asked.epoch, dict(asked.asked)) == (2, {one: again})
    assert set(asked.forgotten) == {one, two}
    assert asked.forgotten[one].topic_id == ID
    session.begin_anew()
    assert want(session, {one: again}).epoch == 0
    session.answered(ErrorCode.NONE, 7)
    assert want(session, {one: again}) == (7, 1, {}, {})
    session.answered(ErrorCode.NONE, 7)
    assert want(session, {one: again}, by_id=False) == (7, 0, {one: again}, {})  # which names all of them anew
    session.answered(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    assert want(session, {one: again}).session_id == 0


@pytest.mark.parametrize("is_wanted", [True, False])
def test_what_an_answer_had_is_asked_for_last(is_wanted):
    """Where the leader remembers nothing, too: else the first ones fill its answers."""
    session = LeaderSession(is_wanted=is_wanted)
    names = [TopicPartition("t", number) for number in range(3)]
    wanted = dict.fromkeys(names, Wanted(ID, 0, 0, -1, 0))
    assert list(want(session, wanted).asked) == names
    session.answered(ErrorCode.NONE, 0)
    wanted[names[0]] = Wanted(ID, 0, 5, 0, 0)
    assert list(want(session, wanted).asked) == [*names[1:], names[0]]


@pytest.mark.parametrize("seed", range(20))
def test_both_sides_agree_whatever_happens(seed):
    """What the leader reads is what the follower wants: changes, restarts and lost answers in any order."""
    random = Random(seed)
    numbers = count(1)

    def fresh():
        return FetchSessions(3, NAMES.get, lambda: 0, lambda low, high: next(numbers))

    leader, follower = fresh(), LeaderSession()
    wanted, read = {}, 0
    for _ in range(200):
        for number in range(6):
            choice = random.random()
            name = TopicPartition("t", number)
            if choice < 0.2:
                wanted.pop(name, None)
            elif choice < 0.5:
                wanted[name] = Wanted(ID, 0, random.randrange(50), 0, 0)
        if random.random() < 0.05:
            leader = fresh()
        asked = want(follower, wanted)
        sent = request(
            {name.partition: each.offset for name, each in asked.asked.items()},
            asked.session_id,
            asked.epoch,
            [name.partition for name in asked.forgotten],
            "",
            ID,
        )
        context = at_once(leader.context(sent, 13, Turn()))
        if context.error is not ErrorCode.NONE:
            follower.answered(context.error, 0)
            continue
        assert {each.name: each.fields.fetch_offset for each in context.asked} == {
            name: each.offset for name, each in wanted.items()
        }
        read += 1
        found = [(each, data(each.fields.partition)) for each in context.asked]
        error, number, _ = leader.finish(context, found, 13, is_of_follower=True)
        if random.random() < 0.1:
            follower.begin_anew()
        else:
            follower.answered(error, number)
    assert read > 100


def test_our_follower_replicates_within_a_session(tmp_path):
    async def main():
        async with open_kraft_rig(tmp_path) as rig:
            await rig.begin(1, 2)
            await rig.create([1, 2], topic="u")
            await rig.led_by(1, "u")
            sessions = rig.brokers[1].parts.fetch.sessions
            for round_ in range(5):
                for topic in ("t", "u"):
                    answer = await rig.produce(1, b"%d" % round_, topic=topic)
                    assert answer.error_code == 0
            assert len(sessions) == 1
            (session,) = sessions
            assert {each.name.topic for each in session.partitions.values()} == {"t", "u"}
            assert session.epoch > 5
            # One that is lost is begun anew.
            sessions.clear()
            assert (await rig.produce(1, b"more")).error_code == 0
            await until(lambda: rig.log_bytes(1) == rig.log_bytes(2) and len(sessions) == 1)

    trio.run(main)
