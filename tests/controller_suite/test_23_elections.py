"""Section 23: ElectLeaders (KIP-460)."""

from controller_suite.metadata_log import shape
from controller_suite.topics_kit import OK, PREFERRED, UNCLEAN, changes, elected, error

NOT_NEEDED = ("ELECTION_NOT_NEEDED", "Leader election not needed for topic partition.")
NO_PREFERRED = ("PREFERRED_LEADER_NOT_AVAILABLE", "The preferred leader was not available.")
NO_ELIGIBLE = ("ELIGIBLE_LEADERS_NOT_AVAILABLE", "Eligible topic partition leaders are not available.")


def test_preferred_leader_takes_over(w):
    """KIP-460: the first replica leads again when it is back in the ISR; only the leader changes, both epochs rise."""
    a, b = w.up(2)
    t, i = w.topic([a, b])
    a.fence()
    a.unfence()
    w.isr(b, i, [b, a])
    before = w.part(i)
    r, log = w.did(w.elect, PREFERRED, {t: [0]})
    assert r == {
        "ThrottleTimeMs": 0,
        "ErrorCode": 0,
        "ReplicaElectionResults": [
            {"Topic": t, "PartitionResult": [{"PartitionId": 0, "ErrorCode": 0, "ErrorMessage": None}]}
        ],
    }
    assert shape(log) == ["PartitionChange v2"] and changes(log) == {(i, 0): {"Leader": a.id}}
    after = w.part(i)
    assert (after["LeaderEpoch"], after["PartitionEpoch"]) == (before["LeaderEpoch"] + 1, before["PartitionEpoch"] + 1)
    assert (
        w.isr(a, i, [a], leader_epoch=after["LeaderEpoch"], partition_epoch=after["PartitionEpoch"])["LeaderId"] == a.id
    )


def test_preferred_leads_already(w):
    """ELECTION_NOT_NEEDED for partitions asked for by name."""
    a, b = w.up(2)
    t, _i = w.topic([a, b], [b, a])
    r, log = w.did(w.elect, PREFERRED, {t: [0, 1]})
    assert elected(r) == {(t, 0): NOT_NEEDED, (t, 1): NOT_NEEDED} and log == []


def test_preferred_is_fenced_or_out_of_sync(w):
    """PREFERRED_LEADER_NOT_AVAILABLE while the first replica is fenced, and after that until it is in the ISR."""
    a, b = w.up(2)
    t, _i = w.topic([a, b])
    a.fence()
    for back in (False, True):
        if back:
            a.unfence()
        r, log = w.did(w.elect, PREFERRED, {t: [0]})
        assert elected(r) == {(t, 0): NO_PREFERRED} and log == []


def test_unknown_topics_and_partitions(w):
    """UNKNOWN_TOPIC_OR_PARTITION for each, and the rest of the request is done."""
    a, b = w.up(2)
    t, _i = w.topic([a, b], [a, b])
    r, log = w.did(w.elect, PREFERRED, {t: [0, 7], "nope": [0, 1]})
    assert (
        elected(r)
        == {
            (t, 0): NOT_NEEDED,
            (t, 7): ("UNKNOWN_TOPIC_OR_PARTITION", f"No such partition as {t}-7"),
            ("nope", 0): ("UNKNOWN_TOPIC_OR_PARTITION", "No such topic as nope"),
            ("nope", 1): ("UNKNOWN_TOPIC_OR_PARTITION", "No such topic as nope"),
        }
        and log == []
    )


def test_all_partitions(w):
    """KIP-460: null means all; partitions that need no election are left out of the answer."""
    a, b, c = w.up(3)
    t, i = w.topic([a, b], [b, a], [c, b])
    u, _j = w.topic([a, c])
    a.fence()
    a.unfence()
    w.isr(b, i, [b, a], 0)
    c.fence()
    r, log = w.did(w.elect, PREFERRED, None)
    assert elected(r) == {(t, 0): OK, (t, 2): NO_PREFERRED, (u, 0): NO_PREFERRED}
    assert changes(log) == {(i, 0): {"Leader": a.id}}


