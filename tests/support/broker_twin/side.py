"""A broker as a script sees it: connections that stay open, and names for what it chose by itself."""

from __future__ import annotations

import hashlib
import socket
from dataclasses import dataclass, field
from typing import Any

from kafka_lab import HOST, KafkaNode

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.frames import decode_response, encode_request_parts
from kraftcore.protocol.messages.describe_configs import DescribeConfigsRequest
from kraftcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kraftcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kraftcore.protocol.messages.list_offsets import ListOffsetsRequest
from kraftcore.protocol.messages.metadata import MetadataRequest
from kraftcore.protocol.messages.offset_fetch import OffsetFetchRequest

ANSWER_TIMEOUT_S = 10
NO_ANSWER = "no answer"
CLOSED = "closed"


@dataclass
class Side:
    """One of the two brokers that a script is played to.

    Attributes:
        node: the broker's process.
        ids: topics' ids by name.
        producers: ids and epochs by the script's names.
        sessions: of fetching.
        members: ids of groups' members.
        generations: of groups.
    """

    node: KafkaNode
    ids: dict[str, Uuid] = field(default_factory=dict)
    producers: dict[str, tuple[int, int]] = field(default_factory=dict)
    sessions: dict[str, int] = field(default_factory=dict)
    members: dict[str, str] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)
    _open: dict[str, socket.socket] = field(default_factory=dict)
    _number: int = 0

    def topic_id(self, name: str) -> Uuid:
        """Of a topic of the script; one that nobody has for others."""
        return self.ids.get(name) or Uuid(hashlib.md5(name.encode()).digest())

    def send(self, connection: str, request: Any, version: int) -> int:
        """Send a request, and do not wait; its number."""
        self.send_frame(connection, self.frame(request, version))
        return self._number

    def frame(self, request: Any, version: int) -> bytes:
        """What is sent for a request, without its size."""
        self._number += 1
        return b"".join(bytes(part) for part in encode_request_parts(request, version, self._number, "twin"))

    def send_frame(self, connection: str, frame: bytes, size: int | None = None) -> None:
        """Send bytes, with their size or another in front."""
        if connection not in self._open:
            self._open[connection] = socket.create_connection((HOST, self.node.port), timeout=ANSWER_TIMEOUT_S)
        told = len(frame) if size is None else size
        self._open[connection].sendall(told.to_bytes(4, "big", signed=True) + frame)

    def receive(self, connection: str, request: Any, version: int) -> Any:
        """The next answer of a connection; or ``CLOSED``, ``NO_ANSWER``."""
        try:
            size = int.from_bytes(self._exactly(connection, 4), "big")
            frame = self._exactly(connection, size)
        except TimeoutError:
            self.close(connection)
            return NO_ANSWER
        except OSError:
            self.close(connection)
            return CLOSED
        return decode_response(frame, type(request).schema.api_key, version)[1]

    def ask(self, connection: str, request: Any, version: int) -> Any:
        """Send, and wait for the answer."""
        try:
            self.send(connection, request, version)
        except OSError:
            self.close(connection)
            return CLOSED
        return self.receive(connection, request, version)

    def _exactly(self, connection: str, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            part = self._open[connection].recv(size - len(found))
            if not part:
                raise ConnectionError
            found += part
        return bytes(found)

    def close(self, connection: str) -> None:
        """End a connection, if it is open."""
        if connection in self._open:
            self._open.pop(connection).close()

    def close_all(self) -> None:
        """End all of them."""
        for connection in list(self._open):
            self.close(connection)

    def knows(self, topics: dict[str, int], configs: dict[str, dict[str, str]]) -> bool:
        """Whether it leads so many partitions of each, and knows what was set; their ids are kept then."""
        asked = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        answer = self.ask("setup", MetadataRequest(topics=asked), 12)
        if isinstance(answer, str):
            return False
        for topic in answer.topics:
            if len(topic.partitions) != topics[topic.name] or any(each.leader_id < 0 for each in topic.partitions):
                return False
        kind = DescribeConfigsRequest.DescribeConfigsResource
        request = DescribeConfigsRequest(resources=[kind(resource_type=2, resource_name=name) for name in configs])
        told = self.ask("setup", request, 4)
        if isinstance(told, str):
            return False
        for result in told.results:
            values = {each.name: each.value for each in result.configs}
            if any(values.get(name) != value for name, value in configs[result.resource_name].items()):
                return False
        ends = ListOffsetsRequest.ListOffsetsTopic
        wanted = [
            ends(
                name=name, partitions=[ends.ListOffsetsPartition(partition_index=n, timestamp=-1) for n in range(count)]
            )
            for name, count in topics.items()
        ]
        found = self.ask("setup", ListOffsetsRequest(replica_id=-1, topics=wanted), 7)
        if isinstance(found, str) or any(each.error_code for topic in found.topics for each in topic.partitions):
            return False
        self.ids |= {topic.name: topic.topic_id for topic in answer.topics}
        for known in (self.producers, self.sessions, self.members, self.generations):
            known.clear()
        return True

    def has_producer_ids(self) -> bool:
        """Whether it got some from its controller."""
        answer = self.ask("setup", InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
        return not isinstance(answer, str) and answer.error_code == 0

    def coordinates(self, groups: list[str]) -> bool:
        """Whether it has loaded what it coordinates; asked for by name, so that there is something to load."""
        self.ask("setup", FindCoordinatorRequest(coordinator_keys=groups), 4)
        kind = OffsetFetchRequest.OffsetFetchRequestGroup
        request = OffsetFetchRequest(groups=[kind(group_id=group, topics=None) for group in groups])
        answer = self.ask("setup", request, 8)
        return not isinstance(answer, str) and all(each.error_code == 0 for each in answer.groups)
