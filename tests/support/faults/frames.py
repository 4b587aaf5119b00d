"""Frames that are almost sound, at a controller: every one is answered or costs the sender its connection.

The base of each is a request that the controller understands, about things that exist; then fields get extreme values,
bytes are changed, cut out, put in, and lengths lie. What may happen: an answer, or the end of the connection. What may
not: silence, the end of the process, an error that the server does not expect, memory that grows, and records that
Kafka's own classes refuse.
"""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, ClassVar, cast

from broken import Broken
from image_records import images_of_kafka, machine_at, records_of, snapshots
from kafka_lab import HOST, OURS, free_port, new_uuid
from kafka_tools import KafkaTools

from kraftcore.core.uuid import Uuid
from kraftcore.errors import KraftError
from kraftcore.metadata import Image
from kraftcore.metadata.configs import ConfigResource
from kraftcore.plugins.controller.registry import APIS
from kraftcore.protocol.frames import decode_response, encode_request
from kraftcore.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from kraftcore.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest
from kraftcore.protocol.messages.broker_registration import BrokerRegistrationRequest
from kraftcore.protocol.messages.create_topics import CreateTopicsRequest
from kraftcore.protocol.messages.delete_acls import DeleteAclsRequest
from kraftcore.protocol.messages.delete_topics import DeleteTopicsRequest
from kraftcore.protocol.messages.describe_cluster import DescribeClusterRequest
from kraftcore.protocol.messages.describe_quorum import DescribeQuorumRequest
from kraftcore.protocol.messages.envelope import EnvelopeRequest
from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from kraftcore.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kraftcore.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kraftcore.protocol.messages.sasl_handshake import SaslHandshakeRequest
from kraftcore.protocol.messages.unregister_broker import UnregisterBrokerRequest
from kraftcore.protocol.registry import api_of
from kraftcore.protocol.schema import Request, Response, Struct

