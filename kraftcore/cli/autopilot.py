"""``kraftcore autopilot``: keeps the voters of a quorum as wanted."""

from __future__ import annotations

import math
import signal
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click
import trio

from kraftcore.cli.admin_tool import Connection, make_connection, survey_fields
from kraftcore.cli.kafka_style import words
from kraftcore.cli.output import output_option, print_json, printable
from kraftcore.cli.waiting import telling
from kraftcore.config.addresses import split_list
from kraftcore.errors import UnreachableError

if TYPE_CHECKING:
    from kraftcore.plugins.autopilot import Decision, Policy, Round


class _Seconds(click.FloatRange):
    """Seconds above 0; NaN is refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the number."""
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value} is no number of seconds", param, ctx)
        return found


seconds = _Seconds(0, 1e9, min_open=True)


@click.group(
    epilog="""\b
Examples:
  See what it would do, and why; nothing is changed:
    kraftcore autopilot run --bootstrap-controller 127.0.0.1:9093
  Everything about it:
    kraftcore autopilot run --help
"""
)
def autopilot() -> None:
    """Replace lost voters of a quorum of Kafka's controllers or kraftcore's, and keep their number."""


@autopilot.command(
    short_help="Watch a quorum's voters, say what to do, or do it.",
    epilog="""\b
Examples:
  See what it would do, and why; nothing is changed:
    kraftcore autopilot run --bootstrap-controller 127.0.0.1:9093
  One look, for scripts:
    kraftcore autopilot run --bootstrap-controller 127.0.0.1:9093 --once --output json
  Keep five voters, and replace those that are silent for two minutes:
    kraftcore autopilot run --bootstrap-controller c1:9093,c2:9093 --voters 5 --dead-after 120 --apply

\b
It adds controllers that have caught up while there are fewer voters than wanted; removes voters that are silent for
too long; removes a voter whose node came back with an empty disk, and adds that node again; removes voters beyond the
wanted number. One change at a time, removing first, and never one after which those who are alive would be no
majority. Voters have to be dynamic (kraft.version 1).

\b
Kafka's controllers register with each other, so that one address is enough. kraftcore nodes that only watch are in no
list: name the ones that are to stand by in --bootstrap-controller, too. A controller that has just been removed and
still runs is ready to join: stop it, or leave it out with --candidates.

\b
A line is printed when something is decided, done or refused, and not again while it stays the same. JSON: one object a
line with time, applied (null: not tried), error, survey (null; who answers, if the quorum does not), and decisions as
[{"action": "add" | "remove" | "hold", "nodeId", "directoryId", "endpoints", "reason"}]; at most one is a change, and it
is the first.

\b
Exit status: 0 when a signal ended it, or after --once; 1 if with --once the quorum could not be looked at or refused
the change.
""",
)
@click.option(
    "--bootstrap-controller",
    metavar="LIST",
    required=True,
    help="Controllers to ask, as host:port,host:port. Name kraftcore nodes that stand by, too: they are in no list.",
)
@click.option(
    "--command-config",
    metavar="FILE",
    help="Properties file that says how to connect: "
    "security.protocol, ssl.* (files in PEM), sasl.*. "
    "Without it: unencrypted, and without a login.",
)
@click.option(
    "--apply", is_flag=True, help="Carry out each change that is decided. Without it the change is only printed."
)
@click.option(
    "--voters",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="How many voters the quorum is to have, at least 1. An odd number: of 4 voters only one may fail, as of 3.",
)
@click.option(
    "--min-voters",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="A voter that is dead stays in when fewer than so many voters would be left, unless another controller "
    "is ready to replace it.",
)
@click.option(
    "--dead-after",
    type=seconds,
    default=60.0,
    show_default=True,
    help="Seconds without a sign of life from a voter after which it counts as dead. Longer than a restart of a "
    "node takes.",
)
@click.option(
    "--candidates",
    metavar="LIST",
    help="Ids of the nodes that may become voters, as 1,2,3. Without it: any controller.",
)
@click.option(
    "--interval", type=seconds, default=5.0, show_default=True, help="Seconds between two looks at the quorum."
)
@click.option("--once", is_flag=True, help="Look once, decide, with --apply carry it out, and end.")
@output_option
@click.pass_context
def run(
    ctx: click.Context,
    bootstrap_controller: str,
    command_config: str | None,
    apply: bool,
    voters: int,
    min_voters: int,
    dead_after: float,
    candidates: str | None,
    interval: float,
    once: bool,
    output: str,
) -> None:
    """Watch a quorum and say what to do about its voters; with --apply, do it."""
    from kraftcore.plugins.autopilot import Policy

    dead_after_ms = max(int(dead_after * 1000), 1)
    policy = Policy(
        voters=voters,
        min_voters=min_voters,
        dead_after_ms=dead_after_ms,
        alive_within_ms=min(Policy().alive_within_ms, dead_after_ms),
        candidates=None if candidates is None else _ids(candidates),
    )
    connection = make_connection(None, bootstrap_controller, command_config)
    printer = Printer(apply=apply, as_json=output == "json")
    try:
        trio.run(partial(_fly, connection, policy, printer, apply=apply, interval_s=interval, once=once))
    except UnreachableError as error:
        raise click.ClickException(printable(words(error))) from None
    ctx.exit(1 if once and printer.last is not None and printer.last.error else 0)


