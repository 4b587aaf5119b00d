"""docs/configuration.md's table is made from what is declared of each setting; ``pytest --rewrite`` writes it anew."""

from __future__ import annotations

from dataclasses import fields

import pytest
from project import ROOT

from kraftcore import NodeConfig
from kraftcore.config.node_settings import SETTINGS
from kraftcore.config.settings import default_text

PAGE = ROOT / "docs" / "configuration.md"
BEGIN, END = "<!-- made from NodeConfig -->\n", "<!-- end -->\n"


def table() -> str:
    lines = ["| setting | property | default | range | what it is |", "|---|---|---|---|---|"]
    defaults = {each.name: default_text(each) for each in fields(NodeConfig)}
    for name, setting in SETTINGS.items():
        text = setting.text.replace("``", "`").replace("|", "\\|")
        default = defaults[name]
        if default is None:
            default = "must be given"
        elif default != "none":
            value, *larger = default.split(" ", 1)
            default = " ".join([f"`{value}`", *larger])
        lines.append(f"| `{name}` | `{setting.key}` | {default} | {setting.limits} | {text} |")
    return "\n".join(lines) + "\n"


def test_the_table_is_true(request: pytest.FixtureRequest):
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    wanted = before + BEGIN + "\n" + table() + "\n" + END + after
    if request.config.getoption("--rewrite"):
        PAGE.write_text(wanted)
    assert PAGE.read_text() == wanted, "run pytest tests/house/test_configuration.py --rewrite"
