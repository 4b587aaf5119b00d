"""Tables on an object store, which cannot rename: killed writers, two writers at once, and a cluster of Spark's."""

from __future__ import annotations

import json
import socket
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import unquote

import pytest
from fleet import Fleet, comparable
from kafka_lab import HOST, free_port
from object_store import BUCKET, object_store
from project import ROOT
from spark_parts import counted_rows

from kraftcore.errors import LockedError, StorageError
from kraftcore.plugins import spark as kraft
from kraftcore.plugins.spark import gold_registry
from kraftcore.plugins.spark.commits import Commit, Commits
from kraftcore.plugins.spark.folders import HadoopFolder
from kraftcore.plugins.spark.pipeline import Taking, check_input
from kraftcore.plugins.spark.tables import Tables

pytestmark = pytest.mark.deep

CLUSTERS = 3
COMMIT_REQUESTS = 25


@pytest.fixture(scope="module")
def store(session):
    """A store that the tests' session reaches."""
    settings = session.sparkContext._jsc.hadoopConfiguration()
    with object_store() as found:
        for name, value in found.hadoop.items():
            settings.set(name, value)
        yield found
        for name in found.hadoop:
            settings.unset(name)


@pytest.fixture(autouse=True)
def some_gold(monkeypatch):
    # What gold says is tested elsewhere; each table takes requests.
    some = ("gold_leadership", "gold_logs", "gold_config_history")
    monkeypatch.setattr(gold_registry, "GOLD", {name: gold_registry.GOLD[name] for name in some})


@pytest.fixture
def uploaded(store, tmp_path, monkeypatch):
    """A fleet in the store, before it grows."""
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    fleet = Fleet(tmp_path / "in", CLUSTERS)
    place = f"{tmp_path.name}/in"
    store.upload(fleet.folder, place)
    return fleet, place


def no_spark():
    pytest.fail("so little is done without Spark")


def expected(fleet, home):
    """The rows that a local run makes of the same directories."""
    kraft.run(no_spark, [fleet.folder], home)
    return comparable(counted_rows(home))


class Killed(BaseException):
    """In place of a signal, which would end the tests, too."""


