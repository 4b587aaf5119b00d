"""The decision that Kafka's StandardAuthorizer makes (KIP-801).

1. A super user may do everything.
2. Until the entries are loaded, nobody else gets an answer.
3. Of the entries that apply to the resource, one that denies decides; else one that allows.
4. A resource that no entry is about: what ``allow.everyone.if.no.acl.found`` says.
5. Otherwise, no.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

from kraftcore.errors import LocalError
from kraftcore.metadata.acls import Acl
from kraftcore.security.index import AclIndex

CLASS_KEY: Final = "authorizer.class.name"
SUPER_USERS_KEY: Final = "super.users"
ALLOW_EVERYONE_KEY: Final = "allow.everyone.if.no.acl.found"
STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class Verdict(Enum):
    """An answer of the authorizer."""

    ALLOWED = 0
    DENIED = 1
    NOT_READY = 2
    """The entries are not loaded yet. Kafka answers UNKNOWN_SERVER_ERROR."""


class Authorizer:
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
        self._without_entries = Verdict.ALLOWED if allows_without_entries else Verdict.DENIED

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Authorizer | None:
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
        """Whether somebody may do something.

        Args:
            principal: who asks, ``User:alice``.
            host: the address it comes from, as text.
            operation: one of ``kraftcore.security.acl.Operation``.
            resource_type: one of ``kraftcore.security.acl.ResourceType``.
            resource_name: of the resource itself, not a pattern.
        """
        if principal in self._super_users:
            return Verdict.ALLOWED
        if not self.is_ready:
            return Verdict.NOT_READY
        masks = self.acls.masks(resource_type, resource_name, principal, host)
        if masks is None:
            return self._without_entries
        denied, allowed = masks
        return Verdict.ALLOWED if allowed & ~denied & 1 << operation else Verdict.DENIED


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
