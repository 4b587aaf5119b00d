"""Patroni on a quorum of ours (`examples/patroni/`): keys, DCS, witnesses, and a whole run with PostgreSQL."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from kraftcore.core.batch import RecordBatch, build_batch

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "patroni"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The example's modules, which find each other as they do when it is run."""
    names = ("keys", "kraft_dcs", "lab", "member", "run", "witnesses")
    monkeypatch.syspath_prepend(str(FOLDER))
    import patroni.dcs

    monkeypatch.setattr(patroni.dcs, "iter_dcs_classes", patroni.dcs.iter_dcs_classes)  # `member` puts another there
    yield SimpleNamespace(**{name: __import__(name) for name in names})
    for name in names:
        del sys.modules[name]


class Log:
    """Gives records to a machine, as a node would."""

    def __init__(self, keys) -> None:
        self.keys = keys
        self.offset = 10

    def at(self, now_ms: int, *commands: dict) -> list[int]:
        values = [json.dumps(each).encode() for each in commands]
        batch = RecordBatch(build_batch(values, timestamp_ms=now_ms, base_offset=self.offset))
        self.offset += len(values)
        return self.keys.apply(batch)


def put(value: str, wanted: dict | None = None, ttl_ms: int | None = None) -> dict:
    return {"verb": "set", "key": "/a/leader", "value": value, "if": wanted or {}, "ttl_ms": ttl_ms}


def delete(wanted: dict) -> dict:
    return {"verb": "delete", "key": "/a/leader", "if": wanted}


def test_keys_change_on_conditions(example):
    log = Log(example.keys.Keys(lambda *change: None))
    absent = {"created": None}
    assert log.at(0, put("a", absent), put("b", absent)) == [10, 0]
    assert log.at(0, put("a", {"value": "b"}), put("a", {"value": "a", "created": 10})) == [0, 13]
    assert log.keys.get("/a/leader") == ("a", 10, 13, None)
    assert log.at(0, delete({"changed": 10}), delete({"changed": 13}), delete({"value": "a"})) == [0, 15, 0]
    assert log.keys.get("/a/leader") is None
    other = put("c") | {"key": "/b/config"}
    assert log.at(0, put("a"), other, {"verb": "delete_all", "key": "/a/"}, {"verb": "dance"}) == [17, 18, 19, 0]
    assert log.keys.below("/") == {"b/config": ("c", 18, 18, None)}


def test_keys_end_by_the_logs_time_and_watchers_are_told(example):
    told = []
    log = Log(example.keys.Keys(lambda *change: told.append(change)))
    log.at(1000, put("a", ttl_ms=500))
    assert log.at(1499, {"verb": "tick"}, put("a", {"value": "a"}, ttl_ms=500)) == [11, 12]
    log.at(1200, {"verb": "tick"})  # of a leader whose clock is behind: time does not go back
    assert log.at(1998, {"verb": "tick"}, put("b", {"created": None})) == [14, 0]
    log.at(1999, put("b", {"created": None}))
    assert log.keys.get("/a/leader").value == "b"
    values = [(before and before.value, after and after.value) for _, before, after in told]
    assert values == [(None, "a"), ("a", "a"), ("a", None), (None, "b")]


def test_a_snapshot_holds_keys_and_time(example):
    log = Log(example.keys.Keys(lambda *change: None))
    log.at(1000, put("a", ttl_ms=500), {"verb": "set", "key": "/a/config", "value": "{}", "if": {}})
    written = []
    log.keys.snapshot(SimpleNamespace(append=written.extend))
    restored = example.keys.Keys(lambda *change: None)
    restored.restore([])  # a new quorum's first snapshot
    assert restored.below("") == {}
    restored.restore(written)
    assert restored.below("") == log.keys.below("")
    other = Log(restored)
    other.at(0, {"verb": "tick"})
    assert restored.get("/a/leader") is not None
    other.at(1500, {"verb": "tick"})
    assert list(restored.below("")) == ["/a/config"]


def section(path: Path, **more) -> dict:
    ours = {"node_id": 1, "directory": str(path / "quorum"), "listeners": ["127.0.0.1:0"]}
    return {"scope": "test", "ttl": 20, "loop_wait": 1, "retry_timeout": 3, "kraftcore": ours | more}


def open_dcs(config: dict, name: str):
    """As Patroni does it; ``member`` was imported."""
    import patroni.dcs

    return patroni.dcs.get_dcs(config | {"name": name})


@pytest.fixture
def pair(example, tmp_path, monkeypatch) -> Iterator[tuple]:
    """The DCS of member a, on a quorum of one, and that of a member b, who shares the node."""
    ends = []
    monkeypatch.setattr(example.kraft_dcs.atexit, "register", ends.append)
    a = open_dcs(section(tmp_path, create="standalone"), "a")
    b = copy.copy(a)
    b._name, b.event = "b", threading.Event()
    yield a, b
    for end in reversed(ends):
        end()


