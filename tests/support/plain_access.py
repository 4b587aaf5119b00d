"""KIP-801 in so many words: each question looks at every entry; of the package only their class is used."""

from __future__ import annotations

import random
from collections.abc import Iterator

from kraftcore.metadata.acls import Acl

LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
ALL, READ, WRITE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS = 2, 3, 4, 6, 7, 8, 10, 11
OPERATIONS = range(3, 16)
IMPLIED_BY = {DESCRIBE: {READ, WRITE, DELETE, ALTER}, DESCRIBE_CONFIGS: {ALTER_CONFIGS}}
SUPER_USERS = ("User:root", "Robot:r2")

Question = tuple[str, str, int, int, str]
"""Principal, host, operation, resource type, resource name."""


def is_allowed(acls: list[Acl], question: Question, *, open_without: bool) -> bool:
    """What the authorizer has to say."""
    principal, host, operation, resource_type, name = question
    if principal in SUPER_USERS:
        return True
    about = [
        acl
        for acl in acls
        if acl.resource_type == resource_type
        and (name.startswith(acl.resource_name) if acl.pattern_type == PREFIXED else acl.resource_name in (name, "*"))
    ]
    mine = [acl for acl in about if acl.principal in (principal, "User:*") and acl.host in (host, "*")]
    if any(acl.permission_type == DENY and acl.operation in (operation, ALL) for acl in mine):
        return False
    enough = {operation, ALL} | IMPLIED_BY.get(operation, set())
    if any(acl.permission_type == ALLOW and acl.operation in enough for acl in mine):
        return True
    return open_without and not about


NAMES = ("a", "ab", "abc", "abd", "b", "ba", "*", "orders", "orders.eu", "orders.us", "kafka-cluster", "ä", "日本")
PRINCIPALS = ("User:alice", "User:bob", "User:CN=eve,O=x", "Robot:alice", "User:ANONYMOUS", *SUPER_USERS)
HOSTS = ("1.1.1.1", "10.0.0.7", "2001:db8:0:0:0:0:0:1")


def random_acls(draw: random.Random, count: int) -> list[Acl]:
    """Entries that often are about the same."""
    found = dict.fromkeys(
        Acl(
            draw.choice((2, 2, 3, 4, 5, 6, 7)),
            draw.choice(NAMES),
            draw.choice((LITERAL, LITERAL, PREFIXED)),
            draw.choice((*PRINCIPALS, "User:*", "User:*")),
            draw.choice((*HOSTS, "*", "*", "*")),
            draw.choice((ALL, *OPERATIONS)),
            draw.choice((ALLOW, ALLOW, ALLOW, DENY)),
        )
        for _ in range(count)
    )
    return list(found)


def random_questions(draw: random.Random, count: int) -> Iterator[Question]:
    """Questions that entries of ``random_acls`` often are about."""
    for _ in range(count):
        name = draw.choice(NAMES) + draw.choice(("", "", "", "x", "c", ".eu"))
        yield (
            draw.choice(PRINCIPALS),
            draw.choice(HOSTS),
            draw.choice(OPERATIONS),
            draw.choice((2, 2, 2, 3, 4, 5, 6, 7)),
            name,
        )
