"""Nodes under test: real Kafka, or kraftcore, behind one small interface of TCP and files.

with Workspace("kafka", folder, kafka) as ws:
    n = ws.node(1)
    n.format("--standalone"); n.start(); n.kill(); n.quorum_state(); n.batches()
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from kafka_lab import HOST, OURS, KafkaLab, free_port, new_uuid

from conformance import codec

PATIENCE = float(os.environ.get("CONF_PATIENCE", "1"))  # scales every deadline; raise it on a slow machine
META = "__cluster_metadata-0"
BOOTSTRAP = "00000000000000000000-0000000000.checkpoint"


def until(what, cond, timeout=20, every=0.05):
    """Poll cond() until it returns something true; that value is the result."""
    end, last = time.monotonic() + timeout * PATIENCE, None
    while time.monotonic() < end:
        last = cond()
        if last:
            return last
        time.sleep(every)
    raise TimeoutError(f"{what}: still {last!r} after {timeout}s")


class Result:
    def __init__(self, rc, out):
        self.rc, self.out = rc, out

    def __repr__(self):
        return f"rc={self.rc}: {self.out}"


class Target:
    """One controller node. Subclasses say how to run the program."""

    def __init__(self, ws, node, port, props):
        self.ws, self.node, self.port, self.proc = ws, node, port, None
        self.dir = ws.base / f"d{node}-{port}"
        self.conf = ws.base / f"n{node}-{port}.properties"
        self.out = ws.base / f"n{node}-{port}.out"
        self.props = {
            "process.roles": "controller",
            "node.id": node,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.dir),
            "listeners": f"CONTROLLER://{HOST}:{port}",
            "advertised.listeners": f"CONTROLLER://{HOST}:{port}",
            "metadata.max.idle.interval.ms": 0,
        }
        if not any(k in props for k in ("controller.quorum.voters", "controller.quorum.bootstrap.servers")):
            self.props["controller.quorum.bootstrap.servers"] = f"{HOST}:{port}"
        self.set(**props)

    # -- configuration and formatting
    def set(self, **props):
        self.props.update(props)
        self.props = {k: v for k, v in self.props.items() if v is not None}
        self.conf.write_text("".join(f"{k}={v}\n" for k, v in self.props.items()))
        return self

    def storage(self, *args):
        raise NotImplementedError

    def command(self):
        raise NotImplementedError

    def format(self, *args, cluster_id=None, check=True):
        r = self.storage("format", "-t", cluster_id or self.ws.cluster_id, "-c", str(self.conf), *args)
        if check and r.rc:
            raise RuntimeError(f"format {args}: {r}")
        return r

    def prepare(self, voters=None, directory=None, state=None, log=(), start=0, snapshots=(), kraft_version=1):
        """Write a log directory with this suite's own writer: the node has to start from it.

        voters: VotersRecord entries for the bootstrap checkpoint (None: none is written); log: raw batches, the first
        at offset start; snapshots: {"0..-0..": bytes} by file name; state: quorum-state (leaderId, leaderEpoch,
        votedId, votedDirectoryId).
        """
        self.directory = directory or new_uuid()
        part = self.dir / META
        part.mkdir(parents=True)
        (self.dir / "meta.properties").write_text(
            f"version=1\ncluster.id={self.ws.cluster_id}\nnode.id={self.node}\ndirectory.id={self.directory}\n"
        )
        (self.dir / "bootstrap.checkpoint").write_bytes(
            codec.snapshot(
                0, [[codec.metadata("FeatureLevelRecord", {"Name": "metadata.version", "FeatureLevel": 30})]]
            )
        )
        if voters is not None:
            (part / BOOTSTRAP).write_bytes(codec.snapshot(0, voters=voters, kraft_version=kraft_version))
        for name, data in dict(snapshots).items():
            (part / name).write_bytes(data)
        if log:
            (part / f"{start:020d}.log").write_bytes(b"".join(log))
        if state is not None:
            self.write_state(**state)
        return self

    def write_state(self, leaderId=-1, leaderEpoch=0, votedId=-1, votedDirectoryId=codec.ZERO_UUID):
        (self.dir / META / "quorum-state").write_text(
            json.dumps(
                {
                    "leaderId": leaderId,
                    "leaderEpoch": leaderEpoch,
                    "votedId": votedId,
                    "votedDirectoryId": votedDirectoryId,
                    "data_version": 1,
                }
            )
        )

    # -- running
    def start(self, wait=True, timeout=60):
        with open(self.out, "ab") as out:
            self.proc = subprocess.Popen(
                self.command(), stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True
            )
        self.ws.running.append(self)
        if wait:
            self.wait_up(timeout)
        return self

    def wait_up(self, timeout=60):
        def up():
            if self.proc.poll() is not None:
                raise RuntimeError(f"node {self.node} exited with {self.proc.returncode}:\n{self.output()[-3000:]}")
            try:
                socket.create_connection((HOST, self.port), 0.5).close()
                return True
            except OSError:
                return False

        until(f"node {self.node} listens on {self.port}", up, timeout)
        return self

    def stop(self, sig=signal.SIGTERM, wait=30):
        if self.proc and self.proc.poll() is None:
            self.proc.send_signal(sig)
            try:
                self.proc.wait(wait)
            except subprocess.TimeoutExpired:
                self.proc.kill()
                self.proc.wait()
        if self in self.ws.running:
            self.ws.running.remove(self)
        return self

    def kill(self):
        return self.stop(signal.SIGKILL)

    @property
    def alive(self):
        return self.proc is not None and self.proc.poll() is None

    def wait_exit(self, timeout=40):
        rc = self.proc.wait(timeout * PATIENCE)
        if self in self.ws.running:
            self.ws.running.remove(self)
        return rc

    def output(self):
        return self.out.read_text(errors="replace") if self.out.exists() else ""

    def wipe(self):
        shutil.rmtree(self.dir, ignore_errors=True)
        return self

    # -- files
    @property
    def part(self):
        return self.dir / META

    def quorum_state(self):
        f = self.part / "quorum-state"
        return json.loads(f.read_text()) if f.exists() else None

    def meta(self):
        return dict(re.findall(r"^([\w.]+)=(.*)$", (self.dir / "meta.properties").read_text(), re.M))

    @property
    def directory_id(self):
        return self.meta()["directory.id"]

    def log_bytes(self):
        """All segments' bytes up to the last whole batch, in offset order."""
        out = b""
        for f in sorted(self.part.glob("*.log")):
            out += b"".join(b.raw for b in codec.batches(f.read_bytes()))
        return out

    def batches(self):
        return codec.batches(self.log_bytes())

    def records(self):
        return [{**r, "epoch": b.epoch} for b in self.batches() for r in b.records]

    def end_offset(self):
        b = self.batches()
        return b[-1].last + 1 if b else 0

    def checkpoints(self):
        return {f.name: f for f in sorted(self.part.glob("*.checkpoint"))}


