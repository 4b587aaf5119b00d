"""Tables on an object store, which cannot rename: killed writers, two writers at once, and stores that do not serve."""

from __future__ import annotations

import socket
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from threading import Barrier, Thread
from urllib.parse import unquote

import pytest
from deltalake import DeltaTable
from fleet import Fleet, comparable
from kafka_lab import HOST, free_port
from object_store import BUCKET, object_store
from project import ROOT
from spark_parts import counted_rows

from kraftcore.errors import LocalError, LockedError, StorageError
from kraftcore.plugins import spark as kraft
from kraftcore.plugins.spark import commits, gold_registry
from kraftcore.plugins.spark.commits import CLEAN_HOURS_MIN, RUNS, Commits
from kraftcore.plugins.spark.delta import File
from kraftcore.plugins.spark.folders import StoreFolder
from kraftcore.plugins.spark.pipeline import Taking, check_input
from kraftcore.plugins.spark.tables import Tables, columns_of
from kraftcore.plugins.spark.views import view_schema

pytestmark = pytest.mark.deep

CLUSTERS = 3
TEN_STEPS = 150


@pytest.fixture(scope="module")
def store():
    with object_store() as found:
        yield found


@pytest.fixture(autouse=True)
def some_gold(monkeypatch, store):
    # What gold says is tested elsewhere; each table takes requests.
    some = ("gold_leadership", "gold_logs", "gold_config_history")
    monkeypatch.setattr(gold_registry, "GOLD", {name: gold_registry.GOLD[name] for name in some})
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def between(store, monkeypatch):
    """A proxy before the store, through which this test's runs go."""
    with store.between() as found:
        monkeypatch.setenv("AWS_ENDPOINT_URL", found.endpoint)
        yield found


@pytest.fixture
def home(tmp_path):
    """A folder of tables in the bucket."""
    return f"{tmp_path.name}/tables"


@pytest.fixture
def fleet(tmp_path):
    return Fleet(tmp_path / "in", CLUSTERS)


def uri(home):
    return f"s3a://{BUCKET}/{home}"


def no_spark():
    pytest.fail("so little is done without Spark")


def run(fleet, home, **options):
    return kraft.run(no_spark, [fleet.folder], uri(home), **options)


def expected(fleet, local):
    """The rows that a local run makes of the same directories."""
    kraft.run(no_spark, [fleet.folder], local)
    return comparable(counted_rows(local))


def files(store, home):
    """All files of tables that are there, without logs."""
    return {name for name in store.names(home) if name.endswith(".parquet") and "/_delta_log/" not in name}


def rows_of(home):
    """The kept rows of the commits, as files."""
    log = DeltaTable(f"s3://{BUCKET}/{home}/{RUNS}", storage_options={"AWS_ALLOW_HTTP": "true"})
    return {file.removeprefix(f"s3://{BUCKET}/{home}/") for file in log.file_uris()}


def last(home):
    return Tables(None, uri(home)).commit


def step(writer):
    """A step that adds a file to a table, as a run does."""
    writing = writer.begin()
    name, before = f"step-{writing.number}-{writing.run}-x.parquet", writer.commit
    writer.folder.put({f"bronze_records/{name}": b"rows"})
    added = {**before.files.get("bronze_records", {}), name: File(4, 1)}
    columns = {**before.columns, "bronze_records": columns_of(view_schema("records"))}
    writer.end(writing, replace(before, files={**before.files, "bronze_records": added}, columns=columns))


@pytest.mark.long
def test_a_run_may_be_cut_off_at_any_request(store, between, fleet, home, tmp_path):
    # The second run merges what both wrote.
    whole, killed = f"{home}/whole", f"{home}/killed"
    for name in (whole, killed):
        run(fleet, name)
    fleet.grow(fleet.names[1:])
    wanted = expected(fleet, tmp_path / "local")
    between.changes = 0
    assert run(fleet, whole, merge_files=1).clusters == tuple(sorted(fleet.names[1:]))
    total = between.changes
    assert comparable(store.rows(whole)) == wanted
    # Cut off again and again: each run may make one change more than the one before.
    tries = 0
    for tries in range(total):
        between.changes, between.last = 0, tries
        try:
            run(fleet, killed, merge_files=1)
        except StorageError:
            between.last = None
            assert last(killed).names() <= files(store, killed)
        else:
            break
    assert tries > 12
    between.last = None
    run(fleet, killed, merge_files=1)
    assert comparable(store.rows(killed)) == wanted
    for name in (whole, killed):
        Commits(StoreFolder(uri(name))).clean(0)
        assert files(store, name) == last(name).names() | rows_of(name)
    assert comparable(store.rows(killed)) == wanted


