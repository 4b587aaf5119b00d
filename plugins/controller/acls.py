"""Decisions on access control entries: CreateAcls, DeleteAcls, DescribeAcls (KIP-11, KIP-290, KIP-801).

Without an authorizer in the controller's file each of these requests is refused: SECURITY_DISABLED.

The number 0 stands for an unknown resource type, pattern, operation or permission. Kafka cannot read a request with a 0
and closes the connection; here it is a RemoteProtocolError. An item with a number that Kafka does not know is refused.
ANY and MATCH belong to filters; an entry with one of them makes Kafka answer the whole CreateAcls with
UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kraftcore.core.uuid import Uuid
from kraftcore.errors import RemoteProtocolError
from kraftcore.metadata.acls import Acl, acl_record
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
from kraftcore.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from kraftcore.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from kraftcore.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from kraftcore.protocol.records.remove_access_control_entry_record import RemoveAccessControlEntryRecord
from kraftcore.protocol.schema import Request
from kraftcore.security.acl import CLUSTER_NAME, AclFilter, Operation, PatternType, Permission, ResourceType
from kraftcore.security.authorizer import CLASS_KEY

MAX_REMOVALS: Final = 10_000
LOOKED_AT_MAX = 1_000_000
"""Comparisons of a filter with an entry in one request: about a second."""
_FILTERS_ONLY: Final = {
    "resource_type": (ResourceType.ANY,),
    "pattern_type": (PatternType.ANY, PatternType.MATCH),
    "operation": (Operation.ANY,),
    "permission_type": (Permission.ANY,),
}
_KNOWN: Final = {
    "resource_type": frozenset(ResourceType),
    "pattern_type": frozenset(PatternType),
    "operation": frozenset(Operation),
    "permission_type": frozenset(Permission),
}
_NAMES: Final = {  # Kafka's, in messages
    "resource_type": "resourceType",
    "pattern_type": "patternType",
    "operation": "operation",
    "permission_type": "permissionType",
}


def _check_secured(context: Context, message: str) -> None:
    if not context.settings.static_configs.get(CLASS_KEY, "").strip():
        raise Refusal(ErrorCode.SECURITY_DISABLED, message)


def _check_readable(name: str, filters: Iterable[AclFilter]) -> None:
    for each in filters:
        if not (each.resource_type and each.pattern_type and each.operation and each.permission):
            raise RemoteProtocolError(f"{name} contains unknown elements")


# --- creating


def create(context: Context, request: CreateAclsRequest, version: int) -> ControllerResult:
    """Add entries, one batch in the order of the request. An entry that exists already is not written again."""
    wanted = [
        Acl(
            each.resource_type,
            each.resource_name,
            each.resource_pattern_type,
            each.principal,
            each.host,
            each.operation,
            each.permission_type,
        )
        for each in request.creations
    ]
    _check_readable("CreateAcls", (AclFilter(*acl) for acl in wanted))
    _check_secured(context, "No Authorizer is configured.")
    check_item_count(len(wanted))
    if any(getattr(acl, name) in values for acl in wanted for name, values in _FILTERS_ONLY.items()):
        raise Refusal(ErrorCode.UNKNOWN_SERVER_ERROR)
    asked = set(wanted)
    known = {acl for acl in context.image.acls.values() if acl in asked}
    answer = CreateAclsResponse()
    records: list[Record] = []
    for acl in wanted:
        why = _what_is_wrong(acl)
        result = CreateAclsResponse.AclCreationResult()
        if why is not None:
            result.error_code, result.error_message = ErrorCode.INVALID_REQUEST, why
        elif acl not in known:
            known.add(acl)
            records.append((acl_record(_new_id(context), acl), 0))
        answer.results.append(result)
    check_record_count(len(records))
    return ControllerResult(answer, records)


def _what_is_wrong(acl: Acl) -> str | None:
    if acl.resource_type == ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not acl.resource_name:
        return "Invalid empty resource name"
    for name, known in _KNOWN.items():
        if getattr(acl, name) not in known:
            return f"Invalid {_NAMES[name]} UNKNOWN"
    if ":" not in acl.principal:
        return (
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the principal type from "
            "the principal name)"
        )
    return None


def _new_id(context: Context) -> Uuid:
    while True:
        acl_id = Uuid.random(context.random.randbytes)
        if acl_id not in context.image.acls:
            return acl_id


def _refuse_create(
    request: CreateAclsRequest, version: int, error: ErrorCode, message: str | None
) -> CreateAclsResponse:
    result = CreateAclsResponse.AclCreationResult
    return CreateAclsResponse(results=[result(error_code=error, error_message=message) for _ in request.creations])


# --- deleting


def delete(context: Context, request: DeleteAclsRequest, version: int) -> ControllerResult:
    """Remove and report the entries that match the filters. An entry that matches two filters is removed once."""
    filters = [
        AclFilter(
            each.resource_type_filter,
            each.resource_name_filter,
            each.pattern_type_filter,
            each.principal_filter,
            each.host_filter,
            each.operation,
            each.permission_type,
        )
        for each in request.filters
    ]
    _check_readable("DeleteAcls", filters)
    _check_secured(context, "No Authorizer is configured.")
    check_item_count(len(filters))
    answer = DeleteAclsResponse()
    gone: dict[Uuid, Acl] = {}
    named: dict[str, dict[Uuid, Acl]] = {}
    for acl_id, acl in context.image.acls.items():
        named.setdefault(acl.resource_name, {})[acl_id] = acl
    looked_at = 0
    for each in filters:
        unknown = _what_is_unknown(each)
        if unknown is not None:
            result = DeleteAclsResponse.DeleteAclsFilterResult
            answer.filter_results.append(result(error_code=ErrorCode.INVALID_REQUEST, error_message=unknown))
            continue
        # A filter that names a resource is compared only with the entries of that name.
        name = None if each.pattern_type == PatternType.MATCH else each.resource_name
        candidates = context.image.acls if name is None else named.get(name, {})
        looked_at += len(candidates)
        if looked_at > LOOKED_AT_MAX:
            text = f"Cannot compare filters with entries more than {LOOKED_AT_MAX} times in a single delete operation."
            raise Refusal(ErrorCode.POLICY_VIOLATION, text)
        found = {acl_id: acl for acl_id, acl in candidates.items() if each.matches(acl)}
        gone.update(found)
        if len(gone) > MAX_REMOVALS:
            text = f"Cannot remove more than {MAX_REMOVALS} acls in a single delete operation."
            raise Refusal(ErrorCode.INVALID_REQUEST, text)
        answer.filter_results.append(
            DeleteAclsResponse.DeleteAclsFilterResult(
                error_message=None, matching_acls=[_matching(acl) for acl in found.values()]
            )
        )
    return ControllerResult(answer, [(RemoveAccessControlEntryRecord(id=acl_id), 0) for acl_id in gone])


def _what_is_unknown(wanted: AclFilter) -> str | None:
    """Words for a number that Kafka 4.3.1 does not know, or None; the number 0 was refused before."""
    if wanted.resource_type not in _KNOWN["resource_type"] or wanted.pattern_type not in _KNOWN["pattern_type"]:
        return "Unknown patternFilter."
    if wanted.operation not in _KNOWN["operation"] or wanted.permission not in _KNOWN["permission_type"]:
        return "Unknown entryFilter."
    return None


def _matching(acl: Acl) -> DeleteAclsResponse.DeleteAclsFilterResult.DeleteAclsMatchingAcl:
    kind = DeleteAclsResponse.DeleteAclsFilterResult.DeleteAclsMatchingAcl
    return kind(error_message=None, **acl._asdict())


def _refuse_delete(
    request: DeleteAclsRequest, version: int, error: ErrorCode, message: str | None
) -> DeleteAclsResponse:
    result = DeleteAclsResponse.DeleteAclsFilterResult
    return DeleteAclsResponse(filter_results=[result(error_code=error, error_message=message) for _ in request.filters])


# --- describing


def describe(context: Context, request: DescribeAclsRequest, version: int) -> ControllerResult:
    """Answer with the entries that match a filter, grouped by resource."""
    wanted = AclFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    _check_readable("DescribeAcls", [wanted])
    _check_secured(context, "No Authorizer is configured on the broker")
    found = dict.fromkeys(acl for acl in context.image.acls.values() if wanted.matches(acl))
    return ControllerResult(DescribeAclsResponse(resources=_by_resource(found)))


def _by_resource(acls: Iterable[Acl]) -> list[DescribeAclsResponse.DescribeAclsResource]:
    kind = DescribeAclsResponse.DescribeAclsResource
    resources: dict[tuple[int, str, int], DescribeAclsResponse.DescribeAclsResource] = {}
    for acl in acls:
        resource = resources.get(acl[:3])
        if resource is None:
            resource = kind(
                resource_type=acl.resource_type, resource_name=acl.resource_name, pattern_type=acl.pattern_type
            )
            resources[acl[:3]] = resource
        resource.acls.append(
            kind.AclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission_type,
            )
        )
    return list(resources.values())


def _refuse_describe(
    request: DescribeAclsRequest, version: int, error: ErrorCode, message: str | None
) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=error, error_message=message)


APIS: dict[type[Request], Api] = {
    CreateAclsRequest: Api(create, _refuse_create),
    DeleteAclsRequest: Api(delete, _refuse_delete),
    DescribeAclsRequest: Api(describe, _refuse_describe),
}
