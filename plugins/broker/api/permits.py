"""The permissions of the client that sent a request."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kraftcore.node.authorization import Authorization
from kraftcore.node.registry import RequestContext, requester
from kraftcore.security.acl import CLUSTER_NAME, OPERATIONS, Operation, ResourceType
from kraftcore.security.audit import Action
from kraftcore.security.authorizer import Verdict


class Permits:
    """Asks the authorizer about the resources of one request.

    Args:
        authorization: the authorizer; None: every client may do everything.
    """

    def __init__(self, authorization: Callable[[], Authorization | None] = lambda: None) -> None:
        self._authorization = authorization

    @property
    def is_open(self) -> bool:
        """Whether there is no authorizer: every client may do everything."""
        return self._authorization() is None

    def may(
        self, request: Any, context: RequestContext, operation: Operation, topic: str, *, is_logged: bool = True
    ) -> bool:
        """Whether the client may do an operation on a topic; ``is_logged``: whether a denial is logged."""
        return self._may(request, context, Action(operation, ResourceType.TOPIC, topic, log_if_denied=is_logged))

    def may_cluster(
        self, request: Any, context: RequestContext, operation: Operation, *, is_logged: bool = True
    ) -> bool:
        """Whether the client may do an operation on the cluster; ``is_logged``: whether a denial is logged."""
        action = Action(operation, ResourceType.CLUSTER, CLUSTER_NAME, log_if_denied=is_logged)
        return self._may(request, context, action)

    def may_some(self, request: Any, context: RequestContext, operation: Operation, topics: Iterable[str]) -> bool:
        """Whether the client may do an operation on any topic, existing or not; ``topics`` are the existing ones."""
        authorization = self._authorization()
        if authorization is None:
            return True
        who = requester(request, context)
        return authorization.decide_for_some(who, operation, ResourceType.TOPIC, topics) is Verdict.ALLOWED

    def asker(self, request: Any, context: RequestContext) -> Callable[[Action], bool]:
        """A function that says whether the client may do an action."""
        return lambda action: self._may(request, context, action)

    def operations(self, request: Any, context: RequestContext, kind: ResourceType, name: str) -> int:
        """The operations that the client may do on a topic, a group or the cluster: a bit for each, by its number."""
        return sum(
            1 << operation
            for operation in OPERATIONS[kind]
            if self._may(request, context, Action(operation, kind, name, log_if_denied=False, log_if_allowed=False))
        )

    def _may(self, request: Any, context: RequestContext, action: Action) -> bool:
        authorization = self._authorization()
        return authorization is None or authorization.decide(requester(request, context), action) is Verdict.ALLOWED
