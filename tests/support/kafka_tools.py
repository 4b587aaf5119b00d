"""Real Kafka, for the interoperation tests: jars from Maven Central, its tools and our programs in a JVM."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from project import ROOT

INTEROP = ROOT / "tests" / "interop"
CACHE = Path(os.environ.get("KRAFTCORE_CACHE") or ROOT / ".cache") / "interop"
COPY_JARS = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
TOOLS = {
    "storage": "kafka.tools.StorageTool",
    "quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "elect-leaders": "org.apache.kafka.tools.LeaderElectionCommand",
    "configs": "kafka.admin.ConfigCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "reassign": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "acls": "org.apache.kafka.tools.AclCommand",
    "tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
}
QUICK_JVM = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
RESOLVE_TIMEOUT_S = 400
RUN_TIMEOUT_S = 120


class KafkaMissingError(Exception):
    """Kafka cannot be had on this machine; the text says why and what to install."""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let one process at a time fill the cache (pytest-xdist runs several)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def digest_of(paths: Sequence[Path]) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:12]


def make_folder(target: Path, command: Sequence[str], placeholder: str, timeout_s: int) -> None:
    """Run a command that fills a folder, and give the folder its name only when it is complete."""
    part = Path(tempfile.mkdtemp(dir=target.parent, prefix="part-"))
    try:
        done = subprocess.run(
            [argument.replace(placeholder, str(part)) for argument in command],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        shutil.rmtree(part)
        raise KafkaMissingError(f"{command[0]} took more than {timeout_s} s") from error
    if done.returncode:
        shutil.rmtree(part)
        output = "\n".join((done.stdout + done.stderr).strip().splitlines()[-8:])
        raise KafkaMissingError(f"{command[0]} failed; without network Kafka's jars must be in {target}\n{output}")
    part.rename(target)


class KafkaTools:
    """Jars and classes, resolved once; each call runs a JVM and waits for it."""

    def __init__(self) -> None:
        absent = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
        if absent:
            raise KafkaMissingError(
                f"{' and '.join(absent)} not found. The interoperation tests run real Kafka 4.3.1: install a JDK "
                "(17 or newer) and Maven, for example apt-get install default-jdk-headless maven"
            )
        sources = sorted((INTEROP / "java").glob("*.java"))
        pom = INTEROP / "pom.xml"
        jars = CACHE / f"jars-{digest_of([pom])}"
        made = CACHE / f"programs-{digest_of([pom, *sources])}"
        with locked(CACHE / "lock"):
            if not jars.is_dir():
                output = ["-DoutputDirectory={}", "-DincludeScope=runtime"]
                make_folder(jars, ["mvn", "-q", "-B", "-f", str(pom), COPY_JARS, *output], "{}", RESOLVE_TIMEOUT_S)
            if not made.is_dir():
                # The JVM archives classes of jars alone.
                compiled = (
                    'javac -nowarn -d "$1/classes" -cp "$2" "${@:3}" && jar cf "$1/programs.jar" -C "$1/classes" .'
                )
                command = ["bash", "-c", compiled, "bash", "{}", f"{jars}/*", *map(str, sources)]
                make_folder(made, command, "{}", RUN_TIMEOUT_S)
            self.class_path = f"{made / 'programs.jar'}{os.pathsep}{jars}/*"
            archive = made / "loaded.jsa"
            if not archive.exists():
                self._archive_classes(archive)
        # Short runs: no optimising compiler, no second collector thread, and most classes are loaded already.
        self.jvm = [*QUICK_JVM, f"-XX:SharedArchiveFile={archive}"]

    def _archive_classes(self, archive: Path) -> None:
        """Have the classes of servers, clients and tools at hand, which halves the time until a JVM is at work."""
        part = archive.with_suffix(".part")
        with tempfile.TemporaryDirectory() as folder:
            program = ["-cp", self.class_path, "LoadedClasses", folder, *TOOLS.values()]
            command = [*QUICK_JVM, f"-XX:ArchiveClassesAtExit={part}", *program]
            done = subprocess.run(command, capture_output=True, text=True, timeout=RESOLVE_TIMEOUT_S, check=False)
        if done.returncode or not part.exists():
            raise KafkaMissingError(f"Kafka does not start here:\n{(done.stdout + done.stderr)[-3000:]}")
        part.rename(archive)

    def command(self) -> list[str]:
        """The command that runs a class, up to the class."""
        return [*self.jvm, "-Xmx512m", "-cp", self.class_path]

    def java(self, main: str, *arguments: object, cwd: Path | None = None) -> str:
        """Run a class and return what it printed.

        Raises:
            AssertionError: it failed; the text holds its output.
        """
        done = subprocess.run(
            [*self.command(), main, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
            check=False,
            cwd=cwd,
        )
        assert done.returncode == 0, f"{main} {arguments} failed:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def interop(self, work: str, *arguments: object) -> list[list[str]]:
        """Run one work of java/Interop.java and return its lines as fields."""
        return [line.split("\t") for line in self.java("Interop", work, *arguments).splitlines()]

    def dump_log(self, *arguments: object, cwd: Path | None = None) -> str:
        """Run ``kafka-dump-log``."""
        return self.java("org.apache.kafka.tools.DumpLogSegments", *arguments, cwd=cwd)
