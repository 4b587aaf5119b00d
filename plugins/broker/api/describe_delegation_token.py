"""DescribeDelegationToken: tokens and their secrets, for who owns, renews or may describe them (KIP-48, KIP-373).

Source: Kafka 4.3.1, KafkaApis.handleDescribeTokensRequest, DelegationTokenManager.filterToken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kraftcore.metadata import Image
from kraftcore.metadata.tokens import DelegationToken
from kraftcore.node.registry import RequestContext
from kraftcore.plugins.broker.api.permits import Permits
from kraftcore.plugins.controller.caller import caller_of
from kraftcore.plugins.controller.tokens import SECRET_KEY, token_hmac
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from kraftcore.security.acl import Operation, ResourceType
from kraftcore.security.audit import Action

_Token = DescribeDelegationTokenResponse.DescribedDelegationToken
_Renewer = _Token.DescribedDelegationTokenRenewer


class DescribeDelegationToken:
    """Answers DescribeDelegationToken requests.

    Args:
        image: gives the committed metadata image.
        properties: the broker's properties, with the secret from which tokens are made.
        permits: knows which tokens the asker may describe.
    """

    def __init__(self, image: Callable[[], Image], properties: Mapping[str, str], permits: Permits) -> None:
        self._image = image
        self._secret = properties.get(SECRET_KEY)
        self._permits = permits

    def respond(
        self, request: DescribeDelegationTokenRequest, context: RequestContext
    ) -> DescribeDelegationTokenResponse:
        """The tokens asked for that the asker may see."""
        caller = caller_of(context.asker)
        if not caller.may_handle_tokens:
            return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
        if not self._secret:
            return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        owners = None
        if request.owners is not None:
            owners = {f"{each.principal_type}:{each.principal_name}" for each in request.owners}
        may = self._permits.asker(request, context)
        response = DescribeDelegationTokenResponse()
        for token in self._image().tokens.values():
            concerned = {token.owner, token.requester, *token.renewers}
            if owners is not None and not owners & concerned:
                continue
            if (
                caller.principal in concerned
                or may(Action(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.id))
                or may(Action(Operation.DESCRIBE_TOKENS, ResourceType.USER, token.owner))
            ):
                response.tokens.append(_told(token, token_hmac(self._secret, token.id), context.version))
        return response


def _told(token: DelegationToken, hmac: bytes, version: int) -> _Token:
    kind, _, name = token.owner.partition(":")
    told = _Token(
        principal_type=kind,
        principal_name=name,
        issue_timestamp=token.issue_timestamp_ms,
        expiry_timestamp=token.expiration_timestamp_ms,
        max_timestamp=token.max_timestamp_ms,
        token_id=token.id,
        hmac=hmac,
    )
    for renewer in token.renewers:
        kind, _, name = renewer.partition(":")
        told.renewers.append(_Renewer(principal_type=kind, principal_name=name))
    if version >= 3:
        told.token_requester_principal_type, _, told.token_requester_principal_name = token.requester.partition(":")
    return told
