"""Connects an object in a program with its state in the log: commands applied once, and linearizable reads."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import trio

from kraftcore.errors import (
    ConflictError,
    KraftError,
    LocalError,
    NotLeaderError,
    OutcomeUnknownError,
    OverloadedError,
)
from kraftcore.node.node import Node
from kraftcore.node.plugin_node import plugin_node
from kraftcore.ownership import Owned
from kraftcore.plugins.recipes.arguments import text
from kraftcore.plugins.recipes.machine import FORMAT, OK, UNKNOWN_CLIENT, RecipeMachine, Watcher, encode_command
from kraftcore.plugins.recipes.object_states import CONFLICT, ObjectState
from kraftcore.plugins.recipes.sessions import WINDOW, CommandResult
from kraftcore.ports.async_library import check_trio
from kraftcore.ports.nursery import open_nursery, uninterrupted_methods

Undo: TypeAlias = Callable[[list[Any]], Sequence[Any] | None]
_logger = logging.getLogger("kraftcore.recipes")
_RETRY_S = 0.02
_SEE_TO_S = 2.0
_NOTHING = ("lock", "", "poke")
_ELSEWHERE = "see kraftcore.aio.recipes for asyncio, kraftcore.blocking.recipes for threads"


@uninterrupted_methods
class Client:
    """A node's session with the recipes in its log. Each node has one, made by ``Client.of``.

    Attributes:
        node: appends the commands, and makes the read barriers.
        machine: the node's own replica of the state.
    """

    def __init__(self, node: Node[RecipeMachine], machine: RecipeMachine) -> None:
        self.node = node
        self.machine = machine
        self._id: int | None = None
        self._opening = trio.Lock()
        self._room = trio.lowlevel.ParkingLot()
        self._last_number = 0
        self._under_way: dict[int, None] = {}  # ascending; never reused, not even in another session

    @staticmethod
    def of(node: Node[RecipeMachine]) -> Client:
        """The node's client.

        Raises:
            LocalError: the object is not a node of trio, or was opened with another state machine.
        """
        given: object = node
        if not isinstance(given, Node):
            raise refusal(given, "kraftcore")
        machine: object = node.state_machine
        if not isinstance(machine, RecipeMachine):
            raise LocalError(f"recipes need a node with a RecipeMachine, not {type(machine).__name__}")
        client: Client | None = machine.clients.get(node)
        if client is None:
            client = machine.clients[node] = Client(node, machine)
        return client

    async def call(self, *operations: Sequence[Any], version: int = FORMAT, undo: Undo | None = None) -> list[Any]:
        """Have operations applied together, once; returns their results.

        Waits, through changes of leaders, until they are applied; a cancelled call may be applied or not.

        Args:
            *operations: each a kind, a name, a verb and its arguments.
            version: of the command; ``ATOMIC`` for a transaction.
            undo: makes of the results an operation that takes the command back, or None if there is nothing to take
                back; also of ``[None]``. It is used when the call was cancelled; at most two seconds of it are waited
                for.

        Raises:
            ConflictError: a check of a transaction failed, or a queue that it puts an item into is full.
            OutcomeUnknownError: the node was cut off for longer than the session lasts, or stopped.
            LocalError: an argument is out of range, or too large.
            NodeStoppedError: the node stopped; the outcome is unknown.
        """
        check_trio("an object of recipes", _ELSEWHERE)
        while True:
            client = self._id if self._id is not None else await self._open()
            while self._last_number - next(iter(self._under_way), self._last_number) >= WINDOW - 1:
                await self._room.park()
            self._last_number += 1
            number = self._last_number
            self._under_way[number] = None
            is_over = True
            try:
                reply, tries = await self._append(client, number, operations, version)
            except trio.Cancelled:
                if undo is not None:
                    is_over = False
                    await self.see_to(partial(self._take_back, client, number, undo))
                raise
            finally:
                if is_over:
                    self._ended(number)
            if reply.status != UNKNOWN_CLIENT:
                return _payload(reply)
            if self._id == client:
                self._id = None
            if tries > 1:
                raise OutcomeUnknownError("the client's session ended meanwhile: the command may be applied or not")

    def _ended(self, number: int) -> None:
        del self._under_way[number]
        self._room.unpark_all()

    async def _take_back(self, client: int, number: int, undo: Undo) -> None:
        """Undo a command whose caller is gone, if it was applied.

        An operation that changes nothing is sent under the command's number. If the command was applied before, the
        session answers with its results; else it will never be applied, as its number is used.
        """
        try:
            reply, _ = await self._append(client, number, [_NOTHING])
        finally:
            self._ended(number)
        back = undo(reply.payload) if reply.status == OK else None
        if back is not None:
            await self.call(back)

    async def see_to(self, duty: Callable[[], Awaitable[object]]) -> None:
        """Do what has to be done although its caller may be gone: the caller waits for it for a short time.

        Args:
            duty: goes on in a task of its own, until the node stops.
        """
        ended = trio.Event()

        async def run() -> None:
            try:
                await duty()
            except KraftError as error:
                _logger.debug("what a caller left behind could not be put in order: %s", error)
            finally:
                ended.set()

        trio.lowlevel.spawn_system_task(run)
        with trio.move_on_after(_SEE_TO_S, shield=True):
            await ended.wait()

    async def _append(
        self, client: int, number: int, operations: Sequence[Sequence[Any]], version: int = FORMAT
    ) -> tuple[CommandResult, int]:
        """Append until there is a reply; returns the reply, and how many appends may have reached the log."""
        node = self.node
        tries = 1
        while True:
            value = encode_command(client, number, next(iter(self._under_way), number), operations, version)
            try:
                reply = (await node.append(value, forward=not node.is_leader)).result
                if reply is not None:
                    return reply, tries
                tries += 1  # applied, but this node learned of it from a snapshot: the session has the reply
            except OutcomeUnknownError:
                tries += 1
                await trio.sleep(_RETRY_S)
            except (NotLeaderError, OverloadedError):
                await trio.sleep(_RETRY_S)

    async def _open(self) -> int:
        async with self._opening:
            if self._id is None:
                client = int.from_bytes(os.urandom(8)) >> 1
                await self._append(client, 0, ())
                self._id = client
            return self._id

    async def barrier(self) -> None:
        """Wait until the machine here has everything that was committed before the call."""
        check_trio("an object of recipes", _ELSEWHERE)
        while True:
            try:
                await self.node.read_barrier()
            except NotLeaderError:
                await trio.sleep(_RETRY_S)
            else:
                return

    async def wait(self, event: trio.Event) -> None:
        """Wait for an event that a watcher sets.

        Raises:
            NodeStoppedError: the node stopped, so the event will not be set.
        """
        check_trio("an object of recipes", _ELSEWHERE)
        stopped = self.node.stopped
        async with open_nursery() as nursery:

            async def end() -> None:
                await stopped.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(end)
            await event.wait()
            nursery.cancel_scope.cancel()
        if not event.is_set():
            raise plugin_node(self.node).stopped_error()


class Recipe(Owned):
    """Base class of the objects: a name, and the node through which the object is reached.

    Objects of one kind and name are the same on every node, from trio, asyncio and threads.

    Args:
        node: opened with a `RecipeMachine`.
        name: of the object.

    Raises:
        LocalError: the node is another module's, or has another state machine; an argument is out of range.
    """

    _kind: str

    def __init__(self, node: Node[RecipeMachine], name: str) -> None:
        self._client = Client.of(node)
        self.name = text(f"the name of a {self._kind}", name)

    def _operation(self, verb: str, *arguments: Any) -> list[Any]:
        """Make an operation, one part of a command."""
        return [self._kind, self.name, verb, *arguments]

    async def _call(self, verb: str, *arguments: Any, undo: Undo | None = None) -> Any:
        (result,) = await self._client.call(self._operation(verb, *arguments), undo=undo)
        return result

    def __repr__(self) -> str:
        size = self._size()
        return f"<{type(self).__name__} {self.name!r}{'' if size is None else f', {size} here'}>"

    def _size(self) -> int | None:
        """The object's present size on this replica; None: it has no size."""
        return None

    @property
    def _state(self) -> ObjectState | None:
        return self._client.machine.find(self._kind, self.name)

    def _watch(self, callback: Any) -> Watcher:
        return self._client.machine.watch((self._kind, self.name), callback)


def never_later(_: list[Any]) -> None:
    """An ``undo`` for a command whose caller undoes it itself: the command is not applied after that."""


def refusal(given: object, module: str) -> LocalError:
    """The error of recipes that were given what is no node of theirs; ``module`` is where their nodes are opened."""
    is_facade = isinstance(getattr(given, "trio_node", None), Node)
    home = type(given).__module__ if is_facade else "kraftcore" if isinstance(given, Node) else None
    what = f"give them what {module}.open_node gives" if home is None else f"use {home}.recipes for this node"
    return LocalError(f"{module}.recipes take a node of {module}, and were given {given!r}: {what}")


def _payload(reply: CommandResult) -> list[Any]:
    if reply.status == OK:
        payload: list[Any] = reply.payload
        return payload
    if reply.status == CONFLICT:
        raise ConflictError(reply.payload)
    raise LocalError(reply.payload)
