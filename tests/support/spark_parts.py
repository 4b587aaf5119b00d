"""Helpers of the Spark tests: batches of a segment, and programs that run where there is no Java."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from deltalake import DeltaTable

from kraftcore.core.columns.headers import batch_headers

LIMIT_S = 170
# Small data on a cold JVM: what would make large data fast only makes this slow.
SMALL = {
    "spark__sql__adaptive__enabled": "false",
    "spark__sql__shuffle__partitions": "1",
    "spark__sql__codegen__wholeStage": "false",
    "spark__sql__codegen__factoryMode": "NO_CODEGEN",
    "spark__driver__extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m",
}


def copy_as(source: Path, target: Path, cluster_id: str) -> Path:
    """A copy of a node's folder under another cluster's name."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("dump"))
    about = target / "meta.properties"
    about.write_text(re.sub(r"(?m)^cluster\.id=.*$", f"cluster.id={cluster_id}", about.read_text()))
    return target


@dataclass(frozen=True)
class Spot:
    position: int
    size: int
    base_offset: int
    last_offset: int
    epoch: int


def batches_of(data: bytes | bytearray) -> list[Spot]:
    """Where the batches of a segment are."""
    found = batch_headers(bytes(data)).batches
    names = ("position", "size", "base_offset", "last_offset", "epoch")
    return [Spot(*values) for values in zip(*(found[name].to_pylist() for name in names), strict=True)]


def counted_rows(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of all tables in a local folder that have any; read without our code."""
    found: dict[str, list[dict[str, Any]]] = {}
    for log in sorted(folder.glob("*/_delta_log")):
        for file in DeltaTable(log.parent).file_uris():
            if log.parent.name != "kraftcore_runs":
                found.setdefault(log.parent.name, []).extend(pq.read_table(file, partitioning=None).to_pylist())
    return found


def tools_without_java(folder: Path) -> Path:
    """A folder for the path with what shell scripts need, and no Java."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    for name in ("bash", "sh", "env", "dirname", "uname", "ps", "cat", "rm", "mkdir", "readlink", "nice", "tr", "sed"):
        for place in ("/usr/bin", "/bin"):
            if (Path(place) / name).exists() and not (tools / name).is_symlink():
                (tools / name).symlink_to(Path(place) / name)
    return tools


def environment_without_java(folder: Path, **more: str) -> dict[str, str]:
    """An environment as on a machine without Java, whose clock is not in UTC."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("JAVA", "SPARK", "PYSPARK"))}
    path = f"{Path(sys.executable).parent}:{tools_without_java(folder)}"
    return plain | {"PATH": path, "TZ": "Asia/Tokyo", **more}


def without_java(arguments: Sequence[str], folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program there."""
    return subprocess.run(
        [sys.executable, "-P", "-c", *arguments],
        env=environment_without_java(folder, **more),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
