"""What commands say on stderr while they work."""

from __future__ import annotations

import io
import sys
import time

from spark_parts import LIMIT_S

from kraftcore.cli.spark.screen import Screen


class Terminal(io.StringIO):
    def isatty(self):
        return True


def said(stream, monkeypatch, *, quiet=False):
    monkeypatch.setattr(sys, "stderr", stream)
    screen = Screen(quiet=quiet)
    screen.stage("starting Spark")
    limit = time.monotonic() + LIMIT_S
    while "1 s" not in stream.getvalue() and stream.isatty() and not quiet and time.monotonic() < limit:
        time.sleep(0.05)
    screen.stage("asking Spark")
    screen.stage("asking Spark")
    screen.progress(0.5, "4 tasks")
    screen.line("r.html: written")
    screen.clear()
    return stream.getvalue()


def test_a_terminal_has_one_line_that_is_redrawn_and_vanishes(monkeypatch):
    found = said(Terminal(), monkeypatch)
    drawn = [one for one in found.split("\r\x1b[K") if one]
    assert drawn[:2] == ["starting Spark ... 0 s", "starting Spark ... 1 s"]
    assert drawn[-2:] == [f"4 tasks [{'#' * 15}{'.' * 15}]  50%", "r.html: written\n"]
    assert found.endswith("\r\x1b[K")


def test_a_file_has_a_line_for_each_stage(monkeypatch):
    assert said(io.StringIO(), monkeypatch) == "starting Spark ...\nasking Spark ...\nr.html: written\n"


def test_quiet_is_nothing_at_all(monkeypatch):
    assert said(io.StringIO(), monkeypatch, quiet=True) == said(Terminal(), monkeypatch, quiet=True) == ""