def test_unclean_election(w):
    """KIP-460: with nobody left in ISR and ELR the first active replica leads, as the whole ISR, in recovery. KIP-966.

    ELR and last leader are cleared.
    """
    a, b, c = w.up(3)
    t, i = w.topic([a, b, c])
    w.isr(a, i, [a])
    b.fence()
    a.fence()
    dead = w.part(i)
    assert (dead["Leader"], dead["Isr"], dead["EligibleLeaderReplicas"], dead["LastKnownElr"]) == (
        -1,
        [],
        [a.id],
        [a.id],
    )
    r, log = w.did(w.elect, UNCLEAN, {t: [0]})
    assert elected(r) == {(t, 0): OK}
    assert changes(log) == {
        (i, 0): {
            "Leader": c.id,
            "Isr": [c.id],
            "LeaderRecoveryState": 1,
            "EligibleLeaderReplicas": [],
            "LastKnownElr": [],
        }
    }


def test_unclean_is_not_needed(w):
    """A partition with a leader needs no unclean election, preferred or not."""
    a, b = w.up(2)
    t, _i = w.topic([a, b])
    a.fence()
    r, log = w.did(w.elect, UNCLEAN, {t: [0]})
    assert elected(r) == {(t, 0): NOT_NEEDED} and log == []


def test_unclean_finds_nobody(w):
    """ELIGIBLE_LEADERS_NOT_AVAILABLE when no replica is active."""
    a, b, _c = w.up(3)
    t, _i = w.topic([a, b])
    a.fence()
    b.fence()
    r, log = w.did(w.elect, UNCLEAN, {t: [0]})
    assert elected(r) == {(t, 0): NO_ELIGIBLE} and log == []


def test_recovery_ends_with_alter_partition(w):
    """KIP-704: after an unclean election the leader says that it has recovered; until then its ISR cannot grow."""
    a, b = w.up(2)
    t, i = w.topic([a, b])
    w.isr(a, i, [a])
    a.fence()
    w.elect(UNCLEAN, {t: [0]})
    a.unfence()
    (top, p), log = w.did(b.alter, i, [b, a], recovery=1)
    assert (top, error(p), log) == (0, "INVALID_REQUEST", [])
    p, log = w.did(w.isr, b, i, [b], recovery=0)
    assert changes(log) == {(i, 0): {"LeaderRecoveryState": 0}} and p["LeaderRecoveryState"] == 0
    _, log = w.did(w.isr, b, i, [b, a])
    assert changes(log) == {(i, 0): {"Isr": [b.id, a.id]}}


def test_clean_candidates_come_back_first(w):
    """KIP-966: the last replica stays eligible: unfenced again it leads, with no unclean election."""
    a, b = w.up(2)
    t, i = w.topic([a, b])
    w.isr(a, i, [a])
    a.fence()
    _, log = w.did(a.unfence)
    assert shape(log) == ["BrokerRegistrationChange v0", "PartitionChange v2"]
    assert changes(log) == {(i, 0): {"Leader": a.id, "Isr": [a.id], "EligibleLeaderReplicas": [], "LastKnownElr": []}}
    assert elected(w.elect(UNCLEAN, {t: [0]})) == {(t, 0): NOT_NEEDED}


def test_versions_0_and_1(w):
    """Version 0 has no type (preferred) and no top-level error; 1 has both and the old layout."""
    a, b = w.up(2)
    t, i = w.topic([a, b])
    a.fence()
    a.unfence()
    w.isr(b, i, [b, a])
    r, log = w.did(w.elect, None, {t: [0]}, version=0)
    assert "ErrorCode" not in r and elected(r) == {(t, 0): OK} and changes(log) == {(i, 0): {"Leader": a.id}}
    r = w.elect(UNCLEAN, {t: [0]}, version=1)
    assert r["ErrorCode"] == 0 and elected(r) == {(t, 0): NOT_NEEDED}


def test_topic_that_allows_unclean_elections(w):
    """unclean.leader.election.enable on the topic: losing the last ISR member elects another replica at once."""
    a, b = w.up(2)
    _t, i = w.topic([a, b], unclean_leader_election_enable="true")
    w.isr(a, i, [a])
    _, log = w.did(a.fence)
    assert shape(log) == ["PartitionChange v2", "BrokerRegistrationChange v0"]
    assert changes(log) == {(i, 0): {"Leader": b.id, "Isr": [b.id], "LeaderRecoveryState": 1}}
