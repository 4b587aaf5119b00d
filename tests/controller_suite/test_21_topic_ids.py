"""Section 21: topic ids (KIP-516) and DeleteTopics."""

from conformance.codec import ZERO_UUID
from controller_suite.metadata_log import shape
from controller_suite.topics_kit import OK, error, fresh, new_topic, said

UNKNOWN_NAME = ("UNKNOWN_TOPIC_OR_PARTITION", "This server does not host this topic-partition.")
UNKNOWN_ID = ("UNKNOWN_TOPIC_ID", "This server does not host this topic ID.")


def test_delete_by_name(w):
    """KIP-516: one RemoveTopic record with the id; the answer names topic and id; a second time it is unknown."""
    (a,) = w.up(1)
    t, i = w.topic([a], [a], retention_ms="5")
    (r,), log = w.did(w.delete, t)
    assert r == {"Name": t, "TopicId": i, "ErrorCode": 0, "ErrorMessage": None}
    assert shape(log) == ["RemoveTopic v0"] and log[0] == {"TopicId": i}
    (r,), log = w.did(w.delete, t)
    assert said(r) == UNKNOWN_NAME and r["TopicId"] == ZERO_UUID and log == []


def test_delete_by_id(w):
    """KIP-516, version 6: an id is enough; the answer tells the name."""
    (a,) = w.up(1)
    t, i = w.topic([a])
    (r,), log = w.did(w.delete, ("id", i))
    assert r == {"Name": t, "TopicId": i, "ErrorCode": 0, "ErrorMessage": None} and log == [{"TopicId": i}]
    assert error(w.delete(t)[0]) == "UNKNOWN_TOPIC_OR_PARTITION"


def test_a_recreated_topic_is_another_topic(w):
    """KIP-516: same name, new id; the old id is unknown to DeleteTopics and AlterPartition and harms nobody."""
    a, b = w.up(2)
    t, old = w.topic([a, b])
    w.delete(t)
    new = w.create(t, assign=[[a, b]])["TopicId"]
    assert new != old
    (r,), log = w.did(w.delete, ("id", old))
    assert said(r) == UNKNOWN_ID and (r["Name"], r["TopicId"]) == (None, old) and log == []
    (top, p), log = w.did(a.alter, old, [a], leader_epoch=0, partition_epoch=0)
    assert (top, error(p), log) == (0, "UNKNOWN_TOPIC_ID", [])
    assert p == {
        "PartitionIndex": 0,
        "ErrorCode": 100,
        "LeaderId": 0,
        "LeaderEpoch": 0,
        "Isr": [],
        "LeaderRecoveryState": 0,
        "PartitionEpoch": 0,
    }
    assert w.isr(a, new, [a])["Isr"] == [a.id]


def test_ids_are_random_and_not_reserved(w):
    """KIP-516: version 4 uuids, all different, none of the reserved ones, no text form that starts with '-'."""
    import base64

    w.up(1)
    ids = [r["TopicId"] for r in w.create_all([new_topic(fresh(), 1, 1) for _ in range(60)])]
    assert len(set(ids)) == 60 and not set(ids) & {ZERO_UUID, "AAAAAAAAAAAAAAAAAAAAAQ"}
    for i in ids:
        raw = base64.urlsafe_b64decode(i + "==")
        assert raw[6] >> 4 == 4 and raw[8] >> 6 == 2 and not i.startswith("-")


def test_name_and_id_together_or_neither(w):
    """Version 6: a topic is named or identified; both or none is INVALID_REQUEST."""
    (a,) = w.up(1)
    t, i = w.topic([a])
    (r,), log = w.did(w.delete, {"Name": t, "TopicId": i})
    assert (
        r
        == {
            "Name": t,
            "TopicId": i,
            "ErrorCode": 42,
            "ErrorMessage": "You may not specify both topic name and topic id.",
        }
        and log == []
    )
    (r,), log = w.did(w.delete, {"Name": None})
    assert (
        r
        == {
            "Name": None,
            "TopicId": ZERO_UUID,
            "ErrorCode": 42,
            "ErrorMessage": "Neither topic name nor id were specified.",
        }
        and log == []
    )


def test_a_name_given_twice(w):
    """A duplicate name is refused once and not deleted; others of the request are."""
    (a,) = w.up(1)
    (d, i), (t, j) = w.topic([a]), w.topic([a])
    rs, log = w.did(w.delete, d, t, d)
    assert {r["Name"]: said(r) for r in rs} == {d: ("INVALID_REQUEST", "Duplicate topic name."), t: OK} and len(rs) == 2
    assert log == [{"TopicId": j}] and w.part(i) is not None


def test_old_versions_delete_by_name(w):
    """Versions 1-4 answer with name and error only, 5 with a message."""
    (a,) = w.up(1)
    for v in (1, 3, 4):
        t, i = w.topic([a])
        assert w.did(w.delete, t, version=v) == ([{"Name": t, "ErrorCode": 0}], [{"TopicId": i}])
        assert w.delete(t, version=v) == [{"Name": t, "ErrorCode": 3}]
    assert w.delete("nobody", version=5) == [{"Name": "nobody", "ErrorCode": 3, "ErrorMessage": UNKNOWN_NAME[1]}]


def test_ids_survive_a_restart(ctl, w):
    """KIP-516: after SIGKILL and restart the topics have their ids, and partitions are known by them."""
    a, b = w.up(2)
    t, i = w.topic([a, b])
    gone, j = w.topic([a])
    w.delete(gone)
    ctl.restart()
    assert w.isr(a, i, [a])["Isr"] == [a.id]
    assert said(w.delete(("id", j))[0]) == UNKNOWN_ID
    assert error(w.create(t, 1, 1)) == "TOPIC_ALREADY_EXISTS"
    assert w.delete(t)[0]["TopicId"] == i
