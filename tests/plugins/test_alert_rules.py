"""The alert rules of docs/metrics.md: by Prometheus' own tester, and by a Prometheus that watches a quorum."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
import trio
import yaml
from kafka_lab import free_port
from machines import Values
from project import ROOT
from prometheus_client import generate_latest

from kraftcore.plugins.metrics import Metrics
from kraftcore.testing import Cluster

MINUTES = 20
ACTIVE, OFFLINE = "kafka_controller_kafkacontroller_activecontrollercount", "number_of_offline_voters"
NODES = ("a", "b", "c")


def rules() -> str:
    page = (ROOT / "docs" / "metrics.md").read_text()
    return page.split("```yaml\n")[1].split("```")[0]


def alerts() -> list[str]:
    return [rule["alert"] for group in yaml.safe_load(rules())["groups"] for rule in group["rules"]]


def series(name: str, values: str, node: str = "a", **labels: str) -> dict[str, str]:
    told = "".join(f', {key}="{value}"' for key, value in labels.items())
    return {"series": f'{name}{{job="kraftcore", instance="{node}"{told}}}', "values": values}


def every(name: str, values: str) -> list[dict[str, str]]:
    return [series(name, values, node) for node in NODES]


ALIVE = [*every("up", f"1x{MINUTES}"), series(ACTIVE, f"1x{MINUTES}"), series(ACTIVE, f"0x{MINUTES}", "b")]
SLOW = "kraftcore_commit_latency_seconds_bucket"
# The state, as samples of each minute, and the alerts that fire in its last minute.
CASES = {
    "all is well": (
        [
            *ALIVE,
            *every("kraftcore_seconds_since_leader_answered", f"0.3x{MINUTES}"),
            *every("kraftcore_leader_changes_total", f"3x{MINUTES}"),
            series(f"kafka_server_raftmetrics_{OFFLINE}", f"0x{MINUTES}"),
        ],
        [],
    ),
    "nobody leads": (
        [
            *every("up", f"1x{MINUTES}"),
            *every(ACTIVE, f"0x{MINUTES}"),
            *every("kraftcore_seconds_since_leader_answered", f"0+60x{MINUTES}"),
            *every("kraftcore_leader_changes_total", f"3 4x{MINUTES}"),
            *every("kraftcore_role_changes_total", f"3+30x{MINUTES}"),
        ],
        ["NoLeader", "LeaderSilent"],
    ),
    "all targets are down": (
        [*every("up", f"1 1 0x{MINUTES}"), series(ACTIVE, "1 1 stale")],
        ["NoLeader", "NodesDown"],
    ),
    "all targets are gone": ([series("up", "1 1 stale"), series(ACTIVE, "1 1 stale")], ["NoLeader", "NodesDown"]),
    "there never was a target": ([], ["NoLeader", "NodesDown"]),
    "one of three is down": (
        [*every("up", f"1x{MINUTES}")[:2], series("up", f"0x{MINUTES}", "c"), series(ACTIVE, f"1x{MINUTES}")],
        ["NodesDown"],
    ),
    "a voter does not fetch": (
        [*ALIVE, series(f"kafka_server_raftmetrics_{OFFLINE}", f"1x{MINUTES}")],
        ["VoterOffline"],
    ),
    "a slow disk": (
        [
            *ALIVE,
            series(SLOW, f"0+1x{MINUTES}", le="0.1"),
            series(SLOW, f"0+60x{MINUTES}", le="0.5"),
            series(SLOW, f"0+60x{MINUTES}", le="+Inf"),
        ],
        ["CommitsSlow"],
    ),
    "callers wait": (
        [
            *ALIVE,
            series("kraftcore_bytes_in_flight", f"95x{MINUTES}"),
            series("kraftcore_bytes_in_flight_max", f"100x{MINUTES}"),
        ],
        ["CallersWait"],
    ),
    "leaders come and go": (
        [*ALIVE, series("kraftcore_leader_changes_total", f"0+2x{MINUTES}")],
        ["LeadersChangeOften"],
    ),
    "a wrong password": (
        [
            *ALIVE,
            series("kafka_server_socketservermetrics_failed_authentication_total", f"0+30x{MINUTES}", listener="SASL"),
        ],
        ["LoginsFail"],
    ),
    "a busy loop": ([*ALIVE, series("kafka_server_raftmetrics_poll_idle_ratio_avg", f"0.05x{MINUTES}")], ["LoopBusy"]),
}


def test_rules_name_metrics_that_there_are():
    async def main() -> str:
        made: list[Metrics] = []

        def observed() -> list[Metrics]:
            made.append(Metrics(listen=None))
            return made[-1:]

        async with Cluster(1, Values, plugins=observed) as cluster:
            await cluster.wait_leader()
            await made[0].ready.wait()
            return generate_latest(made[0].registry).decode()

    page = trio.run(main)
    named = set(re.findall(r"(?:kafka|kraftcore)_\w+", re.sub('job="kraftcore"', "", rules())))
    there = set(re.findall(r"^\w+", page, re.MULTILINE))
    assert named - there == {"kafka_server_socketservermetrics_failed_authentication_total"}, "only with logins"


@pytest.mark.deep
def test_each_rule_fires_in_the_state_it_is_for_and_in_no_other(tmp_path: Path):
    told = {alert for _, fired in CASES.values() for alert in fired}
    assert told == set(alerts())
    tests = [
        {
            "name": name,
            "interval": "1m",
            "input_series": state,
            "promql_expr_test": [
                {
                    "expr": f'clamp_max(count(ALERTS{{alertname="{alert}", alertstate="firing"}}) or vector(0), 1)',
                    "eval_time": f"{MINUTES}m",
                    "exp_samples": [{"labels": "{}", "value": 1 if alert in fired else 0}],
                }
                for alert in alerts()
            ],
        }
        for name, (state, fired) in CASES.items()
    ]
    (tmp_path / "rules.yml").write_text(rules())
    wanted = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "tests.yml").write_text(json.dumps(wanted))
    ended = subprocess.run(
        ["promtool", "test", "rules", "tests.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.deep
def test_a_prometheus_fires_when_the_majority_dies_and_when_all_are_gone(tmp_path: Path):
    """The rules as they stand on the page, but for how long they wait."""
    (tmp_path / "rules.yml").write_text(re.sub(r"for: \w+", "for: 1s", rules()))
    port = free_port()

    def firing() -> set[str]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/alerts", timeout=10) as answer:
            found = json.load(answer)["data"]["alerts"]
        return {each["labels"]["alertname"] for each in found if each["state"] == "firing"}

    async def until(wanted: set[str]) -> None:
        found: set[str] | None = None
        with trio.fail_after(60):
            while found != wanted:
                await trio.sleep(0.2)
                with suppress(OSError):  # it has not begun to listen
                    found = await trio.to_thread.run_sync(firing)

    async def main() -> None:
        made: list[Metrics] = []

        def observed() -> list[Metrics]:
            made.append(Metrics(listen="127.0.0.1:0"))
            return made[-1:]

        async with Cluster(3, Values, plugins=observed) as cluster:
            leader = await cluster.wait_leader()
            for each in made:
                await each.ready.wait()
            targets = [f"{host}:{number}" for host, number in (each.address or ("", 0) for each in made)]
            scrape = {"job_name": "kraftcore", "static_configs": [{"targets": targets}]}
            timing = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
            config = {"global": timing, "rule_files": ["rules.yml"], "scrape_configs": [scrape]}
            (tmp_path / "prometheus.yml").write_text(json.dumps(config))
            command = ["prometheus", "--config.file=prometheus.yml", f"--web.listen-address=127.0.0.1:{port}"]
            with (tmp_path / "log").open("w") as log:
                process = subprocess.Popen([*command, "--storage.tsdb.path=data"], cwd=tmp_path, stdout=log, stderr=log)
            try:
                await until({"NoLeader", "NodesDown"})  # nothing was scraped yet
                await until(set())
                for node in (leader, cluster.followers[0]):
                    await cluster.kill(node)
                await until({"NoLeader", "NodesDown", "LeaderSilent"})
                for node in list(cluster.nodes.values()):
                    await cluster.kill(node)
                await until({"NoLeader", "NodesDown"})
            finally:
                process.terminate()
                process.wait()

    trio.run(main)
