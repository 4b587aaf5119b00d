"""One picture for all viewers: made once a second while somebody looks, and sent as what changed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import trio

from kraftcore.plugins.picture import Watching
from kraftcore.plugins.picture.picture import difference

PERIOD_S = 1.0
VIEWERS_MAX = 64
"""Viewers at once."""
_BEHIND_MAX = 30  # changes that a viewer may be behind, before it is cut off to begin anew


class Sharing:
    """Hands out a picture and its changes, as server-sent events.

    Args:
        watching: feeds the picture.
    """

    def __init__(self, watching: Watching) -> None:
        self._watching = watching
        self._last: dict[str, Any] = {}
        self._viewers: set[trio.MemorySendChannel[bytes]] = set()
        self._come = trio.Event()

    @property
    def is_full(self) -> bool:
        """Whether no more viewers are taken."""
        return len(self._viewers) >= VIEWERS_MAX

    async def run(self) -> None:
        """Make pictures while there are viewers, until cancelled."""
        while True:
            if not self._viewers:
                self._come = trio.Event()
                await self._come.wait()
            await trio.sleep(PERIOD_S)
            if self._viewers:
                frame = self.frame()
                change = difference(self._last, frame)
                self._last = frame
                if change:
                    self._send(_event("change", change))

    def frame(self) -> dict[str, Any]:
        """The picture now."""
        return self._watching.picture.frame(self._watching.now_ms())

    def _send(self, event: bytes) -> None:
        for viewer in list(self._viewers):
            try:
                viewer.send_nowait(event)
            except (trio.WouldBlock, trio.BrokenResourceError):
                self._viewers.discard(viewer)
                viewer.close()

    async def events(self) -> AsyncIterator[bytes]:
        """The picture as the event ``picture``, then each ``change`` of it, a JSON Merge Patch; ends for the slow."""
        with self._viewer() as channel:
            yield _event("picture", self._last)
            async for event in channel:
                yield event

    @contextmanager
    def _viewer(self) -> Iterator[trio.MemoryReceiveChannel[bytes]]:
        if not self._viewers:
            self._last = self.frame()
        send, receive = trio.open_memory_channel[bytes](_BEHIND_MAX)
        self._viewers.add(send)
        self._come.set()
        try:
            yield receive
        finally:
            self._viewers.discard(send)
            send.close()
            receive.close()


def _event(name: str, value: object) -> bytes:
    return f"event: {name}\ndata: {json.dumps(value, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()
