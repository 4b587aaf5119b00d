"""Credentials of SCRAM users (KIP-554, KIP-900) and delegation tokens (KIP-48), from the metadata log."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Final

from kraftcore.errors import RemoteProtocolError
from kraftcore.metadata import DelegationToken, MetadataMachine, ScramCredential, ScramUser
from kraftcore.node.clock import wall_clock
from kraftcore.node.plugin_node import PluginNode
from kraftcore.plugins.controller.tokens import has_expired, token_hmac
from kraftcore.protocol.metadata import MetadataRecordType, decode_metadata_record
from kraftcore.protocol.records.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
from kraftcore.protocol.records.user_scram_credential_record import UserScramCredentialRecord
from kraftcore.security.sasl.credentials import NotReadyError, TokenCredential, credential_of, salt_of
from kraftcore.storage.scram import HASHES, NUMBERS

_TOKENS_KEPT: Final = 4096
_KIND_AT: Final = 1  # index of a record's kind, behind the frame version; both kinds are one byte
_KIND_BYTES: Final = {
    MetadataRecordType.USER_SCRAM_CREDENTIAL_RECORD.to_bytes(),
    MetadataRecordType.REMOVE_USER_SCRAM_CREDENTIAL_RECORD.to_bytes(),
}


class LogCredentials:
    """`kraftcore.security.sasl.credentials.Credentials` from the metadata log.

    Credentials in the applied records count. A node that has just started has applied nothing: it learns from a leader
    what is committed, and may have to log in to that leader. So at first the credentials in its own log count, or, if
    the log is empty, those in the records that formatting left; until the node has applied the log that it had at the
    start, or, since the end of that log may never be committed, is caught up.

    Args:
        secret_key: ``delegation.token.secret.key``; empty: there are no tokens.
    """

    def __init__(self, secret_key: str) -> None:
        self._secret_key = secret_key
        self._machine: MetadataMachine | None = None
        self._now_ms: Callable[[], int]
        self._wall_ms: Callable[[], int]
        self._early: dict[ScramUser, ScramCredential] = {}
        self._early_until = 0
        self._is_caught_up: Callable[[], bool] = lambda: False
        self._salts = os.urandom(32)
        self._of_token = lru_cache(_TOKENS_KEPT)(self._hash_token)

    def begin(self, node: PluginNode, machine: MetadataMachine) -> None:
        """Read the credentials in the log of a node that has just started."""
        if any(set(sasl.mechanisms) & set(HASHES) for sasl in node.config.listener_sasl.values()):
            early = machine.image.scram.snapshot()
            until = machine.offset
            for batch in node.local_batches(until):
                if not batch.is_control:
                    _take(early, batch.values())
                until = batch.next_offset
            if not until:
                _take(early, node.read_bootstrap())
                until = 1
            self._early, self._early_until = early, until
            self._is_caught_up = lambda: node.is_caught_up
        self._now_ms, self._wall_ms = node.now_ms, wall_clock()
        self._machine = machine

    def scram(self, mechanism: str, user: str) -> ScramCredential | None:
        """See `Credentials`."""
        machine = self._known_machine()
        wanted = ScramUser(user, NUMBERS[mechanism])
        if self._is_loaded(machine):
            known: ScramCredential | None = machine.image.scram.get(wanted)
            return known
        found = self._early.get(wanted)
        if found is None:
            raise NotReadyError("the metadata log is not loaded yet, and nothing is known of this user")
        return found

    def iterations(self, mechanism: str) -> Mapping[int, int]:
        """See `Credentials`."""
        return self._known_machine().image.scram.iterations(NUMBERS[mechanism])

    def token(self, mechanism: str, token_id: str) -> TokenCredential | None:
        """See `Credentials`."""
        machine = self._known_machine()
        if not self._is_loaded(machine):
            raise NotReadyError("the metadata log is not loaded yet, and no token is known")
        token: DelegationToken | None = machine.image.tokens.get(token_id)
        wall_ms = self._wall_ms()
        if token is None or not self._secret_key or has_expired(token, wall_ms):
            return None
        ends_ms = self._now_ms() + token.expiration_timestamp_ms - wall_ms  # sessions end by the node's clock
        return TokenCredential(self._of_token(mechanism, token_id), token.owner, ends_ms)

    def _is_loaded(self, machine: MetadataMachine) -> bool:
        if machine.offset < self._early_until:
            has_records = machine.image.features.metadata_version is not None  # else those that formatting left count
            if not (has_records and self._is_caught_up()):
                return False
        self._early.clear()
        self._early_until = 0
        return True

    def _known_machine(self) -> MetadataMachine:
        if self._machine is None:
            raise NotReadyError("the controller has not started yet")
        return self._machine

    def _hash_token(self, mechanism: str, token_id: str) -> ScramCredential:
        password = base64.b64encode(token_hmac(self._secret_key, token_id)).decode()
        return credential_of(password, salt_of(self._salts, mechanism, token_id), mechanism)


def _take(found: dict[ScramUser, ScramCredential], values: Iterable[bytes | None]) -> None:
    """Apply the credentials' records in ``values``; an unreadable record is reported when the log is applied."""
    for value in values:
        if value is None or value[_KIND_AT : _KIND_AT + 1] not in _KIND_BYTES:
            continue
        try:
            record, _ = decode_metadata_record(value)
        except RemoteProtocolError:
            continue
        match record:
            case UserScramCredentialRecord():
                found[ScramUser(record.name, record.mechanism)] = ScramCredential(
                    record.salt, record.stored_key, record.server_key, record.iterations
                )
            case RemoveUserScramCredentialRecord():
                found.pop(ScramUser(record.name, record.mechanism), None)
