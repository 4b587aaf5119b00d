"""What access control entries are made of (KIP-11, KIP-290), with Kafka's numbers, and the filters that find them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from kraftcore.namespace import listing

if TYPE_CHECKING:
    from kraftcore.metadata.acls import Acl

__all__ = ["AclFilter", "Operation", "PatternType", "Permission", "ResourceType"]
__dir__ = listing(__all__)

CLUSTER_NAME: Final = "kafka-cluster"
"""The only resource of type CLUSTER."""
EVERYBODY: Final = "User:*"
"""As an entry's principal: everybody, of whatever type."""
WILDCARD: Final = "*"
"""As an entry's host: everywhere. As its literal resource name: every resource of the type."""


class ResourceType(IntEnum):
    """What an entry is about. UNKNOWN and ANY are for filters only."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How an entry's resource name is meant. UNKNOWN, ANY and MATCH are for filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """What is done. UNKNOWN and ANY are for filters only; ALL, in an entry, is every one."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


OPERATIONS: Final[Mapping[ResourceType, tuple[Operation, ...]]] = MappingProxyType(
    {
        ResourceType.TOPIC: (
            Operation.READ,
            Operation.WRITE,
            Operation.CREATE,
            Operation.DELETE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        ),
        ResourceType.GROUP: (
            Operation.READ,
            Operation.DELETE,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        ),
        ResourceType.CLUSTER: (
            Operation.CREATE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.CLUSTER_ACTION,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
            Operation.IDEMPOTENT_WRITE,
        ),
    }
)
"""What can be done with a resource, as Kafka tells clients that ask what they may (KIP-430)."""


IMPLIED: Final[Mapping[int, Operation]] = MappingProxyType(
    {
        **dict.fromkeys((Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER), Operation.DESCRIBE),
        Operation.ALTER_CONFIGS: Operation.DESCRIBE_CONFIGS,
    }
)
"""What else it allows to be allowed something (KIP-11). What is denied is denied alone."""


class Permission(IntEnum):
    """What an entry says. UNKNOWN and ANY are for filters only."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


def name_of(kind: type[ResourceType | PatternType | Operation | Permission], number: int) -> str:
    """Kafka's name of a number; UNKNOWN if it has none."""
    try:
        return kind(number).name
    except ValueError:
        return kind(0).name


class AclFilter(NamedTuple):
    """Finds entries. ANY and None match everything.

    Attributes:
        resource_type: of the entry.
        resource_name: of the entry, as ``pattern_type`` says.
        pattern_type: LITERAL and PREFIXED find entries with that very name and kind; ANY both kinds; MATCH all that
            apply to a resource of that name.
        principal: of the entry, exactly.
        host: of the entry, exactly.
        operation: of the entry.
        permission: of the entry.
    """

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    @property
    def is_unknown(self) -> bool:
        """A number in it has no meaning."""
        return not (
            ResourceType.ANY <= self.resource_type <= ResourceType.USER
            and PatternType.ANY <= self.pattern_type <= PatternType.PREFIXED
            and Operation.ANY <= self.operation <= Operation.TWO_PHASE_COMMIT
            and Permission.ANY <= self.permission <= Permission.ALLOW
        )

    def matches(self, acl: Acl) -> bool:
        """Whether it finds this entry."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission_type)
            and self._matches_name(acl)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.resource_name is None or self.resource_name == acl.resource_name:
            return True
        if self.pattern_type != PatternType.MATCH:
            return False
        if acl.pattern_type == PatternType.PREFIXED:
            return self.resource_name.startswith(acl.resource_name)
        return acl.resource_name == WILDCARD
