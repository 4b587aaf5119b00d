"""docs/changing.md names files that are there, and what it says is noticed when it is forgotten is noticed."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from typing import get_args

from project import ROOT

from kraftcore.executor import recording
from kraftcore.raft.events import Effects, Event

PAGE = (ROOT / "docs" / "changing.md").read_text()
SECTIONS = PAGE.split("\n## ")[1:]
# The driver's own: when to come back, and how long the log is.
NOT_CARRIED_OUT = {"deadline_ms"}


def attributes(path: str, of: str) -> set[str]:
    """Names read of a variable, or of an attribute of that name, in a file."""
    found = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.Attribute) and of in (getattr(node.value, "id", ""), getattr(node.value, "attr", "")):
            found.add(node.attr)
    return found


def test_every_path_is_there():
    paths = set(re.findall(r"`([\w./-]*/[\w./-]*)`", PAGE)) | {"CHANGELOG.md", "pyproject.toml", "setup.py"}
    missing = sorted(path for path in paths if not (ROOT / path).exists())
    assert not missing


def test_every_change_names_its_files_in_order_and_the_tests():
    assert len(SECTIONS) >= 20
    for section in SECTIONS:
        title = section.splitlines()[0]
        steps, forgotten = section.split("\n\nForgotten: ")
        numbers = re.findall(r"^(\d)\. ", steps, re.MULTILINE)
        assert numbers and numbers == [str(number) for number in range(1, len(numbers) + 1)], title
        assert "`tests/" in forgotten, title


def test_every_effect_is_carried_out_and_compared():
    names = {each.name for each in fields(Effects)}
    carried = attributes("kraftcore/executor/driver.py", "effects") | attributes(
        "kraftcore/executor/executor.py", "effects"
    )
    assert names - NOT_CARRIED_OUT <= carried
    assert names <= attributes("kraftcore/executor/recording.py", "effects")


def test_every_event_can_be_recorded():
    text = (ROOT / "kraftcore" / "executor" / "recording.py").read_text()
    assert len(get_args(Event)) > 8
    missing = [kind.__name__ for kind in get_args(Event) if not re.search(rf"\b{kind.__name__}\b", text)]
    assert not missing, f"{recording.__name__} does not know {missing}"


def test_every_metric_of_our_own_is_documented():
    source = (ROOT / "plugins" / "metrics" / "families.py").read_text()
    page = (ROOT / "docs" / "metrics.md").read_text()
    names = set(re.findall(r"OWN \+ \"(\w+)\"", source)) | set(re.findall(r"\(\"([a-z_]+)\", f?\"[A-Z]", source))
    assert "bytes_in_flight" in names and "accepted_connections" in names
    assert not sorted(name for name in names if name not in page)
