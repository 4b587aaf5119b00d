"""Kafka's kafka-storage and ours say the same and write the same files, and each takes what the other wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka_tools import KafkaTools
from storage_cases import SCENES, blank, comparable_files, prepare, run_kafka, stored

from kraftcore.cli import main


def test_same_words_and_same_files(
    tmp_path: Path, kafka: KafkaTools, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs, ours = tmp_path / "kafka", tmp_path / "kraftcore"
    theirs.mkdir()
    ours.mkdir()
    made = run_kafka(kafka.command(), theirs)
    # What the other tests compare with is what this Kafka says.
    assert made == stored()
    monkeypatch.chdir(ours)
    prepare(ours)
    for run, said in made:
        status = main(["storage", *run.arguments])
        out, _ = capsys.readouterr()
        assert (status, blank(out)) == (said.status, said.out), run
    formatted = 0
    for scene in SCENES:
        wanted, found = comparable_files(theirs / scene), comparable_files(ours / scene)
        assert found == wanted, scene
        formatted += sum(name.endswith("meta.properties") for name in found)
    assert formatted > 30
    # Each finds the other's directories in order.
    monkeypatch.chdir(theirs)
    assert main(["storage", "info", "-c", "three/server.properties"]) == 0
    capsys.readouterr()
    kafka.java("kafka.tools.StorageTool", "info", "-c", "three/server.properties", cwd=ours)
