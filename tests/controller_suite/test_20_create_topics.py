"""Section 20: CreateTopics."""

from collections import Counter

from conformance.codec import ZERO_UUID
from controller_suite.metadata_log import groups, shape
from controller_suite.topics_kit import OK, TOPIC, born, configs, error, fresh, new_topic, said

BAD = "contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"


def test_a_new_topic_is_one_batch_of_topic_configs_and_partitions(lone):
    """CreateTopics writes Topic, Config..., Partition... in one batch; leader is the first replica, epochs are 0."""
    a, b, c = lone.up(3)
    t = fresh()
    r, log = lone.did(
        lone.create, t, assign=[[a, b, c], [c, a, b]], configs={"retention.ms": "1000", "segment.ms": "2000"}
    )
    assert (
        shape(log) == ["Topic v0", "Config v0", "Config v0", "Partition v2", "Partition v2"] and len(groups(log)) == 1
    )
    assert log[0] == {"Name": t, "TopicId": r["TopicId"]} and r["TopicId"] != ZERO_UUID
    assert configs(log) == {(TOPIC, t, "retention.ms", "1000"), (TOPIC, t, "segment.ms", "2000")}
    assert log[3:] == [born(r["TopicId"], 0, [a, b, c]), born(r["TopicId"], 1, [c, a, b])]


def test_answer_of_version_7(lone):
    """Version 7: id, partitions, replication factor and all configs of the topic, sorted by name, with sources."""
    _a, _b = lone.up(2)
    r = lone.create(fresh(), 3, 2, configs={"cleanup.policy": "compact"})
    assert (said(r), r["NumPartitions"], r["ReplicationFactor"], r["TopicConfigErrorCode"]) == (OK, 3, 2, 0)
    assert r["Configs"][0] == {
        "Name": "cleanup.policy",
        "Value": "compact",
        "ReadOnly": False,
        "ConfigSource": 1,
        "IsSensitive": False,
    }
    by = {c["Name"]: (c["Value"], c["ConfigSource"]) for c in r["Configs"]}
    assert [c["Name"] for c in r["Configs"]] == sorted(by) and len(by) == 33
    assert by["retention.ms"] == ("604800000", 5) and by["min.insync.replicas"] == (
        "1",
        3,
    )  # written by the first leader: cluster default


def test_older_versions_answer_less(lone):
    """Versions 2-4: name and error; 5 and 6: partitions, factor, configs; the id only from version 7.

    -1 means the default from version 2 on.
    """
    lone.up(1)
    for v in (2, 3, 4):
        r, log = lone.did(lone.create, fresh(), -1, -1, version=v)
        assert (
            set(r) == {"Name", "ErrorCode", "ErrorMessage"}
            and said(r) == OK
            and shape(log) == ["Topic v0", "Partition v2"]
        )
    for v in (5, 6):
        r = lone.create(fresh(), 2, 1, version=v)
        assert "TopicId" not in r and (r["NumPartitions"], r["ReplicationFactor"], len(r["Configs"])) == (2, 1, 33)


def test_illegal_names(lone):
    """INVALID_TOPIC_EXCEPTION with the reason; 249 characters are allowed, 250 are not."""
    lone.up(1)
    for name, why in (
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("a b", f"'a b' {BAD}"),
        ("a/b", f"'a/b' {BAD}"),
        ("t" * 250, f"the length of '{'t' * 250}' is longer than the max allowed length 249"),
    ):
        r, log = lone.did(lone.create, name, 1, 1)
        assert said(r) == ("INVALID_TOPIC_EXCEPTION", f"Topic name is invalid: {why}") and log == []
        assert (r["Name"], r["TopicId"], r["NumPartitions"], r["ReplicationFactor"], r["Configs"]) == (
            name,
            ZERO_UUID,
            -1,
            -1,
            [],
        )
    assert said(lone.create("t" * 249, 1, 1)) == OK


def test_names_that_collide(lone):
    """'.' and '_' are the same in metric names: a topic that differs only there is refused while the other exists."""
    lone.up(1)
    assert said(lone.create("col.li.de", 1, 1)) == OK
    r, log = lone.did(lone.create, "col_li.de", 1, 1)
    assert (
        said(r) == ("INVALID_TOPIC_EXCEPTION", "Topic 'col_li.de' collides with existing topic: col.li.de")
        and log == []
    )
    lone.delete("col.li.de")
    assert said(lone.create("col_li.de", 1, 1)) == OK


