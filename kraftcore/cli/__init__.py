"""The ``kraftcore`` command: one file a command, imported only when it runs.

Options are named as in Kafka's tools. Errors are one line on stderr, with exit status 2 for wrong usage, else 1.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO

from kraftcore.cli.collecting import not_collecting

with not_collecting():
    import click

from kraftcore.errors import KraftError, StorageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Command -> (module and function, line of help). Adding a command takes a line here and a module.
COMMANDS = {
    "acls": ("kraftcore.cli.acls:acls", "List, add and remove access control entries."),
    "autopilot": ("kraftcore.cli.autopilot:autopilot", "Replace lost voters of a quorum, and keep their number."),
    "cluster": ("kraftcore.cli.cluster:cluster", "Show a cluster's id and nodes, forget brokers."),
    "completion": ("kraftcore.cli.completion:completion", "Print a script that completes commands with the tab key."),
    "configs": ("kraftcore.cli.configs:configs", "Describe and change configurations, quotas, SCRAM credentials."),
    "dashboard": ("kraftcore.cli.dashboard:dashboard", "Serve a page that shows a quorum and its cluster live."),
    "demo": ("kraftcore.cli.demo:demo", "Run a quorum here, kill its leader, check that nothing is lost."),
    "dump-log": ("kraftcore.cli.dump_log:dump_log", "Print segments, snapshots and index files as text or JSON."),
    "elect-leaders": (
        "kraftcore.cli.elect_leaders:elect_leaders",
        "Elect the leaders of partitions anew, preferred or unclean.",
    ),
    "features": ("kraftcore.cli.features:features", "Describe and change the feature levels of a cluster."),
    "groups": ("kraftcore.cli.groups:groups", "List, describe, reset and delete consumer groups."),
    "metadata": ("kraftcore.cli.metadata:metadata", "Back a cluster's metadata up, restore it, compare it."),
    "observe": ("kraftcore.cli.observe:observe", "Mirror a quorum's log and print records as they are committed."),
    "quorum": ("kraftcore.cli.quorum:quorum", "Describe the metadata quorum and change its voters."),
    "reassign": ("kraftcore.cli.reassign:reassign", "Move replicas of partitions to other brokers or directories."),
    "server": ("kraftcore.cli.server:server", "Run a controller, a broker or both, as a Kafka properties file says."),
    "simulate": (
        "kraftcore.cli.simulate:simulate",
        "Run quorums on a simulated disk, network and clock, and try to break them.",
    ),
    "spark": ("kraftcore.cli.spark:spark", "Turn metadata logs into tables, ask them in SQL, draw a report."),
    "storage": ("kraftcore.cli.storage:storage", "Format a server's directories and look at them."),
    "tokens": ("kraftcore.cli.tokens:tokens", "Create, renew, expire and describe delegation tokens."),
    "top": ("kraftcore.cli.top:top", "Show a quorum and its cluster live in the terminal."),
    "topics": ("kraftcore.cli.topics:topics", "Create, delete, describe, list and change topics."),
    "up": ("kraftcore.cli.up:up", "Run a whole Kafka here, to try things."),
}
EXIT_INTERRUPTED = 130  # as a shell reports SIGINT
EXIT_PIPE = 141  # as a shell reports SIGPIPE


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one only to run it or to show its own help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in alphabetical order."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None if there is no command of that name."""
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name][0].split(":")
        with not_collecting():
            command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)  # noqa: S101
        return command

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Read the arguments in front of a command's name; some of them, such as --version, print and exit."""
        with _ending():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        with _ending():
            return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands in the help from the table, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete command names from the table."""
        from click.shell_completion import CompletionItem

        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [
            CompletionItem(name, help=COMMANDS[name][1])
            for name in self.list_commands(ctx)
            if name.startswith(incomplete)
        ]


@contextmanager
def _ending() -> Iterator[None]:
    """Turn exceptions into an exit status or one line; output that cannot be written is an error, too."""
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
    except (KeyboardInterrupt, KraftError, OSError, BaseExceptionGroup) as error:
        raise _ended_by(error) from None


def _ended_by(error: BaseException) -> BaseException:
    if isinstance(error, BaseExceptionGroup):  # a trio nursery wraps errors
        kinds = (KeyboardInterrupt, BrokenPipeError, KraftError, OSError)
        return error if all(error.split(kind)[1] for kind in kinds) else _ended_by(error.exceptions[0])
    if isinstance(error, KeyboardInterrupt):
        return click.exceptions.Exit(EXIT_INTERRUPTED)
    if isinstance(error, StorageError):
        return click.ClickException(f"{error.filename}: {error.strerror}")
    if isinstance(error, KraftError):
        from kraftcore.cli.output import printable

        return click.ClickException(printable(str(error)))  # parts of the text may come from another node
    _give_up(sys.stdout)
    if isinstance(error, BrokenPipeError):
        return click.exceptions.Exit(EXIT_PIPE)
    return click.ClickException(_unwritten(error))


def _unwritten(error: BaseException) -> str:
    return f"the output cannot be written: {getattr(error, 'strerror', None) or error}"


def _show(error: click.ClickException) -> int:
    """Print an error, on stdout or stderr; returns the exit status."""
    try:
        error.show()
    except BrokenPipeError:
        _give_up(sys.stdout)
        _give_up(sys.stderr)
        return EXIT_PIPE
    except OSError as failure:
        _give_up(sys.stdout)
        try:
            click.echo(f"Error: {_unwritten(failure)}", err=True)
        except OSError:
            _give_up(sys.stderr)
    return error.exit_code


def _give_up(stream: TextIO | None) -> None:
    # Python would complain about the rest of its buffer at exit.
    with suppress(OSError):  # raised by a stream that has no file descriptor
        if stream is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _print_version(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from kraftcore import __version__

        click.echo(f"kraftcore {__version__} (Kafka 4.3.1 formats)")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Examples:
  kraftcore dump-log --cluster-metadata-decoder --files 00000000000000000000.log
  kraftcore dump-log --help
  eval "$(kraftcore completion bash)"
""",
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show the version."
)
def cli() -> None:
    """KRaft you can embed: tools that read and write what Apache Kafka 4.3.1 does.

    Options have the names they have in Kafka's own scripts.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: without the program's name; None for ``sys.argv``.

    Returns:
        The exit status: 0, 1 for an error, 2 for wrong usage, 130 when interrupted, 141 when the reader closed the
        output.
    """
    # Objects that are left when the process ends are not searched for garbage.
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)
    try:
        with _ending():
            status = cli.main(args=arguments, prog_name="kraftcore", standalone_mode=False)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        return _show(error)
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    return status if isinstance(status, int) else 0
