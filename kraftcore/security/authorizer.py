"""Who may do what: what an application may bring, and the decision that Kafka's StandardAuthorizer makes (KIP-801).

1. A super user may do everything.
2. Until the entries are loaded, nobody else gets an answer.
3. Of the entries that apply to the resource, one that denies decides; else one that allows.
4. A resource that no entry is about: what ``allow.everyone.if.no.acl.found`` says.
5. Otherwise, no.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from kraftcore.errors import LocalError
from kraftcore.namespace import listing
from kraftcore.security.acl import IMPLIED, WILDCARD, Operation, PatternType, Permission, ResourceType, name_of
from kraftcore.security.index import AclIndex

if TYPE_CHECKING:
    from kraftcore.metadata.acls import Acl

__all__ = ["Authorizer", "StandardAuthorizer", "Verdict"]
__dir__ = listing(__all__)

CLASS_KEY: Final = "authorizer.class.name"
SUPER_USERS_KEY: Final = "super.users"
ALLOW_EVERYONE_KEY: Final = "allow.everyone.if.no.acl.found"
STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


_NOBODYS: Final = "hardcode"
"""A resource that need not be there, about which Kafka asks for those whom no entry allows anything."""


class Verdict(Enum):
    """An answer of the authorizer."""

    ALLOWED = 0
    DENIED = 1
    NOT_READY = 2
    """The entries are not loaded yet. Kafka answers UNKNOWN_SERVER_ERROR."""


class Authorizer(Protocol):
    """Decides; an application may bring its own: any object with this method will do.

    It is asked in the node's own task, before a request is answered: be quick, do not wait. What it raises stops the
    node.
    """

    def authorize(self, principal: str, host: str, operation: int, resource_type: int, resource_name: str) -> Verdict:
        """Whether somebody may do something.

        Args:
            principal: who asks, ``User:alice``.
            host: the address it comes from, as text.
            operation: one of ``kraftcore.security.acl.Operation``.
            resource_type: one of ``kraftcore.security.acl.ResourceType``.
            resource_name: of the resource itself, not a pattern; ``kafka-cluster`` is the only one of type CLUSTER.
        """
        ...


class StandardAuthorizer:
    """Decides by the entries it was given.

    Args:
        super_users: principals that may do everything.
        allows_without_entries: a resource that no entry is about is open to everybody.

    Attributes:
        acls: the entries; whoever follows the metadata adds and removes them.
        is_ready: the entries are loaded. Set it when the log has been read.
    """

    def __init__(self, super_users: Iterable[str] = (), *, allows_without_entries: bool = False) -> None:
        self.acls = AclIndex()
        self.is_ready = False
        self._super_users = frozenset(super_users)
        self._allows_without_entries = allows_without_entries

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> StandardAuthorizer | None:
        """The authorizer that a server's file asks for; None if it asks for none.

        Raises:
            LocalError: for another class than StandardAuthorizer, or a super user without a type.
        """
        name = properties.get(CLASS_KEY, "").strip()
        if not name:
            return None
        if name != STANDARD_AUTHORIZER:
            raise LocalError(f"{CLASS_KEY} {name} is not known: kraftcore has {STANDARD_AUTHORIZER}")
        return cls(
            read_super_users(properties.get(SUPER_USERS_KEY, "")),
            allows_without_entries=properties.get(ALLOW_EVERYONE_KEY, "").strip().lower() == "true",
        )

    def load(self, acls: Iterable[Acl]) -> None:
        """Begin anew with these entries, and be ready."""
        self.acls = AclIndex()
        for acl in acls:
            self.acls.add(acl)
        self.is_ready = True

    def authorize(self, principal: str, host: str, operation: int, resource_type: int, resource_name: str) -> Verdict:
        """See `Authorizer`."""
        if principal in self._super_users:
            return Verdict.ALLOWED
        if not self.is_ready:
            return Verdict.NOT_READY
        denied, allowed = self.acls.masks(resource_type, resource_name, principal, host)
        bit = 1 << operation
        if denied & bit:
            return Verdict.DENIED
        if allowed & bit or (self._allows_without_entries and not self.acls.is_about(resource_type, resource_name)):
            return Verdict.ALLOWED
        return Verdict.DENIED

    def authorize_by_resource_type(self, principal: str, host: str, operation: int, resource_type: int) -> Verdict:
        """Whether somebody may do something to at least one resource of a type, which need not exist.

        An entry allows it on a name that none denies: all names, that very name, or a prefix of it. Source: Kafka's
        Authorizer.authorizeByResourceType.
        """
        verdict = self.authorize(principal, host, operation, resource_type, _NOBODYS)
        if verdict is not Verdict.DENIED:
            return verdict
        names: dict[tuple[int, int], set[str]] = {}  # by permission and pattern
        for acl in self.acls.held(resource_type, principal, host):
            if acl.operation in (Operation.ALL, operation):
                names.setdefault((acl.permission_type, acl.pattern_type), set()).add(acl.resource_name)
        denied = names.get((Permission.DENY, PatternType.LITERAL), set())
        if WILDCARD in denied:
            return Verdict.DENIED
        denied_prefixes = names.get((Permission.DENY, PatternType.PREFIXED), set())
        allowed = names.get((Permission.ALLOW, PatternType.LITERAL), set()) - denied
        if WILDCARD in allowed:
            return Verdict.ALLOWED
        for name in (*allowed, *names.get((Permission.ALLOW, PatternType.PREFIXED), ())):
            if not denied_prefixes or all(name[:end] not in denied_prefixes for end in range(1, len(name) + 1)):
                return Verdict.ALLOWED
        return Verdict.DENIED

    def rule(self, principal: str, host: str, operation: int, resource_type: int, resource_name: str) -> str:
        """What ``authorize`` decides by, in the words of Kafka's authorizer log."""
        if principal in self._super_users:
            return "SuperUser"
        best: Acl | None = None
        for acl in self.acls.applying(resource_type, resource_name, principal, host):
            if _says(acl, operation) and (best is None or _goes_before(acl, best)):
                best = acl
        if best is not None:
            return f"MatchingAcl(acl={_text(best)})"
        is_open = self._allows_without_entries and not self.acls.is_about(resource_type, resource_name)
        return "DefaultAllow" if is_open else "DefaultDeny"


