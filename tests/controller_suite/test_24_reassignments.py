"""Section 24: AlterPartitionReassignments, ListPartitionReassignments (KIP-455)."""

from controller_suite.metadata_log import shape
from controller_suite.topics_kit import OK, PREFERRED, changes, dirs, elected, error, ints, said

DONE = {"RemovingReplicas": [], "AddingReplicas": []}


def test_start(w):
    """One PartitionChange: the targets, then the replicas to be removed; nothing else changes. The list shows it."""
    a, b, c, d = w.up(4)
    t, i = w.topic([a, b])
    r, log = w.did(w.reassign_all, [(t, [(0, [c, d])])])
    assert r == {
        "ThrottleTimeMs": 0,
        "AllowReplicationFactorChange": True,
        "ErrorCode": 0,
        "ErrorMessage": None,
        "Responses": [{"Name": t, "Partitions": [{"PartitionIndex": 0, "ErrorCode": 0, "ErrorMessage": None}]}],
    }
    ids = ints([c, d, a, b])
    assert shape(log) == ["PartitionChange v2"]
    assert changes(log) == {
        (i, 0): {
            "Replicas": ids,
            "AddingReplicas": ids[:2],
            "RemovingReplicas": ids[2:],
            "Directories": dirs(c, d, a, b),
        }
    }
    assert w.reassignments() == w.reassignments({t: [0]}) == {(t, 0): (ids, ids[:2], ids[2:])}


def test_progress_and_completion(w):
    """AlterPartition brings the targets in one by one; with the last of them the controller completes.

    The leader that is no longer a replica is told NEW_LEADER_ELECTED, the first target leads.
    """
    a, b, c, d = w.up(4)
    t, i = w.topic([a, b])
    w.reassign(t, [c, d])
    _, log = w.did(w.isr, a, i, [a, b, c])
    assert changes(log) == {(i, 0): {"Isr": ints([a, b, c])}}
    epoch = w.part(i)["LeaderEpoch"]
    (top, p), log = w.did(a.alter, i, [a, b, c, d])
    assert (top, error(p)) == (0, "NEW_LEADER_ELECTED")
    assert changes(log) == {
        (i, 0): {"Isr": ints([c, d]), "Leader": c.id, "Replicas": ints([c, d]), "Directories": dirs(c, d), **DONE}
    }
    assert w.part(i)["LeaderEpoch"] == epoch + 1 and w.reassignments() == {}


def test_leader_that_stays(w):
    """If the leader is among the targets, completion keeps it.

    AlterPartition succeeds, and the leader epoch rises since replicas went.
    """
    a, b, c = w.up(3)
    t, i = w.topic([a, b])
    w.reassign(t, [a, c])
    epoch = w.part(i)["LeaderEpoch"]
    p, log = w.did(w.isr, a, i, [a, b, c])
    assert changes(log) == {
        (i, 0): {"Isr": ints([a, c]), "Leader": a.id, "Replicas": ints([a, c]), "Directories": dirs(a, c), **DONE}
    }
    assert (p["LeaderId"], p["LeaderEpoch"], p["Isr"]) == (a.id, epoch + 1, ints([a, c])) and w.reassignments() == {}


def test_cancel(w):
    """Null replicas: back to the replicas before, adding and removing lists emptied, leader epoch raised."""
    a, b, c, d = w.up(4)
    t, i = w.topic([a, b])
    w.reassign(t, [c, d])
    r, log = w.did(w.reassign, t, None)
    assert r == {"PartitionIndex": 0, "ErrorCode": 0, "ErrorMessage": None}
    assert changes(log) == {(i, 0): {"Leader": a.id, "Replicas": ints([a, b]), "Directories": dirs(a, b), **DONE}}
    assert w.part(i)["Isr"] == ints([a, b]) and w.reassignments() == {}


def test_nothing_to_cancel(w):
    """NO_REASSIGNMENT_IN_PROGRESS, without a message."""
    (a,) = w.up(1)
    t, _i = w.topic([a])
    assert w.did(w.reassign, t, None) == ({"PartitionIndex": 0, "ErrorCode": 85, "ErrorMessage": None}, [])