class Steps:
    """What a run does in the store; before the step ``last`` it is killed, or in the middle of it."""

    def __init__(self, monkeypatch):
        self.made, self.last = 0, None
        for name in ("write", "create", "delete", "put"):
            monkeypatch.setattr(HadoopFolder, name, self._step(getattr(HadoopFolder, name)))

    def _step(self, original):
        def step(folder, *arguments):
            self.made += 1
            if self.made - 1 != self.last:
                return original(folder, *arguments)
            if isinstance(arguments[0], dict):  # half of the files are there
                some = dict(list(arguments[0].items())[: len(arguments[0]) // 2])
                original(folder, some)
            raise Killed

        return step


def test_a_run_may_be_killed_at_any_step(session, store, uploaded, monkeypatch, tmp_path):
    fleet, place = uploaded
    inputs = f"s3://{BUCKET}/{place}"

    def run(name):  # the second one merges what both wrote
        return kraft.run(session, [inputs], f"s3a://{BUCKET}/{tmp_path.name}/{name}", merge_files=1)

    for name in ("whole", "killed"):
        run(name)
    fleet.grow(fleet.names[1:])
    store.upload(fleet.folder, place)
    wanted = expected(fleet, tmp_path / "local")
    steps = Steps(monkeypatch)
    assert run("whole").clusters == tuple(sorted(fleet.names[1:]))
    total = steps.made
    assert total > 8
    assert comparable(store.rows(f"{tmp_path.name}/whole")) == wanted
    # Killed again and again: each run goes one step further than the one before.
    for last in range(total):
        steps.made, steps.last = 0, last
        try:
            run("killed")
        except Killed:
            pass
        else:
            break
        store.rows(f"{tmp_path.name}/killed")  # whatever counts is there
    steps.last = None
    run("killed")
    assert comparable(store.rows(f"{tmp_path.name}/killed")) == wanted
    query = "SELECT count(*) AS rows FROM bronze_records"
    (row,) = kraft.query(session, f"s3a://{BUCKET}/{tmp_path.name}/killed", query).collect()
    assert row.rows == sum(sum(one.values()) for one in wanted["bronze_records"].values())
    names = [set(store.names(f"{tmp_path.name}/{name}")) for name in ("whole", "killed")]
    assert [len([one for one in name if "begun" in one]) for name in names] == [0, 0]
    place = f"{tmp_path.name}/killed"
    assert {one for one in names[1] if one.endswith(".parquet")} == named(store, place)


def test_a_run_asks_the_store_for_little(session, store, uploaded, tmp_path):
    fleet, place = uploaded
    inputs, home = f"s3://{BUCKET}/{place}", f"{tmp_path.name}/tables"
    tables = f"s3a://{BUCKET}/{home}"

    def asked(work):
        before = len(store.requests())
        work()
        found = [(method, unquote(path)) for method, path in store.requests()[before:]]
        return [(method, path.partition(f"{home}/")[2]) for method, path in found if home in path]

    def step():
        target = Tables(session, tables)
        before = target.counted()
        writing = target.begin()
        target.end(writing, replace(before, number=writing.number))

    kraft.run(session, [inputs], tables)
    before = {name for name in store.names(home) if name.endswith(".parquet")}
    fleet.grow(fleet.names[:1])
    store.upload(fleet.folder, place)
    found = asked(lambda: kraft.run(session, [inputs], tables))
    made = {name for name in store.names(home) if name.endswith(".parquet")} - before
    puts = Counter(path for method, path in found if method == "PUT")
    assert set(puts.values()) == {1}
    assert {path for path in puts if path.endswith(".parquet")} == made
    assert sorted(path[:9] for path in puts.keys() - made) == ["_commits/"] * 4  # of two steps, each with its mark
    read = {path.partition("/")[0] for method, path in found if method == "GET" and path.endswith(".parquet")}
    assert "bronze_batches" in read
    assert not read & {"bronze_records", *gold_registry.GOLD}
    step()
    assert len(asked(step)) <= COMMIT_REQUESTS
    assert f"A commit is up to {COMMIT_REQUESTS} requests" in (ROOT / "docs" / "spark.md").read_text()


def named(store, tables):
    """The files that the commits name which are kept."""
    numbers = [name for name in store.names(f"{tables}/_commits") if name.isdecimal()]
    assert len(numbers) == 2
    kept = [json.loads(store.read(f"{tables}/_commits/{number}"))["files"] for number in numbers]
    return {f"{table}/{file}" for one in kept for table, files in one.items() for file in files}


@contextmanager
def refusing():
    """The address of a store that allows nothing."""

    class Refuse(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(403)
            self.end_headers()

        do_HEAD = do_PUT = do_GET

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer((HOST, 0), Refuse) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://{HOST}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def absent():
    """The address of a store that is not there."""
    yield f"http://{HOST}:{free_port()}"


@contextmanager
def closing():
    """The address of a store that ends every connection, and a list of its callers."""
    with socket.create_server((HOST, 0)) as server:
        callers = []

        def serve():
            while True:
                try:
                    connection, caller = server.accept()
                except OSError:
                    return
                with connection:
                    callers.append(caller)

        thread = Thread(target=serve)
        thread.start()
        try:
            yield f"http://{HOST}:{server.getsockname()[1]}", callers
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_a_store_that_does_not_answer_is_asked_few_times(session, store):
    settings = session.sparkContext._jsc.hadoopConfiguration()
    with closing() as (address, callers):
        settings.set("fs.s3a.bucket.closing.endpoint", address)
        with pytest.raises(StorageError) as told:
            kraft.query(session, "s3a://closing/tables", "SELECT 1")
    assert told.value.filename == "s3a://closing/tables"
    assert "\n" not in told.value.strerror
    assert 0 < len(callers) <= 4  # with Hadoop's settings: for minutes


@pytest.mark.parametrize(("place", "words"), [(refusing, "Status Code: 403"), (absent, "refused")])
def test_a_store_that_cannot_be_read_is_told_in_one_line(session, store, place, words):
    settings = session.sparkContext._jsc.hadoopConfiguration()
    with place() as address:
        # A file system of its own for each bucket; few tries, for they take minutes by default.
        own = {"endpoint": address, "retry.limit": "1", "retry.interval": "10ms", "attempts.maximum": "1"}
        for name, value in own.items():
            settings.set(f"fs.s3a.bucket.{place.__name__}.{name}", value)
        with pytest.raises(StorageError) as told:
            kraft.query(session, f"s3a://{place.__name__}/tables", "SELECT 1")
    assert told.value.filename.startswith(f"s3a://{place.__name__}/tables")
    assert words in told.value.strerror
    assert "\n" not in told.value.strerror
    assert "Exception: " not in told.value.strerror


def test_of_two_writers_the_later_one_is_refused_and_nothing_of_it_counts(session, store, uploaded, tmp_path):
    fleet, place = uploaded
    tables = f"s3a://{BUCKET}/{tmp_path.name}/tables"
    settings = check_input([f"s3://{BUCKET}/{place}"], "drop", None)
    late = Taking(Tables(session, tables), settings, "drop")
    kraft.run(session, [f"s3://{BUCKET}/{place}"], tables)
    wanted = expected(fleet, tmp_path / "local")
    with pytest.raises(LockedError, match="_commits/0: another run wrote these tables meanwhile"):
        list(late.all())
    assert comparable(store.rows(f"{tmp_path.name}/tables")) == wanted
    assert all("begun" not in name for name in store.names(f"{tmp_path.name}/tables"))
    assert kraft.run(session, [f"s3://{BUCKET}/{place}"], tables).clusters == ()
    assert comparable(store.rows(f"{tmp_path.name}/tables")) == wanted


def test_a_commit_whose_answer_got_lost_is_ones_own(session, store, tmp_path, monkeypatch):
    folder = HadoopFolder(session, f"s3a://{BUCKET}/{tmp_path.name}")
    commits = Commits(folder)
    mine, other = commits.begin(0), commits.begin(0)
    create = HadoopFolder.create

    def twice(folder, name, data):
        assert create(folder, name, data)
        return create(folder, name, data)

    monkeypatch.setattr(HadoopFolder, "create", twice)
    commits.add(mine, Commit(0))
    monkeypatch.setattr(HadoopFolder, "create", create)
    with pytest.raises(LockedError):
        commits.add(other, commits.last())
