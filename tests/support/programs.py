"""Programs of their own that a test runs, for what ends a whole interpreter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

_LIMIT_S = 120


def output_of(test_file: str, text: str, *, status: int | None = 0) -> str:
    """What a program prints; however it ends, it must end.

    Args:
        test_file: a test module, whose names the program may use, besides os, signal and sys.
        text: the program.
        status: the exit status that it must have; None: any.
    """
    path = Path(test_file)
    head = (
        f"import os, signal, sys; sys.path[:0] = {[str(path.parent), str(Path(__file__).parent)]!r}\n"
        f"import {path.stem}; globals().update(vars({path.stem}), __name__='__main__')\n"
    )
    command = [sys.executable, "-P", "-c", head + dedent(text)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    assert "Fatal" not in done.stderr
    assert status is None or done.returncode == status, done.stderr
    return done.stdout
