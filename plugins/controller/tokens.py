"""Decisions on delegation tokens: CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken (KIP-48, KIP-900).

A token's secret is HMAC-SHA-512 of its id under ``delegation.token.secret.key``; no record holds it. Times in records
and answers are milliseconds since 1970. Only the owner and the renewers of a token may renew it and let it expire, not
other super users.
"""

from __future__ import annotations

import hmac
from dataclasses import replace
from functools import lru_cache
from typing import Final

from kraftcore.core.uuid import Uuid
from kraftcore.metadata.tokens import DelegationToken, token_record
from kraftcore.plugins.controller.decision import Api, Context, ControllerResult, Record, Refusal
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.features import MetadataVersion
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
from kraftcore.protocol.records.remove_delegation_token_record import RemoveDelegationTokenRecord
from kraftcore.protocol.schema import Request
from kraftcore.security.acl import Operation, ResourceType
from kraftcore.security.audit import Action

SECRET_KEY: Final = "delegation.token.secret.key"  # noqa: S105  the name of a setting
MAX_LIFETIME_KEY: Final = "delegation.token.max.lifetime.ms"
EXPIRY_TIME_KEY: Final = "delegation.token.expiry.time.ms"
MAX_SWEPT: Final = 1000
"""Most tokens that one decision of the timer removes."""
_FOREVER: Final = (1 << 63) - 1
_USER: Final = "User"


@lru_cache(maxsize=1 << 16)  # a token is found by comparing with all of them
def token_hmac(secret: str, token_id: str) -> bytes:
    """The secret of a token, by which its bearer is authenticated.

    Args:
        secret: ``delegation.token.secret.key``, the same on all controllers and brokers.
        token_id: of the token.
    """
    return hmac.digest(secret.encode(), token_id.encode(), "sha512")


def create(context: Context, request: CreateDelegationTokenRequest, version: int) -> ControllerResult:
    """Make a token for the caller, or, if the caller is allowed to, for another principal."""
    requester = owner = context.caller.principal
    if request.owner_principal_name:
        owner = f"{request.owner_principal_type}:{request.owner_principal_name}"
    if not context.caller.may_handle_tokens:
        return _no_token(version, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, owner, requester, -1)
    if owner != requester and not context.is_allowed(Action(Operation.CREATE_TOKENS, ResourceType.USER, owner)):
        return _no_token(version, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, owner, requester, -1)
    try:
        secret = _secret(context)
        if any(each.principal_type != _USER for each in request.renewers):
            raise Refusal(ErrorCode.INVALID_PRINCIPAL_TYPE)
    except Refusal as refused:
        return _no_token(version, refused.code, owner, requester, 0)
    now = context.wall_ms
    longest = context.settings.value(MAX_LIFETIME_KEY)
    if request.max_lifetime_ms > 0:
        longest = min(longest, request.max_lifetime_ms)
    last = _later(now, longest)
    token = DelegationToken(
        str(Uuid.random(context.random.randbytes)),
        owner,
        requester,
        tuple(f"{each.principal_type}:{each.principal_name}" for each in request.renewers),
        now,
        last,
        min(last, _later(now, context.settings.value(EXPIRY_TIME_KEY))),
    )
    answer = CreateDelegationTokenResponse(
        **_principals(version, owner, requester),  # type: ignore[arg-type]
        issue_timestamp_ms=token.issue_timestamp_ms,
        expiry_timestamp_ms=token.expiration_timestamp_ms,
        max_timestamp_ms=token.max_timestamp_ms,
        token_id=token.id,
        hmac=token_hmac(secret, token.id),
    )
    return ControllerResult(answer, [_record(token, token.expiration_timestamp_ms)])


