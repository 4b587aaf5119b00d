"""Decisions on SCRAM credentials: AlterUserScramCredentials (KIP-554).

A user may be named once in a request, whatever the mechanisms. Deletions are written before upsertions.
Records keep the two keys that follow from a salted password (RFC 5802, section 3), never the password.
"""

from __future__ import annotations

from typing import Final

from kraftcore.metadata import ScramUser
from kraftcore.plugins.controller.decision import (
    Api,
    Context,
    ControllerResult,
    Record,
    Refusal,
    check_item_count,
    check_record_count,
)
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.features import MetadataVersion
from kraftcore.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from kraftcore.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from kraftcore.protocol.records.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
from kraftcore.protocol.records.user_scram_credential_record import UserScramCredentialRecord
from kraftcore.protocol.schema import Request
from kraftcore.storage.scram import DIGESTS, ITERATIONS_MAX, ITERATIONS_MIN, derive_keys

_TWICE: Final = "A user credential cannot be altered twice in the same request"
_Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
_Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
_Wanted = _Deletion | _Upsertion


def alter(context: Context, request: AlterUserScramCredentialsRequest, version: int) -> ControllerResult:
    """Delete, add and change credentials."""
    check_item_count(len(request.deletions) + len(request.upsertions))
    refused: dict[str, Refusal] = {}
    wanted: dict[str, _Wanted] = {}
    for each in _named(request):
        if each.name in refused:
            continue
        try:
            if wanted.pop(each.name, None) is not None:
                raise Refusal(ErrorCode.DUPLICATE_RESOURCE, _TWICE)
            _check(context, each)
        except Refusal as refusal:
            refused[each.name] = refusal
        else:
            wanted[each.name] = each
    records = [_record(each) for each in wanted.values()]
    check_record_count(len(records))
    done = [_result(name, None) for name in wanted]
    not_done = [_result(name, refusal) for name, refusal in refused.items()]
    return ControllerResult(AlterUserScramCredentialsResponse(results=done + not_done), records)


def _named(request: AlterUserScramCredentialsRequest) -> list[_Wanted]:
    return [*request.deletions, *request.upsertions]


def _check(context: Context, wanted: _Wanted) -> None:
    if context.image.features.metadata_version_or_minimum < MetadataVersion.V3_5_IV2:
        raise Refusal(ErrorCode.UNSUPPORTED_VERSION, "The current metadata.version does not support SCRAM")
    if not wanted.name:
        raise Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if wanted.mechanism not in DIGESTS:
        raise Refusal(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(wanted, _Deletion):
        if ScramUser(wanted.name, wanted.mechanism) not in context.image.scram:
            text = "Attempt to delete a user credential that does not exist"
            raise Refusal(ErrorCode.RESOURCE_NOT_FOUND, text)
    elif wanted.iterations < ITERATIONS_MIN:
        raise Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    elif wanted.iterations > ITERATIONS_MAX:
        raise Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    elif not wanted.salted_password:
        raise Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Salted password must not be empty")


def _record(wanted: _Wanted) -> Record:
    if isinstance(wanted, _Deletion):
        return RemoveUserScramCredentialRecord(name=wanted.name, mechanism=wanted.mechanism), 0
    stored_key, server_key = derive_keys(wanted.mechanism, bytes(wanted.salted_password))
    return (
        UserScramCredentialRecord(
            name=wanted.name,
            mechanism=wanted.mechanism,
            salt=bytes(wanted.salt),
            stored_key=stored_key,
            server_key=server_key,
            iterations=wanted.iterations,
        ),
        0,
    )


def _result(name: str, refused: Refusal | None) -> AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult(
        user=name,
        error_code=ErrorCode.NONE if refused is None else refused.code,
        error_message=None if refused is None else refused.text,
    )


def _refuse(
    request: AlterUserScramCredentialsRequest, version: int, error: ErrorCode, message: str | None
) -> AlterUserScramCredentialsResponse:
    refused = Refusal(error, message)
    users = dict.fromkeys(each.name for each in _named(request))
    return AlterUserScramCredentialsResponse(results=[_result(name, refused) for name in users])


def describe(context: Context, request: DescribeUserScramCredentialsRequest, version: int) -> ControllerResult:
    """Refuse: brokers answer this request. Kafka's controllers offer it, and answer it with an error.

    Raises:
        Refusal: UNKNOWN_SERVER_ERROR, always.
    """
    raise Refusal(ErrorCode.UNKNOWN_SERVER_ERROR)


def _refuse_describe(
    request: DescribeUserScramCredentialsRequest, version: int, error: ErrorCode, message: str | None
) -> DescribeUserScramCredentialsResponse:
    result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
    return DescribeUserScramCredentialsResponse(
        error_code=error,
        error_message=message,
        results=[result(error_code=error, error_message=message) for _ in request.users or ()],
    )


APIS: dict[type[Request], Api] = {
    AlterUserScramCredentialsRequest: Api(alter, _refuse),
    DescribeUserScramCredentialsRequest: Api(describe, _refuse_describe),
}
