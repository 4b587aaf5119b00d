"""The examples, as a reader would run them: three processes each, with the installed package."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import IO, TypeVar

import pytest
import trio

from kraftcore import NodeConfig, admin, blocking
from kraftcore.blocking import recipes

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PATIENCE_S = 120
PROGRAMS = {  # the applications, each in trio, asyncio and threads
    **{
        name: (f"{name}.py", f"{name}_asyncio.py", f"{name}_threads.py")
        for name in ("embed", "config_store", "job_scheduler", "shard_servers")
    },
    "web_service": ("web_service_trio.py", "web_service.py", "web_service_threads.py"),
}

T = TypeVar("T")


def free_ports(count: int) -> int:
    """The first of so many free ports in a row, of which no connection of a test beside this one takes any."""
    while True:
        first = random.randrange(20_000, 32_000)  # below those that Linux gives to connections
        with ExitStack() as stack, suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first


def until(condition: Callable[[], T | None], complaint: Callable[[], str] = lambda: "it never came") -> T:
    due = time.monotonic() + PATIENCE_S
    while time.monotonic() < due:
        if found := condition():
            return found
        time.sleep(0.02)
    pytest.fail(complaint())


class Program:
    """A running example: what it prints, and what it is told."""

    def __init__(self, name: str, folder: Path, *arguments: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(EXAMPLES / name), *map(str, arguments)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(EXAMPLES)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said: list[str] = []
        self._next = 0  # what `wait` looks at next
        self._errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=(self.process.stdout, self.said)),
            threading.Thread(target=self._read, args=(self.process.stderr, self._errors)),
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: IO[str], lines: list[str]) -> None:
        for line in stream:
            lines.append(line.rstrip("\n"))

    def tell(self, line: str) -> None:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def matches(self, pattern: str) -> list[re.Match[str]]:
        """All lines so far that look like this."""
        return [found for line in self.said if (found := re.search(pattern, line))]

    def wait(self, pattern: str) -> re.Match[str]:
        """The next line that looks like this, and was not waited for before."""

        def look() -> re.Match[str] | None:
            while self._next < len(self.said):
                self._next += 1
                if found := re.search(pattern, self.said[self._next - 1]):
                    return found
            self.check(f"without {pattern!r}")
            return None

        return until(look, lambda: f"no {pattern!r}; it said {self.said[-20:]}")

    def check(self, when: str) -> None:
        """See that it runs."""
        assert self._readers[0].is_alive(), f"it ended {when}: {self.said[-20:]} {self._errors}"

    def interrupt(self) -> None:
        """Ctrl-C; it must end, whatever its exit status."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(PATIENCE_S)

    def end(self, number: signal.Signals) -> None:
        """A signal at which it leaves in order, and has nothing to complain of."""
        self.process.send_signal(number)
        assert self.process.wait(PATIENCE_S) == 0, self._errors
        assert not [line for line in self._errors if "Traceback" in line], self._errors

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.kill()
        for reader in self._readers:
            reader.join()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            with suppress(BrokenPipeError):
                stream.close()


class Group:
    """Three of them.

    Attributes:
        running: by number.
        every: that ever ran.
    """

    def __init__(self, name: str, folder: Path, stack: ExitStack) -> None:
        self.name = name
        self.folder = folder
        self.first_port = free_ports(3)
        self.running: dict[int, Program] = {}
        self.every: list[Program] = []
        self._stack = stack

    def start(self, number: int, *more: int) -> Program:
        program = Program(self.name, self.folder, number, self.first_port, *more)
        self._stack.callback(program.close)
        self.every.append(program)
        self.running[number] = program
        return program

    def start_all(self, *more: int) -> list[Program]:
        return [self.start(number, *more) for number in (1, 2, 3)]

    def leader(self) -> int:
        """Who leads; waits until somebody does."""

        async def ask() -> int:
            servers = [f"127.0.0.1:{self.first_port + number - 1}" for number in self.running]
            async with admin.connect(bootstrap_controllers=servers) as client:
                return (await client.describe_quorum()).leader_id

        return trio.run(ask)

    def kill_leader(self) -> int:
        """SIGKILL; returns who it was."""
        leader = self.leader()
        self.running.pop(leader).kill()
        return leader


@pytest.fixture
def group(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Group]:
    with ExitStack() as stack:
        yield Group(request.param, tmp_path, stack)


def example(name: str, *, world: str | None = None):
    """Run the test with an application's program in each world, or in one; those of the others are deep."""
    programs = dict(zip(("trio", "asyncio", "threads"), PROGRAMS[name], strict=True))
    each = [programs["trio"], *(pytest.param(programs[one], marks=pytest.mark.deep) for one in ("asyncio", "threads"))]
    return pytest.mark.parametrize("group", [programs[world]] if world else each, indirect=True)


