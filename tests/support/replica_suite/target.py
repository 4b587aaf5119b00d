"""Brokers under test: a real Kafka 3.9.1 in ZooKeeper mode, or kraftcore, behind one small interface of TCP and files.

    with Workspace("kafka", base, libs) as ws:
        b = ws.broker(1); b.start(); b.kill(); b.start(); b.dirs("topic", 0); b.checkpoint(NAME)

Every broker has two listeners: BROKER (the one between brokers, where control requests go too) and CLIENT.
"""

import os
import re
import signal
import socket
import struct
import subprocess
import threading
from pathlib import Path

from conformance.target import PATIENCE, until
from kafka_lab import HOST, OURS, free_port

CONTROLLER_ID = 900  # the id this suite uses as the controller

LOG4J = """log4j.rootLogger=%s, C
log4j.appender.C=org.apache.log4j.ConsoleAppender
log4j.appender.C.layout=org.apache.log4j.PatternLayout
log4j.appender.C.layout.ConversionPattern=[%%d] %%p %%m (%%c)%%n
"""


def java(heap, libs, log4j, *args):
    return [
        "java",
        f"-Xmx{heap}m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        f"-Dlog4j.configuration=file:{log4j}",
        "-cp",
        f"{libs}/*",
        *map(str, args),
    ]


def end_process(proc, sig, wait=30):
    if proc and proc.poll() is None:
        proc.send_signal(sig)
        try:
            proc.wait(wait)
        except subprocess.TimeoutExpired:
            proc.kill()
            proc.wait()


# ---------------------------------------------------------------- brokers


