"""Client quotas, and SCRAM credentials of users. Source: KIP-546, 554, 612; RFC 5802; Kafka 4.3.1's client."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from kraftcore.admin.calls import Calls, all_told, check_active, settle
from kraftcore.admin.router import raise_refusal, refusal
from kraftcore.errors import LocalError, RefusedError
from kraftcore.metadata.quotas import QuotaEntity, quota_entity
from kraftcore.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from kraftcore.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from kraftcore.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from kraftcore.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from kraftcore.storage.scram import DIGESTS, ITERATIONS_MAX, ITERATIONS_MIN

_SALT_BYTES = 24


class QuotaMatch(IntEnum):
    """How a filter compares names, with the protocol's numbers."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


class QuotaFilter(NamedTuple):
    """A filter for one type of name in an entity.

    Attributes:
        type: ``user``, ``client-id``, ``ip``.
        match: EXACT: this name. DEFAULT: the default of the type. ANY: any name, and the default.
        name: the name, for EXACT.
    """

    type: str
    match: QuotaMatch
    name: str | None = None


class ScramMechanism(IntEnum):
    """Mechanisms, with Kafka's numbers."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def label(self) -> str:
        """The mechanism's name: ``SCRAM-SHA-256``."""
        return self.name.replace("_", "-")


@dataclass(frozen=True, slots=True)
class ScramUpsertion:
    """A credential to set. The password is not sent, only the salted password of RFC 5802.

    Attributes:
        user: the user's name.
        mechanism: the mechanism.
        password: in plain text; not empty.
        iterations: of the hash, 4096 to 16384.
    """

    user: str
    mechanism: ScramMechanism
    password: bytes
    iterations: int = ITERATIONS_MIN

    def __post_init__(self) -> None:
        if not ITERATIONS_MIN <= self.iterations <= ITERATIONS_MAX:
            raise LocalError(f"iterations={self.iterations} is not from {ITERATIONS_MIN} to {ITERATIONS_MAX}")
        if not self.password:
            raise LocalError("Password must not be empty")  # in the words of Kafka's client

    def __repr__(self) -> str:  # without the password
        return f"ScramUpsertion({self.user!r}, {self.mechanism!r}, iterations={self.iterations})"


