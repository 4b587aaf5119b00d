"""What peers need besides Python packages: jars, classes, programs; made once, in the cache folder."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.harness import Missing

CACHE = Path(os.environ.get("KRAFTCORE_CACHE") or Path(__file__).resolve().parents[1] / ".cache") / "bench"
TIMEOUT_S = 900
USUAL_PLACES = (Path("/usr/local/go/bin"), Path("~/go/bin"), Path("~/.cargo/bin"), Path("/opt/maven/bin"))
COPY_JARS = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


def tools(names: Sequence[str], advice: str) -> list[str]:
    """Find programs on PATH or where their installers put them.

    Raises:
        Missing: the absent ones, and the advice.
    """
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *(str(place.expanduser()) for place in USUAL_PLACES)])
    found = {name: shutil.which(name, path=path) for name in names}
    absent = [name for name, place in found.items() if place is None]
    if absent:
        raise Missing(f"{' and '.join(absent)} not found: {advice}")
    return [place for place in found.values() if place is not None]


def run(command: Sequence[str | Path], what: str, folder: Path | None = None) -> None:
    """Run a build command.

    Raises:
        Missing: it failed or took too long; with the end of its output.
    """
    try:
        done = subprocess.run(
            list(map(str, command)), capture_output=True, text=True, timeout=TIMEOUT_S, check=False, cwd=folder
        )
    except subprocess.TimeoutExpired as error:
        raise Missing(f"{what} took more than {TIMEOUT_S} s") from error
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise Missing(f"{what} failed: {' | '.join(lines[-3:])[:300]}")


def make(name: str, ingredients: Sequence[Path | str], fill: Callable[[Path], None]) -> Path:
    """Have a folder of the cache filled, unless that was done before.

    Args:
        name: what the folder holds.
        ingredients: files, folders and texts that decide its content. A change makes a new folder, beside what another
            run may be using.
        fill: puts the content into the folder given to it; nothing is kept if it raises.
    """
    target = CACHE / f"{name}-{_digest(ingredients)}"
    with _locked(CACHE / f"{name}.lock"):
        if not target.is_dir():
            part = Path(tempfile.mkdtemp(dir=CACHE, prefix="part-"))
            try:
                fill(part)
            except BaseException:
                shutil.rmtree(part)
                raise
            part.rename(target)
    return target


def copy_jars(pom: Path, folder: Path) -> None:
    """Let Maven put what a pom names, and what that needs, into a folder."""
    options = [f"-DoutputDirectory={folder}", "-DincludeScope=runtime"]
    (maven,) = tools(["mvn"], "install Maven")
    run([maven, "-q", "-B", "-f", pom, COPY_JARS, *options], "mvn dependency:copy-dependencies")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _digest(ingredients: Sequence[Path | str]) -> str:
    digest = hashlib.sha256()
    for item in ingredients:
        if isinstance(item, str):
            digest.update(item.encode())
            continue
        for path in sorted(item.rglob("*")) if item.is_dir() else [item]:
            if path.is_file():
                digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:12]
