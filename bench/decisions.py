"""What the controller's decisions cost: CPU of one thread in one process, without sockets, disk and other processes.

    python -m bench.decisions                          # a table; about ten seconds of a quiet core
    python -m bench.decisions --partitions 1000000     # and what so many partitions need: load time, memory
    python -m bench.decisions --json                   # an object a line: case, value, unit

The figure is the least of some rounds. Thread time suffers less from a busy machine than time on the wall does.
"""

# ruff: noqa: E402 (only now may anything import kraftcore)
from __future__ import annotations

import argparse
import gc
import json
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

from bench.paths import measure_the_installed_package

measure_the_installed_package()

from kraftcore.core.uuid import Uuid
from kraftcore.metadata import Image
from kraftcore.metadata.acls import Acl
from kraftcore.node.authorization import Authorization
from kraftcore.plugins.controller.brokers import fencing, heartbeat
from kraftcore.plugins.controller.decision import Context, ControllerSettings
from kraftcore.plugins.controller.elections import elect_leaders
from kraftcore.plugins.controller.isr import alter_partition
from kraftcore.plugins.controller.soft_state import SoftState
from kraftcore.plugins.controller.topics import create
from kraftcore.protocol.features import METADATA_VERSION, MetadataVersion
from kraftcore.protocol.frames import decode_request, encode_request, encode_response
from kraftcore.protocol.messages.alter_partition import AlterPartitionRequest
from kraftcore.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from kraftcore.protocol.messages.create_topics import CreateTopicsRequest
from kraftcore.protocol.messages.elect_leaders import ElectLeadersRequest
from kraftcore.protocol.metadata import encode_metadata_record
from kraftcore.protocol.records.feature_level_record import FeatureLevelRecord
from kraftcore.protocol.records.partition_record import PartitionRecord
from kraftcore.protocol.records.register_broker_record import RegisterBrokerRecord
from kraftcore.protocol.records.topic_record import TopicRecord
from kraftcore.security.audit import Action, Requester
from kraftcore.security.authorizer import StandardAuthorizer

Row = tuple[str, float, str]
IDS = (1001, 1002, 1003)
PER_TOPIC = 1000
ALTERED = 1000


class Cluster:
    """Three unfenced brokers, and topics of `PER_TOPIC` partitions on all of them, led by the given replica."""

    def __init__(self, partitions: int, leader: int = 0) -> None:
        self.draw = random.Random(1)
        self.settings = ControllerSettings("c")
        self.image = Image(ahead=True)
        self.image.apply(FeatureLevelRecord(name=METADATA_VERSION, feature_level=int(MetadataVersion.V4_3_IV0)))
        homes = [Uuid.random(self.draw.randbytes) for _ in IDS]
        for number, home in zip(IDS, homes, strict=True):
            self.image.apply(
                RegisterBrokerRecord(broker_id=number, broker_epoch=number, fenced=False, log_dirs=[home]), 0
            )
        self.topics = [Uuid.random(self.draw.randbytes) for _ in range(0, partitions, PER_TOPIC)]
        self.values: list[bytes] = []
        for at, topic_id in enumerate(self.topics):
            self.values.append(encode_metadata_record(TopicRecord(name=f"topic-{at}", topic_id=topic_id), 0))
            for number in range(min(PER_TOPIC, partitions - at * PER_TOPIC)):
                record = PartitionRecord(
                    partition_id=number,
                    topic_id=topic_id,
                    replicas=list(IDS),
                    isr=list(IDS),
                    leader=IDS[leader],
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=homes,
                )
                self.values.append(encode_metadata_record(record, 2))

    def load(self) -> Cluster:
        """Take the records over."""
        self.image.apply_values(self.values)
        return self

    def context(self) -> Context:
        """What a decision looks at."""
        return Context(self.image, SoftState(), 0, 1 << 30, self.settings, self.draw)


def least(work: Callable[[], Any], rounds: int) -> float:
    """Seconds of the thread's CPU that the work takes at least."""
    found = []
    for _ in range(rounds):
        gc.collect()
        begun = time.thread_time()
        work()
        found.append(time.thread_time() - begun)
    return min(found)


def decision_rows(partitions: int, rounds: int) -> Iterator[Row]:
    """Decoding, deciding, encoding records and answer: microseconds a partition, topic or heartbeat."""
    cluster = Cluster(partitions).load()
    altered = min(ALTERED, partitions)
    frame = encode_request(alteration(cluster, altered), 3, 1)

    def alter() -> int:
        made = alter_partition(cluster.context(), decode_request(frame)[1], 3)
        encode_response(made.answer, 3, 1)
        return len([encode_metadata_record(*each) for each in made.records])

    yield row("alter-partition", alter, altered, rounds)

    def fence() -> int:
        made = fencing(cluster.context(), cluster.image.brokers[IDS[0]])
        return len([encode_metadata_record(*each) for each in made]) - 1

    yield row("fence", fence, partitions, rounds)
    elected = Cluster(partitions, leader=1).load()
    election = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=1000)

    def elect() -> int:
        made = elect_leaders(elected.context(), election, 2)
        encode_response(made.answer, 2, 1)
        return len([encode_metadata_record(*each) for each in made.records])

    yield row("elect-preferred", elect, partitions, rounds)
    kind = CreateTopicsRequest.CreatableTopic
    placed = kind.CreatableReplicaAssignment(partition_index=0, broker_ids=[IDS[0]])
    frames = [
        encode_request(
            CreateTopicsRequest(
                topics=[kind(name=f"new-{at}", num_partitions=-1, replication_factor=-1, assignments=[placed])],
                timeout_ms=1000,
            ),
            7,
            1,
        )
        for at in range(500)
    ]

    def make() -> int:
        for each in frames:
            made = create(cluster.context(), decode_request(each)[1], 7)
            encode_response(made.answer, 7, 1)
            cluster.values = [encode_metadata_record(*record) for record in made.records]
        return len(frames)

    yield row("create-topic", make, len(frames), rounds)
    beat = encode_request(
        BrokerHeartbeatRequest(broker_id=IDS[0], broker_epoch=IDS[0], current_metadata_offset=9), 1, 1
    )

    def beats() -> int:
        for _ in range(1000):
            encode_response(heartbeat(cluster.context(), decode_request(beat)[1], 1).answer, 1, 1)
        return 1000

    yield row("heartbeat", beats, 1000, rounds)


