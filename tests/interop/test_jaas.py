"""Login modules in a property are read as Kafka reads them."""

from __future__ import annotations

import base64
import random

from kafka_tools import KafkaTools

from kraftcore.config.errors import ConfigError
from kraftcore.config.jaas import JaasEntry, parse_jaas

SEED = 20261122
COUNT = 20_000
GOOD = "org.apache.kafka.common.security.scram.ScramLoginModule required username=\"a\" password='b c';"
PIECES = (
    *(
        "a",
        "b-c",
        "x_y$z",
        "é",
        "\u4e2d",
        "\U0001f600",
        "\x85",
        "\xa0",
        "7",
        "-7",
        "-",
        ".",
        "1.5.2",
        "-.5",
        "9a",
        "\\",
    ),
    *('"', "'", '"q r"', "'s;t'", '"\\101\\7\\400\\x"', '"\\n\\\\"', '""', "''", '"\n', "'\r"),
    *("=", ";", ",", "#", "/", "//", "/*", "*/", "\n", " ", "\t", "\0", "required", "OPTIONAL", "Requisite", "needed"),
    *("a=b", "M required", "k='v'", "M sufficient a=b;"),
)


def _texts(draw: random.Random) -> list[str]:
    texts = []
    for number in range(COUNT):
        if number % 2:
            pieces = [draw.choice(PIECES) for _ in range(draw.randint(0, 12))]
            texts.append(draw.choice(("", " ")).join(pieces))
        else:
            text = list(GOOD)
            for _ in range(draw.randint(0, 3)):
                text[draw.randrange(len(text))] = draw.choice(PIECES)
            texts.append("".join(text))
    return texts


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _fields(entries: tuple[JaasEntry, ...]) -> list[str]:
    options = [sorted(entry.options.items(), key=lambda option: option[0].encode("utf-16-be")) for entry in entries]
    return [
        " ".join([_encoded(entry.module), entry.flag, *(f"{_encoded(key)}={_encoded(value)}" for key, value in pairs)])
        for entry, pairs in zip(entries, options, strict=True)
    ]


def _ours(text: str) -> list[str]:
    try:
        return _fields(parse_jaas(text, "sasl.jaas.config"))
    except ConfigError:
        return ["refused"]


def test_texts_are_read_and_refused_as_kafka_does(kafka: KafkaTools, tmp_path):
    texts = _texts(random.Random(SEED))
    (tmp_path / "texts").write_text("".join(f"{_encoded(text)}\n" for text in texts))
    theirs = kafka.interop("parse-jaas", tmp_path / "texts")
    differing = [(text, _ours(text), found) for text, found in zip(texts, theirs, strict=True) if _ours(text) != found]
    assert not differing, differing[:5]
    taken = sum(found != ["refused"] for found in theirs)
    assert COUNT / 20 < taken < COUNT * 19 / 20, taken
