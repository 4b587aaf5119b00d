"""Connections to a controller, frames to be patched, brokers that exist on the wire alone, an observer of the log."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence

from kraftcore.core.batch import iter_batches
from kraftcore.core.uuid import Uuid
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.features import supported_levels
from kraftcore.protocol.frames import decode_response, encode_request
from kraftcore.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from kraftcore.protocol.messages.broker_registration import BrokerRegistrationRequest
from kraftcore.protocol.messages.create_topics import CreateTopicsRequest
from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.protocol.schema import Request, Response

HOST = "127.0.0.1"
CAUGHT_UP = 1 << 40
METADATA = Uuid((1).to_bytes(16, "big"))
FETCH_VERSION = 17
FETCH_BYTES = 8 << 20
NEW_EPOCH = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH)
QUIET_S = 0.3
"""A log to which nothing was added for so long is taken to rest."""


class Unexpected(Exception):
    """A controller answered something else than the case asks for."""


def newest(request: type[Request]) -> int:
    versions = request.schema.versions
    assert versions is not None
    return versions[1]


class Frame:
    """A request encoded once, size included; ``at(mark)`` says where bytes are that copies get patched."""

    def __init__(self, request: Request, version: int | None = None) -> None:
        self.version = newest(type(request)) if version is None else version
        self.raw = encode_request(request, self.version, 0, "bench", size_prefix=True)
        self.api_key = type(request).schema.api_key

    def at(self, mark: bytes) -> list[int]:
        """All offsets of these bytes."""
        found, place = [], self.raw.find(mark)
        while place >= 0:
            found.append(place)
            place = self.raw.find(mark, place + 1)
        return found

    def decode(self, answer: bytes | bytearray) -> Response:
        """The answer to it, without its size."""
        return decode_response(bytes(answer), self.api_key, self.version)[1]


def read_exact(connection: socket.socket, count: int) -> bytes:
    out = bytearray()
    while len(out) < count:
        part = connection.recv(min(count - len(out), 1 << 20))
        if not part:
            raise ConnectionError("closed by the controller")
        out += part
    return bytes(out)


class Client:
    """One connection, one request at a time."""

    def __init__(self, port: int, timeout_s: float = 120) -> None:
        self.socket = socket.create_connection((HOST, port), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def raw(self, frame: bytes) -> bytes:
        """Send a frame; the answer without its size."""
        self.socket.sendall(frame)
        return self.read()

    def read(self) -> bytes:
        """The next answer, without its size."""
        return read_exact(self.socket, struct.unpack(">i", read_exact(self.socket, 4))[0])

    def call(self, request: Request, version: int | None = None) -> Response:
        frame = Frame(request, version)
        return frame.decode(self.raw(frame.raw))

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def refuse(error: int, what: str) -> None:
    """Raise unless there is no error."""
    if error:
        raise Unexpected(f"{what}: {ErrorCode(error).name}")


def is_active(port: int) -> bool:
    """Whether a node is the active controller: those that are not answer another error about a broker nobody knows."""
    try:
        with Client(port, 5) as client:
            answer = client.call(BrokerHeartbeatRequest(broker_id=999_999))
    except OSError:
        return False
    return answer.error_code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)


class Broker:
    """Registered and unfenced."""

    def __init__(self, client: Client, cluster_id: str, broker_id: int) -> None:
        self.id = broker_id
        answer = client.call(
            BrokerRegistrationRequest(
                broker_id=broker_id,
                cluster_id=cluster_id,
                incarnation_id=Uuid.random(),
                listeners=[
                    BrokerRegistrationRequest.Listener(name="PLAINTEXT", host=f"b{broker_id}.example", port=9092)
                ],
                features=[
                    BrokerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
                    for name, (low, high) in supported_levels().items()
                ],
                log_dirs=[Uuid.random()],
            )
        )
        refuse(answer.error_code, f"registration of broker {broker_id}")
        self.epoch = answer.broker_epoch
        if client.call(self.beat()).is_fenced:
            raise Unexpected(f"broker {broker_id} stays fenced")

    def beat(self, *, fence: bool = False) -> BrokerHeartbeatRequest:
        return BrokerHeartbeatRequest(
            broker_id=self.id, broker_epoch=self.epoch, current_metadata_offset=CAUGHT_UP, want_fence=fence
        )


Topic = CreateTopicsRequest.CreatableTopic


def placed(name: str, brokers: Sequence[int], partitions: int) -> Topic:
    """A topic whose partitions all have these replicas."""
    assignments = [
        Topic.CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers)) for index in range(partitions)
    ]
    return Topic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)


def create(client: Client, topics: list[Topic]) -> list[Uuid]:
    """Make topics; their ids.

    Raises:
        Unexpected: one of them failed.
    """
    answer = client.call(CreateTopicsRequest(topics=topics, timeout_ms=120_000))
    for topic in answer.topics:
        refuse(topic.error_code, f"topic {topic.name}")
    return [topic.topic_id for topic in answer.topics]


def fetch(offset: int, epoch: int, last_epoch: int, wait_ms: int) -> FetchRequest:
    """What an observer of the metadata log asks for."""
    topic = FetchRequest.FetchTopic
    partition = topic.FetchPartition(
        partition=0,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        log_start_offset=0,
        partition_max_bytes=FETCH_BYTES,
    )
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        topics=[topic(topic_id=METADATA, partitions=[partition])],
    )


class Position:
    """How far an observer has read, and what the next Fetch asks for."""

    def __init__(self) -> None:
        self.next = self.epoch = self.last_epoch = 0

    def request(self, wait_ms: int) -> FetchRequest:
        return fetch(self.next, self.epoch, self.last_epoch, wait_ms)

    def take(self, answer: Response) -> tuple[list[tuple[int, int, bytes]], bool]:
        """Go behind what came.

        Returns:
            (base, last offset, bytes) of each batch, and whether this was the end of the log.
        """
        found = answer.responses[0].partitions[0]
        if found.error_code in NEW_EPOCH:
            self.epoch = found.current_leader.leader_epoch
            return [], False
        refuse(found.error_code, "Fetch")
        if found.snapshot_id.end_offset >= 0:
            raise Unexpected(f"Fetch: the log begins above {self.next}")
        batches = []
        for base, last, epoch, raw in heads(bytes(found.records or b"")):
            if last < found.high_watermark and base >= self.next:
                batches.append((base, last, raw))
                self.next, self.last_epoch = last + 1, epoch
        return batches, self.next >= found.high_watermark >= 0


def heads(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Base, last offset, epoch and bytes of each whole batch."""
    place = 0
    while place + 61 <= len(data):
        base, size, epoch = struct.unpack_from(">qii", data, place)
        end = place + 12 + size
        if end > len(data):
            return
        yield base, base + struct.unpack_from(">i", data, place + 23)[0], epoch, data[place:end]
        place = end


