"""Seeds that are other ones with every change of code or tests, and can be had again."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType

from project import ROOT

from kraftcore.simulation.runs import Result
from kraftcore.simulation.timeline import Timeline


def first_fresh_seed(modules: Iterable[ModuleType]) -> int:
    """From what is committed of code and tests; without a repository, from these packages as they are installed."""
    git = shutil.which("git") if (ROOT / ".git").exists() else None
    trees = [f"HEAD:{folder}" for folder in ("kraftcore", "plugins", "transports", "tests")]
    seen = subprocess.run([git, "rev-parse", *trees], cwd=ROOT, capture_output=True).stdout if git else b""
    if not seen:
        files = sorted(path for module in modules for path in Path(str(module.__file__)).parent.glob("*.py"))
        seen = b"".join(path.read_bytes() for path in files)
    return 1_000_000 + int(hashlib.sha256(seen).hexdigest()[:7], 16)


def check_it_can_be_had_again(run: Callable[..., Result]) -> None:
    """A seed gives the same run each time."""
    first, second = (Timeline(), Timeline())
    one, two = run(5, timeline=first), run(5, timeline=second)
    assert first.lines == second.lines
    assert (one.events, one.commits, one.simulated_s) == (two.events, two.commits, two.simulated_s)
