import time

import pytest
from controller_suite.broker_kit import FENCED, MAY_GO, STALE, UNFENCED, beat, change, fence, leaving, state, unfence
from controller_suite.cluster import session
from controller_suite.metadata_log import full, groups, shape


@pytest.fixture(scope="module")
def short(module_cluster):
    return module_cluster(**session(1500))


@pytest.fixture
def brief(short):
    yield short
    short.clean()


def test_fenced_until_it_has_seen_its_own_registration(ctl):
    """KIP-631: below the offset of its registration record a broker stays fenced and is told that it has not caught up.

    Nothing is written.
    """
    b = ctl.broker()
    b.register()
    m = ctl.log.mark()
    for offset in (-1, 0, b.epoch - 1):
        assert beat(b.heartbeat(offset=offset)) == ("NONE", False, True, False)
    assert ctl.log.since(m) == []


def test_unfenced_at_its_registration_offset(ctl):
    """KIP-631: at the offset of the registration record exactly it is unfenced, by one BrokerRegistrationChange v0 with
    Fenced -1.
    """
    b = ctl.broker()
    b.register()
    m = ctl.log.mark()
    r = b.heartbeat(offset=b.epoch)
    assert r == {"ThrottleTimeMs": 0, "ErrorCode": 0, "IsCaughtUp": True, "IsFenced": False, "ShouldShutDown": False}
    recs = ctl.log.since(m)
    assert shape(recs) == ["BrokerRegistrationChange v0"] and recs == [unfence(b)] and recs[0].present == ["Fenced"]


def test_further_heartbeats_write_nothing(ctl):
    """Only changes of state are recorded; a broker that falls behind is told so, but not fenced for it."""
    (b,) = ctl.up()
    m = ctl.log.mark()
    assert [beat(b.heartbeat()) for _ in range(3)] == [UNFENCED] * 3
    assert beat(b.heartbeat(offset=0)) == ("NONE", False, False, False)
    assert ctl.log.since(m) == []


def test_offset_is_compared_with_the_latest_registration(ctl):
    """A repeated registration moves the offset that counts as caught up, although the epoch stays."""
    b = ctl.broker()
    b.register()
    ctl.topic([ctl.up()[0]])
    m = ctl.log.mark()
    b.register()
    assert b.epoch < m
    assert beat(b.heartbeat(offset=b.epoch)) == ("NONE", False, True, False)
    assert beat(b.heartbeat(offset=m)) == UNFENCED


def test_want_fence_keeps_a_broker_fenced(ctl):
    """KIP-631: a broker that is not ready asks to stay fenced."""
    b = ctl.broker()
    b.register()
    m = ctl.log.mark()
    assert beat(b.heartbeat(WantFence=True)) == FENCED and ctl.log.since(m) == []


def test_want_fence_fences(ctl):
    """One batch: the partitions lose the broker first, then BrokerRegistrationChange v0 with Fenced 1."""
    a, b = ctl.up(2)
    t = ctl.topic([a, b], [b, a])
    m = ctl.log.mark()
    assert beat(a.heartbeat(WantFence=True)) == FENCED
    recs = ctl.log.since(m)
    assert len(groups(recs)) == 1 and recs[-1] == fence(a) and recs[-1].version == 0
    assert sorted(recs[:-1], key=lambda r: r["PartitionId"]) == [
        change(t, 0, Isr=[b.id], Leader=b.id),
        change(t, 1, Isr=[b.id]),
    ]
    assert state(ctl, t, 0) == ([b.id], b.id, 1, 1) and state(ctl, t, 1) == ([b.id], b.id, 0, 1)


@pytest.mark.parametrize("step", [-1, 1, 1000000])
def test_wrong_broker_epoch(ctl, step):
    """STALE_BROKER_EPOCH for an epoch below or above the registered one."""
    (b,) = ctl.up()
    m = ctl.log.mark()
    assert beat(b.heartbeat(BrokerEpoch=b.epoch + step)) == STALE
    assert ctl.log.since(m) == []


def test_unknown_broker(ctl):
    """4.3.1: a broker that is not registered, or no longer, gets STALE_BROKER_EPOCH too."""
    (b,) = ctl.up()
    assert beat(ctl.broker(98765).heartbeat(BrokerEpoch=0)) == STALE
    ctl.unregister(b.id)
    assert beat(b.heartbeat()) == STALE


def test_shutdown_of_a_broker_that_leads_nothing(ctl):
    """KIP-631: it may go at once and is fenced in the same step, without a controlled-shutdown record."""
    a, b = ctl.up(2)
    t = ctl.topic([a, b])
    m = ctl.log.mark()
    assert beat(b.heartbeat(WantShutDown=True)) == MAY_GO
    assert ctl.log.since(m) == [change(t, Isr=[a.id]), fence(b)]


