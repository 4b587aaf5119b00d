import pytest
from conformance.target import new_uuid
from controller_suite.broker_kit import STALE, beat, by_name, code
from controller_suite.brokers import FEATURES, LOST, MIGRATING, UNASSIGNED, features
from controller_suite.metadata_log import full, shape


def test_registration_is_one_record(ctl):
    """KIP-631: RegisterBroker v4, alone in its batch, repeats the request; the broker starts fenced.

    Its epoch is the record's offset.
    """
    b = ctl.broker(
        rack="rack-1",
        dirs=2,
        listeners=[
            ("PLAINTEXT", "one.example", 9092, 0),
            ("SSL", "10.0.0.7", 9093, 1),
            ("EXT", "2001:db8::1", 65535, 3),
        ],
    )
    m = ctl.log.mark()
    r = b.register()
    assert r == {"ThrottleTimeMs": 0, "ErrorCode": 0, "BrokerEpoch": m}
    recs = ctl.log.since(m)
    assert shape(recs) == ["RegisterBroker v4"] and recs[0].offset == m
    assert by_name(recs[0]["Features"]) == FEATURES
    assert recs[0] == full(
        "RegisterBroker",
        4,
        BrokerId=b.id,
        IncarnationId=b.incarnation,
        BrokerEpoch=m,
        Rack="rack-1",
        Fenced=True,
        LogDirs=b.dirs,
        Features=recs[0]["Features"],
        CordonedLogDirs=None,
        EndPoints=[
            {"Name": "PLAINTEXT", "Host": "one.example", "Port": 9092, "SecurityProtocol": 0},
            {"Name": "SSL", "Host": "10.0.0.7", "Port": 9093, "SecurityProtocol": 1},
            {"Name": "EXT", "Host": "2001:db8::1", "Port": 65535, "SecurityProtocol": 3},
        ],
    )


def test_a_missing_rack_stays_null(ctl):
    """Rack is nullable, and null is not the empty string."""
    b = ctl.broker(rack=None)
    b.register()
    c = ctl.broker(rack="")
    c.register()
    assert ctl.log.broker(b.id)["Rack"] is None and ctl.log.broker(c.id)["Rack"] == ""


def test_every_registration_gets_a_higher_epoch(ctl):
    """KIP-631: epochs come from the offsets of one log, so they rise over all brokers."""
    a, b, c = (ctl.broker() for _ in range(3))
    epochs = [x.register()["BrokerEpoch"] for x in (a, b, c)]
    assert epochs == sorted(set(epochs))
    assert epochs == [r.offset for r in ctl.log.since(epochs[0], "RegisterBroker")]


def test_same_incarnation_keeps_its_epoch(ctl):
    """KIP-631: a repeated registration of one incarnation writes a new record with the old epoch, and takes over the
    other fields.
    """
    b = ctl.broker(rack="old")
    first = b.register()["BrokerEpoch"]
    b.rack, b.listeners, m = "new", [("PLAINTEXT", "moved.example", 9192, 0)], ctl.log.mark()
    assert b.register()["BrokerEpoch"] == first < m
    (rec,) = ctl.log.since(m)
    assert (
        rec.has(BrokerId=b.id, BrokerEpoch=first, Rack="new", Fenced=True)
        and rec["EndPoints"][0]["Host"] == "moved.example"
    )


def test_same_incarnation_stays_unfenced(ctl):
    """A repeated registration of an unfenced broker does not fence it: the record says Fenced false."""
    (b,) = ctl.up()
    m = ctl.log.mark()
    assert b.register()["BrokerEpoch"] < m
    (rec,) = ctl.log.since(m)
    assert rec.kind == "RegisterBroker" and rec["Fenced"] is False
    assert beat(b.heartbeat()) == ("NONE", True, False, False)


@pytest.mark.parametrize("fenced", [False, True])
def test_id_of_a_live_broker_is_refused(ctl, fenced):
    """KIP-631: while the registered incarnation sends heartbeats (fenced or not), another one gets
    DUPLICATE_BROKER_REGISTRATION.
    """
    (b,) = ctl.up()
    if fenced:
        b.fence()
    m = ctl.log.mark()
    r = b.register(check=False, IncarnationId=new_uuid())
    assert code(r) == "DUPLICATE_BROKER_REGISTRATION" and r["BrokerEpoch"] == -1
    assert ctl.log.since(m) == [] and code(b.heartbeat()) == "NONE"