def test_existing_topic(lone):
    """TOPIC_ALREADY_EXISTS, nothing written, and no id is given away."""
    (a,) = lone.up(1)
    t, _i = lone.topic([a])
    r, log = lone.did(lone.create, t, 1, 1)
    assert (
        said(r) == ("TOPIC_ALREADY_EXISTS", f"Topic '{t}' already exists.") and r["TopicId"] == ZERO_UUID and log == []
    )


def test_the_metadata_topic_cannot_be_created(lone):
    """`__cluster_metadata` is refused as INVALID_REQUEST; other internal names may be created."""
    lone.up(1)
    r, log = lone.did(lone.create, "__cluster_metadata", 1, 1)
    assert said(r) == ("INVALID_REQUEST", "Creation of internal topic __cluster_metadata is prohibited.") and log == []
    assert said(lone.create("__consumer_offsets", 1, 1)) == OK


def test_numbers_of_partitions_and_replicas(lone):
    """0 partitions: INVALID_PARTITIONS; 0 replicas or more than there are brokers: INVALID_REPLICATION_FACTOR."""
    lone.up(2)
    for n, rf, want in (
        (0, 1, ("INVALID_PARTITIONS", "Number of partitions was set to an invalid non-positive value.")),
        (
            1,
            0,
            ("INVALID_REPLICATION_FACTOR", "Replication factor must be larger than 0, or -1 to use the default value."),
        ),
        (
            1,
            3,
            (
                "INVALID_REPLICATION_FACTOR",
                "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached "
                "because only 2 broker(s) are registered or some brokers have all their log directories cordoned.",
            ),
        ),
    ):
        r, log = lone.did(lone.create, fresh(), n, rf)
        assert said(r) == want and log == []


def test_bad_manual_assignments(lone):
    """Duplicate and unknown brokers and uneven sizes: INVALID_REPLICA_ASSIGNMENT; a partition count beside it.

    INVALID_REQUEST.
    """
    a, b = lone.up(2)
    why = "The manual partition assignment includes "
    for assign, kw, want in (
        ([[a, a]], {}, ("INVALID_REPLICA_ASSIGNMENT", f"{why}the broker {a.id} more than once.")),
        ([[a, 77]], {}, ("INVALID_REPLICA_ASSIGNMENT", f"{why}broker 77, but no such broker is registered.")),
        (
            [[a, b], [b]],
            {},
            (
                "INVALID_REPLICA_ASSIGNMENT",
                f"{why}a partition with 1 replica(s), but this is not consistent with "
                "previous partitions, which have 2 replica(s).",
            ),
        ),
        (
            [[a]],
            {"n": 1},
            ("INVALID_REQUEST", "A manual partition assignment was specified, but numPartitions was not set to -1."),
        ),
    ):
        r, log = lone.did(lone.create, fresh(), assign=assign, **kw)
        assert said(r) == want and log == []


def test_fenced_broker_in_a_manual_assignment(lone):
    """KIP-841: a fenced broker may be a replica, but is neither in the ISR nor leader."""
    a, b = lone.up(2)
    f = lone.fenced()
    t = fresh()
    r, log = lone.did(lone.create, t, assign=[[f, b, a], [a, f, b]])
    assert said(r) == OK
    assert log[1:] == [born(r["TopicId"], 0, [f, b, a], [b, a]), born(r["TopicId"], 1, [a, f, b], [a, b])]


def test_bad_configs(lone):
    """An unknown name or a value of the wrong type is INVALID_CONFIG; the topic is not created."""
    lone.up(1)
    for values, why in (
        ({"no.such.key": "1"}, "Unknown topic config name: no.such.key"),
        ({"retention.ms": "abc"}, "Invalid value abc for configuration retention.ms: Not a number of type LONG"),
        (
            {"min.insync.replicas": "0"},
            "Invalid value 0 for configuration min.insync.replicas: Value must be at least 1",
        ),
        (
            {"retention.ms": "5", "compression.type": "zip"},
            "Invalid value zip for configuration compression.type: String must be one of: "
            "uncompressed, zstd, lz4, snappy, gzip, producer",
        ),
    ):
        t = fresh()
        r, log = lone.did(lone.create, t, 1, 1, configs=values)
        assert said(r) == ("INVALID_CONFIG", why) and log == []
        assert said(lone.create(t, 1, 1)) == OK


