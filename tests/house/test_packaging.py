"""What gets installed: packages, stubs, compiled modules, names."""

from __future__ import annotations

import ast
import importlib
import re
import shutil
import subprocess
import sys
from importlib.metadata import version

import pytest
from project import ROOT, SOURCES, module_name, pyproject, sources

import kraftcore

EXTENSIONS = sorted(module_name(path) for path in sources(".pyx"))


def test_every_package_folder_is_listed_in_pyproject():
    listed = set(pyproject()["tool"]["setuptools"]["packages"])
    assert listed == {module_name(path) for path in sources(".py") if path.name == "__init__.py"}


def test_no_generic_top_level_names_are_installed(tmp_path):
    names = sorted(set(SOURCES) - {"kraftcore"} | {"bench", "tests"})
    ask = f"from importlib.util import find_spec; print([name for name in {names!r} if find_spec(name)])"
    # From a neutral folder, with nothing but site-packages on the path.
    found = subprocess.run([sys.executable, "-P", "-c", ask], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("name", EXTENSIONS)
def test_extension_is_compiled_and_has_a_stub(name):
    module = importlib.import_module(name)
    assert module.__file__.endswith((".so", ".pyd"))
    assert (ROOT / name.replace(".", "/")).with_suffix(".pyi").exists()


def test_every_stub_and_declaration_belongs_to_something():
    for path in sources(".pyi"):
        assert path.with_suffix(".pyx").exists(), f"{path} describes no extension module"


def test_version_is_the_installed_one():
    assert version("kraftcore") == kraftcore.__version__


def test_types_are_published():
    assert (ROOT / "kraftcore" / "py.typed").exists()


# Come with a dependency, or load only where their package is: what an extra brings.
NOT_DECLARED = {"outcome"}  # with trio
NEEDS_AN_EXTRA = {"kraftcore.testing.pytest_plugin"}


@pytest.mark.parametrize(
    "path", [path for path in sources(".py") if not path.is_relative_to(ROOT / "plugins")], ids=module_name
)
def test_an_install_without_extras_can_import_everything_but_plugins(path):
    requirements = pyproject()["project"]["dependencies"]
    allowed = {re.split(r"[^\w]", each)[0] for each in requirements} | NOT_DECLARED | {"kraftcore"}
    if module_name(path) in NEEDS_AN_EXTRA:
        return
    for node in ast.parse(path.read_text()).body:  # not within functions, nor for type checkers
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        for name in names:
            top = name.partition(".")[0]
            assert top in allowed or top in sys.stdlib_module_names, f"{module_name(path)} imports {name}"


def test_an_uncompiled_tree_says_what_to_do(tmp_path):
    """Somebody's first try: Python, started in a clone, finds its sources before the installed package."""
    shutil.copytree(
        ROOT / "kraftcore", tmp_path / "kraftcore", ignore=shutil.ignore_patterns("*.so", "*.pyd", "*.c", "__pycache__")
    )
    command = [sys.executable, "-c", "import kraftcore"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"ImportError: {tmp_path / 'kraftcore'} is the source of kraftcore and not compiled")
    assert last.endswith("or compile here: pip install -e .")
