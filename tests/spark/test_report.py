"""The report: what it says went wrong on a bad day, every figure beside its SQL, and nothing that it does not say."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from xml.etree import ElementTree

import bad_day
import pytest
from golden import GOLDEN
from metadata_replay import printed_log
from project import ROOT
from report_page import Page, milliseconds

from kraftcore.errors import LocalError
from kraftcore.plugins import spark as kraft
from kraftcore.plugins.spark import charts, report
from kraftcore.plugins.spark.answers import BARS, QUESTIONS, ROWS, Answer, question
from kraftcore.plugins.spark.page import duration
from kraftcore.plugins.spark.report import OPEN_MAX

pytestmark = pytest.mark.deep

DYNAMIC = "NDAbzbB4TqyG5cg3gN3Bkg"
SECOND = 1000
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def page(written_report):
    return Page(written_report)


@pytest.fixture(scope="module")
def bad(page):
    return page.clusters[bad_day.CLUSTER_ID]


def rows_of(cluster, query):
    (table,) = [one for one in cluster.tables if one.query == query]
    return [dict(zip(table.columns, [value for value, _ in row], strict=True)) for row in table.rows]


def plain(value):
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    return [plain(one) for one in value] if isinstance(value, list) else value


def matches(name, value, text):
    if value is None:
        return text == ""
    if name.endswith("_ms"):
        found, exact = milliseconds(text)
        return found == value // exact * exact
    if isinstance(value, bool):
        return text == ("yes" if value else "no")
    if name == "timestamp" or name.endswith("_time"):
        return datetime.fromisoformat(f"{text}+00:00").timestamp() * 1000 == value
    if isinstance(value, list):
        return text == (", ".join(map(str, value)) or "none")
    return float(text) == pytest.approx(value, rel=1e-5) if isinstance(value, int | float) else text == value


@pytest.mark.parametrize("cluster_id", [bad_day.CLUSTER_ID, DYNAMIC])
def test_every_figure_is_what_the_sql_beside_it_answers(cluster_id, page, session, golden_tables):
    cluster = page.clusters[cluster_id]
    assert cluster.questions == set(QUESTIONS)
    assert page.data["questions"] == dict(QUESTIONS)  # a browser puts in whose: test_report_in_browsers.py
    answers = {
        query: [{name: plain(value) for name, value in row.asDict(recursive=True).items()} for row in found.collect()]
        for query in QUESTIONS
        if (found := kraft.query(session, golden_tables, question(query, cluster_id)))
    }
    assert all(row["cluster_id"] == cluster_id for rows in answers.values() for row in rows)
    for table in cluster.tables:
        assert len(table.rows) == len(answers[table.query]), table.query
        for row, answer in zip(table.rows, answers[table.query], strict=True):
            for name, (value, text) in zip(table.columns, row, strict=True):
                assert value == answer[name], (table.query, name)
                assert matches(name, value, text), (table.query, name, value, text)
    assert len(cluster.figures) > 20
    for figure in cluster.figures:
        assert figure.value == answers[figure.query][figure.row][figure.column], figure
        assert matches(figure.column, figure.value, figure.text), figure
    for query, shown in cluster.shown.items():
        assert (shown, cluster.left_out[query]) == (len(answers[query]), answers[query][0]["total"] - shown)
    for query, rows in answers.items():
        if rows and "total" in rows[0] and rows[0]["total"] > len(rows):
            assert query in cluster.left_out, f"{query} does not say what it leaves out"
    charts = page.charts(cluster_id)
    assert {one["query"] for one in charts} >= {
        "leaders",
        "voters",
        "trouble",
        "worst_states",
        "broker_states",
        "rates",
    }
    for chart in charts:
        wanted = [
            {name: ", ".join(map(str, value)) if isinstance(value, list) else value for name, value in row.items()}
            for row in answers[chart["query"]]
        ]
        for row in wanted:
            del row["cluster_id"]
        assert sorted(map(str, chart["rows"])) == sorted(map(str, wanted)), chart["query"]


def test_no_figure_stands_there_without_its_question(page):
    text = re.sub(r"KIP-\d+", "", page.free_text)
    assert not re.findall(r".{0,40}\d.{0,40}", text)


def test_what_went_wrong_comes_first_and_the_worst_before_all(bad, page):
    found = rows_of(bad, "incidents")
    at = bad_day.moment
    told = [(row["what"], row["from_time"], row["duration_ms"], row["things"]) for row in found]
    assert told == [
        ("unclean election", at("14:02:08.000"), 12 * SECOND, 1),
        ("KIP-841 violation", at("14:03:42.000"), 2 * SECOND, 1),
        ("KIP-841 violation", at("14:03:41.000"), SECOND, 1),
        ("partitions offline", at("14:07:40.000"), 20 * SECOND, bad_day.CLICKS),
        ("partitions offline", at("14:00:10.000"), 12_700, bad_day.CLICKS),
        ("partitions offline", at("14:06:01.200"), 12_700, bad_day.CLICKS),
        ("partitions offline", at("14:02:00.000"), 8 * SECOND, 1),
        ("no leader of the quorum", at("14:00:55.000"), 14 * SECOND, 1),
        *told[8:],
    ]
    kinds = [row["what"] for row in found]
    assert kinds == sorted(kinds, key=kinds.index)  # each kind in one place
    many = {row["subject"] for row in found if row["things"] == bad_day.CLICKS}
    assert many == {f"clicks-0 and {bad_day.CLICKS - 1} more"}  # the first of those that were offline equally long
    assert kinds.count("broker fenced") == 8
    assert kinds.count("broker shut down as planned") == 1
    lasting = [row["what"] for row in found if row["to_offset"] is None]
    assert lasting == ["partitions offline", "broker fenced", "partitions under-replicated"]
    assert next(iter(page.clusters)) == bad_day.CLUSTER_ID


def test_incidents_name_the_records_that_began_and_ended_them(bad, session, golden_tables):
    log = {
        row.offset: row
        for row in kraft.query(
            session, golden_tables,
            "SELECT offset, type, timestamp FROM bronze_records "
            f"WHERE cluster_id = '{bad_day.CLUSTER_ID}' AND node_id = 1",
        ).collect()
    }  # fmt: skip
    kinds = {
        "unclean election": "PARTITION_CHANGE",
        "KIP-841 violation": "PARTITION_CHANGE",
        "broker fenced": "BROKER_REG",
    }
    for row in rows_of(bad, "incidents"):
        record = log[row["from_offset"]]
        assert record.type.startswith(kinds.get(row["what"], "")), row
        if row["what"] in kinds:
            assert plain(record.timestamp) == row["from_time"]


@pytest.mark.parametrize("cluster_id", [bad_day.CLUSTER_ID, DYNAMIC])
def test_brokers_were_fenced_as_often_and_as_long_as_incidents_say(cluster_id, page):
    cluster = page.clusters[cluster_id]
    told = {}
    for row in rows_of(cluster, "incidents"):
        if row["what"] in ("broker fenced", "broker shut down as planned"):
            told.setdefault(row["subject"], []).append(row["duration_ms"])
    # Each was fenced for some time when it started, too.
    found = {f"broker {row['broker_id']}": row for row in rows_of(cluster, "flaps")}
    assert {name: (row["fencings"], row["longest_ms"]) for name, row in found.items()} == {
        name: (len(times), max(times)) for name, times in told.items()
    }
    assert all(row["fenced_ms"] > sum(told[name]) for name, row in found.items())


def test_a_fenced_broker_is_drawn_as_fenced(page):
    (chart,) = [one for one in page.charts(bad_day.CLUSTER_ID) if one["query"] == "broker_states"]
    of_101 = [row for row in chart["rows"] if row["lane"] == "broker 101"]
    at = bad_day.moment
    spans = [
        (row["state"], row["from_time"], row["end_time"]) for row in of_101 if row["from_time"] >= at("14:06:00.000")
    ]
    assert spans == [
        ("in controlled shutdown", at("14:06:00.000"), at("14:06:01.200")),
        ("fenced", at("14:06:01.200"), at("14:06:12.400")),
        ("fenced", at("14:06:12.400"), at("14:06:13.900")),
        ("active", at("14:06:13.900"), at("14:07:40.000")),
        ("fenced", at("14:07:40.000"), spans[-1][2]),
    ]


def test_what_is_left_out_is_counted(bad):
    assert bad.shown["worst"] == ROWS
    assert bad.left_out["worst"] == bad_day.CLICKS + 3 + 1 - ROWS
    (offline,) = {one.value for one in bad.figures if one.column == "total_offline"}
    assert offline == bad_day.CLICKS + 1


def test_elections_voters_isr_elr_and_kip_841(bad):
    (failed,) = {one.value for one in bad.figures if one.column == "total_failed"}
    assert failed == 3
    assert [(row["voter_ids"], row["added"], row["removed"]) for row in rows_of(bad, "voter_changes")][:2] == [
        ([1, 2, 4], [], [3]), ([1, 2, 3, 4], [4], []),
    ]  # fmt: skip
    (unclean,) = rows_of(bad, "unclean")
    assert (unclean["topic"], unclean["previous_leader"], unclean["leader"], unclean["previous_isr"]) == (
        "payments", -1, 103, [102],
    )  # fmt: skip
    violations = rows_of(bad, "kip_841")
    assert [(row["topic"], row["partition"], row["broker_id"], row["place"]) for row in violations] == [
        ("orders", 1, 103, "leads"), ("orders", 1, 103, "in ISR"),
    ]  # fmt: skip
    elr = {(row["topic"], row["partition"]): row["with_elr_ms"] for row in rows_of(bad, "elr")}
    assert {elr["orders", number] for number in range(3)} == {33 * SECOND}


def test_kafkas_own_cluster_broke_no_rule(page):
    cluster = page.clusters[DYNAMIC]
    assert {"unclean", "kip_841", "divergence", "errors"}.isdisjoint(one.query for one in cluster.tables)
    leaders = [one for one in printed_log(GOLDEN / "dynamic" / "c1") if one.type == "LEADER_CHANGE"]
    drawn = next(one for one in page.charts("dynamic-c1") if one["query"] == "leaders")
    assert len(drawn["rows"]) == len(leaders)


def test_the_worst_clusters_are_unfolded_and_all_are_listed(page):
    bad = [name for name, one in page.clusters.items() if any(table.query == "incidents" for table in one.tables)]
    assert page.counts["clusters"] == len(page.clusters) == page.counts["incidents"] + page.counts.get("quiet", 0)
    assert page.counts["incidents"] == len(bad) > OPEN_MAX
    assert bad == list(page.clusters)[: len(bad)]  # in the order of the page
    assert page.unfolded == bad[:OPEN_MAX]
    short = [one for one in page.clusters[bad_day.CLUSTER_ID].figures if (one.query, one.column) == ("now", "offline")]
    assert len(short) == 2  # in the list of clusters, and where it stands how it ended


def test_of_a_large_fleet_the_worst_are_shown_and_the_others_counted(
    page, session, golden_tables, tmp_path, monkeypatch
):
    monkeypatch.setattr(report, "CLUSTERS_MAX", 3)
    kraft.write_report(session, golden_tables, tmp_path / "report.html")
    found = Page(tmp_path / "report.html")
    assert list(found.clusters) == list(page.clusters)[:3]
    assert {name: vars(one) for name, one in found.clusters.items()} == {
        name: vars(one) for name, one in list(page.clusters.items())[:3]
    }
    counted = {name: page.counts[name] for name in ("clusters", "incidents")}
    rest = len(page.clusters) - 3
    wanted = {"shown": 3, "left-out": rest, "left-out-incidents": page.counts["incidents"] - 3}
    assert found.counts == counted | wanted
    assert "kraftcore spark report --cluster ID" in found.free_text


def test_of_a_large_fleet_those_without_an_incident_are_of_those_shown(session, golden_tables, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "CLUSTERS_MAX", 2)
    ids = [bad_day.CLUSTER_ID, "JrR7ikZTT6aEYgK57zDs4g", "QpiGACeeSFyS2MXcjnmqYw"]
    kraft.write_report(session, golden_tables, tmp_path / "report.html", cluster_ids=ids)
    text = (tmp_path / "report.html").read_text()
    assert '<data data-count="quiet">1</data> of those shown without an incident' in text


def test_a_cluster_that_is_named_is_shown_alone(page, session, golden_tables, tmp_path):
    last = list(page.clusters)[-1]
    kraft.write_report(session, golden_tables, tmp_path / "report.html", cluster_ids=[last])
    found = Page(tmp_path / "report.html")
    assert (list(found.clusters), found.unfolded, found.counts) == ([last], [last], {})
    rows = [[one["rows"] for one in where.charts(last)] for where in (found, page)]
    assert rows[0] == rows[1]
    with pytest.raises(LocalError, match="there is no cluster 'nobody'"):
        kraft.write_report(session, golden_tables, tmp_path / "report.html", cluster_ids=[last, "nobody"])


def test_a_broker_that_flaps_all_year_leaves_the_others_their_lanes(session):
    start = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [
        ("year", broker_id, number, start + timedelta(hours=number), 3_600_000, event, event == "fenced", False, 1)
        for broker_id, many in ((1, 3 * BARS), (2, 4))
        for number, event in ((number, ("fenced", "unfenced")[number % 2]) for number in range(many))
    ]
    session.createDataFrame(
        rows, "cluster_id string, broker_id int, from_offset long, from_time timestamp, duration_ms long, "
        "event string, fenced boolean, in_controlled_shutdown boolean, broker_epoch long",
    ).createOrReplaceTempView("gold_broker_history")  # fmt: skip
    found = session.sql(question("broker_states", "year")).collect()
    assert (len(found), {row.total for row in found}) == (BARS, {3 * BARS + 4})
    lanes = {lane: [row for row in found if row.lane == lane] for lane in ("broker 1", "broker 2")}
    assert len(lanes["broker 2"]) == 4
    assert {row.state for row in lanes["broker 1"]} == {"fenced"}
    assert [row.place for row in found] == sorted(row.place for row in found)
    assert all(before.from_offset < after.from_offset for before, after in pairwise(lanes["broker 1"]))


def test_a_cluster_may_have_any_name(session, golden_tables):
    kraft.query(session, golden_tables, "SELECT * FROM gold_logs")
    for name in ("it's", "back\\slash", "' OR true OR '"):
        assert kraft.query(session, golden_tables, question("logs", name)).collect() == []


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0 ms"), (999, "999 ms"), (12_700, "12.7 s"), (59_999, "59.999 s"), (60_000, "1 min"), (185_400, "3 min 5 s"),
     (7_800_000, "2 h 10 min"), (356_400_000, "4 d 3 h"), (3_600_000, "1 h")],
)  # fmt: skip
def test_spans_of_time_are_read_at_a_glance(ms, text):
    assert duration(ms) == text


def test_the_page_loads_nothing_and_stays_small(page, written_report):
    assert all(link.startswith("#cluster-") for link in page.links)
    assert not {"link", "iframe", "img", "object", "embed"} & page.tags
    assert page.size < 3_000_000
    assert "default-src 'none'" in written_report.read_text()
    assert json.dumps(page.data)


def test_the_script_is_made_once_for_a_runtime_folder_and_each_time_without_one(tmp_path, monkeypatch):
    made = []

    def bundle(snippet, vl_version):
        made.append(vl_version)
        return "draw('</script>')"

    monkeypatch.setattr(charts.vl_convert, "javascript_bundle", bundle)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert {charts.script() for _ in range(3)} == {"draw('<\\/script>')"}
    assert made == [charts.VEGA_LITE]
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "none"))
    assert {charts.script() for _ in range(2)} == {"draw('<\\/script>')"}
    assert made == [charts.VEGA_LITE] * 3


def test_a_day_in_utc_wherever_the_page_was_made(bad):
    texts = [text for table in bad.tables if table.query == "incidents" for row in table.rows for _, text in row]
    assert datetime.fromtimestamp(bad_day.moment("14:02:08.000") / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.000") in texts


def test_each_plot_is_a_picture_too(page, written_report):
    folder = written_report.parent / "pictures"
    assert len(list(folder.iterdir())) == len(page.data["charts"])
    for title in page.clusters[bad_day.CLUSTER_ID].titles:
        file = folder / f"{bad_day.CLUSTER_ID}-{re.sub('[^a-z]+', '-', title.lower())}.svg"
        said = [one.text for one in ElementTree.parse(file).getroot().iter(f"{SVG}text")]
        assert title in said
        assert f"cluster {bad_day.CLUSTER_ID}, 2026-11-21 13:58:00.000 to 2026-11-21 14:08:00.000 UTC" in said
        assert not re.search(r"href=|url\((?!#)|@import|<script", file.read_text())


def test_lines_at_one_height_are_all_seen_and_the_worst_state_is_on_top(written_report):
    file = written_report.parent / "pictures" / f"{DYNAMIC}-partitions-in-trouble.svg"
    root = ElementTree.parse(file).getroot()
    assert {"under-replicated", "under min ISR", "offline"} <= {one.text for one in root.iter(f"{SVG}text")}, "legend"
    groups = [one for one in root.iter(f"{SVG}g") if "mark-line" in one.get("class", "")]
    lines = [one for group in groups for one in group.iter(f"{SVG}path")]
    assert [one.get("stroke") for one in lines] == [charts.WARN, charts.WORSE, charts.BAD]
    widths = [float(one.get("stroke-width")) for one in lines]
    assert all(below > above + 1 for below, above in pairwise(widths))


@pytest.mark.parametrize("title", ["longest-pause-between-batches", "isr-changes", "records-a-minute"])
def test_no_column_is_higher_than_the_last_tick(title, written_report):
    file = written_report.parent / "pictures" / f"{bad_day.CLUSTER_ID}-{title}.svg"
    (axis,) = [
        one for one in ElementTree.parse(file).getroot().iter(f"{SVG}g")
        if one.get("aria-label", "").startswith("Y-axis") and "role-axis" in one.get("class", "")
    ]  # fmt: skip
    ends = re.search(r"values from (\S+) to (\S+)", axis.get("aria-label")).groups()
    ticks = [one.text for one in axis.iter(f"{SVG}text") if one.text.isdigit()]
    assert [int(ticks[0]), int(ticks[-1])] == [abs(int(one.replace("\u2212", "-"))) for one in ends]


def test_partitions_of_a_long_name_are_told_apart_by_their_labels():
    span = (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))
    names = [f"{topic}-{partition}" for topic in ("orders", "orders.enriched.all-regions.v2") for partition in (7, 17)]
    rows = tuple({"lane": name, "state": "offline", "from_time": span[0], "end_time": span[1]} for name in names)
    svg = charts.lanes("Lanes", Answer("some", "SELECT 1", rows), span, {}, color="state").picture("")
    said = [one.text for one in ElementTree.fromstring(svg).iter(f"{SVG}text")]
    assert {"orders-7", "orders-17", "orders.…ions.v2-7", "orders.…ons.v2-17"} <= set(said)


def test_a_picture_is_the_same_whatever_was_drawn_before():
    span = (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))
    row = {"lane": "a", "state": "active", "from_time": span[0], "end_time": span[1]}
    chart = charts.lanes("Lanes", Answer("some", "SELECT 1", (row,)), span, {}, color="state")
    first = chart.picture("once")
    assert "clip0" in first
    assert first == chart.picture("once")


def without_places(svg):
    """What is drawn, without where: fonts differ, and with them what they push aside."""
    return re.sub(r' (d|transform|width|height|viewBox|x|y|x1|x2|y1|y2|dx|dy)="[^"]*"', "", svg)


def test_pictures_of_the_docs_are_what_the_report_draws_now(written_report, request):
    pictures = sorted((ROOT / "docs" / "pictures").glob("*.svg"))
    assert len(pictures) == 4
    for picture in pictures:
        drawn = (written_report.parent / "pictures" / f"{DYNAMIC}-{picture.name}").read_text()
        if request.config.getoption("--rewrite"):
            picture.write_text(drawn)
        assert without_places(picture.read_text()) == without_places(drawn), f"{picture.name}: run with --rewrite"


def test_the_steps_of_trouble_are_those_of_the_day(page):
    (chart,) = [one for one in page.charts(bad_day.CLUSTER_ID) if one["query"] == "trouble"]

    def level(state, time):
        return [row["partitions"] for row in chart["rows"] if row["state"] == state and row["at"] <= time][-1]

    for time, offline, under_min_isr in (
        ("13:58:30.000", 0, 0), ("13:59:30.000", 0, 1), ("14:00:15.000", bad_day.CLICKS, 1), ("14:01:00.000", 0, 1),
        ("14:02:05.000", 1, 4), ("14:02:10.000", 0, 4), ("14:05:00.000", 0, 0), ("14:07:50.000", bad_day.CLICKS, 0),
    ):  # fmt: skip
        at = bad_day.moment(time)
        assert (level("offline", at), level("under min ISR", at)) == (offline, under_min_isr), time


def test_long_logs_are_drawn_in_wider_columns_and_lose_no_peak(session):
    minutes, flaps = 5000, 6000
    start = datetime(2026, 1, 1, tzinfo=UTC)

    def at(second):
        return start + timedelta(seconds=second)

    session.createDataFrame(
        [("long", at(0), at(minutes * 60))], "cluster_id string, first_time timestamp, last_time timestamp"
    ).createOrReplaceTempView("gold_logs")
    session.createDataFrame(
        [("long", at(60 * number), number, 10 * number, number % 7, number, number) for number in range(minutes)],
        "cluster_id string, minute timestamp, records long, bytes long, pause_ms_max long, first_offset long, "
        "last_offset long",
    ).createOrReplaceTempView("gold_batch_stats")
    # Each is offline for ten of fifty seconds, and at one moment four more are.
    states = [("a", number, number * 50, 10_000) for number in range(flaps)]
    states += [(str(number), 0, 150_003, 10) for number in range(4)]
    session.createDataFrame(
        [("long", topic, topic, 0, number, number + 1, at(second), ms, True, False, False)
         for topic, number, second, ms in states],
        "cluster_id string, topic_id string, topic string, partition int, from_offset long, to_offset long, "
        "from_time timestamp, duration_ms long, is_offline boolean, is_under_min_isr boolean, "
        "is_under_replicated boolean",
    ).createOrReplaceTempView("gold_partition_history")  # fmt: skip
    rates = session.sql(question("rates", "long")).collect()
    assert len(rates) <= BARS // 2 + 1
    assert {row.minutes for row in rates} == {5}
    assert sum(row.records_a_minute * row.minutes for row in rates) == pytest.approx(sum(range(minutes)))
    trouble = [row for row in session.sql(question("trouble", "long")).collect() if row.state == "offline"]
    assert len(trouble) <= 2 * BARS + 2
    assert max(row.partitions for row in trouble) == 5
    assert (trouble[0].partitions, trouble[-1].partitions) == (1, 0)