PATIENCE_S = 60.0
AT_ONCE = 32  # connections, with a frame each
GROWTH_KIB = 32 * 1024  # between two rounds' ends; 8 MiB of the log's end are kept in memory
HUGE = 3000  # elements of an array, or characters of a text, now and then
BROKER = 11
TOPICS = ("one", "two", "three")
OTHERS: tuple[type[Request], ...] = (
    ApiVersionsRequest,
    DescribeClusterRequest,
    DescribeQuorumRequest,
    EnvelopeRequest,
    FetchRequest,
    FetchSnapshotRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
KINDS: tuple[type[Request], ...] = (*sorted(APIS, key=lambda kind: kind.__name__), *OTHERS)
LIMITS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
BOMBS = (b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff", b"\x7f\xff", b"\xff" * 9 + b"\x01", b"\x80\0\0\0", b"\xff" * 4)
TEXTS = ("", "a", "one", "two", "..", "User:a", "User:*", "*", "alice", "retention.ms", "é", "\0", "x" * 300)
WORDS: dict[str, tuple[object, ...]] = {
    "name": (*TOPICS, "retention.ms", "min.insync.replicas", "metadata.version", "alice", "group.version"),
    "topic": TOPICS,
    "feature": ("metadata.version", "group.version", "kraft.version", "eligible.leader.replicas.version"),
    "resource_name": (*TOPICS, "11", "", "group"),
    "resource_type": (2, 4, 8, 16, 32, 3, 5),
    "resource_type_filter": (1, 2, 3, 4),
    "pattern_type": (3, 4),
    "resource_pattern_type": (3, 4),
    "pattern_type_filter": (1, 2, 3, 4),
    "operation": (2, 3, 4, 8),
    "permission_type": (2, 3),
    "config_operation": (0, 1, 2, 3),
    "broker_id": (BROKER,),
    "leader_id": (BROKER,),
    "principal": ("User:a", "User:b"),
    "entity_type": ("user", "client-id", "ip"),
    "entity_name": ("alice", None, "127.0.0.1"),
    "key": ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"),
    "mechanism": (1, 2),
    "iterations": (4096, 8192),
    "count": (5, 7, 9),
    "num_partitions": (1, 3, -1),
    "replication_factor": (1, -1),
    "partition_index": (0, 1),
    "replicas": (BROKER,),
    "broker_ids": (BROKER,),
    "principal_type": ("User",),
    "principal_name": ("alice", "bob"),
    "owner_principal_type": ("User",),
    "owner_principal_name": ("alice",),
    "host": ("*", "127.0.0.1"),
    "upgrade_type": (1, 2, 3),
    "max_version_level": (1, 25, 29, 30),
    "election_type": (0, 1),
    "timeout_ms": (1000, 10_000),
    "max_lifetime_ms": (60_000, -1),
    "expiry_time_period_ms": (60_000, -1),
    "mechanism_name": ("SCRAM-SHA-256",),
}


@dataclass
class Report:
    """What came of the frames.

    Attributes:
        frames: sent and dealt with.
        kinds: what was done to them, and what came: ``answered``, or ``closed``, the end of the connection.
        memory_kib: of the process, whenever the cluster was empty again.
        offset: where the metadata log ends.
    """

    frames: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    memory_kib: list[int] = field(default_factory=list)
    offset: int = 0

    def __str__(self) -> str:
        kinds = ", ".join(f"{name} {count}" for name, count in sorted(self.kinds.items()))
        memory = " ".join(f"{kib / 1024:.1f}" for kib in self.memory_kib)
        return f"{self.frames} frames: {kinds}; log to {self.offset}; MiB when empty: {memory}"


class Mutator:
    """Draws frames.

    Args:
        rng: draws.
    """

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.topic_ids: list[Uuid] = [Uuid(bytes(16))]
        self.broker_epoch = -1
        self.cluster_id = ""
        self._number = 0

    def frame(self) -> tuple[str, bytes]:
        """One, without its size, and what was done to it."""
        rng = self.rng
        kind = rng.choice(KINDS)
        low, high = kind.schema.versions or (0, 0)
        version = rng.randint(low, high)
        request = self.sensible(kind, version)
        what = rng.choices(("sound", "fields", "bytes", "header"), (1, 5, 4, 1))[0]
        self._number += 1
        if what == "fields":
            for _ in range(rng.choice((1, 1, 1, 2, 4))):
                self._spoil(request, version)
        try:
            frame = encode_request(request, version, correlation_id=self._number, client_id="frames")
        except (KraftError, ValueError, OverflowError, TypeError):
            request = self.sensible(kind, version)
            frame = encode_request(request, version, correlation_id=self._number, client_id="frames")
            what = "bytes"
        if what == "bytes":
            frame = self._damage(frame)
        elif what == "header":
            frame = self._behead(frame)
        return what, frame

    # --- sound requests -----------------------------------------------------------------------------------------------

    def sensible(self, kind: type[Request], version: int) -> Request:
        """About things that exist, mostly."""
        request = cast(Request, self._fill(kind, version))
        if isinstance(request, EnvelopeRequest):
            inner = self.rng.choice(KINDS)
            number = self.rng.randint(*(inner.schema.versions or (0, 0)))
            data = self._fill(inner, number) if inner is not EnvelopeRequest else DescribeClusterRequest()
            with suppress(KraftError, ValueError, OverflowError, TypeError):
                number = number if inner is not EnvelopeRequest else 1
                request.request_data = encode_request(cast(Request, data), number, correlation_id=1, client_id="frames")
            # DefaultKafkaPrincipalBuilder: version 0, type, name, not by token
            request.request_principal = b"\x00\x00\x05User\x06alice\x00\x00"
            request.client_host_address = b"\x7f\x00\x00\x01"
        return request

    def _fill(self, kind: type[Struct], version: int) -> Struct:
        made = kind()
        for each in kind.__layout__.fields:
            if each.versions[0] <= version and (each.versions[1] is None or version <= each.versions[1]):
                setattr(made, each.name, self._value(each, version))
        return made

    def _value(self, each: Any, version: int) -> object:
        rng = self.rng
        if each.is_array:
            count = rng.choice((0, 1, 1, 1, 2, 3))
            if each.struct_class is not None:
                return [self._fill(each.struct_class, version) for _ in range(count)]
            return [self._scalar(each) for _ in range(count)]
        if each.struct_class is not None:
            return self._fill(each.struct_class, version)
        return self._scalar(each)

    def _scalar(self, each: Any) -> object:
        rng, kind, name = self.rng, each.type_name, each.name
        if name in WORDS:
            found = rng.choice(WORDS[name])
            if _fits(found, each):
                return found
        if kind == "uuid":
            return rng.choice(self.topic_ids)
        if kind in ("bytes", "records"):
            return rng.randbytes(rng.randrange(40))
        if kind == "string":
            return self.cluster_id if name == "cluster_id" else rng.choice(TEXTS[:8])
        if kind == "bool":
            return rng.random() < 0.3
        if kind == "float64":
            return rng.choice((1.0, 1000.0, 0.5))
        if name in ("broker_epoch", "current_leader_epoch"):
            return self.broker_epoch if name == "broker_epoch" else 0
        return rng.choice((0, 1, 2, 3, BROKER))

    # --- and what is done to them -------------------------------------------------------------------------------------

    def _spoil(self, made: Struct, version: int) -> None:
        """Give one field, anywhere below, a value that is hardly meant."""
        rng = self.rng
        known = [
            each
            for each in made.__layout__.fields
            if each.versions[0] <= version and (each.versions[1] is None or version <= each.versions[1])
        ]
        if not known:
            return
        each: Any = rng.choice(known)
        value = getattr(made, each.name)
        if each.struct_class is not None and rng.random() < 0.8:
            below = [value] if not each.is_array else value
            if below and below[0] is not None:
                self._spoil(rng.choice(below), version)
                return
        if each.nullable is not None and rng.random() < 0.3:
            setattr(made, each.name, None)
        elif each.is_array:
            one = value[:1] if value else [self._element(each, version)]
            setattr(made, each.name, one * rng.choice((0, 2, 2, 3, HUGE if rng.random() < 0.02 else 5)))
        elif each.struct_class is None:
            setattr(made, each.name, self._hostile(each))

    def _element(self, each: Any, version: int) -> object:
        return self._hostile(each) if each.struct_class is None else self._fill(each.struct_class, version)

    def _hostile(self, each: Any) -> object:
        rng, kind = self.rng, each.type_name
        if kind in LIMITS:
            low, high = LIMITS[kind]
            return rng.choice((low, high, -1 if low else high, 0, low + 1, high - 1, rng.randint(low, high), 64, 127))
        if kind == "string":
            return "x" * HUGE if rng.random() < 0.05 else rng.choice(TEXTS)
        if kind in ("bytes", "records"):
            return rng.randbytes(rng.choice((0, 1, 61, 500)))
        if kind == "uuid":
            return Uuid(rng.choice((bytes(16), bytes(15) + b"\x01", b"\xff" * 16, rng.randbytes(16))))
        if kind == "float64":
            return rng.choice((0.0, -1.0, 1e308, float("inf"), float("-inf"), float("nan"), 5e-324))
        return rng.random() < 0.5

    def _damage(self, frame: bytes) -> bytes:
        rng = self.rng
        found = bytearray(frame)
        for _ in range(rng.choice((1, 1, 2, 5))):
            at = rng.randrange(8, max(len(found), 9))
            match rng.randrange(6):
                case 0:
                    del found[at:]
                case 1:
                    found[at : at + 1] = bytes([found[at] ^ (1 << rng.randrange(8))]) if at < len(found) else b"\0"
                case 2:
                    bomb = rng.choice(BOMBS)
                    found[at : at + len(bomb)] = bomb
                case 3:
                    found[at:at] = rng.randbytes(rng.randrange(1, 20))
                case 4:
                    del found[at : at + rng.randrange(1, 8)]
                case 5:
                    found += rng.randbytes(rng.randrange(1, 50))
        return bytes(found)

    def _behead(self, frame: bytes) -> bytes:
        """Another api key, version, correlation id, or client id."""
        rng = self.rng
        key, version, correlation = struct.unpack_from(">hhi", frame)
        match rng.randrange(5):
            case 0:
                key = rng.choice((-1, 3, 4, 5, 6, 32767, -32768, rng.randrange(100)))
                key = 18 if key in CONSENSUS else key
            case 1:
                version = rng.choice((-1, 99, 32767, -32768, rng.randrange(20)))
            case 2:
                correlation = rng.choice((0, -1, 2**31 - 1, -(2**31)))
            case 3:
                return struct.pack(">hhih", key, version, correlation, rng.choice((-1, -2, 32767, 0))) + frame[10:]
            case 4:
                return frame[: rng.randrange(min(len(frame), 12))]
        return struct.pack(">hhi", key, version, correlation) + frame[8:]


# Anybody may change who votes, if there is no authorizer: these are for the conformance tests' node.
CONSENSUS = frozenset({52, 53, 54, 80, 81, 82})


def _fits(value: object, each: Any) -> bool:
    if value is None:
        return each.nullable is not None
    return each.type_name == "string" if isinstance(value, str) else each.type_name in LIMITS


class Target:
    """One ``kraftcore server``, alone in its quorum, with an authorizer that lets everybody do everything.

    Args:
        folder: an empty one.
    """

    SETTINGS: ClassVar[dict[str, object]] = {
        "process.roles": "controller",
        "node.id": 1,
        "controller.listener.names": "CONTROLLER",
        "metadata.log.max.record.bytes.between.snapshots": 5_000_000,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:alice",
        "delegation.token.secret.key": "secret",
    }
    FORMAT: ClassVar[tuple[str, ...]] = ()  # more arguments of ``storage format``

    def settings(self, folder: Path) -> dict[str, object]:
        """Properties of the server, besides where it is."""
        return self.SETTINGS

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.cluster_id = new_uuid()
        self.output = folder / "server.out"
        self.log = folder / "data" / "__cluster_metadata-0"
        file = folder / "server.properties"
        where = {"listeners": f"CONTROLLER://{HOST}:{self.port}", "log.dirs": folder / "data"}
        bootstrap = {"controller.quorum.bootstrap.servers": f"{HOST}:{self.port}"}
        file.write_text(
            "".join(f"{key}={value}\n" for key, value in {**self.settings(folder), **where, **bootstrap}.items())
        )
        format_ = [*OURS, "storage", "format", "-c", str(file), "-t", self.cluster_id, "--standalone", *self.FORMAT]
        subprocess.run(format_, check=True, capture_output=True)
        with self.output.open("wb") as out:
            command = [*OURS, "server", "start", str(file), "--output", "json"]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()

    def check_alive(self) -> None:
        """It runs, and met nothing that it does not expect.

        Raises:
            Broken: it does not, or did.
        """
        lines = self.output.read_text(errors="replace").splitlines()
        if self.process.poll() is not None:
            raise Broken(f"the server ended with status {self.process.returncode}: {lines[-30:]}")
        events = (json.loads(line) for line in lines if line.startswith("{"))
        errors = [each for each in events if each["event"] == "log" and each["level"] in ("ERROR", "CRITICAL")]
        if errors or any(line.startswith("Traceback") for line in lines):
            raise Broken(f"the server met what it does not expect: {errors[:5]}")

    @property
    def memory_kib(self) -> int:
        """Resident memory of the process."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])

    def connect(self) -> socket.socket:
        """A connection; waits until the server listens."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                return socket.create_connection((HOST, self.port), timeout=PATIENCE_S)
            except OSError:
                self.check_alive()
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def ask(self, request: Request, until: int | None = 0) -> Response:
        """A sound request's answer; again while it has another error code than ``until``, unless that is None."""
        key, _, version = api_of(type(request))
        frame = encode_request(request, version, correlation_id=1)
        end = time.monotonic() + PATIENCE_S
        while True:
            with self.connect() as connection, connection.makefile("rb") as answers:
                connection.sendall(struct.pack(">i", len(frame)) + frame)
                (size,) = struct.unpack(">i", answers.read(4))
                response = decode_response(answers.read(size), key, version)[1]
            if until is None or getattr(response, "error_code", until) == until:
                return response
            if time.monotonic() > end:
                raise Broken(f"{request!r} is answered with {response!r}")
            time.sleep(0.1)

    @property
    def log_end(self) -> int:
        answer: Any = self.ask(_describe_quorum())
        return int(answer.topics[0].partitions[0].high_watermark)

    def image(self) -> Image:
        """What its log comes to."""
        end = self.log_end
        return machine_at(self.log, end, next(reversed(snapshots(self.log, end)), None)).image


def _describe_quorum() -> DescribeQuorumRequest:
    topic = DescribeQuorumRequest.TopicData(topic_name="__cluster_metadata")
    topic.partitions = [DescribeQuorumRequest.TopicData.PartitionData(partition_index=0)]
    return DescribeQuorumRequest(topics=[topic])


def prepare(target: Target, mutator: Mutator) -> None:
    """A broker and topics, for frames to be about."""
    listener = BrokerRegistrationRequest.Listener(name="PLAINTEXT", host=HOST, port=1, security_protocol=0)
    registration = BrokerRegistrationRequest(
        broker_id=BROKER,
        cluster_id=target.cluster_id,
        incarnation_id=Uuid.random(mutator.rng.randbytes),
        listeners=[listener],
        features=[
            BrokerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, low, high in (("metadata.version", 7, 30), ("group.version", 0, 1), ("transaction.version", 0, 2))
        ],
        log_dirs=[Uuid.random(mutator.rng.randbytes)],
    )
    answer: Any = target.ask(registration, None)
    mutator.broker_epoch = answer.broker_epoch
    mutator.cluster_id = target.cluster_id
    wanted = [CreateTopicsRequest.CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in TOPICS]
    answer = target.ask(CreateTopicsRequest(topics=wanted), None)
    mutator.topic_ids = [each.topic_id for each in answer.topics]


def tidy(target: Target) -> None:
    """Take away all that frames brought about, but for delegation tokens, of which nobody knows the secret."""
    image = target.image()
    ask = target.ask
    ids = list(image.topics)
    topic = DeleteTopicsRequest.DeleteTopicState
    for start in range(0, len(ids), 500):
        ask(DeleteTopicsRequest(topics=[topic(name=None, topic_id=each) for each in ids[start : start + 500]]), None)
    any_acl = DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    while target.image().acls:
        ask(DeleteAclsRequest(filters=[any_acl]), None)
    for resource, entries in image.configs.items():
        ask(_without(resource, list(entries)), None)
    for entity, quotas in image.quotas.items():
        ask(_no_quota(entity, list(quotas)), None)
    gone = AlterUserScramCredentialsRequest.ScramCredentialDeletion
    users = [gone(name=user.name, mechanism=user.mechanism) for user in image.scram]
    ask(AlterUserScramCredentialsRequest(deletions=users), None)
    for broker in image.brokers:
        ask(UnregisterBrokerRequest(broker_id=broker), None)


def _without(resource: ConfigResource, names: list[str]) -> IncrementalAlterConfigsRequest:
    kind = IncrementalAlterConfigsRequest.AlterConfigsResource
    deleted = [kind.AlterableConfig(name=name, config_operation=1, value=None) for name in names]
    return IncrementalAlterConfigsRequest(
        resources=[kind(resource_type=resource.type, resource_name=resource.name, configs=deleted)]
    )


def _no_quota(entity: tuple[tuple[str, str | None], ...], keys: list[str]) -> AlterClientQuotasRequest:
    kind = AlterClientQuotasRequest.EntryData
    named = [kind.EntityData(entity_type=type_, entity_name=name) for type_, name in entity]
    gone = [kind.OpData(key=key, remove=True) for key in keys]
    return AlterClientQuotasRequest(entries=[kind(entity=named, ops=gone)])


def batches(mutator: Mutator, count: int) -> Iterator[list[tuple[str, bytes]]]:
    for start in range(0, count, AT_ONCE):
        yield [mutator.frame() for _ in range(min(AT_ONCE, count - start))]


class Sender:
    """Sends a frame at a time on each of some connections, and sees that each is answered or ends its connection."""

    def __init__(self, target: Target, report: Report) -> None:
        self._target = target
        self._report = report
        self._connections: list[socket.socket | None] = [None] * AT_ONCE

    def close(self) -> None:
        for connection in self._connections:
            if connection is not None:
                connection.close()
        self._connections = [None] * AT_ONCE

    def send(self, frames: list[tuple[str, bytes]]) -> None:
        """At most `AT_ONCE`.

        Raises:
            Broken: silence.
        """
        for at, (_, frame) in enumerate(frames):
            connection = self._connections[at]
            if connection is None:
                connection = self._connections[at] = self._target.connect()
            with suppress(ConnectionError):  # it may have ended: then there is nothing to read
                connection.sendall(struct.pack(">i", len(frame)) + frame)
        for at, (what, frame) in enumerate(frames):
            connection = self._connections[at]
            assert connection is not None
            is_answered = self._is_answered(connection, frame)
            self._report.frames += 1
            self._report.kinds[f"{what} {'answered' if is_answered else 'closed'}"] += 1
            if not is_answered:
                connection.close()
                self._connections[at] = None

    def _is_answered(self, connection: socket.socket, frame: bytes) -> bool:
        try:
            size = read_exactly(connection, 4)
            return size is not None and read_exactly(connection, struct.unpack(">i", size)[0]) is not None
        except TimeoutError:
            self._target.check_alive()
            raise Broken(f"no answer to {frame.hex()} within {PATIENCE_S:.0f} s") from None
        except ConnectionError:
            return False


def read_exactly(connection: socket.socket, size: int) -> bytes | None:
    found = bytearray()
    while len(found) < size:
        more = connection.recv(size - len(found))
        if not more:
            return None
        found += more
    return bytes(found)


def run_frames(
    kafka: KafkaTools,
    folder: Path,
    seed: int,
    count: int,
    rounds: int,
    say: Callable[[Report], None] = lambda report: None,
) -> Report:
    """Send frames in rounds, between which everything is taken away again.

    Args:
        kafka: for Kafka's reading of what was written.
        folder: an empty one.
        seed: of the frames.
        count: how many in all.
        rounds: in how many parts.
        say: called after each.

    Raises:
        Broken: silence, an unexpected error, the end of the process, memory that grows by more than
            `GROWTH_KIB`, or records of which Kafka's classes make something else.
    """
    report = Report()
    mutator = Mutator(Random(seed))
    target = Target(folder)
    sender = Sender(target, report)
    try:
        while target.log_end < 1:
            time.sleep(0.05)
        for _ in range(rounds):
            prepare(target, mutator)
            for frames in batches(mutator, count // rounds):
                sender.send(frames)
            target.check_alive()
            tidy(target)
            report.memory_kib.append(target.memory_kib)
            report.offset = target.log_end
            say(report)
            if report.memory_kib[-1] > report.memory_kib[0] + GROWTH_KIB:
                raise Broken(f"memory grows: {report}")
        end = report.offset
        newest = next(reversed(snapshots(target.log, end)), None)
        if images_of_kafka(kafka, [target.log], end) != [records_of(machine_at(target.log, end, newest))]:
            raise Broken(f"Kafka's classes make something else of {target.log}")
        return report
    finally:
        sender.close()
        target.close()
