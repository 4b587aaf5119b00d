"""Delegation tokens of the image (KIP-48, KIP-900)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kraftcore.metadata.journal import Part
from kraftcore.protocol.records.delegation_token_record import DelegationTokenRecord
from kraftcore.protocol.records.remove_delegation_token_record import RemoveDelegationTokenRecord


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token; its secret is computed from its id and the controllers' key, and is in no record.

    Attributes:
        id: the token's id.
        owner: the principal it stands for, ``User:alice``.
        requester: the principal that asked for it.
        renewers: principals that may renew it.
        issue_timestamp_ms: when it was made, milliseconds since 1970.
        max_timestamp_ms: up to when it can be renewed, milliseconds since 1970.
        expiration_timestamp_ms: when it expires unless it is renewed, milliseconds since 1970.
    """

    id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    max_timestamp_ms: int
    expiration_timestamp_ms: int


class Tokens(Part[str, DelegationToken]):
    """Tokens by id."""

    __slots__ = ()

    def on_token(self, record: DelegationTokenRecord) -> None:
        """Add or renew a token."""
        self.put(
            record.token_id,
            DelegationToken(
                record.token_id,
                record.owner,
                record.requester,
                tuple(record.renewers),
                record.issue_timestamp,
                record.max_timestamp,
                record.expiration_timestamp,
            ),
        )

    def on_remove(self, record: RemoveDelegationTokenRecord) -> None:
        """Remove a token; a missing token is no error, as in Kafka: it may have been expired twice."""
        self.drop(record.token_id)


def token_record(token: DelegationToken) -> DelegationTokenRecord:
    """The record that makes a token, or renews it."""
    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issue_timestamp=token.issue_timestamp_ms,
        max_timestamp=token.max_timestamp_ms,
        expiration_timestamp=token.expiration_timestamp_ms,
        token_id=token.id,
    )


def token_records(tokens: dict[str, DelegationToken]) -> Iterator[DelegationTokenRecord]:
    """The records of the tokens in a snapshot."""
    return map(token_record, tokens.values())
