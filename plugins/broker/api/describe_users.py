"""DescribeUserScramCredentials (KIP-554) and DescribeClientQuotas (KIP-546), from the metadata image.

Source: Kafka 4.3.1, ScramImage.describe, ClientQuotasImage.describe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from kraftcore.metadata import Image
from kraftcore.node.registry import RequestContext
from kraftcore.plugins.broker.work.turns import InTurns, Turn, in_turns
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from kraftcore.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

_EXACT, _DEFAULT, _SPECIFIED = range(3)
_IP, _TYPES = "ip", ("user", "client-id", "ip")
_User = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
_Entry = DescribeClientQuotasResponse.EntryData


class DescribeUserScramCredentials:
    """Answers DescribeUserScramCredentials requests.

    Args:
        image: gives the committed metadata image.
    """

    def __init__(self, image: Callable[[], Image]) -> None:
        self._image = image

    @in_turns
    def respond(
        self, request: DescribeUserScramCredentialsRequest, context: RequestContext
    ) -> InTurns[DescribeUserScramCredentialsResponse]:
        """The mechanisms and iterations of the users asked for, or of all; never salts, keys or passwords."""
        known: dict[str, list[_User.CredentialInfo]] = {}
        for user, credential in sorted(self._image().scram.items()):
            info = _User.CredentialInfo(mechanism=user.mechanism, iterations=credential.iterations)
            known.setdefault(user.name, []).append(info)
        wanted = Counter(each.name for each in request.users or ()) or Counter(known)
        response, turn = DescribeUserScramCredentialsResponse(), Turn()
        for name in wanted:
            if turn.is_over():
                yield
            told = _User(user=name, credential_infos=known.get(name, []))
            if request.users and wanted[name] > 1:
                told.credential_infos = []
                told.error_code = ErrorCode.DUPLICATE_RESOURCE
                told.error_message = (
                    f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
                )
            elif name not in known:
                told.error_code = ErrorCode.RESOURCE_NOT_FOUND
                told.error_message = f"Attempt to describe a user credential that does not exist: {name}"
            response.results.append(told)
        return response


class _BadFilterError(Exception):
    """A filter of quotas is invalid; the message has Kafka's words."""


class DescribeClientQuotas:
    """Answers DescribeClientQuotas requests.

    Args:
        image: gives the committed metadata image.
    """

    def __init__(self, image: Callable[[], Image]) -> None:
        self._image = image

    def respond(self, request: DescribeClientQuotasRequest, context: RequestContext) -> DescribeClientQuotasResponse:
        """The entities that match the filter; a strict filter matches only entities of exactly its types."""
        try:
            exact, specified = _read(request)
        except _BadFilterError as error:
            return DescribeClientQuotasResponse(
                error_code=ErrorCode.INVALID_REQUEST, error_message=str(error), entries=None
            )
        except KeyError as error:
            text = f"Custom entity type '{error.args[0]}' not supported"
            return DescribeClientQuotasResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=text, entries=None
            )
        response = DescribeClientQuotasResponse(error_message=None, entries=[])
        for key, quotas in self._image().quotas.items():
            entity = dict(key)
            is_wanted = (
                all(kind in entity and entity[kind] == name for kind, name in exact.items())
                and specified <= entity.keys()
                and not (request.strict and entity.keys() - exact.keys() - specified)
            )
            if is_wanted and response.entries is not None:
                response.entries.append(
                    _Entry(
                        entity=[_Entry.EntityData(entity_type=kind, entity_name=name) for kind, name in key],
                        values=[_Entry.ValueData(key=each, value=value) for each, value in quotas.items()],
                    )
                )
        return response


def _read(request: DescribeClientQuotasRequest) -> tuple[dict[str, str | None], set[str]]:
    """The names that a filter asks for, by entity type (None: the default entity); and the types with any name."""
    exact: dict[str, str | None] = {}
    specified: set[str] = set()
    for each in request.components:
        kind = each.entity_type
        if not kind:
            raise _BadFilterError("Invalid empty entity type.")
        if kind in exact or kind in specified:
            raise _BadFilterError(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in _TYPES:
            raise KeyError(kind)
        if each.match_type == _EXACT:
            if each.match is None:
                raise _BadFilterError("Request specified MATCH_TYPE_EXACT, but set match string to null.")
            exact[kind] = each.match
        elif each.match_type in (_DEFAULT, _SPECIFIED):
            if each.match is not None:
                name = "DEFAULT" if each.match_type == _DEFAULT else "SPECIFIED"
                raise _BadFilterError(f"Request specified MATCH_TYPE_{name}, but also specified a match string.")
            if each.match_type == _DEFAULT:
                exact[kind] = None
            else:
                specified.add(kind)
        else:
            raise _BadFilterError(f"Unknown match type {each.match_type}")
    if _IP in {*exact, *specified} and {*exact, *specified} != {_IP}:
        raise _BadFilterError(
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component."
        )
    return exact, specified