def test_controlled_shutdown_moves_leaders_and_waits_for_the_others(ctl):
    """KIP-631: BrokerRegistrationChange v1, then the partitions, in one batch.

    The broker goes when every active broker has that offset.
    """
    a, b = ctl.up(2)
    t = ctl.topic([a, b], [b, a])
    m = ctl.log.mark()
    assert beat(b.heartbeat(offset=m)) == UNFENCED
    assert beat(a.heartbeat(WantShutDown=True)) == UNFENCED
    recs = ctl.log.since(m)
    assert shape(recs) == ["BrokerRegistrationChange v1"] + ["PartitionChange v2"] * 2 and len(groups(recs)) == 1
    assert recs[0] == leaving(a) and recs[0].present == ["InControlledShutdown"]
    assert change(t, 0, Isr=[b.id], Leader=b.id) in recs and change(t, 1, Isr=[b.id]) in recs
    m = ctl.log.mark()
    assert beat(a.heartbeat(WantShutDown=True)) == UNFENCED  # the other broker has not seen it
    assert beat(b.heartbeat(offset=m - 1)) == UNFENCED
    assert ctl.log.since(m) == []
    assert beat(b.heartbeat(offset=m)) == UNFENCED
    assert beat(a.heartbeat(WantShutDown=True)) == MAY_GO
    assert ctl.log.since(m) == [fence(a)]


def test_silent_broker_is_fenced(brief):
    """KIP-631: without heartbeats for broker.session.timeout.ms a broker is fenced; one that sends them is not."""
    a, b = brief.up(2, beat=0.2)
    t = brief.topic([a, b])
    a.quiet()
    a.heartbeat()
    m, start = brief.log.mark(), time.monotonic()
    brief.log.wait(m, "BrokerRegistrationChange", BrokerId=a.id)
    assert time.monotonic() - start >= 1.2
    recs = brief.log.since(m)
    assert recs == [change(t, Isr=[b.id], Leader=b.id), fence(a)] and len(groups(recs)) == 1
    time.sleep(2)
    assert brief.log.since(m) == recs  # the other one lives on


def test_expired_broker_comes_back_by_a_heartbeat(brief):
    """Fencing does not end the registration: a heartbeat with the same epoch unfences it again."""
    (a,) = brief.up()
    m = brief.log.mark()
    brief.log.wait(m, "BrokerRegistrationChange", BrokerId=a.id, Fenced=1)
    m = brief.log.mark()
    assert beat(a.heartbeat()) == UNFENCED and brief.log.since(m) == [unfence(a)]


def test_unfencing_gives_leaders_to_leaderless_partitions(ctl):
    """In one batch: the broker is unfenced, then partitions without a leader that it may lead get it."""
    a, b = ctl.up(2)
    t = ctl.topic([a, b])
    b.fence(), a.fence()
    assert state(ctl, t) == ([], -1, 1, 2)
    m = ctl.log.mark()
    a.unfence()
    recs = ctl.log.since(m)
    assert len(groups(recs)) == 1
    assert recs == [unfence(a), change(t, Isr=[a.id], Leader=a.id, EligibleLeaderReplicas=[], LastKnownElr=[])]
    assert state(ctl, t) == ([a.id], a.id, 2, 3)


def test_cordoned_log_dirs_are_recorded_when_they_change(ctl):
    """BrokerRegistrationChange v3 with the whole list; the same list again writes nothing.

    Null (or version 1) means no statement.
    """
    b = ctl.broker(dirs=2).up()
    m = ctl.log.mark()
    for _ in range(2):
        assert beat(b.heartbeat(CordonedLogDirs=[b.dirs[0]])) == UNFENCED
    recs = ctl.log.since(m)
    assert shape(recs) == ["BrokerRegistrationChange v3"] and recs[0].present == ["CordonedLogDirs"]
    assert recs == [
        full("BrokerRegistrationChange", 3, BrokerId=b.id, BrokerEpoch=b.epoch, CordonedLogDirs=[b.dirs[0]])
    ]
    b.heartbeat(), b.heartbeat(version=1)
    assert len(ctl.log.since(m)) == 1
    b.heartbeat(CordonedLogDirs=[])
    assert ctl.log.since(m)[1:] == [
        full("BrokerRegistrationChange", 3, BrokerId=b.id, BrokerEpoch=b.epoch, CordonedLogDirs=[])
    ]


def test_failed_log_dir_moves_leadership(ctl):
    """KIP-858: partitions assigned to the directory lose the broker, then BrokerRegistrationChange v2 lists the
    directories left.
    """
    a, b = ctl.broker(dirs=3).up(), ctl.broker(dirs=1).up()
    t = ctl.topic([a, b], [a, b])
    a.assign({a.dirs[0]: [(t, 0)], a.dirs[1]: [(t, 1)]})
    m = ctl.log.mark()
    assert beat(a.heartbeat(OfflineLogDirs=[a.dirs[0]])) == UNFENCED
    recs = ctl.log.since(m)
    assert shape(recs) == ["PartitionChange v2", "BrokerRegistrationChange v2"] and len(groups(recs)) == 1
    assert recs[0] == change(t, 0, Isr=[b.id], Leader=b.id)
    assert sorted(recs[1]["LogDirs"]) == sorted(a.dirs[1:]) and recs[1].has(
        BrokerId=a.id, BrokerEpoch=a.epoch, Fenced=0
    )
    assert beat(a.heartbeat(OfflineLogDirs=[a.dirs[0]])) == UNFENCED and len(ctl.log.since(m)) == 2  # known already
    assert state(ctl, t, 1) == ([a.id, b.id], a.id, 0, 1)
