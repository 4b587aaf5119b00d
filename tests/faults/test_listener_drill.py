"""KIP-853, "Upgrading controller listener", as it is written there: a live quorum moves from PLAINTEXT to SSL.

Three ``kraftcore server`` processes, restarted one after the other, three times, while records are appended all along.
"""

from __future__ import annotations

import socket
import threading
import time
from functools import partial
from pathlib import Path

import pytest
import trio
import trustme
from kafka_lab import free_port
from server_quorum import TIMING, ServerQuorum

from kraftcore import admin
from kraftcore.admin import AdminClient, QuorumDescription, Timing
from kraftcore.core.batch import iter_batches
from kraftcore.errors import KraftError
from kraftcore.transports.tcp import TlsFiles

pytestmark = pytest.mark.deep

PLAIN, SECURE = "CONTROLLER", "CONTROLLER_SSL"
MAP = f"{PLAIN}:PLAINTEXT,{SECURE}:SSL"
STEPS = [[PLAIN, SECURE], [SECURE, PLAIN], [SECURE]]  # the listeners, the default one first
PATIENCE_S = 60.0
VOTERS = (1, 2, 3)


class Drill(ServerQuorum):
    """The quorum, its certificates, and where each node listens."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._folder = folder
        authority = trustme.CA()
        self._ca = folder / "ca.pem"
        authority.cert_pem.write_to_path(str(self._ca))
        self._certificate = folder / "node.pem"
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(self._certificate))
        plain = [int(address.rpartition(":")[2]) for address in self.addresses]
        self.ports = {PLAIN: dict(zip(VOTERS, plain, strict=True)), SECURE: {each: free_port() for each in VOTERS}}

    def places(self, listener: str) -> list[str]:
        """``host:port`` of all nodes."""
        return [f"127.0.0.1:{port}" for port in self.ports[listener].values()]

    def move(self, number: int, listeners: list[str]) -> None:
        """Stop a node in good order, give it these listeners, start it."""
        where = ",".join(f"{name}://127.0.0.1:{self.ports[name][number]}" for name in sorted(listeners))
        self.rewrite(
            number,
            {
                "controller.listener.names": ",".join(listeners),
                "listeners": where,
                "listener.security.protocol.map": MAP,
                "controller.quorum.bootstrap.servers": ",".join(self.places(listeners[0])),
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self._certificate),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self._ca),
                "ssl.client.auth": "required",
            },
        )
        self.stop(number)
        self.start(number)

    def ask(self, listener: str, question):
        """One question to the quorum, through one of its listeners."""

        tls = TlsFiles(str(self._certificate), None, str(self._ca)) if listener == SECURE else None
        return trio.run(self._ask, self.places(listener), tls, TIMING, question)

    def ask_plainly(self) -> None:
        """The same without TLS where TLS is spoken."""
        trio.run(self._ask, self.places(SECURE), None, Timing(2_000, 1_000), AdminClient.describe_quorum)

    @staticmethod
    async def _ask(places: list[str], tls: TlsFiles | None, timing: Timing, question):
        async with admin.connect(bootstrap_controllers=places, tls=tls, timing=timing) as client:
            return await question(client)

    def log(self, number: int) -> bytes:
        """A stopped node's."""
        segments = sorted((self._folder / f"d{number}" / "__cluster_metadata-0").glob("*.log"))
        return b"".join(segment.read_bytes() for segment in segments)

    def wait_endpoints(self, listener: str, number: int, names: list[str]) -> None:
        """Until the leader tells these listeners of a voter."""
        wanted = {(name, self.ports[name][number]) for name in names}
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found: QuorumDescription = self.ask(listener, AdminClient.describe_quorum)
            told = {(each.name, each.port) for each in found.endpoints.get(number, ())}
            keys = {each.key.id for each in found.voters}
            if told == wanted and keys == set(VOTERS) and all(each.log_end_offset for each in found.voters):
                return
            assert time.monotonic() < deadline, f"node {number} is told at {told}, wanted {wanted}"
            time.sleep(0.1)


async def append(value: bytes, number: int, client: AdminClient) -> None:
    await client.append([value], client_id=7, sequence=number)


class Appender:
    """Appends a record after the other, each until it is acknowledged, through one listener and then another."""

    def __init__(self, drill: Drill) -> None:
        self.listener = PLAIN
        self.acknowledged: list[bytes] = []
        self.failure: BaseException | None = None
        self._drill = drill
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._ending.is_set():
                number = len(self.acknowledged)
                value = b"value %d" % number
                deadline = time.monotonic() + PATIENCE_S
                while True:
                    try:
                        self._drill.ask(self.listener, partial(append, value, number))
                        break
                    except KraftError:  # a leader left, or the listener was taken away in between: the same once more
                        assert time.monotonic() < deadline, "nothing is appended any more"
                self.acknowledged.append(value)
        except BaseException as error:  # said by `end`
            self.failure = error

    def wait_progress(self) -> None:
        """Until more is acknowledged than now."""
        before, deadline = len(self.acknowledged), time.monotonic() + PATIENCE_S
        while len(self.acknowledged) <= before + 1:
            assert self.failure is None and time.monotonic() < deadline, self.failure
            time.sleep(0.05)

    def begin_end(self) -> None:
        """Append nothing more."""
        self._ending.set()

    def end(self) -> None:
        """Stop; raises what went wrong."""
        self.begin_end()
        self.join()
        if self.failure is not None:
            raise self.failure

    def join(self) -> None:
        """Wait for the thread."""
        self._thread.join(PATIENCE_S)


def numbered(log: bytes) -> dict[int, bytes]:
    """The appender's values by their number; one that was repeated counts once, as for a state machine."""
    batches = [batch for batch in iter_batches(log) if batch.producer_id >= 0]
    return {batch.base_sequence: bytes(next(iter(batch.values()))) for batch in batches}


def test_a_live_quorum_moves_from_plaintext_to_ssl(tmp_path: Path):
    drill = Drill(tmp_path)
    appender = None
    try:
        for number in VOTERS:
            drill.start(number)
        drill.leader()
        appender = Appender(drill)
        appender.wait_progress()
        for listeners in STEPS:
            through = appender.listener = PLAIN if listeners[0] == PLAIN else SECURE
            for number in VOTERS:
                drill.move(number, listeners)
                drill.wait_endpoints(through, number, listeners)
                appender.wait_progress()
        appender.end()
        for port in drill.ports[PLAIN].values():  # nobody listens there any more
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        with pytest.raises(KraftError):  # and what is left speaks TLS only
            drill.ask_plainly()
        for number in VOTERS:
            drill.kill(number)
        logs = sorted((drill.log(number) for number in VOTERS), key=len)
        assert logs[2].startswith(logs[1]) and logs[1].startswith(logs[0])
        assert numbered(logs[2]) == dict(enumerate(appender.acknowledged))
        assert len(appender.acknowledged) > 20
    finally:
        if appender is not None:
            appender.begin_end()
        drill.close()
        if appender is not None:
            appender.join()
