"""Section 25: IncrementalAlterConfigs, AlterConfigs, DescribeConfigs."""

from controller_suite.metadata_log import groups, shape
from controller_suite.topics_kit import (
    APPEND,
    BROKER,
    CLIENT_METRICS,
    DELETE,
    GROUP,
    OK,
    SET,
    SUBTRACT,
    TOPIC,
    change,
    configs,
    error,
    fresh,
    said,
)

POLICY, RETENTION = "cleanup.policy", "retention.ms"


def test_set_and_delete(w):
    """One Config record per change, null for DELETE; a change that changes nothing writes nothing."""
    (a,) = w.up(1)
    t, _ = w.topic([a])
    for op, value, wrote in (
        (SET, "10", "10"),
        (SET, "10", None),
        (SET, "11", "11"),
        (DELETE, None, "gone"),
        (DELETE, None, None),
    ):
        r, log = w.did(w.configure, TOPIC, t, (RETENTION, op, value))
        assert r == {"ErrorCode": 0, "ErrorMessage": None, "ResourceType": TOPIC, "ResourceName": t}
        assert configs(log) == (
            {(TOPIC, t, RETENTION, None if wrote == "gone" else wrote)} if wrote else set()
        ) and len(log) == bool(wrote)


def test_append_and_subtract(w):
    """KIP-339: lists grow from the default value.

    What is there is not added twice, what is not there is not removed.
    """
    (a,) = w.up(1)
    t, _ = w.topic([a])
    for op, value, wrote in (
        (APPEND, "compact", "delete,compact"),
        (APPEND, "compact", None),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "delete", None),
    ):
        r, log = w.did(w.configure, TOPIC, t, (POLICY, op, value))
        assert said(r) == OK and configs(log) == ({(TOPIC, t, POLICY, wrote)} if wrote else set())


def test_lists_only(w):
    """APPEND and SUBTRACT to a key that is no list: INVALID_CONFIG."""
    (a,) = w.up(1)
    t, _ = w.topic([a])
    for op, word in ((APPEND, "APPEND"), (SUBTRACT, "SUBTRACT")):
        r, log = w.did(w.configure, TOPIC, t, (RETENTION, op, "1"))
        assert (
            said(r) == ("INVALID_CONFIG", f"Can't {word} to key {RETENTION} because its type is not LIST.")
            and log == []
        )


def test_one_bad_value_spoils_the_resource(w):
    """Unknown key or bad value: INVALID_CONFIG, and nothing of that resource is written."""
    (a,) = w.up(1)
    t, _ = w.topic([a])
    for key, value, why in (
        ("foo", "1", "Unknown topic config name: foo"),
        ("segment.bytes", "x", "Invalid value x for configuration segment.bytes: Not a number of type INT"),
    ):
        r, log = w.did(w.configure, TOPIC, t, (RETENTION, SET, "5"), (key, SET, value))
        assert said(r) == ("INVALID_CONFIG", why) and log == []


def test_topics_that_are_none(w):
    """Unknown: UNKNOWN_TOPIC_OR_PARTITION; impossible name: INVALID_TOPIC_EXCEPTION; there is no default topic.

    INVALID_REQUEST.
    """
    w.up(1)
    for name, want in (
        ("nope", ("UNKNOWN_TOPIC_OR_PARTITION", "The topic 'nope' does not exist.")),
        ("__cluster_metadata", ("UNKNOWN_TOPIC_OR_PARTITION", "The topic '__cluster_metadata' does not exist.")),
        (
            "a b",
            (
                "INVALID_TOPIC_EXCEPTION",
                "Topic name is invalid: 'a b' contains one or more characters other than "
                "ASCII alphanumerics, '.', '_' and '-'",
            ),
        ),
        ("", ("INVALID_REQUEST", "Default topic resources are not allowed.")),
    ):
        r, log = w.did(w.configure, TOPIC, name, (RETENTION, SET, "5"))
        assert said(r) == want and (r["ResourceType"], r["ResourceName"]) == (TOPIC, name) and log == []


