"""How certificates and SASL identities become principals; rules and results are those of Kafka's SslPrincipalMapper."""

from __future__ import annotations

import pytest

from kraftcore.errors import LocalError
from kraftcore.security.principals import (
    ANONYMOUS,
    AuthenticationContext,
    Principal,
    PrincipalMapper,
    StandardPrincipalBuilder,
)
from kraftcore.security.sasl.mechanism_interface import AuthenticationError, Identity

DUKE = "CN=Duke,OU=ServiceUsers,O=Org,C=US"


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("DEFAULT", DUKE, DUKE),
        ("", DUKE, None),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", DUKE, "Duke"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L", DUKE, "duke"),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2/U", DUKE, "DUKE@SERVICEUSERS"),
        ("RULE:^nobody$/x/, RULE:^CN=(.*?),.*$/$1/ , DEFAULT", DUKE, "Duke"),
        ("RULE:^cn=(.*?),.*$/$1/, DEFAULT", DUKE, DUKE),
        # There are four groups: $5 is meant literally, $12 is the first group and a 2.
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1-$5/", DUKE, "Duke-$5"),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$12/", DUKE, "Duke2"),
        ("RULE:^CN=(?<who>.*?),.*$/${who}/", DUKE, "Duke"),
        ("RULE:^.*(?<=CN=)(.*?),.*$/$1/", DUKE, "Duke"),
        # Java's replaceAll goes on behind the first match, and finds the empty text at the end.
        ("RULE:.*/x/", DUKE, "xx"),
        (r"RULE:^CN=(.*?),OU=a\/b$/$1\/x/", "CN=c,OU=a/b", "c/x"),
        ("RULE:^CN=(.*)$/$0/", "CN=c", "CN=c"),
        (",, DEFAULT,", DUKE, DUKE),
    ],
)
def test_a_rule_makes_a_name(rules, subject, name):
    if name is None:
        with pytest.raises(AuthenticationError, match="no rule of ssl.principal.mapping.rules"):
            PrincipalMapper(rules).name(subject)
    else:
        assert PrincipalMapper(rules).name(subject) == name


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ("foo", "Invalid rule: `foo`, unmatched substring: `foo`"),
        ("DEFAULT/L", "Invalid rule: `DEFAULT/L`, unmatched substring: `/L`"),
        ("RULE:^CN=(.*)$/$1", "Invalid rule"),
        ("RULE:^CN=(.*)$/$1/LU", "unmatched substring: `U`"),
        ("RULE:CN=(.*/$1/", "no regular expression"),
        ("RULE:CN=.*/$1/", r"has a \$ without such a group"),
        ("RULE:CN=(.*)/$x/", r"has a \$ without such a group"),
        ("RULE:CN=(.*)/${who}/", "names a group that is not there"),
    ],
)
def test_bad_rules_are_refused(rules, text):
    with pytest.raises(LocalError, match=text):
        PrincipalMapper(rules)


def test_who_somebody_is():
    builder = StandardPrincipalBuilder({"CONTROLLER": "RULE:^CN=(.*?),.*$/$1/L"})

    def of(listener: str, subject: str | None = None, identity: Identity | None = None) -> Principal:
        return builder.build(AuthenticationContext(listener, "1.1.1.1:5", subject, identity))

    assert of("CONTROLLER") is ANONYMOUS
    assert str(of("CONTROLLER", DUKE)) == "User:duke"
    assert str(of("OTHER", DUKE)) == f"User:{DUKE}"
    assert str(of("CONTROLLER", DUKE, Identity("alice"))) == "User:alice"
    with pytest.raises(AuthenticationError, match="applies to C=US"):
        of("CONTROLLER", "C=US")
