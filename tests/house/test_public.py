"""The public line: what each public module shows, to programs, to people and to type checkers."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module

import pytest
from project import module_name, sources

import kraftcore

LATE = {module_name(path): path for path in sources(".py") if "\n_HOMES = " in path.read_text()}


def for_type_checkers(tree: ast.Module) -> dict[str, set[str]]:
    """What a module imports for type checkers alone, each as itself: module to names."""
    found: dict[str, set[str]] = {}
    for branch in tree.body:
        if not isinstance(branch, ast.If) or ast.unparse(branch.test) != "TYPE_CHECKING":
            continue
        for node in branch.body:
            assert isinstance(node, ast.ImportFrom)
            assert node.module is not None
            for alias in node.names:
                assert alias.asname == alias.name, f"type checkers take {alias.name} for private: import it as itself"
                found.setdefault(node.module, set()).add(alias.name)
    return found


@pytest.mark.parametrize("name", sorted(LATE))
def test_what_is_loaded_late_is_what_type_checkers_see(name):
    tree = ast.parse(LATE[name].read_text())
    (table,) = (ast.unparse(node.value) for node in tree.body if ast.unparse(node).startswith("_HOMES ="))
    assert for_type_checkers(tree) == {home: set(names) for home, names in eval(table).items()}


def test_the_face_has_every_error():
    assert set(kraftcore.errors.__all__) < set(kraftcore.__all__)
    kinds = {name for name, value in vars(kraftcore.errors).items() if isinstance(value, type)}
    assert kinds == set(kraftcore.errors.__all__)


def test_the_face_is_light_until_something_is_asked_for():
    """What a program pays that only wants an error, or the version; and its modules need no import of their own."""
    program = """
import sys
before = set(sys.modules)
import kraftcore
print(*sorted(name for name in set(sys.modules) - before if name.startswith(("kraftcore", "trio", "asyncio"))))
kraftcore.LocalError, kraftcore.errors, dir(kraftcore)
print("trio" in sys.modules)
print(kraftcore.aio.open_node.__name__, kraftcore.blocking.Node.__name__, kraftcore.testing.Cluster.__name__)
"""
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    loaded, has_trio, asked = found.stdout.splitlines()
    assert loaded == "kraftcore kraftcore.errors kraftcore.namespace"
    assert (has_trio, asked) == ("False", "open_node Node Cluster")


def test_a_name_that_is_not_there_is_refused_by_name():
    with pytest.raises(AttributeError, match="module 'kraftcore' has no attribute 'Nodes'"):
        kraftcore.Nodes  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'Nodes' from 'kraftcore'"):
        from kraftcore import Nodes  # noqa: F401


@pytest.mark.parametrize("name", ["kraftcore", "kraftcore.core.log", "kraftcore.errors", "kraftcore.testing"])
def test_a_public_module_shows_its_public_names_alone(name):
    module = import_module(name)
    assert dir(module) == sorted(module.__all__)
    for public in module.__all__:
        assert getattr(module, public) is not None
