"""A mirror's directory: laid out like a node's, and marked so that no node takes it for its own.

Observers have one, and processes that attached to a node.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial

from kraftcore.core.disk.files import Files
from kraftcore.core.log import Log
from kraftcore.core.log.config import LogConfig
from kraftcore.core.uuid import Uuid
from kraftcore.errors import KraftError, LocalError, StorageError
from kraftcore.node.home import Home
from kraftcore.ownership import at_end
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.storage.committed import CommittedFile
from kraftcore.storage.lock import lock_folders
from kraftcore.storage.meta_properties import (
    MIRROR_NODE_ID,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from kraftcore.storage.probation_mark import ProbationMark
from kraftcore.storage.quorum_state import QUORUM_STATE, QuorumStateFile
from kraftcore.storage.snapshots import SnapshotStore

NAMELESS = ReplicaKey(MIRROR_NODE_ID)
"""Who an observer is: nobody. Leaders serve such a Fetch and remember nothing of it (KIP-595; Kafka 4.3.1)."""


def saved_cluster_id(files: Files, directory: str) -> str | None:
    """The cluster that a directory mirrors; None for a new one, or if the cluster never told its id.

    Raises:
        LocalError: the directory is a node's.
        CorruptDataError, StorageError: ``meta.properties`` cannot be read.
    """
    found = read_meta_properties(files, directory)
    if found is None:
        return None
    if found.node_id != NAMELESS.id:
        raise LocalError(f"{directory} belongs to node {found.node_id}: give a mirror a directory of its own")
    return found.cluster_id or None


def open_mirror(
    files: Files,
    directory: str,
    cluster_id: str | None,
    topic: str,
    topic_id: Uuid,
    log_config: LogConfig | None = None,
) -> Home:
    """Open a mirror, or begin one; recovering its log may take a while.

    Args:
        files: where it is.
        directory: made if it is missing.
        cluster_id: of the quorum; None: it does not tell.
        topic: name of the log's topic.
        topic_id: its id.
        log_config: settings of the log; None: the defaults, with ``topic_id``.

    Raises:
        LocalError: it is a node's directory, or mirrors another cluster.
        LockedError: another process owns it.
        CorruptDataError, StorageError: it cannot be read.
    """
    files.make_folder(directory)
    locks = lock_folders(files, [directory])
    try:
        known = saved_cluster_id(files, directory)
        if known is not None and cluster_id is not None and known != cluster_id:
            raise LocalError(f"{directory} mirrors cluster {known}, this one is {cluster_id}: take another directory")
        folder = os.path.join(directory, f"{topic}-0")
        files.make_folder(folder)
        if known is None:
            properties = MetaProperties(cluster_id or "", NAMELESS.id)
            write_meta_properties(files, directory, properties, datetime.now(UTC))
        store = SnapshotStore(files, folder)
        log = Log.open(files, folder, log_config or LogConfig(topic_id=topic_id), now_ms=time.time_ns() // 1_000_000)
        quorum_state = QuorumStateFile(files, os.path.join(folder, QUORUM_STATE))
    except BaseException:
        locks.release()
        raise
    committed, probation = CommittedFile(files, folder), ProbationMark(files, directory)
    return Home(
        NAMELESS, known or cluster_id or "", log, store, quorum_state, committed, probation, locks, files, directory
    )


_PREFIX = "kraftcore-"
_SETTLED_S = 60.0  # how long a new folder may lack its lock


@contextmanager
def temporary_folder(kind: str) -> Iterator[str]:
    """A folder for a mirror; it goes with the block, or with this process, if that ends within the block.

    Not a `TemporaryDirectory`: children that were forked would remove it when they end.

    Args:
        kind: a word for its name.

    Raises:
        StorageError: it cannot be made.
    """
    try:
        made = tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-{os.getpid()}-")
    except OSError as error:
        raise StorageError(error.errno, error.strerror, error.filename or "a temporary directory") from error
    with at_end(partial(shutil.rmtree, made, ignore_errors=True)):
        yield made


def remove_left_folders(files: Files, kind: str) -> None:
    """Remove the folders that ``temporary_folder`` made in processes which were killed.

    A process that this one does not see may run on another host, or in a container, that shares the folder: so its
    lock counts as well.
    """
    base, prefix = tempfile.gettempdir(), f"{_PREFIX}{kind}-"
    for name in os.listdir(base):
        pid = name.removeprefix(prefix).partition("-")[0]
        path = os.path.join(base, name)
        if not name.startswith(prefix) or not pid.isdecimal() or _runs(int(pid)):
            continue
        with suppress(OSError, KraftError):  # another user's, or one that another process removes now
            if time.time() - os.stat(path).st_mtime > _SETTLED_S:
                with lock_folders(files, [path]):
                    shutil.rmtree(path, ignore_errors=True)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is another user's
        return True
    return True
