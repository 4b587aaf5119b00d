from __future__ import annotations

import re

import pytest
from messages import GOLDEN

from kraftcore.errors import LocalError
from kraftcore.protocol import features
from kraftcore.protocol.features import FEATURES, LATEST_PRODUCTION, MetadataVersion, default_levels, dependencies
from kraftcore.protocol.metadata import decode_metadata_record


def test_defaults_are_what_kafkas_tool_printed():
    printed = (GOLDEN / "formats" / "tools.txt").read_text()
    mappings = re.findall(r"metadata\.version=\d+ \(([^)]+)\)\n((?:[a-z.]+=\d+\n)+)", printed)
    assert [text for text, _ in mappings] == ["4.3-IV0", "3.9"]
    for text, lines in mappings:
        levels = default_levels(MetadataVersion.from_text(text))
        assert next(iter(levels)) == "metadata.version"
        assert "".join(f"{name}={level}\n" for name, level in levels.items() if name != "metadata.version") == lines


def test_levels_and_names():
    assert [int(level) for level in MetadataVersion] == list(range(7, 32))
    assert MetadataVersion.from_level(7) is features.MINIMUM_METADATA_VERSION
    assert LATEST_PRODUCTION == 30
    assert (LATEST_PRODUCTION.text, LATEST_PRODUCTION.release) == ("4.3-IV0", "4.3")
    with pytest.raises(LocalError, match=r"no metadata.version has level 6; known are 7 to 31"):
        MetadataVersion.from_level(6)


@pytest.mark.parametrize(
    ("text", "level"),
    [("3.3", 7), ("3.7", 19), ("3.9", 21), ("3.9.1", 21), ("4.0", 25), ("4.0-IV1", 23), ("3.8.x", 20), ("4.3", 30)],
)
def test_releases(text, level):
    assert MetadataVersion.from_text(text) == level


@pytest.mark.parametrize("text", ["9.9", "4.4", "4.4-IV0", "", "3", "4.0-IV9", "4.0-iv1"])
def test_unknown_releases(text):
    with pytest.raises(LocalError, match=rf"Unknown metadata.version '{text}'. Supported .* 3.3-IV3, .*, 4.3-IV0$"):
        MetadataVersion.from_text(text)


def test_unstable_levels_on_request():
    assert MetadataVersion.from_text("4.4-IV0", unstable=True) == 31
    assert not MetadataVersion.V4_4_IV0.is_stable
    with pytest.raises(LocalError, match=r"4.4-IV0$"):
        MetadataVersion.from_text("4.4", unstable=True)


def test_record_changes():
    changing = [level.text for level in MetadataVersion if level.changes_records]
    assert changing == [
        "3.3-IV3",
        "3.4-IV0",
        "3.5-IV2",
        "3.6-IV1",
        "3.6-IV2",
        "3.7-IV0",
        "3.7-IV2",
        "4.0-IV1",
        "4.3-IV0",
    ]
    v = MetadataVersion
    assert not v.V4_0_IV1.records_change_between(v.V4_2_IV1)
    assert v.V4_0_IV1.records_change_between(v.V4_0_IV0)
    assert v.V4_0_IV0.records_change_between(v.V4_0_IV1)
    assert not v.V4_0_IV1.records_change_between(v.V4_0_IV1)
    assert v.V3_9_IV0.records_change_between(LATEST_PRODUCTION)


def test_versions_by_level():
    by_level = {level.text: level for level in MetadataVersion}
    assert [by_level[t].register_broker_record_version for t in ("3.3-IV3", "3.4-IV0", "3.7-IV2", "4.3-IV0")] == [
        1,
        2,
        3,
        4,
    ]
    assert [by_level[t].partition_record_version for t in ("3.7-IV1", "3.7-IV2", "4.0-IV0", "4.0-IV1")] == [0, 1, 1, 2]
    assert [by_level[t].fetch_version for t in ("3.4-IV0", "3.5-IV0", "3.5-IV1", "3.7-IV4", "3.9-IV0", "4.1-IV1")] == [
        13, 14, 15, 16, 17, 18,
    ]  # fmt: skip
    assert [by_level[t].list_offsets_version for t in ("3.4-IV0", "3.5-IV0", "3.9-IV0", "4.0-IV3", "4.2-IV1")] == [
        7, 8, 9, 10, 11,
    ]  # fmt: skip


def test_default_levels_move_at_the_documented_steps():
    first = {each.name: next(int(v) for v in MetadataVersion if each.default_level(v) > 0) for each in FEATURES}
    assert first == {
        "kraft.version": 21,
        "transaction.version": 24,
        "group.version": 22,
        "eligible.leader.replicas.version": 26,
        "share.version": 28,
        "streams.version": 29,
    }
    assert [each.max_level for each in FEATURES] == [1, 2, 1, 1, 1, 1]


def test_dependencies():
    assert dependencies("eligible.leader.replicas.version", 1) == {"metadata.version": 23}
    assert dependencies("transaction.version", 2) == {}
    assert dependencies("metadata.version", 30) == {}
    with pytest.raises(LocalError, match="Unknown feature: foo"):
        dependencies("foo", 1)
    with pytest.raises(LocalError, match=r"Feature level 9 is not supported for feature kraft.version"):
        dependencies("kraft.version", 9)
    with pytest.raises(LocalError, match="level 99"):
        dependencies("metadata.version", 99)


def test_levels_that_fit_together():
    for level in MetadataVersion:
        features.check_dependencies(default_levels(level))
    with pytest.raises(LocalError, match=r"eligible.leader.replicas.version could not be set to 1 because .* level 23"):
        features.check_dependencies({"metadata.version": 22, "eligible.leader.replicas.version": 1})
    with pytest.raises(LocalError, match=r"group.version could not be set to 1 .*metadata.version=7 \(3.3-IV3\)"):
        features.check_dependencies({"group.version": 1})


def test_bootstrap_records_hold_the_default_levels():
    dump = (GOLDEN / "formats" / "c1" / "dump" / "bootstrap.checkpoint.txt").read_text()
    written = {name: int(level) for name, level in re.findall(r'"name":"([a-z.]+)","featureLevel":(\d+)', dump)}
    expected = {
        name: level for name, level in default_levels(LATEST_PRODUCTION).items() if level and name != "kraft.version"
    }
    assert written == expected
    assert decode_metadata_record(b"\x01\x0c\x00\x02a\x00\x01\x00")[0].feature_level == 1
