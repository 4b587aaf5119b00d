"""DescribeLogDirs: the partitions in each log directory, and the free bytes of its volume (KIP-113, KIP-827).

Source: Kafka 4.3.1, ReplicaManager.describeLogDirs.
"""

from __future__ import annotations

import os
from collections import defaultdict

from kraftcore.node.registry import RequestContext
from kraftcore.plugins.broker.api.permits import Permits
from kraftcore.plugins.broker.logdirs import HostedLog, LogDirs
from kraftcore.plugins.broker.logdirs.directory import Directory
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from kraftcore.security.acl import Operation

_Result = DescribeLogDirsResponse.DescribeLogDirsResult
_Topic = _Result.DescribeLogDirsTopic
_UNKNOWN = -1


class DescribeLogDirs:
    """Answers DescribeLogDirs requests.

    Args:
        dirs: the log directories.
        replicas: the partitions in them.
        permits: the asker must be allowed to describe the cluster.
    """

    def __init__(self, dirs: LogDirs, replicas: Replicas, permits: Permits) -> None:
        self._dirs = dirs
        self._replicas = replicas
        self._permits = permits

    def respond(self, request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
        """All directories, each with the partitions asked for, or with all of its partitions."""
        if not self._permits.may_cluster(request, context, Operation.DESCRIBE):
            return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        wanted: dict[str, set[int]] | None = None
        if request.topics is not None:
            wanted = defaultdict(set)  # one set a topic, no object a partition: a request may name very many partitions
            for each in request.topics:
                wanted[each.topic].update(each.partitions)
        return DescribeLogDirsResponse(results=[self._directory(each, wanted) for each in self._dirs.directories])

    def _directory(self, directory: Directory, wanted: dict[str, set[int]] | None) -> _Result:
        told = _Result(log_dir=os.path.abspath(directory.path))
        if directory.failure is not None:
            told.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            return told
        told.total_bytes, told.usable_bytes = _room(directory.path)
        topics: dict[str, list[_Topic.DescribeLogDirsPartition]] = defaultdict(list)
        for hosted in (*directory.logs.values(), *directory.futures.values()):
            name = hosted.name
            is_wanted = wanted is None or name.partition in wanted.get(name.topic, ())
            if is_wanted and not hosted.log.closed:
                is_future = directory.futures.get(name) is hosted
                topics[name.topic].append(
                    _Topic.DescribeLogDirsPartition(
                        partition_index=name.partition,
                        partition_size=hosted.log.size_in_bytes,
                        offset_lag=max(self._goal(hosted, is_future=is_future) - hosted.log.log_end_offset, 0),
                        is_future_key=is_future,
                    )
                )
        told.topics = [_Topic(name=topic, partitions=parts) for topic, parts in topics.items()]
        return told

    def _goal(self, hosted: HostedLog, *, is_future: bool) -> int:
        """The offset that a log is to reach: its high watermark, or, of a future log, the end of the present log."""
        replica = self._replicas.all.get(hosted.name)
        if replica is None:
            return hosted.high_watermark
        return replica.partition.log.log_end_offset if is_future else replica.partition.high_watermark


def _room(path: str) -> tuple[int, int]:
    """The bytes of the volume, and the bytes free for this process; -1 each if the system does not tell."""
    try:
        found = os.statvfs(path)
    except OSError:
        return _UNKNOWN, _UNKNOWN
    return found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail
