"""Consumer groups of the classic protocol, event by event: the rules of Kafka 4.3.1's coordinator."""

from __future__ import annotations

import pytest
from group_rig import BATCH_BYTES, REBALANCE_MS, SESSION_MS, GroupRequest, GroupRig, subscription

from kraftcore.core.batch import Record, RecordBatch, build_records_batch
from kraftcore.core.uuid import ZERO_UUID, Uuid
from kraftcore.errors import LocalError
from kraftcore.plugins.broker.groups.effects import Caller, Committed, ShardEffects, Timers, Write
from kraftcore.plugins.broker.groups.group import State
from kraftcore.plugins.broker.groups.loading import Loader
from kraftcore.plugins.broker.groups.membership import NEW_MEMBER_JOIN_TIMEOUT_MS
from kraftcore.plugins.broker.groups.offsets import Offsets
from kraftcore.plugins.broker.groups.records import entry_bytes, group_entry, offset_entry, read_group
from kraftcore.plugins.broker.groups.topic import partition_of
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.broker.work.turns import ITEMS
from kraftcore.protocol.error_codes import ErrorCode as E
from kraftcore.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kraftcore.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

DAY_MS = 24 * 3600 * 1000


# --- joining ----------------------------------------------------------------------------------------------------------


def test_the_first_generation_waits_for_more_members_and_its_leader_is_told_of_all():
    rig = GroupRig(initial_rebalance_delay_ms=3000)
    first, joined = rig.enter()
    rig.after(2000)
    second, other = rig.enter()
    rig.after(3999)  # the second one made it wait for another delay
    assert joined.response is None
    rig.after(1)
    assert (joined.response.leader, joined.response.generation_id) == (first, 1)
    assert [each.member_id for each in joined.response.members] == [first, second]
    assert other.response.members == []
    assert rig.group().state is State.COMPLETING_REBALANCE


def test_the_wait_for_more_members_ends_with_the_rebalance_timeout():
    rig = GroupRig(initial_rebalance_delay_ms=3000)
    _, joined = rig.enter(rebalance_ms=7000)
    for _ in range(3):
        rig.after(2000)
        rig.enter(rebalance_ms=7000)
    rig.after(999)
    assert joined.response is None
    rig.after(2)
    assert len(joined.response.members) == 4


def test_members_get_what_the_leader_gave_once_it_is_stored():
    rig = GroupRig()
    a, b = rig.enter(), rig.enter()
    rig.gather()
    rig.commits_at_once = False
    follower = rig.sync(b[0], 1)
    leader = rig.sync(a[0], 1, {a[0]: b"for a", b[0]: b"for b"})
    assert (leader.response, follower.response) == (None, None)
    assert (
        rig.commit_offsets({("t", 0): 5}, a[0], 1).response.topics[0].partitions[0].error_code
        == E.REBALANCE_IN_PROGRESS
    )
    rig.commit()
    assert (leader.response.assignment, follower.response.assignment) == (b"for a", b"for b")
    assert (leader.response.protocol_type, leader.response.protocol_name) == ("consumer", "range")
    assert rig.group().state is State.STABLE
    assert rig.sync(b[0], 1).response.assignment == b"for b"


def test_an_assignment_that_cannot_be_stored_is_nobodys():
    rig = GroupRig()
    a, b = rig.enter(), rig.enter()
    rig.gather()
    follower = rig.sync(b[0], 1)
    rig.fails = E.NOT_ENOUGH_REPLICAS
    leader = rig.sync(a[0], 1, {a[0]: b"for a", b[0]: b"for b"})
    assert leader.error is follower.error is E.COORDINATOR_NOT_AVAILABLE
    assert leader.response.assignment == b""
    assert rig.group().state is State.PREPARING_REBALANCE


def test_an_assignment_that_is_not_committed_in_time_is_nobodys_either():
    rig = GroupRig(commit_timeout_ms=5000)
    (a, _) = rig.enter()
    rig.gather()
    rig.commits_at_once = False
    leader = rig.sync(a, 1, {a: b"x"})
    rig.after(5001)
    assert leader.error is E.COORDINATOR_NOT_AVAILABLE
    rig.commit()
    assert rig.group().members[a].assignment == b""


def test_an_assignment_that_cannot_be_encoded_changes_nothing():
    rig = GroupRig()
    (a, _), (b, _) = rig.enter(), rig.enter()
    rig.gather()
    member = rig.group().members[b]
    client_id, member.client_id = member.client_id, "x" * 40_000
    with pytest.raises(LocalError, match="40000 bytes"):
        rig.sync(a, 1, {a: b"for a", b: b"for b"})
    member.client_id = client_id
    assert (rig.group().members[a].sync_ticket, rig.group().pending_sync) == (None, {a, b})
    rig.shard.check_invariants()
    assert rig.sync(a, 1, {a: b"again"}).response.assignment == b"again"


@pytest.mark.parametrize(("name", "kept"), [("x" * 32767, "x" * 32765), ("ä" * 16383, "ä" * 16382), ("x", "x")])
def test_member_ids_fit_a_string_of_the_protocol(name, kept):
    rig = GroupRig()
    asked = rig.join(instance=name)
    rig.gather()
    assert asked.response.member_id == f"{kept}-1"
    assert rig.sync(asked.response.member_id, 1, {}).error is E.NONE


def test_an_assignment_of_a_generation_that_is_over_is_nobodys():
    rig = GroupRig()
    (a, _), (b, _) = rig.enter(), rig.enter()
    rig.gather()
    rig.commits_at_once = False
    leader = rig.sync(a, 1, {a: b"old", b: b"old"})
    joined = [rig.join(b, topics=("u",)), rig.join(a)]
    assert leader.error is E.REBALANCE_IN_PROGRESS
    assert {each.response.generation_id for each in joined} == {2}
    follower = rig.sync(b, 2)
    rig.commit()
    assert (follower.response, rig.group().state) == (None, State.COMPLETING_REBALANCE)
    rig.sync(a, 2, {a: b"new", b: b"new"})
    rig.commit()
    assert follower.response.assignment == b"new"


@pytest.mark.parametrize("version", [0, 3, 4, 9])
def test_member_ids_are_given_out_first_from_version_4_on(version):
    rig = GroupRig()
    asked = rig.join(version=version)
    if version < 4:
        assert asked.response is None
        rig.after(3001)
        assert asked.response.member_id == "c-1"
    else:
        assert (asked.error, asked.response.member_id) == (E.MEMBER_ID_REQUIRED, "c-1")
        assert not rig.group().members
        rig.after(SESSION_MS + 1)
        assert rig.join("c-1").error is E.UNKNOWN_MEMBER_ID


