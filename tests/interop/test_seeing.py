"""``kraftcore top`` on Kafka's own controllers and broker: who leads, what is there, and a majority that was killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kafka_lab import KafkaLab, wait_for
from kafka_tools import KafkaTools

from kraftcore.cli import main

pytestmark = pytest.mark.deep
VOTERS = [1, 2, 3]


def test_kafkas_quorum_is_seen_and_so_is_its_loss(
    kafka: KafkaTools, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with KafkaLab(kafka, tmp_path) as lab:
        lab.start_quorum(VOTERS)
        arguments = ["top", "--bootstrap-controller", lab.controllers]

        def seen() -> dict[str, object] | None:
            capsys.readouterr()
            assert main([*arguments, "--json"]) == 0
            found = json.loads(capsys.readouterr().out)
            return found if found["quorum"]["leaderId"] in VOTERS and found["log"] else None

        found = wait_for("a picture with a leader", seen)
        leader = found["quorum"]["leaderId"]
        assert {each["id"]: each["says"] for each in found["controllers"].values()} == {
            voter: "leads" if voter == leader else "answers" for voter in VOTERS
        }
        assert found["log"]["takenIn"] >= found["log"]["highWatermark"] > 0
        assert sum(each["type"] == "REGISTER_CONTROLLER_RECORD" for each in found["events"].values()) >= 1
        survivor = next(voter for voter in VOTERS if voter != leader)
        for voter in VOTERS:
            if voter != survivor:
                lab.nodes[voter].kill()
        capsys.readouterr()
        assert main([*arguments, "--once"]) == 0
        text = " ".join(capsys.readouterr().out.split())
        assert "No leader answers" in text and f"controller {survivor} (" in text
        assert text.count("does not answer: nobody listens there") == 2
