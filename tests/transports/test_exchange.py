"""One connection's responses: in order, and what further requests wait for."""

from __future__ import annotations

from kraftcore.ports.exchange import Responses


def test_a_connection_that_is_muted_still_waits_for_what_it_waited_for():
    responses = Responses(lambda parts: None, lambda: None)
    first, second = responses.ticket(), responses.ticket()
    responses.wait()
    unmute = responses.mute()  # the first one's answer says that it took too much
    first(())
    unmute()
    assert responses.is_waiting
    second(())
    assert not responses.is_waiting
