"""An active controller's decisions, carried out at once: requests in, records into the image, the rules checked.

Every request, answer and record goes through its bytes, so that what cannot be written fails here.
After each decision ``check_rules`` holds the image against KIP-841 and what else must always be true.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kraftcore.core.uuid import Uuid
from kraftcore.metadata import Image
from kraftcore.plugins.controller.decision import Context, ControllerResult, ControllerSettings, Record, Refusal
from kraftcore.plugins.controller.registry import APIS
from kraftcore.plugins.controller.soft_state import SoftState
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.features import METADATA_VERSION, MINIMUM_METADATA_VERSION, MetadataVersion
from kraftcore.protocol.frames import decode_request, decode_response, encode_request, encode_response
from kraftcore.protocol.messages.alter_partition import AlterPartitionRequest
from kraftcore.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from kraftcore.protocol.messages.broker_registration import BrokerRegistrationRequest
from kraftcore.protocol.metadata import decode_metadata_record, encode_metadata_record
from kraftcore.protocol.records.feature_level_record import FeatureLevelRecord
from kraftcore.protocol.schema import Request, Response

CLUSTER = "the-cluster"
FEATURES_OF_BROKERS = {
    METADATA_VERSION: (int(MINIMUM_METADATA_VERSION), int(max(MetadataVersion))),
    "kraft.version": (0, 1),
    "eligible.leader.replicas.version": (0, 1),
}


class Unmixed:
    """No randomness: every choice is the first, nothing is shuffled, and bytes count upwards."""

    def __init__(self) -> None:
        self._drawn = 0

    def randrange(self, stop: int) -> int:
        return 0

    def shuffle(self, values: list[Any]) -> None:
        pass

    def randbytes(self, count: int) -> bytes:
        self._drawn += 1
        return self._drawn.to_bytes(count, "big")


@dataclass
class FakeBroker:
    """What a scripted broker knows of itself."""

    id: int
    rack: str | None = None
    directories: list[Uuid] = field(default_factory=list)
    epoch: int = -1
    incarnation: int = 1

    def __post_init__(self) -> None:
        if not self.directories:
            self.directories = [directory(self.id, 0)]


def directory(broker: int, number: int) -> Uuid:
    """A fixed id for a broker's directory."""
    return Uuid(b"dir" + bytes(7) + broker.to_bytes(4, "big") + number.to_bytes(2, "big"))


def incarnation(broker: int, number: int) -> Uuid:
    """A fixed id for a broker's process."""
    return Uuid(b"inc" + bytes(7) + broker.to_bytes(4, "big") + number.to_bytes(2, "big"))


@dataclass
class Step:
    """What one decision came to."""

    offset: int
    decision: ControllerResult
    error: ErrorCode | None = None

    @property
    def records(self) -> list[Record]:
        return self.decision.records

    @property
    def answer(self) -> Any:
        return self.decision.answer


