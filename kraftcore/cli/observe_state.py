"""Tells on stderr what an observer is doing: which leader it follows, how far it is, and for whom it waits."""

from __future__ import annotations

from contextlib import suppress

import click
import trio

from kraftcore.admin import AdminClient
from kraftcore.cli.output import printable
from kraftcore.observer import Observer

PERIOD_S = 0.25
LEADERLESS_S = 0.5  # an observer that has just begun finds the leader within less
AGAIN_S = 3.0  # between two looks at who answers


async def tell_state(observer: Observer, client: AdminClient, *, is_followed: bool) -> None:
    """Tell changes of what the observer does, until cancelled.

    Args:
        observer: its ``progress`` is looked at.
        client: asks the nodes who answers, while no leader does.
        is_followed: also tell that it has caught up with a leader, for it goes on then.
    """
    told: object = None
    while True:
        found = observer.progress
        if found.leader_id is None:
            await trio.sleep(LEADERLESS_S)
            if observer.progress.leader_id is None:
                told = None
                await _tell_who_answers(observer, client)
        elif is_followed and found.is_caught_up and told != (found.leader_id, found.leader_epoch):
            told = found.leader_id, found.leader_epoch
            cluster, offset = observer.cluster_id or "(without an id)", found.high_watermark - 1
            _say(
                f"connected to cluster {cluster}: node {found.leader_id} leads in epoch {found.leader_epoch}; all "
                f"that is committed is here, up to offset {offset}; waiting for what comes"
            )
        await trio.sleep(PERIOD_S)


async def _tell_who_answers(observer: Observer, client: AdminClient) -> None:
    """Tell who answers, each line once, until a leader answers."""
    told: set[str] = set()
    while observer.progress.leader_id is None:
        lines = (await client.survey()).lines
        found = observer.progress
        if found.leader_id is None and not told.issuperset(lines):
            here = (
                f"what is here goes up to offset {found.high_watermark - 1}"
                if found.high_watermark
                else "nothing is here"
            )
            _say(f"no leader answers; {here}; waiting for a leader:")
            for line in lines:
                _say(line)
            told.update(lines)
        with trio.move_on_after(AGAIN_S):
            while observer.progress.leader_id is None:
                await trio.sleep(PERIOD_S)


def _say(line: str) -> None:
    with suppress(OSError):  # only the command's own output decides its exit status
        click.echo(printable(line), err=True)
