"""How far consumer groups are behind."""

from __future__ import annotations

from dataclasses import dataclass

import trio

from kraftcore.admin import AdminClient, TopicPartition
from kraftcore.admin.groups import LATEST
from kraftcore.errors import KraftError

GROUPS_MAX = 200
"""Groups that are looked at, by name."""
_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class GroupLag:
    """A consumer group.

    Attributes:
        id: its name.
        state: as its coordinator names it.
        partitions: how many it has committed offsets in.
        lag: records that it has not read, in all of these; None: an end of theirs could not be asked for.
        worst: the partition with the greatest lag, ``topic-number``; empty without a lag.
        problem: why there is nothing more to tell; empty: there is.
    """

    id: str
    state: str
    partitions: int = 0
    lag: int | None = None
    worst: str = ""
    problem: str = ""


async def look(client: AdminClient) -> dict[str, GroupLag]:
    """All groups of a cluster, by name, at most ``GROUPS_MAX``.

    Raises:
        KraftError: the groups cannot be listed.
    """
    found: dict[str, GroupLag] = {}
    limiter = trio.CapacityLimiter(_AT_ONCE)

    async def one(name: str, state: str) -> None:
        async with limiter:
            try:
                found[name] = await _lag(client, name, state)
            except KraftError as error:
                found[name] = GroupLag(name, state, problem=str(error))

    listed = [each for each in await client.list_groups() if each.protocol_type in ("", "consumer")]
    async with trio.open_nursery() as nursery:
        for each in listed[:GROUPS_MAX]:
            nursery.start_soon(one, each.id, each.state)
    return found


async def _lag(client: AdminClient, name: str, state: str) -> GroupLag:
    committed = await client.committed_offsets(name)
    topics = await client.describe_topics({place.topic for place in committed})
    led = {
        TopicPartition(topic.name, part.number)
        for topic in topics.values()
        for part in topic.partitions
        if part.leader_id is not None
    }
    ends = await client.list_offsets([place for place in committed if place in led], LATEST)
    lags = {place: max(end - committed[place].offset, 0) for place, end in ends.items()}
    worst = max(lags, key=lags.__getitem__, default=None)
    text = "" if worst is None or not lags[worst] else f"{worst.topic}-{worst.partition}"
    return GroupLag(name, state, len(committed), sum(lags.values()) if len(lags) == len(committed) else None, text)
