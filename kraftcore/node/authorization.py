"""Authorization: asks the authorizer, counts its decisions, and writes the authorizer log.

The logger ``kraftcore.authorizer`` gets Kafka's lines: denials at INFO, the rest at DEBUG.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final, Protocol, runtime_checkable

from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.security.acl import CLUSTER_NAME, WILDCARD, Operation, ResourceType
from kraftcore.security.audit import Action, Requester, audit_line
from kraftcore.security.authorizer import Authorizer, Verdict

_logger = logging.getLogger("kraftcore.authorizer")
_DENIED: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


@runtime_checkable
class Explains(Protocol):
    """An authorizer that can name the rule it decided by; for any other authorizer the log names its class."""

    def rule(self, principal: str, host: str, operation: int, resource_type: int, resource_name: str) -> str:
        """The rule, in words for the log; the arguments are those of ``authorize``."""
        ...


@runtime_checkable
class DecidesByType(Protocol):
    """An authorizer that can decide for a whole type; any other one is asked about each existing resource."""

    def authorize_by_resource_type(self, principal: str, host: str, operation: int, resource_type: int) -> Verdict:
        """Whether a principal may do an operation on at least one resource of a type."""
        ...


class Authorization:
    """Asks the authorizer whether a principal may do an operation, and counts and logs the decision.

    Args:
        authorizer: takes the decisions.

    Attributes:
        authorizer: as given.
        allowed: decisions since the node started that allowed a request.
        denied: decisions since the node started that denied a request.
    """

    def __init__(self, authorizer: Authorizer) -> None:
        self.authorizer = authorizer
        self.allowed = 0
        self.denied = 0

    def decide(self, who: Requester, action: Action) -> Verdict:
        """Whether a principal may do an operation on a resource."""
        return self._note(who, action, self._ask(who, action))

    def decide_for_some(
        self, who: Requester, operation: Operation, resource_type: ResourceType, names: Iterable[str]
    ) -> Verdict:
        """Whether a principal may do an operation on at least one resource of a type: counted and logged once.

        Args:
            who: the principal, its address and its request.
            operation: the operation.
            resource_type: the type of the resources.
            names: of the existing resources, for an authorizer that decides by name alone.
        """
        authorizer, action = self.authorizer, Action(operation, resource_type, WILDCARD)
        if isinstance(authorizer, DecidesByType):
            verdict = authorizer.authorize_by_resource_type(who.principal, who.host, operation, resource_type)
        else:
            verdicts = (self._ask(who, Action(operation, resource_type, name)) for name in names)
            verdict = next((each for each in verdicts if each is not Verdict.DENIED), Verdict.DENIED)
        return self._note(who, action, verdict)

    def _ask(self, who: Requester, action: Action) -> Verdict:
        return self.authorizer.authorize(*_question(who, action))

    def _note(self, who: Requester, action: Action, verdict: Verdict) -> Verdict:
        if verdict is Verdict.ALLOWED:
            self.allowed += 1
            level = logging.DEBUG
        elif verdict is Verdict.DENIED:
            self.denied += 1
            level = logging.INFO
        else:
            return verdict
        is_said = action.log_if_allowed if verdict is Verdict.ALLOWED else action.log_if_denied
        if is_said and _logger.isEnabledFor(level):
            explains = self.authorizer
            rule = explains.rule(*_question(who, action)) if isinstance(explains, Explains) else type(explains).__name__
            _logger.log(level, "%s", audit_line(who, action, verdict, rule))
        return verdict

    def error(self, who: Requester, operation: str, resource: str, names: Iterable[str] = ()) -> ErrorCode:
        """The error for a principal that may not do an operation on each of some resources.

        Args:
            who: the principal, its address and its request.
            operation: its name, such as ``ALTER``.
            resource: name of the resources' type, such as ``TOPIC``.
            names: of the resources; none: the cluster.

        Returns:
            NONE if all are allowed; else the error of the type, such as CLUSTER_AUTHORIZATION_FAILED;
            UNKNOWN_SERVER_ERROR while the authorizer is not ready.
        """
        kind = ResourceType[resource]
        for name in (CLUSTER_NAME,) if kind is ResourceType.CLUSTER else names:
            verdict = self.decide(who, Action(Operation[operation], kind, name))
            if verdict is Verdict.NOT_READY:
                return ErrorCode.UNKNOWN_SERVER_ERROR
            if verdict is not Verdict.ALLOWED:
                return _DENIED[kind]
        return ErrorCode.NONE


def _question(who: Requester, action: Action) -> tuple[str, str, int, int, str]:
    return who.principal, who.host, action.operation, action.resource_type, action.resource_name