def test_spark_reads_such_tables(session, store, fleet, home):
    fleet_in = f"{home}-in"
    store.upload(fleet.folder, fleet_in)
    kraft.run(no_spark, [f"s3://{BUCKET}/{fleet_in}"], uri(home))
    settings = session.sparkContext._jsc.hadoopConfiguration()
    for name, value in store.hadoop.items():
        settings.set(name, value)
    try:
        (row,) = kraft.query(session, uri(home), "SELECT count(*) AS rows FROM bronze_records").collect()
    finally:
        for name in store.hadoop:
            settings.unset(name)
    assert row.rows == len(store.rows(home)["bronze_records"]) > 100


@pytest.mark.parametrize("name", [RUNS, "bronze_records", "gold_logs"])
def test_a_commit_whose_answer_got_lost_is_ones_own(store, between, fleet, home, tmp_path, name):
    lost = []

    def loses(method, path):
        return f"/{name}/_delta_log/0" in unquote(path) and not lost.append((method, unquote(path)))

    between.loses = loses
    run(fleet, home)
    fleet.grow(fleet.names)
    run(fleet, home)
    assert len(lost) == (4 if name == RUNS else 2)
    between.loses = lambda *_: False
    assert comparable(store.rows(home)) == expected(fleet, tmp_path / "local")
    assert last(home).number == 3
    assert files(store, home) >= last(home).names() | rows_of(home)


