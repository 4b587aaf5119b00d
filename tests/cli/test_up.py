"""``kraftcore up``: bootstrap servers as a line, a client that writes, an end in order, and what goes on after it."""

from __future__ import annotations

import subprocess
import sys

from up_command import UP, Up, free_from


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