def test_version_0_has_the_session_as_rebalance_timeout():
    rig = GroupRig()
    rig.join(version=0, rebalance_ms=-1, session_ms=7000)
    assert rig.group().rebalance_timeout_ms == 7000


def test_who_is_not_known_may_not_join_a_group_that_is_not_there():
    rig = GroupRig()
    assert rig.join("x").error is E.UNKNOWN_MEMBER_ID
    assert not rig.shard.groups
    rig.stable(1)
    assert rig.join("x").error is E.UNKNOWN_MEMBER_ID


def test_all_members_share_a_protocol_and_the_most_wanted_one_is_chosen():
    rig = GroupRig()
    x, y, z = b"x", b"y", b"z"
    joins = [rig.enter(protocols=each) for each in ({"a": x, "b": y, "c": z}, {"b": x, "a": y}, {"b": z, "a": x})]
    assert rig.join(protocols={"d": b""}).error is E.INCONSISTENT_GROUP_PROTOCOL
    assert rig.join(protocols={"c": b""}).error is E.INCONSISTENT_GROUP_PROTOCOL
    assert rig.join(kind="connect", protocols={"a": b""}).error is E.INCONSISTENT_GROUP_PROTOCOL
    assert rig.join(group="other", protocols={}).error is E.INCONSISTENT_GROUP_PROTOCOL
    assert rig.join(group="other", kind="").error is E.INCONSISTENT_GROUP_PROTOCOL
    rig.gather()
    assert {joined.response.protocol_name for _, joined in joins} == {"b"}
    assert [each.metadata for each in joins[0][1].response.members] == [y, x, z]


@pytest.mark.parametrize(
    ("one", "other", "chosen"),
    [("range", "roundrobin", "range"), ("roundrobin", "range", "range"), ("range", "sticky", "sticky")],
)
def test_of_protocols_with_as_many_votes_kafkas_is_chosen(one, other, chosen):
    """It walks a hash table; found by the twin of brokers."""
    rig = GroupRig()
    joins = [rig.enter(protocols=dict.fromkeys(order, b"")) for order in ((one, other), (other, one))]
    rig.gather()
    assert {joined.response.protocol_name for _, joined in joins} == {chosen}


class CountedName(str):
    """Counts how often names are compared."""

    compared = 0
    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        CountedName.compared += 1
        return str.__eq__(self, other)


def test_joining_compares_no_protocol_with_each_of_every_member():
    count = 300
    rig = GroupRig()
    for _ in range(3):
        rig.enter(protocols={CountedName(f"a{i}"): b"" for i in range(count)})
    CountedName.compared = 0
    assert rig.join(protocols={CountedName(f"b{i}"): b"" for i in range(count)}).error is E.INCONSISTENT_GROUP_PROTOCOL
    assert CountedName.compared < 10 * count


def test_a_member_counts_with_the_protocols_that_it_joined_with_last():
    rig = GroupRig()
    (a, _), (b, _) = rig.enter(protocols={"x": b"", "y": b""}), rig.enter(protocols={"x": b""})
    rig.gather()
    assert rig.join(protocols={"y": b""}).error is E.INCONSISTENT_GROUP_PROTOCOL
    for each in (a, b):
        rig.join(each, protocols={"x": b"", "y": b""})
    assert rig.join(protocols={"y": b""}).error is E.MEMBER_ID_REQUIRED
    rig.join(b, protocols={"x": b""})
    assert rig.join(protocols={"y": b""}).error is E.INCONSISTENT_GROUP_PROTOCOL
    rig.leave((b, None))
    assert rig.join(protocols={"y": b""}).error is E.MEMBER_ID_REQUIRED


def test_a_group_has_no_more_members_than_it_may():
    rig = GroupRig(max_size=2)
    a, _ = rig.enter(), rig.enter()
    assert rig.join().error is E.GROUP_MAX_SIZE_REACHED
    rig.gather()
    assert rig.join().error is E.GROUP_MAX_SIZE_REACHED
    assert rig.heartbeat(a[0], 1) is E.NONE


def test_a_smaller_limit_after_a_restart_makes_the_group_gather_and_leaves_out_the_last():
    rig = GroupRig()
    members = rig.stable(3)
    again = rig.reload(max_size=2)
    assert again.group().state is State.PREPARING_REBALANCE
    answers = [again.join(each) for each in members]
    assert answers[2].error is E.GROUP_MAX_SIZE_REACHED
    again.after(REBALANCE_MS)
    assert [each.error for each in answers[:2]] == [E.NONE, E.NONE]


# --- rebalances -------------------------------------------------------------------------------------------------------


def test_a_new_member_makes_all_join_again_and_the_generation_rises():
    rig = GroupRig()
    a, b = rig.stable(2)
    c, third = rig.enter()
    assert rig.heartbeat(a, 1) is rig.heartbeat(b, 1) is E.REBALANCE_IN_PROGRESS
    assert rig.sync(a, 1).error is E.REBALANCE_IN_PROGRESS
    # The offsets of what was read up to now are taken.
    assert rig.commit_offsets({("t", 0): 7}, a, 1).response.topics[0].partitions[0].error_code == 0
    joined = [rig.join(a), rig.join(b)]
    assert {each.response.generation_id for each in (*joined, third)} == {2}
    assert {each.response.leader for each in (*joined, third)} == {a}
    assert rig.heartbeat(c, 1) is E.ILLEGAL_GENERATION
    assert rig.heartbeat(c, 2) is E.NONE


