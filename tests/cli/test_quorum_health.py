"""``kraftcore quorum health``: what it says of quorums that answer and do not work, and of ones that lose nodes."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import trio
import trio.testing
from kafka_lab import free_port
from server_quorum import ServerQuorum

from kraftcore.admin import QuorumDescription, ReplicaProgress
from kraftcore.cli import main
from kraftcore.cli.quorum_health import Findings, examine
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.testing import KafkaCluster, in_thread

NOW_MS = 1_700_000_000_000


def told(*ends: int, high_watermark: int, ages_ms: tuple[int | None, ...]) -> QuorumDescription:
    """What node 1 tells as the leader of a quorum."""
    voters = tuple(
        ReplicaProgress(ReplicaKey(number), end, None if age is None else NOW_MS - age, NOW_MS)
        for number, (end, age) in enumerate(zip(ends, ages_ms, strict=True), 1)
    )
    return QuorumDescription(1, 7, high_watermark, voters, (), {})


def findings(*answers: QuorumDescription) -> Findings:
    """What is found where the leader tells these, and the last one for ever."""
    left = list(answers)

    async def describe() -> QuorumDescription:
        return left.pop(0) if len(left) > 1 else left[0]

    async def run() -> Findings:
        found = Findings()
        await examine(describe, found)
        return found

    return trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_quorum_is_well_when_what_it_held_at_first_is_committed_soon():
    idle = told(9, 9, 9, high_watermark=9, ages_ms=(0, 100, 500))
    assert (findings(idle).reasons, findings(idle).warnings) == ([], [])
    busy = told(12, 11, 9, high_watermark=11, ages_ms=(0, 100, 500))
    later = told(30, 29, 25, high_watermark=29, ages_ms=(0, 100, 500))
    assert findings(busy, busy, later).reasons == []


def test_a_wedged_quorum_answers_and_commits_nothing():
    wedged = told(12, 12, 9, high_watermark=11, ages_ms=(0, 100, 500))
    assert findings(wedged).reasons == [
        "nothing is committed: offset 11 has waited for 3 s, and the log of node 1, which leads, ends at 12"
    ]


def test_a_leader_without_a_majority_is_found_by_who_fetches():
    alone = findings(told(9, 9, 9, high_watermark=9, ages_ms=(0, 3500, None)))
    assert alone.reasons == [
        "1 of 3 voters fetch: not voter 2 (for 3.5 s), voter 3 (never, since this leader leads); a majority, 2, is "
        "needed"
    ]
    one_less = findings(told(9, 9, 9, high_watermark=9, ages_ms=(0, 10, 60_000)))
    assert (one_less.reasons, one_less.warnings) == ([], ["2 of 3 voters fetch: not voter 3 (for 60.0 s)"])


def test_fenced_brokers_and_partitions_without_a_leader_are_named(capsys):
    with in_thread(KafkaCluster(2)) as kafka:
        where = ["quorum", "--bootstrap-server", kafka.bootstrap_servers, "health"]
        kafka.create_topic("orders", partitions=4, replication_factor=1)
        assert main(where) == 0
        assert capsys.readouterr().out.startswith("healthy: node 101 leads epoch ")
        kafka.kill(2)
        deadline = time.monotonic() + 30
        while main([*where, "--output", "json"]) == 0:
            assert time.monotonic() < deadline
            capsys.readouterr()
        found = json.loads(capsys.readouterr().out)
        assert found["leaderId"] == 101 and not found["healthy"] and found["warnings"] == []
        assert found["reasons"][0] == "broker 2 is fenced"
        assert found["reasons"][1].startswith("partitions without a leader: orders-")


@pytest.fixture
def probed(tmp_path: Path):
    quorum = ServerQuorum(tmp_path)
    ports = {number: free_port() for number in (1, 2, 3)}
    try:
        for number, port in ports.items():
            metrics = {"kraftcore.plugins": "metrics", "kraftcore.plugin.metrics.listen": f"127.0.0.1:{port}"}
            quorum.rewrite(number, metrics)
            quorum.start(number)
        yield quorum, ports
    finally:
        quorum.close()


def probe(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_processes_that_lose_their_majority_say_so_at_once_and_never_that_a_dead_node_leads(probed, capsys, tmp_path):
    quorum, ports = probed
    leader = quorum.leader()
    spare, survivor = (number for number in (1, 2, 3) if number != leader)
    where = ["quorum", "--bootstrap-controller", ",".join(quorum.addresses), "health"]
    deadline = time.monotonic() + 60
    while probe(ports[survivor], "/readyz") != (200, "ok\n"):
        assert time.monotonic() < deadline
    assert main(where) == 0
    assert f"node {leader} leads" in capsys.readouterr().out

    for number in (spare, leader):
        quorum.kill(number)
    while (found := probe(ports[survivor], "/readyz"))[0] != 503:
        assert time.monotonic() < deadline
    assert found[1].startswith("no leader has answered for ") and "a majority, 2 of 3, is needed" in found[1]
    assert probe(ports[survivor], "/livez") == (200, "ok\n")
    assert "kafka_server_raftmetrics_current_leader -1.0\n" in probe(ports[survivor], "/metrics")[1]
    assert main(where) == 1
    said = capsys.readouterr().out
    assert said.startswith("no leader of the quorum answers: ") and "a majority of 2 is needed" in said
    log = tmp_path / f"c{survivor}.out"
    while "no leader has answered for " not in log.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    told = log.read_text()
    after = told[told.rindex("leaderId=null") :].splitlines()
    assert not [line for line in after if " leader leaderId=" in line], "nobody leads since then"
    assert len(after) < 15
    assert any("1 of 3 voters answer, this one included" in line for line in after)
