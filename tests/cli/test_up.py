"""``kraftcore up``: bootstrap servers as a line, a client that writes, an end in order, and what goes on after it."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from random import Random

UP = [sys.executable, "-P", "-c", "import sys; from kraftcore.cli import main; sys.exit(main())", "up"]


class Up:
    """A process of it."""

    def __init__(self, *options: object) -> None:
        self.process = subprocess.Popen(
            [*UP, "--output", "json", *map(str, options)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            self.started = self.event("started")
        except BaseException:
            self.process.kill()
            self.process.communicate()
            raise

    def event(self, name):
        for line in self.process.stdout:
            found = json.loads(line)
            if found["event"] == name:
                return found
        raise AssertionError(f"no event {name}: {self.process.stderr.read()}")

    def end(self):
        self.process.send_signal(signal.SIGINT)
        stopped = self.event("stopped")
        self.process.communicate(timeout=60)
        return stopped["error"], self.process.returncode


def free_from(count):
    """The first of so many free ports in a row: none that outgoing connections get, nor a ``kafka_lab``'s."""
    for first in Random().sample(range(30_000, 32_000), 100):
        with ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise AssertionError("no free ports")


def test_it_serves_until_told_to_stop_and_goes_on_where_it_was(tmp_path):
    place = ("--brokers", 2, "--directory", tmp_path / "kafka", "--first-port", free_from(4))
    up = Up(*place, "--property", "min.insync.replicas=2")
    try:
        servers = up.started["bootstrapServers"]
        assert up.started["brokers"] == [1, 2]
        assert len(servers.split(",")) == 2
        assert (tmp_path / "kafka" / "broker-1" / "meta.properties").exists()
    finally:
        assert up.end() == (None, 0)
    assert "min.insync.replicas=2\n" in (tmp_path / "kafka" / "broker-2.properties").read_text()
    up = Up(*place)
    try:
        assert up.started["bootstrapServers"] == servers
    finally:
        assert up.end() == (None, 0)


def test_what_is_wrong_is_told(tmp_path):
    done = subprocess.run(
        [*UP, "--property", "no.such.property=1", "--directory", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert "there is no property no.such.property" in done.stderr
    assert subprocess.run([*UP, "--property", "half"], capture_output=True, check=False, timeout=60).returncode == 2


def test_it_imports_what_it_needs_and_looks_for_no_garbage_meanwhile():
    program = (
        "import gc, sys; from kraftcore.cli import main; looks = [];"
        "begun = lambda: 'kraftcore.cli.up_run' in sys.modules;"
        "gc.callbacks.append(lambda phase, facts: looks.append(phase) if begun() else None);"
        "import kraftcore.cli.up, trio; trio.run = lambda *_: None; main(['up']);"
        "print('looks', len(looks), gc.isenabled(), gc.get_freeze_count() > 1000); print('loaded', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert "looks 0 True True" in done.stdout
    (loaded,) = (line.split() for line in done.stdout.splitlines() if line.startswith("loaded "))
    assert "kraftcore.testing.kafka_cluster" in loaded
    assert not {"kraftcore.admin", "kraftcore.config.login", "kraftcore.node.door"} & set(loaded)
