"""Whatever a message says, the replica answers, notes or ignores it: nothing from the network ends it."""

from __future__ import annotations

import random

import pytest
import scenario_node
from scenario import Stage, directory
from scenario_node import Ticket

from kraftcore.core.log.config import LogConfig
from kraftcore.core.uuid import ZERO_UUID, Uuid
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.frames import decode_request, decode_response
from kraftcore.protocol.messages.add_raft_voter import AddRaftVoterRequest
from kraftcore.protocol.messages.update_raft_voter import UpdateRaftVoterRequest
from kraftcore.raft import events

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
TEXTS = ("", "c", "other", "CONTROLLER", "__cluster_metadata", "n2", "kraft.version")
ERRORS = [int(code) for code in ErrorCode]


def leaves(struct):
    """(owner, field) of every field that holds no struct, down to the leaves, and of every list."""
    for field in type(struct).__layout__.fields:
        value = getattr(struct, field.name)
        if hasattr(type(value), "__layout__"):
            yield from leaves(value)
        else:
            yield struct, field
            if isinstance(value, list):
                for item in value:
                    if hasattr(type(item), "__layout__"):
                        yield from leaves(item)


def changed(rng, field, value):
    if isinstance(value, list):
        return rng.choice([[], value * 2, value[:1]])
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        if field.name == "error_code":
            return rng.choice(ERRORS)
        if field.type_name == "uint16":
            return rng.choice([0, 1, 9093, 65535])
        bits = BITS[field.type_name]
        low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        found = rng.choice([low, -2, -1, 0, 1, 2, 3, 4, 5, value - 1, value + 1, value + 2, high - 1, high])
        return min(max(found, low), high)
    if isinstance(value, Uuid):
        return rng.choice([ZERO_UUID, directory(1), directory(2), directory(3), directory(100)])
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytearray(value)
        if data and rng.random() < 0.7:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        return bytes(data[: rng.randrange(len(data) + 1)]) if rng.random() < 0.3 else bytes(data)
    return rng.choice(TEXTS)


def mutate(rng, message):
    for _ in range(rng.choice([1, 1, 2, 3])):
        found = list(leaves(message))
        owner, field = rng.choice(found)
        setattr(owner, field.name, changed(rng, field, getattr(owner, field.name)))
    return message


class Recorder(Stage):
    """A stage that keeps every message sent on it."""

    def __init__(self):
        super().__init__()
        self.seen = {}

    def keep(self, key, decode):
        self.seen.setdefault(key, []).append(decode)
        del self.seen[key][:-30]

    def send(self, node, send):
        super().send(node, send)
        frame = self.queue[-1][4]
        self.keep(("request", type(send.message).__name__), lambda: decode_request(frame)[1])

    def reply(self, ticket, message):
        super().reply(ticket, message)
        if ticket.source:
            frame = self.queue[-1][4]
            schema = type(message).schema
            key = ("answer", type(message).__name__.removesuffix("Response"))
            self.keep(key, lambda: decode_response(frame, schema.api_key, ticket.version)[1])


def recorded(version):
    """A quorum that has seen every message there is, with its recordings."""
    stage = Recorder()
    for command in (
        f"add-nodes 3 observers=2 version={version}",
        "isolate 5",
        "campaign 1",
        "pass 3000",
        "append 1 a b c",
        "stabilize",
        "snapshot 1",
        "append 1 d",
        "join 5",
        "pass 3000",
        "add-voter 1 4",
        "stabilize",
        "remove-voter 1 4",
        "stabilize",
        "update-voter 1 2 epoch=1 port=9999",
        "stabilize",
        "describe 1",
        "resign 1",
        "pass 4000",
    ):
        stage.run(command)
    return stage


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("seed", range(30))
def test_no_message_ends_a_replica(seed, version):
    rng = random.Random(seed)
    stage = recorded(version)
    asked = [kind for kind in stage.seen if kind[0] == "request" and kind[1] != "ApiVersionsRequest"]
    for _ in range(120):
        node = rng.choice(list(stage.nodes.values()))
        replica = node.replica
        before = replica.high_watermark or 0
        waiting = [
            (number, key)
            for number, sent in sorted(replica.state.in_flight.items())
            if (key := ("answer", type(sent.message).__name__.removesuffix("Request"))) in stage.seen
        ]
        dice = rng.random()
        if dice < 0.55 or (dice < 0.9 and not waiting):
            message = mutate(rng, rng.choice(stage.seen[rng.choice(asked)])())
            schema = type(message).schema
            version_asked = rng.randint(*schema.versions)
            node.handle(
                events.Received(Ticket(node, 0, 0, 1, schema.versions[1]), message, version_asked, "CONTROLLER")
            )
        elif dice < 0.9:
            number, key = rng.choice(waiting)
            node.sent_requests.pop(number, None)
            node.handle(events.Answered(number, mutate(rng, rng.choice(stage.seen[key])())))
        else:
            told = stage.run(rng.choice(["pass 300", "pass 2500", "stabilize", f"append {node.number} x", "tick 900"]))
            assert "does not come to rest" not in told  # a refusal is not asked for again at once
        assert (replica.high_watermark or 0) >= before
        assert node.log.log_end_offset >= before


def listeners(kind, *more):
    return [kind.Listener(name="CONTROLLER", host="n2", port=9093), *(kind.Listener(**each) for each in more)]


MANY = [{"name": f"L{number}", "host": "h", "port": 1} for number in range(64)]
LONG_HOST = [{"name": "L", "host": "h" * 256, "port": 1}]
LONG_NAME = [{"name": "L" * 256, "host": "h", "port": 1}]
NO_ROOM = [{"name": f"L{number}", "host": "h" * 255, "port": 1} for number in range(63)]


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("more", [MANY, LONG_HOST, LONG_NAME, NO_ROOM], ids=["many", "host", "name", "no room"])
@pytest.mark.parametrize("kind", [AddRaftVoterRequest, UpdateRaftVoterRequest])
def test_listeners_that_no_voter_set_should_hold_are_refused(kind, more, version, monkeypatch):
    """They would stand in each later voter set, and a leader that cannot write one would end."""
    monkeypatch.setattr(scenario_node, "LogConfig", lambda: LogConfig(max_batch_bytes=4096))
    stage = Stage()
    for command in (f"add-nodes 2 observers=1 version={version}", "campaign 1", "pass 600"):
        stage.run(command)
    leader = stage.nodes[1]
    end = leader.log.log_end_offset
    if kind is AddRaftVoterRequest:
        message = kind(
            cluster_id="c",
            timeout_ms=2000,
            voter_id=3,
            voter_directory_id=directory(3),
            listeners=listeners(kind, *more),
        )
    else:
        feature = kind.KRaftVersionFeature(min_supported_version=0, max_supported_version=1)
        message = kind(
            cluster_id="c",
            current_leader_epoch=1,
            voter_id=2,
            voter_directory_id=directory(2),
            listeners=listeners(kind, *more),
            kraft_version_feature=feature,
        )
    stage.lines = []
    stage.ask("1", message)
    lines = [*stage.lines, *stage.run("pass 1000").splitlines()]
    told = next(line for line in lines if f"outside {kind.__name__.replace('Request', 'Response')}" in line)
    if version == 1 or more is not NO_ROOM:
        assert "INVALID_REQUEST" in told
    else:  # voters without directories are not in the log before the upgrade
        stage.run("update-voter 1 1 epoch=1")
        upgraded = stage.run("upgrade 1")
        assert kind is AddRaftVoterRequest or "do not fit one batch" in upgraded, upgraded
    assert leader.replica.role.value == "leader"
    assert leader.log.log_end_offset == end
