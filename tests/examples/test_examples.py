"""The examples, as a reader would run them: three processes each, with the installed package."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from queue import Empty, Queue

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PATIENCE_S = 60


def free_ports(count: int) -> int:
    """The first of so many free ports in a row."""
    while True:
        with ExitStack() as stack:
            first = stack.enter_context(socket.socket())
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                for other in range(port + 1, port + count):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", other))
            except (OSError, OverflowError):
                continue
            return port


class Program:
    """A running example: what it prints, and what it is told."""

    def __init__(self, name: str, folder: Path, *arguments: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(EXAMPLES / name), *map(str, arguments)],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said: list[str] = []
        self._lines: Queue[str | None] = Queue()
        self._errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read),
            threading.Thread(target=lambda: self._errors.extend(self.process.stderr)),
        ]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def tell(self, line: str) -> None:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def wait(self, pattern: str) -> re.Match[str]:
        """The next line that looks like this."""
        due = time.monotonic() + PATIENCE_S
        while True:
            try:
                line = self._lines.get(timeout=max(due - time.monotonic(), 0))
            except Empty:
                pytest.fail(f"no {pattern!r}; it said {self.said[-20:]}")
            if line is None:
                pytest.fail(f"it ended without {pattern!r}: {self.said[-20:]} {''.join(self._errors)[-2000:]}")
            self.said.append(line)
            if found := re.search(pattern, line):
                return found

    def interrupt(self) -> None:
        """Ctrl-C; it must end, whatever its exit status."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(PATIENCE_S)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for reader in self._readers:
            reader.join()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            try:
                stream.close()
            except BrokenPipeError:
                pass
        while (line := self._lines.get()) is not None:
            self.said.append(line)


class Group:
    """Three of them."""

    def __init__(self, name: str, folder: Path, stack: ExitStack) -> None:
        self.name = name
        self.folder = folder
        self.first_port = free_ports(3)
        self.every: list[Program] = []
        self._stack = stack

    def start(self, number: int, *more: int) -> Program:
        program = Program(self.name, self.folder, number, self.first_port, *more)
        self._stack.callback(program.close)
        self.every.append(program)
        return program


@pytest.fixture
def group(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Group]:
    with ExitStack() as stack:
        yield Group(request.param, tmp_path, stack)


def example(name: str):
    return pytest.mark.parametrize("group", [name], indirect=True)


def test_every_example_is_run_here():
    names = re.findall(r'@example\("([^"]+)"\)', Path(__file__).read_text())
    assert sorted(names) == sorted(path.name for path in EXAMPLES.glob("*.py"))


@example("embed.py")
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
    for program in group.every:
        program.close()
    counts = [int(line.split()[0]) for program in group.every for line in program.said]
    assert len(set(counts)) == len(counts)  # every result was given once
    # An append whose answer got lost with its process may have been applied.
    assert max(counts) - len(counts) <= len(group.every)


@example("config_store.py")
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


@example("job_scheduler.py")
def test_job_scheduler(group):
    jobs = 12
    programs = [group.start(number, jobs) for number in (1, 2, 3)]
    group.every[0].wait("^done ")
    victim = next(program for program in programs if program.wait("^begin "))
    os.kill(victim.process.pid, signal.SIGSTOP)
    rest = [program for program in programs if program is not victim]
    done: dict[str, int] = {}

    def read(program: Program) -> None:
        while len(done) < jobs:
            found = program.wait(r"^(done|begin|gave up|scheduler|no scheduler)(?: (\S+) with token (\d+))?")
            if found[1] == "done":
                assert found[2] not in done  # exactly once
                done[found[2]] = int(found[3])

    for program in programs:
        for line in program.said:
            if found := re.match(r"done (\S+) with token (\d+)", line):
                done[found[1]] = int(found[2])
    reader = threading.Thread(target=read, args=(rest[0],))
    reader.start()
    while len(done) < jobs:
        time.sleep(0.1)
        if not reader.is_alive():
            break
    reader.join()
    assert len(done) == jobs


@example("web_service.py")
def test_web_service(group):
    http = free_ports(3)
    programs = [group.start(number, http + number - 1) for number in (1, 2, 3)]
    ask = [HttpClient(http + index) for index in range(3)]
    for each in ask:
        each.until(lambda each=each: each.status()["voters"] == [1, 2, 3])
    leader = ask[0].status()["leader"] - 1
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
    assert left[0].status()["leader"] != leader + 1
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

    def until(self, condition) -> None:
        due = time.monotonic() + PATIENCE_S
        while True:
            try:
                if condition():
                    return
            except OSError:  # not yet
                pass
            if time.monotonic() > due:
                pytest.fail("it never came")
            time.sleep(0.05)


@example("threaded_worker.py")
def test_threaded_worker(group):
    programs = [group.start(number) for number in (1, 2, 3)]
    words = [f"word{'s' * number}" for number in range(30)]
    programs[0].tell(" ".join(words[:15]))
    programs[1].tell(" ".join(words[15:]))
    total = sum(map(len, words))
    seen: set[str] = set()
    due = time.monotonic() + PATIENCE_S
    while len(seen) < len(words) and time.monotonic() < due:
        for program in programs:
            try:
                line = program._lines.get(timeout=0.1)
            except Empty:
                continue
            found = re.match(r"thread \d took '(\w+)'; (\d+) letters so far", line or "")
            assert found, (line, program._errors)
            assert found[1] not in seen
            seen.add(found[1])
    assert seen == set(words)
    assert total
    for program in programs:
        program.process.stdin.close()  # the end of its input is the program's end
        assert program.process.wait(PATIENCE_S) == 0
