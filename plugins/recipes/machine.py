"""The state machine that holds all recipes' objects of a log.

A command is a MessagePack array ``[version, client, number, done_below, [[kind, name, operation, argument...], ...]]``:
one operation (version 1), or those of a transaction, which happen together or not at all (version 2). Number 0 opens
the client's session. Any client of the log can append commands: an invalid one is answered with an error, and changes
nothing. The time is that of the batches, which the leader at the time has stamped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import RLock
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from kraftcore.core.batch import RecordBatch
from kraftcore.errors import CorruptDataError
from kraftcore.plugins.recipes.arguments import whole
from kraftcore.plugins.recipes.codec import encode, msgpack_library, unpack
from kraftcore.plugins.recipes.lease_states import BarrierState, LockState, MembersState, SemaphoreState
from kraftcore.plugins.recipes.object_states import (
    BAD,
    INT_MAX,
    CounterState,
    DictState,
    Moment,
    ObjectState,
    OperationRefusal,
    SetState,
)
from kraftcore.plugins.recipes.sequence_states import ListState, PriorityQueueState, QueueState
from kraftcore.plugins.recipes.sessions import ClientSessions, CommandResult
from kraftcore.state_machine import SnapshotSink, StateMachine

FORMAT = 1
ATOMIC = 2
"""The version of a transaction's command, all of which a put on a full queue refuses, unlike in version 1."""
OK = 0
UNKNOWN_CLIENT = 3
SESSION_EXPIRY_MS = 24 * 3_600_000
KINDS: dict[str, type[ObjectState]] = {
    kind.kind: kind
    for kind in (
        *(DictState, CounterState, QueueState, SetState, LockState),
        *(SemaphoreState, MembersState, BarrierState, ListState, PriorityQueueState),
    )
}
_LEASED = (LockState, SemaphoreState, MembersState)
_OF_ONE_ITEM = ("take", "renew", "release", "give_back")
# The time of a lease must pass even in a transaction that is refused: there only its check may be used.
_ALONE = frozenset(
    {
        *((kind.kind, name) for kind in _LEASED for name in kind.operations if name != "check"),
        *((BarrierState.kind, name) for name in BarrierState.operations),
        *((kind.kind, name) for kind in (QueueState, PriorityQueueState) for name in _OF_ONE_ITEM),
    }
)
_CHUNK_BYTES = 1 << 16
_CHUNK_ROWS = 1024


def encode_command(
    client: int, number: int, done_below: int, operations: Sequence[Sequence[Any]], version: int = FORMAT
) -> bytes:
    """Encode a command as a record's value.

    Raises:
        LocalError: an argument cannot be encoded.
    """
    return encode([version, client, number, done_below, operations])


class Watcher:
    """A callback for changes of one object, called in the task that applies them.

    Args:
        key: kind and name.
        callback: called with the change's detail; must not raise or wait.
    """

    def __init__(self, key: tuple[str, str], callback: Callable[[Any], None]) -> None:
        self.key = key
        self.callback = callback


