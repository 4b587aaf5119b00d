"""Tests use what users can: no private name of the project, but for a short list."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from project import ROOT

TESTS = ROOT / "tests"
# What other people's modules call private, and named tuples' methods, which only look it.
OTHERS = {
    "sys._getframe": "who calls whom; the interpreter has no public name for it",
    "os._exit": "ends a process without the interpreter's own end",
    "session.sparkContext._jsc": "Spark's Hadoop settings; Spark has no public name for them",
    "fs._MockFileSystem": "pyarrow's file system in memory",
    "pyspark.find_spark_home._find_spark_home": "where Spark is installed",
    "aiokafka.record._crecords": "aiokafka's compiled records",
}
NAMED_TUPLES = {"_asdict", "_fields", "_make", "_replace"}
# Private names of ours, how many of them by file. Before one is added: is there something to see from outside, or would
# users want it, too?
OURS = {
    "broker/test_client.py": (2, "requests that a broker holds, which nobody outside sees"),
    "config/test_login.py": (1, "which mechanism a login chose, before anything is sent"),
    "node/test_logins.py": (1, "when a login is renewed, long before it ends: Kafka has no setting for it either"),
    "transports/test_readers.py": (7, "which connections wait in the common set: nothing outside shows it"),
    "transports/test_tcp_tls.py": (1, "that files were looked at again, though none of them works"),
}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_names(tree: ast.AST) -> Iterator[str]:
    """What a module takes of others' private names: attributes of anything but ``self``, imports, patched names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in NAMED_TUPLES:
            owner = ast.unparse(node.value)
            if owner not in ("self", "cls", "super()"):
                yield f"{owner}.{node.attr}"
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if is_private(alias.name) and node.level == 0:
                    yield f"{node.module}.{alias.name}"
                elif any(map(is_private, (node.module or "").split("."))):
                    yield str(node.module)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("setattr") and len(node.args) >= 2:
            owner, name = node.args[:2]
            if isinstance(name, ast.Constant) and isinstance(name.value, str) and is_private(name.value):
                yield f"{ast.unparse(owner)}.{name.value}"


def test_tests_use_what_users_can():
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(TESTS.rglob("*.py")):
        for name in private_names(ast.parse(path.read_text())):
            if name not in OTHERS and name.removeprefix("self.") not in OTHERS:
                found[str(path.relative_to(TESTS))].add(name)
    for file, names in found.items():
        allowed, _ = OURS.get(file, (0, ""))
        assert len(names) <= allowed, f"{file} takes {sorted(names)}: use what users can; see OURS"
    assert found.keys() == OURS.keys(), "a file takes none any more: take it out of OURS"


def test_what_is_looked_for_is_found():
    text = "a._b\nself._c\nfrom kraftcore.x import _y\nsetattr(z, '_w', 1)\nt._replace(a=1)\nm.f()._g\n__name__"
    assert list(private_names(ast.parse(text))) == ["kraftcore.x._y", "a._b", "z._w", "m.f()._g"]
