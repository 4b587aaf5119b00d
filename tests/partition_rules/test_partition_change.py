"""The partition rules as tables: a partition, what is wanted of it, and the record that says so.

Cases are those of KIP-841, KIP-966 and KIP-455; what Kafka 4.3.1 itself writes is shown by the scenarios beside this.
"""

from __future__ import annotations

import pytest

from kraftcore import metadata
from kraftcore.core.uuid import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, Uuid
from kraftcore.metadata.partition import RECOVERED, RECOVERING
from kraftcore.partition_rules.leader_choice import Election
from kraftcore.partition_rules.partition_change import PartitionRules
from kraftcore.protocol.features import MetadataVersion
from kraftcore.protocol.records.partition_change_record import PartitionChangeRecord

TOPIC = Uuid(bytes(15) + b"T")
LATEST = MetadataVersion.V4_3_IV0
UNCHANGED = PartitionChangeRecord()


def home(broker: int) -> Uuid:
    return Uuid(bytes([1]) + bytes(14) + bytes([broker]))


def Partition(replicas=(1, 2, 3), isr=(1, 2, 3), leader=1, where=None, **more) -> metadata.Partition:
    directories = tuple(map(home, replicas)) if where is None else where
    return metadata.Partition(replicas=replicas, isr=isr, leader=leader, directories=directories, **more)


def Broker(is_active=True, directories=()) -> metadata.Broker:
    return metadata.Broker(1, 1, TOPIC, is_fenced=not is_active, directories=directories)


def brokers(active=(1, 2, 3, 4, 5), inactive=()) -> dict[int, metadata.Broker]:
    return {number: Broker(number not in inactive, (home(number),)) for number in active}


def change(partition, *, elr=True, version=LATEST, min_isr=1, inactive=(), who=None, rules=None, **wanted):
    """What the record says, field by field; None if there is no record."""
    known = brokers(inactive=inactive) if who is None else who
    record = PartitionRules(version, elr, known, **(rules or {})).change(TOPIC, 7, partition, min_isr, **wanted)
    if record is None:
        return None
    assert (record.topic_id, record.partition_id) == (TOPIC, 7)
    fields = [name for name in type(record).__slots__ if name not in ("topic_id", "partition_id")]
    return {name: getattr(record, name) for name in fields if getattr(record, name) != getattr(UNCHANGED, name)}


def test_what_changes_nothing_gives_no_record():
    for election in Election:
        assert change(Partition(), election=election) is None
    assert change(Partition(), isr=(1, 2, 3), replicas=(1, 2, 3), recovery_state=RECOVERED) is None


LEADERS = [
    # election, partition, inactive, leader (None: unchanged), unclean
    ("the present leader stays", Election.ONLINE, Partition(leader=2), (), None, False),
    ("the preferred one takes over", Election.PREFERRED, Partition(leader=2), (), 1, False),
    ("a preferred one that is fenced does not", Election.PREFERRED, Partition(leader=2), (1,), None, False),
    ("a preferred one out of sync does not", Election.PREFERRED, Partition(isr=(2, 3), leader=2), (), None, False),
    (
        "the first replica in sync, in assignment order",
        Election.ONLINE,
        Partition(isr=(3, 2), leader=1),
        (1,),
        2,
        False,
    ),
    ("nobody but replicas in sync", Election.ONLINE, Partition(isr=(1,), leader=1), (1,), -1, False),
    ("unclean: the first that is active", Election.UNCLEAN, Partition(isr=(1,), leader=1), (1, 2), 3, True),
    ("unclean still prefers who is in sync", Election.UNCLEAN, Partition(isr=(1, 3), leader=1), (1,), 3, False),
    ("unclean, and nobody is active", Election.UNCLEAN, Partition(isr=(1,), leader=1), (1, 2, 3), -1, False),
    ("a partition without a leader stays so", Election.ONLINE, Partition(isr=(1,), leader=-1), (1,), None, False),
    ("and gets one that is back", Election.ONLINE, Partition(isr=(1,), leader=-1), (), 1, False),
]


@pytest.mark.parametrize(
    ("election", "partition", "inactive", "leader", "is_unclean"), [c[1:] for c in LEADERS], ids=[c[0] for c in LEADERS]
)
def test_leader(election, partition, inactive, leader, is_unclean):
    found = change(partition, elr=False, election=election, inactive=inactive)
    if leader is None:
        assert found is None
    elif is_unclean:
        assert found == {"leader": leader, "isr": [leader], "leader_recovery_state": RECOVERING}
    else:
        assert found == {"leader": leader}


def test_an_unclean_leader_of_a_recovering_partition_recovers_on():
    before = Partition(isr=(1,), leader=1, recovery_state=RECOVERING)
    assert change(before, elr=False, election=Election.UNCLEAN, inactive=(1,)) == {"leader": 2, "isr": [2]}


