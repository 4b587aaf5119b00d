"""Envelopes: a broker passes a client's request on, with the client's principal (KIP-590)."""

from __future__ import annotations

import logging
import struct
from typing import Any, Final

from kraftcore.core.wire.codec import decode_prefix
from kraftcore.core.wire.struct import Struct
from kraftcore.errors import RemoteProtocolError
from kraftcore.node.registry import Asker, RequestContext
from kraftcore.protocol.data.default_principal_data import DefaultPrincipalData
from kraftcore.protocol.data.headers import RequestHeader
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.frames import decode_request, encode_response
from kraftcore.protocol.messages.add_raft_voter import AddRaftVoterRequest
from kraftcore.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from kraftcore.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from kraftcore.protocol.messages.alter_configs import AlterConfigsRequest
from kraftcore.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kraftcore.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from kraftcore.protocol.messages.create_acls import CreateAclsRequest
from kraftcore.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from kraftcore.protocol.messages.create_partitions import CreatePartitionsRequest
from kraftcore.protocol.messages.create_topics import CreateTopicsRequest
from kraftcore.protocol.messages.delete_acls import DeleteAclsRequest
from kraftcore.protocol.messages.delete_topics import DeleteTopicsRequest
from kraftcore.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from kraftcore.protocol.messages.elect_leaders import ElectLeadersRequest
from kraftcore.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from kraftcore.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from kraftcore.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kraftcore.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from kraftcore.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from kraftcore.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from kraftcore.protocol.messages.unregister_broker import UnregisterBrokerRequest
from kraftcore.protocol.messages.update_features import UpdateFeaturesRequest
from kraftcore.protocol.schema import Request
from kraftcore.security.hosts import host_address
from kraftcore.security.principals import Principal

_logger = logging.getLogger("kraftcore.controller")

FORWARDABLE: Final[frozenset[type[Request]]] = frozenset(
    {
        AddRaftVoterRequest,
        AllocateProducerIdsRequest,
        AlterClientQuotasRequest,
        AlterConfigsRequest,
        AlterPartitionReassignmentsRequest,
        AlterUserScramCredentialsRequest,
        CreateAclsRequest,
        CreateDelegationTokenRequest,
        CreatePartitionsRequest,
        CreateTopicsRequest,
        DeleteAclsRequest,
        DeleteTopicsRequest,
        DescribeQuorumRequest,
        ElectLeadersRequest,
        ExpireDelegationTokenRequest,
        IncrementalAlterConfigsRequest,
        ListPartitionReassignmentsRequest,
        RemoveRaftVoterRequest,
        RenewDelegationTokenRequest,
        UnregisterBrokerRequest,
        UpdateFeaturesRequest,
    }
)
"""The requests that an envelope may hold. Source: Kafka 4.3.1 ApiKeys, ``forwardable``."""
_VERSION = struct.Struct(">h")


class Refused(Exception):
    """An envelope is refused."""

    def __init__(self, error: ErrorCode) -> None:
        super().__init__(error.name)
        self.error = error


def unpack(envelope: EnvelopeRequest, outer: RequestContext) -> tuple[Request, RequestContext]:
    """Return the request in an envelope, and a context that puts its answer into the envelope's answer.

    Raises:
        Refused: PRINCIPAL_DESERIALIZATION_FAILURE; INVALID_REQUEST for a bad address, or a request that is not
            forwardable; UNSUPPORTED_VERSION for a request that cannot be read.
    """
    found = _principal(envelope.request_principal)
    try:
        address = host_address(envelope.client_host_address)
    except ValueError:
        raise Refused(ErrorCode.INVALID_REQUEST) from None
    try:
        header, request = decode_request(envelope.request_data)
    except RemoteProtocolError:
        raise Refused(ErrorCode.UNSUPPORTED_VERSION) from None
    if request is None:
        raise Refused(ErrorCode.UNSUPPORTED_VERSION)
    if type(request) not in FORWARDABLE:
        raise Refused(ErrorCode.INVALID_REQUEST)
    asker = Asker(
        outer.asker.listener,
        address,
        Principal(found.type, found.name),
        outer.asker.security_protocol,
        is_by_token=found.token_authenticated,
        is_forwarded=True,
    )
    return request, _Forwarded(asker, header, outer)


class _Forwarded(RequestContext):
    """A request that a broker passed on: its answer goes into the answer of the envelope, ``outer``."""

    __slots__ = ("_correlation_id", "_outer")

    def __init__(self, asker: Asker, header: RequestHeader, outer: RequestContext) -> None:
        super().__init__(asker, header.request_api_version, header.client_id)
        self._correlation_id = header.correlation_id
        self._outer = outer

    def answer(self, response: Any) -> None:
        """Send the response inside the envelope's response."""
        try:
            if _says_not_controller(response):  # as in Kafka's RequestChannel; the broker then asks another controller
                told = refusal(ErrorCode.NOT_CONTROLLER)
            else:
                told = EnvelopeResponse(response_data=encode_response(response, self.version, self._correlation_id))
        except Exception:
            _logger.exception("an answer to %s cannot be written", self._outer.asker.peer)
            self._outer.close()
            return
        self._outer.answer(told)

    def close(self) -> None:
        """Have the broker break its client's connection."""
        self._outer.answer(refusal(ErrorCode.UNSUPPORTED_VERSION))


def _says_not_controller(response: Any) -> bool:
    code = (
        ErrorCode.NOT_LEADER_OR_FOLLOWER if isinstance(response, DescribeQuorumResponse) else ErrorCode.NOT_CONTROLLER
    )
    return _carries(response, code)


def _carries(part: Any, code: ErrorCode) -> bool:
    """Whether a response, or the first item of a list in it, has this error: a refused request has it in all items."""
    if getattr(part, "error_code", None) == code:
        return True
    lists = (getattr(part, field.name) for field in type(part).__layout__.fields)
    return any(
        found and isinstance(found, list) and isinstance(found[0], Struct) and _carries(found[0], code)
        for found in lists
    )


def refusal(error: ErrorCode) -> EnvelopeResponse:
    """The answer to an envelope that was not opened."""
    return EnvelopeResponse(error_code=error)


def _principal(data: bytes | None) -> DefaultPrincipalData:
    # As in Kafka's DefaultKafkaPrincipalBuilder, bytes that follow are ignored.
    try:
        version = _VERSION.unpack_from(data or b"")[0]
        if version != 0:
            raise Refused(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)
        return decode_prefix(DefaultPrincipalData, data or b"", version, _VERSION.size)[0]
    except (struct.error, RemoteProtocolError):
        raise Refused(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE) from None
