"""Kafka's dump tool on a metadata log: a JVM a call, as a person runs it, its output thrown away."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections import Counter
from pathlib import Path

from bench import builds
from bench.harness import Missing, Operation

VERSION = "4.3.1"
NAME = f"kafka-dump-log {VERSION}"
POM = Path(__file__).with_name("pom.xml")
TOOL = "org.apache.kafka.tools.DumpLogSegments"
_TYPE = re.compile(rb'"type":"([A-Z_]+)"')
_PIECE = 1 << 20


def build() -> str:
    """Fetch the tool's jars.

    Returns:
        The class path.

    Raises:
        Missing: no Java, Maven or network.
    """
    builds.tools(["java"], "install a JDK (17 or newer)")
    return f"{builds.make('dump-log', [POM], lambda folder: builds.copy_jars(POM, folder))}{os.sep}*"


def dump(segment: Path) -> Operation:
    """Print every record of a segment."""
    command = ["java", "-cp", build(), TOOL, "--cluster-metadata-decoder", "--files", str(segment)]

    def run(calls: int) -> float:
        begin = time.perf_counter()
        for _ in range(calls):
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        return time.perf_counter() - begin

    def digest() -> str:
        found: Counter[str] = Counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            assert process.stdout is not None
            for line in process.stdout:
                found.update(name.decode() for name in _TYPE.findall(line))
        if process.returncode:
            raise Missing(f"{TOOL} failed with status {process.returncode}")
        return digest_of_types(found)

    return Operation(run, digest, note="JVM start included, output to /dev/null", warm_s=0.0)


def digest_of_types(found: dict[str, int]) -> str:
    """Digest of metadata records counted by type."""
    return ",".join(f"{name}={count}" for name, count in sorted(found.items()))
