"""SCRAM credentials of the image (KIP-554, KIP-900)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kraftcore.errors import MetadataRecordError
from kraftcore.metadata.journal import Journal, Part
from kraftcore.protocol.records.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
from kraftcore.protocol.records.user_scram_credential_record import UserScramCredentialRecord


class ScramUser(NamedTuple):
    """The user and the mechanism of a credential.

    Attributes:
        name: the user.
        mechanism: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512.
    """

    name: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The keys derived from a password (RFC 5802, section 3); not shown when printed.

    Attributes:
        salt: drawn for this credential.
        stored_key: by which a client's proof is checked.
        server_key: by which the server proves that it knows the credential.
        iterations: how often the password was hashed.
    """

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


_MECHANISMS = (1, 2)


class Scram(Part[ScramUser, ScramCredential]):
    """Credentials by user and mechanism."""

    __slots__ = ("_iterations",)

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal)
        self._iterations: dict[int, Counter[int]] = {mechanism: Counter() for mechanism in _MECHANISMS}

    def iterations(self, mechanism: int) -> Mapping[int, int]:
        """Number of credentials of a mechanism, by iterations."""
        return self._iterations[mechanism]

    def put(self, user: ScramUser, credential: ScramCredential) -> None:
        """See the base class."""
        self._count(user, credential)
        super().put(user, credential)

    def drop(self, user: ScramUser) -> None:
        """See the base class."""
        self._count(user, None)
        super().drop(user)

    def restore_item(self, user: ScramUser, credential: ScramCredential | None) -> None:
        """See the base class."""
        self._count(user, credential)
        super().restore_item(user, credential)

    def _count(self, user: ScramUser, after: ScramCredential | None) -> None:
        """Count a user's credential before it becomes ``after``."""
        counted, before = self._iterations[user.mechanism], self.get(user)
        if before is not None:
            counted[before.iterations] -= 1
            if not counted[before.iterations]:
                del counted[before.iterations]
        if after is not None:
            counted[after.iterations] += 1

    def on_credential(self, record: UserScramCredentialRecord) -> None:
        """Set a credential.

        Raises:
            MetadataRecordError: the mechanism is unknown.
        """
        if record.mechanism not in _MECHANISMS:
            raise MetadataRecordError(record, f"{record.mechanism} is no SCRAM mechanism: 1 and 2 are")
        self.put(
            ScramUser(record.name, record.mechanism),
            ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations),
        )

    def on_remove(self, record: RemoveUserScramCredentialRecord) -> None:
        """Remove a credential.

        Raises:
            MetadataRecordError: the user has no credential for this mechanism.
        """
        user = ScramUser(record.name, record.mechanism)
        if user not in self._items:
            raise MetadataRecordError(record, f"user {user.name} has no credential for mechanism {user.mechanism}")
        self.drop(user)


def scram_records(credentials: dict[ScramUser, ScramCredential]) -> Iterator[UserScramCredentialRecord]:
    """The records of the credentials in a snapshot, mechanism by mechanism."""
    for user, credential in sorted(credentials.items(), key=lambda item: item[0].mechanism):
        yield UserScramCredentialRecord(
            name=user.name,
            mechanism=user.mechanism,
            salt=credential.salt,
            stored_key=credential.stored_key,
            server_key=credential.server_key,
            iterations=credential.iterations,
        )