def test_who_does_not_come_in_time_is_out_and_another_leads():
    rig = GroupRig()
    a, b = rig.stable(2)
    joined = rig.join(b, topics=("u",))  # other metadata: a rebalance
    assert rig.heartbeat(a, 1) is E.REBALANCE_IN_PROGRESS
    for _ in range(REBALANCE_MS // 5000):
        rig.after(5000)
        rig.heartbeat(a, 1)
    assert (joined.response.leader, joined.response.generation_id) == (b, 2)
    assert rig.heartbeat(a, 2) is E.UNKNOWN_MEMBER_ID


def test_the_same_metadata_again_changes_nothing_but_for_the_leader():
    rig = GroupRig()
    a, b = rig.stable(2)
    again = rig.join(b)
    assert (again.response.generation_id, again.response.members, rig.group().state) == (1, [], State.STABLE)
    assert rig.join(a).response is None
    assert rig.group().state is State.PREPARING_REBALANCE


def test_a_lost_answer_to_a_join_is_given_again():
    rig = GroupRig()
    a, b = rig.enter(), rig.enter()
    rig.gather()
    again = rig.join(a[0])
    assert again.response == a[1].response
    assert rig.join(b[0]).response.members == []
    changed = rig.join(b[0], topics=("u",))
    assert changed.response is None
    assert rig.group().state is State.PREPARING_REBALANCE


def test_who_never_syncs_is_out():
    rig = GroupRig()
    (a, _), (b, _) = rig.enter(session_ms=100_000), rig.enter(session_ms=100_000)
    rig.gather()
    rig.sync(a, 1, {a: b"x"})
    rig.after(REBALANCE_MS + 1)
    assert list(rig.group().members) == [a]
    assert rig.group().state is State.PREPARING_REBALANCE
    assert rig.heartbeat(b, 1) is E.UNKNOWN_MEMBER_ID


def test_a_sync_of_another_protocol_or_generation_is_refused():
    rig = GroupRig()
    a, _ = rig.stable(2)
    assert rig.sync(a, 0).error is E.ILLEGAL_GENERATION
    assert rig.sync(a, 1, protocol="roundrobin").error is E.INCONSISTENT_GROUP_PROTOCOL
    assert rig.sync(a, 1, kind="connect").error is E.INCONSISTENT_GROUP_PROTOCOL
    assert rig.sync(a, 1, kind=None, protocol=None).error is E.NONE
    assert rig.sync("x", 1).error is E.UNKNOWN_MEMBER_ID
    assert rig.sync("x", 1, group="none").error is E.UNKNOWN_MEMBER_ID


# --- sessions ---------------------------------------------------------------------------------------------------------


def test_a_silent_member_is_out_and_the_others_join_again():
    rig = GroupRig()
    a, b = rig.stable(2)
    rig.after(SESSION_MS - 1)
    assert rig.heartbeat(a, 1) is E.NONE
    rig.after(2)
    assert list(rig.group().members) == [a]
    assert rig.heartbeat(a, 1) is E.REBALANCE_IN_PROGRESS
    assert rig.heartbeat(b, 1) is E.UNKNOWN_MEMBER_ID


def test_a_commit_is_a_sign_of_life():
    rig = GroupRig()
    (a,) = rig.stable(1)
    for _ in range(4):
        rig.after(SESSION_MS - 1)
        rig.commit_offsets({("t", 0): 1}, a, 1)
    assert rig.heartbeat(a, 1) is E.NONE


def test_who_waits_for_a_generation_need_not_speak():
    rig = GroupRig()
    a, b = rig.stable(2)
    joined = rig.join(a)
    for _ in range(2):
        rig.after(SESSION_MS - 1)
        assert rig.heartbeat(b, 1) is E.REBALANCE_IN_PROGRESS
    assert joined.response is None
    assert rig.join(b).error is E.NONE
    assert joined.error is E.NONE


def test_a_new_member_that_waits_for_too_long_is_told_to_begin_anew():
    rig = GroupRig()
    a, b = rig.stable(2, rebalance_ms=2 * NEW_MEMBER_JOIN_TIMEOUT_MS)
    joined = rig.join(version=3)
    for _ in range(NEW_MEMBER_JOIN_TIMEOUT_MS // 5000 + 1):
        rig.after(5000)
        rig.heartbeat(a, 1)
        rig.heartbeat(b, 1)
    assert (joined.error, joined.response.member_id) == (E.UNKNOWN_MEMBER_ID, "")


# --- leaving ----------------------------------------------------------------------------------------------------------


def test_the_last_member_that_leaves_ends_the_generation():
    rig = GroupRig()
    (a,) = rig.stable(1)
    rig.commits_at_once = False
    left = rig.leave((a, None))
    assert left.response is None  # until others would know
    rig.commit()
    assert [each.error_code for each in left.response.members] == [0]
    group = rig.group()
    assert (group.state, group.generation, group.protocol_type, group.protocol_name) == (
        State.EMPTY,
        2,
        "consumer",
        None,
    )
    assert rig.leave((a, None)).response.members[0].error_code == E.UNKNOWN_MEMBER_ID
    assert rig.leave((a, None), group="none").response.members[0].error_code == E.UNKNOWN_MEMBER_ID


def test_an_administrator_removes_static_members_by_instance_id():
    rig = GroupRig()
    rig.join(instance="i", version=5)
    rig.gather()
    left = rig.leave(("", "i"), ("", "other"), ("", None))
    assert [each.error_code for each in left.response.members] == [0, E.UNKNOWN_MEMBER_ID, E.UNKNOWN_MEMBER_ID]
    assert not rig.group().members


def test_an_id_that_was_given_out_is_given_back():
    rig = GroupRig()
    given = rig.join().response.member_id
    assert rig.leave((given, None)).response.members[0].error_code == 0
    assert rig.join(given).error is E.UNKNOWN_MEMBER_ID


# --- static members ---------------------------------------------------------------------------------------------------


def static_group(rig, *instances):
    joins = [rig.join(instance=each) for each in instances]
    rig.gather()
    leader = joins[0].response.leader
    given = {each.response.member_id: each.response.member_id.encode() for each in joins}
    for instance, each in zip(instances, joins, strict=True):
        member = each.response.member_id
        rig.sync(member, 1, given if member == leader else None, instance=instance)
    assert rig.group().state is State.STABLE
    return [each.response.member_id for each in joins]


def test_a_static_member_comes_back_without_a_rebalance():
    rig = GroupRig()
    _, b = static_group(rig, "i", "j")
    back = rig.join(instance="j")
    new = back.response.member_id
    assert new != b
    assert (back.error, back.response.generation_id, back.response.skip_assignment) == (E.NONE, 1, False)
    assert rig.group().state is State.STABLE
    assert rig.sync(new, 1, instance="j").response.assignment == b.encode()
    assert rig.heartbeat(b, 1, instance="j") is E.FENCED_INSTANCE_ID
    assert rig.heartbeat(b, 1) is E.UNKNOWN_MEMBER_ID
    assert rig.commit_offsets({("t", 0): 1}, b, 1, instance="j").response.topics[0].partitions[0].error_code == (
        E.FENCED_INSTANCE_ID
    )
    leader = rig.join(instance="i")
    assert leader.response.skip_assignment
    assert {each.member_id for each in leader.response.members} == {leader.response.member_id, new}
    assert rig.reload().group().static_members == rig.group().static_members


def test_older_clients_of_a_leader_that_comes_back_do_not_take_themselves_for_it():
    rig = GroupRig()
    (a,) = static_group(rig, "i")
    back = rig.join(instance="i", version=8)
    assert (back.response.leader, back.response.skip_assignment, back.response.members) == (a, False, [])


def test_a_static_member_that_could_not_be_stored_keeps_its_old_id():
    rig = GroupRig()
    a, _ = static_group(rig, "i", "j")
    rig.fails = E.NOT_ENOUGH_REPLICAS
    assert rig.join(instance="i").error is E.COORDINATOR_NOT_AVAILABLE
    rig.fails = None
    assert rig.heartbeat(a, 1, instance="i") is E.NONE
    assert rig.group().leader == a


def test_another_protocol_of_a_static_member_that_comes_back_needs_a_rebalance():
    rig = GroupRig()
    a = rig.join(instance="i", protocols={"a": b"", "b": b""})
    rig.gather()
    rig.sync(a.response.member_id, 1, {}, instance="i", protocol="a")
    back = rig.join(instance="i", protocols={"b": b"", "a": b""})
    assert (back.error, back.response.generation_id, back.response.protocol_name) == (E.NONE, 2, "b")


def test_two_processes_with_one_instance_id_the_older_one_is_told_to_stop():
    rig = GroupRig()
    first = rig.join(instance="i")
    second = rig.join(instance="i")
    assert (first.error, second.response) == (E.FENCED_INSTANCE_ID, None)
    rig.gather()
    assert second.error is E.NONE
    leader = rig.sync(second.response.member_id, 1, {}, instance="i")
    assert leader.error is E.NONE
    assert len(rig.group().members) == 1


def test_a_static_member_that_is_away_is_waited_for_until_its_session_ends():
    rig = GroupRig()
    a, b = static_group(rig, "i", "j")
    joined = rig.join(b, instance="j", topics=("u",))
    rig.group().members[a].session_timeout_ms = 10 * REBALANCE_MS
    rig.heartbeat(a, 1, instance="i")
    rig.after(REBALANCE_MS + 1)
    assert (joined.response.leader, len(joined.response.members)) == (b, 2)
    rig.after(10 * REBALANCE_MS)
    assert a not in rig.group().members


# --- offsets ----------------------------------------------------------------------------------------------------------


def test_offsets_are_read_when_they_are_committed_and_stable_ones_wait():
    rig = GroupRig()
    rig.commits_at_once = False
    asked = rig.commit_offsets({("t", 0): 5, ("u", 1): 6})
    assert (asked.response, rig.offsets()) == (None, {})
    waiting = rig.offsets(require_stable=True)
    rig.commit()
    assert [topic.partitions[0].error_code for topic in asked.response.topics] == [0, 0]
    assert {topic.name for topic in waiting.response.topics} == {"t", "u"}
    assert rig.offsets() == {("t", 0): 5, ("u", 1): 6}


def test_any_number_waits_for_what_is_stable():
    rig = GroupRig()
    rig.commits_at_once = False
    asked = rig.commit_offsets({("t", 0): 5})
    waiting = [rig.offsets(require_stable=True) for _ in range(2000)]
    rig.commit()
    assert asked.response.topics[0].partitions[0].error_code == 0
    assert {each.response.topics[0].partitions[0].committed_offset for each in waiting} == {5}


def test_a_commit_that_is_not_stored_changes_nothing_and_leaves_no_group():
    rig = GroupRig()
    rig.fails = E.NOT_ENOUGH_REPLICAS
    asked = rig.commit_offsets({("t", 0): 5})
    assert asked.response.topics[0].partitions[0].error_code == E.COORDINATOR_NOT_AVAILABLE
    assert not rig.shard.groups
    assert rig.offsets() == {}


def test_a_commit_that_takes_too_long_is_told_so_and_counts_when_it_is_committed():
    rig = GroupRig(commit_timeout_ms=100)
    rig.commits_at_once = False
    asked = rig.commit_offsets({("t", 0): 5})
    waiting = rig.offsets(require_stable=True)
    rig.after(101)
    assert asked.response.topics[0].partitions[0].error_code == E.COORDINATOR_NOT_AVAILABLE
    assert waiting.response.error_code == E.NOT_COORDINATOR
    rig.commit()
    assert rig.offsets() == {("t", 0): 5}


@pytest.mark.parametrize(
    ("member", "generation", "version", "error"),
    [
        ("", -1, 9, E.UNKNOWN_MEMBER_ID),  # while it has members
        ("x", 1, 9, E.UNKNOWN_MEMBER_ID),
        ("a", 0, 9, E.ILLEGAL_GENERATION),
        ("a", 1, 9, E.NONE),
    ],
)
def test_members_alone_commit_for_a_group_that_has_some(member, generation, version, error):
    rig = GroupRig()
    (a,) = rig.stable(1)
    asked = rig.commit_offsets({("t", 0): 1}, a if member == "a" else member, generation, version=version)
    assert asked.response.topics[0].partitions[0].error_code == error


@pytest.mark.parametrize(("version", "error"), [(8, E.ILLEGAL_GENERATION), (9, E.GROUP_ID_NOT_FOUND)])
def test_a_member_of_a_group_that_is_not_there(version, error):
    asked = GroupRig().commit_offsets({("t", 0): 1}, "a", 3, version=version)
    assert asked.response.topics[0].partitions[0].error_code == error


def test_texts_beside_offsets_are_bounded_as_java_counts_them():
    rig = GroupRig(offset_metadata_max_bytes=4)
    answers = [
        rig.commit_offsets({("t", 0): 1}, metadata=text).response.topics[0].partitions[0].error_code
        for text in ("abcd", "abcde", "\N{GRINNING FACE}" * 2, "\N{GRINNING FACE}" * 2 + "x")
    ]
    assert answers == [0, E.OFFSET_METADATA_TOO_LARGE, 0, E.OFFSET_METADATA_TOO_LARGE]


def test_an_offset_of_a_topic_that_was_made_anew_is_none():
    rig = GroupRig()
    old, new = Uuid.random(), Uuid.random()
    rig.shard.offsets.committed["g"] = {TopicPartition("t", 0): Committed(5, -1, "", 0, topic_id=old)}

    def fetched(topic_id):
        class Ticket:
            def answer(self, response):
                self.found = response.topics[0].partitions[0].committed_offset

        ticket = Ticket()
        rig.carry_out(rig.shard.fetch_offsets("g", [("t", topic_id, [0])], ticket, require_stable=False))
        return ticket.found

    assert (fetched(old), fetched(new)) == (5, -1)


def test_offsets_of_subscribed_topics_are_not_deleted():
    rig = GroupRig()
    (a,) = rig.stable(1, topics=("t",))
    rig.commit_offsets({("t", 0): 1, ("u", 0): 2}, a, 1)
    answer = rig.delete_offsets(("t", 0), ("u", 0), ("v", 0))
    assert [topic.partitions[0].error_code for topic in answer.response.topics] == [E.GROUP_SUBSCRIBED_TO_TOPIC, 0, 0]
    assert rig.offsets() == {("t", 0): 1}
    assert rig.reload().offsets() == {("t", 0): 1}
    assert rig.delete_offsets(("t", 0), group="none").error is E.GROUP_ID_NOT_FOUND


def test_offsets_of_a_group_that_is_none_of_consumers_go_when_it_is_empty():
    rig = GroupRig()
    (a,) = rig.stable(1, kind="connect")
    assert rig.delete_offsets(("t", 0)).error is E.NON_EMPTY_GROUP
    rig.leave((a, None))
    assert rig.delete_offsets(("t", 0)).error is E.NONE


# --- groups -----------------------------------------------------------------------------------------------------------


def test_a_group_is_deleted_with_its_offsets_when_it_is_empty():
    rig = GroupRig()
    (a,) = rig.stable(1)
    rig.commit_offsets({("t", 0): 1}, a, 1)
    assert rig.delete().response is E.NON_EMPTY_GROUP
    rig.leave((a, None))
    rig.fails = E.NOT_ENOUGH_REPLICAS
    assert rig.delete().response is E.COORDINATOR_NOT_AVAILABLE
    assert "g" in rig.shard.groups
    rig.fails = None
    assert rig.delete().response is E.NONE
    assert (rig.shard.groups, rig.offsets()) == ({}, {})
    assert rig.delete().response is E.GROUP_ID_NOT_FOUND
    again = rig.reload()
    assert (again.shard.groups, again.offsets()) == ({}, {})


def test_what_is_told_of_a_group():
    rig = GroupRig()
    a, b = rig.stable(2)
    told = rig.shard.describe("g", 6)
    assert (told.group_state, told.protocol_type, told.protocol_data) == ("Stable", "consumer", "range")
    assert [(each.member_id, each.client_id, each.client_host) for each in told.members] == [
        (a, "c", "/10.0.0.1"),
        (b, "c", "/10.0.0.1"),
    ]
    assert [each.member_assignment for each in told.members] == [a.encode(), b.encode()]
    assert told.members[0].member_metadata == subscription("t")
    rig.join(a)
    assert rig.shard.describe("g", 6).members[0].member_metadata == b""
    assert rig.shard.describe("none", 5).group_state == "Dead"
    assert rig.shard.describe("none", 5).error_code == 0
    assert rig.shard.describe("none", 6).error_code == E.GROUP_ID_NOT_FOUND
    listed = rig.shard.list_groups()
    assert [(each.group_id, each.group_state, each.group_type) for each in listed] == [
        ("g", "PreparingRebalance", "classic")
    ]


@pytest.mark.parametrize(("kept_ms", "is_left"), [(7 * DAY_MS - 1, True), (7 * DAY_MS + 600_000, False)])
def test_offsets_of_an_empty_group_are_kept_for_a_week_since_it_became_empty(kept_ms, is_left):
    rig = GroupRig()
    (a,) = rig.stable(1)
    rig.commit_offsets({("t", 0): 1}, a, 1)
    for _ in range(100):
        rig.after(SESSION_MS - 1)
        rig.heartbeat(a, 1)
    rig.leave((a, None))
    rig.after(kept_ms)
    assert bool(rig.offsets()) is ("g" in rig.shard.groups) is is_left
    assert bool(rig.reload().offsets()) is is_left


def test_offsets_of_topics_that_members_read_stay_and_others_go():
    rig = GroupRig(retention_minutes=1, retention_check_interval_ms=10_000)
    (a,) = rig.stable(1, topics=("t",))
    rig.commit_offsets({("t", 0): 1, ("u", 0): 2}, a, 1)
    for _ in range(20):
        rig.after(5000)
        assert rig.heartbeat(a, 1) is E.NONE
    assert rig.offsets() == {("t", 0): 1}


def test_offsets_without_members_are_kept_since_their_commit_and_as_long_as_the_client_says():
    rig = GroupRig(retention_minutes=1, retention_check_interval_ms=1000)
    rig.commit_offsets({("t", 0): 1})
    rig.commit_offsets({("u", 0): 1}, retention_ms=5000, version=4)
    rig.after(6001)
    assert rig.offsets() == {("t", 0): 1}
    assert rig.reload().offsets() == {("t", 0): 1}
    rig.after(60_000)
    assert (rig.offsets(), rig.shard.groups) == ({}, {})


def test_a_time_to_keep_offsets_that_is_too_long_overflows_as_in_kafka():
    """Kafka 4.3.1, OffsetMetadataManager.expireTimestampMs."""
    rig = GroupRig(retention_check_interval_ms=1000)
    asked = rig.commit_offsets({("t", 0): 1}, retention_ms=2**63 - 1, version=4)
    assert asked.response.topics[0].partitions[0].error_code == 0
    assert rig.offsets() == {("t", 0): 1}
    rig.after(1001)
    assert rig.offsets() == {}


def test_offsets_of_a_topic_that_is_deleted_go_at_once():
    rig = GroupRig()
    rig.commit_offsets({("t", 0): 1, ("u", 0): 2})
    rig.carry_out(rig.shard.topics_deleted({Uuid.random(): "t"}, rig.now_ms))
    assert rig.offsets() == {("u", 0): 2}


def test_offsets_of_a_topic_made_anew_stay_when_it_is_told_late_that_the_one_before_went():
    rig = GroupRig()
    old, new = Uuid.random(), Uuid.random()
    rig.shard.offsets.committed["g"] = {
        TopicPartition("t", number): Committed(5, -1, "", 0, topic_id=each)
        for number, each in enumerate((old, new, ZERO_UUID))
    }
    rig.carry_out(rig.shard.topics_deleted({old: "t"}, rig.now_ms))
    assert rig.offsets() == {("t", 1): 5}


def test_offsets_of_a_deleted_topic_go_in_turns_and_what_is_committed_between_two_of_them_stays():
    rig = GroupRig()
    rig.commit_offsets({("t", number): 1 for number in reversed(range(2500))} | {("u", 0): 2})
    written = len(rig.log)
    rig.carry_out(rig.shard.topics_deleted({Uuid.random(): "t"}, rig.now_ms))
    assert len(rig.log) - written == ITEMS
    rig.commit_offsets({("t", 1): 7})  # the topic was made anew
    commit_in_transaction(rig, {"t": 6})
    rig.after(0)
    rig.shard.offsets.end_transaction(7, is_commit=True)
    assert rig.offsets() == {("u", 0): 2, ("t", 1): 7, ("t", 0): 6}


def test_groups_are_cleaned_in_turns_and_one_that_is_joined_between_two_of_them_keeps_its_offsets():
    rig = GroupRig(retention_minutes=1, retention_check_interval_ms=60_000)
    for name in "fgh":
        rig.commit_offsets({("t", number): 1 for number in range(600)}, group=name)
    rig.now_ms += 60_000
    rig.carry_out(rig.shard.expire(rig.now_ms))
    assert [len(rig.offsets(name)) for name in "fgh"] == [0, 0, 600]
    rig.enter(group="h", topics=("t",))
    rig.after(0)
    assert len(rig.offsets("h")) == 600
    rig.commit_offsets({("t", 0): 1}, group="f")
    rig.after(120_000)
    assert rig.offsets("f") == {}


def many_offsets(**settings):
    """A group with more of them than the tombstones of one batch, and batches whose append can fail."""
    rig = GroupRig(**settings)
    rig.commit_offsets({("t", number): number for number in range(50)})
    writes = []

    def note(write):
        writes.append(write)
        return E.NOT_ENOUGH_REPLICAS if len(writes) == 3 else E.NONE

    return rig, note


@pytest.mark.parametrize("ask", ["group", "offsets"])
def test_of_what_is_deleted_in_several_batches_the_first_error_is_told(ask):
    rig, fail_third = many_offsets()
    delete = {"group": rig.delete, "offsets": lambda: rig.delete_offsets(*(("t", number) for number in range(50)))}[ask]
    rig.refuses = fail_third
    assert delete().error is E.COORDINATOR_NOT_AVAILABLE
    left = rig.offsets()
    assert 0 < len(left) < 50
    assert rig.group().state is State.EMPTY  # it goes after its offsets only
    assert rig.reload().offsets() == left
    rig.refuses = lambda write: E.NONE
    asked = delete()
    assert asked.error is E.NONE
    assert (rig.offsets(), "g" in rig.shard.groups) == ({}, ask == "offsets")
    assert rig.reload().offsets() == {}


def test_an_empty_group_whose_offsets_cannot_all_go_is_looked_at_again():
    rig, fail_third = many_offsets(retention_minutes=1, retention_check_interval_ms=10_000)
    rig.refuses = fail_third
    rig.after(60_000)
    assert 0 < len(rig.offsets()) < 50
    assert "g" in rig.shard.groups
    rig.after(10_000)
    assert (rig.offsets(), rig.shard.groups) == ({}, {})


def test_tombstones_are_cut_into_batches_by_their_bytes():
    rig = GroupRig()
    rig.commit_offsets({("t" * 200, number): number for number in range(5)})
    rig.commit_offsets({("u" * 600, 0): 0})
    sizes = []
    rig.refuses = lambda write: sizes.append(sum(map(entry_bytes, write.entries)) + 61) or E.NONE
    assert rig.delete().error is E.NONE
    *others, longest = sorted(sizes)
    assert longest > BATCH_BYTES  # of one alone
    assert len(others) >= 5
    assert max(others) <= BATCH_BYTES


# --- another coordinator ----------------------------------------------------------------------------------------------


def test_who_waits_is_told_to_look_for_another_coordinator():
    rig = GroupRig()
    a, _ = rig.stable(2)
    joined, first = rig.join(a), rig.join(group="new")
    rig.commits_at_once = False
    commit = rig.commit_offsets({("t", 0): 1}, group="simple")
    rig.carry_out(rig.shard.unload(rig.now_ms))
    assert first.error is E.MEMBER_ID_REQUIRED
    assert joined.error is E.NOT_COORDINATOR
    assert commit.response.topics[0].partitions[0].error_code == E.NOT_COORDINATOR
    rig.commit()  # too late: nothing comes of it


def test_groups_go_on_after_a_change_of_the_coordinator():
    rig = GroupRig()
    a, b = rig.stable(2)
    rig.commit_offsets({("t", 0): 9}, a, 1, metadata="at nine")
    again = rig.reload()
    assert again.shard.describe("g", 6) == rig.shard.describe("g", 6)
    assert again.offsets() == {("t", 0): 9}
    assert again.heartbeat(a, 1) is again.heartbeat(b, 1) is E.NONE
    assert again.sync(b, 1).response.assignment == b.encode()
    again.after(SESSION_MS + 1)
    assert not again.group().members


def test_a_group_that_just_came_to_be_is_known_to_the_next_coordinator():
    rig = GroupRig()
    rig.join()
    assert list(rig.reload().shard.groups) == ["g"]
    rig = GroupRig()
    rig.fails = E.NOT_LEADER_OR_FOLLOWER
    asked = rig.join(version=3)
    assert (asked.error, rig.shard.groups) == (E.NOT_COORDINATOR, {})


def transaction(producer, offset, *entries, control=False):
    data = build_records_batch(
        [Record(value, key) for key, value in entries],
        timestamp_ms=1,
        base_offset=offset,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=-1 if control else 0,
        transactional=True,
        control=control,
    )
    return RecordBatch(data)


COMMIT, ABORT = ((bytes((0, 0, 0, kind)), bytes(6)) for kind in (1, 0))


def test_offsets_in_transactions_count_when_they_are_committed_and_nothing_came_after_them():
    """As Kafka's coordinator writes them for transactional producers."""

    def entry(topic, offset):
        return offset_entry("g", TopicPartition(topic, 0), Committed(offset, -1, "", 0))

    loader = Loader(TopicPartition("__consumer_offsets", 0))
    plain = build_records_batch(
        [Record(value, key) for key, value in [entry("late", 9)]], timestamp_ms=1, base_offset=6
    )
    for batch in (
        transaction(1, 0, entry("t", 1), entry("late", 1)),
        transaction(2, 2, entry("aborted", 1)),
        transaction(3, 3, entry("open", 1)),
        transaction(2, 5, ABORT, control=True),
        RecordBatch(plain),
        transaction(1, 7, COMMIT, control=True),
    ):
        loader.add(batch)
    rig = GroupRig(loader.finish(0))
    assert rig.offsets() == {("t", 0): 1, ("late", 0): 9}
    asked = GroupRequest()
    asked_for = [("t", ZERO_UUID, [0]), ("open", ZERO_UUID, [0])]
    rig.carry_out(rig.shard.fetch_offsets("g", asked_for, asked, require_stable=True))
    assert [topic.partitions[0].error_code for topic in asked.response.topics] == [0, E.UNSTABLE_OFFSET_COMMIT]


@pytest.mark.parametrize(("is_commit", "left"), [(True, {("t", 0): 5, ("late", 0): 9}), (False, {("late", 0): 9})])
def test_offsets_of_a_transaction_that_ends_under_us_count_unless_somebody_committed_later(is_commit, left):
    def entry(topic, offset, group="g"):
        return offset_entry(group, TopicPartition(topic, 0), Committed(offset, -1, "", 0))

    loader = Loader(TopicPartition("__consumer_offsets", 0))
    loader.add(transaction(3, 0, entry("t", 5), entry("late", 5), entry("t", 1, "gone")))
    loader.add(transaction(4, 3, entry("u", 7)))
    rig = GroupRig(loader.finish(0))
    assert set(rig.shard.offsets.unstable) == {"g", "gone"}
    rig.commit_offsets({("late", 0): 9})
    rig.delete("gone")
    rig.shard.offsets.end_transaction(3, is_commit=is_commit)
    assert rig.offsets() == left
    assert "gone" not in rig.shard.offsets.committed
    assert rig.shard.offsets.unstable == {"g": {TopicPartition("u", 0)}}
    asked = GroupRequest()
    rig.carry_out(rig.shard.fetch_offsets("g", [("t", ZERO_UUID, [0])], asked, require_stable=True))
    assert asked.response.topics[0].partitions[0].error_code == 0


def commit_in_transaction(rig, offsets, producer=7, group="g", metadata="", **more):
    kind = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id=group,
        producer_id=producer,
        producer_epoch=0,
        topics=[
            kind(
                name=topic,
                partitions=[
                    kind.TxnOffsetCommitRequestPartition(
                        partition_index=0, committed_offset=offset, committed_metadata=metadata
                    )
                ],
            )
            for topic, offset in offsets.items()
        ],
        **more,
    )
    asked = GroupRequest()
    rig.carry_out(rig.shard.commit_in_transaction(request, Caller(asked, 5), rig.now_ms))
    return None if asked.response is None else [each.partitions[0].error_code for each in asked.response.topics]


def test_offsets_that_are_committed_in_transactions_count_in_the_order_of_the_log():
    rig = GroupRig()
    rig.commits_at_once = False
    assert commit_in_transaction(rig, {"t": 5}) is None  # it waits for its record
    rig.commit()
    rig.commits_at_once = True
    assert commit_in_transaction(rig, {"t": 6, "u": 6}) == [0, 0]
    assert commit_in_transaction(rig, {"u": 9}, producer=8) == [0]
    assert rig.offsets() == {}
    assert rig.shard.offsets.unstable == {"g": {TopicPartition("t", 0), TopicPartition("u", 0)}}
    rig.shard.offsets.end_transaction(8, is_commit=True)
    rig.shard.offsets.end_transaction(7, is_commit=True)
    assert rig.offsets() == {("t", 0): 6, ("u", 0): 9}
    assert rig.shard.offsets.unstable == {}
    commit_in_transaction(rig, {"t": 8})
    rig.commit_offsets({("t", 0): 7})
    rig.shard.offsets.end_transaction(7, is_commit=True)
    assert rig.offsets()["t", 0] == 7
    commit_in_transaction(rig, {"t": 8})
    rig.shard.offsets.end_transaction(7, is_commit=False)
    assert rig.offsets()["t", 0] == 7


def stable_error(rig, topic):
    """What a consumer is told of a partition that asks for stable offsets."""
    asked = GroupRequest()
    rig.carry_out(rig.shard.fetch_offsets("g", [(topic, ZERO_UUID, [0])], asked, require_stable=True))
    return asked.response.topics[0].partitions[0].error_code


@pytest.mark.parametrize("how", ["offsets", "topic", "group"])
def test_what_is_deleted_is_no_part_of_an_open_transaction_any_more(how):
    """Nor for the next coordinator. Kafka 4.3.1, OffsetMetadataManager.replay of a tombstone."""
    rig, loader = GroupRig(), Loader(TopicPartition("__consumer_offsets", 0))
    commit_in_transaction(rig, {"t": 6})
    (entry,) = [each for each in rig.log if each[0][1] == 1]
    loader.add(transaction(7, 0, entry))
    assert stable_error(rig, "t") == E.UNSTABLE_OFFSET_COMMIT
    written = len(rig.log)
    if how == "offsets":
        assert rig.delete_offsets(("t", 0)).error is E.NONE
    elif how == "topic":
        rig.carry_out(rig.shard.topics_deleted({Uuid.random(): "t"}, rig.now_ms))
    else:
        assert rig.delete().error is E.NONE
    tombstones = [Record(value, key) for key, value in rig.log[written:]]
    loader.add(RecordBatch(build_records_batch(tombstones, timestamp_ms=1, base_offset=1)))
    loaded = GroupRig(loader.finish(0))
    assert ("g" in rig.shard.groups) is (how != "group")
    assert "g" not in loaded.shard.groups
    for each in (rig, loaded):
        assert stable_error(each, "t") == 0
        each.shard.offsets.end_transaction(7, is_commit=True)
        assert each.offsets() == {}


def test_an_offset_that_is_deleted_and_committed_again_is_not_a_transaction_s_for_the_next_coordinator_either():
    rig, loader = GroupRig(), Loader(TopicPartition("__consumer_offsets", 0))
    commit_in_transaction(rig, {"t": 6})
    loader.add(transaction(7, 0, next(each for each in rig.log if each[0][1] == 1)))
    rig.delete_offsets(("t", 0))
    rig.commit_offsets({("t", 0): 3})
    later = [Record(value, key) for key, value in rig.log[-2:]]
    loader.add(RecordBatch(build_records_batch(later, timestamp_ms=1, base_offset=1)))
    for each in (rig, GroupRig(loader.finish(0))):
        assert stable_error(each, "t") == 0
        each.shard.offsets.end_transaction(7, is_commit=True)
        assert each.offsets() == {("t", 0): 3}


def test_an_offset_that_is_committed_again_after_it_was_deleted_counts_with_its_transaction():
    rig = GroupRig()
    commit_in_transaction(rig, {"t": 6})
    rig.delete_offsets(("t", 0))
    commit_in_transaction(rig, {"t": 7})
    assert stable_error(rig, "t") == E.UNSTABLE_OFFSET_COMMIT
    rig.shard.offsets.end_transaction(7, is_commit=True)
    assert rig.offsets() == {("t", 0): 7}


class Unread(dict):
    """Refuses to be gone through."""

    def __iter__(self):
        raise AssertionError("all of it is looked at")

    keys = values = items = __iter__


def test_a_transaction_looks_only_at_offsets_of_its_own():
    """What others hold open may be a hundred thousand of them."""

    def at(offset):
        return Committed(offset, -1, "", 0)

    t, u = TopicPartition("t", 0), TopicPartition("u", 0)
    others = {("g", t): (1, at(5)), ("other", t): (2, at(5))}
    transactions = {1: dict(others)}
    offsets = Offsets({}, transactions)
    transactions[1] = Unread(others)
    offsets.appended(Write([], changes=[("g", t, at(6)), ("g", u, at(6))], producer=(2, 0)))
    assert offsets.unstable == {"g": {t, u}, "other": {t}}
    offsets.end_transaction(2, is_commit=True)
    assert offsets.committed == {"g": {t: at(6), u: at(6)}}
    assert offsets.unstable == {"g": {t}, "other": {t}}
    offsets.appended(Write([], changes=[("other", t, at(7))]))
    assert (transactions[1]["g", t], transactions[1]["other", t]) == (None, None)
    offsets.forget_group("other")
    assert (offsets.unstable, len(transactions[1])) == ({"g": {t}}, 1)


def test_who_may_commit_in_a_transaction():
    """Kafka 4.3.1, OffsetMetadataManager.validateTransactionalOffsetCommit."""
    rig = GroupRig()
    assert commit_in_transaction(rig, {"t": 5}, generation_id=1, member_id="m") == [E.ILLEGAL_GENERATION]
    assert rig.shard.groups == {}
    assert commit_in_transaction(rig, {"t": 5, "u": 5}, metadata="m" * 5000) == [E.OFFSET_METADATA_TOO_LARGE] * 2
    assert rig.shard.groups == {}
    rig.fails = E.NOT_LEADER_OR_FOLLOWER
    assert commit_in_transaction(rig, {"t": 5}) == [E.NOT_COORDINATOR]
    assert (rig.shard.groups, rig.shard.offsets.unstable) == ({}, {})
    rig.fails = None
    rig.join(version=3)
    assert commit_in_transaction(rig, {"t": 5}) == [0]  # the state of the group does not matter
    assert commit_in_transaction(rig, {"t": 5}, generation_id=1, member_id="m") == [E.UNKNOWN_MEMBER_ID]
    [member_id] = rig.shard.groups["g"].members
    told = {"member_id": member_id, "generation_id": rig.shard.groups["g"].generation}
    assert commit_in_transaction(rig, {"t": 5}, **told) == [0]
    told["generation_id"] += 1
    assert commit_in_transaction(rig, {"t": 5}, **told) == [E.ILLEGAL_GENERATION]
    commit_in_transaction(rig, {"t": 5}, group="only")
    rig.carry_out(rig.shard.topics_deleted({Uuid.random(): "t"}, rig.now_ms))
    rig.shard.offsets.end_transaction(7, is_commit=True)
    assert rig.offsets() == {}
    assert rig.shard.offsets.committed == {}


def test_groups_of_other_protocols_are_left_alone():
    """Keys of record type 3, 11 and 17 in Kafka 4.3.1: groups of KIP-848, KIP-932, KIP-1071."""
    loader = Loader(TopicPartition("__consumer_offsets", 0))
    keys = [bytes((0, kind)) + b"\0\6modern" for kind in (3, 5, 11, 17)]
    data = build_records_batch([Record(b"\0\0\0\0\0\1", key) for key in keys], timestamp_ms=1)
    loader.add(RecordBatch(data))
    rig = GroupRig(loader.finish(0))
    assert rig.join(group="modern").error is E.INCONSISTENT_GROUP_PROTOCOL
    assert rig.commit_offsets({("t", 0): 1}, group="modern").response.topics[0].partitions[0].error_code == (
        E.UNKNOWN_MEMBER_ID
    )
    assert rig.delete("modern").response is E.NON_EMPTY_GROUP
    assert rig.log == []


@pytest.mark.parametrize(
    ("group", "epoch", "error"),
    [
        ("modern", 3, E.NOT_COORDINATOR),
        ("modern", -1, E.NOT_COORDINATOR),  # it leaves
        ("modern", 0, E.UNSUPPORTED_VERSION),
        ("unknown", 0, E.UNSUPPORTED_VERSION),
        ("unknown", 3, E.UNSUPPORTED_VERSION),
    ],
)
def test_members_of_kip_848_look_for_a_coordinator_and_who_joins_is_refused(group, epoch, error):
    """What they are told else ends them: Kafka 4.3.1, AbstractHeartbeatRequestManager, CommitRequestManager."""
    loader = Loader(TopicPartition("__consumer_offsets", 0))
    loader.add(RecordBatch(build_records_batch([Record(b"\0\0\0\0\0\1", b"\0\3\0\6modern")], timestamp_ms=1)))
    rig = GroupRig(loader.finish(0))
    asked = GroupRequest()
    request = ConsumerGroupHeartbeatRequest(group_id=group, member_id="m", member_epoch=epoch)
    rig.carry_out(rig.shard.consumer_heartbeat(request, Caller(asked, 1), rig.now_ms))
    assert asked.error is error
    if group == "modern" and epoch >= 0:
        told = rig.commit_offsets({("t", 0): 1}, "m", epoch, group=group).response
        assert told.topics[0].partitions[0].error_code == E.NOT_COORDINATOR
        assert commit_in_transaction(rig, {"t": 5}, group=group, generation_id=epoch, member_id="m") == [
            E.NOT_COORDINATOR
        ]
    assert rig.log == []


# --- parts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "number"), [("", 0), ("g", 3), ("console-consumer-1234", 9), ("gr\u00fc\u00dfe", 23), ("\U0001f600", 49)]
)
def test_groups_belong_to_the_partition_that_java_computes(name, number):
    assert partition_of(name, 50) == number


def test_timers_are_moved_cancelled_and_forgotten():
    timers, done = Timers(), []

    def at(name):
        return lambda now_ms, effects: done.append((name, now_ms))

    timers.set("a", 10, at("a"))
    timers.set("b", 20, at("b"))
    timers.set("a", 30, at("a later"))
    assert timers.due_ms() == 20
    timers.set("b", 5, at("b earlier"))
    timers.expire(4, ShardEffects())
    timers.expire(29, ShardEffects())
    assert done == [("b earlier", 29)]
    timers.set("c", 30, lambda now_ms, effects: timers.cancel("d"))
    timers.set("d", 31, at("d"))
    timers.expire(40, ShardEffects())
    assert done == [("b earlier", 29), ("a later", 40)]
    assert (len(timers), timers.due_ms()) == (0, None)
    for number in range(5000):
        timers.set(number, 1000 + number, at(number))
        timers.cancel(number)
    assert timers.entries < 1100


def test_a_leader_that_is_no_member_is_not_waited_for():
    rig = GroupRig()
    (a,) = rig.stable(1)
    rig.group().leader = "nobody"
    _, value = group_entry(rig.group(), {})
    assert b"nobody" in value
    assert read_group("g", value).leader == a
