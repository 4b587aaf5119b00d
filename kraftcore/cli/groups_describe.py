"""``kraftcore groups --describe``: prints groups' offsets, members and coordinators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import click

from kraftcore.admin import AdminClient, CommittedOffset, GroupDescription, TopicPartition
from kraftcore.admin.groups import LATEST
from kraftcore.cli.admin_tool import Connection
from kraftcore.cli.groups_common import Wanted, led_partitions, line_of, names_of, print_table
from kraftcore.cli.output import print_json, printable

_NONE = "-"
_REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


@dataclass(frozen=True, slots=True)
class _Row:
    """A partition of a group."""

    group: str
    place: TopicPartition
    committed: CommittedOffset | None
    end: int | None
    consumer_id: str = _NONE
    host: str = _NONE
    client_id: str = _NONE

    @property
    def lag(self) -> int | None:
        return None if self.committed is None or self.end is None else self.end - self.committed.offset


def describe(connection: Connection, wanted: Wanted, *, as_json: bool) -> None:
    """Describe groups, as text or as JSON."""
    if wanted.members:
        described = connection.run(lambda client: _described(client, wanted))
        _print_members(described, verbose=wanted.verbose, as_json=as_json)
    elif wanted.state is not None:

        async def work(client: AdminClient) -> tuple[list[GroupDescription], dict[int, str]]:
            nodes = (await client.describe_cluster()).nodes
            return await _described(client, wanted), {node.id: f"{node.host}:{node.port}" for node in nodes}

        _print_states(*connection.run(work), verbose=wanted.verbose, as_json=as_json)
    else:

        async def rows(client: AdminClient) -> list[tuple[GroupDescription, list[_Row]]]:
            return [(each, await _rows(client, each)) for each in await _described(client, wanted)]

        _print_offsets(connection.run(rows), verbose=wanted.verbose, as_json=as_json)


async def _described(client: AdminClient, wanted: Wanted) -> list[GroupDescription]:
    return [await client.describe_group(name) for name in await names_of(client, wanted)]


async def _rows(client: AdminClient, group: GroupDescription) -> list[_Row]:
    committed = await client.committed_offsets(group.id)
    members = sorted(group.members, key=lambda member: -len(member.partitions))
    assigned = {place for member in members for place in member.partitions}
    ends = await _ends(client, {*assigned, *committed})
    found = [
        _Row(group.id, place, committed.get(place), ends.get(place), member.id, member.host, member.client_id)
        for member in members
        for place in sorted(member.partitions)
    ]
    return found + [
        _Row(group.id, place, committed[place], ends.get(place)) for place in sorted(committed) if place not in assigned
    ]


async def _ends(client: AdminClient, places: set[TopicPartition]) -> Mapping[TopicPartition, int]:
    """End offsets of partitions that have a leader."""
    led = await led_partitions(client, places)
    return await client.list_offsets([place for place in sorted(places) if led.get(place)], LATEST)


def _is_shown(group: GroupDescription, count: int) -> bool:
    """Print a group's state if it is missing, empty or rebalancing; returns whether there are rows to print."""
    if group.state == "Dead":
        click.echo(printable(f"\nError: Consumer group '{group.id}' does not exist."))
        return False
    if group.state == "Empty":
        click.echo(printable(f"\nConsumer group '{group.id}' has no active members."), err=True)
    elif group.state in _REBALANCING:
        click.echo(printable(f"\nWarning: Consumer group '{group.id}' is rebalancing."), err=True)
    return count > 0


def _print_offsets(found: list[tuple[GroupDescription, list[_Row]]], *, verbose: bool, as_json: bool) -> None:
    if as_json:
        print_json(
            groups=[
                {"group": group.id, "state": group.state, "partitions": [_row_object(row) for row in rows]}
                for group, rows in found
            ]
        )
        return
    for group, rows in found:
        if not _is_shown(group, len(rows)):
            continue
        heads = ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST"]
        cells = [
            [
                row.group,
                row.place.topic,
                str(row.place.partition),
                _text(None if row.committed is None else row.committed.offset),
                _text(row.end),
                _text(row.lag),
                row.consumer_id,
                row.host,
                row.client_id,
            ]
            for row in rows
        ]
        widths = [15, 15, 10, 15, 15, 15, 15, 15]
        for at in (0, 1, 6, 7):
            widths[at] = max([15, *(len(each[at]) for each in cells)])
        if verbose:
            heads.insert(3, "LEADER-EPOCH")
            widths.insert(3, 15)
            for each, row in zip(cells, rows, strict=True):
                each.insert(3, _text(None if row.committed is None else row.committed.leader_epoch))
        print_table([[*heads, "CLIENT-ID"], *cells], widths)


