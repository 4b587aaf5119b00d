"""Kafka's console tools at ``kraftcore up``, as README shows it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path

from kafka_lab import OURS
from kafka_tools import KafkaTools
from project import ROOT

TOOLS = {
    "bin/kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer",
    "bin/kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
}


def test_the_three_commands_of_the_readme(kafka: KafkaTools, tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text().split("## A Kafka in one process")[1]
    block = re.search(r"```text\n(.*?)```", text, flags=re.DOTALL)
    assert block is not None
    up, produce, consume = block[1].splitlines()
    options = up.removeprefix("kraftcore ").replace("--first-port 9092", "").split()
    with subprocess.Popen([*OURS, *options, "--output", "json"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            started = json.loads(process.stdout.readline())
            server = started["bootstrapServers"].split(",")[0]

            def run(command: str, stdin: str = "", *more: str) -> str:
                tool, *arguments = command.replace("localhost:9092", server).split()
                done = subprocess.run(
                    [*kafka.command(), TOOLS[tool], *arguments, *more],
                    input=stdin,
                    capture_output=True,
                    text=True,
                    timeout=120,
                    check=False,
                )
                assert done.returncode == 0, done.stdout + done.stderr
                return done.stdout

            said, _, producer = produce.partition(" | ")
            run(producer, said.removeprefix("echo ") + "\n")
            assert run(consume, "", "--max-messages", "1") == "hello\n"
        finally:
            process.send_signal(signal.SIGINT)
    assert process.returncode == 0
