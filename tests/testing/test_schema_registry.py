"""A Schema Registry on brokers of ours, by the commands that the page about a Kafka for tests shows."""

from __future__ import annotations

import json
import re
import subprocess
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
from kafka_lab import wait_for
from up_command import free_from

pytestmark = [pytest.mark.deep, pytest.mark.long]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "kafka-for-tests.md"
START_S = 120


def ask(url, body=None):
    """The JSON that the registry answers; None: it does not answer yet."""
    data = None if body is None else json.dumps(body).encode()
    asked = Request(url, data, {"Content-Type": "application/vnd.schemaregistry.v1+json"})
    try:
        with urlopen(asked, timeout=30) as answer:
            return json.load(answer)
    except URLError:
        return None


@contextmanager
def running(script, folder, subjects):
    with (folder / "registry.log").open("ab") as log:
        process = subprocess.Popen(["bash", "-ec", script], cwd=folder, stdout=log, stderr=log)
    try:
        wait_for("the registry to answer", lambda: ask(subjects) is not None, timeout_s=START_S)
        yield
    finally:
        process.kill()
        process.wait()


def test_it_keeps_schemas_in_topics_of_ours(kafka_cluster, tmp_path):
    section = PAGE.read_text().split("## A Schema Registry beside it\n")[1].split("\n## ")[0]
    (script,) = re.findall(r"```sh\n(.*?)```", section, flags=re.DOTALL)
    (url,) = re.findall(r"schema\.registry\.url=(\S+)`", section)
    fetch, start = script.split("\n", 1)
    port = str(free_from(1))
    start = start.replace("127.0.0.1:9092", kafka_cluster(1).bootstrap_servers).replace("8081", port)
    start = start.replace("\njava ", "\nexec java ")
    subprocess.run(["bash", "-ec", fetch], cwd=tmp_path, check=True, timeout=600)
    subjects = url.replace("8081", port) + "/subjects"
    schema = {"schema": '{"type": "string"}'}
    with running(start, tmp_path, subjects):
        made = ask(f"{subjects}/orders-value/versions", schema)["id"]
    with running(start, tmp_path, subjects):
        found = ask(f"{subjects}/orders-value/versions/latest")
        assert (found["id"], found["version"], found["schema"]) == (made, 1, schema["schema"])
