"""What type checkers say of programs as users write them: they pass, and what is marked ``# refused`` is refused.

Asked are ``mypy --strict`` and pyright in its strict mode, by which editors complete. basedpyright is that pyright as a
wheel, with Node from another one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import kraftcore.plugins
import kraftcore.transports

PROGRAMS = Path(__file__).parent / "programs"
MARK = "# refused"
Places = set[tuple[str, int]]


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[tuple[str, int], str]]:
    """What each checker refuses, and why, by file and line; both run at the same time."""
    scratch = tmp_path_factory.mktemp("types")
    package = scratch / "kraftcore"  # as it is installed, also where an editable install keeps it in several folders
    package.mkdir()
    for path in kraftcore.__path__:
        for each in Path(path).iterdir():
            (package / each.name).symlink_to(each)
    for part in (kraftcore.plugins, kraftcore.transports):
        link = package / part.__name__.rpartition(".")[2]
        if not link.exists():
            link.symlink_to(part.__path__[0])
    for each in PROGRAMS.glob("*.py"):
        (scratch / each.name).write_text(each.read_text())
    (scratch / "mypy.ini").write_text("[mypy]\nstrict = true\nfollow_imports = silent\n")
    (scratch / "pyrightconfig.json").write_text(
        json.dumps({"include": ["*.py"], "typeCheckingMode": "strict", "pythonVersion": "3.11"})
    )
    commands = {
        "mypy": ["mypy", "--output=json", "--cache-dir=cache", *(each.name for each in sorted(PROGRAMS.glob("*.py")))],
        "pyright": ["basedpyright", "--outputjson", "--pythonpath", sys.executable],
    }
    running = {
        name: subprocess.Popen([sys.executable, "-m", *command], cwd=scratch, stdout=subprocess.PIPE, text=True)
        for name, command in commands.items()
    }
    output = {name: process.communicate()[0] for name, process in running.items()}
    said: dict[str, dict[tuple[str, int], str]] = {"mypy": {}, "pyright": {}}
    for line in output["mypy"].splitlines():
        found = json.loads(line)
        if found["severity"] == "error":
            said["mypy"][found["file"], found["line"]] = found["message"]
    for found in json.loads(output["pyright"])["generalDiagnostics"]:
        if found["severity"] == "error":
            said["pyright"][Path(found["file"]).name, found["range"]["start"]["line"] + 1] = found["message"]
    return said


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
@pytest.mark.parametrize("program", sorted(each.name for each in PROGRAMS.glob("*.py")))
def test_a_program(refused, checker: str, program: str) -> None:
    lines = (PROGRAMS / program).read_text().splitlines()
    expected = {number for number, line in enumerate(lines, 1) if line.endswith(MARK)}
    found = {line: why for (name, line), why in refused[checker].items() if name == program}
    assert expected, "a program without a mistake shows nothing"
    assert {line: why for line, why in found.items() if line not in expected} == {}
    assert [lines[each - 1].strip() for each in sorted(expected - found.keys())] == []
