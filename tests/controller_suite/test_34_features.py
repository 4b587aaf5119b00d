"""34. UpdateFeatures and what ApiVersions says of features."""

import pytest
from conformance.codec import err
from conformance.target import until
from controller_suite.brokers import FEATURES
from controller_suite.metadata_log import full, groups, shape
from controller_suite.security_kit import finalized, restore, update_features

UP, SAFE, UNSAFE = 1, 2, 3
PREFIX = "The update failed for all features since the following feature had an error: "
GROUP, TXN, ELR, MV, KRAFT = (
    "group.version",
    "transaction.version",
    "eligible.leader.replicas.version",
    "metadata.version",
    "kraft.version",
)


@pytest.fixture(scope="module")
def own(module_cluster):
    return module_cluster()


@pytest.fixture
def mine(own):
    yield own
    restore(own)


def update(c, *changes, **kw):
    r = update_features(c, *changes, **kw)
    return err(r["ErrorCode"]), r["ErrorMessage"]


def invalid(level, feature, why):
    return "INVALID_UPDATE_VERSION", f"{PREFIX}Invalid update version {level} for feature {feature}. {why}"


def level(name, value):
    return full("FeatureLevel", 0, Name=name, FeatureLevel=value)


def test_supported_and_finalized(mine):
    """ApiVersions v4: all supported features, finalized levels, offset of the last change.

    V3 omits supported ones that start at 0.
    """
    r = mine.call("ApiVersions", {"ClientSoftwareName": "a", "ClientSoftwareVersion": "1"}, 4)
    assert {f["Name"]: (f["MinVersion"], f["MaxVersion"]) for f in r["SupportedFeatures"]} == FEATURES
    levels = {MV: 30, KRAFT: 1, GROUP: 1, TXN: 2, ELR: 1, "share.version": 1, "streams.version": 1}
    epoch = next(x.offset for x in mine.log.since(0) if x.kind == "EndTransaction")
    assert finalized(mine.client()) == (epoch, levels)
    old = mine.call("ApiVersions", {"ClientSoftwareName": "a", "ClientSoftwareVersion": "1"}, 3)
    assert [f["Name"] for f in old["SupportedFeatures"]] == [MV] and {
        f["Name"]: f["MaxVersionLevel"] for f in old["FinalizedFeatures"]
    } == levels
    assert "SupportedFeatures" not in mine.call("ApiVersions", {}, 2)


def test_down_and_up_again(mine):
    """A safe downgrade to 0 and the way back are one FeatureLevel record each; level 0 is not listed.

    The epoch is the record's offset.
    """
    m = mine.log.mark()
    assert update(mine, (GROUP, 0, SAFE)) == ("NONE", None)
    down = mine.log.since(m)
    assert shape(down) == ["FeatureLevel v0"] and down == [level(GROUP, 0)]
    until("the level is finalized", lambda: (f := finalized(mine.client()))[0] == down[0].offset and GROUP not in f[1])
    assert update(mine, (GROUP, 1)) == ("NONE", None)
    back = mine.log.since(m)[1:]
    assert back == [level(GROUP, 1)]
    until("the level is finalized", lambda: (f := finalized(mine.client()))[0] == back[0].offset and f[1][GROUP] == 1)


def test_the_level_it_has(mine):
    """Asking for the current level succeeds and writes the record again.

    For metadata.version too, whatever the type.
    """
    m = mine.log.mark()
    assert update(mine, (TXN, 2)) == update(mine, (MV, 30, SAFE)) == ("NONE", None)
    assert mine.log.since(m) == [level(TXN, 2), level(MV, 30)]


def test_types_must_fit(mine):
    """Lower needs a downgrade type, higher an upgrade; there are no other types."""
    m = mine.log.mark()
    assert update(mine, (GROUP, 0)) == invalid(
        0,
        GROUP,
        "Can't downgrade the version of this feature without setting the upgrade type to either "
        "safe or unsafe downgrade.",
    )
    assert (
        update(mine, (GROUP, 0, 0))
        == update(mine, (GROUP, 0, 4))
        == invalid(0, GROUP, "The controller does not support the given upgrade type.")
    )
    assert update(mine, (GROUP, -1, SAFE)) == invalid(-1, GROUP, "A feature version cannot be less than 0.")
    assert mine.log.since(m) == []
    assert update(mine, (GROUP, 0, UNSAFE)) == ("NONE", None)
    assert update(mine, (GROUP, 1, SAFE)) == invalid(1, GROUP, "Can't downgrade to a newer version.")
    assert update(mine, (GROUP, 1)) == ("NONE", None)