class KafkaTarget(Target):
    def storage(self, *args):
        r = self.ws.lab.tool("storage", *args)
        return Result(r.status, r.out + r.err)

    def command(self):
        log4j = f"-Dlog4j2.configurationFile={self.ws.lab.log4j}"
        return [
            *self.ws.lab.jvm,
            "-Xmx384m",
            log4j,
            "-cp",
            self.ws.lab.class_path,
            "kafka.Kafka",
            str(self.conf),
        ]


class KraftcoreTarget(Target):
    def storage(self, *args):
        command = [*OURS, "storage", *map(str, args)]
        r = subprocess.run(command, capture_output=True, text=True, timeout=90)
        return Result(r.returncode, r.stdout + r.stderr)

    def command(self):
        return [*OURS, "server", "start", str(self.conf)]


class Workspace:
    """A scratch folder, the processes started in it, and the ports it hands out. kafka: the jars, for that target."""

    def __init__(self, kind, folder, kafka=None):
        self.kind, self.base, self.running = kind, Path(folder), []
        self.cluster_id = new_uuid()
        self.lab = KafkaLab(kafka, self.base) if kind == "kafka" else None
        self.factory = KafkaTarget if kind == "kafka" else KraftcoreTarget

    def port(self):
        return free_port()

    def node(self, node, port=None, **props):
        return self.factory(self, node, port or self.port(), props)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for n in list(reversed(self.running)):
            n.kill()
        if self.lab is not None:
            self.lab.close()
