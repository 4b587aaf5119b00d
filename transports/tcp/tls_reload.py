"""Reads TLS files again when they change."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import trio

from kraftcore.errors import TransportError
from kraftcore.ports.complaints import Log
from kraftcore.ports.nursery import uninterrupted
from kraftcore.transports.tcp.tls import TlsContexts, stamps_of

_logger = logging.getLogger("kraftcore.transports.tcp")


class TlsReload:
    """Looks at the files again and again, see `stamps_of`.

    Files that changed are read when they have stayed the same from one look to the next: a certificate and its key are
    seldom replaced at the same instant. Connections made from then on use them. Files that do not work are reported
    once; the contexts from before stay in use until the files change again.

    Args:
        contexts: the TLS contexts in use.
        period_s: seconds between two looks.
        warn: takes a line about files that do not work.
    """

    def __init__(self, contexts: Sequence[TlsContexts], period_s: float, warn: Log) -> None:
        self._contexts = contexts
        self._period_s = period_s
        self._warn = warn
        self._seen = [each.stamps for each in contexts]

    @uninterrupted
    async def run(self) -> None:
        """Look at the files, until cancelled."""
        while True:
            await trio.sleep(self._period_s)
            for at, contexts in enumerate(self._contexts):
                found = await trio.to_thread.run_sync(stamps_of, contexts.paths, abandon_on_cancel=True)
                is_settled = found == self._seen[at]
                self._seen[at] = found
                if is_settled and found != contexts.stamps:
                    await self._read(contexts)

    async def _read(self, contexts: TlsContexts) -> None:
        names = ", ".join(dict.fromkeys(contexts.paths))
        try:
            loaded = await trio.to_thread.run_sync(contexts.load, abandon_on_cancel=True)
        except TransportError as error:
            self._warn(f"TLS files changed and do not work, the ones read before stay in use: {error}")
        else:
            contexts.use(loaded)
            _logger.info("TLS files changed and are in use for new connections: %s", names)
