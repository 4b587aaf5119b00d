"""``server start``: real processes, real sockets, real signals."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pytest
import trustme
from forked import FORKS_WHEN_TOLD, outlives
from hangup import hung_up_by
from kafka_lab import OURS, free_port

from kraftcore.cli import main
from kraftcore.cli.node_run import Reporter
from kraftcore.core.uuid import Uuid
from kraftcore.protocol.frames import encode_request
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest

PATIENCE_S = 30
Capture = pytest.CaptureFixture[str]


class Server:
    """One process, and what it says."""

    def __init__(self, file: Path, *options: str, command: Sequence[str] = OURS) -> None:
        self.process = subprocess.Popen(
            [*command, "server", "start", str(file), "--output", "json", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said: list[dict[str, Any]] = []
        self._lines: Queue[str | None] = Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def wait(self, event: str, **fields: object) -> dict[str, Any]:
        """Wait until it says this, from now on."""
        while True:
            try:
                line = self._lines.get(timeout=PATIENCE_S)
            except Empty:
                raise AssertionError(f"no {event} {fields}; it said {self.said}") from None
            if line is None:
                raise AssertionError(f"it ended without {event} {fields}: {self.said} {self.process.stderr.read()}")
            self.said.append(json.loads(line))
            if self.said[-1]["event"] == event and fields.items() <= self.said[-1].items():
                return self.said[-1]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        self.wait("stopping", signal=number.name)
        self.wait("stopped", error=None)
        return self.process.wait(PATIENCE_S)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


@pytest.fixture
def start() -> Iterator[Callable[..., Server]]:
    servers = []

    def make(file: Path, *options: str, command: Sequence[str] = OURS) -> Server:
        servers.append(Server(file, *options, command=command))
        return servers[-1]

    yield make
    for server in servers:
        server.close()


def write_file(folder: Path, node_id: int, port: int, servers: list[int], more: str = "") -> Path:
    file = folder / f"c{node_id}.properties"
    file.write_text(
        f"process.roles=controller\nnode.id={node_id}\ncontroller.listener.names=CONTROLLER\n"
        f"listeners=CONTROLLER://127.0.0.1:{port}\nlog.dirs={folder}/d{node_id}\nnum.network.threads=3\n"
        f"controller.quorum.bootstrap.servers={','.join(f'127.0.0.1:{each}' for each in servers)}\n{more}"
    )
    return file


def format_(file: Path, *arguments: str) -> None:
    assert main(["storage", "format", "-c", str(file), "-t", "abc", *arguments]) == 0


@pytest.fixture
def alone(tmp_path: Path) -> Path:
    port = free_port()
    file = write_file(tmp_path, 1, port, [port])
    format_(file, "--standalone")
    return file


def test_a_server_says_what_happens_and_stops_when_told(alone: Path, start: Callable[..., Server]) -> None:
    server = start(alone)
    assert server.wait("ignored")["properties"] == ["num.network.threads"]
    started = server.wait("started")
    assert (started["nodeId"], started["clusterId"], started["pid"]) == (1, "abc", server.process.pid)
    assert started["listeners"] == started["advertisedListeners"]
    (voter,) = server.wait("voters")["voters"]
    assert (voter["id"], voter["directoryId"], voter["endpoints"]) == (1, started["directoryId"], started["listeners"])
    server.wait("leader", leaderId=1, epoch=1)
    host, _, port = started["listeners"][0].removeprefix("CONTROLLER://").rpartition(":")
    socket.create_connection((host, int(port)), timeout=PATIENCE_S).close()
    # Somebody else may not have its directory meanwhile.
    second = start(alone, "--override", "listeners=CONTROLLER://127.0.0.1:0")
    error = second.wait("stopped")["error"]
    assert "cannot use" in error
    assert f"process {server.process.pid} (" in error
    assert second.process.wait(PATIENCE_S) == 1
    assert server.stop(signal.SIGINT) == 0


def test_a_forked_child_that_outlives_it_keeps_nothing_of_it(alone: Path, start: Callable[..., Server]) -> None:
    server = start(alone, command=FORKS_WHEN_TOLD)
    server.wait("started")
    server.process.send_signal(signal.SIGUSR2)
    child = server.wait("forked")["pid"]
    server.process.kill()
    server.process.wait(PATIENCE_S)
    server = start(alone)
    server.wait("leader", leaderId=1)
    assert outlives(child)
    assert server.stop() == 0


def test_a_path_that_no_stream_takes_is_told_by_escapes(capsys: Capture) -> None:
    Reporter(as_json=False).event("started", directory="/\udcff\n\x1b", other="/caf\xe9")
    assert capsys.readouterr().out.endswith(' started directory="/\\udcff\\n\\u001b" other=/caf\xe9\n')


def test_the_collector_leaves_what_the_node_is_made_of_alone(alone: Path) -> None:
    program = (
        "import gc, sys; from kraftcore.cli import main; main(sys.argv[1:]);"
        'print("collector", gc.get_threshold()[0], gc.get_freeze_count())'
    )
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", program, "server", "start", str(alone)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        while " leader " not in process.stdout.readline():
            assert process.poll() is None
        process.terminate()
        last = process.stdout.read().splitlines()[-1].split()
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    assert last[0] == "collector"
    assert int(last[1]) > 10_000  # new objects between two looks: a request about a thousand partitions has 6,000
    assert int(last[2]) > 10_000  # objects that it does not look at


def page(port: int) -> str:
    """The metrics; plugins start beside the node, so it may lead before this one listens."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as found:
                return found.read().decode()
        except urllib.error.URLError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def test_it_loads_plugins_by_its_file(tmp_path: Path, start: Callable[..., Server]) -> None:
    port, watched = free_port(), free_port()
    more = f"kraftcore.plugins=metrics\nkraftcore.plugin.metrics.listen=127.0.0.1:{watched}\n"
    file = write_file(tmp_path, 1, port, [port], more)
    format_(file, "--standalone")
    server = start(file)
    server.wait("leader", leaderId=1)
    assert 'kafka_server_raftmetrics_current_state{current_state="leader"} 1.0' in page(watched)
    assert server.stop() == 0
    wrong = start(file, "--override", "kraftcore.plugin.metrics.port=1")
    assert "plugin metrics has no setting port" in wrong.wait("stopped")["error"]
    assert wrong.process.wait(PATIENCE_S) == 1


