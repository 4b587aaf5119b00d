"""Access control entries by resource.

A question about a resource looks at the entries with its very name, at those with the name ``*``, and at those whose
name is a prefix of it. The prefixes are kept sorted, each with the longest other prefix that it begins with. Of the
prefixes of a name the longest is found from its place in the order, the others by following those links: what lies
between a prefix of a name and the name begins with that prefix, too.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterator

from kraftcore.metadata.acls import Acl
from kraftcore.security.acl import EVERYBODY, WILDCARD, Operation, PatternType, Permission

_EVERY = (1 << len(Operation)) - 1
# What else it allows to be allowed something (KIP-11). What is denied is denied alone.
_IMPLIED: dict[int, int] = {
    **dict.fromkeys((Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER), 1 << Operation.DESCRIBE),
    Operation.ALTER_CONFIGS: 1 << Operation.DESCRIBE_CONFIGS,
}


class Section:
    """The entries of one resource name: what each principal and host is denied and allowed, as bits of operations."""

    __slots__ = ("_entries", "_masks")

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], Counter[tuple[int, int]]] = {}
        self._masks: dict[tuple[str, str], tuple[int, int]] = {}

    @property
    def is_empty(self) -> bool:
        """No entry is left."""
        return not self._entries

    def add(self, acl: Acl) -> None:
        """Take an entry over; equal ones are counted."""
        whose = acl.principal, acl.host
        self._entries.setdefault(whose, Counter())[acl.permission_type, acl.operation] += 1
        self._sum_up(whose)

    def remove(self, acl: Acl) -> None:
        """Take one such entry away.

        Raises:
            KeyError: there is none.
        """
        whose, what = (acl.principal, acl.host), (acl.permission_type, acl.operation)
        entries = self._entries[whose]
        if not entries[what]:
            raise KeyError(acl)
        entries[what] -= 1
        if not entries[what]:
            del entries[what]
        if entries:
            self._sum_up(whose)
        else:
            del self._entries[whose], self._masks[whose]

    def masks(self, principal: str, host: str) -> tuple[int, int]:
        """What is denied and what is allowed to somebody, as bits of operations."""
        found = self._masks.get
        denied = allowed = 0
        for whose in ((principal, host), (principal, WILDCARD), (EVERYBODY, host), (EVERYBODY, WILDCARD)):
            masks = found(whose)
            if masks is not None:
                denied |= masks[0]
                allowed |= masks[1]
        return denied, allowed

    def _sum_up(self, whose: tuple[str, str]) -> None:
        denied = allowed = 0
        for permission, operation in self._entries[whose]:
            bits = _EVERY if operation == Operation.ALL else 1 << operation
            if permission == Permission.ALLOW:
                allowed |= bits | _IMPLIED.get(operation, 0)
            else:
                denied |= bits
        self._masks[whose] = denied, allowed


class Prefixes:
    """Sections by prefix."""

    __slots__ = ("_longest_within", "_names", "_sections")

    def __init__(self) -> None:
        self._names: list[str] = []
        self._sections: dict[str, Section] = {}
        self._longest_within: dict[str, str | None] = {}

    def section(self, prefix: str) -> Section:
        """The section of a prefix, made if it is not there."""
        section = self._sections.get(prefix)
        if section is None:
            section = self._sections[prefix] = Section()
            within = self._longest(prefix)
            self._longest_within[prefix] = within
            insort(self._names, prefix)
            for longer in self._longer(prefix):
                if self._longest_within[longer] == within:
                    self._longest_within[longer] = prefix
        return section

    def has(self, prefix: str) -> bool:
        """Whether there are entries with this prefix."""
        return prefix in self._sections

    def drop(self, prefix: str) -> None:
        """A section is empty."""
        del self._sections[prefix]
        within = self._longest_within.pop(prefix)
        for longer in self._longer(prefix):
            if self._longest_within[longer] == prefix:
                self._longest_within[longer] = within
        del self._names[bisect_left(self._names, prefix)]

    def of(self, name: str) -> Iterator[Section]:
        """The sections of all prefixes of a name, the longest first."""
        prefix = self._longest(name)
        while prefix is not None:
            yield self._sections[prefix]
            prefix = self._longest_within[prefix]

    def _longest(self, name: str) -> str | None:
        place = bisect_right(self._names, name)
        prefix = self._names[place - 1] if place else None
        while prefix is not None and not name.startswith(prefix):
            prefix = self._longest_within[prefix]
        return prefix

    def _longer(self, prefix: str) -> Iterator[str]:
        place = bisect_right(self._names, prefix)
        while place < len(self._names) and self._names[place].startswith(prefix):
            yield self._names[place]
            place += 1


class AclIndex:
    """All entries. Add and remove them as records do."""

    __slots__ = ("_count", "_literal", "_prefixed")

    def __init__(self) -> None:
        self._literal: dict[tuple[int, str], Section] = {}
        self._prefixed: dict[int, Prefixes] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, acl: Acl) -> None:
        """Take an entry over."""
        if acl.pattern_type == PatternType.PREFIXED:
            self._prefixed.setdefault(acl.resource_type, Prefixes()).section(acl.resource_name).add(acl)
        else:
            self._literal.setdefault((acl.resource_type, acl.resource_name), Section()).add(acl)
        self._count += 1

    def remove(self, acl: Acl) -> None:
        """Take one such entry away.

        Raises:
            KeyError: there is none.
        """
        if acl.pattern_type == PatternType.PREFIXED:
            prefixes = self._prefixed[acl.resource_type]
            if not prefixes.has(acl.resource_name):
                raise KeyError(acl)
            section = prefixes.section(acl.resource_name)
            section.remove(acl)
            if section.is_empty:
                prefixes.drop(acl.resource_name)
        else:
            key = acl.resource_type, acl.resource_name
            section = self._literal[key]
            section.remove(acl)
            if section.is_empty:
                del self._literal[key]
        self._count -= 1

    def masks(self, resource_type: int, name: str, principal: str, host: str) -> tuple[int, int] | None:
        """What is denied and what is allowed to somebody on a resource, as bits of operations.

        Returns:
            None if no entry is about this resource.
        """
        found = False
        denied = allowed = 0
        for literal in (name, WILDCARD):
            section = self._literal.get((resource_type, literal))
            if section is not None:
                found = True
                bits = section.masks(principal, host)
                denied |= bits[0]
                allowed |= bits[1]
        prefixes = self._prefixed.get(resource_type)
        if prefixes is not None:
            for section in prefixes.of(name):
                found = True
                bits = section.masks(principal, host)
                denied |= bits[0]
                allowed |= bits[1]
        return (denied, allowed) if found else None
