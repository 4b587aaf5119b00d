"""What docs/operating.md says of systemd and Kubernetes: the unit and the manifests are those of the page."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import kubernetes_validate
import yaml
from kafka_lab import OURS, free_port
from project import ROOT

from kraftcore.cli import main

PATIENCE_S = 60
PAGE = (ROOT / "docs" / "operating.md").read_text()


def block(language: str) -> str:
    """The page's only block in a language."""
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return found


@contextmanager
def running(file: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with file.with_suffix(".out").open("ab") as output:
        command = [*OURS, "server", "start", str(file)]
        process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **environment})
    try:
        yield process
    finally:
        process.kill()
        process.wait()


class Manager:
    """The socket of a service manager, and what it was told."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)
        self._socket.settimeout(0.1)
        self.told: list[str] = []

    def wait(self, pattern: str) -> str:
        """The first line from now on that matches."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            for line in self.take():
                if re.search(pattern, line):
                    return line
            assert time.monotonic() < deadline, f"no {pattern}: {self.told}"

    def take(self) -> list[str]:
        try:
            lines = self._socket.recv(1 << 16).decode().splitlines()
        except TimeoutError:
            return []
        self.told += lines
        return lines

    def close(self) -> None:
        self._socket.close()


def test_a_unit_of_type_notify_is_told_of_start_life_readiness_and_end(tmp_path: Path):
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment]
    unit.read_string(block("ini"))
    service = unit["Service"]
    assert service["Type"] == "notify" and int(service["WatchdogSec"]) == 30 and "-HUP" in service["ExecReload"]
    assert shlex.split(service["ExecStart"])[1:-1] == ["server", "start"]

    ports = [free_port() for _ in range(3)]
    voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in enumerate(ports, 1))
    file = tmp_path / "node.properties"
    for name, text in (("alone", f"1@127.0.0.1:{ports[0]}"), ("of-three", voters)):
        file = tmp_path / f"{name}.properties"
        file.write_text(
            f"process.roles=controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
            f"listeners=CONTROLLER://127.0.0.1:{ports[0]}\ncontroller.quorum.voters={text}\nlog.dirs={tmp_path}/{name}\n"
        )
        assert main(["storage", "format", "-c", str(file), "-t", "4L6g3nShT-eMCtK--X86sw"]) == 0
        abstract = f"\0kraftcore-{os.getpid()}-{ports[0]}"
        is_abstract = name == "alone" and sys.platform == "linux"
        address = abstract if is_abstract else str(tmp_path / "socket")
        manager = Manager(address)
        environment = {"NOTIFY_SOCKET": address.replace("\0", "@"), "WATCHDOG_USEC": "200000"}
        with running(file, environment) as process:
            manager.wait("^READY=1$")
            if name == "alone":
                manager.wait("^STATUS=ready$")
                process.send_signal(signal.SIGSTOP)
                while manager.take():
                    pass
                time.sleep(0.5)
                assert manager.take() == [], "a process that hangs tells nothing"
                process.send_signal(signal.SIGCONT)
                manager.wait("^WATCHDOG=1$")
            else:
                manager.wait("^STATUS=not ready: no leader has answered for .*; a majority, 2 of 3, is needed")
            process.terminate()
            manager.wait("^STOPPING=1$")
            assert process.wait(PATIENCE_S) == 0
        manager.close()


def manifests() -> dict[str, dict]:
    return {
        each["kind"]: each for each in yaml.safe_load_all(next(iter(re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))))
    }


def test_manifests_are_what_kubernetes_takes():
    for each in manifests().values():
        for version in ("1.31", kubernetes_validate.latest_version()):
            kubernetes_validate.validate(each, version, strict=True)


def test_the_pods_of_the_manifests_form_a_quorum_and_their_probes_answer(tmp_path: Path):
    """The file of the page, with a port of loopback in place of each pod's."""
    found = manifests()
    spec = found["StatefulSet"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    assert found["Service"]["spec"]["publishNotReadyAddresses"] and spec["podManagementPolicy"] == "Parallel"
    assert container["command"] == ["kraftcore", "server", "start", "/etc/kraftcore/node.properties"]
    named = {each["name"]: each["containerPort"] for each in container["ports"]}
    probes = {kind: container[kind]["httpGet"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")}
    text = found["ConfigMap"]["data"]["node.properties"]
    assert f"metrics.listen=0.0.0.0:{named['probes']}" in text and f"://:{named['controller']}" in text
    assert all(probe["port"] == "probes" for probe in probes.values())

    numbers = range(spec["replicas"])
    ports, scraped = [free_port() for _ in numbers], [free_port() for _ in numbers]
    for number in numbers:
        assert f"{number}@kraftcore-{number}.kraftcore:9093" in text
        text = text.replace(f"kraftcore-{number}.kraftcore:9093", f"127.0.0.1:{ports[number]}")
    started = []
    for number in numbers:
        own = text.replace("CONTROLLER://${env:POD_NAME}.kraftcore:9093", f"CONTROLLER://127.0.0.1:{ports[number]}")
        own = own.replace("CONTROLLER://:9093", f"CONTROLLER://:{ports[number]}").replace(
            "/var/lib", f"{tmp_path}/{number}"
        )
        file = tmp_path / f"pod{number}.properties"
        file.write_text(own.replace("0.0.0.0:9404", f"127.0.0.1:{scraped[number]}"))
        (tmp_path / str(number) / "kraftcore").mkdir(parents=True)
        started.append(running(file, {"NODE_ID": str(number), "POD_NAME": f"kraftcore-{number}"}))
    processes = []
    try:
        processes += [started[0].__enter__()]
        wait_for(scraped[0], probes["livenessProbe"]["path"], 200)
        assert ask(scraped[0], probes["readinessProbe"]["path"])[0] == 503
        processes += [each.__enter__() for each in started[1:]]
        for port in scraped:
            wait_for(port, probes["readinessProbe"]["path"], 200)
            assert ask(port, probes["startupProbe"]["path"]) == (200, "ok\n")
    finally:
        for each in started[: len(processes)]:
            each.__exit__(None, None, None)


def wait_for(port: int, path: str, status: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    found: object = None
    while time.monotonic() < deadline:
        try:
            found = ask(port, path)
        except OSError as error:
            found = error
        else:
            if found[0] == status:
                return
        time.sleep(0.1)
    raise AssertionError(f"port {port}: {found}")


def ask(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