class RecipeMachine(StateMachine):
    """All replicated objects of a log, by name; give it to ``open_node``.

    The objects of this package work on it; its own methods are the node's.

    Args:
        session_expiry_ms: silence after which a client is forgotten, > 0; the same on every replica.

    Raises:
        LocalError: ``session_expiry_ms`` is out of range.
        MissingDependencyError: msgpack is not installed.

    Attributes:
        now_ms: the log's time.
        clients: the `Client` of each node, kept here so that it is freed with the machine.
    """

    def __init__(self, *, session_expiry_ms: int = SESSION_EXPIRY_MS) -> None:
        whole("the session_expiry_ms of a RecipeMachine", session_expiry_ms, 1)
        msgpack_library()  # raises here if it is missing, not at the first command
        self._session_expiry_ms = session_expiry_ms
        self.now_ms = 0
        self.clients: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self._objects: dict[tuple[str, str], ObjectState] = {}
        self._sessions = ClientSessions(session_expiry_ms)
        self._moment = Moment(1)
        self._watchers: dict[tuple[str, str], WeakSet[Watcher]] = {}
        self._watching = RLock()  # programs with threads begin to watch in their own threads

    def find(self, kind: str, name: str) -> ObjectState | None:
        """An object's state as applied here, not to be changed; None if it is empty."""
        return self._objects.get((kind, name))

    def names(self, kind: str) -> list[str]:
        """The names of the objects of a kind that are not empty."""
        return [name for found, name in self._objects if found == kind]

    # --- commands -----------------------------------------------------------------------------------------------------

    def apply(self, batch: RecordBatch) -> Sequence[CommandResult]:
        """Apply commands; returns a `CommandResult` for each."""
        moment = self._moment
        self.now_ms = moment.now_ms = max(self.now_ms, batch.max_timestamp_ms)
        replies = []
        for offset, value in enumerate(batch.values(), batch.base_offset):
            moment.offset = offset
            replies.append(self._command(value or b"", moment))
        if moment.changes:
            changes, moment.changes = moment.changes, []
            for key, detail in changes:
                self._tell(key, detail)
        return replies

    def _command(self, value: bytes, moment: Moment) -> CommandResult:
        try:
            version, client, number, done_below, operations = unpack(value)
        except (ValueError, TypeError) as error:
            return CommandResult(BAD, f"no command of recipes: {error}")
        if version not in (FORMAT, ATOMIC):
            return CommandResult(BAD, f"a command of version {version!r}; this replica knows {FORMAT} and {ATOMIC}")
        moment.is_atomic = version == ATOMIC
        if not all(type(one) is int and 0 <= one <= INT_MAX for one in (client, number, done_below)):
            return CommandResult(BAD, "client and numbers of a command are integers from 0")
        if number == 0:
            self._sessions.open(client, moment.now_ms)
            return CommandResult(OK, [])
        session = self._sessions.find(client, moment.now_ms)
        if session is None:
            return CommandResult(UNKNOWN_CLIENT, "the client has no session, or was silent for too long")
        known = session.known(number, done_below)
        if known is not None:
            return known
        return session.remember(number, self._perform(operations, moment))

    def _perform(self, operations: Any, moment: Moment) -> CommandResult:
        if type(operations) is not list or not operations:
            return CommandResult(BAD, "a command has operations")
        alone = len(operations) == 1
        undo = moment.undo = None if alone else []
        told = len(moment.changes)
        touched: dict[ObjectState, None] = {}
        try:
            reply = CommandResult(OK, [self._operate(one, moment, alone, touched) for one in operations])
        except OperationRefusal as refusal:
            for inverse, arguments in reversed(undo or ()):
                inverse(*arguments)
            for state in touched:
                state.undone()
            del moment.changes[told:]
            reply = CommandResult(refusal.status, refusal.text)
        for state in touched:
            if state.is_empty:
                self._objects.pop((state.kind, state.name), None)
        return reply

    def _operate(self, one: Any, moment: Moment, alone: bool, touched: dict[ObjectState, None]) -> Any:
        if type(one) is not list or len(one) < 3 or not all(type(part) is str for part in one[:3]):
            raise OperationRefusal(BAD, "an operation has a kind, a name, a verb and arguments")
        kind, name, verb, *arguments = one
        made = KINDS.get(kind)
        operation = None if made is None else made.operations.get(verb)
        if made is None or operation is None:
            raise OperationRefusal(BAD, f"unknown operation {kind}.{verb}")
        if not alone and (kind, verb) in _ALONE:
            raise OperationRefusal(BAD, f"{kind}.{verb} cannot be part of a transaction")
        function, wanted = operation
        if len(arguments) != len(wanted) or not all(map(_fits, arguments, wanted)):
            given = ", ".join(type(each).__name__ for each in arguments)
            raise OperationRefusal(
                BAD, f"{kind}.{verb} takes ({', '.join(map(_names, wanted))}), and was given ({given})"
            )
        state = self._objects.get((kind, name))
        if state is None:
            state = self._objects[kind, name] = made(name)
        touched[state] = None
        return function(state, moment, *arguments)

    # --- watching -----------------------------------------------------------------------------------------------------

    def watch(self, key: tuple[str, str], callback: Callable[[Any], None]) -> Watcher:
        """Tell ``callback`` of every change, for as long as the returned object is kept; in any thread."""
        watcher = Watcher(key, callback)
        with self._watching:
            self._watchers.setdefault(key, WeakSet()).add(watcher)
        return watcher

    def unwatch(self, watcher: Watcher) -> None:
        """Stop calling the watcher."""
        with self._watching:
            watchers = self._watchers.get(watcher.key)
            if watchers is not None:
                watchers.discard(watcher)
                if not watchers:
                    del self._watchers[watcher.key]

    def _tell(self, key: tuple[str, str], detail: Any) -> None:
        if key not in self._watchers:
            return
        with self._watching:
            watchers = list(self._watchers.get(key, ()))
            if not watchers:
                self._watchers.pop(key, None)
        for watcher in watchers:
            watcher.callback(detail)

    # --- snapshots ----------------------------------------------------------------------------------------------------

    def snapshot(self, sink: SnapshotSink) -> None:
        """See the base class."""
        sink.append([encode(["recipes", FORMAT, self.now_ms, self._moment.next_token])])
        for row in self._sessions.rows():
            sink.append([encode(["session", row])])
        for (kind, name), state in self._objects.items():
            for chunk in _chunks(state.rows()):
                sink.append([encode([kind, name, chunk])])

    def restore(self, values: Iterable[bytes]) -> None:
        """See the base class.

        Raises:
            CorruptDataError: it is not a snapshot of recipes.
        """
        before = self._objects
        self._objects = {}
        self._sessions = ClientSessions(self._session_expiry_ms)
        found = iter(values)
        try:
            mark, version, self.now_ms, next_token = unpack(next(found, b""))
            if mark != "recipes" or version != FORMAT:
                raise ValueError(f"it begins with {mark!r}, version {version!r}")
            self._moment = Moment(next_token)
            for value in found:
                kind, *rest = unpack(value)
                if kind == "session":
                    self._sessions.load(rest[0])
                else:
                    name, rows = rest
                    state = self._objects.setdefault((kind, name), KINDS[kind](name))
                    state.load(rows)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise CorruptDataError(f"the snapshot is not one of recipes: {error!r}") from error
        for key in list(self._watchers):
            now = self._objects.get(key) or KINDS[key[0]](key[1])
            for detail in now.differences(before.get(key)):
                self._tell(key, detail)


def _names(wanted: type | tuple[type, ...]) -> str:
    kinds = wanted if isinstance(wanted, tuple) else (wanted,)
    return " or ".join("64-bit int" if kind is int else kind.__name__ for kind in kinds)


def _fits(argument: Any, wanted: type | tuple[type, ...]) -> bool:
    kind = type(argument)
    if kind is int and not -INT_MAX - 1 <= argument <= INT_MAX:
        return False
    return kind in wanted if isinstance(wanted, tuple) else kind is wanted


def _chunks(rows: Iterator[list[Any]]) -> Iterator[list[list[Any]]]:
    chunk: list[list[Any]] = []
    size = 0
    for row in rows:
        chunk.append(row)
        size += sum(len(part) for part in row if isinstance(part, bytes | str)) + 16
        if size >= _CHUNK_BYTES or len(chunk) >= _CHUNK_ROWS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
