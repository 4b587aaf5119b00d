"""The changes of ``kraftcore groups``: deletes groups, deletes and resets offsets."""

from __future__ import annotations

import csv
import datetime
import io
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TypeAlias

import click

from kraftcore.admin import AdminClient, TopicPartition
from kraftcore.admin.groups import EARLIEST, LATEST
from kraftcore.cli.admin_tool import Connection
from kraftcore.cli.groups_common import GroupFailure, Wanted, led_partitions, names_of, print_table
from kraftcore.cli.kafka_style import java_split, words
from kraftcore.cli.output import printable
from kraftcore.config.given_file import read_given_file
from kraftcore.configdef.types import read_integer
from kraftcore.errors import KraftError, LocalError, RefusedError

Offsets: TypeAlias = Mapping[TopicPartition, int]
_NONE = "-"


def delete(connection: Connection, wanted: Wanted) -> None:
    """Delete groups, each by itself."""

    async def work(client: AdminClient) -> dict[str, KraftError | None]:
        results: dict[str, KraftError | None] = {}
        for name in await names_of(client, wanted):
            try:
                await client.delete_group(name)
                results[name] = None
            except KraftError as error:
                results[name] = error
        return results

    results = connection.run(work)
    done = ", ".join(f"'{name}'" for name, error in results.items() if error is None)
    failed = {name: error for name, error in results.items() if error is not None}
    if not failed:
        click.echo(printable(f"Deletion of requested consumer groups ({done}) was successful."))
        return
    click.echo("\nError: Deletion of some consumer groups failed:")
    for name, error in failed.items():
        click.echo(printable(f"* Group '{name}' could not be deleted due to: {words(error)}"))
    if done:
        click.echo(printable(f"\nThese consumer groups were deleted successfully: {done}"))


def delete_offsets(connection: Connection, wanted: Wanted) -> None:
    """Delete a group's offsets in topics."""
    [group] = wanted.groups

    async def work(client: AdminClient) -> tuple[RefusedError | None, dict[TopicPartition, KraftError | None]]:
        results: dict[TopicPartition, KraftError | None] = {}
        places: list[TopicPartition] = []
        for text in wanted.topics:
            try:
                places += await _places(client, [text])
            except RefusedError as error:
                results[TopicPartition(text, -1)] = error
        whole: RefusedError | None = None
        try:
            await client.delete_offsets(group, places)
            results.update(dict.fromkeys(places))
        except RefusedError as error:
            whole = error
            told: Mapping[TopicPartition, object] = getattr(error, "results", dict.fromkeys(places, error))
            for place, each in told.items():
                results[place] = each if isinstance(each, KraftError) else None
        return whole, results

    whole, results = connection.run(work)
    if whole is None:
        click.echo(printable(f"Request succeeded for deleting offsets from group {group}."))
    elif whole.error in ("GROUP_SUBSCRIBED_TO_TOPIC", "TOPIC_AUTHORIZATION_FAILED", "UNKNOWN_TOPIC_OR_PARTITION"):
        click.echo("\nError: Encountered some partition-level error, see the follow-up details.")
    elif whole.error in ("INVALID_GROUP_ID", "GROUP_ID_NOT_FOUND", "GROUP_AUTHORIZATION_FAILED", "NON_EMPTY_GROUP"):
        click.echo(printable(f"\nError: {whole.message}"))
    else:
        click.echo(printable(f"\nError: Encountered some unknown error: {whole.error}"))
    rows = [
        (
            place.topic,
            str(place.partition) if place.partition >= 0 else _NONE,
            "Successful" if error is None else f"Error: {words(error)}",
        )
        for place, error in sorted(results.items(), key=lambda item: f"{item[0].topic}{item[0].partition}")
    ]
    width = max([15, *(len(row[0]) for row in rows)])
    print_table([("TOPIC", "PARTITION", "STATUS"), *rows], [width, 10, 15])


# --- reset ------------------------------------------------------------------------------------------------------------


