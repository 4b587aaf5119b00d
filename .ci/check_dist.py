"""Check what would be uploaded: the sdist builds alone, the wheel holds code, stubs and no sources of the build."""

import sys
import zipfile
from pathlib import Path

(wheel,) = Path(sys.argv[1]).glob("*.whl")
names = zipfile.ZipFile(wheel).namelist()
for needed in ("kraftcore/py.typed", "kraftcore/transports/__init__.py", "kraftcore/plugins/__init__.py"):
    if needed not in names:
        sys.exit(f"{wheel.name} lacks {needed}")
for name in names:
    top = name.split("/")[0]
    ours = top.startswith("kraftcore") or top == "pyspark_kraft.py"  # the name Spark looks for
    if not ours or name.endswith((".pyx", ".c", ".h")):
        sys.exit(f"{wheel.name} holds {name}, which does not belong there")
print(f"{wheel.name}: {len(names)} files, {wheel.stat().st_size // 1024} KiB")
