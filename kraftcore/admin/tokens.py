"""Delegation tokens, whose bearer acts as the owner. Source: KIP-48, KIP-373; Kafka 4.3.1's client."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kraftcore.admin.calls import Calls
from kraftcore.admin.router import raise_refusal
from kraftcore.errors import LocalError
from kraftcore.metadata.tokens import DelegationToken
from kraftcore.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from kraftcore.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from kraftcore.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from kraftcore.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

_OWNER_SINCE = 3  # version of CreateDelegationToken that can name another owner (KIP-373)


class IssuedToken(NamedTuple):
    """A token and its secret, by which a client logs in.

    Attributes:
        token: the token without its secret.
        hmac: its secret.
    """

    token: DelegationToken
    hmac: bytes

    def __repr__(self) -> str:  # without the secret
        return f"IssuedToken({self.token!r})"


class TokenCalls(Calls):
    """Calls about delegation tokens; see ``AdminClient`` for the errors that all of them raise.

    Principals are texts, ``User:alice``. The calls need an authenticated connection, SASL or TLS with a certificate of
    the client; on other connections they are refused with DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, and without
    ``delegation.token.secret.key`` in the nodes' files with DELEGATION_TOKEN_AUTH_DISABLED.
    """

    async def create_delegation_token(
        self, renewers: Iterable[str] = (), *, owner: str | None = None, max_lifetime_ms: int = -1
    ) -> IssuedToken:
        """Create a token.

        Args:
            renewers: principals that may renew it and let it expire, besides the owner.
            owner: principal that the token stands for; None: the asker.
            max_lifetime_ms: the token cannot be renewed for longer; below 1, or above the nodes' limit: that limit,
                ``delegation.token.max.lifetime.ms``.

        Raises:
            LocalError: a principal does not have the form ``type:name``.
            RefusedError: INVALID_PRINCIPAL_TYPE: a renewer is not a ``User``. DELEGATION_TOKEN_AUTHORIZATION_FAILED:
                the asker may not create tokens for this owner.
        """
        named = list(renewers)
        kind, name = (None, None) if owner is None else principal_parts(owner)
        renewer = CreateDelegationTokenRequest.CreatableRenewers
        response = await self._router.call(
            "createDelegationToken",
            CreateDelegationTokenRequest(
                owner_principal_type=kind,
                owner_principal_name=name,
                renewers=[
                    renewer(principal_type=kind, principal_name=name) for kind, name in map(principal_parts, named)
                ],
                max_lifetime_ms=max_lifetime_ms,
            ),
            CreateDelegationTokenResponse,
            lambda answer: raise_refusal(answer.error_code, None),
            min_version=0 if owner is None else _OWNER_SINCE,
        )
        whose = f"{response.principal_type}:{response.principal_name}"
        asker = f"{response.token_requester_principal_type}:{response.token_requester_principal_name}"
        token = DelegationToken(
            response.token_id,
            whose,
            whose if asker == ":" else asker,
            tuple(named),
            response.issue_timestamp_ms,
            response.max_timestamp_ms,
            response.expiry_timestamp_ms,
        )
        return IssuedToken(token, bytes(response.hmac))

    async def renew_delegation_token(self, hmac: bytes, *, period_ms: int = -1) -> int:
        """Extend a token's life.

        Args:
            hmac: the token's secret.
            period_ms: from now; below 0, or above the nodes' limit: that limit, ``delegation.token.expiry.time.ms``.

        Returns:
            When it expires, milliseconds since 1970; never later than its maximum lifetime.

        Raises:
            RefusedError: DELEGATION_TOKEN_NOT_FOUND, DELEGATION_TOKEN_EXPIRED; DELEGATION_TOKEN_OWNER_MISMATCH: the
                asker is neither owner nor renewer.
        """
        response = await self._router.call(
            "renewDelegationToken",
            RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms),
            RenewDelegationTokenResponse,
            lambda answer: raise_refusal(answer.error_code, None),
        )
        return response.expiry_timestamp_ms

    async def expire_delegation_token(self, hmac: bytes, *, period_ms: int = -1) -> int:
        """Let a token expire sooner.

        Args:
            hmac: the token's secret.
            period_ms: from now, milliseconds; below 0: now.

        Returns:
            When it expires, milliseconds since 1970.

        Raises:
            RefusedError: see ``renew_delegation_token``.
        """
        response = await self._router.call(
            "expireDelegationToken",
            ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms),
            ExpireDelegationTokenResponse,
            lambda answer: raise_refusal(answer.error_code, None),
        )
        return response.expiry_timestamp_ms

    async def describe_delegation_tokens(self, owners: Iterable[str] | None = None) -> tuple[IssuedToken, ...]:
        """Tokens that the asker owns, may renew, or may describe. Only through brokers.

        Args:
            owners: principals whose tokens are wanted; None: all.

        Returns:
            The tokens, sorted by id.

        Raises:
            LocalError: a principal does not have the form ``type:name``.
        """
        self._need_brokers()
        owner = DescribeDelegationTokenRequest.DescribeDelegationTokenOwner
        response = await self._router.call(
            "describeDelegationToken",
            DescribeDelegationTokenRequest(
                owners=None
                if owners is None
                else [owner(principal_type=kind, principal_name=name) for kind, name in map(principal_parts, owners)]
            ),
            DescribeDelegationTokenResponse,
            lambda answer: raise_refusal(answer.error_code, None),
        )
        return tuple(sorted((_issued(each) for each in response.tokens), key=lambda each: each.token.id))


def _issued(told: DescribeDelegationTokenResponse.DescribedDelegationToken) -> IssuedToken:
    owner = f"{told.principal_type}:{told.principal_name}"
    asker = f"{told.token_requester_principal_type}:{told.token_requester_principal_name}"
    token = DelegationToken(
        told.token_id,
        owner,
        owner if asker == ":" else asker,
        tuple(f"{each.principal_type}:{each.principal_name}" for each in told.renewers),
        told.issue_timestamp,
        told.max_timestamp,
        told.expiry_timestamp,
    )
    return IssuedToken(token, bytes(told.hmac))


def principal_parts(principal: str) -> tuple[str, str]:
    """Type and name of a principal.

    Raises:
        LocalError: it does not have the form ``type:name``, in Kafka's words.
    """
    kind, colon, name = principal.partition(":")
    if not colon or not kind:
        raise LocalError(f"expected a string in format principalType:principalName but got {principal}")
    return kind, name
