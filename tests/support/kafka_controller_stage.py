"""The stage of the controller's scenarios with Kafka's own controller on it, over the wire.

Offsets and broker epochs of its log are moved to where the scenario's own stage begins, so that the transcripts of both
can be compared. Records are read from the log as an observer reads them.
"""

from __future__ import annotations

import socket
import struct
from typing import Any

from controller_stage import CLUSTER, ControllerStage, Step

from kraftcore.core.batch import iter_batches
from kraftcore.core.uuid import METADATA_TOPIC_ID
from kraftcore.plugins.controller.decision import ControllerResult
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.frames import decode_response, encode_request
from kraftcore.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from kraftcore.protocol.messages.delete_topics import DeleteTopicsRequest
from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.protocol.messages.unregister_broker import UnregisterBrokerRequest
from kraftcore.protocol.metadata import decode_metadata_record
from kraftcore.protocol.schema import Request, Response

PATIENCE_S = 60
FETCH_VERSION = 17


class Wire:
    """One connection, one request at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self._offset = self._fetched_epoch = self._leader_epoch = 0

    def close(self) -> None:
        self._socket.close()

    def call(self, request: Request, version: int) -> Response:
        frame = encode_request(request, version, 1)
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        answer = self._exactly(*struct.unpack(">i", self._exactly(4)))
        return decode_response(answer, type(request).schema.api_key, version)[1]

    def _exactly(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            piece = self._socket.recv(count - len(found))
            assert piece, "the controller closed the connection"
            found += piece
        return found

    def new_records(self) -> tuple[int, list[Any]]:
        """The log's end, and the data records up to it since the last call, with their versions."""
        found = []
        while True:
            kind = FetchRequest.FetchTopic
            partition = kind.FetchPartition(
                fetch_offset=self._offset,
                current_leader_epoch=self._leader_epoch,
                last_fetched_epoch=self._fetched_epoch,
                partition_max_bytes=1 << 23,
            )
            topic = kind(topic_id=METADATA_TOPIC_ID, partitions=[partition])
            request = FetchRequest(max_bytes=1 << 23, topics=[topic])
            answer = self.call(request, FETCH_VERSION).responses[0].partitions[0]
            if answer.error_code in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH):
                self._leader_epoch = answer.current_leader.leader_epoch
                continue
            assert answer.error_code == 0, ErrorCode.of(answer.error_code)
            if not answer.records:
                return self._offset, found
            for batch in iter_batches(answer.records):
                if batch.base_offset < self._offset:
                    continue
                if not batch.is_control:
                    found += [decode_metadata_record(value) for value in batch.values()]
                self._offset, self._fetched_epoch = batch.last_offset + 1, batch.leader_epoch


class KafkaStage(ControllerStage):
    """Answers come from Kafka, the image from its log; the rules are checked all the same."""

    def __init__(self, wire: Wire, cluster_id: str) -> None:
        super().__init__()
        self._wire = wire
        self._cluster_id = cluster_id
        self._clean_up()
        self._ahead = wire.new_records()[0] - self.offset  # of our offsets

    def _clean_up(self) -> None:
        """What another scenario left, as far as this stage saw it; a new stage saw nothing yet, so all there was."""
        brokers, topics = set(), {}
        for record, _ in self._wire.new_records()[1]:
            name = type(record).__name__
            if name == "RegisterBrokerRecord":
                brokers.add(record.broker_id)
            elif name == "UnregisterBrokerRecord":
                brokers.discard(record.broker_id)
            elif name == "TopicRecord":
                topics[record.topic_id] = record.name
            elif name == "RemoveTopicRecord":
                del topics[record.topic_id]
        kind = DeleteTopicsRequest.DeleteTopicState
        states = [kind(topic_id=topic_id) for topic_id in topics]
        self._wire.call(DeleteTopicsRequest(topics=states, timeout_ms=PATIENCE_S * 1000), 6)
        for broker_id in brokers:
            answer: Any = self._wire.call(UnregisterBrokerRequest(broker_id=broker_id), 0)
            assert answer.error_code == 0, answer

    def ask(self, request: Request, version: int | None = None) -> Step:
        versions = type(request).schema.versions
        assert versions is not None
        version = versions[1] if version is None else version
        if isinstance(request, BrokerRegistrationRequest) and request.cluster_id == CLUSTER:
            request.cluster_id = self._cluster_id
        _move(request, self._ahead)
        answer: Any = self._wire.call(request, version)
        if isinstance(answer, BrokerRegistrationResponse) and answer.error_code == 0:
            answer.broker_epoch -= self._ahead
        records = self._wire.new_records()[1]
        for record, _ in records:
            _move(record, -self._ahead)
        decision = ControllerResult(answer, records)
        error = ErrorCode.of(getattr(answer, "error_code", 0))
        step = Step(self.offset, decision, None if error is ErrorCode.NONE else error)
        self.carry_out(decision)
        return step


def _move(struct_: Any, distance: int) -> None:
    """Move every field that is an offset of the log or a broker epoch; -1 stays what it means."""
    for name in type(struct_).__slots__:
        value = getattr(struct_, name)
        if name in ("broker_epoch", "previous_broker_epoch", "current_metadata_offset") and value >= 0:
            setattr(struct_, name, value + distance)
        elif isinstance(value, list) and value and hasattr(type(value[0]), "__layout__"):
            for each in value:
                _move(each, distance)