def test_every_example_is_run_here():
    names = re.findall(r'@example\("(\w+)"\)', Path(__file__).read_text())
    programs = [program for name in set(names) for program in PROGRAMS[name]]
    assert sorted(programs) == sorted(path.name for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("arguments", [[], ["help"], ["7"]])
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_without_its_number_says_how_to_run_it(path, arguments, monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(path), *arguments])
    monkeypatch.syspath_prepend(EXAMPLES)
    with pytest.raises(SystemExit, match=rf"python {path.name} "):
        runpy.run_path(str(path), run_name="__main__")


@example("embed")
def test_embed(group):
    programs = [group.start(number) for number in (1, 2, 3)]
    for program in programs:
        leader = int(program.wait(r"^\d+ \(offset \d+, node (\d) leads\)")[1])
    programs[leader - 1].process.kill()
    others = "".join(str(number) for number in (1, 2, 3) if number != leader)
    for program in programs:
        if program is not programs[leader - 1]:
            program.wait(rf"node [{others}] leads")
    group.start(leader).wait(rf"node [{others}] leads")
    first, second = (program for program in programs if program is not programs[leader - 1])
    first.end(signal.SIGTERM)
    second.end(signal.SIGINT)
    group.every[-1].end(signal.SIGINT)  # alone now, it waits for a leader
    for program in group.every:
        program.close()
    counts = [int(line.split()[0]) for program in group.every for line in program.said]
    assert len(set(counts)) == len(counts)  # every result was given once
    # An append whose answer got lost with its process may have been applied.
    assert max(counts) - len(counts) <= len(group.every)


@example("config_store")
def test_config_store(group):
    first, second, third = (group.start(number) for number in (1, 2, 3))
    for program in group.every:
        program.wait("^now: {}")
    first.tell("set colour blue")
    version = first.wait(r"^answer: version (\d+)")[1]
    for program in (second, third):
        program.wait(rf"^change: colour = blue \(version {version}\)")
    second.tell("get colour")
    second.wait(rf"^answer: Versioned\(value='blue', version={version}\)")
    third.tell(f"set colour red if {version}")
    third.wait("^answer: version")
    second.tell(f"set colour green if {version}")
    second.wait("^answer: it has another version")
    third.tell("all")
    third.wait("^answer: {'colour': 'red'}")
    third.tell("delete colour")
    first.wait("^change: colour = None")
    third.tell("dance")
    third.wait("^error: say")
    second.tell("set shape round")
    second.wait("^answer: version")
    gone = group.kill_leader()
    one, another = group.running.values()
    one.tell("set colour green")
    one.wait("^answer: version")
    another.tell("all")
    another.wait("^answer: {'shape': 'round', 'colour': 'green'}")
    group.start(gone).wait("^now: {'shape': 'round', 'colour': 'green'}")  # nothing is lost
    for program in group.running.values():
        program.process.stdin.close()  # the end of its input is the program's end
    for program in group.running.values():
        assert program.process.wait(PATIENCE_S) == 0


@example("job_scheduler", world="trio")
def test_a_paused_process_does_no_job_twice(group):
    jobs = 8
    programs = [group.start(number, jobs) for number in (1, 2, 3)]
    victim = until(lambda: next((program for program in programs if program.matches("^begin ")), None))
    os.kill(victim.process.pid, signal.SIGSTOP)
    others = [program for program in programs if program is not victim]
    # The others do all that is left. What the victim was at may be committed, but not yet said.
    until(lambda: sum(len(program.matches("^done ")) for program in programs) >= jobs - 1)
    os.kill(victim.process.pid, signal.SIGCONT)
    until(lambda: sum(len(program.matches("^done ")) for program in programs) >= jobs)
    until(lambda: len(victim.matches("^(done|gave up) ")) == len(victim.matches("^begin ")))
    done = [found[1] for program in programs for found in program.matches(r"^done (\S+)")]
    assert sorted(done) == [f"job-{number}" for number in range(jobs)]  # each of them once
    tokens = [int(found[1]) for program in programs for found in program.matches(r"^begin \S+ with token (\d+)")]
    assert len(set(tokens)) == len(tokens)
    assert all(program.matches("^done ") for program in others)


@example("job_scheduler")
def test_no_job_is_lost_or_done_twice(group):
    """The leader's process is killed while jobs are done, and started again; then another one."""
    jobs = 9
    group.start_all(jobs)
    until(lambda: any(program.matches("^begin ") for program in group.every))
    group.start(group.kill_leader(), jobs)
    servers = [f"127.0.0.1:{group.first_port + number}" for number in range(3)]
    watching = {"node_id": 4, "listeners": [], "create": "join", "can_become_voter": False, "cluster_id": "jobs"}
    config = NodeConfig(directory=group.folder / "watching", bootstrap_servers=servers, **watching)
    with blocking.open_node(config, recipes.RecipeMachine()) as node:
        results = recipes.Dict(node, "results")
        until(lambda: results.size() == jobs, lambda: f"these are done: {results.items()}")
        group.kill_leader()
        found = results.items()  # the one that was started again votes
    assert sorted(found) == [f"job-{number}" for number in range(jobs)]
    said = [match.groups() for each in group.every for match in each.matches(r"^done (\S+) with token (\d+)")]
    assert len({job for job, _ in said}) == len(said)
    assert all(found[job]["token"] == int(token) for job, token in said)
    assert len(said) >= jobs - 1  # the killed one may not have come to say it


