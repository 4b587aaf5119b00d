"""``kraftcore spark``: on a machine without Java, whose clock is not in UTC; and the report."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from datetime import UTC, datetime
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from golden import GOLDEN
from metadata_replay import printed_log
from project import ROOT
from spark_parts import without_java

from kraftcore.cli import spark as commands
from kraftcore.plugins import spark as kraft
from kraftcore.plugins.spark.startup import is_new_enough

PROGRAM = "import sys; from kraftcore.cli import main; sys.exit(main())"
CLUSTER = "dynamic-c1"
DYNAMIC = "NDAbzbB4TqyG5cg3gN3Bkg"  # what the golden cluster calls itself
SVG = "{http://www.w3.org/2000/svg}"


class Kept:
    """The session of all tests, which a command cannot stop."""

    def __init__(self, session):
        self._session = session

    def __getattr__(self, name):
        return getattr(self._session, name)

    def stop(self):
        pass


@pytest.fixture
def call(session, monkeypatch):
    """The commands in this process, on the session of all tests."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")  # a command sets its own; this is for what comes after
    monkeypatch.setattr(kraft, "session", lambda *_, **__: Kept(session))
    yield lambda *arguments: CliRunner().invoke(commands.spark, list(map(str, arguments)))
    monkeypatch.undo()
    time.tzset()


def test_a_query_without_java_prints_json_in_utc(golden_tables, tmp_path):
    wanted = "epoch, leader_id, start_time, voters"
    sql = f"SELECT {wanted} FROM GOLD_LEADERSHIP WHERE cluster_id = '{CLUSTER}' ORDER BY epoch"
    arguments = ["spark", "query", "--tables", str(golden_tables), "--output", "json", "--master", "local[1]", sql]
    done = without_java([PROGRAM, *arguments], tmp_path)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    printed = [one for one in printed_log(GOLDEN / "dynamic" / "c1") if one.type == "LEADER_CHANGE"]
    assert [(row["epoch"], row["leader_id"]) for row in rows] == [(one.epoch, one.data["leaderId"]) for one in printed]
    assert [datetime.fromisoformat(row["start_time"]) for row in rows] == [
        datetime.fromtimestamp(one.timestamp_ms / 1000, UTC) for one in printed
    ]
    assert rows[0]["voters"] == [1]
    assert [path.name for path in tmp_path.iterdir()] == ["tools"]  # Spark left nothing where it was called


def test_java_keeps_a_collector_that_its_owner_chose(golden_tables, monkeypatch):
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+UseG1GC")  # two would keep it from starting
    arguments = ["spark", "query", "--tables", str(golden_tables), "--output", "json", "--master", "local[1]"]
    command = [sys.executable, "-P", "-c", PROGRAM, *arguments, "SELECT 1 AS one"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, '{"one": 1}\n'), done.stderr


@pytest.mark.parametrize(("version", "fits"), [("11.0.2", False), ("1.8.0_402", False), ("17.0.9", True), ("25", True)])
def test_a_java_too_old_for_spark_is_passed_over(version, fits, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch()
    (tmp_path / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    assert is_new_enough(tmp_path / "bin" / "java") is fits


def test_run_says_what_it_did(call, tmp_path):
    arguments = ("run", "--input", GOLDEN / "formats" / "c1", "--tables", tmp_path / "t", "--option")
    done = call(*arguments, "max_bytes_per_trigger=700")
    assert done.exit_code == 0, done.output
    assert "0 errors; clusters brought up to date:" in done.output
    assert len(list((tmp_path / "t" / "bronze_records").glob("batch=*"))) == 2  # two files, one at a time
    for option, words in (("max_bytes=1", "unknown option 'max_bytes'"), ("view", "expected KEY=VALUE")):
        done = call(*arguments, option)
        assert done.exit_code != 0
        assert words in done.output + str(done.exception)


def test_state_at_a_time_and_at_an_offset(call, golden_tables):
    printed = printed_log(GOLDEN / "dynamic" / "c1")
    one = printed[400]
    at = datetime.fromtimestamp(one.timestamp_ms / 1000, UTC).isoformat()
    last = max(other.offset for other in printed if other.timestamp_ms <= one.timestamp_ms)
    for arguments, offset in ((("--time", at), last), (("--offset", one.offset), one.offset)):
        done = call("state", "--tables", golden_tables, "--cluster", CLUSTER, *arguments, "--output", "json", "topics")
        assert done.exit_code == 0, done.output
        found = {json.loads(line)["topic"] for line in done.stdout.splitlines() if line.startswith("{")}
        names = {}
        for record in printed[: offset + 1]:
            if record.type == "TOPIC_RECORD":
                names[record.data["topicId"]] = record.data["name"]
            elif record.type == "REMOVE_TOPIC_RECORD":
                del names[record.data["topicId"]]
        assert found == set(names.values())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["query", "SELECT * FROM nowhere"], "nowhere"),
        (["query", "SELEC 1"], "SELEC"),
        (["state", "--time", "noon"], "ISO 8601"),
        (["state", "dragons"], "dragons"),
        (["report", "--to", "report.pdf"], "ends in .html"),
    ],
)
def test_mistakes_are_told_in_words(arguments, words, call, golden_tables):
    done = call(arguments[0], "--tables", golden_tables, *arguments[1:])
    assert done.exit_code != 0
    assert words in done.output + str(done.exception)


