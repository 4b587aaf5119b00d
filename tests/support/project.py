"""The source tree as data, for the tests of the house itself."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Source folder -> the package it is installed as.
SOURCES = {"kraftcore": "kraftcore", "transports": "kraftcore.transports", "plugins": "kraftcore.plugins"}

_CIMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+c?import\s+\(?([^#\n]*)|c?import\s+([\w.]+))", re.MULTILINE)


def pyproject() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def sources(*suffixes: str) -> Iterator[Path]:
    """Every source file of the installed packages with one of these suffixes, sorted."""
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in suffixes and "__pycache__" not in path.parts:
                yield path


def module_name(path: Path) -> str:
    folder, *rest = path.relative_to(ROOT).with_suffix("").parts
    if rest and rest[-1] == "__init__":
        rest.pop()
    return ".".join([SOURCES[folder], *rest])


def imports(path: Path) -> set[str]:
    """Modules that a ``.py``, ``.pyx`` or ``.pxd`` names in import statements, wherever they stand in the file.

    ``from a import b`` yields both ``a`` and ``a.b``: only the file system knows whether b is a module.
    """
    text = path.read_text()
    if path.suffix == ".py":
        return set(_python_imports(ast.parse(text), module_name(path), path.name == "__init__.py"))
    found = set()
    for match in _CIMPORT.finditer(text):
        source, names, plain = match.groups()
        if plain:
            found.add(plain)
        else:
            found.add(source)
            found.update(f"{source}.{name.split()[0]}" for name in names.strip("() \\").split(",") if name.strip())
    return found


def _python_imports(tree: ast.AST, module: str, is_package: bool) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level:
                parts = module.split(".")
                parents = parts[: len(parts) - node.level + (1 if is_package else 0)]
                source = ".".join([*parents, source] if source else parents)
            yield source
            yield from (f"{source}.{alias.name}" for alias in node.names)