def test_a_leader_hands_over_when_it_is_told_to_stop(tmp_path: Path, start: Callable[..., Server]) -> None:
    ports = [free_port() for _ in range(3)]
    files = {number: write_file(tmp_path, number, port, ports) for number, port in enumerate(ports, 1)}
    voters = ",".join(f"{number}@127.0.0.1:{port}:{Uuid.random()}" for number, port in enumerate(ports, 1))
    for file in files.values():
        format_(file, "--initial-controllers", voters)
    servers = {number: start(file) for number, file in files.items()}
    for server in servers.values():
        assert len(server.wait("started")) > 3
    first = None
    while first is None:
        first = servers[1].wait("leader")["leaderId"]
    others = [server for number, server in servers.items() if number != first]
    for server in others:
        if not any(said["event"] == "leader" and said["leaderId"] == first for said in server.said):
            server.wait("leader", leaderId=first)
    assert servers[first].stop() == 0
    for server in others:
        after = None
        while after in (None, first):
            after = server.wait("leader")["leaderId"]
        assert after in servers
    for server in others:
        server.process.send_signal(signal.SIGTERM)
    for server in others:
        server.wait("stopped", error=None)
        assert server.process.wait(PATIENCE_S) == 0


def test_it_goes_on_when_nobody_reads_what_it_says(alone: Path) -> None:
    command = [sys.executable, "-P", "-m", "kraftcore", "server", "start", str(alone)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            for line in process.stdout:
                if " leader leaderId=1" in line:
                    break
            process.stdout.close()
            process.send_signal(signal.SIGHUP)  # makes it say something
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
            assert process.stderr.read() == ""
        finally:
            process.kill()


def test_certificates_are_read_again_on_sighup(tmp_path: Path, start: Callable[..., Server]) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    pem = tmp_path / "node.pem"

    def issue() -> int:
        issued = authority.issue_cert("127.0.0.1")
        pem.write_bytes(issued.private_key_and_cert_chain_pem.bytes())
        found = ssl.PEM_cert_to_DER_cert(issued.cert_chain_pems[0].bytes().decode())
        return hash(found)

    def served(port: int) -> int:
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        with (
            socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
        ):
            return hash(secure.getpeercert(binary_form=True))

    port = free_port()
    more = (
        "listener.security.protocol.map=CONTROLLER:SSL\nssl.keystore.type=PEM\nssl.truststore.type=PEM\n"
        f"ssl.keystore.location={pem}\nssl.truststore.location={tmp_path}/ca.pem\n"
    )
    file = write_file(tmp_path, 1, port, [port], more)
    format_(file, "--standalone")
    first = issue()
    server = start(file)
    server.wait("leader", leaderId=1)
    assert served(port) == first
    second = issue()
    server.process.send_signal(signal.SIGHUP)
    server.wait("tls", reloaded=True)
    assert served(port) == second
    pem.write_text("no certificate")
    server.process.send_signal(signal.SIGHUP)
    assert "TLS setting certificate" in server.wait("tls", reloaded=False)["error"]
    assert served(port) == second
    assert server.stop() == 0


@pytest.fixture
def by_requests(tmp_path: Path) -> Path:
    """The file of a broker that obeys control requests."""
    file = tmp_path / "b1.properties"
    file.write_text(
        "partition.control=requests\nnode.id=1\nlisteners=BROKER://127.0.0.1:0\ninter.broker.listener.name=BROKER\n"
        f"listener.security.protocol.map=BROKER:PLAINTEXT\nlog.dirs={tmp_path}/b1\n"
    )
    return file


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_broker_under_control_requests_stops_in_order(
    by_requests: Path, start: Callable[..., Server], number: signal.Signals
) -> None:
    with hung_up_by(signal.SIG_DFL):
        server = start(by_requests)
    server.wait("started")
    assert server.stop(number) == 0
    assert (by_requests.parent / "b1" / ".kafka_cleanshutdown").exists()


def test_a_second_signal_ends_a_broker_under_control_requests_whose_disk_hangs(
    by_requests: Path, start: Callable[..., Server]
) -> None:
    folder = by_requests.parent / "b1"
    folder.mkdir()
    for name in ("meta.properties", "recovery-point-offset-checkpoint"):
        os.mkfifo(folder / name)
    server = start(by_requests)
    writer = open_when_it_is_read(folder / "meta.properties")  # then it waits for the other one
    try:
        server.process.send_signal(signal.SIGTERM)
        server.wait("stopping", signal="SIGTERM")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE_S) == -signal.SIGTERM
    finally:
        os.close(writer)


