"""Frames that are no request: cut off, of versions and kinds that nobody knows, with sizes that lie."""

from __future__ import annotations

import random
import struct
from contextlib import suppress
from typing import Any

from broker_twin.side import Side
from broker_twin.world import Kind, Params, World
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest
from kraftcore.protocol.messages.metadata import MetadataRequest

FLAWS = ("cut", "behind", "version", "version", "key", "count", "empty", "negative size", "size")
_KEY, _VERSION = 0, 2


def draw_spoiled(rng: random.Random, world: World) -> Params:
    return {
        "flaw": rng.choice(FLAWS),
        "names": sorted({world.partition(rng)[0] for _ in range(2)}),
        "cut": rng.randint(1, 12),
        # those that were offered once, and those that are not there yet
        "of": rng.choice(((0, 2), (0, 99), (1, 3), (2, 0), (3, 14), (8, 0), (8, 1), (9, 0), (9, 11), (19, 1), (32, 0))),
        "key": rng.choice((4, 5, 6, 7, 93, -1, 999, 52, 67)),
    }


def play_spoiled(params: Params, side: Side) -> list[Any]:
    """Whether it is answered, and as what."""
    kind = MetadataRequest.MetadataRequestTopic
    request = MetadataRequest(
        topics=[kind(name=name) for name in params["names"]], allow_auto_topic_creation=params["version"] < 4
    )
    frame = bytearray(side.frame(request, params["version"]))
    size = None
    match params["flaw"]:
        case "cut":
            del frame[-params["cut"] :]
        case "behind":
            frame += bytes(params["cut"])
        case "version":
            struct.pack_into(">hh", frame, _KEY, *params["of"])
        case "key":
            struct.pack_into(">h", frame, _KEY, params["key"])
        case "count":
            place = frame.index(params["names"][-1].encode())
            frame[place - 2 : place] = b"\xff\xff"
        case "empty":
            frame.clear()
        case "negative size":
            size = -1
        case "size":
            size = 2**31 - 1
    with suppress(OSError):  # it was closed before all was sent
        side.send_frame("spoiled", bytes(frame), size)
    answer = side.receive("spoiled", request, params["version"])
    side.close("spoiled")
    return [answer]


def draw_versions(rng: random.Random, world: World) -> Params:
    return {
        "as": rng.choice((None, None, 5, 99, -1, 32767)),
        "name": rng.choice(("twin", "twin", "a-b.c", "-a", "", "a b", "a" * 300, "ü")),
        "number": rng.choice(("1", "1.0-x", "", "1 0", ".1")),
    }


def play_versions(params: Params, side: Side) -> list[Any]:
    """The error, and whether the connection can be used; what is offered is compared in tests/interop."""
    request = ApiVersionsRequest(client_software_name=params["name"], client_software_version=params["number"])
    frame = bytearray(side.frame(request, params["version"]))
    answered = params["version"]
    if params["as"] is not None:
        struct.pack_into(">h", frame, _VERSION, params["as"])
        answered = 0
    side.send_frame("versions", bytes(frame))
    answer = side.receive("versions", request, answered)
    if isinstance(answer, str):
        return [answer]
    told = f"error {answer.error_code}, {'all' if len(answer.api_keys) > 1 else len(answer.api_keys)} requests"
    return [told, side.ask("versions", MetadataRequest(topics=[]), 4)]


KINDS = {
    "spoiled": Kind(MetadataRequest, 4, draw_spoiled, play=play_spoiled),
    "versions": Kind(ApiVersionsRequest, 3, draw_versions, play=play_versions),
}