def test_reorder(w):
    """The same replicas in another order: done at once, the leader stays, the preferred leader is another one."""
    a, b = w.up(2)
    t, i = w.topic([a, b])
    r, log = w.did(w.reassign, t, [b, a])
    assert (
        said(r) == OK
        and changes(log) == {(i, 0): {"Replicas": ints([b, a]), "Directories": dirs(b, a)}}
        and w.reassignments() == {}
    )
    assert elected(w.elect(PREFERRED, {t: [0]})) == {(t, 0): OK} and w.part(i)["Leader"] == b.id


def test_same_replicas_again(w):
    """Nothing to do: success and no record, nothing in progress."""
    a, b = w.up(2)
    t, i = w.topic([a, b])
    assert (
        w.did(w.reassign, t, [a, b]) == ({"PartitionIndex": 0, "ErrorCode": 0, "ErrorMessage": None}, [])
        and w.reassignments() == {}
    )
    assert list(changes(w.did(w.reassign, t, [b, a])[1])) == [(i, 0)]


def test_bad_targets(w):
    """Unknown and duplicate brokers and an empty list: INVALID_REPLICA_ASSIGNMENT, nothing written."""
    a, b = w.up(2)
    t, _i = w.topic([a, b])
    for to, why in (
        ([a, 77], "broker 77, but no such broker is registered."),
        ([b, b], f"the broker {b.id} more than once."),
        ([], "an empty replica list."),
    ):
        r, log = w.did(w.reassign, t, to)
        assert (
            said(r) == ("INVALID_REPLICA_ASSIGNMENT", f"The manual partition assignment includes {why}") and log == []
        )


def test_unknown_topics_and_partitions(w):
    """UNKNOWN_TOPIC_OR_PARTITION each; the good partition of the same request is started."""
    a, b = w.up(2)
    t, i = w.topic([a])
    r, log = w.did(w.reassign_all, [("nope", [(0, [a])]), (t, [(5, [b]), (0, [b])])])
    assert (r["ErrorCode"], r["ErrorMessage"]) == (0, None)
    assert {(x["Name"], p["PartitionIndex"]): said(p) for x in r["Responses"] for p in x["Partitions"]} == {
        ("nope", 0): ("UNKNOWN_TOPIC_OR_PARTITION", "Unable to find a topic named nope."),
        (t, 5): ("UNKNOWN_TOPIC_OR_PARTITION", f"Unable to find partition {t}:5."),
        (t, 0): OK,
    }
    assert list(changes(log)) == [(i, 0)]


def test_fewer_replicas(w):
    """Only removals: nothing to wait for. The leader goes with them if it must; the rest of the ISR stays."""
    a, b, c = w.up(3)
    t, i = w.topic([a, b, c])
    r, log = w.did(w.reassign, t, [b, c])
    assert said(r) == OK and w.reassignments() == {}
    assert changes(log) == {
        (i, 0): {"Isr": ints([b, c]), "Leader": b.id, "Replicas": ints([b, c]), "Directories": dirs(b, c)}
    }


def test_factor_must_not_change(w):
    """AllowReplicationFactorChange=false (version 1).

    Another number of replicas is INVALID_REPLICATION_FACTOR, the same number is fine.
    """
    a, b, c = w.up(3)
    t, _i = w.topic([a, b])
    for to in ([a, b, c], [a]):
        r, log = w.did(w.reassign, t, to, rf_change=False)
        assert (
            said(r) == ("INVALID_REPLICATION_FACTOR", f"The replication factor is changed from 2 to {len(to)}")
            and log == []
        )
    r = w.reassign_all([(t, [(0, [a, c])])], rf_change=False)
    assert r["AllowReplicationFactorChange"] is False and said(r["Responses"][0]["Partitions"][0]) == OK


def test_list_of_others(w):
    """Topics and partitions without reassignment, known or not, are just left out."""
    a, b = w.up(2)
    t, _i = w.topic([a], [a])
    w.reassign(t, [b], index=1)
    assert w.reassignments({t: [0], "nope": [0]}) == {}
    assert w.reassignments({t: [0, 1]}) == {(t, 1): (ints([b, a]), [b.id], [a.id])}
