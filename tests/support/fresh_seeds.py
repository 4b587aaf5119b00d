"""Where seeds begin that are other ones with every commit, and can be had again."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

from project import ROOT

from kraftcore import raft, simulation


def first_fresh_seed() -> int:
    """From the commit; without a repository, from the consensus and the simulator as they are installed."""
    git = shutil.which("git") if (ROOT / ".git").exists() else None
    told = subprocess.run([git, "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout if git else ""
    digest = told.strip()
    if not digest:
        modules = (raft, simulation)
        files = sorted(path for module in modules for path in Path(module.__file__).parent.glob("*.py"))
        digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    return 1_000_000 + int(digest[:7], 16)
