"""An earlier version of kraftcore, compiled once and installed with all it needs into an environment of its own.

Its source comes from the repository's history, or, where the clone is shallow, from where it was cloned.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from kafka_tools import CACHE, locked
from project import ROOT

COMMIT = "e523f63fd6c66e38a1fc2bf55621a36f6969c1e3"
"""A later one takes its place when a release is made, then it is that release's: a version is promised to work with
the one before it. Write the new id here, and run the test; the cache is by id."""
_STEP_S = 900


class EarlierMissingError(Exception):
    """The earlier version cannot be had here; the text says why and what to do."""


def has_history(commit: str = COMMIT) -> bool:
    """Whether an earlier version can come from here.

    False in a source distribution, which is no clone, and in a clone of the newest commits alone where the rest cannot
    be had from where it was cloned.
    """
    if not (ROOT / ".git").exists():
        return False
    try:
        _run(ROOT, "git", "cat-file", "-e", f"{commit}^{{commit}}")
    except EarlierMissingError:
        is_whole = _run(ROOT, "git", "rev-parse", "--is-shallow-repository").strip() == "false"
        if is_whole and int(_run(ROOT, "git", "rev-list", "--count", "--max-count=2", "HEAD")) > 1:
            return True  # then a wrong commit is named, which is to be said
        try:
            _run(ROOT, "git", "ls-remote", "--exit-code", "origin", "HEAD")
        except EarlierMissingError:
            return False
    return True


def earlier_python(commit: str = COMMIT) -> Path:
    """The interpreter of an environment in which that commit's kraftcore is installed.

    Raises:
        EarlierMissingError: the history lacks the commit, or it could not be built.
    """
    home = CACHE.with_name("earlier") / f"{commit[:12]}-{sys.implementation.cache_tag}"
    python = home / "bin" / "python"
    with locked(home.with_suffix(".lock")):
        if not python.exists():
            part = Path(tempfile.mkdtemp(dir=home.parent, prefix="part-"))
            try:
                _unpack(commit, part)
                _compile_quickly(part / "source" / "setup.py")
                _run(part, sys.executable, "-m", "venv", "environment")
                _run(part, "environment/bin/python", "-m", "pip", "install", "-q", "./source[recipes]")
                (part / "environment").rename(home)  # what is asked of it is its interpreter, which finds itself
            finally:
                shutil.rmtree(part)
    return python


def _unpack(commit: str, part: Path) -> None:
    """Put the sources of a commit into the folder ``source``."""
    archive = ["archive", "--format=tar", "--output", str(part / "source.tar"), commit]
    try:
        _run(ROOT, "git", *archive)
    except EarlierMissingError:
        try:
            origin = _run(ROOT, "git", "remote", "get-url", "origin").strip()
            _run(ROOT, "git", "init", "-q", "--bare", str(part / "git"))
            _run(ROOT, "git", f"--git-dir={part / 'git'}", "fetch", "-q", "--depth=1", origin, commit)
            _run(ROOT, "git", f"--git-dir={part / 'git'}", *archive)
        except EarlierMissingError as error:
            raise EarlierMissingError(
                f"commit {commit} is neither in the history of {ROOT} nor where that was cloned from: fetch the "
                f"history (git fetch --unshallow), or name another commit in {Path(__file__).name}\n{error}"
            ) from None
    with tarfile.open(part / "source.tar") as tar:
        tar.extractall(part / "source", filter="data")


def _compile_quickly(setup: Path) -> None:
    """Have gcc optimise nothing: it takes a third of the time, and what is compiled means the same."""
    text, count = re.subn(r'"-O\d"', '"-O0"', setup.read_text())
    assert count, f"{setup} names no level of optimisation any more"
    setup.write_text(text)


def _run(folder: Path, *command: str) -> str:
    """What a command prints."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_STEP_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EarlierMissingError(f"{' '.join(command)}: {error}") from None
    if done.returncode:
        output = "\n".join((done.stdout + done.stderr).strip().splitlines()[-8:])
        raise EarlierMissingError(f"{' '.join(command)} ended with status {done.returncode}\n{output}")
    return done.stdout
