"""A session that stays, and who asks it."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import threading
import time
from contextlib import contextmanager

import pytest
from click.testing import CliRunner
from spark_parts import LIMIT_S

from kraftcore.cli.spark import spark as commands
from kraftcore.errors import LocalError
from kraftcore.plugins import spark as kraft
from kraftcore.plugins.spark.warm import ask, listen, serve

pytestmark = pytest.mark.deep


@contextmanager
def serving(path, answer):
    stop = threading.Event()
    thread = threading.Thread(target=serve, args=(listen(path), answer, stop))
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
            listen(path)
    assert not path.exists()


def test_nobody_listens(tmp_path):
    with pytest.raises(LocalError, match="nobody listens there .*: start 'kraftcore spark serve"):
        list(ask(tmp_path / "absent", {}))
    with socket.socket(socket.AF_UNIX) as left:  # of a process that ended
        left.bind(str(tmp_path / "left"))
    with serving(tmp_path / "left", lambda _: iter([("out", "here")])):
        assert list(ask(tmp_path / "left", {})) == [("out", "here")]
    with pytest.raises(LocalError, match="no socket can be made there"):
        listen(tmp_path / "absent" / "s")


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
    assert "are for 'serve'" in found["other"].output