def _says(acl: Acl, operation: int) -> bool:
    """Whether an entry says something of an operation."""
    if acl.operation in (Operation.ALL, operation):
        return True
    return acl.permission_type == Permission.ALLOW and IMPLIED.get(acl.operation) == operation


def _goes_before(acl: Acl, other: Acl) -> bool:
    """Whether Kafka names this entry rather than the other: it looks at longer names first, then at the name ``*``.

    It stops at the first one that denies; of those that allow it names the last.
    """
    if acl.permission_type != other.permission_type:
        return acl.permission_type == Permission.DENY
    is_first = _place(acl) < _place(other)
    return is_first if acl.permission_type == Permission.DENY else not is_first


def _place(acl: Acl) -> tuple[bool, int, int, int, str, str]:
    everywhere = acl.pattern_type == PatternType.LITERAL and acl.resource_name == WILDCARD
    return everywhere, -len(acl.resource_name), acl.pattern_type, acl.operation, acl.principal, acl.host


def _text(acl: Acl) -> str:
    return (
        f"StandardAcl[resourceType={name_of(ResourceType, acl.resource_type)}, resourceName={acl.resource_name}, "
        f"patternType={name_of(PatternType, acl.pattern_type)}, principal={acl.principal}, host={acl.host}, "
        f"operation={name_of(Operation, acl.operation)}, permissionType={name_of(Permission, acl.permission_type)}]"
    )


def read_super_users(text: str) -> frozenset[str]:
    """Read ``super.users``: principals with semicolons between them.

    Raises:
        LocalError: one has no type.
    """
    users = frozenset(user.strip() for user in text.split(";") if user.strip())
    for user in users:
        check_principal(user)
    return users


def check_principal(text: str) -> None:
    """See that a principal has a type: ``User:alice``.

    Raises:
        LocalError: it has none; the text is Kafka's.
    """
    if ":" not in text:
        raise LocalError(f"expected a string in format principalType:principalName but got {text}")