def test_one_member_leads(pair):
    a, b = pair
    assert a.initialize() is True
    assert b.initialize() is False
    assert a.initialize(create_new=False, sysid="17") is True
    assert a.touch_member({"conn_url": "postgres://a", "api_url": "http://a"}) is True
    assert a.attempt_to_acquire_leader() is True
    assert b.attempt_to_acquire_leader() is False
    cluster = b.get_cluster()
    assert (cluster.initialize, cluster.leader.name, cluster.leader.conn_url) == ("17", "a", "postgres://a")
    assert a.update_leader(cluster, 4711) is True
    assert b.update_leader(cluster, None) is False
    assert b.get_cluster().status.last_lsn == 4711
    assert b.delete_leader(cluster.leader) is False
    assert a.delete_leader(cluster.leader) is True
    assert a.attempt_to_acquire_leader() is True
    assert a.update_leader(cluster, None) is False  # it may have been another's in between
    assert a.update_leader(a.get_cluster(), None) is True
    assert b.take_leader() is True
    assert a.get_cluster().leader.name == "b"


def test_values_change_if_nobody_else_changed_them(pair):
    a, b = pair
    assert a.set_config_value('{"ttl": 20}') is True
    assert a.set_history_value("[]") is True
    assert a.write_failsafe({"a": "http://a"}) is None
    first = a.write_sync_state("a", ["b"], 0)
    assert first.sync_standby == "b"
    second = a.write_sync_state("a", ["c"], 0, version=first.version)
    assert b.write_sync_state("b", [], 0, version=first.version) is None
    assert b.delete_sync_state(first.version) is False
    assert a.manual_failover("a", "b") is True
    cluster = b.get_cluster()
    assert (cluster.config.data, cluster.failsafe, cluster.history.lines) == ({"ttl": 20}, {"a": "http://a"}, [])
    assert (cluster.sync, cluster.failover.candidate) == (second, "b")
    assert b.delete_sync_state(second.version) is True
    assert b.set_failover_value("", cluster.failover.version + 1) is False
    assert b.cancel_initialization() is True
    assert b.get_cluster().sync.is_empty
    assert a.delete_cluster() is True
    assert b.get_cluster().is_empty()


def test_each_group_of_a_sharded_cluster_is_a_cluster(pair):
    a, _ = pair
    for key in ("0/initialize", "1/initialize", "elsewhere"):
        a._commit("set", a.client_path(key), value=key)
    groups = a._load_cluster(a.client_path(""), a._mpp_cluster_loader)
    assert {group: cluster.initialize for group, cluster in groups.items()} == {0: "0/initialize", 1: "1/initialize"}


def test_a_wait_ends_when_the_leaders_key_does(pair, monkeypatch):
    a, _ = pair
    a._name = "b"
    a._ttl_s = 0.05
    assert a.attempt_to_acquire_leader() is True
    assert a.event.wait(5)
    a._name = "a"
    assert a.watch(None, 0) is True  # news
    assert a.watch(None, 5) is True  # the time at which the key ends
    assert a.get_cluster().leader is None
    assert a.watch(None, 5) is True
    assert a.watch(None, 0) is False


def test_patronictl_is_a_guest_of_the_quorum(pair, tmp_path):
    """It has the file of a member that runs, whose directory and place among the voters are taken."""
    a, _ = pair
    assert a.initialize(sysid="17") is True
    (endpoint,) = a._node.endpoints
    config = section(tmp_path, bootstrap_servers=[f"{endpoint.host}:{endpoint.port}"])
    guest = open_dcs(config | {"patronictl": True}, "a")
    assert guest.get_cluster().initialize == "17"
    assert guest.set_config_value("{}") is True
    assert a.get_cluster().config.data == {}


def test_without_a_majority_nothing_is_promised(example, tmp_path, monkeypatch):
    from patroni.exceptions import DCSError

    ends = []
    monkeypatch.setattr(example.kraft_dcs.atexit, "register", ends.append)
    voters = ["1@127.0.0.1:1", "2@127.0.0.1:2", "3@127.0.0.1:3"]
    dcs = open_dcs(section(tmp_path, voters=voters), "a")
    dcs._retry_timeout_s = 0.05
    for ask in (dcs.get_cluster, dcs.attempt_to_acquire_leader, dcs.take_leader):
        with pytest.raises(DCSError, match="did not end within"):
            ask()
    monkeypatch.setattr(example.kraft_dcs, "SHORT_S", 0.05)
    assert dcs.touch_member({}) is False
    for end in ends:
        end()


def test_writes_of_two_primaries_are_found(example):
    def found(*writes: tuple[float, float, str, int]) -> list[str]:
        return example.witnesses.contradictions(example.witnesses.Write(*write) for write in writes)

    assert found() == []
    assert found((0, 1, "a", 1), (1, 2, "a", 1), (1.5, 3, "b", 2), (3, 4, "b", 2), (5, 6, "a", 3)) == []
    assert found((0, 1, "a", 1), (2, 3, "b", 1)) == ["a and b have both written on timeline 1"]
    assert found((0, 1, "a", 1), (2, 3, "b", 2), (3.5, 4, "a", 1)) == ["a wrote on timeline 1 when 2 had begun"]


@pytest.mark.deep
def test_nothing_is_lost_and_no_two_lead():
    """Bootstrap, switchover, and SIGKILL of a replica, the primary, both replicas and all."""
    command = [sys.executable, str(FOLDER / "run.py"), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            out, err = process.communicate(timeout=600)
        finally:
            process.terminate()  # ends its own
    assert process.returncode == 0, err
    (seen,) = json.loads(out)
    assert (seen["missing_rows"], seen["two_primaries"]) == ({}, [])
    assert len(seen["steps"]) == 5
    assert len(seen["timelines"]) > 2  # there were promotions
    assert seen["acknowledged_rows"] > 100
    assert seen["probing_writes"] > 100
