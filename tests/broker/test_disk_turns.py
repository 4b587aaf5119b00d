"""Simulated brokers change their logs one after the other, as production's lock of the disk has it."""

import pytest

from kraftcore.plugins.broker.simulated.disk_turns import DiskTurns
from kraftcore.simulation.agenda import Agenda


def test_a_change_waits_for_the_flush_and_for_all_before_it():
    """A change of metadata that waited was overtaken by the next one when another flush began in between."""
    agenda, done = Agenda(), []
    turns = DiskTurns(agenda, agenda.after_ms)

    def flush(name, flush_ms):
        done.append(name)
        turns.keep_busy(flush_ms)

    turns.take(flush, "flush", 5.0)
    turns.take(flush, "another flush", 2.0004)
    turns.take(done.append, "delete")
    agenda.after_ms(6, turns.take, done.append, "make anew")
    assert done == ["flush"]
    while "make anew" not in done:
        agenda.step()
    assert done == ["flush", "another flush", "delete", "make anew"]
    assert agenda.now == 7000  # microseconds
    turns.take(done.append, "at once")
    assert done[-1] == "at once"


def test_what_fails_holds_up_nobody():
    agenda, done = Agenda(), []
    turns = DiskTurns(agenda, agenda.after_ms)

    def fail():
        raise RuntimeError

    with pytest.raises(RuntimeError):
        turns.take(fail)
    turns.take(done.append, "next")
    assert done == ["next"]
