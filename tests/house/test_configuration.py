"""What is made from the declarations of settings; ``pytest --rewrite`` writes it anew.

The table in docs/configuration.md, and the types of settings for functions that take some of them as keyword arguments.
"""

from __future__ import annotations

import ast
from dataclasses import fields

import pytest
from project import ROOT

from kraftcore import NodeConfig
from kraftcore.config.node_settings import SETTINGS, NodeOverrides
from kraftcore.config.settings import default_text

CODE = ROOT / "kraftcore" / "config" / "node_settings.py"
MADE, AFTER = "    # made from NodeSettings\n", "\n\nclass NodeOverrides"
OWN = {"node_id", "directory", "plugins"}
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


def overrides() -> str:
    tree = ast.parse(CODE.read_text())
    owner = next(each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == "NodeSettings")
    lines = []
    for each in owner.body:
        if isinstance(each, ast.AnnAssign) and ast.unparse(each.target) not in OWN:
            form = each.annotation
            if isinstance(form, ast.Subscript) and ast.unparse(form.value) == "Converted":
                form = form.slice.elts[0]  # what it may be given
            lines.append(f"    {ast.unparse(each.target)}: {ast.unparse(form)}\n")
    return "".join(lines)


def test_overrides_have_the_types_of_settings(request: pytest.FixtureRequest):
    text = CODE.read_text()
    before, rest = text.split(MADE)
    _, after = rest.split(AFTER)
    wanted = before + MADE + overrides() + AFTER + after
    if request.config.getoption("--rewrite"):
        CODE.write_text(wanted)
    assert CODE.read_text() == wanted, "run pytest tests/house/test_configuration.py --rewrite"
    assert NodeOverrides.__annotations__.keys() == {each.name for each in fields(NodeConfig)}