def reset(connection: Connection, wanted: Wanted) -> None:
    """Commit other offsets for groups without members, or only show them."""
    plan = None if wanted.from_file is None else _read_plan(wanted.from_file, wanted.groups)
    timestamp = _timestamp(wanted)

    async def work(client: AdminClient) -> dict[str, Offsets]:
        found: dict[str, Offsets] = {}
        for group in await names_of(client, wanted):
            state = "Dead"
            try:
                state = (await client.describe_group(group)).state
            except RefusedError as error:
                if error.error != "GROUP_ID_NOT_FOUND":
                    raise
            found[group] = {}
            if state not in ("Empty", "Dead"):
                click.echo(
                    printable(
                        f"\nError: Assignments can only be reset if the group '{group}' is inactive, but the current "
                        f"state is {state}."
                    )
                )
                continue
            found[group] = await _new_offsets(client, group, wanted, plan, timestamp)
            if wanted.execute:
                await client.commit_offsets(group, found[group])
        return found

    try:
        found = connection.run(work)
    except RefusedError as error:
        raise GroupFailure(f"\nError: Executing consumer group command failed due to {error.message}") from None
    if wanted.export:
        click.echo(_as_csv(found, has_groups=len(wanted.groups) != 1))
        return
    rows = [
        (group, place.topic, str(place.partition), str(offset))
        for group, offsets in found.items()
        for place, offset in sorted(offsets.items())
    ]
    widths = [max([15, *map(len, found)]), max([15, *(len(row[1]) for row in rows)]), 10]
    print_table([("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), *rows] if found else [], widths)


async def _places(client: AdminClient, topics: Sequence[str]) -> list[TopicPartition]:
    """The partitions that --topic names: ``topic``, ``topic:0,2``."""
    found: list[TopicPartition] = []
    whole: list[str] = []
    for text in topics:
        if ":" not in text:
            whole.append(text)
            continue
        parts = java_split(text, ":")
        if len(parts) != 2:
            raise click.UsageError(f"Invalid topic arg '{text}', expected topic name and partitions")
        for part in java_split(parts[1], ","):
            number = read_integer(part)
            if number is None:
                raise click.UsageError(f"Invalid partition '{part}' specified in topic arg '{text}''")
            found.append(TopicPartition(parts[0], number))
    for topic in (await client.describe_topics(whole)).values():
        found += [TopicPartition(topic.name, part.number) for part in topic.partitions]
    return list(dict.fromkeys(found))


async def _new_offsets(
    client: AdminClient,
    group: str,
    wanted: Wanted,
    plan: Mapping[str, Offsets] | None,
    timestamp: int | None,
) -> Offsets:
    committed = await client.committed_offsets(group)
    if wanted.all_topics:
        places = sorted(committed)
    else:
        places = await _places(client, wanted.topics)
    await _check_places(client, places)
    if plan is not None:
        if group not in plan:
            click.echo(printable(f"\nError: No reset plan for group {group} found"))
        return await _in_range(client, plan.get(group, {}))
    if wanted.to_offset is not None:
        return await _in_range(client, dict.fromkeys(places, wanted.to_offset))
    if wanted.to_earliest:
        return await client.list_offsets(places, EARLIEST)
    if wanted.shift_by is not None:
        for place in places:
            if place not in committed:
                raise click.UsageError(
                    f"Cannot shift offset for partition {place} since there is no current committed offset"
                )
        return await _in_range(client, {place: committed[place].offset + wanted.shift_by for place in places})
    ends = await client.list_offsets(places, LATEST)
    if wanted.to_latest:
        return ends
    if wanted.to_current:
        return {place: committed[place].offset if place in committed else ends[place] for place in places}
    found = dict(await client.list_offsets(places, timestamp or 0))
    for place, offset in found.items():
        if offset < 0:
            click.echo(
                printable(
                    f"\nWarn: Partition {place.partition} from topic {place.topic} is empty. "
                    "Falling back to latest known offset."
                )
            )
            found[place] = ends[place]
    return found


async def _check_places(client: AdminClient, places: Sequence[TopicPartition]) -> None:
    led = await led_partitions(client, set(places)) if places else {}
    missing = [str(place) for place in places if place not in led]
    if missing:
        raise RefusedError("UNKNOWN_TOPIC_OR_PARTITION", f'The partitions "{",".join(missing)}" do not exist')
    headless = [str(place) for place in places if not led[place]]
    if headless:
        raise RefusedError("LEADER_NOT_AVAILABLE", f'The partitions "{",".join(headless)}" have no leader')


async def _in_range(client: AdminClient, offsets: Offsets) -> Offsets:
    """Replace offsets that partitions do not have by the nearest that they have."""
    first, last = await client.list_offsets(offsets, EARLIEST), await client.list_offsets(offsets, LATEST)
    return {place: max(first[place], min(offset, last[place])) for place, offset in offsets.items()}


def _timestamp(wanted: Wanted) -> int | None:
    """The time given by --to-datetime or --by-duration, in milliseconds since 1970; or None."""
    if wanted.by_duration is not None:
        return time.time_ns() // 1_000_000 - duration_ms(wanted.by_duration)
    if wanted.to_datetime is None:
        return None
    try:
        found = datetime.datetime.fromisoformat(wanted.to_datetime)
    except ValueError:
        raise LocalError(f'Unparseable date: "{wanted.to_datetime}"') from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=datetime.UTC)  # as Kafka's tool (Utils.getDateTime)
    return int(found.timestamp() * 1000)


def duration_ms(text: str) -> int:
    """An ISO 8601 duration as Java's ``Duration.parse`` reads it."""
    number = r"([-+]?[0-9]{1,10})"
    found = re.fullmatch(
        rf"([-+]?)P(?:{number}D)?(?:T(?:{number}H)?(?:{number}M)?(?:([-+]?[0-9]{{1,10}}(?:[.,][0-9]{{0,9}})?)S)?)?",
        text,
        re.IGNORECASE,
    )
    if found is None or not any(found.groups()[1:]):
        raise LocalError("Text cannot be parsed to a Duration")
    days, hours, minutes = (int(each or 0) for each in found.groups()[1:4])
    seconds = Decimal((found[5] or "0").replace(",", "."))  # a float would lose a millisecond of PT1.001S
    total = int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)
    return -total if found[1] == "-" else total


def _read_plan(path: str, groups: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
    """Read a file of --export: lines of topic, partition, offset, for several groups with the group in front."""
    text = read_given_file(path).decode(errors="replace")
    plan: dict[str, dict[TopicPartition, int]] = {}
    for line in _csv_lines(path, text):
        if not line:
            continue
        cells = [*groups, *line] if len(groups) == 1 and len(line) == 3 else line
        try:
            group, topic, partition, offset = cells
            plan.setdefault(group, {})[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError:
            raise LocalError(f"{path}: {','.join(line)} is no line of group, topic, partition, offset") from None
    return plan


def _csv_lines(path: str, text: str) -> Iterator[list[str]]:
    try:
        yield from csv.reader(io.StringIO(text))
    except csv.Error as error:
        raise LocalError(f"{path}: no CSV: {error}") from None


def _as_csv(found: Mapping[str, Offsets], *, has_groups: bool) -> str:
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    for group, offsets in found.items():
        for place, offset in sorted(offsets.items()):
            writer.writerow([*([group] if has_groups else []), place.topic, place.partition, offset])
    return lines.getvalue()