class Page(HTMLParser):
    """What a browser would load or run, and the text of the page."""

    def __init__(self):
        super().__init__()
        self.tags = []
        self.links = []
        self.text = []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.links += [value for name, value in attributes if name in ("src", "href", "xlink:href", "data", "srcset")]

    def handle_data(self, data):
        self.text.append(data)


def test_the_report_stands_alone_and_has_its_plots(call, golden_tables, tmp_path):
    target, folder = tmp_path / "report.html", tmp_path / "wiki" / "plots"
    done = call("report", "--tables", golden_tables, "--to", target, "--pictures", folder)
    assert done.exit_code == 0, done.output
    text = target.read_text()
    page = Page()
    page.feed(text)
    assert page.links == []
    assert not {"script", "link", "iframe", "img", "object"} & set(page.tags)
    assert not re.search(r"https?://|@import|url\(", text)
    part = text[text.index(f"<h2>Cluster {CLUSTER}") :].split("<h2>")[1]
    plots = {}
    for plot in re.findall(r"<svg.*?</svg>", part, re.DOTALL):
        tree = ElementTree.fromstring(plot)
        plots[tree.attrib["aria-label"]] = tree
    assert set(plots) == {
        "Leaders by epoch", "Voters", "Partitions in trouble", "Broker availability", "Records a minute",
        "Longest pause between batches, ms",
    }  # fmt: skip
    printed = [one for one in printed_log(GOLDEN / "dynamic" / "c1") if one.type == "LEADER_CHANGE"]
    assert len(list(plots["Leaders by epoch"].iter("rect"))) == len(printed)
    lanes = {one.text for one in plots["Broker availability"].iter("text") if one.attrib.get("class") == "lane"}
    assert lanes == {"broker 11", "broker 12", "broker 13"}
    for tree in plots.values():
        width, height = map(float, tree.attrib["viewBox"].split()[2:])
        for rect in tree.iter("rect"):
            x, y, w, h = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
            assert x >= 0
            assert x + w <= width + 0.1
            assert y >= 0
            assert y + h <= height

    pictures_hold_the_plots(text, plots, folder)
    printed_pictures = list((ROOT / "docs" / "pictures").iterdir())
    assert printed_pictures
    for picture in printed_pictures:
        drawn = (folder / f"{DYNAMIC}-{picture.name}").read_text()
        assert picture.read_text() == drawn, f"{picture.name} is not what the report draws now: see docs/spark.md"


def pictures_hold_the_plots(page, plots, folder):
    """Each plot of the page is a file too, and stands alone."""
    assert len(list(folder.iterdir())) == page.count("<svg")
    for title, plot in plots.items():
        file = folder / f"{CLUSTER}-{re.sub('[^a-z]+', '-', title.lower())}.svg"
        tree = ElementTree.parse(file).getroot()
        assert tree.tag == f"{SVG}svg"
        said = [one.text for one in tree.iter(f"{SVG}text")]
        assert title in said
        assert any(text.startswith(f"cluster {CLUSTER}, 2026-11-21 ") for text in said)
        assert set(said) >= {one.text for one in plot.iter("text")}
        assert len(list(tree.iter(f"{SVG}rect"))) == len(list(plot.iter("rect"))) + 1  # and the ground
        assert not re.search(r"href|url\(|@import|<script", file.read_text())


def test_a_picture_that_cannot_be_written_is_told(call, golden_tables, tmp_path):
    (tmp_path / "taken").write_text("a file")
    done = call("report", "--tables", golden_tables, "--to", tmp_path / "r.html", "--pictures", tmp_path / "taken")
    assert done.exit_code != 0
    assert "taken" in str(done.exception)
    assert "cannot be written" in str(done.exception)


def test_without_the_extra_its_name_is_told(tmp_path):
    code = """
import sys
sys.modules["pyspark"] = None
from kraftcore.plugins import spark
spark.session
"""
    done = without_java([code], tmp_path)
    assert "MissingDependencyError" in done.stderr
    assert "pip install 'kraftcore[spark]'" in done.stderr