def test_broker_that_never_sent_a_heartbeat_can_be_replaced(ctl):
    """4.3.1: a session begins with the first heartbeat, not with the registration.

    The replaced incarnation's epoch is stale.
    """
    b = ctl.broker()
    old = b.register()["BrokerEpoch"]
    b.incarnation, m = new_uuid(), ctl.log.mark()
    assert b.register()["BrokerEpoch"] == m > old
    assert ctl.log.broker(b.id)["IncarnationId"] == b.incarnation
    assert beat(b.heartbeat(BrokerEpoch=old)) == STALE


@pytest.mark.parametrize("cluster_id", ["not-this-cluster", ""])
def test_wrong_cluster_id(ctl, cluster_id):
    """INCONSISTENT_CLUSTER_ID, an empty one included; nothing is written."""
    b, m = ctl.broker(), ctl.log.mark()
    r = b.register(check=False, ClusterId=cluster_id)
    assert (code(r), r["BrokerEpoch"]) == ("INCONSISTENT_CLUSTER_ID", -1) and ctl.log.since(m) == []


ONE = new_uuid()


@pytest.mark.parametrize(
    "dirs",
    [[], [ONE, ONE], [UNASSIGNED], [ONE, LOST], [MIGRATING]],
    ids=("none", "twice", "unassigned", "lost", "migrating"),
)
def test_log_dirs_must_be_named_once_and_not_reserved(ctl, dirs):
    """KIP-858: INVALID_REGISTRATION for no directories, one named twice, or a reserved id."""
    b, m = ctl.broker(), ctl.log.mark()
    r = b.register(check=False, LogDirs=dirs)
    assert (code(r), r["BrokerEpoch"]) == ("INVALID_REGISTRATION", -1) and ctl.log.since(m) == []
    b.register()


def test_log_dir_of_another_broker(ctl):
    """KIP-858: a directory id belongs to one registered broker; it is free again once that broker is unregistered."""
    a, b = ctl.broker(), ctl.broker()
    a.register()
    assert code(b.register(check=False, LogDirs=[new_uuid(), a.dirs[0]])) == "INVALID_REGISTRATION"
    assert ctl.unregister(a.id)["ErrorCode"] == 0
    b.register(LogDirs=[a.dirs[0]])


@pytest.mark.parametrize(
    "change",
    [
        {"metadata_version": (7, 29)},
        {"metadata_version": (31, 40)},
        {"eligible_leader_replicas_version": (0, 0)},
        {"kraft_version": (0, 0)},
        {"transaction_version": (0, 1)},
        {"group_version": None},
        {"kraft_version": None},
    ],
    ids=str,
)
def test_finalized_features_must_be_supported(ctl, change):
    """KIP-584: UNSUPPORTED_VERSION when a finalized level is out of the broker's range.

    A feature not named means 0 to 0.
    """
    b, m = ctl.broker(features=features(**change)), ctl.log.mark()
    r = b.register(check=False)
    assert (code(r), r["BrokerEpoch"]) == ("UNSUPPORTED_VERSION", -1) and ctl.log.since(m) == []


@pytest.mark.parametrize("given", [features(metadata_version=None), {}], ids=("others only", "none at all"))
def test_metadata_version_must_be_named(ctl, given):
    """4.3.1: without metadata.version among the features it is INVALID_REGISTRATION, not UNSUPPORTED_VERSION."""
    b, m = ctl.broker(), ctl.log.mark()
    b.features = given
    assert code(b.register(check=False)) == "INVALID_REGISTRATION" and ctl.log.since(m) == []


def test_unregistered_id_starts_anew(ctl):
    """After UnregisterBroker the same incarnation gets a new epoch and is fenced again."""
    (b,) = ctl.up()
    old = b.epoch
    assert ctl.unregister(b.id)["ErrorCode"] == 0
    m = ctl.log.mark()
    assert b.register()["BrokerEpoch"] == m > old
    assert ctl.log.since(m)[0].has(BrokerId=b.id, Fenced=True, IncarnationId=b.incarnation)