ASKED = encode_request(ApiVersionsRequest(), 0, 1)


def connect(port: int, sockets: list[socket.socket]) -> bool:
    """Add a connection; whether it is served."""
    sockets.append(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S))
    try:
        sockets[-1].sendall(len(ASKED).to_bytes(4, "big") + ASKED)
        return sockets[-1].recv(1) != b""
    except ConnectionError:
        return False


def check_room(started: dict[str, Any], vital: list[str]) -> None:
    """Clients, from an address that peers have, too, take all connections: those to other listeners are served."""
    ports = {each.partition("://")[0]: int(each.rpartition(":")[2]) for each in started["listeners"]}
    sockets: list[socket.socket] = []
    try:
        while connect(ports["CLIENT"], sockets):
            assert len(sockets) <= 8
        for name in vital:
            assert connect(ports[name], sockets), name
        assert not connect(ports["CLIENT"], sockets)
    finally:
        for each in sockets:
            each.close()


def test_a_broker_under_control_requests_is_reached_when_clients_have_all_connections(
    by_requests: Path, start: Callable[..., Server]
) -> None:
    text = by_requests.read_text().replace(":0\n", ":0,CLIENT://127.0.0.1:0\n")
    by_requests.write_text(f"{text.replace(':PLAINTEXT', ':PLAINTEXT,CLIENT:PLAINTEXT')}max.connections=8\n")
    server = start(by_requests)
    check_room(server.wait("started"), ["BROKER"])


