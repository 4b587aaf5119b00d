"""Whose credentials count at a node that has just started, before and after it knows what is committed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import trio

from kraftcore.core.batch import build_batch, validate_batch
from kraftcore.metadata import MetadataMachine
from kraftcore.plugins.controller.credentials import LogCredentials
from kraftcore.protocol.features import LATEST_PRODUCTION
from kraftcore.protocol.metadata import encode_metadata_record
from kraftcore.protocol.records.delegation_token_record import DelegationTokenRecord
from kraftcore.protocol.records.feature_level_record import FeatureLevelRecord
from kraftcore.protocol.records.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
from kraftcore.protocol.records.user_scram_credential_record import UserScramCredentialRecord
from kraftcore.security.sasl.credentials import NotReadyError

SCRAM = "SCRAM-SHA-256"
NOW_MS = 1_000


def credential(name: str, iterations: int):
    return UserScramCredentialRecord(
        name=name, mechanism=1, salt=b"s", stored_key=b"k", server_key=b"k", iterations=iterations
    )


def batch(offset: int, *records):
    data = build_batch([encode_metadata_record(each, 0) for each in records], timestamp_ms=NOW_MS, base_offset=offset)
    return validate_batch(data)


class Started:
    """A node whose log holds what its machine has not applied."""

    def __init__(self, *log) -> None:
        self.machine = MetadataMachine()
        self.node = SimpleNamespace(
            config=SimpleNamespace(listener_sasl={"CONTROLLER": SimpleNamespace(mechanisms=(SCRAM,))}),
            local_batches=lambda offset: iter(log),
            now_ms=lambda: NOW_MS,
            is_caught_up=False,
        )
        self.credentials = LogCredentials("secret")
        trio.run(self._begin)

    async def _begin(self) -> None:
        self.credentials.begin(self.node, self.machine)

    def iterations_of(self, name: str) -> int | None:
        found = self.credentials.scram(SCRAM, name)
        return None if found is None else found.iterations


def test_a_log_that_is_not_applied_yet_says_who_may_come():
    started = Started(batch(0, credential("carol", 4096)), batch(1, credential("carol", 8192)))
    assert started.iterations_of("carol") == 8192
    with pytest.raises(NotReadyError):
        started.iterations_of("dave")
    started.machine.apply(batch(0, credential("carol", 4096)))
    assert started.iterations_of("carol") == 8192
    started.machine.apply(batch(1, RemoveUserScramCredentialRecord(name="carol", mechanism=1)))
    assert started.iterations_of("carol") is None


def test_what_never_got_committed_counts_no_more_once_it_is_known_what_is():
    """It led, alone: nine records at the end of its log are nobody else's, and it takes others in their place."""
    lost = [credential("carol", 8192 + count) for count in range(9)]
    first = FeatureLevelRecord(name="metadata.version", feature_level=int(LATEST_PRODUCTION))
    started = Started(batch(0, first), batch(1, *lost))
    token = DelegationTokenRecord(
        token_id="t", owner="User:dave", requester="User:dave", max_timestamp=2**60, expiration_timestamp=2**60
    )
    started.node.is_caught_up = True  # with what its leader has: nothing so far
    assert started.iterations_of("carol") == 8200
    started.machine.apply(batch(0, first))
    started.machine.apply(batch(1, credential("dave", 4096), token))
    assert started.machine.offset == 3
    assert started.iterations_of("carol") is None
    assert started.iterations_of("dave") == 4096
    assert started.credentials.token(SCRAM, "t").owner == "User:dave"
