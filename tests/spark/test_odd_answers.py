"""What the report, ``state`` and the questions of the page answer about small logs made up for it."""

from __future__ import annotations

import re

import pytest
from bad_day import TOPICS, Log, begin, directory, moment, partition, write_node, write_snapshot
from project import ROOT

from kraftcore.core.uuid import Uuid
from kraftcore.plugins import spark as kraft
from kraftcore.plugins.spark.answers import question
from kraftcore.plugins.spark.engines import engine_for
from kraftcore.plugins.spark.state import STATE_TABLES, States
from kraftcore.plugins.spark.tables import Tables
from kraftcore.protocol.control import leader_change
from kraftcore.protocol.records.config_record import ConfigRecord
from kraftcore.protocol.records.partition_change_record import PartitionChangeRecord
from kraftcore.protocol.records.register_broker_record import RegisterBrokerRecord
from kraftcore.protocol.records.remove_topic_record import RemoveTopicRecord
from kraftcore.protocol.records.topic_record import TopicRecord

PAGE = (ROOT / "docs" / "spark-questions.md").read_text()


def with_brokers_known_to_be_fenced(folder):
    """A snapshot with a fenced broker, and a log without one that begins behind the registrations."""
    log = Log()
    log.end = 500
    log.control("14:00:00.000", leader_change(1, [1], [1]))
    log.unfence("14:00:30.000", 101)
    log.register("14:00:40.000", 103)
    log.unfence("14:00:41.000", 103)
    write_node(folder, 1, bytes(log.data), cluster_id="fenced", base_offset=500)
    write_snapshot(folder, 1, 500, *(
        RegisterBrokerRecord(broker_id=one, incarnation_id=Uuid(bytes([one]) * 16), broker_epoch=7, fenced=one == 101)
        for one in (101, 102)
    ))  # fmt: skip
    behind = Log()
    behind.end = 500
    behind.control("14:00:00.000", leader_change(1, [1], [1]))
    behind.fence("14:00:10.000", 101)
    behind.unfence("14:00:30.000", 101)
    write_node(folder, 2, bytes(behind.data), cluster_id="behind", base_offset=500)


def with_a_torn_end(folder):
    log = Log()
    begin(log)
    write_node(folder, 1, bytes(log.data[:-1]), cluster_id="torn")


def with_a_clock_that_goes_back(folder):
    log = Log()
    begin(log)
    log.epoch = 3
    log.silence(moment("13:57:00.000"))
    log.control("13:57:00.000", leader_change(2, [1, 2, 3], [1, 2]))
    write_node(folder, 1, bytes(log.data), cluster_id="clock")


def config(value):
    return ConfigRecord(resource_type=2, resource_name="orders", name="x", value=value)


def change(topic, number, **fields):
    return PartitionChangeRecord(topic_id=TOPICS[topic], partition_id=number, **fields)


def with_a_snapshot(folder):
    """ISRs of one broker that is fenced, as Kafka keeps them below eligible.leader.replicas.version 1."""
    log = Log()
    log.end = 500
    log.control("14:00:00.000", leader_change(1, [1], [1]))
    log.write("14:00:01.000", config("1"))
    log.write("14:00:02.000", *(change("orders", number, isr=[101, 102]) for number in (3, 4)))
    write_node(folder, 1, bytes(log.data), cluster_id="snapshot", base_offset=500)
    brokers = [
        RegisterBrokerRecord(broker_id=one, incarnation_id=Uuid(bytes([one]) * 16), broker_epoch=7, fenced=True)
        for one in (101, 102)
    ]
    orders = [partition(TOPICS["orders"], number, [101, 102], [101]) for number in range(5)]
    for one in orders:
        one.leader = -1
    write_snapshot(folder, 1, 500, *brokers, TopicRecord(name="orders", topic_id=TOPICS["orders"]), *orders)


def back_after_an_hour(folder):
    """A quorum that was down, and has the same leader again."""
    log = Log()
    begin(log)
    log.silence(moment("15:00:00.000"))
    log.epoch = 2
    log.control("15:00:00.000", leader_change(1, [1, 2, 3], [1, 2]))
    write_node(folder, 1, bytes(log.data), cluster_id="back")


def with_a_damaged_batch(folder):
    log = Log()
    begin(log)
    log.write("14:00:00.000", config("1"))
    hole = log.end - 1
    log.data[-1] ^= 1
    log.write("14:01:00.000", config("2"))
    log.write("14:01:01.000", change("orders", 0, isr=[101]))
    write_node(folder, 1, bytes(log.data), cluster_id="hole")
    return hole, log.end


def with_many_lives(folder):
    """A topic of three lives, an unclean election while the partition recovers, and a partition without a leader."""
    log = Log()
    begin(log)
    before = TOPICS["audit"]
    for number in (1, 2):
        log.write(f"14:0{number}:00.000", RemoveTopicRecord(topic_id=before))
        before = Uuid(bytes([50 + number]) * 16)
        log.write(f"14:0{number}:10.000", TopicRecord(name="audit", topic_id=before))
    log.fence("14:03:00.000", 102, change("payments", 0, isr=[102], leader=-1))
    log.write("14:03:10.000", change("payments", 0, isr=[103], leader=103, leader_recovery_state=1))
    log.write("14:03:20.000", change("payments", 0, isr=[103], leader=-1))
    log.write("14:03:30.000", change("payments", 0, isr=[102], leader=102))
    log.fence("14:04:00.000", 101, change("clicks", 0, leader=-1))
    write_node(folder, 1, bytes(log.data), cluster_id="lives")


