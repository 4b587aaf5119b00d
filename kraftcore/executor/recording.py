"""A replica's events and effects as lines of text, from which the same run can be replayed.

A run of a node that went wrong can be repeated, because the replica depends only on its events, its seed and its files.
The first line of a recording has the beginning: the configuration of the replica, the seed of its randomness, and the
files of its directory. Each further line has one event (the time, how far the log was durable, the event, and a digest
of the effects), or something that was done to log and snapshots beside events. A line is JSON; bytes are in base64.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import asdict, fields
from hashlib import blake2b
from typing import Any

from kraftcore.core.log.config import LogConfig
from kraftcore.core.uuid import Uuid
from kraftcore.core.wire.struct import Struct
from kraftcore.errors import InvariantError, LocalError
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.frames import decode_request, decode_response, encode_request, encode_response
from kraftcore.raft.events import (
    Answered,
    Barrier,
    Effects,
    Event,
    Failed,
    Flushed,
    Propose,
    RaftConfig,
    Received,
    Resign,
    Shutdown,
    SnapshotInstalled,
    SnapshotVerified,
    SnapshotWritten,
    Tick,
    Transfer,
    Upgrade,
    VerifySnapshot,
)
from kraftcore.raft.quorum import Endpoint, VersionRange, Voter, VoterSet
from kraftcore.raft.snapshot_schedule import CleaningConfig

FORMAT = 2
_PLAIN: dict[str, type[Event]] = {"tick": Tick, "resign": Resign, "shutdown": Shutdown}
# The settings that decide about the log's contents; how much is in memory, or written ahead, does not matter.
_LOG = ("segment_bytes", "segment_ms", "index_interval_bytes", "index_bytes_max", "max_batch_bytes")
_CONFIG_SKIPS = {"cluster_id", "key", "listeners", "static_voters", "bootstrap_servers", "topic_id"}


def _text(data: bytes | bytearray | memoryview) -> str:
    return b64encode(data).decode()


# --- the first line ---------------------------------------------------------------------------------------------------


def beginning(
    config: RaftConfig,
    seed: int,
    log: LogConfig,
    cleaning: CleaningConfig,
    files: Mapping[str, bytes],
    *,
    may_have_forgotten: bool = False,
) -> str:
    """The first line of a recording.

    Args:
        config: of the replica.
        seed: of the replica's ``random.Random``.
        log: configuration of the log.
        cleaning: thresholds for deleting.
        files: of the partition's directory, by name.
        may_have_forgotten: see `Replica`.
    """
    plain = {
        each.name: getattr(config, each.name)
        for each in fields(config)
        if each.name not in _CONFIG_SKIPS and isinstance(getattr(config, each.name), int | str | bool)
    }
    voters = [
        [
            str(voter.key.id),
            str(voter.key.directory_id),
            [list(at) for at in voter.endpoints],
            [voter.supported.min, voter.supported.max],
        ]
        for voter in config.static_voters
    ]
    described = {
        "format": FORMAT,
        "seed": seed,
        "may_have_forgotten": may_have_forgotten,
        "log": {name: getattr(log, name) for name in _LOG},
        "cleaning": asdict(cleaning),
        "config": plain,
        "cluster_id": config.cluster_id,
        "key": [config.key.id, str(config.key.directory_id)],
        "listeners": [list(at) for at in config.listeners],
        "static_voters": voters,
        "bootstrap_servers": [list(at) for at in config.bootstrap_servers],
        "topic_id": str(config.topic_id),
        "files": {name: _text(data) for name, data in sorted(files.items())},
    }
    return json.dumps(described)


class Beginning:
    """A recording's first line, read.

    Attributes:
        config: of the replica.
        seed: of the replica's ``random.Random``.
        log: configuration of the log.
        cleaning: thresholds for deleting.
        files: of the partition's directory, by name.
        may_have_forgotten: see `Replica`.

    Raises:
        LocalError: the line is not the beginning of a recording.
    """

    def __init__(self, line: str) -> None:
        try:
            found = json.loads(line)
            if found["format"] != FORMAT:
                raise LocalError(f"the recording has format {found['format']}, this release reads {FORMAT}")
            self.seed: int = found["seed"]
            self.may_have_forgotten: bool = found["may_have_forgotten"]
            self.log = LogConfig(topic_id=Uuid.from_string(found["topic_id"]), **found["log"])
            self.cleaning = CleaningConfig(**found["cleaning"])
            self.files = {name: b64decode(text) for name, text in found["files"].items()}
            voters = tuple(
                Voter(
                    ReplicaKey(int(number), Uuid.from_string(directory)),
                    tuple(Endpoint(*at) for at in endpoints),
                    VersionRange(*supported),
                )
                for number, directory, endpoints, supported in found["static_voters"]
            )
            number, directory = found["key"]
            self.config = RaftConfig(
                cluster_id=found["cluster_id"],
                key=ReplicaKey(number, Uuid.from_string(directory)),
                listeners=tuple(Endpoint(*at) for at in found["listeners"]),
                static_voters=VoterSet(voters),
                bootstrap_servers=tuple((host, port) for host, port in found["bootstrap_servers"]),
                topic_id=Uuid.from_string(found["topic_id"]),
                **found["config"],
            )
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, LocalError):
                raise
            raise LocalError(f"this is no recording of a node: {error!r} in its first line") from error


# --- events -----------------------------------------------------------------------------------------------------------


def event_entry(event: Event) -> dict[str, Any]:
    """An event as an entry of a recording; made before the replica takes the event, which may change its batches."""
    if isinstance(event, Received):
        frame = encode_request(event.message, event.version, 0)  # type: ignore[arg-type]
        return {"event": "received", "frame": _text(frame), "listener": event.listener}
    if isinstance(event, Answered):
        schema = type(event.message).schema  # type: ignore[attr-defined]
        key, version = schema.api_key, schema.versions[1]
        frame = encode_response(event.message, version, 0)  # type: ignore[arg-type]
        return {"event": "answered", "id": event.request_id, "api": [key, version], "frame": _text(frame)}
    if isinstance(event, Failed):
        return {"event": "failed", "id": event.request_id, "failure": event.failure.name}
    if isinstance(event, Propose):
        return {"event": "propose", "batches": [_text(batch) for batch in (event.batch, *event.more)]}
    if isinstance(event, Flushed):
        return {"event": "flushed", "offset": event.offset}
    if isinstance(event, SnapshotWritten):
        return {"event": "snapshot written", "id": [event.end_offset, event.epoch]}
    if isinstance(event, SnapshotVerified):
        return {"event": "snapshot verified", "number": event.number, "damage": event.damage}
    if isinstance(event, SnapshotInstalled):
        return {"event": "snapshot installed", "id": [event.end_offset, event.epoch], "problem": event.problem}
    if isinstance(event, Barrier):
        return {"event": "barrier"}
    if isinstance(event, Transfer):
        return {"event": "transfer", "voter": event.voter_id}
    if isinstance(event, Upgrade):
        return {"event": "upgrade", "level": event.level, "validate_only": event.validate_only}
    return {"event": next(name for name, kind in _PLAIN.items() if type(event) is kind)}


def event_of(entry: Mapping[str, Any], ticket: Any) -> Event:
    """The event that an entry describes, with ``ticket`` as its ticket.

    Raises:
        LocalError: the entry describes no event.
    """
    name = entry["event"]
    if name in _PLAIN:
        return _PLAIN[name]()  # type: ignore[call-arg]
    if name == "received":
        header, message = decode_request(b64decode(entry["frame"]))
        if message is None:
            raise LocalError("a recorded request cannot be read")
        return Received(ticket, message, header.request_api_version, entry["listener"])
    if name == "answered":
        return Answered(entry["id"], decode_response(b64decode(entry["frame"]), *entry["api"])[1])
    if name == "failed":
        return Failed(entry["id"], Failure[entry["failure"]])
    if name == "propose":
        first, *more = (bytearray(b64decode(text)) for text in entry["batches"])
        return Propose(ticket, first, tuple(more))
    if name == "flushed":
        return Flushed(entry["offset"])
    if name == "snapshot written":
        return SnapshotWritten(*entry["id"])
    if name == "snapshot verified":
        return SnapshotVerified(entry["number"], entry["damage"])
    if name == "snapshot installed":
        return SnapshotInstalled(entry["id"][0], entry["id"][1], entry["problem"])
    if name == "barrier":
        return Barrier(ticket)
    if name == "transfer":
        return Transfer(ticket, entry["voter"])
    if name == "upgrade":
        return Upgrade(ticket, entry["level"], entry["validate_only"])
    raise LocalError(f"a recording has no event {name!r}")


# --- effects ----------------------------------------------------------------------------------------------------------


def effects_lines(effects: Effects) -> list[str]:
    """The effects as lines, one for each, in their order; equal lines mean equal effects."""
    lines = []
    if effects.election_state is not None:
        lines.append(f"save {asdict(effects.election_state)}")
    if effects.probation_over:
        lines.append("probation over")
    for send in effects.sends:
        lines.append(f"send {send.request_id} {tuple(send.destination)} {send.timeout_ms} {_digest(send.message)}")
    lines += [f"answer {_digest(reply.message)}" for reply in effects.replies]
    if effects.flush:
        lines.append(f"flush {effects.flush}")
    if effects.snapshot is not None:
        verb = "verify" if isinstance(effects.snapshot, VerifySnapshot) else "install"
        lines.append(f"{verb} {effects.snapshot[:-1]}")
    if effects.restore is not None:
        lines.append(f"restore {effects.restore}")
    if effects.high_watermark is not None:
        lines.append(f"high watermark {effects.high_watermark}")
    for outcome in effects.outcomes:
        lines.append(f"outcome {outcome.error.name} {outcome.offset} {outcome.message}")
    if effects.leadership is not None:
        lines.append(f"leadership {effects.leadership}")
    if effects.voters is not None:
        lines.append(f"voters {effects.voters}")
    lines += [f"note {text}" for text in effects.notes]
    lines += [f"alarm {text}" for text in effects.alarms]
    if effects.committed is not None:
        lines.append(f"committed {effects.committed.offset} {effects.committed.epoch}")
    lines.append(f"due {effects.deadline_ms}")
    return lines


def _digest(message: Struct) -> str:
    schema = type(message).schema  # type: ignore[attr-defined]
    name = type(message).__name__
    encode: Any = encode_request if name.endswith("Request") else encode_response
    return f"{name} {blake2b(encode(message, schema.versions[1], 0), digest_size=8).hexdigest()}"


def check_effects(number: int, recorded: list[str], found: list[str]) -> None:
    """Compare the effects of event ``number``.

    Raises:
        InvariantError: the effects differ; the text names the first difference.
    """
    for before, now in zip([*recorded, "nothing more"], [*found, "nothing more"], strict=False):
        if before != now:
            raise InvariantError(f"event {number}: {before!r} was recorded, it is {now!r}")
