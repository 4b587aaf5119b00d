"""Kafka's broker and ours, each a cluster by itself, and scripts on both of them."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka_lab import HOST, KafkaLab, KafkaNode, KraftcoreNode, free_port, wait_for
from kafka_tools import KafkaTools

from broker_twin.normal import differences, is_message, plain
from broker_twin.side import CLOSED, Side
from broker_twin.steps import KINDS, script
from broker_twin.world import Params
from kraftcore.errors import KraftError
from kraftcore.protocol.messages.create_topics import CreateTopicsRequest

MAX_TIMESTAMP = -3
UNKNOWN_SERVER_ERROR = NOTHING = -1
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "plain": (3, {}),
    "append": (1, {"message.timestamp.type": "LogAppendTime"}),
    "compact": (1, {"cleanup.policy": "compact"}),
    "small": (1, {"segment.bytes": "1048576", "max.message.bytes": "5000"}),
    "unzipped": (1, {"compression.type": "uncompressed", "message.timestamp.after.max.ms": "3600000"}),
    "zipped": (1, {"compression.type": "gzip", "message.timestamp.before.max.ms": "3600000"}),
}
SETTINGS = {
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    "auto.create.topics.enable": "false",
}


@dataclass(frozen=True)
class Difference:
    """One place of one answer.

    Attributes:
        number: of the step.
        step: itself.
        path: in the answer.
        theirs, ours: what stands there.
    """

    number: int
    step: Params
    path: str
    theirs: Any
    ours: Any

    @property
    def sign(self) -> str:
        """What it is about, for counting and leaving out."""
        place = "".join("#" if each.isdigit() else each for each in self.path)
        return f"{self.step['kind']} v{self.step['version']} {place}"

    def __str__(self) -> str:
        told = json.dumps(self.step["params"], default=str)
        return f"step {self.number} {self.sign}: Kafka {self.theirs!r:.300}, kraftcore {self.ours!r:.300}\n    {told}"


class Pair:
    """A broker of Kafka and one of ours, to which scripts are played. The labs end with the context."""

    def __init__(self, kafka: KafkaTools, folder: Path) -> None:
        self._labs = [KafkaLab(kafka, folder / name) for name in ("theirs", "ours") if _made(folder / name)]
        self._labs[1].cluster_id = self._labs[0].cluster_id
        self._kinds: tuple[type[KafkaNode], type[KafkaNode]] = (KafkaNode, KraftcoreNode)
        self.sides: list[Side] = []
        self.codes: Counter[tuple[str, int]] = Counter()
        self._scripts = 0

    def __enter__(self) -> Pair:
        for lab, kind in zip(self._labs, self._kinds, strict=True):
            lab.__enter__()
            node = lab.add(kind, 1, "broker,controller", "PLAINTEXT")
            other = free_port()
            node.write(
                listeners=f"PLAINTEXT://{HOST}:{node.port},CONTROLLER://{HOST}:{other}",
                controller_quorum_bootstrap_servers=f"{HOST}:{other}",
            )
            node.folder = lab.folder / "data"  # its name would have a comma, which stands between directories
            node.properties |= SETTINGS | {"log.dirs": node.folder}
            node.write().format("--standalone").start()
            self.sides.append(Side(node))
        for side in self.sides:
            side.node.wait_listening()
            wait_for("a first producer id", lambda side=side: side.has_producer_ids() or None)
        return self

    def __exit__(self, *error: Any) -> None:
        for side in self.sides:
            side.close_all()
        for lab in reversed(self._labs):
            lab.__exit__(*error)

    def topics(self) -> tuple[str, dict[str, int]]:
        """New ones for a script, on both sides: what their names begin with, and how many partitions each has."""
        self._scripts += 1
        prefix = f"t{self._scripts}"
        kind = CreateTopicsRequest.CreatableTopic
        made = [
            kind(
                name=f"{prefix}-{name}",
                num_partitions=count,
                replication_factor=1,
                configs=[kind.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
            )
            for name, (count, configs) in TOPICS.items()
        ]
        counts = {f"{prefix}-{name}": count for name, (count, _) in TOPICS.items()}
        configs = {f"{prefix}-{name}": configs for name, (_, configs) in TOPICS.items()}
        for side in self.sides:
            create = CreateTopicsRequest(topics=made, timeout_ms=10_000)
            wait_for("topics", lambda side=side, create=create: was_created(side.ask("setup", create, 7)) or None)
            wait_for("leaders", lambda side=side: side.knows(counts, configs) or None)
            wait_for("coordinators", lambda side=side: side.coordinates([f"{prefix}-g{n}" for n in range(3)]) or None)
        return prefix, counts

    def play(self, steps: list[Params]) -> Iterator[Difference]:
        """Play a script; where answers differ."""
        with ThreadPoolExecutor(len(self.sides)) as threads:  # at the same time: groups have deadlines
            for number, step in enumerate(steps):
                theirs, ours = threads.map(lambda side, step=step: self._answer(side, step), self.sides)
                for path, left, right in differences(theirs, ours):
                    yield Difference(number, step, path, left, right)

    def run(self, seed: int, steps: int) -> list[Difference]:
        """Make and play the script of a seed, on topics of its own."""
        prefix, counts = self.topics()
        found = list(self.play(script(seed, steps, counts, prefix, int(time.time() * 1000))))
        for side in self.sides:
            side.close_all()
        return found

    def _answer(self, side: Side, step: Params) -> Any:
        kind, version = KINDS[step["kind"]], step["version"]
        try:
            if kind.play is not None:
                return {"answers": [self._noted(step, answer, side) for answer in kind.play(step["params"], side)]}
            answer = side.ask("client", kind.make(step["params"], side), version)
        except KraftError as error:  # a field that this version has not
            side.close("waiter")
            return {"cannot be asked": str(error)}
        if kind.learn is not None and not isinstance(answer, str):
            kind.learn(step["params"], answer, side)
        return self._noted(step, answer, side)

    def _noted(self, step: Params, answer: Any, side: Side) -> Any:
        if isinstance(answer, str):
            return {"answer": answer}
        found = plain(answer, side)
        for code in _codes(found):
            self.codes[step["kind"], code] += 1
        return found


def _made(folder: Path) -> bool:
    folder.mkdir(parents=True)
    return True


def was_created(answer: Any) -> bool:
    """Whether all topics that were asked for are there."""
    return (
        answer != CLOSED and not isinstance(answer, str) and all(each.error_code in (0, 36) for each in answer.topics)
    )


def _codes(value: Any) -> Iterator[int]:
    if isinstance(value, dict):
        for name, each in value.items():
            if name == "error_code":
                yield each
            yield from _codes(each)
    elif isinstance(value, list):
        for each in value:
            yield from _codes(each)


def hard(found: list[Difference]) -> list[Difference]:
    """Without texts for people, and without what Kafka does by mistake."""
    return [each for each in found if not is_message(each.path) and not _is_known(each)]


def _is_known(found: Difference) -> bool:
    """Whether Kafka does something by mistake there."""
    if found.step["kind"] == "list-offsets" and found.step["params"]["when"] == MAX_TIMESTAMP:
        # It names a record of the largest timestamp that was deleted since: a Fetch from there is out of range.
        return found.ours == NOTHING or found.path.endswith((".offset", ".leader_epoch"))
    if found.step["kind"] == "long-poll" and found.path.endswith((".high_watermark", ".last_stable_offset")):
        return bool(found.theirs < found.ours)  # they are read before the records: these may have grown between
    # Some members that join again under another instance's id: an exception of its own, told as an unknown error.
    return found.step["kind"] == "join" and found.theirs in (UNKNOWN_SERVER_ERROR, "")
