"""docs/configuration.md's table is made from ``NodeConfig`` itself; ``pytest --rewrite`` writes it anew."""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, fields

import pytest
from project import ROOT

from kraftcore import NodeConfig
from kraftcore.config.settings import FLAGS, INT32_MAX, INT64_MAX, KEYS, NUMBERS

PAGE = ROOT / "docs" / "configuration.md"
BEGIN, END = "<!-- made from NodeConfig -->\n", "<!-- end -->\n"


def described() -> dict[str, str]:
    """What the class says of each field, on one line."""
    text = inspect.cleandoc(NodeConfig.__doc__).split("Attributes:\n")[1].split("\n\nRaises:")[0]
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", text, flags=re.MULTILINE)
    return {name: re.sub(r"\s+", " ", entry) for name, entry in entries}


def table() -> str:
    lines = ["| setting | property | default | range | what it is |", "|---|---|---|---|---|"]
    texts = described()
    for each in fields(NodeConfig):
        if each.name == "ignored":
            continue
        key = KEYS[each.name]
        text = texts[each.name].replace("``", "`")
        text = re.sub(rf"^`{re.escape(key)}`[,;:]? ?", "", text).replace("|", "\\|")
        text = re.sub(r"^(?:\d+|\d+ [GMK]iB|true|false)[,;:.] ?", "", text)  # the default: it has a column
        cells = [f"`{each.name}`", f"`{key}`", default(each), limits(each.name), text[:1].upper() + text[1:]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def default(each) -> str:
    value = each.default
    if value is MISSING:
        return "must be given" if each.default_factory is MISSING else "none"
    if value is None or (not isinstance(value, int | str) and not value):
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def limits(name: str) -> str:
    if name in FLAGS or name == "can_become_voter":
        return "true, false"
    if name not in NUMBERS:
        return ""
    number = NUMBERS[name]
    top = {INT32_MAX: "2^31-1", INT64_MAX: "2^63-1"}.get(number.high, f"{number.high}")
    low = {-INT64_MAX: "-2^63+1"}.get(number.low, f"{number.low}")
    return f"{low} to {top}"


def test_the_table_is_true(request: pytest.FixtureRequest):
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    wanted = before + BEGIN + "\n" + table() + "\n" + END + after
    if request.config.getoption("--rewrite"):
        PAGE.write_text(wanted)
    assert PAGE.read_text() == wanted, "run pytest tests/house/test_configuration.py --rewrite"


def test_every_setting_is_described_with_its_property():
    texts = described()
    for each in fields(NodeConfig):
        assert each.name in texts, f"NodeConfig's docstring does not tell what {each.name} is"
        if each.name not in {"ignored", "tls"}:
            assert f"``{KEYS[each.name]}" in texts[each.name], f"{each.name}: name its property, {KEYS[each.name]}"
