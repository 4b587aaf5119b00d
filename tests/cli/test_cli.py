"""The ``kraftcore`` command itself: help, version, completion, and that it starts fast."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

import kraftcore
from kraftcore.cli import COMMANDS, LazyGroup, cli, main
from kraftcore.errors import LocalError, RefusedError, StorageError


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "kraftcore", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith(f"kraftcore {kraftcore.__version__} ")


def test_help_lists_the_commands_and_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in COMMANDS)
    assert "Examples:" in text


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_exists_and_has_help_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert f"kraftcore {name}" in text.partition("Examples:")[2]
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.name == name


def groups() -> dict[str, click.Group]:
    found = {name: cli.get_command(click.Context(cli), name) for name in sorted(COMMANDS)}
    return {name: command for name, command in found.items() if isinstance(command, click.Group)}


@pytest.mark.parametrize("name", groups())
def test_a_groups_help_names_its_commands_in_whole_sentences(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    listed = capsys.readouterr().out.partition("Commands:")[2].partition("Examples:")[0].strip()
    assert all(line.endswith(".") and not line.endswith("...") for line in listed.splitlines())


@pytest.mark.parametrize(
    ("name", "inner"), [(name, inner) for name, group in groups().items() for inner in group.commands]
)
def test_commands_of_groups_show_an_example(name: str, inner: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, inner, "--help"]) == 0
    examples = capsys.readouterr().out.partition("Examples:")[2]
    assert f"kraftcore {name} " in examples
    assert inner in examples


def test_the_table_says_what_the_commands_say() -> None:
    group = cli
    assert isinstance(group, LazyGroup)
    assert group.get_command(click.Context(group), "nothing") is None
    assert group.list_commands(click.Context(group)) == sorted(COMMANDS)


def test_help_imports_no_command_and_nothing_compiled() -> None:
    code = (
        "import sys; from kraftcore.cli import main; main(['--help']); heavy = ('kraftcore.', 'trio', 'hypothesis'); "
        "print(sorted(name for name in sys.modules if name.startswith(heavy)))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert (
        done.stdout.splitlines()[-1]
        == "['kraftcore.cli', 'kraftcore.cli.collecting', 'kraftcore.errors', 'kraftcore.namespace']"
    )


def test_a_process_that_ends_is_not_looked_through_for_garbage() -> None:
    code = (
        "import atexit, gc; from kraftcore.cli import main; print(gc.get_freeze_count());"
        "atexit.register(lambda: print(gc.get_freeze_count() > 1000)); main(['--help']); main(['--help'])"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == "0"
    assert done.stdout.splitlines()[-1] == "True"


def test_formatting_imports_what_it_needs() -> None:
    code = (
        "import sys; before = set(sys.modules); "  # what Python finds packages by is not ours
        "from kraftcore.cli import main; main(['storage', 'format', '--help']); "
        "print(*(name for name in set(sys.modules) - before if name.startswith('kraftcore.') or '.' not in name))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    unwanted = (
        *("trio", "hashlib", "ipaddress", "json", "sortedcontainers"),
        *("kraftcore.config.node", "kraftcore.config.login", "kraftcore.core.log.log"),
        *("kraftcore.node", "kraftcore.raft.replica", "kraftcore.security", "kraftcore.storage.scram"),
    )
    assert "kraftcore.storage.format" in loaded
    assert not loaded & set(unwanted)
    assert sum(name.startswith("kraftcore.") for name in loaded) < 90


@pytest.mark.parametrize(
    ("redirection", "text"),
    [(">/dev/full", "the output cannot be written: No space left on device"), (">&-", "the output is closed")],
)
def test_output_that_goes_nowhere_is_one_line(redirection: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "00000000000000000000.log").touch()
    command = f'exec "$0" -P -m kraftcore dump-log --files 00000000000000000000.log {redirection}'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"Error: {text}")
    assert done.stderr.count("\n") == 1


def test_an_error_on_an_output_that_goes_nowhere_is_one_line(tmp_path: Path) -> None:
    """Some of Kafka's tools say on stdout what went wrong."""
    command = 'exec "$0" -P -m kraftcore topics --list --bootstrap-server nowhere'
    full = subprocess.run(
        ["sh", "-c", f"{command} >/dev/full", sys.executable], capture_output=True, check=False, cwd=tmp_path
    )
    assert full.returncode == 1
    assert full.stderr == b"Error: the output cannot be written: No space left on device\n"
    reader, writer = os.pipe()
    os.close(reader)
    gone = subprocess.run(
        ["sh", "-c", command, sys.executable], stdout=writer, stderr=subprocess.PIPE, check=False, cwd=tmp_path
    )
    os.close(writer)
    assert (gone.returncode, gone.stderr) == (141, b"")


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        ("--help", {}),
        ("--version", {}),
        ("completion --help", {}),
        ("completion bash", {}),
        ("", {"COMP_WORDS": "kraftcore d", "COMP_CWORD": "1", "_KRAFTCORE_COMPLETE": "bash_complete"}),
    ],
)
def test_output_of_the_command_line_itself_that_goes_nowhere_is_one_line(
    arguments: str, environment: dict[str, str]
) -> None:
    command = f'"$0" -P -m kraftcore {arguments}'
    shell = f'({command} >/dev/full); echo "$?" >&2; ({command}; echo "$?" >&2) | exec true'
    done = subprocess.run(
        ["sh", "-c", shell, sys.executable], capture_output=True, text=True, check=False, env=os.environ | environment
    )
    assert done.stderr == "Error: the output cannot be written: No space left on device\n1\n141\n"


