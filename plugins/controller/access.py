"""The permission that each request needs as a whole, and the authorizer of the metadata log (KIP-801).

For all other requests each item is authorized where it is decided. Source: Kafka 4.3.1 ControllerApis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from kraftcore.metadata import Image
from kraftcore.metadata.acls import Acl
from kraftcore.node.authorization import Authorization
from kraftcore.node.registry import (
    ALTER_CLUSTER,
    CLUSTER_ACTION,
    DESCRIBE_CLUSTER,
    Access,
    RequestContext,
    requester,
)
from kraftcore.plugins.controller.decision import Refusal, allow_all
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from kraftcore.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from kraftcore.protocol.messages.alter_partition import AlterPartitionRequest
from kraftcore.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kraftcore.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from kraftcore.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from kraftcore.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from kraftcore.protocol.messages.broker_registration import BrokerRegistrationRequest
from kraftcore.protocol.messages.controller_registration import ControllerRegistrationRequest
from kraftcore.protocol.messages.create_acls import CreateAclsRequest
from kraftcore.protocol.messages.delete_acls import DeleteAclsRequest
from kraftcore.protocol.messages.describe_acls import DescribeAclsRequest
from kraftcore.protocol.messages.describe_cluster import DescribeClusterRequest
from kraftcore.protocol.messages.elect_leaders import ElectLeadersRequest
from kraftcore.protocol.messages.envelope import EnvelopeRequest
from kraftcore.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from kraftcore.protocol.messages.unregister_broker import UnregisterBrokerRequest
from kraftcore.protocol.messages.update_features import UpdateFeaturesRequest
from kraftcore.protocol.schema import Request
from kraftcore.security.audit import Action, Requester
from kraftcore.security.authorizer import StandardAuthorizer, Verdict

ACCESS: Mapping[type[Request], Access] = MappingProxyType(
    {
        AllocateProducerIdsRequest: CLUSTER_ACTION,
        AlterClientQuotasRequest: Access("ALTER_CONFIGS"),
        AlterPartitionRequest: CLUSTER_ACTION,
        AlterPartitionReassignmentsRequest: ALTER_CLUSTER,
        AlterUserScramCredentialsRequest: ALTER_CLUSTER,
        AssignReplicasToDirsRequest: CLUSTER_ACTION,
        BrokerHeartbeatRequest: CLUSTER_ACTION,
        BrokerRegistrationRequest: CLUSTER_ACTION,
        ControllerRegistrationRequest: CLUSTER_ACTION,
        CreateAclsRequest: ALTER_CLUSTER,
        DeleteAclsRequest: ALTER_CLUSTER,
        DescribeAclsRequest: DESCRIBE_CLUSTER,
        DescribeClusterRequest: ALTER_CLUSTER,
        ElectLeadersRequest: ALTER_CLUSTER,
        EnvelopeRequest: CLUSTER_ACTION,
        ListPartitionReassignmentsRequest: DESCRIBE_CLUSTER,
        UnregisterBrokerRequest: ALTER_CLUSTER,
        UpdateFeaturesRequest: ALTER_CLUSTER,
    }
)
"""The operation on the cluster that each request needs permission for."""


class ImageAuthorizer:
    """An authorizer that decides by the access control entries in the present metadata image.

    Args:
        standard: takes the decisions; its entries follow the image.
        image: returns the image; None while only part of the log is applied: then all but super users are denied.
    """

    def __init__(self, standard: StandardAuthorizer, image: Callable[[], Image | None]) -> None:
        self._standard = standard
        self._image = image
        self._followed: Image | None = None

    def authorize(self, principal: str, host: str, operation: int, resource_type: int, resource_name: str) -> Verdict:
        """See ``kraftcore.security.authorizer.Authorizer``."""
        self._follow()
        return self._standard.authorize(principal, host, operation, resource_type, resource_name)

    def rule(self, principal: str, host: str, operation: int, resource_type: int, resource_name: str) -> str:
        """See `StandardAuthorizer.rule`."""
        return self._standard.rule(principal, host, operation, resource_type, resource_name)

    def _follow(self) -> None:
        image = self._image()
        if image is not self._followed:
            if self._followed is not None:
                self._followed.acls.on_change = None
            if image is not None:
                self._standard.load(image.acls.values())
                image.acls.on_change = self._change
            self._followed = image
        # The first record of a metadata log is its version.
        self._standard.is_ready = image is not None and image.features.metadata_version is not None

    def _change(self, before: Acl | None, after: Acl | None) -> None:
        if before is not None:
            self._standard.acls.remove(before)
        if after is not None:
            self._standard.acls.add(after)


class Gate:
    """Authorizes requests, and items of requests, for a controller's decisions.

    Args:
        authorization: asks the authorizer; None: everything is allowed.
    """

    def __init__(self, authorization: Authorization | None) -> None:
        self._authorization = authorization

    @property
    def is_open(self) -> bool:
        """Whether everything is allowed to everybody."""
        return self._authorization is None

    def asker(self, who: Requester) -> Callable[[Action], bool]:
        """Make ``Context.is_allowed`` for the sender of a request."""
        authorization = self._authorization
        if authorization is None:
            return allow_all
        return lambda action: authorization.decide(who, action) is Verdict.ALLOWED

    def check(self, request: Request, context: RequestContext) -> None:
        """Check that a request is allowed to its sender.

        Raises:
            Refusal: CLUSTER_AUTHORIZATION_FAILED in Kafka's words, or UNKNOWN_SERVER_ERROR before entries are loaded.
        """
        access = ACCESS.get(type(request))
        if self._authorization is None or access is None:
            return
        code = self._authorization.error(requester(request, context), access.operation, access.resource)
        if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise Refusal(code, f"{type(request).__name__} needs {access.operation} permission.")
        if code is not ErrorCode.NONE:
            raise Refusal(code, "Authorizer not ready")
