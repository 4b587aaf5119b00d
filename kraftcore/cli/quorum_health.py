"""``kraftcore quorum health``: whether a quorum commits, and whether its cluster serves, judged from outside.

An answer on a port shows neither. So the quorum's leader is asked twice: all that its log held at first must be
committed soon after, and a majority of the voters must have fetched lately.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

import click
import trio

from kraftcore.admin import AdminClient, QuorumDescription, ReplicaProgress, SurveyedError, Timing
from kraftcore.cli.admin_tool import Connection, connected
from kraftcore.cli.output import output_option, print_json, printable
from kraftcore.errors import KraftError, UnsupportedVersionError

PATIENCE_S = 3.0
"""How old a voter's last Fetch may be, and how long a record may wait for its commit."""
_PAUSE_S = 0.25
_TIMING = Timing(call_timeout_ms=5_000, request_timeout_ms=2_000)
_NAMED = 5  # partitions in one reason
_NO_LEADER = "no leader of the quorum answers"


@dataclass
class Findings:
    """What was found of a cluster.

    Attributes:
        quorum: as its leader told last; None: there is no leader that answers.
        reasons: why the cluster is not well, a sentence each.
        warnings: what it can do without for now, a sentence each.
        advice: what to do when too few nodes answer; else empty.
    """

    quorum: QuorumDescription | None = None
    reasons: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    advice: str = ""


@click.command(
    short_help="Tell whether the quorum commits, and the cluster serves.",
    epilog="""\b
Examples:
  kraftcore quorum --bootstrap-controller 127.0.0.1:9093 health
  kraftcore quorum --bootstrap-server 127.0.0.1:9092 health --output json
""",
)
@output_option
@connected()
def health(connection: Connection, output: str) -> None:
    """Tell whether the quorum commits; through brokers, also whether brokers are unfenced and partitions have leaders.

    The exit status is 0 if all is well, else 1, with a line for each reason. Warnings, as of a voter that the majority
    can do without, do not change it. When too few nodes answer, it says which do not, and
    what to do. Without timeouts in the file of --command-config each call has 5 seconds.
    """
    found = Findings()

    async def look(client: AdminClient) -> None:
        await examine(client.describe_quorum, found)
        if not connection.through_controllers:
            await examine_cluster(client, found)

    try:
        connection.run(look, is_look=True, default=_TIMING)
    except SurveyedError as error:
        survey = error.survey
        found.reasons.append(f"{'no answer any more' if found.quorum else _NO_LEADER}: {survey.finding}")
        found.reasons += [str(node) for node in survey.nodes if not node.answers or node.trouble]
        found.advice = survey.advice
    except KraftError as error:
        found.reasons.append(str(error) if found.quorum else f"{_NO_LEADER}: {error}")
    _tell(found, as_json=output == "json")
    if found.reasons:
        click.get_current_context().exit(1)


async def examine(describe: Callable[[], Awaitable[QuorumDescription]], found: Findings) -> None:
    """Find out whether the leader commits, and who fetches.

    Args:
        describe: asks the leader.
        found: gets the reasons.
    """
    first = found.quorum = await describe()
    wanted, waited_s = first.end_offset, 0.0
    while found.quorum.high_watermark < wanted and waited_s < PATIENCE_S:
        await trio.sleep(_PAUSE_S)
        waited_s += _PAUSE_S
        found.quorum = await describe()
    quorum = found.quorum
    if quorum.high_watermark < wanted:
        found.reasons.append(
            f"nothing is committed: offset {quorum.high_watermark} has waited for {waited_s:.0f} s, and the log of "
            f"node {quorum.leader_id}, which leads, ends at {quorum.end_offset}"
        )
    silent = [f"voter {voter.key.id} ({_age(quorum, voter)})" for voter in quorum.voters if not _fetches(quorum, voter)]
    fetching = len(quorum.voters) - len(silent)
    majority = len(quorum.voters) // 2 + 1
    text = f"{fetching} of {len(quorum.voters)} voters fetch: not {', '.join(silent)}"
    if fetching < majority:
        found.reasons.append(f"{text}; a majority, {majority}, is needed")
    elif silent:
        found.warnings.append(text)


def _now_ms(quorum: QuorumDescription) -> int:
    """The leader's time: it tells that as its own last Fetch, and no clock of ours is compared with it."""
    return max((each.last_fetch_ms or 0 for each in (*quorum.voters, *quorum.observers)), default=0)


def _fetches(quorum: QuorumDescription, voter: ReplicaProgress) -> bool:
    if voter.key.id == quorum.leader_id:
        return True
    return voter.last_fetch_ms is not None and _now_ms(quorum) - voter.last_fetch_ms <= PATIENCE_S * 1000


def _age(quorum: QuorumDescription, voter: ReplicaProgress) -> str:
    if voter.last_fetch_ms is None:
        return "never, since this leader leads"
    return f"for {(_now_ms(quorum) - voter.last_fetch_ms) / 1000:.1f} s"


async def examine_cluster(client: AdminClient, found: Findings) -> None:
    """Find out which brokers are fenced, and which partitions have no leader; through brokers."""
    try:
        nodes = (await client.describe_cluster(include_fenced=True)).nodes
    except UnsupportedVersionError:  # Kafka before 4.0
        found.warnings.append("the brokers do not tell which of them are fenced")
        nodes = ()
    found.reasons += [f"broker {node.id} is fenced" for node in nodes if node.is_fenced]
    topics = await client.describe_topics(topic.name for topic in await client.list_topics())
    offline = [
        f"{name}-{part.number}" for name, topic in topics.items() for part in topic.partitions if part.leader_id is None
    ]
    if offline:
        more = f" and {len(offline) - _NAMED} more" if len(offline) > _NAMED else ""
        found.reasons.append(f"partitions without a leader: {', '.join(offline[:_NAMED])}{more}")


def _tell(found: Findings, *, as_json: bool) -> None:
    quorum = found.quorum
    if as_json:
        print_json(
            healthy=not found.reasons,
            leaderId=None if quorum is None else quorum.leader_id,
            leaderEpoch=None if quorum is None else quorum.leader_epoch,
            highWatermark=None if quorum is None else quorum.high_watermark,
            reasons=found.reasons,
            warnings=found.warnings,
            advice=found.advice or None,
        )
        return
    if not found.reasons and quorum is not None:
        click.echo(
            f"healthy: node {quorum.leader_id} leads epoch {quorum.leader_epoch}, and everything below offset "
            f"{quorum.high_watermark} is committed"
        )
    _tell_lines("", found.reasons)
    _tell_lines("warning: ", found.warnings)
    _tell_lines("what to do: ", filter(None, [found.advice]))


def _tell_lines(prefix: str, lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(printable(prefix + line))