class Broker:
    """One broker. Subclasses say how to run the program and what it needs beside its properties."""

    DEFAULTS = {
        "inter.broker.listener.name": "BROKER",
        "listener.security.protocol.map": "BROKER:PLAINTEXT,CLIENT:PLAINTEXT",
        "auto.create.topics.enable": "false",
        "controlled.shutdown.enable": "false",
        # the periodic duties, fast enough to be watched
        "log.initial.task.delay.ms": 100,
        "log.segment.delete.delay.ms": 1500,
        "replica.high.watermark.checkpoint.interval.ms": 200,
        "log.flush.offset.checkpoint.interval.ms": 300,
        "log.flush.start.offset.checkpoint.interval.ms": 300,
        "log.retention.check.interval.ms": 500,
        "replica.fetch.wait.max.ms": 200,
        "replica.fetch.backoff.ms": 100,
        "replica.lag.time.max.ms": 600000,
        "num.network.threads": 2,
        "num.io.threads": 4,
        "log.cleaner.enable": "false",
        "log.retention.ms": -1,
    }

    def __init__(self, ws, node, dirs, props):
        self.ws, self.node, self.proc, self.extra_files = ws, node, None, ()
        self.name = f"b{node}-{ws.count()}"
        self.port, self.client_port = ws.port(), ws.port()
        self.log_dirs = [ws.base / f"{self.name}-d{i}" for i in range(dirs)]
        self.conf, self.out = ws.base / f"{self.name}.properties", ws.base / f"{self.name}.out"
        both = f"BROKER://{HOST}:{self.port},CLIENT://{HOST}:{self.client_port}"
        self.props = {
            "broker.id": node,
            "listeners": both,
            "advertised.listeners": both,
            "log.dirs": ",".join(map(str, self.log_dirs)),
            **self.DEFAULTS,
            **self.own_props(),
        }
        self.set(**props)

    def own_props(self):
        return {}

    def set(self, **props):
        """Change properties (dots as underscores) for the next start; None takes one out."""
        self.props.update({k.replace("_", "."): v for k, v in props.items()})
        self.props = {k: v for k, v in self.props.items() if v is not None}
        self.conf.write_text("".join(f"{k}={v}\n" for k, v in self.props.items()))
        return self

    def command(self):
        raise NotImplementedError

    def before_start(self):
        pass

    # -- running
    def start(self, timeout=60):
        self.before_start()
        with open(self.out, "ab") as out:
            self.proc = subprocess.Popen(
                self.command(), stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True
            )
        self.ws.running.append(self)

        def up():
            if self.proc.poll() is not None:
                raise RuntimeError(f"broker {self.node} exited with {self.proc.returncode}:\n{self.output()[-3000:]}")
            try:
                for port in (self.port, self.client_port):
                    socket.create_connection((HOST, port), 0.5).close()
                return self.ready()
            except OSError:
                return False

        until(f"broker {self.node} listens on {self.port}", up, timeout)
        return self

    def ready(self):
        """True when requests are answered: an ApiVersions request gets through."""
        with socket.create_connection((HOST, self.port), 2) as s:
            s.settimeout(2)
            s.sendall(bytes.fromhex("0000000c001200000000000100027331"))
            return s.recv(4) != b""

    def stop(self, sig=signal.SIGTERM):
        end_process(self.proc, sig, 30 * max(1, PATIENCE))
        if self in self.ws.running:
            self.ws.running.remove(self)
        return self

    def kill(self):
        return self.stop(signal.SIGKILL)

    def restart(self, sig=signal.SIGKILL):
        return self.stop(sig).start()

    @property
    def alive(self):
        return self.proc is not None and self.proc.poll() is None

    def output(self):
        return self.out.read_text(errors="replace") if self.out.exists() else ""

    # -- files
    def dirs(self, topic, partition=None):
        """Directories of a topic (partition), of any kind: live ones, and renamed ones that wait for their deletion."""
        out = []
        for d in self.log_dirs:
            if d.is_dir():
                out += [
                    p
                    for p in d.iterdir()
                    if p.is_dir()
                    and re.match(
                        rf"{re.escape(topic)}-{r'[0-9]+' if partition is None else partition}(\.[0-9a-f]+-\w+)?$",
                        p.name,
                    )
                ]
        return sorted(out)

    def dir(self, topic, partition=0):
        """The live directory of a partition, or None."""
        for d in self.log_dirs:
            if (d / f"{topic}-{partition}").is_dir():
                return d / f"{topic}-{partition}"
        return None

    def deleted(self, topic, partition=0):
        """Directories renamed for deletion."""
        return [p for p in self.dirs(topic, partition) if p.name.endswith("-delete")]

    def log_bytes(self, topic, partition=0):
        """All segments of a partition, in offset order."""
        return b"".join(f.read_bytes() for f in sorted(self.dir(topic, partition).glob("*.log")))

    def checkpoint(self, name, log_dir=0):
        """An offset checkpoint of a log directory: {(topic, partition): offset}, or None when there is no whole
        file."""
        try:
            lines = (self.log_dirs[log_dir] / name).read_text().splitlines()
        except OSError:
            return None
        if len(lines) < 2 or lines[0] != "0" or len(lines) != 2 + int(lines[1]):
            return None
        return {(t, int(p)): int(o) for t, p, o in (line.rsplit(" ", 2) for line in lines[2:])}

    def epochs(self, topic, partition=0):
        """leader-epoch-checkpoint: [(epoch, start offset)], or None when there is no whole file."""
        try:
            lines = (self.dir(topic, partition) / "leader-epoch-checkpoint").read_text().splitlines()
        except (OSError, TypeError):
            return None
        if len(lines) < 2 or lines[0] != "0" or len(lines) != 2 + int(lines[1]):
            return None
        return [tuple(map(int, line.split(" "))) for line in lines[2:]]

    def topic_id(self, topic, partition=0):
        """topic_id of partition.metadata, or None."""
        try:
            text = (self.dir(topic, partition) / "partition.metadata").read_text()
        except (OSError, TypeError):
            return None
        found = re.search(r"^topic_id: (\S{22})$", text, re.M)
        return found and found[1]


class KafkaBroker(Broker):
    """ZooKeeper holds a controller znode that names another broker, so the broker's own controller stays quiet."""

    def own_props(self):
        return {
            "zookeeper.connect": f"{HOST}:{self.ws.zk.port}/{self.name}",
            "zookeeper.session.timeout.ms": 60000,
            "zookeeper.connection.timeout.ms": 30000,
        }

    def command(self):
        return java(384, self.ws.libs, self.ws.log4j, "kafka.Kafka", self.conf)

    def before_start(self):
        with ZooKeeperClient(self.ws.zk.port) as zk:
            for path, data in (
                (f"/{self.name}", b""),
                (f"/{self.name}/controller", ('{"version":1,"brokerid":%d,"timestamp":"1"}' % CONTROLLER_ID).encode()),
            ):
                zk.create(path, data)
            zk.delete(f"/{self.name}/brokers/ids/{self.node}")  # what a killed predecessor left


