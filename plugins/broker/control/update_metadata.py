"""UpdateMetadata: the brokers and partitions that clients are told. Source: Kafka 3.9.1, ReplicaManager."""

from __future__ import annotations

from collections.abc import Callable

from kraftcore.plugins.broker.control.authority import Authority
from kraftcore.plugins.broker.metadata.cache import RequestCache
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


class UpdateMetadata:
    """Carries out UpdateMetadata: this broker tells clients of the leaders and brokers named.

    Args:
        authority: which controller is obeyed.
        cache: takes over the brokers and partitions.
        on_change: called when addresses may have changed.
        on_deleted: called with the partitions that are deleted.
    """

    def __init__(
        self,
        authority: Authority,
        cache: RequestCache,
        on_change: Callable[[], None],
        on_deleted: Callable[[set[TopicPartition]], None],
    ) -> None:
        self._authority = authority
        self._cache = cache
        self._on_change = on_change
        self._on_deleted = on_deleted

    def handle(self, request: UpdateMetadataRequest, version: int) -> UpdateMetadataResponse:
        """Carry out a request."""
        error = self._authority.check(request.controller_epoch, request.broker_epoch)
        if error is ErrorCode.NONE:
            deleted = self._cache.update(request, version)
            self._on_change()
            self._on_deleted(deleted)
        return UpdateMetadataResponse(error_code=error)