@pytest.mark.parametrize("per_address", [8, 1000])
def test_a_node_is_reached_when_clients_have_all_connections(
    tmp_path: Path, start: Callable[..., Server], per_address: int
) -> None:
    port = free_port()
    file = tmp_path / "n1.properties"
    file.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        f"listeners=CLIENT://127.0.0.1:0,CONTROLLER://127.0.0.1:{port},BROKER://127.0.0.1:0\n"
        "listener.security.protocol.map=CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT,BROKER:PLAINTEXT\n"
        f"inter.broker.listener.name=BROKER\ncontroller.quorum.bootstrap.servers=127.0.0.1:{port}\n"
        f"log.dirs={tmp_path}/d1\nmax.connections=8\nmax.connections.per.ip={per_address}\n"
    )
    format_(file, "--standalone")
    server = start(file)
    started = server.wait("started")
    server.wait("broker", stage="Running")
    check_room(started, ["CONTROLLER", "BROKER"])


@pytest.mark.parametrize("name", ["controller", "both", "by_requests"])
def test_a_file_may_come_through_a_pipe(
    name: str, request: pytest.FixtureRequest, tmp_path: Path, start: Callable[..., Server]
) -> None:
    file: Path = request.getfixturevalue("by_requests" if name == "by_requests" else "alone")
    text = file.read_text()
    if name == "both":
        text = text.replace("process.roles=controller", "process.roles=broker,controller")
        text = text.replace("listeners=", "listeners=PLAINTEXT://127.0.0.1:0,", 1)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    server = start(pipe)
    end = open_when_it_is_read(pipe)
    os.write(end, text.encode())
    os.close(end)
    server.wait("started")
    assert server.stop(signal.SIGTERM) == 0


