"""docs/spark-daily.md: its script, its check and its jobs do what the page says."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import time

import bad_day
import botocore.session
import pytest
from botocore.validate import ParamValidator
from golden import GOLDEN
from kafka_lab import OURS, free_port
from project import ROOT
from spark_parts import copy_as

import kraftcore.blocking
from kraftcore import NodeConfig, StateMachine
from kraftcore.plugins import spark as kraft
from kraftcore.protocol.control import leader_change
from kraftcore.protocol.records.topic_record import TopicRecord

PAGE = (ROOT / "docs" / "spark-daily.md").read_text()
SCRIPT, CHECK, DAG = (re.search(rf"```{one}\n(.*?)\n```", PAGE, re.DOTALL)[1] for one in ("sh", "sql", "python"))
STEP, JOB = map(json.loads, re.findall(r"```json\n(.*?)\n```", PAGE, re.DOTALL))
COMMANDS = re.findall(r"^(kraftcore spark .*) \|\| failed=1$", SCRIPT, re.MULTILINE)


@pytest.fixture
def daily(call, tmp_path):
    """Runs the script's commands, but for the report, which takes long and is tested elsewhere; their results."""

    def run():
        for command in COMMANDS:
            words = shlex.split(command)[2:]
            paths = {"/backup": str(tmp_path / "backup"), "/data": str(tmp_path), "$(cat /opt/kraft/check.sql)": CHECK}
            for name, place in paths.items():
                words = [word.replace(name, place) for word in words]
            if words[0] != "report":
                yield call(*words)

    return run


@pytest.fixture
def today(monkeypatch):
    """The written logs end now."""
    moment = bad_day.moment
    since_ms = round(time.time() * 1000) - moment("14:08:01.000")
    monkeypatch.setattr(bad_day, "moment", lambda text: moment(text) + since_ms)


def with_one_topic(folder):
    log = bad_day.Log()
    log.control("14:07:00.000", leader_change(1, [1], [1]))
    log.write("14:07:01.000", TopicRecord(name="orders", topic_id=bad_day.AUDIT_AGAIN))
    bad_day.write_node(folder, 1, bytes(log.data), cluster_id="well")


def with_one_isr_that_is_too_small(folder):
    log = bad_day.Log()
    bad_day.begin(log)
    bad_day.write_node(folder, 1, bytes(log.data), cluster_id="small")


class Nothing(StateMachine):
    def apply(self, batch):
        return None

    def snapshot(self, sink):
        pass

    def restore(self, values):
        pass


def test_the_check_ends_with_status_1_when_something_is_wrong(daily, today, tmp_path):
    backup = tmp_path / "backup"
    with_one_topic(backup / "well")
    ran, checked = daily()
    assert [ran.exit_code, checked.exit_code] == [0, 0], checked.output
    assert "nothing is wrong" in checked.stdout

    bad_day.write(backup / "bad")
    with_one_isr_that_is_too_small(backup / "small")
    node = copy_as(GOLDEN / "static" / "c3", backup / "old", "old")
    segment = node / "__cluster_metadata-0" / f"{0:020}.log"
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    ran, checked = daily()
    assert ran.exit_code == 0, ran.output
    assert checked.exit_code == 1
    for what in (
        "bad-day: 251 partitions offline", "bad-day: broker 101 is fenced", "bad-day: unclean election of payments-0",
        "small: 1 partitions under min ISR", "old: no record since 2026-11-21", f"old: damage in {segment}",
    ):  # fmt: skip
        assert what in checked.output
    assert "well" not in checked.output


def test_a_run_beside_a_run_is_refused(tmp_path):
    node, tables = GOLDEN / "static" / "c3", tmp_path / "tables"
    command = [*OURS, "spark", "run", "--quiet", "--input", str(node), "--tables", str(tables)]
    refused = []

    def meanwhile(_):
        if not refused:
            refused.append(subprocess.run(command, capture_output=True, text=True, check=False, timeout=60))

    kraft.run(lambda: pytest.fail("so little needs no Spark"), [node], tables, report=meanwhile)
    assert refused[0].returncode == 1
    assert str(os.getpid()) in refused[0].stderr


def test_a_mirror_that_is_fetched_before_each_run_grows(tmp_path):
    listener = f"127.0.0.1:{free_port()}"
    command = re.search(r"^    kraftcore (observe .*)$", PAGE, re.MULTILINE)[1]
    words = shlex.split(command.replace("/backup/prod", str(tmp_path / "mirror")).replace("c1.example:9093", listener))
    config = NodeConfig(node_id=1, directory=tmp_path / "n1", listeners=[listener], create="standalone")
    found = []
    with kraftcore.blocking.open_node(config, Nothing()) as node:
        node.wait_leader()
        for value in (b"monday", b"tuesday"):
            node.append(value)
            subprocess.run([*OURS, *words], check=True, timeout=60)
            result = kraft.run(lambda: pytest.fail("so little needs no Spark"), [tmp_path / "mirror"], tmp_path / "t")
            found.append(result.rows["bronze_records"])
    assert found[0] > 1
    assert found[1] == 1


def test_a_copy_of_a_log_that_grows_is_read_on(tmp_path):
    node = copy_as(GOLDEN / "static" / "c3", tmp_path / "c3", "grows")
    segment = node / "__cluster_metadata-0" / f"{0:020}.log"
    whole = segment.read_bytes()
    rows = []
    for data in (whole[: len(whole) // 2], whole):
        copied = tmp_path / "copied"
        copied.write_bytes(data)
        shutil.move(copied, segment)  # as rsync does
        result = kraft.run(lambda: pytest.fail("so little needs no Spark"), [node], tmp_path / "t")
        rows.append(result.rows["bronze_records"])
    assert all(rows)
    at_once = kraft.run(lambda: pytest.fail("so little needs no Spark"), [node], tmp_path / "at-once")
    assert sum(rows) == at_once.rows["bronze_records"]


def test_airflow_runs_the_commands_of_the_script():
    tree = ast.parse(DAG)
    (prefix,) = (one.value.value for one in tree.body if isinstance(one, ast.Assign))
    found = [
        "".join(part.value if isinstance(part, ast.Constant) else prefix for part in keyword.value.values)
        for keyword in ast.walk(tree)
        if isinstance(keyword, ast.keyword) and keyword.arg == "bash_command"
    ]
    assert found == [f"/opt/kraft/bin/{command}" for command in COMMANDS]
    assert len(found) == 3


def test_amazon_takes_the_step():
    service = botocore.session.get_session().get_service_model("emr")
    shape = service.operation_model("AddJobFlowSteps").input_shape
    report = ParamValidator().validate({"JobFlowId": "j-EXAMPLE", "Steps": STEP}, shape)
    assert not report.has_errors(), report.generate_report()
    assert STEP[0]["HadoopJarStep"]["Args"][-1] == "/opt/kraft/daily.sh"
    assert JOB["max_concurrent_runs"] == 1
