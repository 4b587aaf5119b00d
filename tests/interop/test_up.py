"""Kafka's console tools at ``kraftcore up``, as README shows it."""

from __future__ import annotations

import json
import re
import shlex
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
    text = (ROOT / "README.md").read_text().split("## Or a whole Kafka")[1]
    block = re.search(r"```text\n(.*?)```", text, flags=re.DOTALL)
    assert block is not None
    up, produce, consume = block[1].splitlines()
    options = up.removeprefix("kraftcore ").removesuffix("&").replace("--first-port 9092", "").split()
    with subprocess.Popen([*OURS, *options, "--output", "json"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            started = json.loads(process.stdout.readline())
            server = started["bootstrapServers"].split(",")[0]

            def run(command: str, stdin: str = "") -> str:
                tool, *arguments = shlex.split(command.replace("127.0.0.1:9092", server))
                done = subprocess.run(
                    [*kafka.command(), TOOLS[tool], *arguments],
                    input=stdin,
                    capture_output=True,
                    text=True,
                    timeout=120,
                    check=False,
                )
                assert done.returncode == 0, done.stdout + done.stderr
                return done.stdout

            said, _, producer = produce.partition(" | ")
            (_, said_text) = shlex.split(said)
            run(producer, f"{said_text}\n")
            assert run(consume) == f"{said_text}\n"
        finally:
            process.send_signal(signal.SIGINT)
    assert process.returncode == 0
