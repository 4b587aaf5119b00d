"""The properties format against what the Java documentation of Properties.load and store says, case by case."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftcore.errors import CorruptDataError
from kraftcore.storage.properties import format_properties, parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", {}),
        (b"a=b", {"a": "b"}),
        (b"a = b \n", {"a": "b "}),  # blanks at the end belong to the value
        (b"a:b\nc d\ne\tf\ng", {"a": "b", "c": "d", "e": "f", "g": ""}),
        (b"a = = b", {"a": "= b"}),
        (b"a  :  b", {"a": "b"}),
        (b"# no\n! no\n  # no\n\n \t\n x=1", {"x": "1"}),
        (b"a=1\\\n   2\\\r\n 3\nb=4", {"a": "123", "b": "4"}),
        (b"a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        (b"a=1\\", {"a": "1"}),
        (b"a=1\\\n# not a comment", {"a": "1# not a comment"}),
        (b"a\\=\\:\\ b=c", {"a=: b": "c"}),
        (b"a=\\t\\n\\r\\f\\q\\ z", {"a": "\t\n\r\fq z"}),
        (b"a=\\u00e9\\u20AC", {"a": "é€"}),
        (b"a=\\ud83d\\ude00", {"a": "😀"}),
        (b"a=\xe9", {"a": "é"}),  # ISO-8859-1, not UTF-8
        (b"a=1\ra=2\r\n", {"a": "2"}),
        (b"=v", {"": "v"}),
    ],
)
def test_reads_what_java_reads(text: bytes, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@pytest.mark.parametrize("text", [b"a=\\u12", b"a=\\u12g4", b"\\u=1", b"a=\\u+123", b"a=\\ud800"])
def test_broken_escapes_are_corrupt(text: bytes) -> None:
    with pytest.raises(CorruptDataError, match=r"here: broken \\u escape"):
        parse_properties(text, path="here")


def test_writes_what_java_writes() -> None:
    values = {"a b": " c  d ", "x=:#!\\": "y=:#!\\", "t": "\t\n\r\f", "empty": ""}
    assert format_properties(values, ("", "date")) == (
        b"#\n#date\na\\ b=\\ c  d \nx\\=\\:\\#\\!\\\\=y\\=\\:\\#\\!\\\\\nt=\\t\\n\\r\\f\nempty=\n"
    )
    assert format_properties({"k": "é😀"}) == b"k=\\u00E9\\uD83D\\uDE00\n"


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"]))
    )
)
def test_reads_back_what_it_wrote(values: dict[str, str]) -> None:
    assert parse_properties(format_properties(values, ("comment",))) == values


@given(st.binary(max_size=200))
def test_hostile_bytes_raise_only_the_documented_error(data: bytes) -> None:
    try:
        values = parse_properties(data)
    except CorruptDataError:
        return
    assert parse_properties(format_properties(values)) == values
