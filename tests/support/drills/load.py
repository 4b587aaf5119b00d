"""Kafka's own clients at work (`java/Load.java`), and whether what was acknowledged is there."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from broken import Broken
from kafka_lab import KafkaLab, wait_for

ANSWER_S = 700  # clients themselves give up after 600
GROUP_S = 240


class At(NamedTuple):
    """Where a record is."""

    topic: str
    partition: int
    offset: int


class Told:
    """What the clients were told."""

    def __init__(self, text: str) -> None:
        self.kept: dict[At, str] = {}
        self.committed = 0
        self.aborted: set[str] = set()
        self.errors: list[list[str]] = []
        for words in (line.split("\t") for line in text.splitlines()):
            match words:
                case ["acknowledged" | "committed", topic, partition, offset, key]:
                    self.kept[At(topic, int(partition), int(offset))] = key
                    self.committed += words[0] == "committed"
                case ["aborted", key]:
                    self.aborted.add(key)
                case ["error", *rest]:
                    self.errors.append(rest)
                case _:
                    raise AssertionError(words)

    @property
    def kinds(self) -> Counter[str]:
        """How often clients were told of errors, by kind."""
        return Counter(kind for _, kind, *_ in self.errors)


def judge(told: Told, present: list[tuple[At, str]], topics: set[str]) -> None:
    """Hold what clients were told against all that can be read.

    Args:
        told: to the clients.
        present: every committed record there is, in the topics.
        topics: that still exist.

    Raises:
        Broken: a client failed, or a record is lost, doubled, another one, or of an aborted transaction.
    """
    fatal = [" ".join(error) for error in told.errors if error[1] == "fatal"]
    if fatal:
        raise Broken(f"clients saw more than retriable errors: {fatal[:5]}")
    found = dict(present)
    for at, key in told.kept.items():
        if at.topic in topics and found.get(at) != key:
            raise Broken(f"{key} was acknowledged at {at}, where there is {found.get(at)}")
    doubled = [key for key, count in Counter(key for _, key in present).items() if count > 1]
    if doubled:
        raise Broken(f"written more than once: {doubled[:5]}")
    aborted = [key for _, key in present if key in told.aborted]
    if aborted:
        raise Broken(f"of aborted transactions: {aborted[:5]}")


class Load:
    """Producers, transactions and a group, in a process of their own."""

    def __init__(self, lab: KafkaLab, servers: str) -> None:
        self._acknowledged = lab.folder / "load-acknowledged"
        self._group = lab.folder / "load-group"
        self._found = lab.folder / "load-found"
        self._out = lab.folder / "load.out"
        self.topics: set[str] = set()
        command = [*lab.java(), "Load", servers, str(self._acknowledged), str(self._group)]
        with self._out.open("wb") as out:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=out)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _say(self, *words: str) -> None:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        watchdog = threading.Timer(ANSWER_S, os.kill, (process.pid, signal.SIGKILL))
        watchdog.start()
        try:
            process.stdin.write("\t".join(words).encode() + b"\n")
            process.stdin.flush()
            answer = process.stdout.readline().decode().strip()
        finally:
            watchdog.cancel()
        if answer != "done":
            raise Broken(f"the clients' {words[0]}: {answer or 'no answer'}; see {self._out}")

    def add(self, topic: str) -> None:
        """Write there, too."""
        self._say("topic", topic)
        self.topics.add(topic)

    def forget(self, topic: str) -> None:
        """Write there no more; it is about to go."""
        with self.paused():
            self._say("forget", topic)
        self.topics.discard(topic)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Everything is acknowledged or was given up, and nothing new begins."""
        self._say("pause")
        try:
            yield
        finally:
            self._say("resume")

    def told(self) -> Told:
        """What the clients were told so far."""
        return Told(self._acknowledged.read_text().rpartition("\n")[0])

    def wait_progress(self, count: int = 30) -> None:
        """Wait until so many more records are acknowledged, some in transactions."""
        begin = self.told()

        def moved() -> bool:
            now = self.told()
            if now.kinds["fatal"]:
                raise Broken(f"clients saw more than retriable errors: {now.errors}")
            return len(now.kept) >= len(begin.kept) + count and now.committed > begin.committed

        wait_for("clients to get on", moved, timeout_s=GROUP_S)

    def check(self) -> Told:
        """Everything acknowledged is there, once, and the group reads it.

        Raises:
            Broken: see `judge`.
        """
        with self.paused():
            told = self.told()
            self._say("read", str(self._found), *sorted(self.topics))
        present = []
        for line in self._found.read_text().splitlines():
            topic, partition, offset, key = line.split("\t")
            present.append((At(topic, int(partition), int(offset)), key))
        judge(told, present, self.topics)
        wanted = {at for at in told.kept if at.topic in self.topics}

        def read() -> bool:
            lines = self._group.read_text().rpartition("\n")[0].splitlines()
            parts = (line.split("\t") for line in lines)
            return wanted <= {At(topic, int(partition), int(offset)) for topic, partition, offset in parts}

        wait_for("the group to have read everything", read, timeout_s=GROUP_S)
        return told