def _text(number: int | None) -> str:
    return _NONE if number is None else str(number)


def _row_object(row: _Row) -> dict[str, object]:
    committed = row.committed
    return {
        "topic": row.place.topic,
        "partition": row.place.partition,
        "leaderEpoch": None if committed is None else committed.leader_epoch,
        "currentOffset": None if committed is None else committed.offset,
        "logEndOffset": row.end,
        "lag": row.lag,
        **{
            name: None if value == _NONE else value
            for name, value in (("consumerId", row.consumer_id), ("host", row.host), ("clientId", row.client_id))
        },
    }


def _print_members(found: list[GroupDescription], *, verbose: bool, as_json: bool) -> None:
    if as_json:
        print_json(
            groups=[
                {
                    "group": group.id,
                    "state": group.state,
                    "members": [
                        {
                            "consumerId": each.id,
                            "groupInstanceId": each.instance_id,
                            "host": each.host,
                            "clientId": each.client_id,
                            "partitions": [place._asdict() for place in sorted(each.partitions)],
                        }
                        for each in group.members
                    ],
                }
                for group in found
            ]
        )
        return
    for group in found:
        _is_shown(group, len(group.members))
        _print_members_of(group, verbose=verbose)


def _print_members_of(group: GroupDescription, *, verbose: bool) -> None:
    is_mixed = len({each.is_classic for each in group.members if each.is_classic is not None}) == 2
    has_instances = any(each.instance_id for each in group.members)
    columns = [
        ("GROUP", 15, [group.id for _ in group.members]),
        ("CONSUMER-ID", 15, [each.id for each in group.members]),
        ("GROUP-INSTANCE-ID", 17, [each.instance_id or "" for each in group.members]),
        ("HOST", 15, [each.host for each in group.members]),
        ("CLIENT-ID", 15, [each.client_id for each in group.members]),
    ]
    if not has_instances:
        del columns[2]
    columns = [(head, max([width, *map(len, cells)]), cells) for head, width, cells in columns]
    columns.append(("#PARTITIONS", 15, [str(len(each.partitions)) for each in group.members]))
    if verbose:
        current = [_assignment(each.partitions) for each in group.members]
        target = [_assignment(each.target or ()) for each in group.members]
        columns += [
            ("CURRENT-EPOCH", 15, [_text(each.epoch) for each in group.members]),
            ("CURRENT-ASSIGNMENT", max([20, *map(len, current)]), current),
            ("TARGET-EPOCH", 15, [_text(group.assignment_epoch) for _ in group.members]),
            ("TARGET-ASSIGNMENT", max([20, *map(len, target)]), target),
        ]
        if is_mixed:
            upgraded = [
                _NONE if each.is_classic is None else str(not each.is_classic).lower() for each in group.members
            ]
            columns.append(("UPGRADED", 0, upgraded))
    ends = "" if verbose else " "
    click.echo()
    for row in zip(*([head, *cells] for head, _, cells in columns), strict=True):
        click.echo(printable(line_of(row, [width for _, width, _ in columns]) + ends))


def _assignment(places: Sequence[TopicPartition]) -> str:
    numbers: dict[str, list[str]] = {}
    for place in sorted(places):
        numbers.setdefault(place.topic, []).append(str(place.partition))
    return ";".join(f"{topic}:{','.join(each)}" for topic, each in numbers.items()) or _NONE


def _print_states(found: list[GroupDescription], nodes: Mapping[int, str], *, verbose: bool, as_json: bool) -> None:
    if as_json:
        print_json(
            groups=[
                {
                    "group": group.id,
                    "state": group.state,
                    "coordinator": nodes.get(group.coordinator_id),
                    "coordinatorId": group.coordinator_id,
                    "assignmentStrategy": group.assignor or None,
                    "members": len(group.members),
                }
                for group in found
            ]
        )
        return
    for group in found:
        if not _is_shown(group, 1):
            continue
        coordinator = f"{nodes.get(group.coordinator_id, '')}  ({group.coordinator_id})"
        heads = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"]
        cells = [group.id, coordinator, group.assignor or _NONE, group.state, str(len(group.members))]
        widths = [max(15, len(group.id)), max(25, len(coordinator)), 20, 20]
        if verbose:
            heads[4:4] = ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
            cells[4:4] = [_text(group.epoch), _text(group.assignment_epoch)]
            widths += [15, 25]
        print_table([heads, cells], widths)
