"""Section 26: the controller's own settings.

Defaults of new topics, deletion switched off, automatic elections, a cluster without ELR.
"""

import pytest
from conformance.codec import ZERO_UUID
from controller_suite.metadata_log import shape
from controller_suite.topics_kit import OK, PREFERRED, SET, TOPIC, Admin, changes, elected, error, fresh, said

TUNED = {
    "num.partitions": 3,
    "default.replication.factor": 2,
    "log.retention.ms": 12345,
    "auto.leader.rebalance.enable": "true",
    "leader.imbalance.check.interval.seconds": 1,
    "unclean.leader.election.interval.ms": 300,
}
STRICT = {"delete.topic.enable": "false", "unclean.leader.election.enable": "true"}


@pytest.fixture(scope="module")
def tuned_cluster(module_cluster):
    return module_cluster(**TUNED)


@pytest.fixture
def tuned(tuned_cluster):
    yield Admin(tuned_cluster)
    tuned_cluster.clean()


@pytest.fixture(scope="module")
def strict_cluster(module_cluster):
    return module_cluster(format_args=["--feature", "eligible.leader.replicas.version=0"], **STRICT)


@pytest.fixture
def strict(strict_cluster):
    """Deletion off, unclean elections on, no ELR. Topics stay (they cannot be deleted), brokers go."""
    yield Admin(strict_cluster)
    strict_cluster.clean()


def test_defaults_of_new_topics(tuned):
    """-1 partitions and -1 replicas are num.partitions and default.replication.factor of the controller.

    Its log.* show as source 4.
    """
    tuned.up(3)
    r, log = tuned.did(tuned.create, fresh(), -1, -1)
    assert (said(r), r["NumPartitions"], r["ReplicationFactor"]) == (OK, 3, 2)
    assert shape(log) == ["Topic v0"] + ["Partition v2"] * 3 and all(len(p["Replicas"]) == 2 for p in log[1:])
    by = {c["Name"]: (c["Value"], c["ConfigSource"]) for c in r["Configs"]}
    assert by["retention.ms"] == ("12345", 4) and by["min.insync.replicas"] == ("1", 3)


def test_preferred_leaders_come_back_by_themselves(tuned):
    """auto.leader.rebalance.enable: at the next check the preferred replica leads again, once it is in the ISR."""
    a, b = tuned.up(2)
    _t, i = tuned.topic([a, b], [b, a])
    a.fence()
    a.unfence()
    m = tuned.log.mark()
    tuned.isr(b, i, [b, a], 0)
    tuned.log.wait(m, "PartitionChange", TopicId=i, PartitionId=0, Leader=a.id)
    assert changes(tuned.log.since(m)) == {(i, 0): [{"Isr": [b.id, a.id]}, {"Leader": a.id}]}
    assert elected(tuned.elect(PREFERRED, None)) == {}


def test_unclean_election_once_it_is_allowed(tuned):
    """unclean.leader.election.enable set on the topic of an offline partition.

    Elected at the next periodic check, not before.
    """
    a, b = tuned.up(2)
    t, i = tuned.topic([a, b])
    tuned.isr(a, i, [a])
    a.fence()
    m = tuned.log.mark()
    tuned.configure(TOPIC, t, ("unclean.leader.election.enable", SET, "true"))
    tuned.log.wait(m, "PartitionChange", TopicId=i)
    assert changes(tuned.log.since(m)) == {
        (i, 0): {
            "Leader": b.id,
            "Isr": [b.id],
            "LeaderRecoveryState": 1,
            "EligibleLeaderReplicas": [],
            "LastKnownElr": [],
        }
    }


def test_deletion_switched_off(strict):
    """delete.topic.enable=false: TOPIC_DELETION_DISABLED for every topic asked for, known or not, without a message."""
    (a,) = strict.up(1)
    t, i = strict.topic([a])
    for entry, name, topic_id in ((t, t, ZERO_UUID), (("id", i), None, i), ("nope", "nope", ZERO_UUID)):
        assert strict.did(strict.delete, entry) == (
            [{"Name": name, "TopicId": topic_id, "ErrorCode": 73, "ErrorMessage": None}],
            [],
        )
    assert error(strict.create(t, 1, 1)) == "TOPIC_ALREADY_EXISTS"


def test_unclean_elections_by_setting_of_the_controller(strict):
    """unclean.leader.election.enable in the controller's file is the default for all topics; a topic may say no."""
    a, b = strict.up(2)
    (_t, i), (_u, j) = strict.topic([a, b]), strict.topic([a, b], unclean_leader_election_enable="false")
    strict.isr(a, i, [a])
    strict.isr(a, j, [a])
    _, log = strict.did(a.fence)
    assert changes(log) == {(i, 0): {"Leader": b.id, "Isr": [b.id], "LeaderRecoveryState": 1}, (j, 0): {"Leader": -1}}


def test_without_elr_the_last_member_stays_in_the_isr(strict):
    """eligible.leader.replicas.version=0: the ISR is never empty, its last member leads again when it is back."""
    a, b = strict.up(2)
    _t, i = strict.topic([a, b], unclean_leader_election_enable="false", min_insync_replicas="2")
    _, log = strict.did(a.fence)
    assert changes(log) == {(i, 0): {"Leader": b.id, "Isr": [b.id]}}
    _, log = strict.did(b.fence)
    assert changes(log) == {(i, 0): {"Leader": -1}} and strict.part(i)["Isr"] == [b.id]
    _, log = strict.did(a.unfence)
    assert changes(log) == {}
    _, log = strict.did(b.unfence)
    assert changes(log) == {(i, 0): {"Leader": b.id}}
