"""What a request needs to be allowed as a whole, and who may do what (KIP-801).

Requests that are not here are asked about item by item where they are decided. Source: Kafka 4.3.1 ControllerApis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from kraftcore.metadata import Image
from kraftcore.node.registry import ALTER_CLUSTER, CLUSTER_ACTION, DESCRIBE_CLUSTER, Access
from kraftcore.plugins.controller.decision import Permission, Refusal, allow_all
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
from kraftcore.protocol.messages.elect_leaders import ElectLeadersRequest
from kraftcore.protocol.messages.envelope import EnvelopeRequest
from kraftcore.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from kraftcore.protocol.messages.unregister_broker import UnregisterBrokerRequest
from kraftcore.protocol.messages.update_features import UpdateFeaturesRequest
from kraftcore.protocol.schema import Request
from kraftcore.security.acl import CLUSTER_NAME, Operation, ResourceType
from kraftcore.security.authorizer import Authorizer, Verdict

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
        ElectLeadersRequest: ALTER_CLUSTER,
        EnvelopeRequest: CLUSTER_ACTION,
        ListPartitionReassignmentsRequest: DESCRIBE_CLUSTER,
        UnregisterBrokerRequest: ALTER_CLUSTER,
        UpdateFeaturesRequest: ALTER_CLUSTER,
    }
)
"""What each request needs to be allowed to the cluster."""


class Gate:
    """Asks the authorizer, with the entries of an image.

    Args:
        authorizer: None: everybody may do everything.
    """

    def __init__(self, authorizer: Authorizer | None) -> None:
        self._authorizer = authorizer
        self._loaded: tuple[Image, int] | None = None

    @property
    def is_open(self) -> bool:
        """Whether everybody may do everything."""
        return self._authorizer is None

    def asker(self, image: Image, principal: str, host: str) -> Callable[[Permission], bool]:
        """What ``Context.is_allowed`` is for somebody.

        Args:
            image: whose entries count.
            principal: who, ``User:alice``.
            host: the address, as text.
        """
        authorizer = self._authorizer
        if authorizer is None:
            return allow_all
        self._follow(authorizer, image)

        def is_allowed(permission: Permission) -> bool:
            return authorizer.authorize(principal, host, *permission) is Verdict.ALLOWED

        return is_allowed

    def check(self, image: Image, principal: str, host: str, request: Request) -> None:
        """See that somebody may send a request.

        Raises:
            Refusal: CLUSTER_AUTHORIZATION_FAILED in Kafka's words, or UNKNOWN_SERVER_ERROR while there are no entries.
        """
        access = ACCESS.get(type(request))
        code = ErrorCode.NONE if access is None else self.check_access(image, principal, host, access)
        if access is not None and code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise Refusal(code, f"{type(request).__name__} needs {access.operation} permission.")
        if code is not ErrorCode.NONE:
            raise Refusal(code, "Authorizer not ready")

    def check_access(
        self, image: Image | None, principal: str, host: str, access: Access, names: Iterable[str] = ()
    ) -> ErrorCode:
        """Whether somebody may do what a request needs.

        Args:
            image: whose entries count; None while there is none: then only super users may do anything.
            principal: who, ``User:alice``.
            host: the address, as text.
            access: what the request needs.
            names: of the resources, if they are others than the cluster.

        Returns:
            NONE; CLUSTER_AUTHORIZATION_FAILED or TOPIC_AUTHORIZATION_FAILED; UNKNOWN_SERVER_ERROR while there are no
            entries.
        """
        authorizer = self._authorizer
        if authorizer is None:
            return ErrorCode.NONE
        if image is not None:
            self._follow(authorizer, image)
        operation, resource = Operation[access.operation], ResourceType[access.resource]
        for name in names if resource is not ResourceType.CLUSTER else (CLUSTER_NAME,):
            verdict = authorizer.authorize(principal, host, operation, resource, name)
            if verdict is Verdict.NOT_READY:
                return ErrorCode.UNKNOWN_SERVER_ERROR
            if verdict is not Verdict.ALLOWED:
                return (
                    ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                    if resource is ResourceType.CLUSTER
                    else ErrorCode.TOPIC_AUTHORIZATION_FAILED
                )
        return ErrorCode.NONE

    def _follow(self, authorizer: Authorizer, image: Image) -> None:
        loaded = self._loaded
        if image.features.metadata_version is None:
            authorizer.is_ready = False
            self._loaded = None
        elif loaded is None or loaded[0] is not image or loaded[1] != image.acls.changes:
            authorizer.load(image.acls.values())
            self._loaded = image, image.acls.changes