class QuotaCalls(Calls):
    """Calls about quotas and SCRAM credentials; see ``AdminClient`` for the errors that all of them raise."""

    async def describe_client_quotas(
        self, filters: Iterable[QuotaFilter] = (), *, strict: bool = False
    ) -> Mapping[QuotaEntity, Mapping[str, float]]:
        """Quotas by entity and key. Only through brokers.

        Args:
            filters: an entity must match all of them.
            strict: an entity may have no other types: ``user`` does not match a user's client.

        Returns:
            By entity (``kraftcore.metadata.quotas``), sorted; units are those of the keys: bytes/s, percent, 1/s.

        Raises:
            RefusedError: CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST.
        """
        response = await self._router.call(
            "describeClientQuotas",
            DescribeClientQuotasRequest(
                components=[
                    DescribeClientQuotasRequest.ComponentData(
                        entity_type=each.type, match_type=each.match, match=each.name
                    )
                    for each in filters
                ],
                strict=strict,
            ),
            DescribeClientQuotasResponse,
            lambda answer: raise_refusal(answer.error_code, answer.error_message),
        )
        found = {
            quota_entity({each.entity_type: each.entity_name for each in entry.entity}): {
                each.key: each.value for each in sorted(entry.values, key=lambda value: value.key)
            }
            for entry in response.entries or ()
        }
        return dict(sorted(found.items(), key=lambda item: [(kind, name or "") for kind, name in item[0]]))

    async def alter_client_quotas(
        self, changes: Mapping[QuotaEntity, Mapping[str, float | None]], *, validate_only: bool = False
    ) -> None:
        """Set and remove quotas; for each entity all changes are made, or none.

        Args:
            changes: by entity and key the quota; None removes it.
            validate_only: check, change nothing.

        Raises:
            PartlyRefusedError: by entity. INVALID_REQUEST, CLUSTER_AUTHORIZATION_FAILED.
        """
        entry = AlterClientQuotasRequest.EntryData
        request = AlterClientQuotasRequest(
            entries=[
                entry(
                    entity=[entry.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                    ops=[
                        entry.OpData(key=key, value=0.0 if value is None else value, remove=value is None)
                        for key, value in quotas.items()
                    ],
                )
                for entity, quotas in changes.items()
            ],
            validate_only=validate_only,
        )
        response = await self._router.call(
            "alterClientQuotas",
            request,
            AlterClientQuotasResponse,
            lambda answer: check_active(each.error_code for each in answer.entries),
        )
        told: dict[QuotaEntity, bool | RefusedError] = {
            quota_entity({part.entity_type: part.entity_name for part in each.entity}): refusal(
                each.error_code, each.error_message
            )
            or True
            for each in response.entries
        }
        settle(all_told((quota_entity(dict(entity)) for entity in changes), told))

    async def describe_scram_credentials(
        self, users: Iterable[str] | None = None
    ) -> Mapping[str, Mapping[ScramMechanism, int]]:
        """Iterations by user and mechanism. Only through brokers.

        Args:
            users: names of users; None: all users.

        Raises:
            RefusedError: CLUSTER_AUTHORIZATION_FAILED.
            PartlyRefusedError: by user. RESOURCE_NOT_FOUND: the user has no credential. DUPLICATE_RESOURCE.
        """
        named = None if users is None else tuple(dict.fromkeys(users))
        user = DescribeUserScramCredentialsRequest.UserName
        response = await self._router.call(
            "describeUserScramCredentials",
            DescribeUserScramCredentialsRequest(users=None if named is None else [user(name=each) for each in named]),
            DescribeUserScramCredentialsResponse,
            lambda answer: raise_refusal(answer.error_code, answer.error_message),
        )
        told: dict[str, Mapping[ScramMechanism, int] | RefusedError] = {
            each.user: refusal(each.error_code, each.error_message)
            or {
                ScramMechanism(info.mechanism): info.iterations
                for info in each.credential_infos
                if info.mechanism in DIGESTS
            }
            for each in sorted(response.results, key=lambda result: result.user)
        }
        return settle(told if named is None else all_told(named, told))

    async def alter_scram_credentials(
        self, upsertions: Iterable[ScramUpsertion] = (), deletions: Iterable[tuple[str, ScramMechanism]] = ()
    ) -> None:
        """Set and delete credentials; each user by itself.

        Args:
            upsertions: credentials to set; each takes a few milliseconds to hash.
            deletions: user and mechanism of credentials to delete.

        Raises:
            PartlyRefusedError: by user. RESOURCE_NOT_FOUND: there is nothing to delete. UNACCEPTABLE_CREDENTIAL,
                DUPLICATE_RESOURCE: named twice. CLUSTER_AUTHORIZATION_FAILED.
        """
        request_type = AlterUserScramCredentialsRequest
        set_now, delete_now = tuple(upsertions), tuple(deletions)
        request = request_type(
            deletions=[
                request_type.ScramCredentialDeletion(name=name, mechanism=mechanism) for name, mechanism in delete_now
            ],
            upsertions=[_upsertion(each) for each in set_now],
        )
        response = await self._router.call(
            "alterUserScramCredentials",
            request,
            AlterUserScramCredentialsResponse,
            lambda answer: check_active(each.error_code for each in answer.results),
        )
        users = dict.fromkeys([*(name for name, _ in delete_now), *(each.user for each in set_now)])
        told = {each.user: refusal(each.error_code, each.error_message) or True for each in response.results}
        settle(all_told(users, told))


def _upsertion(wanted: ScramUpsertion) -> AlterUserScramCredentialsRequest.ScramCredentialUpsertion:
    salt = os.urandom(_SALT_BYTES)
    return AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=wanted.user,
        mechanism=wanted.mechanism,
        iterations=wanted.iterations,
        salt=salt,
        salted_password=hashlib.pbkdf2_hmac(DIGESTS[wanted.mechanism], wanted.password, salt, wanted.iterations),
    )
