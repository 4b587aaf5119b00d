"""The shell of ``kraftcore metadata shell``: a tree of metadata to walk about in, live, and at earlier moments."""

from __future__ import annotations

import cmd
import json
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial, wraps
from typing import Any

import click

from kraftcore.cli.metadata_states import State, offset_at, read_directory, records_below
from kraftcore.cli.metadata_tree import Node, node_at, parts_of, paths_below, tree_of
from kraftcore.cli.observe_run import as_text
from kraftcore.cli.output import is_terminal, printable
from kraftcore.errors import KraftError, LocalError

_CLOCKS = ("%H:%M", "%H:%M:%S")
_DATES = ("%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S")
_LOG_LINES = 10


def _told(command: Callable[[Any, str], bool | None]) -> Callable[[Any, str], bool | None]:
    """Print errors of a command; the shell goes on."""

    @wraps(command)
    def run(self: Shell, line: str) -> bool | None:
        try:
            return command(self, line)
        except (KraftError, ValueError) as error:
            self.failed = True
            click.echo(printable(str(error)), err=True)
            return None

    return run


class Shell(cmd.Cmd):
    """Takes commands, from a terminal or one by one.

    Args:
        present: the state that ``now`` shows; it may change between two commands.
        directory: of the log with earlier moments, or None where there is no log.
        between: runs a function while the state does not change, and returns what it returns.

    Attributes:
        failed: whether a command failed.
    """

    intro = 'Metadata of a cluster. "help" lists the commands, the tab key completes, "exit" leaves.'
    doc_header = 'Commands ("help COMMAND" explains one):'

    def __init__(
        self, present: State, directory: str | None, between: Callable[[Callable[[], Any]], Any] = lambda run: run()
    ) -> None:
        super().__init__()
        self._present = present
        self._directory = directory
        self._between = between
        self._place: tuple[str, ...] = ("image",)
        self._earlier: State | None = None
        self.failed = False

    @property
    def prompt(self) -> str:  # type: ignore[override]  # a class attribute there
        """Where one is, and when; nothing where nobody types."""
        if not is_terminal(sys.stdin):
            return ""
        when = "" if self._earlier is None else f" @{self._earlier.end_offset}"
        return f"/{'/'.join(self._place)}{when}> "

    def _state(self) -> State:
        return self._present if self._earlier is None else self._earlier

    def _node(self, path: str) -> Node:
        return node_at(tree_of(self._state()), parts_of(path, self._place))

    # --- commands -------------------------------------------------------------------------------------------------

    @_told
    def do_ls(self, line: str) -> None:
        """ls [PATH]: the names in a folder; folders end with a slash."""
        node = self._node(line)
        if not isinstance(node, Mapping):
            click.echo(printable(line))
            return
        for name in node:
            click.echo(printable(f"{name}/" if isinstance(node[name], Mapping) else name))

    @_told
    def do_cd(self, line: str) -> None:
        """cd [PATH]: go to a folder, as topics/orders, .. or /image; without a path to /image."""
        place = parts_of(line, self._place) if line else ("image",)
        if not isinstance(node_at(tree_of(self._state()), place), Mapping):
            raise LocalError(f"/{'/'.join(place)} is no folder: cat shows it")
        self._place = place

    @_told
    def do_pwd(self, line: str) -> None:
        """pwd: where one is."""
        click.echo(printable(f"/{'/'.join(self._place)}"))

    @_told
    def do_cat(self, line: str) -> None:
        """cat [PATH]: a value, or all that is in a folder, as JSON."""
        click.echo(printable(json.dumps(_whole(self._node(line)), ensure_ascii=False, indent=2)))

    @_told
    def do_find(self, line: str) -> None:
        """find [PATH]: the paths of all that is in a folder."""
        for path in paths_below(self._node(line)):
            click.echo(printable(path.removeprefix("/")))

    @_told
    def do_log(self, line: str) -> None:
        """log [NUMBER]: the last records, ten if no number is given; in a topic's folder those about the topic."""
        count = int(line) if line else _LOG_LINES
        directory = self._need_log()
        topic = self._topic()
        found = records_below(directory, self._state().end_offset, count, topic)
        for record in found:
            click.echo(as_text(record))
        if not found:
            click.echo("There are no such records.")

    @_told
    def do_at(self, line: str) -> None:
        """at TIME|OFFSET|now: show another moment, as "at 14:05", "at 2026-11-28 14:05", "at 1234" (an offset)."""
        if line == "now":
            self._earlier = None
            return
        directory = self._need_log()
        until = int(line) if line.isdecimal() else offset_at(directory, _milliseconds(line))
        self._earlier = read_directory(directory, until)
        click.echo(f"Everything below offset {until}.")

    def do_exit(self, line: str) -> bool:
        """exit: leave the shell, as Ctrl-D does."""
        return True

    def do_EOF(self, line: str) -> bool:  # cmd names it so
        """Leave the shell."""
        if is_terminal(sys.stdin):
            click.echo()
        return True

    # --- how they are read ----------------------------------------------------------------------------------------

    def onecmd(self, line: str) -> bool:
        """Run one command; returns whether the shell is to end."""
        return bool(self._between(partial(super().onecmd, line)))

    def complete(self, text: str, state: int) -> Any:
        """Complete a word, as ``cmd`` does."""
        return self._between(partial(super().complete, text, state))

    def emptyline(self) -> bool:
        """Do nothing; the base class would repeat the last command."""
        return False

    def default(self, line: str) -> None:
        """Tell that there is no such command."""
        self.failed = True
        click.echo(printable(f'There is no command {shlex.quote(line.split()[0])}: "help" lists them.'), err=True)

    def get_names(self) -> list[str]:
        """The attributes among which commands are looked for; EOF is no name for people."""
        return [name for name in super().get_names() if name != "do_EOF"]

    def completedefault(self, *arguments: Any) -> list[str]:
        """Complete a path; ``cmd`` gives the word, the line, and where the word begins and ends."""
        _, line, _, end = arguments
        typed = line[:end].partition(" ")[2]
        folder, slash, begun = typed.rpartition("/")
        try:
            node = self._node(folder + slash)
        except KraftError:
            return []
        if not isinstance(node, Mapping):
            return []
        # What stands before the last delimiter of the line editor is not to be repeated.
        skipped = len(begun) - len(arguments[0])
        found = (f"{name}/" if isinstance(node[name], Mapping) else name for name in node if name.startswith(begun))
        return [name[skipped:] for name in found] if skipped >= 0 else [folder + slash + name for name in found]

    def _need_log(self) -> str:
        if self._directory is None:
            raise LocalError("a snapshot is of one moment and has no log: give a directory, or controllers")
        return self._directory

    def _topic(self) -> tuple[str, str] | None:
        """Name and id of the topic in whose folder one is."""
        if self._place[:2] != ("image", "topics") or len(self._place) < 3:
            return None
        node = self._node("/" + "/".join(self._place[: 4 if self._place[2] in ("byName", "byId") else 3]))
        if not isinstance(node, Mapping) or "name" not in node:
            return None
        return str(node["name"]), str(node["id"])


