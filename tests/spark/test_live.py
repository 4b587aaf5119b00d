"""Running quorums, of real processes: what is committed is read once, what is written is appended once."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka_lab import wait_for
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from server_quorum import ServerQuorum, server_quorum

pytestmark = pytest.mark.deep

_PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerQuorum]:
    with server_quorum(tmp_path_factory.mktemp("quorum")) as found:
        yield found


def options(quorum: ServerQuorum) -> dict[str, str]:
    return {"bootstrap_controllers": ",".join(quorum.addresses)}


def read(session: SparkSession, quorum: ServerQuorum) -> list[tuple[int, bytes]]:
    rows = session.read.format("kraft").options(**options(quorum), control="false").load()
    return [(row.offset, bytes(row.value)) for row in rows.orderBy("offset").collect()]


def wait_until(done: Callable[[], bool], query: StreamingQuery) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not done():
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, query.lastProgress
        time.sleep(0.05)


def mirrors(quorum: ServerQuorum) -> list[Path]:
    found = Path(tempfile.gettempdir()).glob("kraftcore-observe-*/meta.properties")
    return [path for path in found if quorum.cluster_id in path.read_text()]


def test_a_batch_read_has_what_was_committed_when_it_was_planned(session: SparkSession, quorum: ServerQuorum):
    quorum.append([b"batch-1", b"batch-2"], client_id=1)
    rows = session.read.format("kraft").options(**options(quorum)).load().orderBy("offset").collect()
    assert [row.offset for row in rows] == list(range(len(rows)))
    assert [row.type for row in rows[:3]] == ["LEADER_CHANGE", "KRAFT_VERSION", "KRAFT_VOTERS"]
    assert {row.cluster_id for row in rows} == {quorum.cluster_id}
    values = [bytes(row.value) for row in rows]
    assert values.count(b"batch-1") == values.count(b"batch-2") == 1
    first = values.index(b"batch-1")
    part = session.read.format("kraft").options(**options(quorum)).load().where(f"offset = {first}").collect()
    assert [bytes(row.value) for row in part] == [b"batch-1"]
    voters = session.read.format("kraft").options(**options(quorum), view="kraft_voters").load().collect()
    assert {voter.voter_id for voter in voters[0].voters} == {1, 2, 3}


def test_a_write_that_is_repeated_under_its_id_is_appended_once(session: SparkSession, quorum: ServerQuorum):
    count = 1200  # more than one batch
    rows = session.createDataFrame([(f"write-{number}",) for number in range(count)], "value string").coalesce(1)
    for _ in range(2):
        rows.write.format("kraft").options(**options(quorum), write_id="again").mode("append").save()
    found = [value for _, value in read(session, quorum) if value.startswith(b"write-")]
    assert found == [b"write-%d" % number for number in range(count)]


def test_what_cannot_be_written_is_refused(session: SparkSession, quorum: ServerQuorum):
    def write(rows: DataFrame, mode: str = "append", **more: str) -> None:
        rows.write.format("kraft").options(**{**options(quorum), **more}).mode(mode).save()

    good = session.createDataFrame([(b"x",)], "value binary")
    before = len(read(session, quorum))
    with pytest.raises(PySparkException, match="one column named value"):
        write(session.createDataFrame([(1, b"x")], "key int, value binary"))
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        write(good, "overwrite")
    with pytest.raises(PySparkException, match="neither null nor empty"):
        write(session.createDataFrame([(b"",)], "value binary"))
    with pytest.raises(PySparkException, match="nobody listens there"):
        write(good, bootstrap_controllers="127.0.0.1:1", timeout_ms="1500")
    assert len(read(session, quorum)) == before


def test_a_stream_survives_a_leaders_death_and_its_own_restart(
    session: SparkSession, quorum: ServerQuorum, tmp_path: Path
):
    batches: dict[int, list[tuple[int, bytes]]] = {}  # by number: one that was not noted before a stop comes again

    def follow() -> StreamingQuery:
        rows = session.readStream.format("kraft").options(**options(quorum)).load().select("offset", "value")
        writer = rows.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.foreachBatch(
            lambda batch, number: batches.update({number: [(row.offset, bytes(row.value)) for row in batch.collect()]})
        ).start()

    def seen() -> list[tuple[int, bytes]]:
        return [row for _, rows in sorted(batches.items()) for row in rows]

    def has(value: bytes) -> bool:
        return any(value == found for _, found in seen())

    query = follow()
    quorum.append([b"stream-1"], client_id=2)
    wait_until(lambda: has(b"stream-1"), query)
    first = quorum.leader()
    quorum.kill(first)
    quorum.append([b"stream-2"], client_id=2, sequence=1)
    wait_until(lambda: has(b"stream-2"), query)
    query.stop()
    quorum.start(first)
    quorum.append([b"stream-3"], client_id=2, sequence=2)
    query = follow()
    wait_until(lambda: has(b"stream-3"), query)
    assert mirrors(quorum)
    query.stop()
    wait_for("the mirrors to go", lambda: not mirrors(quorum) or None)
    assert [offset for offset, _ in seen()] == list(range(len(seen())))


def test_a_stream_writes_each_epoch_once_though_leader_and_driver_die(
    session: SparkSession, quorum: ServerQuorum, tmp_path: Path
):
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    folder.mkdir()

    def run() -> None:
        rows = session.readStream.text(str(folder))
        writer = rows.writeStream.format("kraft").options(**options(quorum))
        writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()

    (folder / "a.txt").write_text("epoch-1\nepoch-2\nepoch-3\n")
    run()
    # As if the driver had died when the epoch was appended and not yet noted; and with it the leader.
    (checkpoint / "commits" / "0").unlink()
    (checkpoint / "commits" / ".0.crc").unlink()
    first = quorum.leader()
    quorum.kill(first)
    (folder / "b.txt").write_text("epoch-4\n")
    run()
    quorum.start(first)
    found = [value for _, value in read(session, quorum) if value.startswith(b"epoch-")]
    assert found == [b"epoch-1", b"epoch-2", b"epoch-3", b"epoch-4"]
