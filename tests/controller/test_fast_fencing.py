"""Fast fencing: who is asked, when, and who is given up."""

from __future__ import annotations

import pytest

from kraftcore.core.uuid import Uuid
from kraftcore.errors import LocalError
from kraftcore.metadata import Broker
from kraftcore.metadata.cluster import Listener
from kraftcore.plugins.controller.fast_fencing import Presence, Probe
from kraftcore.plugins.controller.settings import read_settings
from kraftcore.protocol.failure import Failure

PATIENCE_MS = 100


def broker(number, *, epoch=7, port=9092, listens=True, **more):
    listeners = (Listener("PLAINTEXT", f"b{number}", port, 0),) if listens else ()
    return Broker(number, epoch, Uuid(), listeners, **{"is_fenced": False, **more})


def probe(number=1, epoch=7, port=9092, refusals=0):
    return Probe((number, epoch), f"b{number}", port, refusals)


def watching(*brokers):
    presence = Presence(PATIENCE_MS)
    presence.watch(brokers, 0)
    return presence


def ask(presence, now_ms, failure):
    """The one probe that is due, and what comes of it."""
    (due,) = presence.due(now_ms)
    return presence.answered(due, failure, now_ms)


def test_all_are_asked_and_each_once_at_a_time():
    presence = watching(broker(1, is_fenced=True), broker(2, listens=False), broker(3))
    assert list(presence.due(0)) == [probe(1), probe(3)]
    assert (list(presence.due(1000)), presence.due_ms) == ([], None)
    assert not presence.answered(probe(3), None, 20)
    assert presence.due_ms == 20 + PATIENCE_MS
    assert list(presence.due(119)) == []
    assert list(presence.due(120)) == [probe(3)]


def test_who_is_unfenced_is_asked_at_once():
    presence = watching(broker(1, is_fenced=True))
    assert not ask(presence, 0, Failure.REFUSED)
    presence.watch([broker(1)], 30)
    assert not presence.has_reached(1)
    assert not ask(presence, 30, None)
    assert presence.has_reached(1)
    presence.watch([broker(1)], 40)
    assert presence.due_ms == 130


def test_who_refuses_for_long_enough_is_gone():
    presence = watching(broker(1))
    assert not ask(presence, 0, None)
    assert not ask(presence, 100, Failure.REFUSED)
    assert presence.due_ms == 125
    assert not ask(presence, 125, Failure.REFUSED)
    assert not ask(presence, 199, Failure.REFUSED)
    assert presence.due_ms == 200  # not a quarter later: the time is over then
    assert ask(presence, 200, Failure.REFUSED)
    assert presence.due_ms is None


def test_refusals_in_a_row_are_counted_so_that_each_probe_connects_at_once():
    presence = watching(broker(1))
    assert not ask(presence, 0, None)
    for now_ms, refusals in ((100, 0), (125, 1), (150, 2)):
        (due,) = presence.due(now_ms)
        assert due == probe(refusals=refusals)
        assert not presence.answered(due, Failure.REFUSED, now_ms)
    assert not ask(presence, 175, None)
    assert list(presence.due(275)) == [probe()]


def test_a_connection_that_breaks_is_tried_again_at_once():
    presence = watching(broker(1))
    assert not ask(presence, 0, None)
    assert not ask(presence, 100, Failure.RESET)
    assert presence.due_ms == 100


@pytest.mark.parametrize("between", [None, Failure.TIMED_OUT, Failure.OTHER, Failure.UNAUTHENTICATED])
def test_anything_but_a_refusal_begins_the_time_anew(between):
    presence = watching(broker(1))
    assert not ask(presence, 0, None)
    assert not ask(presence, 100, Failure.REFUSED)
    assert not ask(presence, 150, between)
    assert not ask(presence, 250, Failure.REFUSED)
    assert not ask(presence, 300, Failure.REFUSED)
    assert ask(presence, 350, Failure.REFUSED)


@pytest.mark.parametrize("first", [Failure.REFUSED, Failure.UNAUTHENTICATED, Failure.OTHER])
def test_who_was_never_reached_keeps_its_session(first):
    presence = watching(broker(1))
    assert not ask(presence, 0, first)
    for now_ms in range(100, 10_000, 100):
        assert not ask(presence, now_ms, Failure.REFUSED)


def test_another_incarnation_or_place_is_somebody_else():
    presence = watching(broker(1))
    assert not ask(presence, 0, None)
    assert list(presence.due(100)) == [probe()]
    presence.watch([broker(1, epoch=9)], 100)
    assert not presence.answered(probe(), Failure.REFUSED, 5000)
    assert list(presence.due(100)) == [probe(epoch=9)]
    presence.watch([broker(1, epoch=9, port=9093)], 100)
    assert list(presence.due(100)) == [probe(epoch=9, port=9093)]
    presence.forget()
    assert (list(presence.due(10_000)), presence.due_ms) == ([], None)


def test_an_answer_from_where_a_broker_listened_before_says_nothing_of_where_it_does_now():
    presence = watching(broker(1))
    (before,) = presence.due(0)
    presence.watch([broker(1, port=9093)], 10)  # it registered again, in the same incarnation
    assert not presence.answered(before, None, 20)
    assert not presence.has_reached(1)
    (now,) = presence.due(20)
    assert now == probe(port=9093)
    assert not presence.answered(before, Failure.REFUSED, 30)
    assert presence.due_ms is None  # it is being asked
    for now_ms in range(100, 1_000, 100):  # nobody lets this controller in there
        assert not presence.answered(now, Failure.REFUSED, now_ms)


def test_the_setting_is_off_and_takes_milliseconds():
    def read(**properties):
        return read_settings({key.replace("_", "."): value for key, value in properties.items()}, "c", 1)[1]

    assert read().fast_fencing_ms == 0
    assert read(kraftcore_fast_fencing_ms=" 250 ").fast_fencing_ms == 250
    for text in ("-1", "soon", "", str(2**31)):
        with pytest.raises(LocalError, match="kraftcore.fast.fencing.ms"):
            read(kraftcore_fast_fencing_ms=text)
