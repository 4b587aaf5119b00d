"""Runs the commands of the controller's scenario files; the transcript shows records and answers.

Commands (words; ``key=value`` options in any order; PARTITION is ``TOPIC-NUMBER``; lists have commas and no spaces):

    cluster [metadata=4.3] [elr=0|1] [partitions=N] [factor=N] [deletion=0] [KEY=VALUE]    a new one; keys with dots are
                                 the controller's own configuration
    register ID [rack=R] [dirs=N] [process=N] [previous=EPOCH] [cluster=C] [dir=DIR,..|none] [feature=NAME:LOW-HIGH|
                                 NAME:none] [protocol=N] [port=N] [v=N]    ``process`` is its incarnation
    heartbeat ID [offset=N|end] [want=fence|shutdown|both] [offline=DIR,..] [cordoned=DIR,..|none] [epoch=+N] [v=N]
    unfence ID... | fence ID... | shutdown ID | unregister ID
    up ID... [rack=R,R..] [dirs=N]    registered and unfenced, without a transcript
    create-topic NAME [COUNTxFACTOR | REPLICAS REPLICAS...] [KEY=VALUE] [validate=1] [timeout=MS] [v=N]
    create-topics NAME... [count=N] [factor=N]    in one request
    delete-topics NAME|id:NAME... [v=N]
    create-partitions NAME COUNT [REPLICAS...] [validate=1]
    alter-partition ID PARTITION ISR [leader-epoch=+N] [partition-epoch=+N] [recovering=1] [epoch=N] [of=ID:EPOCH] [v=N]
    assign ID DIR PARTITION...
    elect preferred|unclean|NUMBER PARTITION...|all [v=N]
    reassign PARTITION REPLICAS|none [keep-factor=1] | cancel PARTITION | reassignments [PARTITION...]
    ask-nothing                  requests whose lists are empty, from a broker unknown and without time
    set TOPIC KEY=VALUE | clear-elr TOPIC    a Config or ClearElr record, as another decision would write it
    pass MS | expire | rebalance | elect-offline | failover    time goes by; what the timers do; another controller
    quietly COMMAND...           carry it out and leave its transcript away
    state PARTITION... | brokers

A directory is ``ID`` and a letter: ``2b`` is the second one of broker 2. Topics are called by their names.
"""

from __future__ import annotations

from typing import Any

from controller_stage import FEATURES_OF_BROKERS, ControllerStage, FakeBroker, Step, directory

from kraftcore.core.uuid import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, ZERO_UUID, Uuid
from kraftcore.plugins.controller.brokers import fence_expired
from kraftcore.plugins.controller.elections import elect_unclean_leaders, rebalance_leaders
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.features import MetadataVersion
from kraftcore.protocol.messages.alter_partition import AlterPartitionRequest
from kraftcore.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kraftcore.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from kraftcore.protocol.messages.broker_registration import BrokerRegistrationRequest
from kraftcore.protocol.messages.create_partitions import CreatePartitionsRequest
from kraftcore.protocol.messages.create_topics import CreateTopicsRequest
from kraftcore.protocol.messages.delete_topics import DeleteTopicsRequest
from kraftcore.protocol.messages.elect_leaders import ElectLeadersRequest
from kraftcore.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from kraftcore.protocol.messages.unregister_broker import UnregisterBrokerRequest
from kraftcore.protocol.records.clear_elr_record import ClearElrRecord
from kraftcore.protocol.records.config_record import ConfigRecord
from kraftcore.protocol.records.register_broker_record import RegisterBrokerRecord

# What is the same everywhere, or tells nothing here.
_LEFT_OUT = {"throttle_time_ms", "unknown_tagged_fields", "read_only", "is_sensitive"}
_SETTINGS = {"partitions": "default_partitions", "factor": "default_replication_factor"}


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",") if word]


def _partition(text: str) -> tuple[str, int]:
    name, _, number = text.rpartition("-")
    return name, int(number)