def test_a_replica_in_a_directory_that_failed_cannot_lead():
    dirs = {**brokers(), 2: Broker(True, (home(9),))}
    assert change(Partition(), who=dirs, isr=(2, 3), inactive=()) == {"leader": 3, "isr": [2, 3]}


@pytest.mark.parametrize("where", [LOST_DIRECTORY, home(8)])
def test_a_leader_whose_directory_is_lost_makes_way(where):
    before = Partition(where=(where, home(2), home(3)))
    assert change(before) == {"leader": 2}


@pytest.mark.parametrize("where", [UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY])
def test_a_leader_without_a_known_directory_stays(where):
    assert change(Partition(where=(where, home(2), home(3)))) is None


def test_a_replica_that_is_no_broker_cannot_lead():
    assert change(Partition(), who=brokers(active=(2, 3))) == {"leader": 2}


def test_somebody_excluded_or_included_by_the_decision():
    """While a broker is being fenced the image still shows it active, and the other way round."""
    assert change(Partition(), isr=(2, 3), rules={"without": 1}) == {"leader": 2, "isr": [2, 3]}
    offline = Partition(isr=(1,), leader=-1)
    assert change(offline, inactive=(1,), elr=False, rules={"including": 1}) == {"leader": 1}
    assert change(offline, inactive=(1,), elr=False) is None
    assert change(offline, elr=False, rules={"unclean": 1}) is None


# --- eligible leader replicas (KIP-966)


def test_without_the_feature_the_last_member_stays_in_the_isr():
    assert change(Partition(isr=(1,)), elr=False, isr=(), rules={"without": 1}) == {"leader": -1}


def test_the_last_member_becomes_eligible_and_last_known():
    assert change(Partition(isr=(1,)), isr=(), rules={"without": 1}) == {
        "leader": -1,
        "isr": [],
        "eligible_leader_replicas": [1],
        "last_known_elr": [1],
    }


def test_those_that_leave_below_min_isr_are_eligible():
    assert change(Partition(isr=(1, 2)), min_isr=2, isr=(1,)) == {"isr": [1], "eligible_leader_replicas": [2]}
    assert change(Partition(isr=(1, 2, 3)), min_isr=2, isr=(1, 2)) == {"isr": [1, 2]}


def test_reaching_min_isr_clears_the_eligible():
    before = Partition(isr=(1,), elr=(2,))
    assert change(before, min_isr=2, isr=(1, 3)) == {"isr": [1, 3], "eligible_leader_replicas": []}


def test_who_joins_the_isr_below_min_isr_is_no_longer_eligible():
    before = Partition(isr=(1,), elr=(2, 3))
    assert change(before, min_isr=3, isr=(1, 3)) == {"isr": [1, 3], "eligible_leader_replicas": [2]}


def test_an_eligible_replica_leads_cleanly_and_becomes_the_isr():
    before = Partition(isr=(), leader=-1, elr=(1, 2), last_known_elr=(1,))
    assert change(before, min_isr=2, inactive=(1,)) == {
        "leader": 2,
        "isr": [2],
        "eligible_leader_replicas": [1],
        "last_known_elr": [],
    }


def test_an_unclean_shutdown_takes_a_replica_out_of_isr_and_elr():
    assert change(Partition(isr=(1, 2)), min_isr=2, isr=(1,), rules={"unclean": 2}) == {"isr": [1]}
    before = Partition(isr=(), leader=-1, elr=(1, 2), last_known_elr=(1,))
    assert change(before, inactive=(1, 2), rules={"unclean": 1}) == {"eligible_leader_replicas": [2]}


def test_the_last_known_leader_leads_uncleanly_when_nobody_is_eligible():
    before = Partition(isr=(), leader=-1, elr=(), last_known_elr=(2,))
    assert change(before) == {"leader": 2, "isr": [2], "leader_recovery_state": RECOVERING, "last_known_elr": []}
    assert change(before, inactive=(2,)) is None
    assert change(before, inactive=(2,), election=Election.UNCLEAN) == {
        "leader": 1,
        "isr": [1],
        "leader_recovery_state": RECOVERING,
        "last_known_elr": [],
    }


def test_without_the_feature_an_elr_left_over_is_cleared():
    assert change(Partition(elr=(3,), isr=(1, 2)), elr=False) == {"eligible_leader_replicas": []}