def test_of_two_writers_at_once_one_wins(store, home):
    writers, seen = 4, []
    for number in range(6):
        start, won = Barrier(writers), []

        def write(start=start, won=won):
            writer = Tables(None, uri(home))
            seen.append(writer.commit.number)
            start.wait()
            try:
                step(writer)
            except LockedError as error:
                assert "another run wrote these tables meanwhile" in str(error)
            else:
                won.append(writer.commit)

        threads = [Thread(target=write) for _ in range(writers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert won == [last(home)]
        assert last(home).number == number
    assert seen == [number - 1 for number in range(6) for _ in range(writers)]
    assert files(store, home) == last(home).names() | rows_of(home)
    log = DeltaTable(f"s3://{BUCKET}/{home}/bronze_records", storage_options={"AWS_ALLOW_HTTP": "true"})
    assert len(log.file_uris()) == 6


def test_a_late_run_is_refused_and_nothing_of_it_counts_or_stays(store, fleet, home, tmp_path):
    settings = check_input([fleet.folder], "drop", None)
    late, later = (Taking(Tables(no_spark, uri(home)), settings, "drop") for _ in range(2))
    at_work = later.all()
    begun, intake = Commits.begin, []

    def begin(self, after):
        intake.append(begun(self, after))
        run(fleet, home)  # while the late one is at work
        return intake[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Commits, "begin", lambda *arguments: (patch.undo(), begin(*arguments))[1])
        with pytest.raises(LockedError, match="another run wrote these tables meanwhile"):
            list(at_work)
    there = files(store, home)
    assert there >= last(home).names() | rows_of(home)
    assert not [name for name in there if intake[0].run in name]
    with pytest.raises(LockedError, match=rf"{RUNS}: another run wrote these tables meanwhile"):
        list(late.all())
    assert files(store, home) == there
    assert run(fleet, home).clusters == ()
    assert comparable(store.rows(home)) == expected(fleet, tmp_path / "local")


def test_a_run_beside_a_clean_up_loses_nothing(store, fleet, home, tmp_path, monkeypatch):
    run(fleet, home)
    fleet.grow(fleet.names)
    add, cleaned = Commits.add, []

    def beside(self, *arguments):
        cleaned.append(kraft.clean(uri(home), hours=1))
        return add(self, *arguments)

    monkeypatch.setattr(Commits, "add", beside)
    run(fleet, home)
    assert cleaned == [0, 0]
    assert comparable(store.rows(home)) == expected(fleet, tmp_path / "local")
    assert files(store, home) >= last(home).names() | rows_of(home)


def test_a_clean_up_does_not_take_files_of_a_long_step(store, home, monkeypatch):
    step(Tables(None, uri(home)))
    slow = Tables(None, uri(home))
    writing, before = slow.begin(), slow.commit
    writing = replace(writing, begun=writing.begun - CLEAN_HOURS_MIN * 3600 - 1)
    kraft.clean(uri(home), hours=CLEAN_HOURS_MIN)
    with pytest.raises(LockedError, match="a clean-up ran beside this step, which took more than 1 h"):
        slow.end(writing, before)
    assert files(store, home) == last(home).names() | rows_of(home)
    assert last(home) == before
    slow = Tables(None, uri(home))
    writing = slow.begin()
    slow.end(replace(writing, begun=writing.begun - 10**6), slow.commit)  # no clean-up meanwhile
    assert last(home).number == 1


def test_a_clean_up_of_all_is_refused_where_runs_cannot_be_locked_out(store, home):
    step(Tables(None, uri(home)))
    with pytest.raises(LocalError, match=r"hours=0: nothing keeps a run from writing there meanwhile.*at least 1"):
        kraft.clean(uri(home), hours=0)


def test_a_clean_up_deletes_what_is_old_and_of_no_kept_state(store, fleet, home, tmp_path, monkeypatch):
    run(fleet, home)
    fleet.grow(fleet.names)
    run(fleet, home, merge_files=1)
    there = files(store, home)
    now = commits.now
    monkeypatch.setattr(commits, "now", lambda: now() + timedelta(hours=2))
    assert kraft.clean(uri(home), hours=1) == 3
    assert rows_of(home) == {one for one in rows_of(home) if f"{last(home).number:020}" in one}
    assert files(store, home) == there, "the store's clock says that the files are young"
    assert comparable(store.rows(home)) == expected(fleet, tmp_path / "local")


def test_a_run_asks_the_store_for_little(store, fleet, home):
    def asked(work):
        before = len(store.requests())
        work()
        found = [(method, unquote(path).partition("?")[0]) for method, path in store.requests()[before:]]
        return [(method, path.partition(f"{home}/")[2]) for method, path in found if home in path]

    run(fleet, home)
    before = files(store, home)
    fleet.grow(fleet.names[:1])
    found = asked(lambda: run(fleet, home))
    made = files(store, home) - before
    puts = Counter(path for method, path in found if method == "PUT")
    assert set(puts.values()) == {1}
    assert {path for path in puts if path.endswith(".parquet")} == made
    logs = puts.keys() - made
    assert all("/_delta_log/0" in path for path in logs)
    assert {path for path in logs if path.startswith(RUNS)} == {f"{RUNS}/_delta_log/{step:020}.json" for step in (2, 3)}
    read = {path.partition("/")[0] for method, path in found if method == "GET" and path.endswith(".parquet")}
    assert "bronze_batches" in read
    assert not read & {"bronze_records", *gold_registry.GOLD}


def test_a_step_takes_as_many_requests_as_the_documentation_says(store, home):
    writer = Tables(None, uri(home))
    step(writer)
    for _ in range(3):
        before = len(store.requests())
        for _ in range(10):
            step(writer)
        paths = [unquote(path) for _, path in store.requests()[before:]]
        for name in (RUNS, "bronze_records"):
            assert sum(f"{home}/{name}/" in path for path in paths) <= TEN_STEPS
    told = f"ten steps of one run take up to {TEN_STEPS} requests, and as many for each table that they change"
    assert told in " ".join((ROOT / "docs" / "spark.md").read_text().split())


@contextmanager
def absent():
    """The address of a store that is not there."""
    yield f"http://{HOST}:{free_port()}"


@contextmanager
def closing():
    """The address of a store that ends every connection."""
    with socket.create_server((HOST, 0)) as server:

        def serve():
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                connection.close()

        thread = Thread(target=serve)
        thread.start()
        try:
            yield f"http://{HOST}:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


@contextmanager
def silent():
    """The address of a store that takes every connection, and says nothing."""
    with socket.create_server((HOST, 0), backlog=100) as server:
        yield f"http://{HOST}:{server.getsockname()[1]}"


@pytest.mark.parametrize("place", [absent, closing, silent])
@pytest.mark.parametrize("does", ["ask", "run"])
def test_a_store_that_does_not_answer_is_given_up_soon(monkeypatch, fleet, place, does):
    with place() as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        with pytest.raises(StorageError) as told:
            Tables(None, "s3a://there/tables").check() if does == "ask" else run(fleet, "tables")
    assert told.value.filename.startswith("s3a://")
    assert "\n" not in told.value.strerror


def test_keys_that_a_store_refuses_are_told_in_one_line(between, fleet, home):
    between.last = -1
    for does in (lambda: Tables(None, uri(home)).check(), lambda: run(fleet, home)):
        with pytest.raises(StorageError) as told:
            does()
        assert told.value.filename.startswith(uri(home))
        assert "\n" not in told.value.strerror


def test_keys_that_may_only_read_are_told(between, store, fleet, home):
    run(fleet, home)
    before = store.names(home)
    fleet.grow(fleet.names)
    between.denies = True
    with pytest.raises(StorageError, match="ACCESS_DENIED"):
        run(fleet, home)
    with pytest.raises(StorageError, match="lacked the necessary privileges"):
        Commits(StoreFolder(uri(home))).clean(1)
    assert store.names(home) == before


def test_a_bucket_that_is_not_there_is_named(fleet):
    for does in (
        lambda: Tables(None, "s3a://nobody/tables").check(),
        lambda: kraft.run(no_spark, [fleet.folder], "s3a://nobody/tables"),
    ):
        with pytest.raises(StorageError, match="NoSuchBucket") as told:
            does()
        assert told.value.filename.startswith("s3a://nobody/tables")
        assert "\n" not in told.value.strerror