def open_when_it_is_read(pipe: Path) -> int:
    """The end to write, once somebody waits for what is written."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # nobody reads it
            assert time.monotonic() < deadline
            time.sleep(0.02)


def run(capture: Capture, *arguments: str) -> tuple[int, str]:
    status = main(["server", "start", *arguments])
    return status, capture.readouterr().err


def test_what_keeps_it_from_starting_is_one_line(tmp_path: Path, alone: Path, capsys: Capture) -> None:
    capsys.readouterr()
    assert run(capsys, "/nowhere/x.properties") == (1, "/nowhere/x.properties: No such file or directory\n")
    port = free_port()
    unformatted = write_file(tmp_path, 2, port, [port])
    for _ in range(2):  # without its folder, and with an empty one
        status, text = run(capsys, str(unformatted))
        assert status == 1
        assert "format" in text and "kraftcore storage format" in text
        assert text.count("\n") == 1
        (tmp_path / "d2").mkdir(exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listeners = f"listeners=CONTROLLER://127.0.0.1:{taken.getsockname()[1]}"
        status, text = run(capsys, str(alone), "--override", listeners)
        assert status == 1
        assert re.search(r"Address already in use|EADDRINUSE", text)
        assert text.count("\n") == 1
    status, text = run(capsys, str(alone), "--override", "node.id=7")
    assert status == 1
    assert "node id is 1, expected 7" in text
    status, text = run(capsys, str(alone), "--override", "node.ids=7")
    assert status == 1
    assert "there is no property node.ids; did you mean node.id?" in text


def test_wrong_usage(alone: Path, capsys: Capture) -> None:
    capsys.readouterr()
    status, text = run(capsys, str(alone), "--override", "x")
    assert status == 1
    assert "--override x: write KEY=VALUE" in text
    assert run(capsys)[0] == 1
    assert main(["server", "start", "--help"]) == 0
    assert "kraftcore server start" in capsys.readouterr().out.partition("Examples:")[2]


def test_text_is_one_line_an_event(alone: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "kraftcore", "server", "start", str(alone)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if " leader leaderId=1" in line:
                process.send_signal(signal.SIGTERM)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert all(re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z [a-z]+ \w+=", line) for line in lines)
    assert lines[0].split()[1:] == ["ignored", 'properties=["num.network.threads"]']
    assert lines[-1].split()[1:] == ["stopped", "error=null"]


NEVER_NEEDED = [
    "asyncio",
    "cramjam",
    "email",
    "http",
    "importlib.metadata",
    "pyarrow",
    "zipfile",
    "kraftcore.config.login",
    "kraftcore.config.oauth",
    "kraftcore.node.authentication",
    "kraftcore.node.recorder",
    "kraftcore.security.sasl.oauth_messages",
    "kraftcore.security.sasl.server_session",
    "kraftcore.simulation",
    "kraftcore.testing",
]
ONLY_BROKERS = [
    "kraftcore.plugins.broker.broker_parts",
    "kraftcore.plugins.broker.groups.coordinator",
    "kraftcore.plugins.broker.kraft",
]
ONLY_CONTROLLERS = [
    "kraftcore.plugins.controller.life",
    "kraftcore.plugins.controller.plugin",
    "kraftcore.plugins.controller.registry",
    "kraftcore.plugins.controller.topics",
]
ONLY_REQUESTS = ["kraftcore.plugins.broker.control.standalone_broker", "kraftcore.plugins.broker.control"]


@pytest.mark.parametrize(
    ("roles", "needed", "foreign"),
    [
        ("controller", ONLY_CONTROLLERS, ONLY_BROKERS),
        ("broker", ONLY_BROKERS, ONLY_CONTROLLERS),
        ("broker,controller", ONLY_BROKERS + ONLY_CONTROLLERS, []),
    ],
)
def test_a_server_imports_what_its_roles_need(tmp_path, roles, needed, foreign):
    file = tmp_path / "server.properties"
    listeners = {"controller": "C://127.0.0.1:0", "broker": "B://127.0.0.1:0"}
    lines = [
        f"process.roles={roles}",
        "node.id=1",
        "controller.listener.names=C",
        "listener.security.protocol.map=C:PLAINTEXT,B:PLAINTEXT",
        "inter.broker.listener.name=B" if "broker" in roles else "",
        f"listeners={','.join(listeners[role] for role in roles.split(','))}",
        "controller.quorum.bootstrap.servers=127.0.0.1:1",
        f"log.dirs={tmp_path / 'not-formatted'}",
    ]
    file.write_text("\n".join(lines))
    # Counted: looks for garbage while what a node needs is imported.
    program = (
        "import gc, sys; from kraftcore.cli import main; looks = [];"
        "begun = lambda: 'kraftcore.config.properties' in sys.modules and 'kraftcore.storage.lock' not in sys.modules;"
        "gc.callbacks.append(lambda phase, facts: looks.append(phase) if begun() else None);"
        "main(sys.argv[1:]); print('looks', len(looks), gc.isenabled()); print('loaded', *sys.modules)"
    )
    command = [sys.executable, "-P", "-c", program, "server", "start", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    (loaded,) = (line.split() for line in done.stdout.splitlines() if line.startswith("loaded "))
    assert "format it first" in done.stderr  # it came as far as opening its directory
    assert set(needed) <= set(loaded)
    assert "looks 0 True" in done.stdout
    unwanted = {*NEVER_NEEDED, *ONLY_REQUESTS, *foreign}
    assert sorted(unwanted & set(loaded)) == []
