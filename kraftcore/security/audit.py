"""What the authorizer log says of a decision: the line that Kafka's StandardAuthorizer writes."""

from __future__ import annotations

from typing import Final, NamedTuple

from kraftcore.security.acl import Operation, ResourceType, name_of
from kraftcore.security.authorizer import Verdict

# Kafka's spelling of resource types in this line.
_TYPES: Final = {
    ResourceType.TOPIC: "Topic",
    ResourceType.GROUP: "Group",
    ResourceType.CLUSTER: "Cluster",
    ResourceType.TRANSACTIONAL_ID: "TransactionalId",
    ResourceType.DELEGATION_TOKEN: "DelegationToken",
    ResourceType.USER: "User",
}


class Requester(NamedTuple):
    """Who asks for permission, and with what.

    Attributes:
        principal: ``User:alice``.
        host: the address it comes from, as text.
        request: name of the request, such as ``CreateTopics``.
    """

    principal: str
    host: str
    request: str


class Action(NamedTuple):
    """What somebody wants to do to one resource; named as in Kafka's authorizer.

    Attributes:
        operation: one of ``kraftcore.security.acl.Operation``.
        resource_type: one of ``kraftcore.security.acl.ResourceType``.
        resource_name: of the resource itself.
        references: how often the request names the resource.
        log_if_denied: False: nothing was refused for it, as the request did not ask for it by name, or something else
            may allow it as well.
        log_if_allowed: False: nothing was allowed by it, it was only reported.
    """

    operation: int
    resource_type: int
    resource_name: str
    references: int = 1
    log_if_denied: bool = True
    log_if_allowed: bool = True


def audit_line(who: Requester, action: Action, verdict: Verdict, rule: str) -> str:
    """Kafka's line about a decision.

    Args:
        who: asks.
        action: what it is about.
        verdict: the decision; ``NOT_READY`` is none.
        rule: what it was made by, see ``StandardAuthorizer.rule``.
    """
    kind = _TYPES.get(ResourceType(action.resource_type), "Unknown")
    return (
        f"Principal = {who.principal} is {'Allowed' if verdict is Verdict.ALLOWED else 'Denied'} "
        f"operation = {name_of(Operation, action.operation)} from host = {who.host} "
        f"on resource = {kind}:LITERAL:{action.resource_name} for request = {who.request} "
        f"with resourceRefCount = {action.references} based on rule {rule}"
    )
