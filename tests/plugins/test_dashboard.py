"""The dashboard over HTTP: one picture for all who look, as what changes; read-only; alive without a majority."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trio
import trio.testing
from kafka_lab import OURS
from served_dashboard import PARTITIONS, TOPIC_ID, ServedDashboard, serve_dashboard
from server_quorum import server_quorum

from kraftcore.cli import main
from kraftcore.errors import LocalError, MissingDependencyError, TransportError
from kraftcore.plugins.dashboard import Dashboard, plugin, sharing
from kraftcore.plugins.dashboard.serving import serve
from kraftcore.plugins.dashboard.sharing import Sharing
from kraftcore.plugins.picture import Carrier, Picture, Watching
from kraftcore.ports.transport import Address
from kraftcore.protocol.records.partition_change_record import PartitionChangeRecord
from kraftcore.transports.memory import MemoryNetwork

PATIENCE_S = 30


@pytest.fixture(scope="module")
def served() -> Iterator[ServedDashboard]:
    with serve_dashboard() as found:
        yield found


def ask(url: str, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    with closing(HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE_S)) as connection:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()


def picture(url: str) -> dict[str, Any]:
    return json.loads(ask(url, "/picture")[2])


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


class Viewer:
    """Follows the events, and puts the picture together."""

    def __init__(self, url: str) -> None:
        self._connection = HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE_S)
        self._connection.request("GET", "/events")
        self.answer = self._connection.getresponse()
        self.picture: dict[str, Any] = {}
        self.kinds: list[str] = []

    def next(self) -> dict[str, Any]:
        kind, data = self.answer.readline().decode()[7:-1], json.loads(self.answer.readline()[6:])
        assert self.answer.readline() == b"\n"
        self.kinds.append(kind)
        self.picture = merged(self.picture, data) if kind == "change" else data
        return data

    def close(self) -> None:
        self._connection.close()


def merged(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    found = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), value)
    return found


def test_all_viewers_get_one_picture_and_then_what_changes(served):
    until(lambda: picture(served.url)["counts"]["partitions"] == PARTITIONS)
    with closing(Viewer(served.url)) as one, closing(Viewer(served.url)) as other:
        for viewer in (one, other):
            viewer.next()
        assert one.answer.getheader("content-type").startswith("text/event-stream")
        assert one.picture["counts"]["offline"] == 3 and len(one.picture["troubled"]) == 100
        served.append(PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=1, leader=1, isr=[1, 2]))
        while "orders-1" in one.picture["troubled"]:
            change = one.next()
        assert (change["counts"]["offline"], change["counts"]["underReplicated"]) == (2, PARTITIONS - 1)
        assert "topics" not in change["counts"], "what is as before is not sent"
        assert one.kinds[0] == "picture" and set(one.kinds[1:]) == {"change"}
        while len(other.kinds) < len(one.kinds):
            other.next()
        assert other.picture == one.picture
        events = list(one.picture["events"].values())
        assert events[-1]["text"] == "orders-1: leader 1, ISR 1,2"


def test_the_page_is_whole_and_loads_nothing_from_elsewhere(served):
    status, headers, page = ask(served.url, "/")
    assert status == 200 and b"<caption>" in page
    assert "default-src 'none'" in headers["content-security-policy"]
    for path, kind in (("/page.js", "text/javascript"), ("/page.css", "text/css"), ("/vega.js", "text/javascript")):
        status, headers, found = ask(served.url, path)
        assert (status, headers["content-type"].split(";")[0]) == (200, kind)
        assert b"vegaEmbed" in found or path != "/vega.js"
    assert b"http" not in page


def test_partitions_are_searched_by_the_server(served):
    found = json.loads(ask(served.url, "/partitions?search=orders-12")[2])
    assert [each["name"] for each in found] == ["orders-12"]
    assert len(json.loads(ask(served.url, "/partitions?search=rder")[2])) == PARTITIONS
    assert json.loads(ask(served.url, "/partitions?search=nothing")[2]) == []


def test_it_is_read_only_and_answers_to_its_own_name_alone(served):
    assert ask(served.url, "/picture", "POST")[0] == 405
    assert ask(served.url, "/picture", "DELETE")[0] == 405
    assert ask(served.url, "/nothing")[0] == 404
    assert ask(served.url, "/picture", Host="evil.example")[0] == 400


def test_without_viewers_no_picture_is_made():
    async def run() -> None:
        network = MemoryNetwork()
        async with network.transport("a") as transport, trio.open_nursery() as nursery:
            made: list[int] = []

            class Counted(Sharing):
                def frame(self) -> dict[str, Any]:
                    made.append(1)
                    return super().frame()

            shared = Counted(Watching(Picture(), Carrier(transport, ())))
            nursery.start_soon(shared.run)
            await trio.sleep(sharing.PERIOD_S * 2.5)
            assert not made
            viewers = [shared.events() for _ in range(3)]
            for each in viewers:
                assert (await anext(each)).startswith(b"event: picture\n")
            assert len(made) == 1, "viewers share it"
            for each in viewers:
                await each.aclose()
            await trio.sleep(sharing.PERIOD_S * 1.5)
            first = len(made)
            await trio.sleep(sharing.PERIOD_S * 2.5)
            assert len(made) == first
            nursery.cancel_scope.cancel()

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


def test_viewers_are_bounded_and_a_slow_one_is_cut_off(monkeypatch):
    async def run() -> None:
        network = MemoryNetwork()
        async with network.transport("a") as transport, trio.open_nursery() as nursery:
            watching = Watching(Picture(), Carrier(transport, ()))
            shared = Sharing(watching)
            nursery.start_soon(shared.run)
            slow = shared.events()
            await anext(slow)
            for number in range(200):  # as many seconds, most with a change
                watching.picture.quorum.cluster_id = str(number)
                await trio.sleep(sharing.PERIOD_S)
            seen = [each async for each in slow]
            assert 0 < len(seen) < 40
            monkeypatch.setattr(sharing, "VIEWERS_MAX", 0)
            assert shared.is_full
            nursery.cancel_scope.cancel()

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_page_without_a_majority_says_so():
    with serve_dashboard() as served:
        until(lambda: picture(served.url)["quorum"]["leaderId"] > 0)
        served.lose_majority()
        found = until(lambda: [x for x in [picture(served.url)] if x["quorum"]["leaderId"] < 0])[0]
        assert found["sentences"]["0"]["level"] == "bad"
        assert "are needed" in found["sentences"]["0"]["text"]
        assert found["counts"]["topics"] == 1, "what was known stays"


def test_the_command_serves_any_quorum_and_sees_it_killed(tmp_path: Path) -> None:
    with server_quorum(tmp_path) as quorum:
        leader = quorum.leader()
        command = [*OURS, "dashboard", "--bootstrap-controller", quorum.addresses[0], "--listen", "127.0.0.1:0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            url = process.stdout.readline().strip()
            until(lambda: picture(url)["quorum"]["leaderId"] == leader)
            until(lambda: len(picture(url)["controllers"]) == 3)
            for number in (leader, leader % 3 + 1):
                quorum.kill(number)
            found = until(lambda: [x for x in [picture(url)] if x["sentences"]["0"]["text"].startswith("No leader")])[0]
            until(lambda: "1 of 3 voters answers, 2 are needed" in picture(url)["sentences"]["0"]["text"])
            assert found["clusterId"] == quorum.cluster_id
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0


def test_wrong_settings_are_said(capsys, monkeypatch):
    with pytest.raises(LocalError, match="listen on 'nowhere'"):
        Dashboard(listen="nowhere")
    with pytest.raises(LocalError, match="no setting lisen"):
        Dashboard.configured({"lisen": "127.0.0.1:1"})
    assert main(["dashboard", "--bootstrap-controller", "127.0.0.1:1", "--listen", "nowhere"]) == 1
    assert "listen on 'nowhere'" in capsys.readouterr().err
    monkeypatch.setattr(plugin, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'kraftcore\[dashboard\]'"):
        Dashboard()


def test_an_address_in_use_is_said(served):
    async def run() -> None:
        network = MemoryNetwork()
        async with network.transport("a") as transport:
            taken = Address("127.0.0.1", urlsplit(served.url).port)
            with pytest.raises(TransportError, match="cannot listen on 127.0.0.1"):
                await serve(Watching(Picture(), Carrier(transport, ())), taken)

    trio.run(run)