def test_each_resource_on_its_own(w):
    """A failing resource does not keep the others from being changed; they are one batch."""
    (a,) = w.up(1)
    (t, _), (u, _) = w.topic([a]), w.topic([a])
    rs, log = w.did(
        w.configure_all,
        [
            change(TOPIC, t, (RETENTION, SET, "1")),
            change(TOPIC, "nope", (RETENTION, SET, "1")),
            change(BROKER, a.id, ("log.cleaner.threads", SET, "2")),
            change(TOPIC, u, (RETENTION, SET, "3")),
        ],
    )
    assert {(r["ResourceType"], r["ResourceName"]): error(r) for r in rs} == {
        (TOPIC, t): "NONE",
        (TOPIC, "nope"): "UNKNOWN_TOPIC_OR_PARTITION",
        (BROKER, str(a.id)): "NONE",
        (TOPIC, u): "NONE",
    }
    assert configs(log) == {
        (TOPIC, t, RETENTION, "1"),
        (BROKER, str(a.id), "log.cleaner.threads", "2"),
        (TOPIC, u, RETENTION, "3"),
    }
    assert len(groups(log)) == 1


def test_validate_only(w):
    """Same errors, no record."""
    (a,) = w.up(1)
    t, _ = w.topic([a])
    assert [said(r) for r in w.did(w.configure_all, [change(TOPIC, t, (RETENTION, SET, "9"))], validate=True)[0]] == [
        OK
    ]
    r, log = w.did(w.configure, TOPIC, t, (RETENTION, SET, "z"), validate=True)
    assert error(r) == "INVALID_CONFIG" and log == [] and w.value(TOPIC, t, RETENTION) == "604800000"


def test_broker_and_cluster_configs(w):
    """A registered broker, or '' for all; another id is BROKER_ID_NOT_REGISTERED."""
    (a,) = w.up(1)
    for name in (str(a.id), ""):
        r, log = w.did(w.configure, BROKER, name, ("log.cleaner.threads", SET, "3"))
        assert said(r) == OK and configs(log) == {(BROKER, name, "log.cleaner.threads", "3")}
        r, log = w.did(w.configure, BROKER, name, ("log.cleaner.threads", DELETE, None))
        assert configs(log) == {(BROKER, name, "log.cleaner.threads", None)}
    r, log = w.did(w.configure, BROKER, 777, ("log.cleaner.threads", SET, "3"))
    assert said(r) == ("BROKER_ID_NOT_REGISTERED", "No node with id 777 found.") and log == []


def test_broker_values_are_the_brokers_business(w):
    """4.3.1's controller does not look at names and values of broker configs (the broker that forwards them does).

    Anything is stored.
    """
    (a,) = w.up(1)
    r, log = w.did(
        w.configure,
        BROKER,
        a.id,
        ("log.cleaner.threads", SET, "many"),
        ("no.such.key", SET, "1"),
        ("node.id", SET, "7"),
    )
    assert said(r) == OK and {(n, v) for _, _, n, v in configs(log)} == {
        ("log.cleaner.threads", "many"),
        ("no.such.key", "1"),
        ("node.id", "7"),
    }


def test_alter_configs_replaces_everything(w):
    """Legacy AlterConfigs: what is not named is deleted; what is the same is not written."""
    (a,) = w.up(1)
    t, _ = w.topic([a], retention_ms="5", segment_ms="6", flush_ms="7")
    r, log = w.did(w.legacy, TOPIC, t, {"segment.ms": "6", "flush.ms": "8"})
    assert r == {"ErrorCode": 0, "ErrorMessage": None, "ResourceType": TOPIC, "ResourceName": t}
    assert configs(log) == {(TOPIC, t, "flush.ms", "8"), (TOPIC, t, RETENTION, None)} and len(groups(log)) == 1
    assert w.did(w.legacy, TOPIC, t, {"segment.ms": "6", "flush.ms": "8"})[1] == []
    assert error(w.legacy(TOPIC, t, {"flush.ms": "x"})) == "INVALID_CONFIG"
    _, log = w.did(w.legacy, TOPIC, t, {})
    assert configs(log) == {(TOPIC, t, "segment.ms", None), (TOPIC, t, "flush.ms", None)}


