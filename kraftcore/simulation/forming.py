"""A host with an empty disk that is to begin a quorum asks the other hosts first, as a node does."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

from kraftcore.core.uuid import METADATA_TOPIC_ID
from kraftcore.core.wire.struct import Struct
from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.protocol.registry import api_of
from kraftcore.raft.events import Received
from kraftcore.raft.inquiry import Found, Inquiry

CLUSTER_ID = "simulated"
LISTENER = "CONTROLLER"


class AskedHost(Protocol):
    """The members of a host that are used here."""

    # ruff: noqa: D102

    number: int
    is_up: bool
    paused_until: int
    is_to_begin: bool
    versions: dict[int, int]

    @property
    def world(self) -> Any: ...
    def handle(self, event: Any) -> None: ...
    def begin_quorum(self) -> None: ...


class Question:
    """Takes the answer to an inquiry."""

    told: Struct | None = None
    message: Struct | None = None

    def answer(self, message: Struct) -> None:
        """Keep the answer."""
        self.told = message


def join_or_begin(host: AskedHost, hosts: Sequence[AskedHost], *, blocked: Collection[tuple[int, int]]) -> bool:
    """Ask the others whether there is a quorum; begin one if not.

    Args:
        host: that asks.
        hosts: all hosts.
        blocked: (source, target) pairs that are cut.

    Returns:
        False: not all hosts answer, and none knows a quorum; ask again later.
    """
    others = {other.number: other for other in hosts if other is not host}
    inquiry = Inquiry(others, CLUSTER_ID, METADATA_TOPIC_ID)
    key, _, newest = api_of(FetchRequest)
    for number, other in others.items():
        reached = (host.number, number) not in blocked and (number, host.number) not in blocked
        if reached and other.is_up and other.paused_until <= host.world.agenda.now:
            question = Question()
            other.handle(Received(question, inquiry.request(), other.versions.get(key, newest), LISTENER))
            if question.told is not None:
                inquiry.answered(number, question.told)
    found = inquiry.found
    host.world.note(host, "asked", found.value)
    if found is Found.UNKNOWN:
        return False
    host.is_to_begin = False
    if found is Found.NOTHING:
        host.begin_quorum()
    return True
