"""``meta.properties``: a folder's cluster, node and directory id, and the checks across folders at start.

Source: Kafka 4.3.1, MetaProperties and MetaPropertiesEnsemble; directory ids: KIP-858.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from kraftcore.core.disk.files import Files
from kraftcore.core.uuid import Uuid
from kraftcore.errors import CorruptDataError, KraftError, LocalError, StorageError
from kraftcore.protocol.topics import METADATA_TOPIC
from kraftcore.storage.properties import format_properties, parse_properties

META_PROPERTIES = "meta.properties"
METADATA_PARTITION = f"{METADATA_TOPIC}-0"

MIRROR_NODE_ID = -1
"""In place of a node's id in the folder of a mirror, which observers keep: no node starts from it."""

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_INTEGER = re.compile(r"[+-]?[0-9]{1,11}", re.ASCII)


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The content of one ``meta.properties``.

    Attributes:
        cluster_id: any text; None only in version 0.
        node_id: >= 0; None only in version 0, where the file calls it ``broker.id``.
        directory_id: None in a folder that was formatted before there were directory ids.
        version: 1; 0 for folders that come from a ZooKeeper-based cluster.

    Raises:
        LocalError: the version is unknown, or a key that the version requires is missing.
    """

    cluster_id: str | None
    node_id: int | None
    directory_id: Uuid | None = None
    version: int = 1

    def __post_init__(self) -> None:
        if self.version not in (0, 1):
            raise LocalError(f"meta.properties version {self.version} is unknown: kraftcore knows 0 and 1")
        if self.version == 1 and (self.cluster_id is None or self.node_id is None):
            raise LocalError("meta.properties version 1 needs a cluster.id and a node.id")

    @classmethod
    def decode(cls, data: bytes, *, path: str | None = None) -> MetaProperties:
        """Read a file's content. Unknown keys are ignored.

        Raises:
            CorruptDataError: the version is unknown, a number or id cannot be read, or a key is missing.
        """
        values = parse_properties(data, path=path)
        version = _integer(values.get("version", "0").strip(), "version", path)
        if version not in (0, 1):
            raise CorruptDataError(f"version {version} is unknown: kraftcore knows 0 and 1", path=path)
        node_key = "node.id" if version else "broker.id"
        if version:
            for key in ("cluster.id", "node.id"):
                if key not in values:
                    raise CorruptDataError(f"{key} is missing: version 1 needs it", path=path)
        directory_id = None
        if "directory.id" in values:
            try:
                directory_id = Uuid.from_string(values["directory.id"])
            except LocalError as error:
                raise CorruptDataError(f"directory.id: {error}", path=path) from None
        node_id = _integer(values[node_key], node_key, path) if node_key in values else None
        return cls(values.get("cluster.id"), node_id, directory_id, version)

    def encode(self, written_at: datetime) -> bytes:
        """The file's content, in the order in which Kafka's hash table happens to list the keys.

        Args:
            written_at: goes into the second line, with its zone's name (``UTC`` if it has none).
        """
        values = {
            "node.id" if self.version else "broker.id": None if self.node_id is None else str(self.node_id),
            "directory.id": None if self.directory_id is None else str(self.directory_id),
            "version": str(self.version),
            "cluster.id": self.cluster_id,
        }
        day, month = _DAYS[written_at.weekday()], _MONTHS[written_at.month - 1]
        zone = written_at.tzname() or "UTC"
        date = f"{day} {month} {written_at.day:02d} {written_at:%H:%M:%S} {zone} {written_at.year:04d}"
        return format_properties({key: value for key, value in values.items() if value is not None}, ("", date))


def _integer(text: str, key: str, path: str | None) -> int:
    if not _INTEGER.fullmatch(text) or not -(1 << 31) <= int(text) < 1 << 31:
        raise CorruptDataError(f"{key}={text!r} is not a 32-bit integer", path=path)
    return int(text)


def read_meta_properties(files: Files, folder: str) -> MetaProperties | None:
    """Read a folder's ``meta.properties``.

    Returns:
        None if there is none: the folder, or its file, does not exist.

    Raises:
        CorruptDataError: see ``MetaProperties.decode``.
        StorageError: the file cannot be read.
    """
    path = os.path.join(folder, META_PROPERTIES)
    try:
        data = files.read_file(path)
    except StorageError as error:
        if error.errno == errno.ENOENT:
            return None
        raise
    return MetaProperties.decode(data, path=path)


def write_meta_properties(files: Files, folder: str, properties: MetaProperties, written_at: datetime) -> None:
    """Write a folder's ``meta.properties``, durably and atomically.

    Raises:
        StorageError: the old file, if any, is still there.
    """
    files.replace_file(os.path.join(folder, META_PROPERTIES), properties.encode(written_at))


class NodeFolders(NamedTuple):
    """The ``meta.properties`` of all folders of one node.

    Attributes:
        properties: of the folders that have one, in the order they were given.
        unformatted: folders without one.
        failed: folders whose file cannot be read, with the reason.
        metadata_folder: the folder with the metadata log, or None.
    """

    properties: Mapping[str, MetaProperties]
    unformatted: tuple[str, ...]
    failed: Mapping[str, KraftError]
    metadata_folder: str | None

    @property
    def cluster_id(self) -> str | None:
        """The first cluster id found."""
        return next((found.cluster_id for found in self.properties.values() if found.cluster_id is not None), None)

    @property
    def node_id(self) -> int | None:
        """The first node id found."""
        return next((found.node_id for found in self.properties.values() if found.node_id is not None), None)

    def verify(
        self,
        *,
        cluster_id: str | None = None,
        node_id: int | None = None,
        require_version_0: bool = False,
        require_formatted: bool = False,
    ) -> None:
        """Check the rules that must hold before a node may start.

        All folders belong to one cluster and one node, directory ids are neither reserved nor used twice, at least one
        folder can be read, and the metadata folder did not fail.

        Args:
            cluster_id: the required cluster id; None: that of the first folder.
            node_id: the required node id; None: that of the first folder.
            require_version_0: refuse version 1 (a ZooKeeper-based broker).
            require_formatted: refuse folders without the file.

        Raises:
            LocalError: a rule does not hold; the first one, with the folders and what to do.
        """
        if not self.properties:
            looked = ", ".join([*self.unformatted, *self.failed]) or "no folder"
            what = "format the folders first (kraftcore storage format; after a lost disk --no-initial-controllers)"
            raise LocalError(f"no readable meta.properties in {looked}: {what}")
        if require_formatted and self.unformatted:
            raise LocalError(
                f"{', '.join(self.unformatted)} is not formatted: format it (kraftcore storage format "
                "--ignore-formatted), or take it out of log.dirs"
            )
        cluster_id = self.cluster_id if cluster_id is None else cluster_id
        node_id = self.node_id if node_id is None else node_id
        owners: dict[Uuid, str] = {}
        for folder, found in self.properties.items():
            path = os.path.join(folder, META_PROPERTIES)
            if require_version_0 and found.version != 0:
                raise LocalError(f"{path}: version {found.version}, but only 0 is allowed here")
            if found.cluster_id is not None and found.cluster_id != cluster_id:
                raise LocalError(
                    f"{path}: cluster.id is {found.cluster_id}, expected {cluster_id}: the folder is another cluster's"
                )
            if found.node_id == MIRROR_NODE_ID != node_id:
                raise LocalError(
                    f"{path}: {folder} is a mirror, as kraftcore observe keeps it, and no node's: if all voters of its "
                    f"quorum are lost, make node {node_id} of it (kraftcore storage recover-quorum; docs/damage.md, "
                    "Restore from an observer's mirror); else give the node a folder of its own"
                )
            if found.node_id is not None and found.node_id != node_id:
                raise LocalError(
                    f"{path}: node id is {found.node_id}, expected {node_id}: configure node id {found.node_id}, or "
                    f"give node {node_id} a folder of its own"
                )
            if found.directory_id is None:
                continue
            if found.directory_id.is_reserved:
                raise LocalError(f"{path}: directory.id {found.directory_id} is reserved: format the folder again")
            other = owners.setdefault(found.directory_id, folder)
            if other != folder:
                raise LocalError(f"directory.id {found.directory_id} is used by {other} and by {folder}: one is a copy")
        if self.metadata_folder is not None and self.metadata_folder in self.failed:
            raise LocalError(
                f"the metadata folder {self.metadata_folder} cannot be used: {self.failed[self.metadata_folder]}"
            )


def load_folders(files: Files, folders: Iterable[str], *, metadata_folder: str | None = None) -> NodeFolders:
    """Read the ``meta.properties`` of all folders of a node; a bad one is recorded, not raised.

    Args:
        files: where the folders are.
        folders: log directories.
        metadata_folder: that holds the metadata log; added to ``folders`` if it is not among them.

    Raises:
        LocalError: no folder is given, or a folder other than ``metadata_folder`` holds a metadata log.
    """
    names = dict.fromkeys(folders)
    if metadata_folder is not None:
        names[metadata_folder] = None
    if not names:
        raise LocalError("a node needs at least one folder")
    properties: dict[str, MetaProperties] = {}
    unformatted: list[str] = []
    failed: dict[str, KraftError] = {}
    for folder in names:
        try:
            found = read_meta_properties(files, folder)
        except (CorruptDataError, StorageError) as error:
            failed[folder] = error
            continue
        if found is None:
            unformatted.append(folder)
        else:
            properties[folder] = found
        if metadata_folder not in (None, folder) and files.exists(os.path.join(folder, METADATA_PARTITION)):
            raise LocalError(
                f"{folder} holds a metadata log, but the metadata folder is {metadata_folder}: "
                "set it to where the log is"
            )
    return NodeFolders(properties, tuple(unformatted), failed, metadata_folder)


def ensure_directory_ids(
    files: Files, folders: NodeFolders, written_at: datetime, *, randbytes: Callable[[int], bytes] = os.urandom
) -> NodeFolders:
    """Give every formatted folder without a directory id a random one, and write it, as a Kafka node does at start.

    Raises:
        StorageError: a file could not be written; folders before it have theirs.
    """
    properties = dict(folders.properties)
    used = {found.directory_id for found in properties.values()}
    for folder, found in folders.properties.items():
        if found.directory_id is not None:
            continue
        directory_id = Uuid.random(randbytes)
        while directory_id in used:
            directory_id = Uuid.random(randbytes)
        used.add(directory_id)
        properties[folder] = replace(found, directory_id=directory_id)
        write_meta_properties(files, folder, properties[folder], written_at)
    return folders._replace(properties=properties)
