"""A session that stays, and who asks it."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress

import pytest
from click.testing import CliRunner
from spark_parts import LIMIT_S

from kraftcore.cli.spark import spark as commands
from kraftcore.errors import LocalError
from kraftcore.plugins import spark as kraft
from kraftcore.plugins.spark.warm import EndedError, SessionSocket, ask, is_held, serve, start

pytestmark = pytest.mark.deep


@contextmanager
def serving(path, answer):
    stop = threading.Event()
    with closing(SessionSocket(path)) as listener:
        thread = threading.Thread(target=serve, args=(listener, answer, stop))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def test_answers_come_piece_by_piece_and_errors_in_words(tmp_path):
    path = tmp_path / "s"

    def answer(request):
        yield "out", f"one of {request['number']}"
        if request["number"] == 3:
            raise LocalError("no such table")
        yield "err", "two\nlines"

    with serving(path, answer):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert list(ask(path, {"number": 2})) == [("out", "one of 2"), ("err", "two\nlines")]
        found = ask(path, {"number": 3})
        assert next(found) == ("out", "one of 3")
        with pytest.raises(LocalError, match="no such table"):
            next(found)
        for spoilt in (b"not json\n", b"{}\n"):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(str(path))
                connection.sendall(spoilt)
                assert "error" in json.loads(connection.makefile().readline())
        with socket.socket(socket.AF_UNIX) as connection:  # says nothing, and does not hold up others
            connection.connect(str(path))
            assert list(ask(path, {"number": 1})) == [("out", "one of 1"), ("err", "two\nlines")]
        with pytest.raises(LocalError, match="somebody listens there already"):
            SessionSocket(path)
    assert not path.exists()


def test_who_looks_whether_it_is_held_keeps_nobody_from_listening(tmp_path):
    path, is_over = tmp_path / "s", threading.Event()

    def look():
        while not is_over.is_set():
            is_held(path)

    with ThreadPoolExecutor(3) as pool:
        looking = [pool.submit(look) for _ in range(3)]
        try:
            for _ in range(300):
                SessionSocket(path).close()
        finally:
            is_over.set()
        for one in looking:
            one.result()


def test_nobody_listens(tmp_path):
    with pytest.raises(LocalError, match="nobody listens there .*: start 'kraftcore spark serve"):
        list(ask(tmp_path / "absent", {}))
    with socket.socket(socket.AF_UNIX) as left:  # of a process that ended
        left.bind(str(tmp_path / "left"))
    with serving(tmp_path / "left", lambda _: iter([("out", "here")])):
        assert list(ask(tmp_path / "left", {})) == [("out", "here")]
    with pytest.raises(LocalError, match="no socket can be made there"):
        SessionSocket(tmp_path / "absent" / "s")


def test_it_ends_by_itself_once_nobody_asks_but_not_while_it_answers(tmp_path):
    asked = threading.Event()

    def answer(_):
        yield "stage", "working"
        asked.wait(LIMIT_S)
        yield "out", "done"

    with closing(SessionSocket(tmp_path / "s")) as listener:
        thread = threading.Thread(target=serve, args=(listener, answer, threading.Event(), 0.1))
        thread.start()
        found = ask(tmp_path / "s", {})
        assert next(found) == ("stage", "working")
        thread.join(1.5)  # three times as long as it takes to end
        assert thread.is_alive()
        asked.set()
        assert list(found) == [("out", "done")]
        thread.join(LIMIT_S)
        assert not thread.is_alive()


# A process that answers with its own id, as a session would with rows.
PROCESS = """
import os, sys, threading
from contextlib import closing
from kraftcore.plugins.spark.warm import SessionSocket, serve
with closing(SessionSocket(sys.argv[1])) as listener:
    serve(listener, lambda request: iter([("out", str(os.getpid()))]), threading.Event(), 60)
"""


@pytest.fixture
def place(tmp_path):
    """The path of a socket; the process that listens there at the end of the test is ended."""
    yield tmp_path / "s"
    with suppress(FileNotFoundError, ProcessLookupError):
        os.kill(int((tmp_path / "s.lock").read_text()), signal.SIGKILL)


def started(place):
    """The id of the process that listens, started if need be."""
    start(place, [sys.executable, "-P", "-c", PROCESS, str(place)], place.with_name("s.log"))
    ((_, answer),) = ask(place, {})
    return int(answer)


def test_who_asks_first_starts_it_and_others_find_it(place):
    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(started, [place] * 4))
    assert found == {int((place.parent / "s.lock").read_text())}
    assert started(place) in found


def test_one_that_was_killed_is_replaced(place):
    first = started(place)
    os.kill(first, signal.SIGKILL)
    limit = time.monotonic() + LIMIT_S
    while is_held(place) and time.monotonic() < limit:
        time.sleep(0.05)
    assert place.is_socket()  # it is still there, and nobody listens
    assert started(place) != first


def test_one_that_does_not_start_is_told_with_its_log(tmp_path):
    command = [sys.executable, "-P", "-c", "print('no memory', flush=True); raise SystemExit(3)"]
    with pytest.raises(LocalError, match=f"did not start: see {tmp_path}/s.log"):
        start(tmp_path / "s", command, tmp_path / "s.log")
    assert (tmp_path / "s.log").read_text() == "no memory\n"


def test_one_that_ends_in_the_middle_is_told(tmp_path):
    def answer(_):
        yield "out", "half"
        raise OSError("gone")

    with serving(tmp_path / "s", answer):
        found = ask(tmp_path / "s", {})
        assert next(found) == ("out", "half")
        with pytest.raises(EndedError, match="the process that holds the session has ended"):
            next(found)


class Kept:
    """The session of all tests, which a command cannot stop."""

    def __init__(self, session):
        self._session = session

    def __getattr__(self, name):
        return getattr(self._session, name)

    def stop(self):
        pass


def test_queries_ask_the_session_that_stays(session, golden_tables, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setattr(kraft, "session", lambda *_, **__: Kept(session))
    path = tmp_path / "s"
    found = {}

    def query(*arguments):
        asked = ["query", "--quiet", "--socket", path, "--tables", golden_tables, *arguments]
        return CliRunner().invoke(commands, list(map(str, asked)))

    def others():
        limit = time.monotonic() + LIMIT_S
        while not path.exists() and time.monotonic() < limit:
            time.sleep(0.05)
        sql = "SELECT epoch FROM gold_leadership WHERE cluster_id = 'dynamic-c1' ORDER BY epoch LIMIT 2"
        found["json"] = query("--output", "json", sql)
        found["table"] = query(sql)
        found["wrong"] = query("SELECT nothing FROM gold_leadership")
        found["other"] = query("--master", "local[1]", sql)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=others)
    thread.start()
    handler = signal.getsignal(signal.SIGTERM)
    served = commands.main(["serve", "--socket", str(path), "--quiet"], standalone_mode=False)
    assert capsys.readouterr() == (f"{path}: ready\n", "")
    thread.join()
    monkeypatch.undo()
    time.tzset()
    assert served is None
    assert signal.getsignal(signal.SIGTERM) == handler
    assert found["json"].output == '{"epoch": 1}\n{"epoch": 2}\n'
    assert found["table"].output == "epoch\n1\n2\n"
    assert "nothing" in str(found["wrong"].exception)
    assert "\n" not in str(found["wrong"].exception)
    assert found["other"].exit_code == 2
    assert "--socket names one" in found["other"].output
