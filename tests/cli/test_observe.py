"""``kraftcore observe`` as a process, on a node of ours that serves over TCP."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from kraftcore import Node, NodeConfig, open_node
from kraftcore.cli import main
from kraftcore.cli.server_run import LogOnly
from kraftcore.core.uuid import Uuid
from kraftcore.protocol.metadata import encode_metadata_record
from kraftcore.protocol.records.remove_topic_record import RemoveTopicRecord
from kraftcore.protocol.records.topic_record import TopicRecord
from kraftcore.storage.meta_properties import MetaProperties

KRAFTCORE = [sys.executable, "-c", "import sys; from kraftcore.cli import main; sys.exit(main())"]
TOPIC = Uuid(bytes(range(16)))
ELSEWHERE = Uuid(bytes(range(16, 32)))
CREATED = encode_metadata_record(TopicRecord(name="caf\N{LATIN SMALL LETTER E WITH ACUTE}", topic_id=TOPIC), 0)
REMOVED = encode_metadata_record(RemoveTopicRecord(topic_id=TOPIC), 0)
UNKNOWN = b"\x01\x7f\x00\x05\x06"  # a type that no release has
NEWER = b"\x01\x02\x09" + CREATED[3:] + b"\x01\x02\x03"  # a TopicRecord of version 9, with more behind it
TORN = CREATED[:6]


@dataclass
class Served:
    """A node in a thread of its own."""

    address: str
    cluster_id: str
    node: Node
    token: trio.lowlevel.TrioToken

    def append(self, *values: bytes) -> None:
        async def work() -> None:
            for value in values:
                await self.node.append(value)

        trio.from_thread.run(work, trio_token=self.token)

    def observe(self, *arguments: object) -> list[str]:
        return subprocess.run(
            self.command(*arguments), capture_output=True, text=True, check=True, timeout=60
        ).stdout.splitlines()

    def command(self, *arguments: object) -> list[str]:
        return [*KRAFTCORE, "observe", "--bootstrap-controller", self.address, *map(str, arguments)]


def serve(folder: Path, **settings: object) -> Iterator[Served]:
    ready: queue.Queue[Served] = queue.Queue()
    stop = trio.Event()

    async def run() -> None:
        config = NodeConfig(
            node_id=1, directory=folder, listeners=["CONTROLLER://127.0.0.1:0"], create="standalone", **settings
        )
        async with open_node(config, LogOnly()) as node:
            await node.wait_leader()
            await node.read_barrier()
            address = f"127.0.0.1:{node.endpoints[0].port}"
            ready.put(Served(address, node.cluster_id, node, trio.lowlevel.current_trio_token()))
            await stop.wait()

    thread = threading.Thread(target=trio.run, args=(run,))
    thread.start()
    served = ready.get(timeout=30)
    yield served
    served.token.run_sync_soon(stop.set)
    thread.join(30)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    for found in serve(tmp_path_factory.mktemp("node")):
        found.append(CREATED, REMOVED, UNKNOWN, NEWER, TORN)
        yield found


def test_records_are_json_lines_as_dump_log_prints_them(served: Served, tmp_path: Path) -> None:
    lines = served.observe("--once", "--output", "json", "--directory", tmp_path)
    segment = tmp_path / "__cluster_metadata-0" / "00000000000000000000.log"
    dumped = subprocess.run(
        [*KRAFTCORE, "dump-log", "--cluster-metadata-decoder", "--output", "json", "--files", str(segment)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert lines == [line for line in dumped if json.loads(line)["kind"] == "record"]
    assert len(lines) >= 6
    created, removed, unknown, newer, torn = map(json.loads, lines[-5:])
    assert created["payload"] == {
        "type": "TOPIC_RECORD",
        "version": 0,
        "data": {"name": "caf\xe9", "topicId": str(TOPIC)},
    }
    assert removed["payload"]["type"] == "REMOVE_TOPIC_RECORD"
    assert "Unknown metadata id 127" in unknown["error"]
    assert "garbage" in newer["error"]
    assert "Failed to deserialize" in torn["error"]
    assert all(line.get("payload") or line["payloadBase64"] for line in (unknown, newer, torn))


def test_text_is_for_people(served: Served) -> None:
    *_, created, removed, unknown, newer, torn = served.observe("--once")
    assert "TOPIC_RECORD" in created
    assert '"caf\xe9"' in created
    assert "REMOVE_TOPIC_RECORD" in removed
    assert all("UNKNOWN" in line for line in (unknown, newer, torn))
    assert all(each.isprintable() for each in (created, removed, unknown, newer, torn))


def test_types_and_offsets_choose(served: Served) -> None:
    (line,) = served.observe("--once", "--output", "json", "--type", "topicrecord")
    offset = json.loads(line)["offset"]
    assert len(served.observe("--once", "--type", "TOPIC_RECORD,RemoveTopicRecord")) == 2
    assert len(served.observe("--once", "--from-offset", offset)) == 5
    assert served.observe("--once", "--from-end") == []
    assert served.observe("--once", "--output", "none") == []
    assert "LEADER_CHANGE" in served.observe("--once", "--type", "LEADER_CHANGE")[0]


def test_from_the_end_only_what_comes_is_printed_until_a_signal(served: Served, tmp_path: Path) -> None:
    command = served.command("--from-end", "--output", "json", "--directory", tmp_path)
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while not list(tmp_path.glob("*/*.log")) or next(tmp_path.glob("*/*.log")).stat().st_size == 0:
            assert process.poll() is None
        served.append(REMOVED, CREATED)
        line = json.loads(process.stdout.readline())
        assert "payload" in line
        process.terminate()
        assert process.wait(20) == 0
    meta = MetaProperties.decode((tmp_path / "meta.properties").read_bytes())
    assert (meta.cluster_id, meta.node_id, meta.directory_id) == (served.cluster_id, -1, None)


def test_a_reader_that_goes_away_ends_it(served: Served) -> None:
    with subprocess.Popen(served.command(), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        served.append(REMOVED)
        assert process.wait(20) == 141


def test_other_logs_are_shown_as_text(tmp_path: Path) -> None:
    for found in serve(tmp_path / "node", topic="orders", topic_id=ELSEWHERE):
        found.append(b"plain text", b"\xff\x00")
        where = ["--once", "--topic", "orders", "--topic-id", ELSEWHERE]
        *_, text, binary = map(json.loads, found.observe(*where, "--output", "json"))
        assert (text["payload"], binary["payloadBase64"]) == ("plain text", "/wA=")
        assert found.observe(*where)[-2].endswith('"plain text"')


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--from-end", "--from-offset", "3"], 2, "exclude each other"),
        (["--type", "TopicRecrd"], 2, "did you mean TopicRecord?"),
        (["--topic-id", "x"], 1, "x"),
        (["--command-config", "/nowhere"], 1, "/nowhere"),
    ],
)
def test_wrong_usage_is_said(capsys: pytest.CaptureFixture[str], arguments: list[str], status: int, words: str) -> None:
    assert main(["observe", "--bootstrap-controller", "127.0.0.1:1", *arguments]) == status
    assert words in capsys.readouterr().err


def test_nobody_there_is_said_with_the_reason(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("default.api.timeout.ms=300\n")
    assert main(["observe", "--bootstrap-controller", "127.0.0.1:1", "--command-config", str(config)]) == 1
    assert "nobody listens there" in capsys.readouterr().err
