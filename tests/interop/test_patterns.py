"""What Kafka's brokers take for a pattern of transactional ids, ours do."""

from __future__ import annotations

import base64
import random
from pathlib import Path

from kafka_tools import KafkaTools

from kraftcore.plugins.broker.api.re2_syntax import GROUPS, is_re2

SEED = 20261123
COUNT = 20_000
PIECES = (
    *"ab09_é\U0001f600-^$.|*+?(){}[],:<>=!\\",
    *(
        "(?:",
        "(?i)",
        "(?-s:",
        "(?i-",
        "(?P<n>",
        "(?<m>",
        "(?P<n>a)",
        "(?=",
        "(?<!",
        "(?#",
        "(?>",
        "(a)",
        "(?)",
        "(?-)",
        "()",
    ),
    *(
        "*?",
        "+?",
        "??",
        "{2}",
        "{2}?",
        "{,3}",
        "{1,}",
        "{3,2}",
        "{01}",
        "{1000}",
        "{1001}",
        "{30,40}",
        "{0}",
        "{123456789}",
    ),
    *("[a-z]", "[^a]", "[]a]", "[a-]", "[z-a]", "[^]]", "[[:alpha:]]", "[[:^digit:]]", "[:x:]", "[[:x:]]", r"[\d-a]"),
    *(rf"\{each}" for each in "abfnrtvdDsSwWABbzZCQEGKXxpPu018.-_ é"),
    *(r"\x41", r"\x{10FFFF}", r"\x{110000}", r"\x{}", r"\12", r"\377", r"\k<n>", r"\Q*(\E", r"\Q\E"),
    *(r"\pL", r"\PN", r"\p{Greek}", r"\p{^Lu}", r"\P{Any}", r"\p{Nothing}", r"\p{", r"\p^", r"[\p{Han}\w-]"),
)


def _texts(draw: random.Random) -> list[str]:
    return ["".join(draw.choice(PIECES) for _ in range(draw.randint(0, 7))) for _ in range(COUNT)]


def test_patterns_are_taken_and_refused_as_kafka_does(kafka: KafkaTools, tmp_path: Path) -> None:
    texts = [*_texts(random.Random(SEED)), *(f"a{{{each}}}" for each in ("9" * 5000, f"1,{'9' * 5000}"))]
    (tmp_path / "texts").write_text("".join(f"{base64.b64encode(text.encode()).decode()}\n" for text in texts))
    theirs = [line == ["taken"] for line in kafka.interop("check-patterns", tmp_path / "texts")]
    differing = [(text, is_taken) for text, is_taken in zip(texts, theirs, strict=True) if is_re2(text) != is_taken]
    assert not differing, differing[:10]
    assert COUNT / 10 < sum(theirs) < COUNT * 9 / 10, sum(theirs)


def test_groups_of_characters_are_those_that_kafka_knows(kafka: KafkaTools) -> None:
    (names,) = kafka.interop("pattern-groups")
    assert set(names) == GROUPS
