"""What a server tells systemd, or another service manager with systemd's protocol (``sd_notify``, ``Type=notify``).

``NOTIFY_SOCKET`` names the socket, as the manager sets it. The manager is told when the server listens and when it
stops; every half of ``WatchdogSec`` that its loop turns; and whether the node is ready, or why not, which ``systemctl
status`` shows.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress

import trio

from kraftcore.node import Node

_STATUS_S = 10.0  # between two looks at the node's health without a watchdog


class ServiceManager:
    """Tells the service manager of a server; does nothing without one.

    Args:
        environment: with ``NOTIFY_SOCKET``, ``WATCHDOG_USEC`` and ``WATCHDOG_PID``, where there is a manager.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        watchdog_us, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
        is_watched = watchdog_us.isdecimal() and int(watchdog_us) > 0 and pid in ("", str(os.getpid()))
        self._period_s = int(watchdog_us) / 2e6 if is_watched else _STATUS_S

    def stopping(self) -> None:
        """Tell that the server begins to stop."""
        self._tell("STOPPING=1")

    async def keep(self, node: Node) -> None:
        """Tell that the server has started, and then again and again that it runs and how its node is."""
        if not self._address:
            return
        self._tell("READY=1")
        while True:
            found = node.health()
            self._tell(
                "WATCHDOG=1", "STATUS=ready" if found.is_ready else f"STATUS=not ready: {'; '.join(found.reasons)}"
            )
            await trio.sleep(self._period_s)

    def _tell(self, *assignments: str) -> None:
        if not self._address:
            return
        # An address that begins with @ is an abstract one. A manager that does not read holds nobody up.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock:
            sock.sendto("\n".join(each.replace("\n", " ") for each in assignments).encode(), address)