def test_a_status_outlives_errors_that_cannot_be_written() -> None:
    shell = (
        '"$0" -P -m kraftcore nothing 2>/dev/full; echo "$?"; "$0" -P -m kraftcore nothing >/dev/full 2>&1; echo "$?"'
    )
    done = subprocess.run(["sh", "-c", shell, sys.executable], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("2\n2\n", "")


class _Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    "words",
    [[name] for name in sorted(COMMANDS)] + [[name, each] for name in groups() for each in groups()[name].commands],
)
def test_no_help_ends_in_a_traceback(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout", _Full())
    assert main([*words, "--help"]) == 1
    assert capsys.readouterr().err == "Error: the output cannot be written: No space left on device\n"


def test_an_error_of_the_other_side_cannot_steer_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(request: object) -> None:
        raise RefusedError("INVALID_REQUEST", "\x1b[2Jnobody is here")

    monkeypatch.setattr("kraftcore.cli.observe_run.run_observer", refused)
    assert main(["observe", "--bootstrap-controller", "h:1"]) == 1
    assert "\\u001b[2Jnobody is here" in capsys.readouterr().err


def test_wrong_usage_is_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nothing"]) == 2
    assert "No such command 'nothing'" in capsys.readouterr().err
    assert main(["completion", "tcsh"]) == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    done = run("completion", shell)
    assert done.returncode == 0
    assert f"_KRAFTCORE_COMPLETE={shell}_complete" in done.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("kraftcore d", {"plain,dashboard", "plain,demo", "plain,dump-log"}),
        ("kraftcore dump-log --cl", {"plain,--cluster-metadata-decoder"}),
        ("kraftcore dump-log --output ", {"plain,text", "plain,json"}),
        ("kraftcore completion ", {"plain,bash", "plain,zsh", "plain,fish"}),
        ("kraftcore dump-log --files a", {"file,a"}),
    ],
)
def test_completion(words: str, expected: set[str]) -> None:
    count = len(words.split(" ")) - 1
    done = run(COMP_WORDS=words, COMP_CWORD=str(count), _KRAFTCORE_COMPLETE="bash_complete")
    assert set(done.stdout.split("\n")) - {""} == expected


def test_completion_behind_a_comma(tmp_path: Path) -> None:
    for name in ("one.log", "other.log"):
        (tmp_path / name).touch()
    (tmp_path / "on").mkdir()
    words = f"kraftcore dump-log --files x.log,{tmp_path}/on"
    done = run(COMP_WORDS=words, COMP_CWORD="3", _KRAFTCORE_COMPLETE="bash_complete")
    assert done.stdout.split() == [f"plain,x.log,{tmp_path}/on/", f"plain,x.log,{tmp_path}/one.log"]
    nowhere = f"kraftcore dump-log --files x.log,{tmp_path}/none/x"
    assert run(COMP_WORDS=nowhere, COMP_CWORD="3", _KRAFTCORE_COMPLETE="bash_complete").stdout.strip() == ""


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (LocalError("do this instead"), 1, "Error: do this instead\n"),
        (StorageError(28, "No space left on device", "d/f"), 1, "Error: d/f: No space left on device\n"),
        (KeyboardInterrupt(), 130, ""),
        (BaseExceptionGroup("of a nursery", [KeyboardInterrupt()]), 130, ""),
        (ExceptionGroup("of a nursery", [ExceptionGroup("", [BrokenPipeError()])]), 141, ""),
        (ExceptionGroup("of a nursery", [LocalError("do this"), LocalError("and this")]), 1, "Error: do this\n"),
    ],
)
def test_errors_become_a_status_and_one_line(
    error: BaseException, status: int, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    def failing() -> None:
        raise error

    monkeypatch.setattr("sys.stdout", io.StringIO())  # a broken pipe would take that of the tests away
    monkeypatch.setattr(LazyGroup, "get_command", lambda *_: failing)
    assert main(["failing"]) == status
    assert capsys.readouterr().err == text