class Stage:
    """One scenario."""

    def __init__(self) -> None:
        self.stage = ControllerStage()
        self.names: dict[Uuid, str] = {
            ZERO_UUID: "zero",
            UNASSIGNED_DIRECTORY: "unassigned",
            LOST_DIRECTORY: "lost",
            MIGRATING_DIRECTORY: "migrating",
        }
        self.lines: list[str] = []

    def run(self, command: str) -> str:
        words = command.split()
        options = dict(word.split("=", 1) for word in words[1:] if "=" in word)
        plain = [word for word in words[1:] if "=" not in word]
        self.lines = []
        getattr(self, "do_" + words[0].replace("-", "_"))(*plain, **options)
        return "\n".join(self.lines) or "ok"

    def do_quietly(self, *words, **options):
        self.run(" ".join([*words, *(f"{key}={value}" for key, value in options.items())]))
        self.lines = []

    # --- the transcript

    def tell(self, step: Step) -> None:
        for count, (record, version) in enumerate(step.records):
            name = type(record).__name__.removesuffix("Record")
            if name == "Topic":
                self.names[record.topic_id] = record.name
            self.lines.append(f"{step.offset + count}: {name} v{version} {self.fields(record)}".rstrip())
        if step.answer is not None:
            self.lines.append(f"-> {self.fields(step.answer) or 'done'}")

    def fields(self, struct: Any) -> str:
        """Its fields that are not at their defaults."""
        blank = type(struct)()
        names = [name for name in type(struct).__slots__ if name not in _LEFT_OUT]
        if "partition_id" in names and "topic_id" in names:  # a partition by its usual name
            rest = [name for name in names if name not in ("partition_id", "topic_id")]
            return " ".join([f"{self.value(struct.topic_id)}-{struct.partition_id}", *self._pairs(struct, blank, rest)])
        return " ".join(self._pairs(struct, blank, names))

    def _pairs(self, struct: Any, blank: Any, names: list[str]) -> list[str]:
        pairs = []
        for name in names:
            value = getattr(struct, name)
            if value == getattr(blank, name):
                continue
            if name.endswith("error_code"):
                pairs.append(ErrorCode.of(value).name)
            elif name.endswith("error_message"):
                pairs.append(repr(value))
            else:
                pairs.append(f"{name}={self.value(value)}")
        return pairs

    def value(self, value: Any) -> str:
        if isinstance(value, list):
            return "[" + " ".join(self.value(each) for each in value) + "]"
        if isinstance(value, Uuid):
            return self.names.get(value) or _own_name(value)
        if isinstance(value, RegisterBrokerRecord.BrokerFeature):
            return f"{value.name}:{value.min_supported_version}-{value.max_supported_version}"
        return f"({self.fields(value)})" if hasattr(type(value), "__layout__") else str(value)

    # --- brokers

    def do_cluster(self, metadata="4.3", elr="1", deletion="1", **options):
        configs = {key: value for key, value in options.items() if "." in key}
        settings = {_SETTINGS[key]: int(value) for key, value in options.items() if key in _SETTINGS}
        level = MetadataVersion.from_text(metadata)
        self.stage = ControllerStage(
            level, elr=int(elr), is_topic_deletion_enabled=deletion == "1", static_configs=configs, **settings
        )

    def _broker(self, number: int, rack=None, dirs="1") -> FakeBroker:
        homes = [directory(number, each) for each in range(int(dirs))]
        known = self.stage.brokers.get(number)
        if known is None:
            return FakeBroker(number, rack, homes)
        known.rack = known.rack if rack is None else rack
        known.directories = homes if dirs != "1" else known.directories
        return known

    def do_register(self, number, process=None, v=None, rack=None, dirs="1", **options):
        broker = self._broker(int(number), rack, dirs)
        before = broker.incarnation
        broker.incarnation = before if process is None else int(process)
        changes: dict[str, Any] = {}
        if "dir" in options:
            changes["log_dirs"] = self.directories(options["dir"])
        if "cluster" in options:
            changes["cluster_id"] = options["cluster"]
        if "previous" in options:
            changes["previous_broker_epoch"] = int(options["previous"])
        if "protocol" in options or "port" in options:
            changes["listeners"] = [
                BrokerRegistrationRequest.Listener(
                    name="X",
                    host="x",
                    port=int(options.get("port", 1)),
                    security_protocol=int(options.get("protocol", 0)),
                )
            ]
        version = None if v is None else int(v)
        if "feature" in options:
            changes["features"] = self._features(options["feature"])
        step = self.stage.register(broker, version, **changes)
        if step.error is not None:
            broker.incarnation = before
        self.tell(step)

    def _features(self, text: str) -> list[Any]:
        kind = BrokerRegistrationRequest.Feature
        name, _, span = text.partition(":")
        ranges = dict(FEATURES_OF_BROKERS)
        if span == "none":
            del ranges[name]
        else:
            low, _, high = span.partition("-")
            ranges[name] = (int(low), int(high))
        return [
            kind(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in ranges.items()
        ]

    def directories(self, text: str) -> list[Uuid]:
        special = {"unassigned": UNASSIGNED_DIRECTORY, "lost": LOST_DIRECTORY, "migrating": MIGRATING_DIRECTORY}
        words = [word for word in text.split(",") if word not in ("", "none")]
        return [special.get(word) or directory(int(word[:-1]), ord(word[-1]) - ord("a")) for word in words]

    def do_heartbeat(self, number, v=None, want="", **options):
        broker = self.stage.brokers.get(int(number))
        changes: dict[str, Any] = {
            "want_fence": want in ("fence", "both"),
            "want_shut_down": want in ("shutdown", "both"),
        }
        if options.get("offset", "end") != "end":
            changes["current_metadata_offset"] = int(options["offset"])
        if "offline" in options:
            changes["offline_log_dirs"] = self.directories(options["offline"])
        if "cordoned" in options:
            changes["cordoned_log_dirs"] = self.directories(options["cordoned"])
        if "epoch" in options:
            changes["broker_epoch"] = (broker.epoch if broker else 0) + int(options["epoch"])
        self.tell(self.stage.heartbeat(int(number), None if v is None else int(v), **changes))

    def do_unfence(self, *numbers):
        for number in numbers:
            self.do_heartbeat(number)

    def do_fence(self, *numbers):
        for number in numbers:
            self.do_heartbeat(number, want="fence")

    def do_shutdown(self, number):
        self.do_heartbeat(number, want="shutdown")

    def do_unregister(self, number):
        self.tell(self.stage.ask(UnregisterBrokerRequest(broker_id=int(number))))

    def do_up(self, *numbers, rack="", dirs="1"):
        racks = dict(zip(numbers, rack.split(","), strict=False)) if rack else {}
        self.stage.up(*(self._broker(int(number), racks.get(number), dirs) for number in numbers))

    # --- topics

    def _new_topic(self, name: str, parts: tuple[str, ...], configs: dict[str, str]) -> Any:
        kind = CreateTopicsRequest.CreatableTopic
        topic = kind(name=name, num_partitions=-1, replication_factor=-1)
        if parts and "x" in parts[0]:
            count, _, factor = parts[0].partition("x")
            topic.num_partitions, topic.replication_factor = int(count), int(factor)
        else:
            topic.assignments = [
                kind.CreatableReplicaAssignment(partition_index=number, broker_ids=_numbers(each))
                for number, each in enumerate(parts)
            ]
        topic.configs = [
            kind.CreatableTopicConfig(name=key, value=None if value == "null" else value)
            for key, value in configs.items()
        ]
        return topic

    def do_create_topic(self, name, *parts, v=None, validate="0", timeout="30000", **configs):
        name = name.strip("'")
        request = CreateTopicsRequest(
            topics=[self._new_topic(name, parts, configs)], timeout_ms=int(timeout), validate_only=validate == "1"
        )
        self._tell_created(request, v)

    def do_create_topics(self, *names, count="1", factor="1"):
        request = CreateTopicsRequest(topics=[self._new_topic(name, (f"{count}x{factor}",), {}) for name in names])
        self._tell_created(request, None)

    def _tell_created(self, request: CreateTopicsRequest, v: str | None) -> None:
        step = self.stage.ask(request, None if v is None else int(v))
        for record, _ in step.records:
            if type(record).__name__ == "TopicRecord":
                self.names[record.topic_id] = record.name
        for topic in step.answer.topics:
            self.names.setdefault(topic.topic_id, "an id")
            topic.configs = []  # what they are is told where configs are tested
        self.tell(step)

    def do_delete_topics(self, *names, v=None):
        version = 6 if v is None else int(v)
        request = DeleteTopicsRequest(timeout_ms=30_000)
        if version < 6:
            request.topic_names = list(names)
        else:
            known = {name: topic_id for topic_id, name in self.names.items()}
            request.topics = [self._to_delete(name, known) for name in names]
        self.tell(self.stage.ask(request, version))

    def _to_delete(self, word: str, known: dict[str, Uuid]) -> Any:
        kind = DeleteTopicsRequest.DeleteTopicState
        name, _, topic = word.partition("id:")
        return kind(name=name or None, topic_id=known.get(topic, Uuid(b"?" * 16)) if topic else ZERO_UUID)

    def do_create_partitions(self, name, count, *replicas, validate="0", timeout="30000"):
        kind = CreatePartitionsRequest.CreatePartitionsTopic
        assignments = [kind.CreatePartitionsAssignment(broker_ids=_numbers(each)) for each in replicas] or None
        topic = kind(name=name, count=int(count), assignments=assignments)
        self.tell(
            self.stage.ask(
                CreatePartitionsRequest(topics=[topic], timeout_ms=int(timeout), validate_only=validate == "1")
            )
        )

    # --- partitions

    def do_alter_partition(self, sender, partition, isr, v="3", **options):
        name, number = _partition(partition)
        changes: dict[str, Any] = {}
        for key in ("leader-epoch", "partition-epoch"):
            if key in options:
                changes[key.replace("-", "_")] = int(options[key])
        if "recovering" in options:
            changes["leader_recovery_state"] = int(options["recovering"])
        if "epoch" in options:
            changes["broker_epoch"] = int(options["epoch"])
        if "of" in options:
            member, _, epoch = options["of"].partition(":")
            changes["epochs"] = {int(member): int(epoch)}
        if name.startswith("id:"):
            known = {known_name: topic_id for topic_id, known_name in self.names.items()}
            changes["topic_id"] = known.get(name[3:], Uuid(b"?" * 16))
        self.tell(self.stage.alter(int(sender), name, number, _numbers(isr.strip("-")), int(v), **changes))

    def do_assign(self, number, where, *partitions, epoch="0"):
        kind = AssignReplicasToDirsRequest.DirectoryData
        topics: dict[str, Any] = {}
        for each in partitions:
            name, index = _partition(each)
            known = self.stage.image.topics.by_name(name)
            topic_id = known.id if known else Uuid(b"?" * 16)
            topic = topics.setdefault(name, kind.TopicData(topic_id=topic_id))
            topic.partitions.append(kind.TopicData.PartitionData(partition_index=index))
        wanted = kind(id=self.directories(where)[0], topics=list(topics.values()))
        request = AssignReplicasToDirsRequest(
            broker_id=int(number), broker_epoch=self.stage.brokers[int(number)].epoch + int(epoch), directories=[wanted]
        )
        self.tell(self.stage.ask(request))

    def do_elect(self, kind, *partitions, v=None):
        wanted: dict[str, Any] | None = {}
        for each in partitions:
            if each == "all":
                wanted = None
                break
            name, number = _partition(each)
            topic = wanted.setdefault(name, ElectLeadersRequest.TopicPartitions(topic=name))
            topic.partitions.append(number)
        version = 2 if v is None else int(v)
        request = ElectLeadersRequest(topic_partitions=None if wanted is None else list(wanted.values()))
        if version:
            request.election_type = {"preferred": 0, "unclean": 1}[kind] if kind.isalpha() else int(kind)
        self.tell(self.stage.ask(request, version))

    def do_reassign(self, partition, replicas=None, v=None, **options):
        name, number = _partition(partition)
        kind = AlterPartitionReassignmentsRequest.ReassignableTopic
        wanted = None if replicas is None else [] if replicas == "none" else _numbers(replicas)
        topic = kind(name=name, partitions=[kind.ReassignablePartition(partition_index=number, replicas=wanted)])
        request = AlterPartitionReassignmentsRequest(topics=[topic])
        request.allow_replication_factor_change = options.get("keep-factor") != "1"
        self.tell(self.stage.ask(request, None if v is None else int(v)))

    def do_cancel(self, partition):
        self.do_reassign(partition)

    def do_reassignments(self, *partitions):
        kind = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
        pairs = [_partition(each) for each in partitions]
        topics = [kind(name=name, partition_indexes=[number]) for name, number in pairs] or None
        self.tell(self.stage.ask(ListPartitionReassignmentsRequest(topics=topics)))

    def do_ask_nothing(self):
        for request in (
            AlterPartitionRequest(broker_id=99, broker_epoch=99),
            ElectLeadersRequest(topic_partitions=[], timeout_ms=0),
            AlterPartitionReassignmentsRequest(timeout_ms=0),
            ListPartitionReassignmentsRequest(topics=[], timeout_ms=0),
            CreateTopicsRequest(timeout_ms=0),
            CreatePartitionsRequest(timeout_ms=0),
            DeleteTopicsRequest(timeout_ms=0),
        ):
            self.tell(self.stage.ask(request))

    def do_set(self, topic, **configs):
        for key, value in configs.items():
            self.stage.apply((ConfigRecord(resource_type=2, resource_name=topic, name=key, value=value), 0))

    def do_clear_elr(self, topic):
        self.stage.apply((ClearElrRecord(topic_name=topic), 0))

    # --- time

    def do_pass(self, milliseconds):
        self.stage.now_ms += int(milliseconds)

    def do_expire(self):
        self._timer(fence_expired)

    def do_rebalance(self):
        self._timer(rebalance_leaders)

    def do_elect_offline(self):
        self._timer(elect_unclean_leaders)

    def _timer(self, decide):
        while True:
            step = self.stage.on_timer(decide)
            self.tell(step)
            if not step.decision.is_more:
                return

    def do_failover(self):
        self.stage.fail_over()

    # --- looking

    def do_state(self, *partitions):
        for each in partitions:
            name, number = _partition(each)
            topic = self.stage.image.topics.by_name(name)
            found = self.stage.image.partitions.get(topic.id, number)
            lists = {"isr": found.isr, "elr": found.elr, "last": found.last_known_elr}
            lists |= {"adding": found.adding, "removing": found.removing}
            shown = "".join(f" {key}={list(value)}" for key, value in lists.items() if value or key == "isr")
            recovering = " recovering" if found.recovery_state else ""
            self.lines.append(
                f"{each}: replicas={list(found.replicas)}{shown} leader={found.leader} "
                f"epochs={found.leader_epoch},{found.partition_epoch}{recovering}"
            )

    def do_brokers(self):
        for each in sorted(self.stage.image.brokers.values(), key=lambda each: each.id):
            state = "fenced" if each.is_fenced else "unfenced"
            leaving = " shutting-down" if each.is_shutting_down else ""
            self.lines.append(f"{each.id}: epoch={each.epoch} {state}{leaving}")


def _own_name(value: Uuid) -> str:
    """Of an id that the stage made."""
    data = bytes(value)
    broker, number = int.from_bytes(data[10:14], "big"), int.from_bytes(data[14:], "big")
    if data[:3] == b"dir":
        return f"{broker}{chr(ord('a') + number)}"
    return f"process-{number}" if data[:3] == b"inc" else "unknown"
