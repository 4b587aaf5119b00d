"""What type checkers say of programs as users write them: they pass, and what is marked ``# refused`` is refused.

What README, docs and examples show passes ``mypy --strict`` as well, but that its functions need no annotations.

Asked are ``mypy --strict`` and pyright in its strict mode, by which editors complete. basedpyright is that pyright as a
wheel, with Node from another one.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kraftcore.plugins
import kraftcore.transports

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).parent / "programs"
GOES_ON = {"testing-your-application.md": "embedding.md"}  # a page that uses what another one's first block defines
NOTEBOOKS = "spark-"  # pages of notebook cells, which tests run: pandas, Polars and Airflow have no types to check
MARK = "# refused"
Places = set[tuple[str, int]]


def shown() -> dict[str, str]:
    """What README, docs and examples show, by the name of a module: a page's blocks in a row, an example as it is.

    Examples keep their names, for they import each other.
    """
    found = {}
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        if page.name.startswith(NOTEBOOKS):
            continue
        if blocks := _blocks(page):
            before = _blocks(page.with_name(GOES_ON[page.name]))[:1] if page.name in GOES_ON else []
            found[f"page_{page.stem.replace('-', '_').lower()}"] = "\n".join(before + blocks)
    return found | {each.stem: each.read_text() for each in sorted((ROOT / "examples").glob("*.py"))}


def _blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)


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
    modules = shown()
    for name, text in modules.items():
        (scratch / f"{name}.py").write_text(text)
    untyped = "".join(f"disallow_{each} = false\n" for each in ("untyped_defs", "incomplete_defs", "untyped_calls"))
    (scratch / "mypy.ini").write_text(
        f"[mypy]\nstrict = true\nfollow_imports = silent\n[mypy-{','.join(modules)}]\n{untyped}"
    )
    programs = sorted(each.name for each in PROGRAMS.glob("*.py"))
    (scratch / "pyrightconfig.json").write_text(
        json.dumps({"include": programs, "typeCheckingMode": "strict", "pythonVersion": "3.11"})
    )
    commands = {
        "mypy": ["mypy", "--output=json", "--cache-dir=cache", *programs, *(f"{each}.py" for each in modules)],
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


def test_what_is_shown(refused) -> None:
    modules = shown()
    assert {"page_readme", "page_embedding", "embed"} <= modules.keys()
    assert {at: why for at, why in refused["mypy"].items() if at[0].removesuffix(".py") in modules} == {}
