"""The public line: what each public module shows, to programs, to people and to type checkers, and who may use what."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module

import pytest
from project import ROOT, module_name, sources
from public_api import LIST, Listing, names_of, public_modules, statements

import kraftcore

LATE = {module_name(path): path for path in sources(".py") if "\n_HOMES = " in path.read_text()}
PUBLIC = public_modules()
MODULES = {module_name(path) for path in sources(".py", ".pyx")}
# Pages about the inside.
INSIDE = {"architecture.md", "changing.md", "consensus.md", "testing.md"}
PAGES = [ROOT / "README.md", *(path for path in sorted((ROOT / "docs").glob("*.md")) if path.name not in INSIDE)]
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))


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
    # With it they would take every name for one that is there.
    assert "__getattr__" not in {name for node in statements(tree.body) for name in names_of(node)}


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
print("msgpack" in sys.modules)
print(*(each.recipes.Dict.__module__ for each in (kraftcore, kraftcore.aio, kraftcore.blocking)))
"""
    found = subprocess.run([sys.executable, "-P", "-c", program], check=True, capture_output=True, text=True)
    loaded, has_trio, asked, has_msgpack, recipes = found.stdout.splitlines()
    assert loaded == "kraftcore kraftcore.errors kraftcore.namespace"
    assert (has_trio, asked) == ("False", "open_node Node Cluster")
    assert has_msgpack == "False"
    assert recipes == "kraftcore.plugins.recipes.containers kraftcore.aio.recipes kraftcore.blocking.recipes"


def test_a_name_that_is_not_there_is_refused_by_name():
    with pytest.raises(AttributeError, match="module 'kraftcore' has no attribute 'Nodes'"):
        kraftcore.Nodes  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'Nodes' from 'kraftcore'"):
        from kraftcore import Nodes  # noqa: F401


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_module_shows_its_public_names_alone(name):
    module = import_module(name)
    assert dir(module) == sorted(module.__all__)
    for public in module.__all__:
        assert getattr(module, public) is not None


def test_what_is_public_is_what_the_list_has(request):
    """A change of the public line is seen where changes are reviewed."""
    text = Listing().text()
    if request.config.getoption("rewrite"):
        LIST.write_text(text)
    is_same = text == LIST.read_text()
    assert is_same, "the public line changed: run this test with --rewrite, and read the difference as a user would"


def test_a_node_shows_what_an_application_may_call():
    for world in (kraftcore, kraftcore.aio, kraftcore.blocking):
        shown = {name for name in dir(world.Node) if not name.startswith("_")}
        assert {"append", "read_barrier", "status", "stop"} <= shown
        assert not shown & {"abort", "answer", "ask", "decide", "fail", "make_outbox", "serve", "stopped_error"}


def uses(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Modules of ours that a program imports, and what it takes of them; with an empty name: the module itself."""
    bound: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "kraftcore":
                    yield alias.name, ""
                    bound[alias.asname or "kraftcore"] = alias.name if alias.asname else "kraftcore"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "kraftcore":
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield (inner, "") if inner in MODULES else (str(node.module), alias.name)
                if inner in MODULES:
                    bound[alias.asname or alias.name] = inner
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and re.fullmatch(r"\w+(\.\w+)+", ast.unparse(node)):
            first, *rest = ast.unparse(node).split(".")
            if first in bound:
                yield split(".".join([bound[first], *rest]))


def split(dotted: str) -> tuple[str, str]:
    """The module in a dotted name, and what is taken of it."""
    module, *rest = dotted.split(".")
    while rest and f"{module}.{rest[0]}" in MODULES:
        module = f"{module}.{rest.pop(0)}"
    return module, rest[0] if rest else ""


def is_public(module: str, name: str) -> bool:
    if not name:
        return module in PUBLIC or any(other.startswith(f"{module}.") for other in PUBLIC)
    return module in PUBLIC and name in import_module(module).__all__


@pytest.mark.parametrize("path", [*PAGES, *EXAMPLES], ids=lambda path: path.name)
def test_programs_that_we_show_use_public_names(path):
    text = path.read_text()
    if path.suffix == ".md":
        text = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    assert not sorted({use for use in uses(ast.parse(text)) if not is_public(*use)})


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_pages_name_what_is_public(path):
    """In running text, and in code that is only shown; settings have names of the same kind."""
    settings = set(
        re.findall(r"^\| `\w+` \| `([\w.]+)`", (ROOT / "docs" / "configuration.md").read_text(), re.MULTILINE)
    )
    text = path.read_text()
    dotted = set(re.findall(r"(?<![\w./-])kraftcore(?:\.\w+)+(?![\w-])", text)) - settings
    named = {use for use in map(split, dotted) if use[0] != "kraftcore"}
    for module, names in re.findall(r"from (kraftcore[\w.]*) import ([\w, ]+)", text):
        named |= {split(f"{module}.{name.split()[0]}") for name in names.split(",")}
    assert not sorted(use for use in named if not is_public(*use))


def test_what_is_looked_for_is_found():
    text = (
        "import kraftcore.node.engine\nfrom kraftcore import admin as a, Node, Gone\nkraftcore.raft.Role, a.client.It"
    )
    assert sorted({use for use in uses(ast.parse(text)) if not is_public(*use)}) == [
        ("kraftcore", "Gone"),
        ("kraftcore.admin.client", ""),
        ("kraftcore.admin.client", "It"),
        ("kraftcore.node.engine", ""),
        ("kraftcore.raft", ""),
        ("kraftcore.raft", "Role"),
    ]
