"""Which kraftcore is measured: the installed one, never the source folder that happens to lie beside ``bench/``.

``python -m`` puts the current folder first on sys.path. In the repository root that folder holds ``kraftcore/``, whose
sources would shadow an installed wheel, and without compiled modules beside them they would not even import. The
``bench`` package is already loaded by then and finds its modules through its own ``__path__``, so the root can go.
"""

import importlib.util
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def measure_the_installed_package() -> None:
    """Take the repository root off sys.path, unless it is the only place kraftcore can come from."""
    kept = [entry for entry in sys.path if Path(entry or os.curdir).resolve() != ROOT]
    removed = len(kept) != len(sys.path)
    sys.path[:] = kept
    if removed and importlib.util.find_spec("kraftcore") is None:
        sys.path.append(str(ROOT))  # not installed: the report names the path that was measured