def _whole(node: Node) -> object:
    return {name: _whole(node[name]) for name in node} if isinstance(node, Mapping) else node


def _milliseconds(text: str) -> int:
    """A moment in local time; a time of day is today's, or yesterday's if it is still to come."""
    now = datetime.now().astimezone()
    for form in _CLOCKS:
        moment = _parsed(text, form)
        if moment is not None:
            found = now.replace(hour=moment.hour, minute=moment.minute, second=moment.second, microsecond=0)
            return _since_1970(found if found <= now else found - timedelta(days=1))
    for form in _DATES:
        moment = _parsed(text, form)
        if moment is not None:
            return _since_1970(moment.astimezone())
    raise LocalError(f'{text!r} is no moment: write 14:05, 14:05:30, "2026-11-28 14:05", an offset, or now')


def _parsed(text: str, form: str) -> datetime | None:
    try:
        return datetime.strptime(text, form)  # local time
    except ValueError:
        return None


def _since_1970(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


@contextmanager
def terminal_kept() -> Iterator[None]:
    """Leave the terminal as it was: the line editor may not get to it when the shell is interrupted."""
    if not is_terminal(sys.stdin):
        yield
        return
    import termios

    before = termios.tcgetattr(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def run_shell(shell: Shell, command: str) -> bool:
    """Run a command, or, if it is empty, what is typed or piped in; returns whether all went well.

    Ctrl-C ends the shell.
    """
    if command:
        shell.onecmd(command)
    else:
        shell.cmdloop(None if is_terminal(sys.stdin) else "")
    return not shell.failed or (not command and is_terminal(sys.stdin))
