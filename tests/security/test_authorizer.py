"""The authorizer against a model that walks all entries for each question, and its rules one by one."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_access import SUPER_USERS, Question, is_allowed, random_acls, random_questions

from kraftcore.errors import LocalError
from kraftcore.metadata.acls import Acl
from kraftcore.security.acl import AclFilter, Operation, PatternType, Permission, ResourceType
from kraftcore.security.authorizer import StandardAuthorizer, Verdict

T, G = ResourceType.TOPIC, ResourceType.GROUP
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY
REAL_OPERATIONS = [operation for operation in Operation if operation >= Operation.ALL]
NAMES = st.text(alphabet="ab*", min_size=1, max_size=5)
PRINCIPALS = st.sampled_from(["User:a", "User:b", "User:*", "Robot:a"])
HOSTS = st.sampled_from(["1.1.1.1", "2.2.2.2", "*"])
ACLS = st.builds(
    Acl,
    st.sampled_from([T, G]),
    NAMES,
    st.sampled_from([LITERAL, PREFIXED]),
    PRINCIPALS,
    HOSTS,
    st.sampled_from(REAL_OPERATIONS),
    st.sampled_from([ALLOW, ALLOW, DENY]),
)
QUESTIONS = st.tuples(
    st.sampled_from(["User:a", "User:b", "Robot:a"]),
    st.sampled_from(["1.1.1.1", "2.2.2.2"]),
    st.sampled_from([operation for operation in REAL_OPERATIONS if operation is not Operation.ALL]),
    st.sampled_from([T, G]),
    NAMES,
)


def model(acls: list[Acl], question: Question, open_without: bool) -> Verdict:
    return Verdict.ALLOWED if is_allowed(acls, question, open_without=open_without) else Verdict.DENIED


def test_100_000_questions():
    """Half of the sets are open where no entry is; entries come and go while it is asked."""
    draw = random.Random(20261122)
    asked = Counter()
    for number in range(500):
        open_without = number % 2 == 1
        acls = random_acls(draw, draw.choice((0, 3, 15, 40)))
        authorizer = StandardAuthorizer(SUPER_USERS, allows_without_entries=open_without)
        authorizer.load(acls)
        for change in range(5):
            for question in random_questions(draw, 40):
                verdict = authorizer.authorize(*question)
                assert verdict is model(acls, question, open_without), (acls, question)
                asked[verdict] += 1
            if acls and change % 2:
                authorizer.acls.remove(acls.pop(draw.randrange(len(acls))))
            else:
                acls += random_acls(draw, 1)
                authorizer.acls.add(acls[-1])
    assert asked.total() == 100_000
    assert min(asked.values()) > 20_000, asked


@given(st.lists(ACLS, max_size=25), st.lists(QUESTIONS, min_size=1, max_size=10), st.booleans(), st.data())
def test_it_decides_as_the_model(acls, questions, open_without, data):
    authorizer = StandardAuthorizer(allows_without_entries=open_without)
    authorizer.load(acls)
    left = list(acls)
    for question in questions:
        assert authorizer.authorize(*question) is model(left, question, open_without)
        if left and data.draw(st.booleans()):
            gone = left.pop(data.draw(st.integers(0, len(left) - 1)))
            authorizer.acls.remove(gone)
        elif data.draw(st.booleans()):
            left.append(data.draw(ACLS))
            authorizer.acls.add(left[-1])
        assert authorizer.authorize(*question) is model(left, question, open_without)
    assert len(authorizer.acls) == len(left)
    for acl in left:
        authorizer.acls.remove(acl)
    assert len(authorizer.acls) == 0
    expected = Verdict.ALLOWED if open_without else Verdict.DENIED
    assert all(authorizer.authorize(*question) is expected for question in questions)


@given(st.lists(ACLS, max_size=5), ACLS)
def test_what_is_not_there_cannot_be_removed(acls, other):
    authorizer = StandardAuthorizer()
    authorizer.load(acls)
    if other in acls:
        return
    with pytest.raises(KeyError):
        authorizer.acls.remove(other)
    assert len(authorizer.acls) == len(acls)


def acl(name: str, operation: Operation, permission: Permission = ALLOW, **fields: object) -> Acl:
    known = {"resource_type": T, "pattern_type": LITERAL, "principal": "User:a", "host": "*"}
    return Acl(resource_name=name, operation=operation, permission_type=permission, **{**known, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("acls", "operation", "allowed"),
    [
        ([acl("t", Operation.READ)], Operation.READ, True),
        ([acl("t", Operation.READ)], Operation.WRITE, False),
        ([acl("t", Operation.READ)], Operation.DESCRIBE, True),
        ([acl("t", Operation.ALTER_CONFIGS)], Operation.DESCRIBE_CONFIGS, True),
        ([acl("t", Operation.ALTER_CONFIGS)], Operation.DESCRIBE, False),
        ([acl("t", Operation.ALL)], Operation.TWO_PHASE_COMMIT, True),
        ([acl("*", Operation.READ)], Operation.READ, True),
        ([acl("*", Operation.READ, pattern_type=PREFIXED)], Operation.READ, False),
        ([acl("t", Operation.READ, host="9.9.9.9")], Operation.READ, False),
        ([acl("t", Operation.READ, principal="User:*")], Operation.READ, True),
        ([acl("t", Operation.READ, resource_type=G)], Operation.READ, False),
        # Denying a thing denies that thing alone, and wins wherever it stands.
        ([acl("t", Operation.ALL), acl("t", Operation.DESCRIBE, DENY)], Operation.READ, True),
        ([acl("t", Operation.ALL), acl("t", Operation.READ, DENY)], Operation.DESCRIBE, True),
        ([acl("t", Operation.READ), acl("*", Operation.ALL, DENY)], Operation.READ, False),
        ([acl("t", Operation.READ), acl("t", Operation.READ, DENY, principal="User:*")], Operation.READ, False),
    ],
)
def test_rules(acls, operation, allowed):
    authorizer = StandardAuthorizer()
    authorizer.load(acls)
    verdict = authorizer.authorize("User:a", "1.1.1.1", operation, T, "t")
    assert verdict is (Verdict.ALLOWED if allowed else Verdict.DENIED)


@given(st.lists(ACLS, max_size=12), QUESTIONS)
def test_some_resource_is_one_that_is_allowed_if_it_is_there(acls, question):
    """Of the names that entries are about, of longer ones, and of one that none is about.

    What another operation implies counts for the last one alone, as in Kafka.
    """
    authorizer = StandardAuthorizer()
    authorizer.load(acls)
    principal, host, operation, kind, _ = question
    acls = [each for each in acls if each.operation in (Operation.ALL, operation)]
    by_name = StandardAuthorizer()
    by_name.load(acls)
    names = {"~", *(each.resource_name + more for each in acls for more in ("", "~"))}
    may = {by_name.authorize(principal, host, operation, kind, name) for name in names}
    may.add(authorizer.authorize(principal, host, operation, kind, "~"))
    found = authorizer.authorize_by_resource_type(principal, host, operation, kind)
    assert found is (Verdict.ALLOWED if Verdict.ALLOWED in may else Verdict.DENIED)


def test_who_may_do_something_to_some_resource_without_an_entry():
    authorizer = StandardAuthorizer(["User:root"], allows_without_entries=True)
    question = ("1.1.1.1", Operation.WRITE, T)
    assert authorizer.authorize_by_resource_type("User:root", *question) is Verdict.ALLOWED
    assert authorizer.authorize_by_resource_type("User:a", *question) is Verdict.NOT_READY
    authorizer.load([])
    assert authorizer.authorize_by_resource_type("User:a", *question) is Verdict.ALLOWED
    authorizer.load([acl("*", Operation.WRITE, DENY)])
    assert authorizer.authorize_by_resource_type("User:a", *question) is Verdict.DENIED
    assert authorizer.authorize_by_resource_type("User:root", *question) is Verdict.ALLOWED


def test_nested_prefixes_all_count():
    authorizer = StandardAuthorizer()
    names = ["a", "ab", "abc", "abcd", "ac", "b"]
    authorizer.load([acl(name, Operation(3 + place), pattern_type=PREFIXED) for place, name in enumerate(names)])

    def may(operation: int, name: str) -> bool:
        return authorizer.authorize("User:a", "h", operation, T, name) is Verdict.ALLOWED

    assert [operation for operation in range(3, 9) if may(operation, "abcx")] == [3, 4, 5, 8]  # 8: reading implies it
    authorizer.acls.remove(acl("ab", Operation(4), pattern_type=PREFIXED))
    assert not may(4, "abcx")
    assert may(5, "abcx")
    assert may(3, "abcx")


def test_before_the_entries_are_loaded_only_super_users_are_known():
    authorizer = StandardAuthorizer(["User:admin"])
    assert authorizer.authorize("User:admin", "h", Operation.ALTER, T, "t") is Verdict.ALLOWED
    assert authorizer.authorize("User:a", "h", Operation.ALTER, T, "t") is Verdict.NOT_READY
    authorizer.load([acl("t", Operation.ALL, DENY, principal="User:*")])
    assert authorizer.authorize("User:admin", "h", Operation.ALTER, T, "t") is Verdict.ALLOWED
    assert authorizer.authorize("User:a", "h", Operation.ALTER, T, "t") is Verdict.DENIED


def test_what_a_servers_file_says():
    standard = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    assert StandardAuthorizer.from_properties({}) is None
    assert StandardAuthorizer.from_properties({"authorizer.class.name": " "}) is None
    made = StandardAuthorizer.from_properties({**standard, "super.users": "User:a; User:CN=b,O=c;;"})
    assert made is not None
    for user in ("User:a", "User:CN=b,O=c"):
        assert made.authorize(user, "h", Operation.READ, T, "t") is Verdict.ALLOWED
    made.load([])
    assert made.authorize("User:x", "h", Operation.READ, T, "t") is Verdict.DENIED
    generous = StandardAuthorizer.from_properties({**standard, "allow.everyone.if.no.acl.found": "TRUE"})
    assert generous is not None
    generous.load([])
    assert generous.authorize("User:x", "h", Operation.READ, T, "t") is Verdict.ALLOWED
    with pytest.raises(LocalError, match="expected a string in format principalType:principalName but got bob"):
        StandardAuthorizer.from_properties({**standard, "super.users": "User:a;bob"})
    with pytest.raises(LocalError, match=r"authorizer\.class\.name com\.example\.Mine is not known"):
        StandardAuthorizer.from_properties({"authorizer.class.name": "com.example.Mine"})


def test_filters():
    entries = {
        "literal": acl("abc", Operation.READ),
        "prefix": acl("ab", Operation.READ, pattern_type=PREFIXED),
        "same": acl("abc", Operation.READ, pattern_type=PREFIXED),
        "star": acl("*", Operation.READ),
    }

    def found(name: str | None, pattern: PatternType, **fields: object) -> set[str]:
        any_of = AclFilter(ResourceType.ANY, name, pattern, None, None, Operation.ANY, Permission.ANY)
        return {key for key, entry in entries.items() if any_of._replace(**fields).matches(entry)}

    assert found("abc", PatternType.LITERAL) == {"literal"}
    assert found("abc", PatternType.PREFIXED) == {"same"}
    assert found("abc", PatternType.ANY) == {"literal", "same"}
    assert found("abc", PatternType.MATCH) == set(entries)
    assert found("abcd", PatternType.MATCH) == {"prefix", "same", "star"}
    assert found("*", PatternType.LITERAL) == {"star"}
    assert found(None, PatternType.ANY) == found(None, PatternType.MATCH) == set(entries)
    assert found(None, PatternType.PREFIXED) == {"prefix", "same"}
    for nothing in (
        {"resource_type": G},
        {"principal": "User:b"},
        {"host": "1.1.1.1"},
        {"operation": Operation.ALL},
        {"permission": DENY},
    ):
        assert found(None, PatternType.ANY, **nothing) == set()
    known = AclFilter(1, None, 1, None, None, 1, 1)
    assert not known.is_unknown
    for field in ("resource_type", "pattern_type", "operation", "permission"):
        assert known._replace(**{field: 0}).is_unknown
        assert known._replace(**{field: 99}).is_unknown
