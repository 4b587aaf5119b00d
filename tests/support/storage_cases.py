"""Cases for ``storage``: a server's file, runs in order, and what Kafka 4.3.1's own tool said.

What it said is stored in ``tests/data/storage_tool.json``. To make it anew (Java, and the jars of kafka-tools 4.3.1):

    python tests/support/storage_cases.py 'CLASSPATH'
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from kafka_tools import RUN_TIMEOUT_S

from kraftcore.core.batch import iter_batches
from kraftcore.protocol.control import decode_control_record
from kraftcore.protocol.data.snapshot_header_record import SnapshotHeaderRecord
from kraftcore.protocol.data.voters_record import VotersRecord

DATA = Path(__file__).resolve().parents[1] / "data" / "storage_tool.json"
PROGRAM = Path(__file__).resolve().parents[1] / "interop" / "java" / "StorageRuns.java"
# Kafka prints the messages of these as they are, those of others with a stack trace. There ours has its own words,
# except in what the scene `refused` tries.
TERSE = ("", "kafka.tools.TerseFailure", "org.apache.kafka.metadata.storage.FormatterException")

CONTROLLER = """\
process.roles=controller
node.id=3
controller.quorum.bootstrap.servers=localhost:9093
controller.listener.names=CONTROLLER
listeners=CONTROLLER://:9093
"""
BROKER = """\
process.roles=broker
node.id=3
controller.quorum.bootstrap.servers=localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
listeners=PLAINTEXT://:9092
"""
COMBINED = """\
process.roles=broker,controller
node.id=7
controller.quorum.bootstrap.servers=localhost:9093
controller.listener.names=CONTROLLER,OTHER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT
listeners=PLAINTEXT://127.0.0.1:9092,OTHER://127.0.0.1:9095,controller://127.0.0.1:9093
advertised.listeners=PLAINTEXT://there:9092,CONTROLLER://127.0.0.2:19093
"""
STATIC = CONTROLLER + "controller.quorum.voters=3@localhost:9093,2@localhost:9094\n"
IDS = ("JEXY6aqzQY-32P5TStzaFg", "MvDxzVmcRsaTz33bUuRU6A", "07R5amHmR32VDA6jHkGbTA")


@dataclass(frozen=True)
class Run:
    """One run of the tool.

    Attributes:
        scene: name of the folder that holds the server's file, and of its directories.
        arguments: ``{file}`` stands for the file.
    """

    scene: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Said:
    """What the tool said.

    Attributes:
        status: exit status.
        out: on stdout, with drawn ids blanked.
        err: on stderr.
        kind: class of the Java exception it ended with, if any.
    """

    status: int
    out: str
    err: str
    kind: str = ""


# Scene -> the server's file, the runs.
SCENES: dict[str, tuple[str, list[list[str]]]] = {}


def _scene(name: str, file: str, *runs: Iterable[str]) -> None:
    SCENES[name] = (file, [["format", "-c", "{file}", "-t", "abc", *run] for run in runs])


_scene("standalone", CONTROLLER + "log.dirs={d}/a,{d}/b\n", ["-s"], ["-s"], ["-s", "-g"])
SCENES["standalone"][1].append(["info", "-c", "{file}"])
SCENES["standalone"][1].append(
    ["format", "--config={file}", "--cluster-id=other", "--standalone", "--ignore-formatted"]
)
_scene("combined", COMBINED + "log.dirs={d}/x,{d}/y\nmetadata.log.dir={d}/m\n", ["--standalone"])
_scene("one-dir", CONTROLLER + "log.dir={d}/a\n", ["-N"], ["-N"])
_scene("many", CONTROLLER + f"log.dirs={','.join(f'{{d}}/d{n}' for n in range(14))}\n", ["-N"])
_scene(
    "three",
    CONTROLLER + "log.dirs={d}/a,{d}/b\n",
    ["-I", f"1@h:9093:{IDS[0]}, 2@example.com:8084:{IDS[1]},3@[::1]:8083:{IDS[2]}"],
)
_scene("elsewhere", CONTROLLER + "log.dirs={d}/a\n", ["-I", f"1@h:9093:{IDS[0]},2@h:9094:{IDS[1]}"])
_scene("static", STATIC + "log.dirs={d}/a,{d}/b\n", ["-f", "kraft.version=1"], ["-s"], ["-f", "kraft.version=0"])
_scene("static-none", STATIC + "log.dirs={d}/a\n", ["-N", "-r", "3.3.1"])
_scene("broker", BROKER + "log.dirs={d}/a,{d}/b\nmetadata.log.dir={d}/m\n", ["-s"], [])
_scene("broker-voters", BROKER + "log.dirs={d}/a\n", ["-I", f"1@h:1:{IDS[0]}"])
_scene(
    "addresses",
    CONTROLLER + "log.dirs={d}/a\n",
    ["-I", f"1@[::ffff:1.2.3.4]:1:{IDS[0]},2@[fe80:0::a:0:1]:2:{IDS[1]},3@127.0.0.1:3:{IDS[2]}"],
)
_scene("unstable", CONTROLLER + "log.dirs={d}/a\nunstable.feature.versions.enable=true\n", ["-N"])
_scene("old", CONTROLLER + "log.dirs={d}/a\n", ["-N", "-r", "3.9", "-f", "group.version=1"])
_scene("metadata-version", CONTROLLER + "log.dirs={d}/a\n", ["-N", "-f", "metadata.version=25"])
_scene("off", CONTROLLER + "log.dirs={d}/a\n", ["-s", "-f", "transaction.version=0", "-f", " share.version = 0"])
_scene(
    "scram",
    CONTROLLER + "log.dirs={d}/a\n",
    [
        *("-s", "-S", 'SCRAM-SHA-256=[name=alice,password=secret,salt="N3E="]'),
        *("-S", "SCRAM-SHA-512=[name=bob,iterations=8192,salt=N3E=,saltedpassword=YCE=]"),
        *("-S", "SCRAM-SHA-512=[name=ö,iterations=16384,salt=MTIzNDU2,password=p=ä]"),
    ],
)
_BAD_SCRAM = (
    *("x", "X=[]", "SCRAM-SHA-256=y", "SCRAM-SHA-256=[y", "SCRAM-SHA-256=[y]", "SCRAM-SHA-256=[]"),
    *("SCRAM-SHA-256=[a=1]", "SCRAM-SHA-256=[name=1]", "SCRAM-SHA-256=[name=1,saltedpassword=YCE=]"),
    *("SCRAM-SHA-256=[name=1,salt=$,password=a]", "SCRAM-SHA-256=[name=1,salt=YCE=,saltedpassword=$]"),
    *("SCRAM-SHA-256=[name=1,iterations=x,password=a]", "SCRAM-SHA-256=[name=1,iterations=4095,password=a]"),
    *("SCRAM-SHA-512=[name=1,iterations=16385,password=a]", "SCRAM-SHA-256=[name=1,z=1,y=2,password=a]"),
)
_BAD_VOTERS = (
    *("", ",", "1", "@", "x@h:1:A", "99999999999@h:1:A", "1@", "1@[a", "1@h", "1@[::]x", "1@h:1", "1@h:x:A"),
    *("1@h:70000:A", "1@h:-1:A", "1@h:1:A", f"1@h:1:{IDS[0]},1@i:1:{IDS[1]}"),
)
_scene(
    "refused",
    CONTROLLER + "log.dirs={d}/a\n",
    *([], ["-N", "-r", "4.9"], ["-N", "-r", "4.4-IV0"], ["-N", "-r", "3.2"], ["-N", "-r", "4.4"]),
    *(["-N", "-f", "foo.version=1"], ["-N", "-f", "foo.version"], ["-N", "-f", "group.version=99999"]),
    *(["-N", "-f", "group.version=9"], ["-N", "-f", "metadata.version=99"], ["-N", "-f", "metadata.version=31"]),
    *(["-N", "-f", "metadata.version=22", "-r", "4.0"], ["-N", "-f", "kraft.version=0"]),
    *(["-N", "-f", "eligible.leader.replicas.version=1", "-r", "3.9"], ["-N", "-s"], ["-N", "-I", "x"], ["--bogus"]),
    *(["-N", "-r", "3.4", "-S", "SCRAM-SHA-256=[name=1,password=a]"], ["-N", "extra"]),
    *(["-N", "-S", text] for text in _BAD_SCRAM),
    *(["-I", text] for text in _BAD_VOTERS),
)
_FEATURES = (
    *("transaction.version=2", "eligible.leader.replicas.version=1", "metadata.version=30", "metadata.version=31"),
    *("metadata.version=99", "foo=1", "kraft.version=9", "foo", "a=b", "kraft.version=-1", "kraft.version=70000"),
    " group.version = 1 ",
)
SCENES["no-directories"] = (
    CONTROLLER + "log.dirs={d}/a,{d}/b\n",
    [
        ["info", "-c", "{file}"],
        *(
            ["version-mapping", *(["-r", text] if text else [])]
            for text in ("", "3.3", "9.9", "4.4-IV0", "3.9.1", "4.0")
        ),
        *(["feature-dependencies", "-f", text] for text in _FEATURES),
        ["feature-dependencies", "-f", "transaction.version=2", "--feature", "foo=1"],
        *(["feature-dependencies"], ["format"], ["info"], ["bogus"], ["random-uuid", "x"]),
        *(["format", "-c", "{d}/absent", "-t", "x"], ["info", "-c", "{d}/absent"], ["format", "-c", "{file}", "-t"]),
    ],
)
for _number, _file in enumerate(
    [
        *("node.id=1\n", "process.roles=controller\n", "process.roles=controller\nnode.id=1\n"),
        CONTROLLER.replace("node.id=3", "node.id=-1"),
        CONTROLLER.replace("node.id=3", "node.id=x"),
        CONTROLLER.replace("roles=controller", "roles=bla"),
        CONTROLLER.replace("controller.quorum.bootstrap.servers=localhost:9093", ""),
        CONTROLLER + "controller.quorum.voters=4@h:1\n",
        CONTROLLER + "controller.quorum.voters=x\n",
        BROKER + "controller.quorum.voters=3@h:1\n",
        CONTROLLER.replace("names=CONTROLLER", "names=NONE"),
        CONTROLLER + "log.dirs=\n",
        CONTROLLER + "unstable.feature.versions.enable=x\n",
    ]
):
    SCENES[f"file-{_number}"] = (_file, [["format", "-c", "{file}", "-t", "abc", "-N"], ["info", "-c", "{file}"]])


def prepare(base: Path) -> list[Run]:
    """Write the servers' files below ``base`` and list all runs; they are to be made in ``base``, in this order."""
    runs = []
    for name, (file, arguments) in SCENES.items():
        (base / name).mkdir()
        path = f"{name}/server.properties"
        (base / path).write_text(file.replace("{d}", name))
        runs += [Run(name, tuple(each.format(file=path, d=name) for each in run)) for run in arguments]
    problems = base / "problems"
    for folder, content in (("a", "version=1\n"), ("b", None), ("c", "version=1\ncluster.id=x\nnode.id=3\n")):
        (problems / folder).mkdir(parents=True)
        if content is not None:
            (problems / folder / "meta.properties").write_text(content)
    (problems / "d").mkdir()
    (problems / "d" / "meta.properties").write_text("version=1\ncluster.id=y\nnode.id=3\n")
    (problems / "e").mkdir()
    (problems / "e" / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=4\n")
    (problems / "f").write_text("a file")
    (problems / "server.properties").write_text(
        CONTROLLER + "log.dirs=" + ",".join(f"problems/{each}" for each in "fedcb") + "\n"
    )
    runs.append(Run("problems", ("info", "-c", "problems/server.properties")))
    return runs


def blank(text: str) -> str:
    """Text without what is drawn at random."""
    return re.sub(r"directory\.id=[\w-]{22}", "directory.id=(drawn)", text)


def run_kafka(java: list[str], base: Path) -> list[tuple[Run, Said]]:
    """Make all runs with Kafka's tool.

    Args:
        java: the command up to the main class.
        base: an empty folder.
    """
    runs = prepare(base)
    lines = base / "runs"
    lines.write_text("".join("\t".join(run.arguments) + "\n" for run in runs))
    done = subprocess.run(
        [*java, "StorageRuns", str(lines)], cwd=base, capture_output=True, text=True, check=True, timeout=RUN_TIMEOUT_S
    )
    lines.unlink()
    said = []
    for line in done.stdout.splitlines():
        status, out, err, kind = line.split("\t")
        # Whether a logger is found depends on the jars.
        complaint = "".join(each for each in _text(err).splitlines(keepends=True) if not each.startswith("SLF4J"))
        said.append(Said(int(status), blank(_text(out)), complaint, kind))
    if len(said) != len(runs):
        raise AssertionError(f"{len(runs)} runs, {len(said)} answers")
    return list(zip(runs, said, strict=True))


def _text(encoded: str) -> str:
    return base64.b64decode(encoded).decode()


def stored() -> list[tuple[Run, Said]]:
    """What Kafka's tool said when the data was made."""
    return [
        (Run(each["scene"], tuple(each["arguments"])), Said(**each["said"])) for each in json.loads(DATA.read_text())
    ]


def comparable_files(folder: Path) -> dict[str, object]:
    """What is in a formatted folder, by path and with its mode, without drawn ids and times."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_dir():
            continue
        data = path.read_bytes()
        if path.name == "meta.properties":
            lines = blank(data.decode()).splitlines()
            content: object = [lines[0], re.sub(r"\d", "9", lines[1])[-5:], *lines[2:]]
        elif path.suffix == ".checkpoint":
            content = list(_comparable_batches(data))
        else:
            content = data
        found[str(path.relative_to(folder))] = (oct(path.stat().st_mode), len(data), content)
    return found


def _comparable_batches(data: bytes) -> Iterator[bytes]:
    position = 0
    for batch in iter_batches(data):
        end = position + 12 + int.from_bytes(data[position + 8 : position + 12])
        found = bytearray(data[position:end])
        position = end
        for first, last in ((17, 21), (27, 43)):  # checksum; first and last time
            found[first:last] = bytes(last - first)
        for record in batch if batch.is_control else ():
            body = decode_control_record(record.key, record.value).body
            if isinstance(body, SnapshotHeaderRecord) and body.last_contained_log_timestamp:
                found = found.replace(body.last_contained_log_timestamp.to_bytes(8), bytes(8))
            if isinstance(body, VotersRecord):
                for voter in body.voters:
                    drawn = str(voter.voter_directory_id) not in IDS
                    found = found.replace(bytes(voter.voter_directory_id), bytes(16)) if drawn else found
        yield bytes(found)


def _make(class_path: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        classes = Path(name) / "classes"
        subprocess.run(["javac", "-nowarn", "-d", str(classes), "-cp", class_path, str(PROGRAM)], check=True)
        base = Path(name) / "base"
        base.mkdir()
        made = run_kafka(["java", "-cp", f"{classes}:{class_path}"], base)
    rows = [{"scene": run.scene, "arguments": run.arguments, "said": asdict(said)} for run, said in made]
    DATA.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    _make(sys.argv[1])