class Observer:
    """Reads the committed log in a thread, and keeps when which batch arrived."""

    def __init__(self, port: int) -> None:
        self.client = Client(port)
        self.position = Position()
        self.seen: list[tuple[float, int, int, bytes]] = []
        self.changed = threading.Condition()
        self.stopped = False
        self.error: Exception | None = None
        while not self.pull(0):
            pass
        self.seen.clear()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def pull(self, wait_ms: int) -> bool:
        answer = self.client.call(self.position.request(wait_ms), FETCH_VERSION)
        at = time.perf_counter()
        with self.changed:
            batches, is_end = self.position.take(answer)
            self.seen += [(at, *batch) for batch in batches]
            self.changed.notify_all()
        return is_end

    def run(self) -> None:
        try:
            while not self.stopped:
                self.pull(500)
        except (OSError, Unexpected) as error:
            with self.changed:
                self.error = error
                self.changed.notify_all()

    def settle(self) -> int:
        """Wait until nothing more comes; the next offset."""
        while True:
            before = self.position.next
            time.sleep(QUIET_S)
            if before == self.position.next:
                return before

    def wait(self, start: int, records: int, timeout_s: float = 120) -> float:
        """When the last of so many records from an offset on became readable.

        Raises:
            Unexpected: they did not come.
        """
        with self.changed:
            if not self.changed.wait_for(lambda: self.error or self.position.next >= start + records, timeout_s):
                raise Unexpected(f"{self.position.next - start} of {records} records came within {timeout_s:g} s")
            if self.error:
                raise Unexpected(str(self.error))
            return next(at for at, _, last, _ in self.seen if last >= start + records - 1)

    def kinds(self, start: int) -> Counter[int]:
        """How many records of each type came from an offset on; types are those of the metadata records' frames."""
        found: Counter[int] = Counter()
        for _, base, _, raw in list(self.seen):
            if base >= start:
                for batch in iter_batches(raw):
                    if not batch.is_control:
                        found.update(record.value[1] for record in batch)
        return found

    def close(self) -> None:
        self.stopped = True
        self.thread.join(5)
        self.client.close()
