"""Kafka's configuration definitions are the ones we keep, and its controller refuses the same in the same words."""

from __future__ import annotations

import base64
import random
from pathlib import Path

from kafka_tools import KafkaTools
from project import ROOT

from kraftcore.configdef.brokers import validate_broker
from kraftcore.configdef.groups import validate_group
from kraftcore.configdef.keys import definitions
from kraftcore.configdef.metrics import validate_client_metrics
from kraftcore.configdef.topics import TopicDefaults
from kraftcore.configdef.types import ConfigType
from kraftcore.errors import LocalError

SEED = 20260401
COUNT = 4000
KEYS = ROOT / "kraftcore" / "configdef" / "keys.tsv"
# Texts that some type or validator takes, or nearly takes.
WORDS = """
0 1 -1 2 3 9 10 17 22 23 99 100 101 1000 1024 45000 60000 1048575 1048576 2147483647 2147483648 -2147483648
9223372036854775807 9223372036854775808 -9223372036854775808 -2 -3 +5 007 1_0 0x10 1e3 1.5 0.5 .5 5. 1d 0.5f 1.0E7
0.0001 1e-5 12345678.9 1e400 -1e-3 0x1p3 0x1.8p1 Infinity -Infinity NaN nan inf true TRUE False false yes maybe
compact delete compact,delete delete,compact delete,delete compact,keep keep , a,,b a,b a, producer gzip GZIP zstd
CreateTime createtime LogAppendTime * *,* 0:1 0:1,1:2 0:1, 1:x 0:1:2 earliest latest none by_duration by_duration:
by_duration:PT1H by_duration:P1D by_duration:-PT1H by_duration:PT-1H by_duration:P by_duration:PT by_duration:p1dt2h
by_duration:P1DT by_duration:PT1.5S by_duration:PT-0.5S by_duration:P1M by_duration:PT1H-30M by_duration:-PT-1S
by_duration:PT1,5S by_duration:PT99999999999999999999S read_committed READ_COMMITTED client_id=a.* client_id=
client_id client_id=a=b client_id=(a software=x =a client_id=a,client_id=b org.apache.kafka.producer. \u0661 \u00e9
[a-b]
"""
BLANKS = (
    "",
    " ",
    " 5 ",
    "\t7\n",
    "delete , compact",
    " compact",
    "a, b",
    "true ",
    "5\u00a0",
    "\u20035",
    "by_duration: PT1H",
)
# What Kafka's brokers refuse when they have read all keys, and what is played to them here does not look at.
LATER = ("requirement failed: ", "Error parsing configuration property ", "For input string: ")
TEXTS = (*WORDS.split(), *BLANKS)


def _cases(draw: random.Random) -> list[tuple[str, dict[str, str]]]:
    cases: list[tuple[str, dict[str, str]]] = []
    for scope in ("topic", "group", "client-metrics"):
        names = list(definitions(scope))
        cases += [(scope, {name: text}) for name in names for text in TEXTS]
        cases += [(scope, {name: "1"}) for name in ("", "foo", "Retention.ms", names[0] + " ")]
        for _ in range(COUNT):
            chosen = draw.sample(names, min(len(names), draw.randint(2, 4)))
            cases.append((scope, {name: draw.choice(TEXTS) for name in chosen}))
    return [*cases, *_cases_of_brokers(draw)]


def _cases_of_brokers(draw: random.Random) -> list[tuple[str, dict[str, str]]]:
    """Of keys that can be changed, alone and with others; those that cannot, alone: of several Kafka's order varies."""
    known = {name: key for name, key in definitions("broker").items() if key.type is not ConfigType.CLASS}
    names = [*definitions("broker-quota"), *(name for name in known if known[name].update_mode != "read-only")]
    names += [f"listener.name.{listener}.{name}" for listener in ("a", "sasl.b") for name in names]
    one_by_one = [*known, *names, "foo", "listener.name.a.foo", "listener.name.a", "listener.name..max.connections"]
    cases = [("broker", {name: text}) for name in one_by_one for text in TEXTS]
    cases += [("brokers", {name: draw.choice(TEXTS)}) for name in one_by_one]
    plain = [name for name in names if known.get(name) and known[name].update_mode == "cluster-wide"]
    for _ in range(COUNT):
        chosen = draw.sample(plain, draw.randint(2, 4))
        cases.append((draw.choice(("broker", "brokers")), {name: draw.choice(TEXTS) for name in chosen}))
    return cases


def _say(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _ours(scope: str, configs: dict[str, str], topics: TopicDefaults) -> str:
    try:
        if scope == "topic":
            topics.validate(configs)
        elif scope == "group":
            validate_group(configs, {})
        elif scope.startswith("broker"):
            validate_broker(configs, of_one=scope == "broker")
        else:
            validate_client_metrics(configs)
    except LocalError as refused:
        return "" if str(refused).startswith(LATER) else str(refused)
    return ""


def test_the_keys_are_kafkas(kafka: KafkaTools) -> None:
    printed = kafka.interop("config-keys")
    assert printed == [line.split("\t") for line in KEYS.read_text().splitlines()]


def test_the_controller_refuses_the_same_in_the_same_words(kafka: KafkaTools, tmp_path: Path) -> None:
    cases = _cases(random.Random(SEED))
    lines = [[scope, *(_say(part) for pair in configs.items() for part in pair)] for scope, configs in cases]
    (tmp_path / "cases").write_text("".join("\t".join(line) + "\n" for line in lines))
    answers = kafka.java("Interop", "check-configs", tmp_path / "cases").split("\n")[:-1]
    assert len(answers) == len(cases)
    topics = TopicDefaults({})
    wrong = []
    for (scope, configs), answer in zip(cases, answers, strict=True):
        theirs, ours = base64.b64decode(answer).decode(), _ours(scope, configs, topics)
        if theirs != ours:
            wrong.append((scope, configs, theirs, ours))
    assert not wrong, wrong[:20]
    refusals = sum(answer != "" for answer in answers)
    assert len(cases) / 4 < refusals < len(cases)
