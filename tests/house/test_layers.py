"""Arrows point inwards: who may import whom, read from the import statements."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from project import ROOT, imports, module_name, sources

# Layer -> the layers it may import besides itself. `errors`, `forms`, `namespace` and `ownership` are open to all.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "namespace": set(),
    "ownership": set(),
    "forms": set(),
    "core": set(),
    "protocol": {"core"},
    # What Kafka's configuration keys are: data and pure checks.
    "configdef": set(),
    "metadata": {"core", "protocol", "state_machine"},
    "partition_rules": {"core", "protocol", "metadata"},
    "security": {"core", "protocol", "metadata", "storage"},
    "storage": {"core", "protocol"},
    "raft": {"core", "protocol"},
    "ports": {"core", "protocol"},
    "transports": {"core", "protocol", "ports", "security"},
    "state_machine": {"core"},
    "executor": {"core", "protocol", "storage", "raft", "state_machine"},
    "simulation": {"core", "protocol", "storage", "raft", "executor", "state_machine"},
    "node": {
        *("core", "protocol", "storage", "raft", "executor", "ports", "transports", "config", "state_machine"),
        "security",
    },
    "config": {"core", "protocol", "configdef", "storage", "raft", "ports", "transports", "security"},
    # Beside node: of raft it needs only the values in raft.quorum, of the four in the second row likewise.
    "admin": {
        *("core", "protocol", "raft", "ports", "transports", "config"),
        *("configdef", "metadata", "security", "storage"),
    },
    # A replica and its disk without a node around it; of node it takes trio's shell.
    "observer": {"core", "protocol", "storage", "raft", "executor", "ports", "transports", "node", "config", "admin"},
    "__main__": {"cli"},
    "cli": {
        "core",
        "protocol",
        "configdef",
        "security",
        "storage",
        "raft",
        "ports",
        "transports",
        "simulation",
        "plugins",
        "executor",
        "node",
        "state_machine",
        "config",
        "admin",
        "observer",
        "metadata",
        "testing",
    },
    "plugins": {
        "core",
        "protocol",
        "configdef",
        "security",
        "storage",
        "raft",
        "ports",
        "transports",
        "executor",
        "node",
        "config",
        "state_machine",
        "admin",
        "observer",
        "metadata",
        "partition_rules",
        "simulation",
    },
    # A face above plugins: it runs whole brokers.
    "testing": {
        *("core", "protocol", "storage", "raft", "ports", "transports", "node", "config", "state_machine"),
        *("admin", "metadata", "plugins", "security"),
    },
    "aio": {"core", "executor", "node", "config", "state_machine", "ports", "transports", "raft", "plugins"},
    "recipes": {"plugins"},
    "blocking": {"core", "executor", "node", "config", "state_machine", "ports", "transports", "raft", "plugins"},
}
# What the inner layers must not reach for: tasks, sockets, clocks, hidden randomness, logging.
FORBIDDEN: dict[str, set[str]] = {
    "core": {"asyncio", "logging", "random", "socket", "threading", "time", "trio"},
    "configdef": {"asyncio", "logging", "os", "random", "socket", "threading", "time", "trio"},
    "protocol": {"asyncio", "logging", "os", "random", "socket", "threading", "time", "trio"},
    "partition_rules": {"asyncio", "logging", "os", "random", "socket", "threading", "time", "trio"},
    "metadata": {"asyncio", "logging", "os", "random", "socket", "threading", "time", "trio"},
    "security": {"asyncio", "logging", "random", "socket", "threading", "time", "trio"},
    "storage": {"asyncio", "logging", "random", "socket", "threading", "trio"},
    "ports": {"asyncio", "threading", "time"},
    "transports": {"asyncio", "threading", "time"},  # time is trio's, so that a MockClock moves it
    "raft": {"asyncio", "logging", "os", "random", "socket", "threading", "time", "trio"},
    "executor": {"asyncio", "logging", "os", "random", "socket", "threading", "time", "trio"},
    "simulation": {"asyncio", "logging", "os", "socket", "threading", "trio"},
}
FILES = [path for path in sources(".py", ".pyx", ".pxd") if module_name(path) != "kraftcore"]


def layer_of(module: str) -> str | None:
    parts = module.split(".")
    if parts[0] != "kraftcore" or len(parts) == 1:
        return None
    return ".".join(parts[1:3]) if ".".join(parts[1:3]) in MAY_IMPORT else parts[1]


@pytest.mark.parametrize("path", FILES, ids=lambda path: module_name(path) + path.suffix)
def test_imports_point_inwards(path):
    layer = layer_of(module_name(path))
    assert layer in MAY_IMPORT, f"{path} lives in the layer {layer!r}: give it a row in MAY_IMPORT"
    allowed = MAY_IMPORT[layer] | {layer, "errors", "forms", "namespace", "ownership"}
    for target in sorted(imports(path)):
        reached = layer_of(target)
        assert reached is None or reached in allowed or target == "kraftcore.__version__", (
            f"{module_name(path)} imports {target}: {layer} may import only {sorted(allowed)}"
        )
        assert target.split(".")[0] not in FORBIDDEN.get(layer, set()), f"{module_name(path)} imports {target}"


def test_the_arrows_in_the_documentation_are_these():
    text = (ROOT / "docs" / "architecture.md").read_text()
    drawn = text.split("fails on any other arrow:\n")[1].split("\n\n`core/`")[0]
    seen: set[str] = set()
    for line in drawn.splitlines():
        # The second line of the first chain hangs below `executor`.
        parts = [
            [word for word in re.findall(r"[a-z_]+", part) if word in MAY_IMPORT]
            for part in line.replace("└", "executor ").split("──>")
        ]
        seen.update(word for part in parts for word in part)
        for left, right in pairwise(parts):
            for one in left:
                assert set(right) - {one} <= MAY_IMPORT[one] | {"errors"}, f"{one} may not import all of {right}"
    not_drawn = {"__main__", "aio", "blocking", "forms", "namespace", "ownership", "recipes", "testing"}
    assert seen == set(MAY_IMPORT) - not_drawn


def test_the_reader_of_imports_sees_every_form(tmp_path, monkeypatch):
    import project

    monkeypatch.setattr(project, "ROOT", tmp_path)
    folder = tmp_path / "kraftcore" / "core"
    folder.mkdir(parents=True)
    (folder / "a.py").write_text(
        "import trio\nfrom . import b\nfrom ..raft import c\nif True:\n    from os import path\n"
    )
    (folder / "d.pyx").write_text("cimport cython\nfrom kraftcore.raft.x cimport y, z as w\nimport socket\n")
    assert {"trio", "kraftcore.core.b", "kraftcore.raft.c", "os"} <= imports(folder / "a.py")
    assert {"cython", "kraftcore.raft.x", "kraftcore.raft.x.z", "socket"} <= imports(folder / "d.pyx")
