"""Kafka's own Java code: kafka-clients (batches, messages) and kafka-raft's log.

Jars come from Maven and classes from javac, once, into the cache folder. A JVM answers requests over a pipe (see
java/Main.java), so its slices take turns with everybody else's. Every case has a fresh JVM, as JMH's forks: what the
just-in-time compiler learned from one case would slow down the next.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path

from bench import builds, inputs
from bench.harness import APPENDS_MIN, Missing, Operation

VERSION = "4.3.1"
NAME = f"Java kafka-clients {VERSION}"
LOG_NAME = f"Java KafkaRaftLog {VERSION}"
SOURCES = Path(__file__).with_name("java")
ANSWER_TIMEOUT_S = 120
# A fixed heap keeps the collector from resizing it in the middle of a slice.
JVM_OPTIONS = ("-Xms1g", "-Xmx1g", "-XX:+UseParallelGC")
WARM_S = 1.0
"""The just-in-time compiler needs some thousand calls before a figure means anything."""


_class_path: list[str | Missing] = []


def build() -> str:
    """Resolve the jars and compile the peer, unless done before.

    Returns:
        The class path.
    Raises:
        Missing: a tool or the network is missing; said at once when asked again, for the next case.
    """
    if not _class_path:
        try:
            _class_path.append(_build())
        except Missing as reason:
            _class_path.append(reason)
    found = _class_path[0]
    if isinstance(found, Missing):
        raise found
    return found


def _build() -> str:
    _, javac, _ = builds.tools(["java", "javac", "mvn"], "install a JDK (17 or newer) and Maven")
    sources = sorted(SOURCES.glob("*.java"))
    pom = SOURCES / "pom.xml"
    jars = builds.make("jars", [pom], lambda folder: builds.copy_jars(pom, folder))
    classes = builds.make(
        "classes",
        [pom, *sources],
        lambda folder: builds.run([javac, "-nowarn", "-d", folder, "-cp", f"{jars}/*", *sources], "javac"),
    )
    return f"{classes}{os.pathsep}{jars}/*"


class Jvm:
    """The running peer process.

    Raises:
        Missing: it cannot be built or started.
    """

    def __init__(self) -> None:
        classes = build()  # may be missing: nothing is left behind then
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed in stop)
        self.folder = Path(tempfile.mkdtemp(prefix="kraftcore-bench-"))
        self.process = subprocess.Popen(
            ["java", *JVM_OPTIONS, "-cp", classes, "Main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )
        atexit.register(self.stop)
        self.versions = self._answer()

    def ask(self, *fields: object) -> list[str]:
        """Send one request and return the fields of the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write("\t".join(map(str, fields)) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> list[str]:
        assert self.process.stdout is not None
        timer = threading.Timer(ANSWER_TIMEOUT_S, self.process.kill)
        timer.start()
        try:
            line = self.process.stdout.readline()
        finally:
            timer.cancel()
        fields = line.rstrip("\n").split("\t")
        if fields[0] != "ok":
            self.errors.seek(0)
            raise Missing(f"the Java peer failed: {' '.join(fields[1:]) or self.errors.read()[-300:] or 'no answer'}")
        return fields[1:]

    def file(self, data: bytes) -> Path:
        """Hand data over in a file, named by its content."""
        path = self.folder / hashlib.sha256(data).hexdigest()[:16]
        if not path.exists():
            path.write_bytes(data)
        return path

    def stop(self) -> None:
        """End the process; it reads its pipe to the end and leaves."""
        atexit.unregister(self.stop)
        self.process.communicate(timeout=10)
        self.errors.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def _operation(
    name: str,
    *arguments: object,
    note: str = "",
    calls_max: int = 1 << 30,
    warm_s: float = WARM_S,
    calls_min: int = 1,
) -> Operation:
    """Prepare an operation in a JVM of its own; bytes among the arguments are handed over as a file."""
    peer = Jvm()
    handle, digest = peer.ask("prepare", name, *(peer.file(a) if isinstance(a, bytes) else a for a in arguments))

    def run(calls: int) -> float:
        return int(peer.ask("run", handle, calls)[0]) / 1e9

    def close() -> None:
        peer.ask("close", handle)
        peer.stop()

    return Operation(run, lambda: digest, close, note, calls_max, warm_s, calls_min)


def encode(records: int, size: int) -> Operation:
    """Build a batch from an array of values into a buffer that is used again."""
    content = b"".join(inputs.values(records, size))
    return _operation("encode", content, records, size, inputs.TIMESTAMP_MS, note="output buffer reused")


def decode_objects(records: int, size: int) -> Operation:
    """Check one batch's CRC and visit its records."""
    return _operation("decode", inputs.one_batch(records, size), note="values are slices, not copies")


def decode(records: int, size: int) -> Operation:
    """The same over a buffer of many batches."""
    return _operation("decode", inputs.stream(records, size)[0], note="values are slices, not copies")


def fetch_request_encode() -> Operation:
    """Serialise an existing message object, header included."""
    return _operation("fetch_request_encode", inputs.fetch_request())


def fetch_request_decode() -> Operation:
    """Parse header and body into objects."""
    return _operation("fetch_request_decode", inputs.fetch_request())


def fetch_response_encode() -> Operation:
    """Serialise an existing message object, header included."""
    return _operation("fetch_response_encode", inputs.fetch_response())


def fetch_response_decode() -> Operation:
    """Parse header and body into objects."""
    return _operation("fetch_response_decode", inputs.fetch_response())


def append(records: int, size: int, parent: Path, calls_max: int) -> Operation:
    """Append one batch as leader, again and again, to a fresh log without flushing."""
    batch = inputs.one_batch(records, size)
    calls_min = min(APPENDS_MIN, calls_max)
    return _operation("append", parent, batch, inputs.LEADER_EPOCH, calls_max=calls_max, calls_min=calls_min)


def tail_read(records: int, size: int, parent: Path, batches: int) -> Operation:
    """Read the newest batch of a log of ``batches`` batches."""
    batch = inputs.one_batch(records, size)
    return _operation("tail_read", parent, batch, inputs.LEADER_EPOCH, batches)


def open_log(folder: Path) -> Operation:
    """Open Kafka's log on ``folder``, which it may change: give it a copy of its own."""
    return _operation("open", folder, note="scans the whole log at every open", calls_max=1, warm_s=0.0)