def test_eligible_replicas_stand_in_the_order_of_a_java_hash_set():
    """Kafka collects them in a HashSet: 16 buckets by the lower bits, so 17 comes before 2, and 16 before all."""
    before = Partition(replicas=(2, 17, 16, 3), isr=(2, 17, 16, 3), leader=3)
    found = change(before, who=brokers(active=(2, 3, 16, 17)), min_isr=4, isr=(3,))
    assert found["eligible_leader_replicas"] == [16, 17, 2]


# --- reassignments (KIP-455)


def test_a_reassignment_begins_with_the_wanted_replicas_first():
    found = change(Partition((1, 2), (1, 2)), replicas=(3, 4, 1, 2), adding=(3, 4), removing=(1, 2))
    assert found == {
        "replicas": [3, 4, 1, 2],
        "adding_replicas": [3, 4],
        "removing_replicas": [1, 2],
        "directories": [home(3), home(4), home(1), home(2)],
    }


def test_a_new_replica_on_a_broker_with_several_directories_is_unassigned():
    who = {**brokers(), 3: Broker(True, (home(3), home(4)))}
    found = change(Partition((1, 2), (1, 2)), who=who, replicas=(1, 2, 3), adding=(3,))
    assert found["directories"] == [home(1), home(2), UNASSIGNED_DIRECTORY]


UNDER_WAY = Partition((3, 4, 1, 2), (1, 2), adding=(3, 4), removing=(1, 2))


def test_a_reassignment_goes_on_until_all_wanted_replicas_are_in_sync():
    assert change(UNDER_WAY, isr=(1, 2, 3)) == {"isr": [1, 2, 3]}
    assert change(UNDER_WAY, isr=(1, 2, 3, 4)) == {
        "isr": [3, 4],
        "leader": 3,
        "replicas": [3, 4],
        "adding_replicas": [],
        "removing_replicas": [],
        "directories": [home(3), home(4)],
    }


def test_a_leader_that_stays_is_named_when_replicas_go():
    """Naming it raises the leader epoch, so that the dropped replicas' fetches are told apart."""
    before = Partition((1, 3, 2), (1, 2), adding=(3,), removing=(2,))
    assert change(before, isr=(1, 2, 3)) == {
        "isr": [1, 3],
        "leader": 1,
        "replicas": [1, 3],
        "adding_replicas": [],
        "removing_replicas": [],
        "directories": [home(1), home(3)],
    }


def test_only_removals_are_done_at_once():
    assert change(Partition(), replicas=(2, 3, 1), removing=(1,)) == {
        "isr": [2, 3],
        "leader": 2,
        "replicas": [2, 3],
        "directories": [home(2), home(3)],
    }


def test_a_removal_waits_for_a_replica_in_sync_that_stays():
    before = Partition(isr=(1,))
    assert change(before, replicas=(2, 3, 1), removing=(1,)) == {
        "replicas": [2, 3, 1],
        "removing_replicas": [1],
        "directories": [home(2), home(3), home(1)],
    }


def test_another_order_is_no_reassignment():
    assert change(Partition((1, 2), (1, 2)), replicas=(2, 1)) == {
        "replicas": [2, 1],
        "directories": [home(2), home(1)],
    }


# --- fields and versions


def test_a_directory_is_assigned():
    assert change(Partition((1, 2), (1, 2)), directory=(2, home(9))) == {"directories": [home(1), home(9)]}
    assert change(Partition((1, 2), (1, 2)), directory=(2, home(2))) is None


def test_a_leader_reports_that_it_has_recovered():
    before = Partition(isr=(1,), recovery_state=RECOVERING)
    assert change(before, isr=(1,), recovery_state=RECOVERED) == {"leader_recovery_state": RECOVERED}


def test_before_3_6_a_shrinking_isr_raises_the_leader_epoch():
    """KAFKA-15021."""
    old = MetadataVersion.V3_5_IV2
    assert change(Partition(), version=old, elr=False, isr=(1, 2)) == {"isr": [1, 2], "leader": 1}
    assert change(Partition(isr=(1,)), version=old, elr=False, isr=(1, 2)) == {"isr": [1, 2]}
    assert change(Partition(), version=MetadataVersion.V3_6_IV0, elr=False, isr=(1, 2)) == {"isr": [1, 2]}


def test_before_3_7_there_are_no_directories():
    old = MetadataVersion.V3_7_IV1
    found = change(Partition((1, 2), (1, 2)), version=old, elr=False, replicas=(3, 1, 2), adding=(3,))
    assert found == {"replicas": [3, 1, 2], "adding_replicas": [3]}


@pytest.mark.parametrize(
    ("level", "version"),
    [(MetadataVersion.V3_3_IV3, 0), (MetadataVersion.V3_7_IV2, 1), (MetadataVersion.V4_0_IV1, 2), (LATEST, 2)],
)
def test_record_version(level, version):
    assert PartitionRules(level, False, {}).version == version
