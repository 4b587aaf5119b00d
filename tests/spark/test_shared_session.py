"""The session that commands share: who starts it, who asks it, and what becomes of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest
from click.testing import CliRunner
from golden import GOLDEN
from spark_parts import LIMIT_S

from kraftcore.cli.spark import asking
from kraftcore.cli.spark import spark as commands
from kraftcore.plugins import spark as kraft
from kraftcore.plugins.spark import engines


@pytest.fixture
def tables(tmp_path):
    kraft.run(lambda: pytest.fail("Spark was started"), [GOLDEN / "static" / "c3"], tmp_path / "t")
    return tmp_path / "t"


@pytest.fixture
def runtime(tmp_path, monkeypatch):
    """The runtime folder of this test; the sessions in it are ended."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("TZ", "UTC")
    yield tmp_path / "kraftcore"
    for lock in (tmp_path / "kraftcore").glob("*.lock"):
        with suppress(ProcessLookupError):
            os.kill(int(lock.read_text()), signal.SIGKILL)


@pytest.mark.deep
def test_the_first_query_starts_it_and_others_ask_it(tables, runtime):
    arguments = ["--memory", "512m", "--tables", str(tables), "--output", "csv"]
    command = [sys.executable, "-P", "-m", "kraftcore", "spark", "query", *arguments]

    def asked(sql):
        return subprocess.run([*command, sql], capture_output=True, text=True, timeout=LIMIT_S, check=False)

    first = asked("SELECT leader_id FROM gold_leadership")
    assert (first.returncode, first.stdout) == (0, "leader_id\n3\n"), first.stderr
    stages = first.stderr.splitlines()
    assert stages == ["looking for a Spark session ...", "starting Spark ...", "asking Spark ..."]
    (lock,) = runtime.glob("*.lock")
    session = int(lock.read_text())
    second = asked("SELECT 1 AS one")
    assert (second.stdout, second.stderr.splitlines()) == ("one\n1\n", [stages[0], stages[2]])
    assert int(lock.read_text()) == session
    wrong = asked("SELECT nothing FROM gold_logs")
    assert wrong.returncode == 1
    assert "`nothing`" in wrong.stderr.splitlines()[-1]
    os.kill(session, signal.SIGTERM)
    limit = time.monotonic() + LIMIT_S
    while set(runtime.iterdir()) != {lock} and time.monotonic() < limit:
        time.sleep(0.1)
    assert list(runtime.iterdir()) == [lock]  # neither socket nor log is left


@pytest.mark.parametrize(
    "asked", [["query", "SELECT 1"], ["state"], ["report", "--to", "{there}/r.html"]], ids=lambda one: one[0]
)
@pytest.mark.parametrize("is_small", [True, False])
def test_what_needs_spark_asks_it_and_all_else_does_not(asked, is_small, tables, runtime, monkeypatch):
    requests = []

    def shared(request, options, screen):
        requests.append(request["command"])
        yield "out", "answered"

    monkeypatch.setattr(asking, "ask_shared", shared)
    if not is_small:
        monkeypatch.setattr(engines, "SMALL_BYTES", 0)
    arguments = [asked[0], "--tables", str(tables), *(one.format(there=tables.parent) for one in asked[1:])]
    done = CliRunner().invoke(commands, arguments)
    assert done.exit_code == 0, done.output
    needs_it = asked[0] == "query" or not is_small
    assert requests == ([asked[0]] if needs_it else [])
    assert ("answered" in done.stdout) == needs_it
