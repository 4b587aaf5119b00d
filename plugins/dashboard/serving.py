"""The dashboard over HTTP, under hypercorn on trio."""

from __future__ import annotations

import socket

import trio
from hypercorn.config import Config, Sockets
from hypercorn.trio import serve as run_server

from kraftcore.errors import TransportError
from kraftcore.ownership import close_socket_in_children, no_forks
from kraftcore.plugins.dashboard.application import make_application
from kraftcore.plugins.dashboard.sharing import Sharing
from kraftcore.plugins.picture import Watching
from kraftcore.ports.nursery import open_nursery
from kraftcore.ports.transport import Address

_GRACE_S = 0.1  # viewers come back by themselves


class _Config(Config):
    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        self._sock = sock
        self.graceful_timeout = _GRACE_S
        self.errorlog = None

    def create_sockets(self) -> Sockets:
        return Sockets([], [self._sock], [])


def _bound(listen: Address) -> socket.socket:
    with no_forks:
        sock = close_socket_in_children(socket.socket(socket.AF_INET6 if ":" in listen.host else socket.AF_INET))
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((listen.host, listen.port))
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        text = f"the dashboard cannot listen on {listen}: {error.strerror or error}"
        raise TransportError(error.errno or 0, text) from error
    return sock


async def serve(
    watching: Watching, listen: Address, task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED
) -> None:
    """Watch a quorum and serve its picture, until cancelled.

    Args:
        watching: not running yet.
        listen: where; port 0: any free one.
        task_status: gets the address that it is bound to.

    Raises:
        TransportError: it cannot listen there.
    """
    sock = _bound(listen)
    port = sock.getsockname()[1]
    sharing = Sharing(watching)
    application = make_application(watching.picture, sharing, listen.host)
    async with open_nursery() as nursery:
        await nursery.start(run_server, application, _Config(sock))
        nursery.start_soon(watching.run)
        nursery.start_soon(sharing.run)
        task_status.started(Address(listen.host, port))
        await trio.sleep_forever()