def _ids(text: str) -> frozenset[int]:
    parts = split_list(text)
    if not all(part.isdecimal() for part in parts):
        raise click.UsageError(f"--candidates {text}: write node ids, for example 1,2,3")
    return frozenset(map(int, parts))


async def _fly(
    connection: Connection, policy: Policy, printer: Printer, *, apply: bool, interval_s: float, once: bool
) -> None:
    from kraftcore import admin
    from kraftcore.plugins.autopilot import Pilot, Watcher

    tls, sasl, controllers = connection.tls(), connection.sasl(), connection.controllers
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with (
            telling() as watch,
            admin.connect(
                bootstrap_controllers=controllers,
                tls=tls,
                sasl=sasl,
                timing=connection.timing(is_look=not apply),
                watch=watch,
            ) as client,
        ):
            pilot = Pilot(client, Watcher(client, controllers), policy, apply=apply)
            failure: OSError | None = None
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_obey, signals, nursery.cancel_scope)
                try:
                    if once:
                        printer.tell(await pilot.step())
                    else:
                        await pilot.run(printer.tell, max(int(interval_s * 1000), 1))
                except OSError as error:
                    failure = error  # outside the nursery, which would wrap it in a group
                nursery.cancel_scope.cancel()
            if failure is not None:
                raise failure


async def _obey(signals: Any, scope: trio.CancelScope) -> None:
    async for _ in signals:
        scope.cancel()


class Printer:
    """Prints the news of a round."""

    def __init__(self, *, apply: bool, as_json: bool) -> None:
        self._apply = apply
        self._as_json = as_json
        self._told: object = None
        self.last: Round | None = None

    def tell(self, found: Round) -> None:
        """Print a round, unless it says the same as the last one."""
        self.last = found
        saying = (tuple(found.decisions), found.applied, found.error)
        if saying == self._told:
            return
        self._told = saying
        time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if self._as_json:
            decisions = [_as_object(each) for each in found.decisions]
            survey = None if found.failure is None else survey_fields(found.failure)
            print_json(time=time, applied=found.applied, error=found.error or None, decisions=decisions, survey=survey)
            return
        if found.state is None:
            click.echo(printable(f"{time} {found.error}"))
        elif not found.decisions:
            click.echo(f"{time} all is as wanted: {len(found.state.voters)} voters")
        for decision in found.decisions:
            click.echo(printable(f"{time} {decision}{self._outcome(found, decision)}"))

    def _outcome(self, found: Round, decision: Decision) -> str:
        if decision.action.value == "hold":
            return ""
        if found.applied is None:
            return " [not done: --apply was not given]"
        return " [done]" if found.applied else f" [refused: {found.error}]"


def _as_object(decision: Decision) -> dict[str, object]:
    key = decision.key
    return {
        "action": decision.action.value,
        "nodeId": None if key is None else key.id,
        "directoryId": None if key is None else str(key.directory_id),
        "endpoints": [str(each) for each in decision.endpoints],
        "reason": decision.reason,
    }
