"""Throttles of replication (KIP-73): how many bytes a second throttled replicas may copy, without I/O.

A topic's settings name its throttled replicas, as leaders and as followers; a broker's settings name the rates. A
replica in the ISR counts, but is not held back, so that it stays in the ISR. All moves between log directories share a
limit (KIP-113). Source: Kafka 4.3.1, ReplicationQuotaManager, TopicConfigHandler, BrokerConfigHandler.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from kraftcore.configdef.brokers import applied
from kraftcore.configdef.types import ConfigType, parse, read_integer
from kraftcore.metadata import Image
from kraftcore.metadata.configs import BROKER
from kraftcore.plugins.broker.metadata.local_changes import LocalChanges
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.broker.quotas.rates import UNLIMITED, LimitedRate, QuotaWindow

_ALL: Final = frozenset({-1})  # stands for all partitions of a topic


class ReplicationQuota(LimitedRate):
    """The rate of a broker's throttled replicas, as leaders or as followers, and its limit.

    Args:
        window: the time over which the rate is taken.
        now_ms: the time, milliseconds since 1970.

    Attributes:
        is_set: whether any replica is throttled.
    """

    def __init__(self, window: QuotaWindow, now_ms: Callable[[], int]) -> None:
        super().__init__(window, now_ms)
        self.is_set = False
        self._topics: dict[str, frozenset[int]] = {}  # their throttled partitions, or `_ALL`

    def throttles(self, name: TopicPartition) -> bool:
        """Whether a partition's replica is throttled."""
        found = self._topics.get(name.topic)
        return found is not None and (found is _ALL or name.partition in found)

    def show(self, topic: str, partitions: frozenset[int]) -> None:
        """Throttle these partitions of a topic, and no other ones."""
        if partitions:
            self._topics[topic] = partitions
        else:
            self._topics.pop(topic, None)
        self.is_set = bool(self._topics)


class ReplicationQuotas:
    """The three throttles of a broker.

    Args:
        broker_id: the id of this broker.
        window: the window of `leader` and `follower`.
        moving_window: the window of `moves`.
        now_ms: the time, milliseconds since 1970.

    Attributes:
        leader: limits what this broker sends to followers outside the ISR.
        follower: limits what this broker fetches of partitions where it is outside the ISR.
        moves: limits the bytes that are copied between log directories.
    """

    def __init__(
        self, broker_id: int, window: QuotaWindow, moving_window: QuotaWindow, now_ms: Callable[[], int]
    ) -> None:
        self._broker_id = broker_id
        self.leader = ReplicationQuota(window, now_ms)
        self.follower = ReplicationQuota(window, now_ms)
        self.moves = LimitedRate(moving_window, now_ms)
        self._sides = (("leader", self.leader), ("follower", self.follower))

    def show(self, image: Image, changes: LocalChanges, held: Collection[TopicPartition]) -> None:
        """Take over the settings.

        Args:
            image: the committed metadata image.
            changes: the changes since the last image.
            held: all partitions of which this broker has a replica now.
        """
        if changes.broker_configs:
            self._show_limits(image)
        gone = set(changes.gone.values())
        if changes.deletes:
            gone |= {name.topic for name in changes.deletes} - {name.topic for name in held}
        for _, quota in self._sides:
            for topic in gone:
                quota.show(topic, frozenset())
        for topic, configs in changes.topic_configs.items():
            for side, quota in self._sides:
                quota.show(topic, self._throttled(configs, f"{side}.replication.throttled.replicas"))

    def _show_limits(self, image: Image) -> None:
        configs = applied(image.configs.of(BROKER, ""), of_one=False)
        configs |= applied(image.configs.of(BROKER, str(self._broker_id)), of_one=True)
        for key, rate in (
            *((f"{side}.replication.throttled.rate", quota) for side, quota in self._sides),
            ("replica.alter.log.dirs.io.max.bytes.per.second", self.moves),
        ):
            found = parse(key, configs[key], ConfigType.LONG) if key in configs else None
            rate.limit = found if isinstance(found, int) else UNLIMITED

    def _throttled(self, configs: Mapping[str, str], key: str) -> frozenset[int]:
        """The partitions whose replica on this broker a list of ``partition:broker`` names."""
        listed = parse(key, configs.get(key, ""), ConfigType.LIST)
        parts = listed if isinstance(listed, list) else []
        if parts == ["*"]:
            return _ALL
        pairs = (part.strip().partition(":") for part in parts)
        named = ((read_integer(number), read_integer(broker)) for number, _, broker in pairs)
        return frozenset(number for number, broker in named if number is not None and broker == self._broker_id)