@pytest.fixture(scope="module")
def tables(session, tmp_path_factory):
    home = tmp_path_factory.mktemp("odd")
    for make in (
        with_a_snapshot, back_after_an_hour, with_a_damaged_batch, with_many_lives, with_brokers_known_to_be_fenced,
        with_a_torn_end, with_a_clock_that_goes_back,
    ):  # fmt: skip
        make(home / make.__name__)
    kraft.run(session, [home / "with*", home / "back*"], home / "tables")
    return home / "tables"


@pytest.fixture
def answers(session, tables):
    def ask(sql):
        return [row.asDict(recursive=True) for row in kraft.query(session, tables, sql).collect()]

    return ask


def on_page(heading, **replaced):
    """The statement below a heading of the page, about another cluster."""
    sql = re.search(rf"^## {re.escape(heading)}\n.*?```sql\n(.*?)\n```", PAGE, re.DOTALL | re.MULTILINE)[1]
    for name, text in replaced.items():
        assert name in sql
        sql = sql.replace(name, text)
    return sql


def incidents(answers, cluster_id, what):
    rows = answers(question("incidents", cluster_id))
    return [(row["subject"], row["things"], row["duration_ms"]) for row in rows if row["what"] == what]


def test_who_came_into_an_isr_before_a_snapshot_broke_no_rule_in_it(answers):
    found = [(row["partition"], row["broker_id"]) for row in answers(question("kip_841", "snapshot"))]
    assert sorted(found) == [(3, 102), (4, 102)]
    ((subject, things, _),) = incidents(answers, "snapshot", "KIP-841 violation")
    assert (subject, things) == ("broker 102 in orders-3 and 1 more", 2)


def test_a_quorum_that_was_down_is_an_incident_whoever_leads_next(answers):
    ((subject, quorums, lasted_ms),) = incidents(answers, "back", "no leader of the quorum")
    assert (subject, quorums) == ("node 1 again, 0 failed elections", 1)
    assert lasted_ms == moment("15:00:00.000") - moment("13:59:00.000")
    assert incidents(answers, "lives", "no leader of the quorum") == []


def test_a_broker_that_was_fenced_before_the_log_begins_is_an_incident(answers):
    assert incidents(answers, "fenced", "broker fenced") == [("broker 101", 1, 90 * 1000)]
    assert {row["broker_id"]: row["registrations"] for row in answers(question("flaps", "fenced"))} == {
        101: 0, 102: 0, 103: 1,
    }  # fmt: skip
    assert incidents(answers, "behind", "broker fenced") == [("broker 101", 1, 20 * 1000)]


def test_a_log_that_was_copied_while_it_grew_is_not_taken_for_a_damaged_one(answers):
    (only,) = answers(question("incidents", "torn"))
    assert (only["what"], only["things"]) == ("log that ends inside a batch", 1)


def test_a_leader_whose_clock_is_behind_was_missed_for_no_time(answers):
    assert incidents(answers, "clock", "no leader of the quorum") == [("node 1 to 2, 1 failed election", 1, 0)]


def test_behind_a_hole_the_last_known_state_is_told(answers, session, tables, tmp_path):
    hole, end = with_a_damaged_batch(tmp_path)
    (now,) = answers(question("now", "hole"))
    assert (now["is_known"], now["known_end"], now["unknown_from"]) == (False, hole, hole)
    assert (now["brokers"], now["partitions"], now["end_offset"]) == (3, 257, end)
    of = Tables(session, tables)
    with engine_for(of, STATE_TABLES) as engine:
        assert States(of, engine, "hole").unknown_ends() == {"hole": (hole, hole)}
    state = kraft.state_as_of(session, tables, cluster_id="hole")
    assert state["brokers"].count() == 3
    assert state["partitions"].count() == 257
    assert [row.leader_id for row in state["leader"].collect()] == [1]
    (known,) = answers(question("now", "lives"))
    assert (known["is_known"], known["brokers"]) == (True, 3)


def test_the_report_and_state_say_that_the_end_is_not_known(session, tables, tmp_path, call):
    kraft.write_report(session, tables, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert page.count("The state at the end is not known") == 2
    done = call("state", "--tables", tables, "topics")
    assert done.exit_code == 0, done.output
    assert re.search(
        r"hole: the state at the end is not known: no snapshot after offset \d+; shown is how", done.stderr
    )
    assert len(re.findall("is not known", done.stderr)) == 2


def test_each_life_of_a_topic_is_one_row(answers):
    rows = answers(on_page("When was this topic made?", **{"nights-of-a-real-kafkA": "lives"}))
    ids = [str(TOPICS["audit"]), *(str(Uuid(bytes([50 + number]) * 16)) for number in (1, 2))]
    assert [(row["life"], row["topic_id"]) for row in rows if row["topic"] == "audit"] == list(enumerate(ids, 1))


def test_an_unclean_election_while_a_partition_recovers_is_one_more(answers):
    heading = "Which elections were unclean, and what may they have lost?"
    rows = answers(on_page(heading, **{"nights-of-a-real-kafkA": "lives"}))
    assert [(row["leader"], row["last_leader"], row["at_risk_ms"]) for row in rows] == [
        (103, 102, 4 * 60 * 1000), (102, 103, 10 * 1000),
    ]  # fmt: skip
    assert [row["leader"] for row in answers(question("unclean", "lives"))] == [102, 103]


def test_what_was_offline_before_a_disk_is_lost_is_said_to_be(answers):
    sql = on_page(
        "What would the cluster look like if I lost this disk?",
        **{"NDAbzbB4TqyG5cg3gN3Bkg": "lives", "400": "1000000", "dUHXuS2ibU2j0l45ZzoWug": str(directory(101, 1))},
    )
    found = {(row["topic"], row["partition"]): row["then"] for row in answers(sql)}
    assert found["clicks", 0] == "offline already"
    assert found["clicks", 2] == "offline"
