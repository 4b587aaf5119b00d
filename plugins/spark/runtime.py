"""The folder for sockets and logs of Spark sessions, which only their user can open."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from kraftcore.errors import LocalError

_MODE = 0o700


def runtime_folder() -> Path:
    """``$XDG_RUNTIME_DIR/kraftcore``, or else a folder of this user where temporary files are; made if need be.

    Raises:
        LocalError: it cannot be made, or others own it or can open it.
    """
    base = os.environ.get("XDG_RUNTIME_DIR")
    found = Path(base, "kraftcore") if base else Path(tempfile.gettempdir(), f"kraftcore-{os.getuid()}")
    try:
        found.mkdir(_MODE, exist_ok=True)
        about = found.lstat()
    except OSError as error:
        raise LocalError(
            f"{found}: no folder for sockets and logs can be made there: {error.strerror}: set XDG_RUNTIME_DIR"
        ) from None
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or stat.S_IMODE(about.st_mode) & ~_MODE:
        raise LocalError(f"{found}: sockets and logs need a folder that only you can open: remove it or chmod 700 it")
    return found
