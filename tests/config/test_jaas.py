"""Login modules in a property: what Kafka takes, what it refuses, and that no error tells a password."""

from __future__ import annotations

import pytest

from kraftcore.config.errors import ConfigError
from kraftcore.config.jaas import parse_jaas, parse_single_jaas

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
WHAT = "sasl.jaas.config"


@pytest.mark.parametrize(
    ("text", "module", "flag", "options"),
    [
        (
            f"{SCRAM} required username=\"alice\" password='s p;=';",
            SCRAM,
            "required",
            {"username": "alice", "password": "s p;="},
        ),
        (f"{PLAIN} Required\n  user_a-b=x.y_z$9\n ;", PLAIN, "required", {"user_a-b": "x.y_z$9"}),
        ("a.B OPTIONAL;", "a.B", "optional", {}),
        ("a.B requisite a=b a=c;", "a.B", "requisite", {"a": "c"}),
        ('"a B" \'sufficient\' "k k" = "" ;', "a B", "sufficient", {"k k": ""}),
        (r'M required p="a\"b\\c\101\0\x\t" q=é;', "M", "required", {"p": 'a"b\\cA\0x\t', "q": "é"}),
        (r'M required p="\400\3771";', "M", "required", {"p": " 0\xff1"}),
        ("M /* a; */ required // b;\n x=y / c;\n;", "M", "required", {"x": "y"}),
    ],
)
def test_a_login_module_is_read(text, module, flag, options):
    entry = parse_single_jaas(text, WHAT)
    assert (entry.module, entry.flag, entry.options) == (module, flag, options)


def test_several_modules_are_read_in_order_and_refused_where_one_is_wanted():
    text = f"{PLAIN} required a=b;{SCRAM} optional;"
    assert [entry.module for entry in parse_jaas(text, WHAT)] == [PLAIN, SCRAM]
    with pytest.raises(ConfigError, match="has 2 login modules: it must have one"):
        parse_single_jaas(text, WHAT)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "names no login module"),
        (" // M required;", "names no login module"),
        ("; M required;", "at character 1: a login module's class"),
        ("'' required;", "at character 1: a login module's class"),
        ("12 required;", "at character 1: a login module's class"),
        ("M", "at its end: no control flag"),
        ("M needed hunter2=hunter2;", "at character 3: a control flag"),
        ("M = required;", "at character 3: a control flag"),
        ("M required", "at its end: ';' is missing"),
        ('M required password="hunter2"', "at its end: ';' is missing"),
        ('M required password="hunter2\n";', "at its end: '=' and a value"),
        ('M required password=x"hunter2";', "at character 31: '=' and a value"),
        ("M required password=hunter2 hunter2;", "at character 36: '=' and a value"),
        ("M required password=;", "at character 21: an option's value"),
        ("M required password=7hunter2;", "at character 21: an option's value"),
        ("M required password=-hunter2;", "at character 21: an option's value"),
        ("M required password=#hunter2;", "at character 21: an option's value"),
        ("M required password=", "at its end: an option's value"),
        ("M required ,=hunter2;", "at character 12: an option's name"),
        ("M required password hunter2;", "at character 21: '=' and a value"),
    ],
)
def test_what_kafka_refuses_is_refused_with_its_place_and_without_its_secrets(text, reason):
    with pytest.raises(ConfigError) as caught:
        parse_jaas(text, WHAT)
    assert reason in str(caught.value)
    assert str(caught.value).startswith(WHAT)
    assert caught.value.settings == (WHAT,)
    assert "hunter2" not in str(caught.value)


def test_an_entry_prints_no_options():
    assert "hunter2" not in repr(parse_jaas('M required password="hunter2";', WHAT))