class ControllerStage:
    """The image of a new cluster, a clock, and a hand on both."""

    def __init__(
        self, metadata_version: MetadataVersion = MetadataVersion.V4_3_IV0, *, elr: int = 1, **settings: Any
    ) -> None:
        self.settings = ControllerSettings(CLUSTER, **settings)
        self.image = Image(ahead=True)
        self.soft = SoftState()
        self.random: Any = Unmixed()
        self.now_ms = 0
        self.offset = 0
        self.brokers: dict[int, FakeBroker] = {}
        self._epochs: dict[Any, tuple[int, int, int]] = {}
        self._topic_ids: set[Uuid] = set()
        self._leaving_allowed: set[int] = set()
        self.apply((FeatureLevelRecord(name=METADATA_VERSION, feature_level=int(metadata_version)), 0))
        if elr:
            self.apply((FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=elr), 0))

    # --- deciding

    def context(self) -> Context:
        return Context(self.image, self.soft, self.now_ms, self.offset, self.settings, self.random)

    def ask(self, request: Request, version: int | None = None) -> Step:
        """Decide about a request as it comes off the wire, and carry it out."""
        versions = type(request).schema.versions
        version = versions[1] if version is None and versions is not None else version
        header, request = decode_request(encode_request(request, version, 7))
        api = APIS[type(request)]
        error = None
        try:
            decision = api.decide(self.context(), request, version)
        except Refusal as refused:
            error = refused.code
            decision = ControllerResult(api.refuse(request, version, refused.code, refused.text))
        frame = encode_response(decision.answer, version, 7)
        decision.answer = decode_response(frame, header.request_api_key, version)[1]
        step = Step(self.offset, decision, error)
        self.carry_out(decision)
        return step

    def on_timer(self, decide) -> Step:
        """Let a timer's decision be carried out."""
        step = Step(self.offset, decide(self.context()))
        self.carry_out(step.decision)
        return step

    def carry_out(self, decision: ControllerResult) -> None:
        for record in decision.records:
            self.apply(record)
        self.soft.update(decision.sessions)
        self.check_rules(decision)

    def apply(self, record: Record) -> None:
        message, version = record
        decoded = decode_metadata_record(encode_metadata_record(message, version))[0]
        assert decoded == message, "a record does not survive its own bytes"
        self.image.apply(decoded, self.offset)
        self.offset += 1

    def fail_over(self) -> None:
        """The next controller: the records are known, the soft state is not."""
        unfenced = [(each.id, each.epoch) for each in self.image.brokers.values() if not each.is_fenced]
        self.soft = SoftState.of_unfenced(unfenced, self.now_ms)

    # --- the rules

    def check_rules(self, decision: ControllerResult | None = None) -> None:
        """What must hold after every decision (KIP-841, KIP-516)."""
        self._note_unfenced(decision)
        brokers = self.image.brokers
        for topic in self.image.topics.values():
            self._topic_ids.add(topic.id)
            for number, each in self.image.partitions.of_topic(topic.id):
                what = f"{topic.name}-{number}"
                assert set(each.isr) <= set(each.replicas), f"{what}: the ISR {each.isr} is not within {each.replicas}"
                for member in each.isr:
                    broker = brokers.get(member)
                    alone = not self.image.features.is_elr_on and each.leader == -1 and len(each.isr) == 1
                    assert alone or (broker is not None and self._may_serve(broker)), (
                        f"{what}: broker {member} is in the ISR, but fenced, shutting down or not registered"
                    )
                if each.leader != -1:
                    assert each.leader in each.isr, f"{what}: the leader {each.leader} is not in the ISR {each.isr}"
                assert not set(each.isr) & set(each.elr), f"{what}: in ISR and ELR at once"
                assert len(each.directories) == len(each.replicas), f"{what}: directories for other replicas"
                before = self._epochs.get((topic.id, number))
                now = (each.leader, each.leader_epoch, each.partition_epoch)
                if before is not None:
                    assert now[1:] >= before[1:] and now[2] >= before[2], f"{what}: epochs went back"
                    assert now[0] == before[0] or now[1] > before[1], f"{what}: another leader at the same epoch"
                self._epochs[topic.id, number] = now

    def _note_unfenced(self, decision: ControllerResult | None) -> None:
        """Kafka 4.3.1 lets a broker lead that is unfenced after its controlled shutdown without registering anew."""
        for record, _ in decision.records if decision is not None else ():
            name = type(record).__name__
            if name == "BrokerRegistrationChangeRecord" and record.fenced:
                (self._leaving_allowed.add if record.fenced == -1 else self._leaving_allowed.discard)(record.broker_id)
            elif name == "RegisterBrokerRecord" and not record.in_controlled_shutdown:
                self._leaving_allowed.discard(record.broker_id)
            elif name == "TopicRecord":
                assert record.topic_id not in self._topic_ids, "a topic id is given twice"

    def _may_serve(self, broker: Any) -> bool:
        return not broker.is_fenced and (not broker.is_shutting_down or broker.id in self._leaving_allowed)

    # --- brokers

    def register(self, broker: FakeBroker, version: int | None = None, **changes: Any) -> Step:
        kind = BrokerRegistrationRequest
        request = kind(
            broker_id=broker.id,
            cluster_id=CLUSTER,
            incarnation_id=incarnation(broker.id, broker.incarnation),
            listeners=[kind.Listener(name="PLAINTEXT", host=f"b{broker.id}", port=9092)],
            features=[
                kind.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in FEATURES_OF_BROKERS.items()
            ],
            rack=broker.rack,
            log_dirs=broker.directories,
        )
        self.brokers[broker.id] = broker
        step = self.ask(request.replace(**changes), version)
        if step.error is None:
            broker.epoch = step.answer.broker_epoch
        return step

    def heartbeat(self, broker_id: int, version: int | None = None, **changes: Any) -> Step:
        broker = self.brokers.get(broker_id) or FakeBroker(broker_id)
        request = BrokerHeartbeatRequest(
            broker_id=broker_id, broker_epoch=broker.epoch, current_metadata_offset=self.offset
        )
        return self.ask(request.replace(**changes), version)

    def up(self, *brokers: FakeBroker) -> None:
        """Register and unfence."""
        for broker in brokers:
            assert self.register(broker).error is None
            assert not self.heartbeat(broker.id).answer.is_fenced

    def alter(self, sender: int, topic: str, number: int, isr: list[int], version: int = 3, **changes: Any) -> Step:
        """AlterPartition of one partition with the epochs as they are."""
        known = self.image.topics.by_name(topic)
        topic_id = changes.pop("topic_id", known.id if known else Uuid(b"T" * 16))
        partition = self.image.partitions.get(topic_id, number)
        kind = AlterPartitionRequest.TopicData.PartitionData
        epochs = changes.pop("epochs", {})
        broker_epoch = changes.pop("broker_epoch", self.brokers[sender].epoch)
        wanted = kind(
            partition_index=number,
            leader_epoch=partition.leader_epoch if partition else 0,
            partition_epoch=partition.partition_epoch if partition else 0,
        )
        if version >= 3:
            wanted.new_isr_with_epochs = [
                kind.BrokerState(broker_id=each, broker_epoch=epochs.get(each, self._epoch_of(each))) for each in isr
            ]
        else:
            wanted.new_isr = isr
        steps = {name: changes.pop(name) for name in ("leader_epoch", "partition_epoch") if name in changes}
        for name, step in steps.items():
            setattr(wanted, name, getattr(wanted, name) + step)
        topic_data = AlterPartitionRequest.TopicData(topic_id=topic_id, partitions=[wanted.replace(**changes)])
        return self.ask(
            AlterPartitionRequest(broker_id=sender, broker_epoch=broker_epoch, topics=[topic_data]), version
        )

    def _epoch_of(self, broker_id: int) -> int:
        return self.brokers[broker_id].epoch if broker_id in self.brokers else -1


def error_of(answer: Response) -> ErrorCode:
    """The error of a whole answer."""
    return ErrorCode.of(getattr(answer, "error_code", 0))
