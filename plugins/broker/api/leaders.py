"""The leader of a partition, for clients that asked the wrong broker (KIP-951)."""

from __future__ import annotations

from typing import NamedTuple

from kraftcore.plugins.broker.metadata.cache import MetadataCache
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.ports.transport import Address


class Leader(NamedTuple):
    """A partition's leader.

    Attributes:
        id: the leader's broker id; -1: unknown.
        epoch: the leader epoch; -1: unknown.
        address: the leader's address on the client's listener; None: the leader is not alive, or has no such listener.
        rack: the leader's rack, or None.
    """

    id: int
    epoch: int
    address: Address | None
    rack: str | None


class Leaders:
    """Finds leaders: by this broker's own replica, else by the metadata.

    Args:
        replicas: the partitions of which this broker has a replica.
        cache: the partitions and brokers of the cluster.
    """

    def __init__(self, replicas: Replicas, cache: MetadataCache) -> None:
        self._replicas = replicas
        self._cache = cache

    def of(self, name: TopicPartition, listener: str) -> Leader:
        """The leader of a partition, for a client of this listener."""
        leader_id, epoch = self._known(name)
        broker = self._cache.brokers.get(leader_id)
        return Leader(
            leader_id, epoch, self._cache.address(leader_id, listener), None if broker is None else broker.rack
        )

    def _known(self, name: TopicPartition) -> tuple[int, int]:
        replica = self._replicas.all.get(name)
        if replica is not None:
            leader_id = replica.partition.leader_id
            return -1 if leader_id is None else leader_id, replica.partition.leader_epoch
        state = self._cache.partition(*name)
        return (-1, -1) if state is None else (state.leader, state.leader_epoch)
