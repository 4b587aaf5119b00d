"""The tree stays small to read: lengths, docstrings, no dead files, no traces of one machine."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
from itertools import chain

import pytest
from project import ROOT, imports, module_name, pyproject, sources

FILE_LINES = 700
FUNCTION_LINES = 70
# Longer on purpose, with the reason.
LONG_FILES: dict[str, str] = {
    "kraftcore/core/log/log.pyx": "appends, flushes and cuts move the same ends of one log",
    "kraftcore/aio/recipes.py": "written by a program, from plugins/recipes",
    "kraftcore/blocking/recipes.py": "written by a program, from plugins/recipes",
}
LONG_FUNCTIONS: dict[str, str] = {}

PYTHON = [path for path in sources(".py") if not path.is_relative_to(ROOT / "kraftcore" / "protocol" / "messages")]


def tracked() -> list[str]:
    if not (ROOT / ".git").exists():  # a source distribution: every file counts
        return [str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if path.is_file()]
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True
    )
    return [name for name in listing.stdout.decode().split("\n") if name and (ROOT / name).is_file()]


@pytest.mark.parametrize("path", list(sources(".py", ".pyx", ".pxd")), ids=lambda path: str(path.relative_to(ROOT)))
def test_files_are_short(path):
    name = str(path.relative_to(ROOT))
    lines = len(path.read_text().splitlines())
    assert lines <= FILE_LINES or name in LONG_FILES, f"{name} has {lines} lines: split it by duty, or say why not"


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: str(path.relative_to(ROOT)))
def test_functions_are_short(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{module_name(path)}.{node.name}"
            lines = node.end_lineno - node.lineno + 1
            assert lines <= FUNCTION_LINES or name in LONG_FUNCTIONS, f"{name} has {lines} lines"


@pytest.mark.parametrize("name", sorted({module_name(path) for path in sources(".py", ".pyx")}))
def test_public_names_have_docstrings(name):
    module = importlib.import_module(name)
    assert inspect.getdoc(module), f"{name} has no docstring"
    for public, value in vars(module).items():
        if public.startswith("_") or getattr(value, "__module__", None) != name:
            continue
        if inspect.isclass(value) or inspect.isroutine(value):
            assert value.__doc__, f"{name}.{public} has no docstring"


def test_a_package_that_lists_its_files_lists_all_of_them():
    packages = 0
    for path in sources(".py"):
        listed = re.findall(r"^    (\w+\.py) ", ast.get_docstring(ast.parse(path.read_text())) or "", re.MULTILINE)
        if path.name == "__init__.py" and listed:
            packages += 1
            assert sorted(listed) == sorted({file.name for file in path.parent.glob("*.py")} - {path.name}), path
    assert packages >= 4


def test_no_module_is_dead():
    """Every module is imported by another one, is an entry point, or is a package's face."""
    files = list(sources(".py", ".pyx", ".pxd"))
    reached = set().union(*(imports(path) for path in files))
    text = (ROOT / "pyproject.toml").read_text() + (ROOT / "setup.py").read_text()
    lazy = "\n".join(path.read_text() for path in files if path.name == "__init__.py")
    for path in files:
        name = module_name(path)
        if path.name == "__init__.py" or path.suffix == ".pxd" or name in reached or name in text:
            continue
        if name in PUBLIC_MODULES or re.search(rf"\b{path.stem}\b", lazy):
            continue
        pytest.fail(f"nothing imports {name}: wire it in, name it in PUBLIC_MODULES, or delete it")


# Words that more than one class was called by, before each was given to one of them.
ONE_MEANING = ("Listener", "Reply", "Server", "Session", "Watch")


@pytest.mark.parametrize("word", ONE_MEANING)
def test_a_word_names_one_class(word):
    pattern = re.compile(rf"^(?:cdef )?class {word}\b", re.MULTILINE)
    files = [str(path.relative_to(ROOT)) for path in sources(".py", ".pyx") if pattern.search(path.read_text())]
    assert len(files) <= 1, f"{word} is a class in {files}: give one of them a name of its own"


# Modules that people import themselves, before other parts of kraftcore do.
PUBLIC_MODULES: set[str] = {
    "kraftcore.__main__",
    "kraftcore.aio",
    "kraftcore.blocking",
    "kraftcore.core.columns",
    "kraftcore.raft.history",
    "kraftcore.core.log",
    "kraftcore.core.disk.simulated",
    "kraftcore.raft.watermark",
    "kraftcore.protocol.features",
    "kraftcore.storage.bootstrap",
    "kraftcore.storage.lock",
    "kraftcore.storage.meta_properties",
    "kraftcore.storage.quorum_state",
    "kraftcore.storage.snapshot_batches",
    "kraftcore.storage.snapshots",
    "kraftcore.transports.conformance",
}


def test_documents_are_reachable_from_the_readme():
    seen, todo = set(), ["README.md"]
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        folder = (ROOT / name).parent
        for link in re.findall(r"\]\(([^)#:]+\.md)[^)]*\)", (ROOT / name).read_text()):
            target = (folder / link).resolve()
            assert target.exists(), f"{name} links to {link}, which does not exist"
            todo.append(str(target.relative_to(ROOT)))
    documents = {name for name in tracked() if name.startswith("docs/") and name.endswith(".md")}
    assert documents <= seen, f"no path of links leads to {sorted(documents - seen)}"


def test_no_traces_of_one_machine():
    pattern = re.compile(rb"(?<![\w.])/(?:work|root|home/\w+)/")
    for name in tracked():
        if name.startswith("tests/golden/") or name == "tests/house/test_tidiness.py":
            continue
        match = pattern.search((ROOT / name).read_bytes())
        assert match is None, f"{name} holds a path of one machine: {match.group().decode()}"


def test_dependencies_are_explained():
    project = pyproject()["project"]
    text = (ROOT / "docs" / "dependencies.md").read_text().lower()
    extras = chain.from_iterable(project["optional-dependencies"].values())
    for requirement in chain(project["dependencies"], extras):
        package = re.split(r"[^\w-]", requirement)[0].lower()
        assert package == "kraftcore" or f"`{package}`" in text, f"docs/dependencies.md does not explain {package}"
