"""Children made by ``fork``, and what they find."""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TypeVar

import pytest
from nodes import Values

from kraftcore import NodeConfig, blocking
from kraftcore.errors import LockedError, WrongProcessError

T = TypeVar("T")
WITH_THREADS = "ignore:.*use of fork.*:DeprecationWarning"
"""What Python 3.12 and later say of a fork beside threads; for ``pytest.mark.filterwarnings``."""


_before: dict[int, str] = {}


@pytest.fixture(autouse=True)
def what_was_open_before() -> Iterator[None]:
    """Sockets that earlier tests of this process left open, of other people's clients above all, do not count."""
    _before.update(descriptors())
    yield
    _before.clear()


def in_child(function: Callable[[], T]) -> T:
    """What a function returns in a child; what it raises there is raised here."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            try:
                found = (True, function())
            except BaseException as error:
                found = (False, error)
            with open(writer, "wb") as target:
                pickle.dump(found, target)
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as source:
        data = source.read()
    os.waitpid(child, 0)
    done, result = pickle.loads(data)
    if not done:
        raise result
    return result


def config(directory: Path, **settings: object) -> NodeConfig:
    given = {"node_id": 1, "listeners": ["127.0.0.1:0"], "create": "standalone", **settings}
    return NodeConfig(directory=directory, **given)  # type: ignore[arg-type]


def owner(directory: Path) -> int | None:
    """Who has it, as whoever wants to open it is told."""
    with pytest.raises(LockedError) as caught, blocking.open_node(config(directory), Values()):
        pass
    assert f"process {caught.value.pid} (" in str(caught.value)
    return caught.value.pid


def runs_its_own(directory: Path) -> int:
    with blocking.open_node(config(directory), Values()) as node:
        node.wait_leader()
        return node.append(b"a").result


def descriptors() -> dict[int, str]:
    """This process's: what each is; TCP's sockets begin with their family."""
    found = {}
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            what = found[number] = os.readlink(f"/proc/self/fd/{number}")
            if what.startswith("socket:"):
                with socket.socket(fileno=os.dup(number)) as sock:
                    found[number] = f"{sock.family.name} {what}"
        except OSError:  # that of the listing itself
            continue
    return found


def inherited(here: dict[int, str], there: dict[int, str], folder: str) -> list[str]:
    """What a child has of its parent's TCP sockets, and of the files that the parent has open in a folder."""
    return sorted(
        what
        for number, what in here.items()
        if is_of(what, folder) and there.get(number) == what != _before.get(number)
    )


def is_of(what: str, folder: str) -> bool:
    return is_tcp(what) or what.startswith(folder)


def is_tcp(what: str) -> bool:
    return what.startswith("AF_INET")


def refuses(thing: object, pid: int) -> list[str]:
    """The public names of an object that can be had or called in this process, where none should be."""
    answered = []
    for name in dir(type(thing)):
        if not name.startswith("_"):
            try:
                getattr(thing, name)
            except WrongProcessError as error:
                assert error.pid == pid
            else:
                answered.append(name)
    return answered


FORKS_WHEN_TOLD = [
    *(sys.executable, "-P", "-c"),
    f"import sys; sys.path.append({str(Path(__file__).parent)!r}); import forked; forked.fork_when_told();"
    "sys.exit(forked.main(sys.argv[1:]))",
]
"""A command ``kraftcore`` that forks a child at SIGUSR2, and prints of it what it prints of other events as JSON."""


def main(arguments: list[str]) -> int | None:
    from kraftcore.cli import main as run

    return run(arguments)


def fork_when_told() -> None:
    """At SIGUSR2 this process forks a child that lives on and does nothing."""
    signal.signal(signal.SIGUSR2, _fork)


def _fork(_number: int, _frame: FrameType | None) -> None:
    if not os.fork():
        os.write(1, json.dumps({"time": "", "event": "forked", "pid": os.getpid()}).encode() + b"\n")
        for output in (1, 2):  # whoever reads hears of its parent's end
            os.dup2(os.open(os.devnull, os.O_WRONLY), output)
        while True:
            signal.pause()


def outlives(child: int) -> bool:
    """Whether a child still runs; it ends now."""
    state = Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[0]
    os.kill(child, signal.SIGKILL)
    return state != "Z"
