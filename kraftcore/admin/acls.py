"""Access control entries: describe, create, delete. Source: KIP-140, 290; Kafka 4.3.1's client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kraftcore.admin.calls import Calls, settle
from kraftcore.admin.router import raise_refusal, refusal
from kraftcore.errors import RefusedError, RemoteProtocolError
from kraftcore.metadata.acls import Acl
from kraftcore.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from kraftcore.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from kraftcore.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from kraftcore.security.acl import AclFilter


class AclCalls(Calls):
    """Calls about access control entries; see ``AdminClient`` for the errors that all of them raise."""

    async def describe_acls(self, wanted: AclFilter) -> tuple[Acl, ...]:
        """The entries that match a filter, sorted.

        Raises:
            RefusedError: SECURITY_DISABLED: the cluster has no authorizer. CLUSTER_AUTHORIZATION_FAILED.
        """
        response = await self._router.call(
            "describeAcls",
            DescribeAclsRequest(
                resource_type_filter=wanted.resource_type,
                resource_name_filter=wanted.resource_name,
                pattern_type_filter=wanted.pattern_type,
                principal_filter=wanted.principal,
                host_filter=wanted.host,
                operation=wanted.operation,
                permission_type=wanted.permission,
            ),
            DescribeAclsResponse,
            lambda answer: raise_refusal(answer.error_code, answer.error_message),
        )
        found = {
            Acl(
                resource.resource_type,
                resource.resource_name,
                resource.pattern_type,
                each.principal,
                each.host,
                each.operation,
                each.permission_type,
            )
            for resource in response.resources
            for each in resource.acls
        }
        return tuple(sorted(found))

    async def create_acls(self, acls: Iterable[Acl]) -> None:
        """Add entries; an entry that exists already stays as it is.

        Raises:
            PartlyRefusedError: by entry. INVALID_REQUEST, SECURITY_DISABLED, CLUSTER_AUTHORIZATION_FAILED.
        """
        wanted = tuple(dict.fromkeys(acls))
        response = await self._router.call(
            "createAcls",
            CreateAclsRequest(
                creations=[
                    CreateAclsRequest.AclCreation(
                        resource_type=each.resource_type,
                        resource_name=each.resource_name,
                        resource_pattern_type=each.pattern_type,
                        principal=each.principal,
                        host=each.host,
                        operation=each.operation,
                        permission_type=each.permission_type,
                    )
                    for each in wanted
                ]
            ),
            CreateAclsResponse,
            lambda _: None,
        )
        _check_count(len(wanted), len(response.results))
        told = (refusal(each.error_code, each.error_message) or True for each in response.results)
        settle(dict(zip(wanted, told, strict=True)))

    async def delete_acls(self, filters: Iterable[AclFilter]) -> Mapping[AclFilter, tuple[Acl, ...]]:
        """Remove the entries that match filters.

        Returns:
            The removed entries by filter, sorted.

        Raises:
            PartlyRefusedError: by filter. INVALID_REQUEST, SECURITY_DISABLED, CLUSTER_AUTHORIZATION_FAILED, or the
                first error of a matching entry that could not be removed.
        """
        wanted = tuple(dict.fromkeys(filters))
        response = await self._router.call(
            "deleteAcls",
            DeleteAclsRequest(
                filters=[
                    DeleteAclsRequest.DeleteAclsFilter(
                        resource_type_filter=each.resource_type,
                        resource_name_filter=each.resource_name,
                        pattern_type_filter=each.pattern_type,
                        principal_filter=each.principal,
                        host_filter=each.host,
                        operation=each.operation,
                        permission_type=each.permission,
                    )
                    for each in wanted
                ]
            ),
            DeleteAclsResponse,
            lambda _: None,
        )
        _check_count(len(wanted), len(response.filter_results))
        return settle(dict(zip(wanted, map(_deleted, response.filter_results), strict=True)))


def _check_count(asked: int, told: int) -> None:
    if asked != told:
        raise RemoteProtocolError(f"the answer has {told} results for {asked} items")


def _deleted(result: DeleteAclsResponse.DeleteAclsFilterResult) -> tuple[Acl, ...] | RefusedError:
    errors = [refusal(result.error_code, result.error_message)]
    errors += [refusal(each.error_code, each.error_message) for each in result.matching_acls]
    for error in errors:
        if error is not None:
            return error
    found = {
        Acl(
            each.resource_type,
            each.resource_name,
            each.pattern_type,
            each.principal,
            each.host,
            each.operation,
            each.permission_type,
        )
        for each in result.matching_acls
    }
    return tuple(sorted(found))
