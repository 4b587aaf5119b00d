"""The Spark session that commands share: the first that needs it starts it, and it ends by itself."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

import kraftcore
from kraftcore.cli.spark.answering import Event, Request
from kraftcore.cli.spark.options import SparkOptions
from kraftcore.cli.spark.screen import Screen
from kraftcore.errors import LocalError

IDLE_S = 600
_TELLING = ("AWS_", "HADOOP", "JAVA", "JDK_", "KRAFTCORE_", "PYSPARK", "SPARK", "_JAVA")
"""How the names begin of variables that a session takes its settings from."""


def shared_socket(options: SparkOptions) -> Path:
    """The socket of the session for these options, this Python and this environment.

    Raises:
        LocalError: the runtime folder cannot be made.
    """
    from kraftcore.plugins.spark.runtime import runtime_folder

    environment = sorted((name, value) for name, value in os.environ.items() if name.startswith(_TELLING))
    about = [
        kraftcore.__version__, kraftcore.__file__, sys.executable, options.master, options.memory, options.conf,
        environment,
    ]  # fmt: skip
    name = blake2b(json.dumps(about).encode(), digest_size=8).hexdigest()
    return runtime_folder() / f"session-{name}"


def is_shared_running(options: SparkOptions) -> bool:
    """Whether the session for these options listens.

    Raises:
        LocalError: the runtime folder cannot be made.
    """
    from kraftcore.plugins.spark.warm import is_held

    return is_held(shared_socket(options))


def ask_shared(request: Request, options: SparkOptions, screen: Screen) -> Iterator[Event]:
    """Ask the shared session, started if need be.

    Raises:
        LocalError: it cannot be started, has ended meanwhile, or answers with an error.
    """
    from kraftcore.plugins.spark.warm import EndedError, ask, start

    path = shared_socket(options)
    command = [sys.executable, "-P", "-m", "kraftcore", "spark", "serve", "--socket", str(path), "--quiet"]
    command += ["--idle", str(IDLE_S), "--memory", options.memory]
    command += [] if options.master is None else ["--master", options.master]
    for one in options.conf:
        command += ["--conf", one]
    for is_last in (False, True):
        screen.stage("looking for a Spark session")
        start(path, command, path.with_name(f"{path.name}.log"))
        is_heard = False
        try:
            for event in ask(path, request):
                is_heard = True
                yield event
        except EndedError as error:
            if is_heard or is_last:
                raise LocalError(f"{error}; its log: {path}.log") from None
        else:
            return
