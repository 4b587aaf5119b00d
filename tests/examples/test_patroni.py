"""Patroni on a quorum of ours (`examples/patroni/`): keys, DCS, witnesses, and a whole run with PostgreSQL."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

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


class Members:
    """Members of Patroni that are here but for PostgreSQL: each its DCS, on a node of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._server = f"127.0.0.1:{free.getsockname()[1]}"

    def first(self, name: str, **more: Any) -> Any:
        """The one voter's."""
        return self.open(name, {"node_id": 1, "listeners": [self._server], "create": "standalone"}, **more)

    def other(self, name: str, **more: Any) -> Any:
        """Of a node that only follows."""
        ours = {"node_id": 2, "listeners": ["127.0.0.1:0"], "can_become_voter": False}
        return self.open(name, ours | {"bootstrap_servers": [self._server]}, **more)

    def open(self, name: str, ours: dict, **more: Any) -> Any:
        """As Patroni does it."""
        import patroni.dcs

        ours["directory"] = str(self._folder / name)
        config = {"scope": "test", "name": name, "ttl": 20, "loop_wait": 1, "retry_timeout": 30, "kraftcore": ours}
        return patroni.dcs.get_dcs(config | more)


@pytest.fixture
def members(example, tmp_path, monkeypatch) -> Iterator[Members]:
    ends: list[Callable[[], None]] = []
    monkeypatch.setattr(example.kraft_dcs.atexit, "register", ends.append)
    yield Members(tmp_path)
    for end in reversed(ends):
        end()


@pytest.fixture
def pair(members) -> tuple[Any, Any]:
    return members.first("a"), members.other("b")


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


def test_each_group_of_a_sharded_cluster_is_a_cluster(members):
    coordinator = members.first("a", citus={"group": 0, "database": "postgres"})
    worker = members.other("b", citus={"group": 1, "database": "postgres"})
    assert worker.initialize(sysid="17") is True
    assert coordinator.get_cluster().workers[1].initialize == "17"
    assert worker.get_mpp_coordinator().is_empty()
    assert coordinator.initialize(sysid="16") is True
    assert worker.get_mpp_coordinator().initialize == "16"


def test_a_wait_ends_when_the_leaders_key_does(pair):
    a, b = pair
    b.set_ttl(0.05)
    assert b.attempt_to_acquire_leader() is True
    assert a.watch(None, 5) is True  # news
    assert a.watch(None, 5) is True  # the time at which the key ends
    assert a.get_cluster().leader is None
    assert a.watch(None, 5) is True
    assert a.watch(None, 0) is False


def test_patronictl_is_a_guest_of_the_quorum(members):
    """It has the file of a member that runs, whose directory and place among the voters are taken."""
    a, _ = members.first("a"), members.other("b")
    assert a.initialize(sysid="17") is True
    guest = members.other("b", patronictl=True)
    assert guest.get_cluster().initialize == "17"
    assert guest.set_config_value("{}") is True
    assert a.get_cluster().config.data == {}


def test_without_a_majority_nothing_is_promised(example, members, monkeypatch):
    from patroni.exceptions import DCSError

    voters = ["1@127.0.0.1:1", "2@127.0.0.1:2", "3@127.0.0.1:3"]
    ours = {"node_id": 1, "listeners": ["127.0.0.1:0"], "voters": voters}
    dcs = members.open("a", ours, ttl=0.05, retry_timeout=0.05)
    for ask in (dcs.get_cluster, dcs.attempt_to_acquire_leader, dcs.take_leader):
        with pytest.raises(DCSError, match="did not end within"):
            ask()
    monkeypatch.setattr(example.kraft_dcs, "SHORT_S", 0.05)
    assert dcs.touch_member({}) is False


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
    environment = os.environ | {"TMPDIR": os.environ.get("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
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
