"""Parts that the actions of ``kraftcore groups`` share: options, look-ups of groups and partitions, tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import click

from kraftcore.admin import AdminClient, GroupListing, TopicPartition
from kraftcore.cli.kafka_style import StdoutFailure
from kraftcore.cli.output import printable

TYPES = ("Classic", "Consumer")
"""Types of groups whose members are consumers."""
_CONSUMERS = ("", "consumer")  # protocol types


class GroupFailure(StdoutFailure):
    """An error while the tool works, printed on stdout with exit status 0, as by Kafka's tool."""

    exit_code = 0


@dataclass(frozen=True, slots=True)
class Wanted:
    """The command's options."""

    groups: tuple[str, ...]
    topics: tuple[str, ...]
    all_groups: bool
    all_topics: bool
    execute: bool
    export: bool
    to_offset: int | None
    from_file: str | None
    to_datetime: str | None
    by_duration: str | None
    to_earliest: bool
    to_latest: bool
    to_current: bool
    shift_by: int | None
    members: bool
    verbose: bool
    state: str | None
    types: str | None


async def consumer_groups(client: AdminClient) -> list[GroupListing]:
    """The groups of consumers, by name."""
    return [
        each
        for each in await client.list_groups()
        if each.protocol_type in _CONSUMERS and each.type.lower() in ("", *(kind.lower() for kind in TYPES))
    ]


async def names_of(client: AdminClient, wanted: Wanted) -> list[str]:
    """The groups named by --group or --all-groups."""
    if wanted.all_groups:
        return [each.id for each in await consumer_groups(client)]
    return sorted(dict.fromkeys(wanted.groups))


async def led_partitions(client: AdminClient, places: set[TopicPartition]) -> dict[TopicPartition, bool]:
    """Whether partitions have a leader; missing partitions are left out."""
    found = await client.describe_topics(sorted({place.topic for place in places}))
    return {
        TopicPartition(topic.name, part.number): part.leader_id is not None
        for topic in found.values()
        for part in topic.partitions
    }


def line_of(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Cells in columns, as by Java's ``%-15s``; cells without a width stay as they are."""
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=False)]
    return " ".join([*padded, *cells[len(padded) :]])


def print_table(rows: Sequence[Sequence[str]], widths: Sequence[int]) -> None:
    """Print rows as Kafka's tools do, with a newline before each line instead of after it."""
    for row in rows:
        click.echo(printable("\n" + line_of(row, widths)), nl=False)
    click.echo()
