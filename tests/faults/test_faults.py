"""A few rounds of real processes under faults, and whether the verdict notices what it must."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from pathlib import Path

import pytest
import trio
from broken import Broken
from faults.abuse import run_siege
from faults.broker_siege import run_broker_siege
from faults.frames import run_frames
from faults.handshakes import run_handshakes
from faults.proxy import Links, Proxy
from faults.rounds import Round, run_round
from programs import output_of
from suite_run import deep

from kraftcore.core.batch import build_batch
from kraftcore.core.disk.os_files import OsFiles
from kraftcore.core.log import Log
from kraftcore.core.log.config import LogConfig
from kraftcore.protocol.frames import encode_request
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest


@pytest.mark.parametrize("seed", [1, *deep(2, 3)])
def test_a_round(seed, tmp_path):
    report = trio.run(run_round, seed, tmp_path, 3.0)
    assert report.counts["acknowledged writes"] > 50


def judged(tmp_path, applied, *, acknowledged=(), numbered=()):
    one = Round(1, tmp_path, 1.0)
    one.outcomes.acknowledged.update(acknowledged)
    one.outcomes.numbered.update(numbered)
    one.judge(applied)


def test_a_lost_write_is_noticed(tmp_path):
    with pytest.raises(Broken, match=r"node 2 lacks acknowledged writes: \[7\]"):
        judged(tmp_path, {1: {7: 1}, 2: {}}, acknowledged=[7])


def test_a_write_applied_twice_is_noticed(tmp_path):
    with pytest.raises(Broken, match=r"node 1 applied more than once: \[7\]"):
        judged(tmp_path, {1: {7: 2}, 2: {7: 2}}, acknowledged=[7], numbered=[7])


def test_different_states_are_noticed(tmp_path):
    with pytest.raises(Broken, match="node 2 applied other writes than node 1"):
        judged(tmp_path, {1: {7: 1}, 2: {7: 1, 8: 1}}, acknowledged=[7])


def test_different_logs_are_noticed(tmp_path):
    one = Round(1, tmp_path, 1.0)
    one.format()
    for member in one.members:
        folder = member.folder / "__cluster_metadata-0"
        folder.mkdir(exist_ok=True)
        with Log.open(OsFiles(), str(folder), LogConfig(), now_ms=0) as log:
            log.append_as_leader(build_batch([b"%d" % (member.number > 2)], timestamp_ms=0), 1, 0)
    with pytest.raises(Broken, match="the logs differ between 0 and 1"):
        one.compare_logs()


FRAME = b"\x00\x00\x00\x18\x00\x12\x00\x04\x00\x00\x00\x01\x00\x0bkraftcore-1\x00\x00\x00"


def test_the_proxy_cuts_one_direction_holds_and_resets():
    async def main():
        links = Links()
        server = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
        front = socket.socket()
        front.bind(("127.0.0.1", 0))
        front.listen()
        front.setblocking(False)
        port = front.getsockname()[1]
        behind = server.socket.getsockname()[1]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Proxy(links, 2, behind, front).run)
            client = await trio.open_tcp_stream("127.0.0.1", port)
            await client.send_all(FRAME)
            far = await server.accept()
            assert await far.receive_some(100) == FRAME
            links.cut.add((2, 1))
            await client.send_all(b"there")
            assert await far.receive_some(100) == b"there"
            await far.send_all(b"back")
            with trio.move_on_after(0.05) as waited:
                await client.receive_some(100)
            assert waited.cancelled_caught
            links.cut.clear()
            links.change()
            assert await client.receive_some(100) == b"back"
            links.reset({(1, 2)})
            with pytest.raises(trio.BrokenResourceError):
                await client.receive_some(100)
            assert await far.receive_some(100) == b""
            nursery.cancel_scope.cancel()
        for stream in (client, far, server):
            await stream.aclose()

    trio.run(main)


@pytest.mark.parametrize("name", ["kraftcore-1", "broker-1", "broker-1-fetcher-0", "raft-client-1", "1"])
def test_the_proxy_knows_nodes_of_ours_and_of_kafkas_and_nobody_else(name):
    async def who_comes(client_id):
        links = Links()
        frame = encode_request(ApiVersionsRequest(), 0, 1, client_id)
        front = socket.socket()
        front.bind(("127.0.0.1", 0))
        front.listen()
        server = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
        async with server, trio.open_nursery() as nursery:
            nursery.start_soon(Proxy(links, 2, server.socket.getsockname()[1], front).run)
            with trio.fail_after(60):
                async with await trio.open_tcp_stream("127.0.0.1", front.getsockname()[1]) as client:
                    await client.send_all(len(frame).to_bytes(4) + frame)
                    if client_id == "somebody":
                        with pytest.raises(trio.BrokenResourceError):
                            await client.receive_some(1)
                        found = links.connections.copy()
                    else:
                        async with await server.accept():
                            found = {(joined.source, joined.target) for joined in links.connections}
            nursery.cancel_scope.cancel()
        return found

    assert trio.run(who_comes, name) == {(1, 2)}
    assert trio.run(who_comes, "somebody") == set()


@pytest.mark.parametrize("protocol", ["plain", *deep("tls", "sasl")])
def test_an_abused_quorum_goes_on(protocol, tmp_path):
    tls, sasl = protocol == "tls", protocol == "sasl"
    found = run_siege(tmp_path, tls=tls, sasl=sasl, windows=1, window_s=1.0, connections=300, in_flight=8)
    assert len(found) == 5 + sasl
    for figures in found:
        assert figures.abused > 0
        assert figures.connections >= (30 if figures.kind == "slow senders" else 300)
        assert figures.abused_mib - figures.quiet_mib < 64


@pytest.mark.deep
def test_a_quorum_commits_beside_standing_logins(tmp_path):
    how = {"windows": 2, "window_s": 0.5, "connections": 300, "in_flight": 8}
    (figures,) = run_siege(tmp_path, tls=False, sasl=True, standing=True, **how)
    assert figures.abused > 0
    assert figures.standing == 300
    assert figures.connections >= 600
    assert figures.row()["ratio"] == round(figures.abused / figures.quiet, 3)


@pytest.mark.deep
def test_abused_brokers_lose_nothing_and_their_memory_is_bounded(tmp_path):
    found = run_broker_siege(tmp_path, windows=1, window_s=0.5, connections=200)
    assert len(found) == 9
    for figures in found:
        assert figures.connections >= (20 if figures.kind == "slow senders" else 200)
        assert figures.abused_mib - figures.quiet_mib < 512


def test_spoilt_frames_are_answered_or_end_their_connection(kafka, tmp_path):
    report = run_frames(kafka, tmp_path, 1, 3000, 2)
    assert report.frames == 3000
    for what in ("sound answered", "fields answered", "bytes answered", "bytes closed", "header closed"):
        assert report.kinds[what] > 20
    assert report.kinds["fields answered"] > 10 * report.kinds["fields closed"]


def test_spoilt_logins_are_answered_or_end_their_connection(tmp_path):
    report = run_handshakes(tmp_path, 1, 2000, 2)
    assert report.logins == 2000
    for what in ("sound in", "sound refused", "message in", "message refused", "bytes closed", "order refused"):
        assert report.kinds[what] > 20


def test_nodes_end_with_whoever_started_them(tmp_path):
    """SIGKILL leaves no time to end them."""
    program = f"""
        from pathlib import Path
        one = Round(1, Path({str(tmp_path)!r}), 1.0)
        one.format()
        for member in one.members:
            one.start(member)
        print(*[member.process.pid for member in one.members], flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    pids = output_of(__file__, program, status=-9).split()
    assert len(pids) >= 3
    for _ in range(2000):
        if not any(map(lives, pids)):
            return
        time.sleep(0.03)
    raise AssertionError(f"processes {pids} go on without anybody")


def lives(pid):
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
