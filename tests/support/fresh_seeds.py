"""Seeds that are other ones with every commit, and can be had again."""

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
    """From the commit; without a repository, from these packages as they are installed."""
    git = shutil.which("git") if (ROOT / ".git").exists() else None
    told = subprocess.run([git, "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout if git else ""
    digest = told.strip()
    if not digest:
        files = sorted(path for module in modules for path in Path(str(module.__file__)).parent.glob("*.py"))
        digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    return 1_000_000 + int(digest[:7], 16)


def check_it_can_be_had_again(run: Callable[..., Result]) -> None:
    """A seed gives the same run each time."""
    first, second = (Timeline(), Timeline())
    one, two = run(5, timeline=first), run(5, timeline=second)
    assert first.lines == second.lines
    assert (one.events, one.commits, one.simulated_s) == (two.events, two.commits, two.simulated_s)
