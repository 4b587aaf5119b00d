"""The owner of a log directory, by its ``meta.properties``: the broker and its cluster."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from kraftcore.core.disk.files import Files
from kraftcore.core.uuid import Uuid
from kraftcore.errors import LocalError
from kraftcore.storage.meta_properties import MetaProperties, read_meta_properties, write_meta_properties


def adopt(files: Files, path: str, node_id: int, cluster_id: str, randbytes: Callable[[int], bytes]) -> Uuid:
    """The id of a directory under a KRaft controller; an empty one is made this broker's.

    The node has checked that one which is not empty belongs to this broker.

    Raises:
        LocalError: it is formatted without a directory id.
        CorruptDataError, StorageError: its file cannot be read.
    """
    files.make_folder(path)
    found = read_meta_properties(files, path)
    if found is None:
        found = MetaProperties(cluster_id, node_id, Uuid.random(randbytes))
        write_meta_properties(files, path, found, datetime.now(UTC))
    if found.directory_id is None:
        raise LocalError(f"{path}: meta.properties names no directory id: format it again")
    return found.directory_id


def claim(
    files: Files, path: str, node_id: int, cluster_id: str | None, randbytes: Callable[[int], bytes]
) -> tuple[str, Uuid | None]:
    """See that a directory belongs to this broker; an empty one becomes its own.

    Args:
        files: where it is.
        path: its folder.
        node_id: of this broker.
        cluster_id: what other directories say; None: nothing yet, a new one is made up.
        randbytes: draws the bytes of ids.

    Returns:
        The cluster's id, and the directory's; None: it has none.

    Raises:
        LocalError: it is another broker's, or of another cluster.
        CorruptDataError, StorageError: its file cannot be read.
    """
    found = read_meta_properties(files, path)
    if found is None:
        cluster_id = cluster_id or str(Uuid.random(randbytes))
        made = MetaProperties(cluster_id, node_id, Uuid.random(randbytes), version=0)
        write_meta_properties(files, path, made, datetime.now(UTC))
        return cluster_id, made.directory_id
    if found.node_id not in (None, node_id):
        raise LocalError(
            f"{path} belongs to broker {found.node_id}, not {node_id}: set node.id to that, or log.dirs to another "
            f"directory"
        )
    if cluster_id is not None and found.cluster_id not in (None, cluster_id):
        raise LocalError(
            f"{path} belongs to cluster {found.cluster_id}, another of log.dirs to {cluster_id}: name only directories "
            f"of one cluster"
        )
    return found.cluster_id or cluster_id or str(Uuid.random(randbytes)), found.directory_id
