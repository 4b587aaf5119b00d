"""A broker of Kafka 3.9.1 and one of ours under one controller of the ZooKeeper era: this script's.

Each has a controller's requests (LeaderAndIsr, StopReplica, UpdateMetadata) and clients' between them; answers and the
folders of logs are compared. The other brokers that assignments name do not exist.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from replica_suite.peers import Controller, State, Topic, live_broker
from replica_suite.target import Workspace

from broker_twin.normal import differences, plain
from broker_twin.pair import Difference
from broker_twin.side import Side
from broker_twin.steps import KINDS
from broker_twin.world import Params, World
from kraftcore.core.uuid import Uuid
from kraftcore.errors import KraftError
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest

CONTROLLER_EPOCH = 10
OTHERS = (2, 3)
CLIENTS = {
    "produce": 10, "fetch": 20, "list-offsets": 12, "epoch-ends": 8, "metadata": 15, "delete-records": 3, "log-dirs": 4,
}  # fmt: skip
CONTROL = {"leader-and-isr": 35, "stop-replica": 18, "update-metadata": 22}
VERSIONS = {"leader-and-isr": (0, 7), "stop-replica": (0, 4), "update-metadata": (3, 8)}
"""UpdateMetadata below version 3 names no listeners: two of one protocol, as here, cannot be told apart."""
TOPICS = 3
PARTITIONS = 2


class Ruled:
    """One of the two brokers, and its controller."""

    def __init__(self, workspace: Workspace, ports: list[int]) -> None:
        self.broker = workspace.broker(1)
        fakes = [SimpleNamespace(node=node, port=port) for node, port in zip(OTHERS, ports, strict=True)]
        self.controller = Controller(self.broker, fakes, CONTROLLER_EPOCH)
        self.broker.start()
        node: Any = SimpleNamespace(port=self.broker.client_port, folder=self.broker.log_dirs[0])
        self.side = Side(node)
        found = self.side.ask("setup", ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
        self.versions = {each.api_key: (each.min_version, each.max_version) for each in found.api_keys}

    def folders(self, topic: str, partition: int) -> bool:
        """Whether a partition has a log."""
        return self.broker.dir(topic, partition) is not None


class Rule:
    """Both of them; the processes end with the context."""

    def __init__(self, libs: Path, folder: Path) -> None:
        self._spaces = []
        for kind in ("kafka", "kraftcore"):
            (folder / kind).mkdir(parents=True)
            self._spaces.append(Workspace(kind, folder / kind, libs))
        self.codes: Counter[tuple[str, int]] = Counter()
        self._scripts = 0
        self.sides: list[Ruled] = []

    def __enter__(self) -> Rule:
        ports = [self._spaces[0].port() for _ in OTHERS]
        self.sides = [Ruled(space, ports) for space in self._spaces]
        return self

    def __exit__(self, *_: Any) -> None:
        for each in self.sides:
            each.side.close_all()
        for space in self._spaces:
            space.__exit__()

    def run(self, seed: int, steps: int) -> list[Difference]:
        """Make and play the script of a seed, on topics of its own."""
        self._scripts += 1
        topics = [Topic(f"c{self._scripts}-{number}") for number in range(TOPICS)]
        ids = {topic.name: Uuid.from_string(topic.id) for topic in topics}
        for each in self.sides:
            each.side.ids = dict(ids)
        script = list(self._script(seed, steps, [topic.name for topic in topics]))
        named = {topic.name: topic for topic in topics}
        found = []
        with ThreadPoolExecutor(len(self.sides)) as threads:
            for number, step in enumerate(script):
                theirs, ours = threads.map(lambda each, step=step: self._answer(each, step, named), self.sides)
                found += [Difference(number, step, *place) for place in differences(theirs, ours)]
        return found

    def _script(self, seed: int, steps: int, names: list[str]) -> Iterator[Params]:
        rng = random.Random(seed)
        world = World(dict.fromkeys(names, PARTITIONS), names[0].partition("-")[0], int(time.time() * 1000))
        kinds = CLIENTS | CONTROL
        for _ in range(steps):
            name = rng.choices(list(kinds), list(kinds.values()))[0]
            if name in CONTROL:
                version = rng.randint(*VERSIONS[name])
                yield {"kind": name, "version": version, "params": _draw_control(rng, name, names)}
                continue
            kind = KINDS[name]
            spans = [each.versions[kind.request.schema.api_key] for each in self.sides]
            low, high = max(span[0] for span in spans), min(span[1] for span in spans)
            version = rng.randint(max(low, kind.request.schema.versions[0]), high)
            params = kind.draw(rng, world) | {"version": version}
            if name == "produce" and rng.random() < 0.9:
                params["acks"] = 1
            if params.get("flaw") == "future":
                params["flaw"] = None  # 4.3.1 has another default of how far that may be
            params |= {"twice": False} if "twice" in params else {}  # 3.9.1 answers for each, 4.3.1 once
            yield {"kind": name, "version": version, "params": params}

    def _answer(self, each: Ruled, step: Params, topics: dict[str, Topic]) -> Any:
        params, version = step["params"], step["version"]
        if step["kind"] in CONTROL:
            found = _control(each.controller, step["kind"], version, params, topics)
            for code in _errors(found):
                self.codes[step["kind"], code] += 1
            logs = {f"{name}-{n}": each.folders(name, n) for name in topics for n in range(PARTITIONS)}
            return {"answer": _sorted(found), "logs": logs}
        kind = KINDS[step["kind"]]
        try:
            answer = each.side.ask("client", kind.make(params, each.side), version)
        except KraftError as error:
            return {"cannot be asked": str(error)}
        return {"answer": answer} if isinstance(answer, str) else plain(answer, each.side)


def is_of_its_release(found: Difference) -> bool:
    """Whether Kafka 3.9.1 does something that 4.3.1, which ours follows, does not."""
    # It tells followers, too, where leaders listen.
    return found.step["kind"] == "fetch" and found.step["params"]["replica"] >= 0 and found.path == ".node_endpoints"


def _draw_control(rng: random.Random, kind: str, names: list[str]) -> Params:
    def epoch(least: int) -> int:
        return rng.choice((least, 0, 1, 2, 3, 4, 5))

    states = []
    for name in rng.sample(names, rng.choice((1, 1, 2))):
        partitions = rng.sample(range(PARTITIONS), rng.choice((1, 1, 2)))
        if rng.random() < 0.1:
            partitions.append(rng.choice(partitions))  # named twice
        for partition in partitions:
            # Kafka keeps an object of a partition that it was named and is no replica of: clients that say an epoch can
            # tell it from one that it never heard of.
            without = [[2, 3]] if kind == "update-metadata" else []
            replicas = rng.choice(([1], [1, 2], [2, 1], [1, 2, 3], [3, 1], *without))
            state: Params = {"topic": name, "partition": partition}
            if kind == "stop-replica":
                state |= {"epoch": rng.choice((-1, -2, 0, 1, 2, 3, 4, 5, 6)), "delete": rng.random() < 0.5}
            else:
                state |= {
                    "leader": rng.choice((1, 1, 1, replicas[0], 2, -1, -2 if kind == "update-metadata" else 1, 9)),
                    "epoch": epoch(0),
                    "replicas": replicas,
                    "isr": replicas[: rng.randint(1, len(replicas))],
                    "partition_epoch": epoch(0),
                    "another_id": rng.random() < 0.04,
                    "no_id": rng.random() < 0.06,
                    "is_new": rng.random() < 0.5,
                }
            states.append(state)
    return {
        "states": states,
        "epoch": CONTROLLER_EPOCH if rng.random() < 0.94 else rng.choice((CONTROLLER_EPOCH - 1, -1, 0)),
        "broker_epoch": -1 if rng.random() < 0.95 else rng.choice((0, 2**62)),
        "delete": rng.random() < 0.5,
        "type": rng.choice((0, 0, 0, 1, 2)),
        "live": rng.choice(("all", "all", "all", "me")),
    }


def _control(controller: Controller, kind: str, version: int, params: Params, topics: dict[str, Topic]) -> Any:
    more = {"version": version, "epoch": params["epoch"], "broker_epoch": params["broker_epoch"]}
    if kind == "stop-replica":
        stops = [(topics[each["topic"]], each["partition"], each["epoch"], each["delete"]) for each in params["states"]]
        return controller.stop_replica(*stops, delete=params["delete"], **more)
    states = []
    for each in params["states"]:
        topic = topics[each["topic"]]
        if each["another_id"] or each["no_id"]:
            topic = SimpleNamespace(name=topic.name, id=ZERO if each["no_id"] else ANOTHER)
        options = {"IsNew": each["is_new"]} if kind == "leader-and-isr" and version >= 1 else {}
        state = State(
            topic, each["partition"], each["leader"], each["epoch"], each["isr"], each["replicas"],
            each["partition_epoch"], **options,
        )  # fmt: skip
        states.append(state)
    if kind == "leader-and-isr":
        return controller.leader_and_isr(*states, kind=params["type"], **more)
    broker = controller.broker
    me = live_broker(broker.node, {"BROKER": broker.port, "CLIENT": broker.client_port})
    return controller.update_metadata(*states, live=None if params["live"] == "all" else [me], **more)


ZERO, ANOTHER = "AAAAAAAAAAAAAAAAAAAAAA", "QW5vdGhlciB0b3BpYydzIA"


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(each) for name, each in value.items()}
    if isinstance(value, list):
        return sorted((_sorted(each) for each in value), key=lambda each: json.dumps(each, sort_keys=True, default=str))
    return value


def _errors(value: Any) -> Iterator[int]:
    if isinstance(value, dict):
        for name, each in value.items():
            if name == "ErrorCode":
                yield each
            yield from _errors(each)
    elif isinstance(value, list):
        for each in value:
            yield from _errors(each)
