"""sarama's module, its functional tests as one program, and which of them are run here."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from kafka_tools import CACHE, locked

MODULE, VERSION = "github.com/IBM/sarama", "v1.61.1"
BUILD_S = 900
USUAL_PLACE = "/usr/local/go/bin"
ADVICE = "install Go 1.26 or newer"
_TAGGED = re.compile(r"^//go:build functional$", re.MULTILINE)
_TEST = re.compile(r"^func (Test\w+)\(\w+ \*testing\.T\)", re.MULTILINE)
LEFT_OUT = {
    "transactions": (
        r"TestFuncTxn\w+|TestFuncInitProducerId3|TestFunc(Describe|List)Transactions|TestReadOnlyAndAllCommittedMessages"
    ),
    "a proxy that cuts connections": (
        "TestFuncConnectionFailure|TestFuncAdminNetworkErrorClosesControllerConnection"
        "|TestFuncProducingIdempotentWithBrokerFailure|TestAsyncProducerRemoteBrokerClosed"
    ),
    "containers": (
        r"Test(Func)?Java\w+|TestConsumerFetchFollowerFailover|TestFuncAdminListConsumerGroupOffsets"
        "|TestFuncIdempotentBufferedSequence"
    ),
    "five brokers": "TestFuncAdminDescribeLogDirs",
}
"""What a test needs that is not here, and the names of such tests."""


class SaramaMissingError(Exception):
    """The tests cannot be had on this machine; the text says why and what to do."""


class Sarama:
    """The tests, fetched and compiled once.

    Attributes:
        folder: of the module's sources; the tests run there.
        program: has all of them.
        names: of those that can be run here, sorted.

    Raises:
        SaramaMissingError: there is no Go, or it could not fetch or compile them.
    """

    def __init__(self) -> None:
        path = os.pathsep.join([os.environ.get("PATH", os.defpath), USUAL_PLACE])
        go = shutil.which("go", path=path)
        if go is None:
            raise SaramaMissingError(f"go not found: {ADVICE}")
        home = CACHE.with_name("sarama")
        home.mkdir(parents=True, exist_ok=True)
        found = _run([go, "mod", "download", "-json", f"{MODULE}@{VERSION}"], home)
        self.folder = Path(json.loads(found)["Dir"])
        self.program = home / f"{VERSION}.test"
        with locked(home / "lock"):
            if not self.program.exists():
                part = self.program.with_suffix(".part")
                _run([go, "test", "-c", "-tags", "functional", "-o", str(part), "."], self.folder)
                part.rename(self.program)
        sources = [path.read_text() for path in sorted(self.folder.glob("*_test.go"))]
        self.names = kept(names_in(sources))


def names_in(sources: Sequence[str]) -> list[str]:
    """The tests that stand in files with the build tag ``functional``, sorted."""
    return sorted(name for source in sources if _TAGGED.search(source) for name in _TEST.findall(source))


def kept(names: Sequence[str]) -> list[str]:
    """Without those that are left out."""
    return [name for name in names if not any(re.fullmatch(pattern, name) for pattern in LEFT_OUT.values())]


def _run(command: list[str], folder: Path) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=BUILD_S, cwd=folder)
    except subprocess.TimeoutExpired as error:
        raise SaramaMissingError(f"{' '.join(command)} took more than {BUILD_S} s") from error
    if done.returncode:
        lines = "\n".join((done.stdout + done.stderr).strip().splitlines()[-8:])
        raise SaramaMissingError(
            f"{' '.join(command)} failed; {ADVICE}, and have the Go module proxy in reach\n{lines}"
        )
    return done.stdout