def test_beyond_what_the_controller_supports(mine):
    """Unknown features and levels outside the controller's own range."""
    m = mine.log.mark()
    assert update(mine, (GROUP, 2)) == invalid(2, GROUP, "Local controller 1 only supports versions 0-1")
    assert update(mine, (MV, 31)) == invalid(31, MV, "Local controller 1 only supports versions 7-30")
    assert update(mine, (MV, 6, SAFE)) == invalid(6, MV, "Local controller 1 only supports versions 7-30")
    assert update(mine, ("no.such.version", 1)) == invalid(
        1, "no.such.version", "Local controller 1 does not support this feature."
    )
    assert update(mine, ("no.such.version", 0, SAFE)) == invalid(
        0, "no.such.version", "Feature no.such.version not found."
    )
    assert mine.log.since(m) == []


def test_all_or_nothing(mine):
    """One bad feature fails the request, v2 with one error at the top; v1 the same, without results.

    Good ones are one batch, and v1 names them in the order of the request.
    """
    m = mine.log.mark()
    answer = invalid(3, TXN, "Local controller 1 only supports versions 0-2")
    assert update(mine, (GROUP, 0, SAFE), (TXN, 3)) == answer
    r = update_features(mine, (GROUP, 0, SAFE), (TXN, 3), version=1)
    assert (err(r["ErrorCode"]), r["ErrorMessage"], r["Results"]) == (*answer, [])
    assert mine.log.since(m) == []
    r = update_features(mine, (TXN, 1, SAFE), (GROUP, 0, SAFE), version=1)
    assert r["Results"] == [{"Feature": f, "ErrorCode": 0, "ErrorMessage": "NONE"} for f in (TXN, GROUP)]
    assert update(mine, (TXN, 2), (GROUP, 1)) == ("NONE", None)
    recs = mine.log.since(m)
    assert [sorted((r["Name"], r["FeatureLevel"]) for r in g) for g in groups(recs)] == [
        [(GROUP, 0), (TXN, 1)],
        [(GROUP, 1), (TXN, 2)],
    ]


def test_validate_only(mine):
    """KIP-584: the same answers, nothing written."""
    m = mine.log.mark()
    assert update(mine, (GROUP, 0, SAFE), validate=True) == ("NONE", None)
    assert update(mine, (GROUP, 0), validate=True)[0] == "INVALID_UPDATE_VERSION"
    assert mine.log.since(m) == [] and finalized(mine.client())[1][GROUP] == 1


def test_a_registered_broker_holds_it_back(mine):
    """No level beyond a registered broker's range, fenced or not, until it is unregistered.

    Who cannot do a finalized level may not register.
    """
    b = mine.broker(features={**FEATURES, TXN: (0, 1)})
    assert err(b.register(check=False)["ErrorCode"]) == "UNSUPPORTED_VERSION"
    assert update(mine, (TXN, 1, SAFE)) == ("NONE", None)
    assert b.register(check=False)["ErrorCode"] == 0
    m = mine.log.mark()
    assert update(mine, (TXN, 2)) == invalid(2, TXN, f"Broker {b.id} only supports versions 0-1")
    assert mine.log.since(m) == []
    mine.unregister(b.id)
    assert update(mine, (TXN, 2)) == ("NONE", None)


def test_metadata_version_steps(cluster):
    """Upwards to any level; down only where no step between changes the metadata (M in the table of levels), not even
    with the unsafe type.
    """
    c = cluster(format_args=["--release-version", "4.0-IV3"])
    assert finalized(c.client())[1] == {MV: 25, KRAFT: 1, GROUP: 1, TXN: 2}
    m = c.log.mark()
    assert update(c, (MV, 27)) == update(c, (MV, 23, SAFE)) == ("NONE", None)
    refusal = f"{PREFIX}Unsupported metadata.version downgrade from 23 to 22. "
    assert update(c, (MV, 22, SAFE)) == (
        "INVALID_UPDATE_VERSION",
        refusal + "Refusing to perform the requested downgrade because it might delete metadata information.",
    )
    assert update(c, (MV, 22, UNSAFE)) == (
        "INVALID_UPDATE_VERSION",
        refusal + "Unsafe metadata downgrade is not supported in this version.",
    )
    assert update(c, (MV, 30)) == ("NONE", None)
    assert c.log.since(m) == [level(MV, 27), level(MV, 23), level(MV, 30)]


def test_kraft_version_is_kept_by_raft(mine):
    """The level it has: a NoOp record and no FeatureLevel; downwards never."""
    m = mine.log.mark()
    assert update(mine, (KRAFT, 1)) == ("NONE", None)
    assert shape(mine.log.since(m)) == ["NoOp v0"]
    assert (
        update(mine, (KRAFT, 0, SAFE))
        == update(mine, (KRAFT, 0, UNSAFE))
        == invalid(0, KRAFT, "Can't downgrade the version of this feature.")
    )
    assert len(mine.log.since(m)) == 1
