"""The calls that docs/migrating.md names do what an old program, of which they are, relied on.

Each function takes the steps of a program written for one library, with the calls of today; every call that stands in
a table of the page is among the steps of its section.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from concurrent.futures import ThreadPoolExecutor

import pytest
from project import ROOT

import kraftcore
import kraftcore.blocking
from kraftcore.blocking import recipes

PAGE = (ROOT / "docs" / "migrating.md").read_text()


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    config = kraftcore.NodeConfig(
        node_id=1,
        directory=str(tmp_path_factory.mktemp("node")),
        listeners=["127.0.0.1:0"],
        create="standalone",
    )
    with kraftcore.blocking.open_node(config, recipes.RecipeMachine()) as node:
        node.wait_leader()
        yield node


def test_pysyncobj(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = kraftcore.NodeConfig(node_id=1, directory="data", listeners=["127.0.0.1:0"], create="standalone")
    with kraftcore.blocking.open_node(config, recipes.RecipeMachine()) as node:
        assert node.wait_leader() == 1
        assert node.status().leader_id == 1
        visits = recipes.Counter(node, "visits")
        assert recipes.Counter(node.with_timeout(5), "visits").add() == 1
        with ThreadPoolExecutor() as pool:
            assert pool.submit(visits.add, 5).result() == 6
        assert visits.add(5) == 11
        assert visits.add() == 12
        assert visits.add(-2) == 10
        assert visits.set(7) == 10
        assert visits.peek() == 7
        assert visits.get() == 7

        settings = recipes.Dict(node, "settings")
        settings.set("colour", "blue")
        assert settings["colour"] == "blue"
        assert settings.peek("shape") is None
        assert "colour" in settings
        assert len(settings) == 1
        assert settings.peek_items() == {"colour": "blue"}
        assert settings.get("colour") == "blue"
        assert settings.set_default("colour", "red") == "blue"
        settings.update({"size": 3})
        assert settings.items() == {"colour": "blue", "size": 3}
        assert settings.size() == 2
        assert settings.pop("size", 0) == 3
        assert settings.pop("size", 0) == 0
        assert settings.clear() == 1

        hosts = recipes.Set(node, "hosts")
        assert hosts.add("a")
        assert hosts.update(["a", "b"]) == 1
        assert "a" in hosts
        assert hosts.discard("b")
        assert not hosts.discard("b")
        assert hosts.pop() == "a"
        assert hosts.clear() == 0

        jobs = recipes.Queue(node, "jobs", max_size=2)
        assert [jobs.put("first"), jobs.put("second"), jobs.put("third")] == [True, True, False]
        assert jobs.size() == 2
        assert jobs.get_nowait() == "first"
        assert jobs.get(timeout_s=5) == "second"
        assert jobs.get_nowait("none") == "none"
        urgent = recipes.PriorityQueue(node, "urgent")
        assert urgent.put("later", 7)
        assert urgent.put("now", 1)
        assert urgent.get_nowait() == "now"

        steps = recipes.List(node, "steps")
        assert steps.append("b") == 1
        assert steps.extend(["c", "d"]) == 3
        assert steps.insert(0, "a") == 4
        assert steps.set(3, "e") == "d"
        assert steps[0] == "a"
        assert steps.items().index("e") == 3
        assert steps.remove("c")
        assert steps.pop() == "e"

        lease = recipes.Lock(node, "report", lease_ms=10_000).try_acquire()
        assert recipes.Lock(node, "report").try_acquire() is None  # PySyncObj: True, for it is the same process
        assert lease.is_valid
        assert lease.release()
        with recipes.Lock(node, "report").hold() as lease:
            assert lease.is_valid
        assert not lease.is_valid
        assert node.snapshot_now()
        settings.set("colour", "green")
    # The whole cluster stopped, and starts again.
    with kraftcore.blocking.open_node(config, recipes.RecipeMachine()) as node:
        node.wait_leader()
        assert recipes.Dict(node, "settings").items() == {"colour": "green"}
        assert recipes.Counter(node, "visits").get() == 7


def test_etcd3(node):
    keys = recipes.Dict(node, "etcd3")
    first = keys.set("app/a", "1")
    assert keys.get("app/a") == "1"
    assert keys.get_versioned("app/a") == ("1", first)
    assert keys.peek("app/a") == "1"
    assert keys.set_if("app/b", "me", recipes.ABSENT) is not None
    assert keys.set_if("app/b", "you", recipes.ABSENT) is None
    assert keys.compare_and_set("app/a", "1", "2")
    assert not keys.compare_and_set("app/a", "1", "3")
    keys.set("other", "x")
    assert keys.items("app/") == {"app/a": "2", "app/b": "me"}
    assert len(keys.items()) == 3
    version = keys.get_versioned("app/a").version
    recipes.Transaction(node).check(keys, "app/a", version).set(keys, "app/b", "you").commit()
    with pytest.raises(kraftcore.ConflictError):
        recipes.Transaction(node).check(keys, "app/a", first).delete(keys, "app/b").commit()
    with keys.watch("app/") as changes:
        keys.set("other", "y")
        assert keys.delete("app/a")
        change = next(changes)
        assert (change.key, change.value, change.is_deleted) == ("app/a", None, True)
    for key in keys.items("app/"):
        keys.delete(key)
    assert keys.items() == {"other": "y"}

    lock = recipes.Lock(node, "report", lease_ms=20_000)
    with lock.hold(timeout_s=10) as held:
        with pytest.raises(TimeoutError):
            recipes.Lock(node, "report").acquire(timeout_s=0)
        assert held.is_valid
    lease = lock.acquire(timeout_s=10)
    lease.renew()
    assert lease.token > held.token
    assert lease.is_valid
    assert lease.release()
    assert not lease.is_valid

    # What lives as long as its program: a key with a lease.
    with recipes.Lock(node, "host/web-1", info={"port": 80}).hold():
        assert recipes.Lock(node, "host/web-1").holder().info == {"port": 80}
    assert recipes.Lock(node, "host/web-1").holder() is None
    assert node.status().leader_id == 1


def test_redis_locks(node):
    lock = recipes.Lock(node, "redis", lease_ms=10_000, info="host-a")
    with lock.hold() as held:
        assert lock.try_acquire() is None
        with pytest.raises(TimeoutError):
            lock.acquire(timeout_s=0)
        assert lock.holder() is not None
        assert (lock.holder().info, lock.holder().token) == ("host-a", held.token)
    assert lock.holder() is None
    assert lock.try_acquire().release()
    lease = lock.acquire(timeout_s=5)
    assert lease.is_valid
    lease.renew()
    assert lease.token > held.token
    with ThreadPoolExecutor() as pool:
        assert pool.submit(lease.release).result()  # another thread than the one that acquired it
    assert not lease.release()  # redis: LockNotOwnedError
    with pytest.raises(kraftcore.LeaseLostError):
        lease.renew()

    # A holder that was too slow cannot write any more.
    accounts = recipes.Dict(node, "accounts")
    with lock.hold() as lease:
        recipes.Transaction(node).check_lock(lock, lease.token).set(accounts, "alice", 90).commit()
    with pytest.raises(kraftcore.ConflictError):
        recipes.Transaction(node).check_lock(lock, lease.token).set(accounts, "alice", 0).commit()
    assert accounts.get("alice") == 90


def test_kazoo(node):
    nodes = recipes.Dict(node, "kazoo")
    version = nodes.set("a/b", b"1")
    assert "a/b" in nodes
    assert nodes.get_versioned("a/b") == (b"1", version)
    assert nodes.set_if("a/b", b"2", version) is not None
    assert nodes.set_if("a/b", b"3", version) is None
    assert list(nodes.items("a/")) == ["a/b"]
    assert not nodes.delete_if("a/b", version)
    with nodes.watch("a/") as changes:
        assert nodes.peek_items("a/") == {"a/b": b"2"}
        nodes.set("a/c", b"1")
        assert next(changes).key == "a/c"

    lock = recipes.Lock(node, "kazoo", info="host-a")
    with lock.hold():
        assert lock.try_acquire() is None
        assert lock.holder().info == "host-a"
        assert lock.contenders() == ["host-a"]
        with pytest.raises(TimeoutError):
            lock.acquire(timeout_s=0)
    lease = lock.acquire(timeout_s=5)
    assert lease.release()
    assert recipes.Lock(node, "hourly", lease_ms=70 * 60_000).try_acquire() is not None

    pool = recipes.Semaphore(node, "pool", 2, info="host-a")
    with pool.hold(), pool.hold():
        assert pool.try_acquire() is None
        assert [each.info for each in pool.holders()] == ["host-a", "host-a"]

    party = recipes.Members(node, "party", info="host-a")
    with party.observe() as changes:
        assert next(changes) == []
        with party.join():
            assert [each.info for each in party.present()] == ["host-a"]
        assert len(party.present()) == 0
    assert recipes.Counter(node, "sequence").add() == 1

    election = recipes.Election(node, "election", info="host-a")

    def lead(term):
        return term.is_valid, election.leader().info, election.contenders()

    assert election.run(lead) == (True, "host-a", ["host-a"])
    assert election.leader() is None

    barrier = recipes.Barrier(node, "double", 2)
    with ThreadPoolExecutor() as pool_of_threads:
        for _ in ("enter", "leave"):
            others = pool_of_threads.submit(recipes.Barrier(node, "double", 2).wait)
            barrier.wait(timeout_s=10)
            others.result()

    counter = recipes.Counter(node, "kazoo")
    counter.add(2)
    counter.add(-1)
    assert counter.get() == 1
    jobs = recipes.PriorityQueue(node, "kazoo")
    jobs.put(b"later", 100)
    jobs.put(b"first", 10)
    assert len(jobs) == 2
    assert jobs.get_nowait() == b"first"
    assert jobs.get(timeout_s=10) == b"later"
    jobs.put(b"last")
    with jobs.take(timeout_s=10) as taken:
        assert (taken.item, taken.is_valid, len(jobs)) == (b"last", True, 0)
        assert taken.release()
    with pytest.raises(TimeoutError), jobs.take(timeout_s=0), jobs.take(timeout_s=0):
        pytest.fail("there is one item")
    with pytest.raises(ZeroDivisionError), jobs.take(timeout_s=10):
        raise ZeroDivisionError
    with jobs.take(timeout_s=10) as taken:
        taken.finish()
    jobs.put(b"the end of the block")
    with jobs.take(timeout_s=10):
        pass
    assert jobs.size() == 0


def test_the_programs_of_the_page(node, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    for block in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL):
        exec(compile(block, "migrating.md", "exec"), names)
    names["main"]()
    assert (tmp_path / "data").is_dir()
    names["pay"](node, recipes.Lock(node, "pay"))
    assert recipes.Dict(node, "accounts").get("alice") == 90
    with ThreadPoolExecutor() as pool:
        waits = pool.submit(names["wait_until_open"], node, "start")
        names["open_for_all"](node, "start")
        waits.result(timeout=60)


STEPS = {"PySyncObj": test_pysyncobj, "etcd3": test_etcd3, "redis-py": test_redis_locks, "kazoo": test_kazoo}


@pytest.mark.parametrize("library", STEPS)
def test_every_call_in_a_table_is_a_step(library):
    section = PAGE.partition(f"\n## Coming from {library}")[2].partition("\n## ")[0]
    tree = ast.parse(textwrap.dedent(inspect.getsource(STEPS[library])))
    steps = {ast.dump(each) for each in ast.walk(tree)}
    rows = re.findall(r"^\| .* \|$", section, re.MULTILINE)[1:]
    assert len(rows) > 8
    calls = [call for row in rows for call in re.findall(r"`([^`]+)`", row.split(" | ")[1])]
    assert calls
    missing = [call for call in calls if not _is_step(call, steps)]
    assert not missing


def _is_step(call: str, steps: set[str]) -> bool:
    (statement,) = ast.parse(call).body
    return ast.dump(statement) in steps or (isinstance(statement, ast.Expr) and ast.dump(statement.value) in steps)
