"""docs/architecture.md says what is where: held against the tree. Who imports whom: ``test_layers``."""

from __future__ import annotations

import re

from project import ROOT

from kraftcore import errors
from kraftcore.node.registry import TASKS_MAX, WAITING_MAX

PAGE = (ROOT / "docs" / "architecture.md").read_text()


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_every_folder_has_its_line_in_the_house():
    house = section("The house").split("kraftcore/            ")[1].split("\n\n")[0]
    engine, others = house.split("    transports/ ")
    entries = " ".join(re.findall(r"^ {6}(\S.*?)  ", engine, re.MULTILINE))
    listed = set(re.findall(r"([a-z_]+)(?:/|\.py)", entries))
    there = {path.stem for path in (ROOT / "kraftcore").iterdir() if path.is_dir() or path.suffix == ".py"}
    assert listed == {name for name in there if not name.startswith("_")}
    plugins = re.search(r"kraftcore\.plugins: ([\w, ]+)", others)
    folders = {path.parent.name for path in (ROOT / "plugins").glob("*/__init__.py")}
    assert plugins and set(plugins[1].split(", ")) == folders
    for name in re.findall(r"^    ([a-z]+)/ ", f"    transports/ {others}", re.MULTILINE):
        assert (ROOT / name).is_dir()


def test_every_room_and_part_is_described():
    for folder, title in (("core", "core/"), ("executor", "One executor")):
        text = section(title)
        names = {
            path.stem for path in (ROOT / "kraftcore" / folder).iterdir() if path.suffix in (".py", ".pyx", ".pxd")
        }
        names |= {path.parent.name for path in (ROOT / "kraftcore" / folder).glob("*/__init__.py")}
        missing = sorted(name for name in names - {"__init__"} if not re.search(rf"`{name}(?:\.pxd|/)?`", text))
        assert not missing, f"{title} does not say what {missing} are for"


def test_each_walk_goes_through_eight_files_at_most_which_are_there():
    walks = re.findall(r"^\*\*(.+?)\.\*\* (.*?)\n\n", section("Six walks") + "\n\n", re.MULTILINE | re.DOTALL)
    assert len(walks) == 6
    for title, text in walks:
        files = set(re.findall(r"`([\w/]+\.pyx?)`", text))
        assert 4 <= len(files) <= 8, (title, len(files))
        missing = [name for name in files if not (ROOT / "kraftcore" / name).exists() and not (ROOT / name).exists()]
        assert not missing, title


def test_every_error_has_a_reaction():
    direct = {kind.__name__ for kind in errors.KraftError.__subclasses__() if kind.__module__ == errors.__name__}
    assert set(re.findall(r"`(\w+Error)`", section("Errors"))) == direct


def test_its_numbers():
    text = section("A node's parts")
    assert f"{TASKS_MAX} at a time; {WAITING_MAX} of a priority may wait" in text