@example("shard_servers")
def test_shard_servers(group):
    programs = {number: group.start(number) for number in (1, 2, 3)}

    def leaders():
        """Who said last that it leads each shard, of those that run, and who is in sync there."""
        found = {}
        for number, program in programs.items():
            for match in program.matches(r" (?:leads shard (\d), in sync: (.+)|leaves shard (\d))$"):
                led, in_sync, left = match.groups()
                if led:
                    found.setdefault(int(led), {})[number] = json.loads(in_sync)
                else:
                    found[int(left)].pop(number)
        return found

    def is_shared_out():
        """Each shard has one leader, and all servers that run are in sync with it."""
        found = leaders()
        everybody = [100 + number for number in sorted(programs)]
        return len(found) == 6 and all(list(each.values()) == [everybody] for each in found.values())

    for program in programs.values():
        program.wait(r"is ready$")
    until(is_shared_out, lambda: f"not each shard has one leader and three in sync: {leaders()}")
    gone = group.kill_leader()
    programs.pop(gone)
    until(is_shared_out, lambda: f"not each shard has one leader without {gone}: {leaders()}")
    programs[gone] = group.start(gone)
    programs[gone].wait(r"is ready$")
    until(is_shared_out, lambda: f"{gone} that came back is not in sync: {leaders()}")
    survivor = next(number for number in programs if number != gone)
    programs.pop(survivor).process.kill()
    until(is_shared_out, lambda: f"the one that came back does not lead: {leaders()}")


def web_services(group):
    """Three of them, a client of each, and the index of the one that leads."""
    http = free_ports(3)
    programs = [group.start(number, http + number - 1) for number in (1, 2, 3)]
    ask = [HttpClient(http + index) for index in range(3)]

    def leader(program: Program, each: HttpClient) -> int | None:
        program.check("before it knew a leader")
        return each.leader()

    first, *_ = [until(partial(leader, *each)) for each in zip(programs, ask, strict=True)]
    return programs, ask, first - 1


@example("web_service")
def test_web_service(group):
    programs, ask, leader = web_services(group)
    assert ask[0].status()["voters"] == [1, 2, 3]
    for number, each in enumerate(ask):
        assert json.loads(each.put(f"key-{number}", f"value {number}"))["version"] > 0
    for each in ask:
        assert [each.get(f"key-{number}") for number in range(3)] == ["value 0", "value 1", "value 2"]
    with pytest.raises(urllib.error.HTTPError, match="404"):
        ask[0].get("nothing")
    errors: list[BaseException] = []

    def write(each: HttpClient, name: str) -> None:
        try:
            for number in range(20):
                each.put(name, str(number))
        except BaseException as error:
            errors.append(error)

    left = [each for index, each in enumerate(ask) if index != leader]
    threads = [threading.Thread(target=write, args=(each, f"busy-{index}")) for index, each in enumerate(left)]
    for thread in threads:
        thread.start()
    programs[leader].process.kill()
    for thread in threads:
        thread.join()
    assert errors == []  # requests wait for the next leader
    assert [left[0].get("busy-1"), left[1].get("busy-0")] == ["19", "19"]
    assert left[0].leader() != leader + 1
    for program in programs:
        if program is not programs[leader]:
            program.interrupt()


@example("web_service", world="asyncio")
def test_a_web_service_ends_with_its_node(group):
    """A file that may not grow: what a full disk looks like to one process."""
    programs, ask, leader = web_services(group)
    resource.prlimit(programs[leader].process.pid, resource.RLIMIT_FSIZE, (100_000, 100_000))
    left = ask[leader - 1]
    for number in range(20):
        left.put(f"key-{number}", "x" * 10_000)  # answered by whoever leads then
    programs[leader].process.wait(PATIENCE_S)
    assert left.get("key-19") == "x" * 10_000
    for program in programs:
        if program is not programs[leader]:
            program.interrupt()


class HttpClient:
    def __init__(self, port: int) -> None:
        self._root = f"http://127.0.0.1:{port}"

    def _ask(self, path: str, method: str = "GET", body: str | None = None) -> str:
        data = None if body is None else body.encode()
        request = urllib.request.Request(self._root + path, data=data, method=method)
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
            return response.read().decode()

    def put(self, key: str, value: str) -> str:
        return self._ask(f"/values/{key}", "PUT", value)

    def get(self, key: str) -> str:
        return self._ask(f"/values/{key}")

    def status(self) -> dict[str, object]:
        return json.loads(self._ask("/status"))

    def leader(self) -> int | None:
        with suppress(OSError):  # it does not run yet
            return self.status()["leader"]
        return None
