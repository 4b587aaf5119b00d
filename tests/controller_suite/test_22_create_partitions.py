"""Section 22: CreatePartitions."""

from controller_suite.metadata_log import groups, shape
from controller_suite.topics_kit import OK, born, more, said


def test_growing_writes_the_new_partitions_only(lone):
    """One Partition record per new partition, with the topic's replication factor, in one batch."""
    a, b = lone.up(2)
    t, i = lone.topic([a, b])
    r, log = lone.did(lone.create_partitions, t, 4)
    assert r == {"Name": t, "ErrorCode": 0, "ErrorMessage": None}
    assert shape(log) == ["Partition v2"] * 3 and [p["PartitionId"] for p in log] == [1, 2, 3] and len(groups(log)) == 1
    by = {a.id: a, b.id: b}
    assert all(p == born(i, p["PartitionId"], [by[x] for x in p["Replicas"]]) and len(p["Replicas"]) == 2 for p in log)


def test_counts_that_are_no_increase(lone):
    """The same count or less is INVALID_PARTITIONS, with a message of its own for the same."""
    (a,) = lone.up(1)
    t, _i = lone.topic([a], [a])
    for n, why in (
        (2, "Topic already has 2 partition(s)."),
        (1, f"The topic {t} currently has 2 partition(s); 1 would not be an increase."),
    ):
        r, log = lone.did(lone.create_partitions, t, n)
        assert said(r) == ("INVALID_PARTITIONS", why) and log == []


def test_unknown_topic(lone):
    """UNKNOWN_TOPIC_OR_PARTITION, without a message."""
    lone.up(1)
    assert lone.did(lone.create_partitions, "nope", 3) == ({"Name": "nope", "ErrorCode": 3, "ErrorMessage": None}, [])


def test_manual_assignment(lone):
    """One replica list per added partition, in order."""
    a, b, c = lone.up(3)
    t, i = lone.topic([a, b])
    r, log = lone.did(lone.create_partitions, t, 3, [[c, a], [b, c]])
    assert said(r) == OK and log == [born(i, 1, [c, a]), born(i, 2, [b, c])]


def test_number_of_manual_assignments(lone):
    """Too few or too many lists: INVALID_REPLICA_ASSIGNMENT (with 'only' in both cases)."""
    a, b = lone.up(2)
    t, _i = lone.topic([a, b])
    for n, assign, why in (
        (3, [[a, b]], "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified."),
        (2, [[a, b], [b, a]], "Attempted to add 1 additional partition(s), but only 2 assignment(s) were specified."),
    ):
        r, log = lone.did(lone.create_partitions, t, n, assign)
        assert said(r) == ("INVALID_REPLICA_ASSIGNMENT", why) and log == []


def test_bad_manual_assignments(lone):
    """Unknown and duplicate brokers, and another replication factor than the topic's."""
    a, b = lone.up(2)
    t, _i = lone.topic([a, b])
    for assign, why in (
        ([[a, 77]], "broker 77, but no such broker is registered."),
        ([[a, a]], f"the broker {a.id} more than once."),
        (
            [[a]],
            "a partition with 1 replica(s), but this is not consistent with "
            "previous partitions, which have 2 replica(s).",
        ),
    ):
        r, log = lone.did(lone.create_partitions, t, 2, assign)
        assert (
            said(r) == ("INVALID_REPLICA_ASSIGNMENT", f"The manual partition assignment includes {why}") and log == []
        )


def test_validate_only(lone):
    """Success without a record; the count stays."""
    (a,) = lone.up(1)
    t, _i = lone.topic([a])
    assert lone.did(lone.create_partitions, t, 5, validate=True) == (
        {"Name": t, "ErrorCode": 0, "ErrorMessage": None},
        [],
    )
    assert said(lone.create_partitions(t, 1)) == ("INVALID_PARTITIONS", "Topic already has 1 partition(s).")


def test_duplicates(lone):
    """A topic named twice is refused once; others grow."""
    (a,) = lone.up(1)
    (t, _i), (u, j) = lone.topic([a]), lone.topic([a])
    rs, log = lone.did(lone.create_partitions_all, [more(t, 2), more(u, 2), more(t, 3)])
    assert {r["Name"]: said(r) for r in rs} == {t: ("INVALID_REQUEST", "Duplicate topic name."), u: OK} and len(rs) == 2
    assert log == [born(j, 1, [a])]
