"""min.insync.replicas as brokers have it: stored unchecked, and counted as it stands."""

from __future__ import annotations

import pytest
from controller_scenario import Stage

from kraftcore.protocol.records.config_record import ConfigRecord

BROKER = 4


@pytest.mark.parametrize(("value", "elr"), [("0", False), ("-1", False), ("1", True), ("many", True)])
def test_the_last_member_is_eligible_unless_nobody_need_be_in_sync(value, elr):
    """Seen of Kafka 4.3.1: where 0 replicas have to be in sync, none is eligible, only the last leader is known."""
    stage = Stage()
    stage.run("quietly up 1 2")
    stage.run("quietly create-topic t 1,2")
    stage.stage.apply(
        (ConfigRecord(resource_type=BROKER, resource_name="", name="min.insync.replicas", value=value), 0)
    )
    stage.run("quietly alter-partition 1 t-0 1")
    change = stage.run("fence 1").splitlines()[0]
    assert "leader=-1" in change
    assert "last_known_elr=[1]" in change
    assert ("eligible_leader_replicas=[1]" in change) is elr