def access_rows(entries: int, rounds: int) -> Iterator[Row]:
    """The authorizer among so many entries: microseconds a question, and an entry that comes and goes.

    Six of ten entries are about a topic, two about topics by prefix, one about a group, one about all topics; each of
    2,000 users has about as many.
    """
    draw = random.Random(1)
    known = [_entry(draw, number) for number in range(entries)]
    authorizer = StandardAuthorizer(["User:root"])
    authorizer.load(known)
    authorization = Authorization(authorizer)
    asked = [
        (
            Requester(f"User:u{draw.randrange(2000)}", "10.0.0.1", "Fetch"),
            Action(draw.choice((3, 4, 8)), 2, f"team{draw.randrange(500)}.topic{draw.randrange(40)}"),
        )
        for _ in range(10_000)
    ]

    def ask() -> int:
        for who, action in asked:
            authorization.decide(who, action)
        return len(asked)

    yield row("authorize", ask, len(asked), rounds)
    changed = known[:: max(len(known) // 1000, 1)]

    def change() -> int:
        for entry in changed:
            authorizer.acls.remove(entry)
            authorizer.acls.add(entry)
        return len(changed)

    yield row("entry removed and added", change, len(changed), rounds)


def _entry(draw: random.Random, number: int) -> Acl:
    user, kind = f"User:u{draw.randrange(2000)}", number % 10
    team = f"team{draw.randrange(500)}."
    if kind < 6:
        return Acl(2, f"{team}topic{draw.randrange(40)}", 3, user, "*", draw.choice((3, 4, 8, 10)), 3)
    if kind < 8:
        return Acl(2, team[: draw.randrange(4, 9)], 4, user, "*", draw.choice((3, 4, 8)), 3)
    if kind < 9:
        host = draw.choice(("*", "10.0.0.1"))
        return Acl(3, f"group{draw.randrange(2000)}", 3, user, host, 3, draw.choice((2, 3, 3)))
    return Acl(2, "*", 3, user, "*", 8, 3)


def row(name: str, work: Callable[[], int], count: int, rounds: int) -> Row:
    """A case; the work must have been done as often as it is counted."""
    done = work()
    if done != count:
        raise RuntimeError(f"{name}: {done} instead of {count}")
    return name, least(work, rounds) / count * 1e6, "us"


def alteration(cluster: Cluster, count: int) -> AlterPartitionRequest:
    """The first topic's leader proposes an ISR of two for each partition."""
    data = AlterPartitionRequest.TopicData
    isr = [data.PartitionData.BrokerState(broker_id=each, broker_epoch=each) for each in IDS[:2]]
    wanted = [data.PartitionData(partition_index=number, new_isr_with_epochs=isr) for number in range(count)]
    topic = data(topic_id=cluster.topics[0], partitions=wanted)
    return AlterPartitionRequest(broker_id=IDS[0], broker_epoch=IDS[0], topics=[topic])


def size_rows(partitions: int) -> Iterator[Row]:
    """What the records of so many partitions take to load, and what their table holds in memory."""
    cluster = Cluster(partitions)
    begun = time.thread_time()
    cluster.load()
    yield "load", (time.thread_time() - begun) / partitions * 1e6, "us a partition"
    yield "table", cluster.image.partitions.memory_bytes / partitions, "bytes a partition"
    begun = time.thread_time()
    found = len(cluster.image.partitions.with_isr_member(IDS[0]))
    yield "find a broker's partitions", (time.thread_time() - begun) / found * 1e6, "us a partition"


def main(arguments: list[str] | None = None) -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=10_000, help="at least 1 (10,000)")
    parser.add_argument("--acls", type=int, default=100_000, help="entries of the authorizer, at least 1 (100,000)")
    parser.add_argument("--rounds", type=int, default=7, help="at least 1 (7)")
    parser.add_argument("--json", action="store_true", help="an object a line")
    asked = parser.parse_args(arguments)
    if asked.partitions < 1 or asked.rounds < 1 or asked.acls < 1:
        parser.error("--partitions, --acls and --rounds are at least 1")
    for rows in (
        decision_rows(min(asked.partitions, 9_000), asked.rounds),
        access_rows(asked.acls, asked.rounds),
        size_rows(asked.partitions),
    ):
        for case, value, unit in rows:
            if asked.json:
                print(json.dumps({"case": case, "value": round(value, 3), "unit": unit}), flush=True)
            else:
                print(f"{case:28}{value:10.2f} {unit}", flush=True)


if __name__ == "__main__":
    main()