class KraftcoreBroker(Broker):
    def own_props(self):
        return {"node.id": self.node, "partition.control": "requests"}

    def command(self):
        return [*OURS, "server", "start", str(self.conf)]


# ---------------------------------------------------------------- ZooKeeper


class ZooKeeper:
    def __init__(self, ws):
        self.ws, self.port, self.proc = ws, ws.port(), None

    def start(self):
        conf, data = self.ws.base / "zoo.cfg", self.ws.base / "zookeeper"
        conf.write_text(
            f"clientPort={self.port}\nclientPortAddress={HOST}\ndataDir={data}\ntickTime=3000\nmaxClientCnxns=0\n"
            "admin.enableServer=false\n4lw.commands.whitelist=*\n"
        )
        with open(self.ws.base / "zookeeper.out", "ab") as out:
            self.proc = subprocess.Popen(
                java(128, self.ws.libs, self.ws.log4j, "org.apache.zookeeper.server.quorum.QuorumPeerMain", conf),
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

        def up():
            assert self.proc.poll() is None, (self.ws.base / "zookeeper.out").read_text()[-3000:]
            try:
                with ZooKeeperClient(self.port, 0.5) as zk:
                    return zk.exists("/")
            except OSError:
                return False

        until("ZooKeeper answers", up, 40)
        return self

    def stop(self):
        end_process(self.proc, signal.SIGKILL)


class ZooKeeperClient:
    """Just enough of ZooKeeper's protocol to plant and remove znodes."""

    def __init__(self, port, timeout=10):
        self.sock, self.xid = socket.create_connection((HOST, port), timeout), 0
        self.send(struct.pack(">iqiq", 0, 0, 30000, 0) + self.buffer(bytes(16)))
        self.recv()

    @staticmethod
    def buffer(data):
        return struct.pack(">i", len(data)) + data

    def send(self, data):
        self.sock.sendall(self.buffer(data))

    def recv(self):
        def exact(n):
            out = b""
            while len(out) < n:
                part = self.sock.recv(n - len(out))
                if not part:
                    raise ConnectionError("ZooKeeper closed the connection")
                out += part
            return out

        return exact(struct.unpack(">i", exact(4))[0])

    def op(self, kind, body):
        """-> error code; the reply's body is not needed."""
        self.xid += 1
        self.send(struct.pack(">ii", self.xid, kind) + body)
        xid, _, error = struct.unpack_from(">iqi", self.recv())
        assert xid == self.xid, (xid, self.xid)
        return error

    def create(self, path, data):
        acl = struct.pack(">ii", 1, 31) + self.buffer(b"world") + self.buffer(b"anyone")
        error = self.op(1, self.buffer(path.encode()) + self.buffer(data) + acl + struct.pack(">i", 0))
        assert error in (0, -110), f"create {path}: {error}"  # -110: it is there

    def delete(self, path):
        error = self.op(2, self.buffer(path.encode()) + struct.pack(">i", -1))
        assert error in (0, -101), f"delete {path}: {error}"  # -101: there is none

    def exists(self, path):
        return self.op(3, self.buffer(path.encode()) + b"\0") == 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()


# ---------------------------------------------------------------- workspace


class Workspace:
    """A scratch folder, the processes started in it, and the ports it hands out. libs: of Kafka 3.9.1, for that
    target."""

    def __init__(self, kind, folder, libs=None):
        self.kind, self.base, self.libs, self.running, self.zk = kind, Path(folder), libs, [], None
        self.lock, self.number = threading.Lock(), 0
        self.log4j = self.base / "log4j.properties"
        self.log4j.write_text(LOG4J % os.environ.get("CONF_LOG_LEVEL", "WARN"))
        self.factory = KafkaBroker if kind == "kafka" else KraftcoreBroker

    def count(self):
        with self.lock:
            self.number += 1
            return self.number

    def port(self):
        return free_port()

    def broker(self, node=1, dirs=1, **props):
        if self.kind == "kafka" and self.zk is None:
            self.zk = ZooKeeper(self).start()
        return self.factory(self, node, dirs, props)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for b in list(reversed(self.running)):
            b.kill()
        if self.zk:
            self.zk.stop()