def test_validate_only_writes_nothing(lone):
    """The answer looks like success, with an id even, but nothing is written and the topic does not exist."""
    _a, _b = lone.up(2)
    t = fresh()
    r, log = lone.did(lone.create, t, 4, 2, configs={"retention.ms": "9"}, validate=True)
    assert (said(r), r["NumPartitions"], r["ReplicationFactor"]) == (OK, 4, 2) and log == []
    assert {c["Name"]: c["Value"] for c in r["Configs"]}["retention.ms"] == "9"
    assert error(lone.delete(t)[0]) == "UNKNOWN_TOPIC_OR_PARTITION"


def test_duplicates_in_one_request(lone):
    """A name given twice fails once as INVALID_REQUEST; the other topics of the request are created."""
    lone.up(1)
    d, t = fresh("dup"), fresh()
    rs, log = lone.did(lone.create_all, [new_topic(d, 1, 1), new_topic(t, 1, 1), new_topic(d, 2, 1)])
    assert sorted((r["Name"], *said(r)) for r in rs) == sorted(
        [(d, "INVALID_REQUEST", "Duplicate topic name."), (t, *OK)]
    )
    assert [r["Name"] for r in log if r.kind == "Topic"] == [t]


def test_some_topics_fail_and_the_rest_is_one_batch(lone):
    """Each topic of a request succeeds or fails on its own; those that succeed are written together."""
    a, b = lone.up(2)
    good1, bad, good2, old = fresh(), fresh(), fresh(), lone.topic([a])[0]
    rs, log = lone.did(
        lone.create_all,
        [new_topic(good1, 1, 2), new_topic(bad, 1, 9), new_topic(good2, assign=[[b]]), new_topic(old, 1, 1)],
    )
    assert {r["Name"]: error(r) for r in rs} == {
        good1: "NONE",
        bad: "INVALID_REPLICATION_FACTOR",
        good2: "NONE",
        old: "TOPIC_ALREADY_EXISTS",
    }
    assert shape(log) == ["Topic v0", "Partition v2"] * 2 and len(groups(log)) == 1
    assert [r["Name"] for r in log if r.kind == "Topic"] == [good1, good2]


def test_more_than_10000_partitions(lone):
    """More than 10,000 partitions in one request: POLICY_VIOLATION, nothing written."""
    lone.up(1)
    r, log = lone.did(lone.create, fresh(), 10_001, 1)
    assert said(r) == ("POLICY_VIOLATION", "Excessively large number of partitions per request.") and log == []


def test_no_time_to_do_it(lone):
    """TimeoutMs 0: REQUEST_TIMED_OUT, and the topic is not created."""
    lone.up(1)
    t = fresh()
    r, log = lone.did(lone.create, t, 1, 1, timeout=0)
    assert (said(r), r["TopicId"]) == (("REQUEST_TIMED_OUT", None), ZERO_UUID) and log == []
    assert said(lone.create(t, 1, 1)) == OK


def test_replicas_are_spread_over_racks(lone):
    """As many replicas as racks: every partition has one in each rack.

    Replicas and leaders are even over the brokers.
    """
    bs = lone.up(6, racks=["x", "x", "y", "y", "z", "z"])
    rack = {b.id: b.rack for b in bs}
    i = lone.create(fresh(), 12, 3)["TopicId"]
    parts = [lone.part(i, k) for k in range(12)]
    for p in parts:
        assert (
            sorted(rack[r] for r in p["Replicas"]) == ["x", "y", "z"]
            and p["Isr"] == p["Replicas"]
            and p["Leader"] == p["Replicas"][0]
        )
    assert Counter(r for p in parts for r in p["Replicas"]) == {b.id: 6 for b in bs}
    assert Counter(p["Leader"] for p in parts) == {b.id: 2 for b in bs}
