"""What the actions of ``kraftcore groups`` share: what is asked for, which groups and partitions there are, tables."""

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
    """What went wrong while the tool works, told as Kafka's does."""

    exit_code = 0


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options."""

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
    """The groups that --group or --all-groups stands for."""
    if wanted.all_groups:
        return [each.id for each in await consumer_groups(client)]
    return sorted(dict.fromkeys(wanted.groups))


async def led_partitions(client: AdminClient, places: set[TopicPartition]) -> dict[TopicPartition, bool]:
    """Whether partitions have a leader, of those that there are."""
    found = await client.describe_topics(sorted({place.topic for place in places}))
    return {
        TopicPartition(topic.name, part.number): part.leader_id is not None
        for topic in found.values()
        for part in topic.partitions
    }


def line_of(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Cells in columns, as Java's ``%-15s``; those without a width as they are."""
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=False)]
    return " ".join([*padded, *cells[len(padded) :]])


def print_table(rows: Sequence[Sequence[str]], widths: Sequence[int]) -> None:
    """As Kafka's tools: a line ends where the next one begins."""
    for row in rows:
        click.echo(printable("\n" + line_of(row, widths)), nl=False)
    click.echo()
