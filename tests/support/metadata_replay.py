"""What Kafka's dump tool printed, replayed in plain Python: an independent judge of the gold tables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_LINE = re.compile(r"\| offset: (\d+) CreateTime: (-?\d+) .*?headerKeys: \[\] (?:payload: )?(.*)")
_CONTROL = re.compile(r"(LeaderChange|KRaftVersion|KRaftVoters|SnapshotHeader|SnapshotFooter):? (\{.*\})")
_BATCH = re.compile(
    r"baseOffset: (\d+) .*partitionLeaderEpoch: (\d+) .*isControl: (\w+) .*position: (\d+) .*size: (\d+)"
)


@dataclass(frozen=True)
class Printed:
    """One record as the tool printed it."""

    offset: int
    timestamp_ms: int
    epoch: int
    type: str
    version: int
    data: dict[str, Any]


def printed_records(path: Path) -> Iterator[Printed]:
    epoch = -1
    for line in path.read_text().splitlines():
        batch = _BATCH.match(line)
        if batch:
            epoch = int(batch[2])
        found = _LINE.match(line)
        if not found:
            continue
        control = _CONTROL.fullmatch(found[3])
        if control:
            data = json.loads(control[2])
            name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", control[1].replace("KRaft", "Kraft")).upper()
            yield Printed(int(found[1]), int(found[2]), epoch, name, data["version"], data)
        else:
            payload = json.loads(found[3])
            yield Printed(int(found[1]), int(found[2]), epoch, payload["type"], payload["version"], payload["data"])


def printed_log(node: Path) -> list[Printed]:
    """All records of a node's segments."""
    return [record for path in sorted((node / "dump").glob("*.log.txt")) for record in printed_records(path)]


@dataclass
class State:
    """The metadata after some records."""

    topics: dict[str, str] = field(default_factory=dict)
    partitions: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    brokers: dict[int, dict[str, Any]] = field(default_factory=dict)
    controllers: dict[int, str] = field(default_factory=dict)
    configs: dict[tuple[int, str, str], str] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    quotas: dict[tuple[Any, str], float] = field(default_factory=dict)
    scram: dict[tuple[str, int], int] = field(default_factory=dict)
    producer_ids: int | None = None
    voters: list[int] = field(default_factory=list)
    leader: tuple[int, int] | None = None

    def copy(self) -> State:
        return deepcopy(self)

    def apply(self, record: Printed) -> None:
        getattr(self, f"_{record.type.lower()}", lambda _data, _epoch: None)(record.data, record.epoch)

    def _topic_record(self, data: dict[str, Any], _: int) -> None:
        self.topics[data["topicId"]] = data["name"]

    def _remove_topic_record(self, data: dict[str, Any], _: int) -> None:
        name = self.topics.pop(data["topicId"])
        self.partitions = {key: value for key, value in self.partitions.items() if key[0] != data["topicId"]}
        self.configs = {key: value for key, value in self.configs.items() if key[:2] != (2, name)}

    def _partition_record(self, data: dict[str, Any], _: int) -> None:
        self.partitions[data["topicId"], data["partitionId"]] = {
            "replicas": data["replicas"],
            "isr": data["isr"],
            "removing": data["removingReplicas"],
            "adding": data["addingReplicas"],
            "leader": data["leader"],
            "recovery": data.get("leaderRecoveryState", 0),
            "leader_epoch": data["leaderEpoch"],
            "partition_epoch": data["partitionEpoch"],
            "elr": data.get("eligibleLeaderReplicas") or [],
            "last_known_elr": data.get("lastKnownElr") or [],
        }

    def _partition_change_record(self, data: dict[str, Any], _: int) -> None:
        one = self.partitions[data["topicId"], data["partitionId"]]
        one["partition_epoch"] += 1
        for key, name in (
            ("isr", "isr"),
            ("replicas", "replicas"),
            ("removingReplicas", "removing"),
            ("addingReplicas", "adding"),
            ("eligibleLeaderReplicas", "elr"),
            ("lastKnownElr", "last_known_elr"),
        ):
            if data.get(key) is not None:
                one[name] = data[key]
        if data.get("leader", -2) != -2:
            one["leader"] = data["leader"]
            one["leader_epoch"] += 1
        if data.get("leaderRecoveryState", -1) != -1:
            one["recovery"] = data["leaderRecoveryState"]

    def _clear_elr_record(self, data: dict[str, Any], _: int) -> None:
        for (topic_id, _partition), one in self.partitions.items():
            if data["topicName"] in ("", self.topics[topic_id]):
                one["elr"] = one["last_known_elr"] = []

    def _register_broker_record(self, data: dict[str, Any], _: int) -> None:
        self.brokers[data["brokerId"]] = {
            "epoch": data["brokerEpoch"],
            "incarnation": data["incarnationId"],
            "fenced": data["fenced"],
            "shutdown": data["inControlledShutdown"],
            "rack": data["rack"],
            "log_dirs": data.get("logDirs", []),
        }

    def _unregister_broker_record(self, data: dict[str, Any], _: int) -> None:
        del self.brokers[data["brokerId"]]

    def _broker_registration_change_record(self, data: dict[str, Any], _: int) -> None:
        one = self.brokers[data["brokerId"]]
        if data.get("fenced", 0):
            one["fenced"] = data["fenced"] == 1
        if data.get("inControlledShutdown", 0):
            one["shutdown"] = True
        if data.get("logDirs"):
            one["log_dirs"] = data["logDirs"]

    def _register_controller_record(self, data: dict[str, Any], _: int) -> None:
        self.controllers[data["controllerId"]] = data["incarnationId"]

    def _config_record(self, data: dict[str, Any], _: int) -> None:
        key = (data["resourceType"], data["resourceName"], data["name"])
        if data["value"] is None:
            self.configs.pop(key, None)
        else:
            self.configs[key] = data["value"]

    def _feature_level_record(self, data: dict[str, Any], _: int) -> None:
        self.features[data["name"]] = data["featureLevel"]

    def _client_quota_record(self, data: dict[str, Any], _: int) -> None:
        entity = tuple(sorted((one["entityType"], one["entityName"]) for one in data["entity"]))
        if data["remove"]:
            self.quotas.pop((entity, data["key"]), None)
        else:
            self.quotas[entity, data["key"]] = data["value"]

    def _user_scram_credential_record(self, data: dict[str, Any], _: int) -> None:
        self.scram[data["name"], data["mechanism"]] = data["iterations"]

    def _remove_user_scram_credential_record(self, data: dict[str, Any], _: int) -> None:
        del self.scram[data["name"], data["mechanism"]]

    def _producer_ids_record(self, data: dict[str, Any], _: int) -> None:
        self.producer_ids = data["nextProducerId"]

    def _kraft_version(self, data: dict[str, Any], _: int) -> None:
        self.features["kraft.version"] = data["kRaftVersion"]

    def _kraft_voters(self, data: dict[str, Any], _: int) -> None:
        self.voters = sorted(one["voterId"] for one in data["voters"])

    def _leader_change(self, data: dict[str, Any], epoch: int) -> None:
        self.leader = (epoch, data["leaderId"])
        if not self.features.get("kraft.version"):
            self.voters = sorted(one["voterId"] for one in data["voters"])


def replay(records: list[Printed], start: State | None = None) -> dict[int, State]:
    """The state after each record."""
    state, states = (start or State()).copy(), {}
    for record in records:
        state.apply(record)
        states[record.offset] = state.copy()
    return states
