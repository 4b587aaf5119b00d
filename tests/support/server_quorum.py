"""A quorum of three ``kraftcore server`` processes on loopback, which can be killed and started again."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import trio
from kafka_lab import OURS, free_port

from kraftcore import admin
from kraftcore.admin import AdminClient, Timing
from kraftcore.cli import main
from kraftcore.core.uuid import Uuid
from kraftcore.errors import KraftError
from kraftcore.metadata.configs import TOPIC
from kraftcore.protocol.metadata import encode_metadata_record
from kraftcore.protocol.records.config_record import ConfigRecord

_PATIENCE_S = 30.0
TIMING = Timing(20_000, 2_000)


def note(text: str) -> bytes:
    """A record that a controller can follow: one that it cannot has it give leadership up, again and again."""
    record = ConfigRecord(resource_type=TOPIC, resource_name="notes", name="note", value=text)
    return encode_metadata_record(record, 0)


class ServerQuorum:
    """Three nodes, 1 to 3.

    Attributes:
        addresses: ``host:port`` of each.
        cluster_id: of the quorum.
        initial: what --initial-controllers takes.
        files: the properties file of each node, by id.
    """

    def __init__(self, folder: Path) -> None:
        ports = [free_port() for _ in range(3)]
        self.addresses = [f"127.0.0.1:{port}" for port in ports]
        self.cluster_id = str(Uuid.random())
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.files: dict[int, Path] = {}
        self.initial = ",".join(f"{number}@127.0.0.1:{port}:{Uuid.random()}" for number, port in enumerate(ports, 1))
        for number, port in enumerate(ports, 1):
            file = folder / f"c{number}.properties"
            file.write_text(
                f"process.roles=controller\nnode.id={number}\ncontroller.listener.names=CONTROLLER\n"
                f"listeners=CONTROLLER://127.0.0.1:{port}\nlog.dirs={folder}/d{number}\n"
                f"controller.quorum.bootstrap.servers={','.join(self.addresses)}\nkraftcore.offers.log=true\n"
            )
            format_ = [
                "storage",
                "format",
                "-c",
                str(file),
                "-t",
                self.cluster_id,
                "--initial-controllers",
                self.initial,
            ]
            assert main(format_) == 0
            self.files[number] = file

    def start(self, number: int) -> None:
        """Start a node."""
        command = [*OURS, "server", "start", str(self.files[number])]
        with self._output(number).open("ab") as output:
            self._processes[number] = subprocess.Popen(command, stdout=output, stderr=output)

    def kill(self, number: int) -> None:
        """SIGKILL."""
        process = self._processes.pop(number)
        process.kill()
        process.wait()

    def runs(self, number: int) -> bool:
        """Whether a node that was started has not ended."""
        return self._processes[number].poll() is None

    def freeze(self, number: int) -> None:
        """SIGSTOP: it keeps its connections and answers nobody."""
        self._processes[number].send_signal(signal.SIGSTOP)

    def thaw(self, number: int) -> None:
        """Let a frozen node go on."""
        self._processes[number].send_signal(signal.SIGCONT)

    def stop(self, number: int) -> None:
        """SIGTERM, as an operator would; it must end well."""
        process = self._processes.pop(number)
        process.terminate()
        assert process.wait(_PATIENCE_S) == 0

    def rewrite(self, number: int, properties: Mapping[str, str]) -> None:
        """Replace properties in a node's file; they count from its next start on."""
        file = self.files[number]
        known = dict(line.split("=", 1) for line in file.read_text().splitlines())
        file.write_text("".join(f"{key}={value}\n" for key, value in {**known, **properties}.items()))

    def leader(self) -> int:
        """Who leads, once somebody does."""

        async def ask(client: AdminClient) -> int:
            return (await client.describe_quorum()).leader_id

        deadline = time.monotonic() + _PATIENCE_S
        while True:
            found = self._call(ask)
            if found in self._processes:
                return found
            assert time.monotonic() < deadline, f"node {found} is told to lead and does not run"
            time.sleep(0.1)

    def wait_registered(self, number: int) -> None:
        """Wait until a node lists all three: it has their registrations, which come after the first leader."""

        async def listed(client: AdminClient) -> int:
            return len((await client.describe_cluster_from(self.addresses[number - 1])).nodes)

        deadline = time.monotonic() + _PATIENCE_S
        while (found := self._call(listed)) < 3:
            assert time.monotonic() < deadline, f"node {number} lists {found} of 3 controllers"
            time.sleep(0.1)

    def append(self, values: Sequence[bytes], client_id: int, sequence: int = 0) -> None:
        """Append records; returns when they are committed."""

        async def ask(client: AdminClient) -> None:
            await client.append(values, client_id=client_id, sequence=sequence)

        self._call(ask)

    def add(self, number: int) -> None:
        """Make a node that watches a voter."""
        deadline = time.monotonic() + 2 * _PATIENCE_S
        command = ["quorum", "--bootstrap-controller", ",".join(self.addresses), "--command-config"]
        while main([*command, str(self.files[number]), "add-controller"]):
            assert time.monotonic() < deadline, f"node {number} does not become a voter"
            time.sleep(0.2)

    def voters(self) -> set[int]:
        """Who votes."""

        async def ask(client: AdminClient) -> set[int]:
            return {voter.key.id for voter in (await client.describe_quorum()).voters}

        return self._call(ask)

    def _call(self, ask):
        async def run():
            async with admin.connect(bootstrap_controllers=self.addresses, timing=TIMING) as client:
                return await ask(client)

        try:
            return trio.run(run)
        except KraftError as error:
            for number, process in self._processes.items():
                state = "runs" if process.poll() is None else f"ended with {process.returncode}"
                error.add_note(f"node {number} {state}: {self._output(number).read_text()[-2000:]}")
            raise

    def _output(self, number: int) -> Path:
        return self.files[number].with_suffix(".out")

    def close(self) -> None:
        """Kill what runs."""
        for number in list(self._processes):
            self.kill(number)


@contextmanager
def server_quorum(folder: Path) -> Iterator[ServerQuorum]:
    """A quorum that leads itself."""
    quorum = ServerQuorum(folder)
    try:
        for number in (1, 2, 3):
            quorum.start(number)
        quorum.leader()
        yield quorum
    finally:
        quorum.close()