def test_client_metrics_subscription(w):
    """KIP-714: resource type 16, by subscription name; unknown keys are INVALID_REQUEST."""
    s = fresh("sub")
    r, log = w.did(w.configure, CLIENT_METRICS, s, ("interval.ms", SET, "60000"), ("match", SET, "client_id=x.*"))
    assert said(r) == OK and configs(log) == {
        (CLIENT_METRICS, s, "interval.ms", "60000"),
        (CLIENT_METRICS, s, "match", "client_id=x.*"),
    }
    r, log = w.did(w.configure, CLIENT_METRICS, s, ("foo", SET, "1"))
    assert said(r) == ("INVALID_REQUEST", "Unknown client metrics configuration: foo") and log == []
    _, log = w.did(w.configure, CLIENT_METRICS, s, ("interval.ms", DELETE, None), ("match", DELETE, None))
    assert configs(log) == {(CLIENT_METRICS, s, "interval.ms", None), (CLIENT_METRICS, s, "match", None)}


def test_group_configs(w):
    """KIP-848: resource type 32, by group id; the group need not exist; unknown keys are INVALID_CONFIG."""
    g = fresh("group")
    r, log = w.did(w.configure, GROUP, g, ("consumer.session.timeout.ms", SET, "50000"))
    assert said(r) == OK and configs(log) == {(GROUP, g, "consumer.session.timeout.ms", "50000")}
    r, log = w.did(w.configure, GROUP, g, ("foo", SET, "1"))
    assert said(r) == ("INVALID_CONFIG", "Unknown group config name: foo") and log == []
    _, log = w.did(w.configure, GROUP, g, ("consumer.session.timeout.ms", DELETE, None))
    assert configs(log) == {(GROUP, g, "consumer.session.timeout.ms", None)}


def test_min_insync_replicas_clears_the_elr(worn):
    """KIP-966: changing the topic's min.insync.replicas is followed by ClearElr for the topic.

    That is a change of its partitions that have an ELR, so their partition epoch rises.
    """
    a, b = worn.up(2)
    t, i = worn.topic([a, b], min_insync_replicas="2")
    assert worn.isr(a, i, [a])["PartitionEpoch"] == 1 and worn.part(i)["EligibleLeaderReplicas"] == [b.id]
    _r, log = worn.did(worn.configure, TOPIC, t, ("min.insync.replicas", SET, "1"))
    assert shape(log) == ["Config v0", "ClearElr v0"] and log[1] == {"TopicName": t} and len(groups(log)) == 1
    assert error(a.alter(i, [a, b], partition_epoch=1)[1]) == "INVALID_UPDATE_VERSION"
    assert worn.isr(a, i, [a, b], partition_epoch=2)["PartitionEpoch"] == 3


def test_describe_topic(w):
    """A controller answers DescribeConfigs from its metadata.

    Value, source (1 topic, 3 cluster default, 5 built in) and type.
    """
    (a,) = w.up(1)
    t, _ = w.topic([a], retention_ms="42")
    r = w.describe(TOPIC, t, [RETENTION, "min.insync.replicas", "segment.bytes"])
    assert error(r) == "NONE" and (r["ResourceType"], r["ResourceName"]) == (TOPIC, t)
    assert {
        c["Name"]: (c["Value"], c["ConfigSource"], c["ReadOnly"], c["IsSensitive"], c["ConfigType"])
        for c in r["Configs"]
    } == {
        RETENTION: ("42", 1, False, False, 5),
        "min.insync.replicas": ("1", 3, False, False, 3),
        "segment.bytes": ("1073741824", 5, False, False, 3),
    }
    assert len(w.describe(TOPIC, t)["Configs"]) == 33
    assert error(w.describe(TOPIC, "nope")) == "UNKNOWN_TOPIC_OR_PARTITION"