def renew(context: Context, request: RenewDelegationTokenRequest, version: int) -> ControllerResult:
    """Extend a token by the requested period from now, at most up to its maximum lifetime."""
    token = _find(context, bytes(request.hmac))
    if has_expired(token, context.wall_ms):
        raise Refusal(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    _check_owner(context, token)
    period = context.settings.value(EXPIRY_TIME_KEY)
    if request.renew_period_ms > 0:
        period = min(period, request.renew_period_ms)
    expiry = min(token.max_timestamp_ms, _later(context.wall_ms, period))
    return ControllerResult(RenewDelegationTokenResponse(expiry_timestamp_ms=expiry), [_record(token, expiry)])


def expire(context: Context, request: ExpireDelegationTokenRequest, version: int) -> ControllerResult:
    """Set a token's end to the requested period from now; a negative period removes it at once."""
    token = _find(context, bytes(request.hmac))
    _check_owner(context, token)
    now = context.wall_ms
    if request.expiry_time_period_ms < 0:
        return ControllerResult(ExpireDelegationTokenResponse(expiry_timestamp_ms=now), [_removal(token)])
    if has_expired(token, now):
        raise Refusal(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    expiry = min(token.max_timestamp_ms, _later(now, request.expiry_time_period_ms))
    return ControllerResult(ExpireDelegationTokenResponse(expiry_timestamp_ms=expiry), [_record(token, expiry)])


def remove_expired(context: Context) -> ControllerResult:
    """Remove expired tokens, at most `MAX_SWEPT`; called by a timer."""
    if not context.settings.value(SECRET_KEY):
        return ControllerResult(None)
    over = [token for token in context.image.tokens.values() if has_expired(token, context.wall_ms)]
    records = [_removal(token) for token in over[:MAX_SWEPT]]
    return ControllerResult(None, records, is_atomic=False, is_more=len(over) > MAX_SWEPT)


def describe(context: Context, request: DescribeDelegationTokenRequest, version: int) -> ControllerResult:
    """Refuse: brokers answer this request. Kafka's controllers offer it, and answer it with an error.

    Raises:
        Refusal: UNKNOWN_SERVER_ERROR, always.
    """
    raise Refusal(ErrorCode.UNKNOWN_SERVER_ERROR)


# --- parts of them


def _secret(context: Context) -> str:
    secret: str | None = context.settings.value(SECRET_KEY)
    if not secret:
        raise Refusal(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    if context.image.features.metadata_version_or_minimum < MetadataVersion.V3_6_IV2:
        raise Refusal(ErrorCode.UNSUPPORTED_VERSION)
    return secret


def _find(context: Context, proof: bytes) -> DelegationToken:
    if not context.caller.may_handle_tokens:
        raise Refusal(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    secret = _secret(context)
    for token in context.image.tokens.values():
        if hmac.compare_digest(token_hmac(secret, token.id), proof):
            return token
    raise Refusal(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)


def _check_owner(context: Context, token: DelegationToken) -> None:
    if context.caller.principal != token.owner and context.caller.principal not in token.renewers:
        raise Refusal(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def has_expired(token: DelegationToken, now: int) -> bool:
    """Whether a token has expired.

    Args:
        token: the token.
        now: milliseconds since 1970.
    """
    return token.max_timestamp_ms < now or token.expiration_timestamp_ms < now


def _later(now: int, duration: int) -> int:
    return min(now + duration, _FOREVER)


def _record(token: DelegationToken, expiry: int) -> Record:
    return token_record(replace(token, expiration_timestamp_ms=expiry)), 0


def _removal(token: DelegationToken) -> Record:
    return RemoveDelegationTokenRecord(token_id=token.id), 0


# --- answers without a token


def _principals(version: int, owner: str, requester: str) -> dict[str, str]:
    """The answer's fields for owner and requester; before version 3 there is no requester in it."""
    kind, _, name = owner.partition(":")
    fields = {"principal_type": kind, "principal_name": name}
    if version >= 3:
        kind, _, name = requester.partition(":")
        fields |= {"token_requester_principal_type": kind, "token_requester_principal_name": name}
    return fields


def _no_token(version: int, error: ErrorCode, owner: str, requester: str, time: int) -> ControllerResult:
    return ControllerResult(
        CreateDelegationTokenResponse(
            error_code=error,
            **_principals(version, owner, requester),  # type: ignore[arg-type]
            issue_timestamp_ms=time,
            expiry_timestamp_ms=time,
            max_timestamp_ms=time,
        )
    )


def _time_of(error: ErrorCode) -> int:
    """The time in an error's answer: Kafka answers -1 where it does not look for the token."""
    return -1 if error is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED else 0


def _refuse_create(
    request: CreateDelegationTokenRequest, version: int, error: ErrorCode, message: str | None
) -> CreateDelegationTokenResponse:
    return CreateDelegationTokenResponse(
        error_code=error, issue_timestamp_ms=-1, expiry_timestamp_ms=-1, max_timestamp_ms=-1
    )


def _refuse_renew(
    request: RenewDelegationTokenRequest, version: int, error: ErrorCode, message: str | None
) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=error, expiry_timestamp_ms=_time_of(error))


def _refuse_expire(
    request: ExpireDelegationTokenRequest, version: int, error: ErrorCode, message: str | None
) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=error, expiry_timestamp_ms=_time_of(error))


def _refuse_describe(
    request: DescribeDelegationTokenRequest, version: int, error: ErrorCode, message: str | None
) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=error)


APIS: dict[type[Request], Api] = {
    CreateDelegationTokenRequest: Api(create, _refuse_create),
    RenewDelegationTokenRequest: Api(renew, _refuse_renew),
    ExpireDelegationTokenRequest: Api(expire, _refuse_expire),
    DescribeDelegationTokenRequest: Api(describe, _refuse_describe),
}
