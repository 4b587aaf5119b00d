"""Formatting: writes the files that a directory needs before a node first opens it, as Kafka's ``kafka-storage`` does.

``plan_format`` decides, ``format_directory`` writes: ``bootstrap.checkpoint``, in a metadata directory with initial
voters the 0-0 checkpoint, and last ``meta.properties``, which makes the directory a formatted one. Files that a crash
left before that are written again.

Source: KIP-853 and KIP-1022; Kafka 4.3.1, Formatter, DynamicVoters, BootstrapMetadata. Messages are Kafka's.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType

from kraftcore.core.disk.files import Files
from kraftcore.core.uuid import Uuid
from kraftcore.errors import LocalError
from kraftcore.protocol.control import voter
from kraftcore.protocol.data.voters_record import VotersRecord
from kraftcore.protocol.features import (
    FEATURES,
    KRAFT_VERSION,
    LATEST_PRODUCTION,
    METADATA_VERSION,
    MetadataVersion,
    check_dependencies,
    feature,
)
from kraftcore.protocol.metadata import encode_metadata_record
from kraftcore.protocol.records.feature_level_record import FeatureLevelRecord
from kraftcore.protocol.records.user_scram_credential_record import UserScramCredentialRecord
from kraftcore.protocol.topics import METADATA_TOPIC
from kraftcore.storage.bootstrap import begun_store, write_bootstrap_checkpoint, write_initial_voters
from kraftcore.storage.committed import CommittedFile
from kraftcore.storage.log_mark import remove_log_mark
from kraftcore.storage.meta_properties import MetaProperties, read_meta_properties, write_meta_properties
from kraftcore.storage.probation_mark import ProbationMark

_NUMBER = re.compile(r"[+-]?[0-9]{1,11}", re.ASCII)


@dataclass(frozen=True, slots=True)
class InitialVoter:
    """A voter that a quorum is formatted with.

    Attributes:
        node_id: >= 0.
        host: of its first controller listener.
        port: 0 to 65535.
        directory_id: of its metadata directory.
        others: its further listeners, as (name, host, port).
    """

    node_id: int
    host: str
    port: int
    directory_id: Uuid
    others: tuple[tuple[str, str, int], ...] = ()

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.node_id}@{host}:{self.port}:{self.directory_id}"


def parse_initial_voters(text: str) -> tuple[InitialVoter, ...]:
    """Read ``id@host:port:directoryId,...``, as ``format --initial-controllers`` takes it; IPv6 hosts in brackets.

    Returns:
        By id, at least one.

    Raises:
        LocalError: an entry cannot be read, an id occurs twice, or there is no entry.
    """
    voters: dict[int, InitialVoter] = {}
    for entry in text.strip().split(","):
        if not entry:
            continue
        found = _parse_initial_voter(entry.strip())
        if found.node_id in voters:
            raise LocalError(f"Node id {found.node_id} was specified more than once.")
        voters[found.node_id] = found
    if not voters:
        raise LocalError("No voters given.")
    return tuple(voters[node_id] for node_id in sorted(voters))


def _parse_initial_voter(text: str) -> InitialVoter:
    number, at, rest = text.partition("@")
    if not at:
        raise LocalError("No @ found in dynamic voter string.")
    if not number:
        raise LocalError("Invalid @ at beginning of dynamic voter string.")
    node_id = _int32(number, "node id")
    if node_id < 0:
        raise LocalError(f"Invalid negative node id {node_id} in dynamic voter string.")
    if not rest:
        raise LocalError("No hostname found after node id.")
    if rest.startswith("["):
        host, bracket, rest = rest[1:].partition("]")
        if not bracket:
            raise LocalError("Hostname began with left bracket, but no right bracket was found.")
        if not rest.startswith(":"):
            raise LocalError("Port section must start with a colon.")
        rest = rest[1:]
    else:
        host, colon, rest = rest.partition(":")
        if not colon:
            raise LocalError("No colon following hostname could be found.")
    port_text, colon, directory = rest.partition(":")
    if not colon:
        raise LocalError("No colon following port could be found.")
    port = _int32(port_text, "port")
    if not 0 <= port <= 65535:
        raise LocalError(f"Invalid port {port} in dynamic voter string.")
    try:
        directory_id = Uuid.from_string(directory)
    except LocalError:
        raise LocalError("Failed to parse directory ID in dynamic voter string.") from None
    return InitialVoter(node_id, host, port, directory_id)


def _int32(text: str, what: str) -> int:
    if not _NUMBER.fullmatch(text) or not -(1 << 31) <= int(text) < 1 << 31:
        raise LocalError(f"Failed to parse {what} in dynamic voter string.")
    return int(text)


@dataclass(frozen=True, kw_only=True)
class FormatPlan:
    """The content for every directory of one node. Made by ``plan_format``.

    Attributes:
        node_id: the node.
        cluster_id: the cluster.
        metadata_version: metadata.version at the start.
        levels: level of every feature, metadata.version among them.
        voters: the initial voters, by id; None: none are written.
        listener: name of the voters' listener.
        records: the bootstrap records.
    """

    node_id: int
    cluster_id: str
    metadata_version: MetadataVersion
    levels: Mapping[str, int]
    voters: tuple[InitialVoter, ...] | None
    listener: str
    records: tuple[FeatureLevelRecord | UserScramCredentialRecord, ...] = field(repr=False)

    @property
    def kraft_version(self) -> int:
        """Level of kraft.version: 1 if the voters are kept in the log."""
        return self.levels[KRAFT_VERSION.name]

    @property
    def own_voter(self) -> InitialVoter | None:
        """This node's entry among the initial voters."""
        return next((each for each in self.voters or () if each.node_id == self.node_id), None)


def plan_format(
    *,
    node_id: int,
    cluster_id: str,
    voters: Iterable[InitialVoter] | None = None,
    dynamic: bool = True,
    listener: str = "CONTROLLER",
    release: MetadataVersion | None = None,
    features: Mapping[str, int] = MappingProxyType({}),
    scram: Iterable[UserScramCredentialRecord] = (),
    unstable: bool = False,
) -> FormatPlan:
    """Decide what a node's directories are formatted with.

    Args:
        node_id: >= 0.
        cluster_id: any text.
        voters: the initial voters; None: they are static, or there are none yet.
        dynamic: voters are kept in the log (kraft.version 1); False: ``controller.quorum.voters`` (kraft.version 0).
        listener: name of the listener that the voters' addresses belong to.
        release: metadata.version; None: the latest stable one.
        features: levels that differ from the release's defaults.
        scram: credentials, see ``scram.parse_scram``.
        unstable: also allow levels that are not stable yet; the newest is then the default.

    Raises:
        LocalError: an unknown feature or level, levels that do not fit together, or a level of kraft.version that
            contradicts ``dynamic``.
    """
    if node_id < 0:
        raise LocalError(f"node id {node_id}: it must be >= 0")
    metadata_version = _release(release, features, unstable)
    levels = _levels(metadata_version, features, dynamic)
    records: list[FeatureLevelRecord | UserScramCredentialRecord] = [
        FeatureLevelRecord(name=METADATA_VERSION, feature_level=int(metadata_version))
    ]
    # kraft.version has no bootstrap record: it is in the 0-0 checkpoint.
    named = sorted(name for name in levels if name not in (METADATA_VERSION, KRAFT_VERSION.name))
    records += [FeatureLevelRecord(name=name, feature_level=levels[name]) for name in named if levels[name] > 0]
    credentials = list(scram)
    if credentials and metadata_version < MetadataVersion.V3_5_IV2:
        raise LocalError(f"SCRAM is only supported in {METADATA_VERSION} {MetadataVersion.V3_5_IV2.text} or later.")
    chosen = None if voters is None else tuple(sorted(voters, key=lambda each: each.node_id))
    return FormatPlan(
        node_id=node_id,
        cluster_id=cluster_id,
        metadata_version=metadata_version,
        levels=MappingProxyType(levels),
        voters=chosen,
        listener=listener.upper(),
        records=(*records, *credentials),
    )


def _release(release: MetadataVersion | None, features: Mapping[str, int], unstable: bool) -> MetadataVersion:
    if METADATA_VERSION in features:
        if release is not None:
            raise LocalError(f"Use --release-version instead of --feature {METADATA_VERSION}=X to avoid ambiguity.")
        level = features[METADATA_VERSION]
        if level not in list(MetadataVersion):
            raise LocalError(
                f"No MetadataVersion with feature level {level}. Valid feature levels are from "
                f"{min(MetadataVersion):d} to {max(MetadataVersion):d}."
            )
        release = MetadataVersion.from_level(level)
    if release is None:
        return max(MetadataVersion) if unstable else LATEST_PRODUCTION
    if not release.is_stable and not unstable:
        raise LocalError(f"{METADATA_VERSION} {release.text} is not yet stable.")
    return release


def _levels(release: MetadataVersion, features: Mapping[str, int], dynamic: bool) -> dict[str, int]:
    known = {each.name: each for each in FEATURES}
    for name in sorted(features):
        if name != METADATA_VERSION and name not in known:
            raise LocalError(f"Unsupported feature: {name}. Supported features are: {', '.join(sorted(known))}")
    levels = {METADATA_VERSION: int(release)}
    for name, each in known.items():
        if name == KRAFT_VERSION.name:
            levels[name] = _kraft_version(features.get(name), dynamic)
        else:
            levels[name] = features.get(name, each.default_level(release))
    for name in sorted(known):
        if levels[name] not in [each.level for each in feature(name).levels]:
            raise LocalError(f"No feature:{name} with feature level {levels[name]}")
    check_dependencies(levels)
    return levels


def _kraft_version(asked: int | None, dynamic: bool) -> int:
    if asked is None:
        return int(dynamic)
    flags = "--standalone, --initial-controllers, or --no-initial-controllers"
    if asked == 0 and dynamic:
        raise LocalError(
            f"Cannot set kraft.version to 0 if controller.quorum.voters is empty and one of the flags {flags} is used. "
            "For dynamic controllers support, try removing the --feature flag for kraft.version."
        )
    if asked != 0 and not dynamic:
        raise LocalError(
            f"Cannot set kraft.version to {asked} unless controller.quorum.voters is empty and one of the flags "
            f"{flags} is used. For dynamic controllers support, try using one of {flags} and removing "
            "controller.quorum.voters."
        )
    return asked


def format_directory(
    files: Files,
    folder: str,
    plan: FormatPlan,
    *,
    metadata: bool = True,
    topic: str = METADATA_TOPIC,
    used: Iterable[Uuid] = (),
    randbytes: Callable[[int], bytes] = os.urandom,
    clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
) -> MetaProperties:
    """Format one directory of a node; a missing directory is made.

    Args:
        files: where the directory is.
        folder: the directory.
        plan: see ``plan_format``.
        metadata: whether it will hold the metadata log; only then it gets the initial voters, and the directory id that
            this node has among them.
        topic: name of the log's topic.
        used: directory ids of the node's other directories, not to be drawn again.
        randbytes: draws the directory id.
        clock_ms: milliseconds since 1970.

    Returns:
        The content of the new ``meta.properties``.

    Raises:
        LocalError: the directory is formatted already; nothing was changed.
        CorruptDataError: it has a ``meta.properties`` that cannot be read; nothing was changed.
        StorageError: the disk failed; the directory does not count as formatted.
    """
    if read_meta_properties(files, folder) is not None:
        raise LocalError(
            f"Log directory {folder} is already formatted. Use --ignore-formatted to ignore this directory and "
            "format the others."
        )
    own = plan.own_voter if metadata else None
    directory_id = own.directory_id if own is not None else _unused_id(set(used), randbytes)
    properties = MetaProperties(plan.cluster_id, plan.node_id, directory_id)
    files.make_folder(folder)
    remove_log_mark(files, folder)
    # An operator who formats by hand states that no vote or acknowledged record was lost.
    ProbationMark(files, folder).clear()
    CommittedFile(files, os.path.join(folder, f"{topic}-0")).remove()
    values = [encode_metadata_record(record, 0) for record in plan.records]
    write_bootstrap_checkpoint(files, folder, values, clock_ms)
    if metadata and plan.voters is not None:
        store = begun_store(files, os.path.join(folder, f"{topic}-0"))
        write_initial_voters(store, voters_of(plan), clock_ms, kraft_version=plan.kraft_version)
    written_at = datetime.fromtimestamp(clock_ms() / 1000, UTC)
    write_meta_properties(files, folder, properties, written_at)
    return properties


def voters_of(plan: FormatPlan) -> list[VotersRecord.Voter]:
    """The initial voters of a plan, as a record of voters has them."""
    return [
        voter(each.node_id, each.directory_id, [(plan.listener, each.host, each.port), *each.others])
        for each in (_as_kafka_writes(each) for each in plan.voters or ())
    ]


def _as_kafka_writes(each: InitialVoter) -> InitialVoter:
    others = tuple((name, _java_host(host), port) for name, host, port in each.others)
    return replace(each, host=_java_host(each.host), others=others)


def _java_host(host: str) -> str:
    # IPv6 addresses in full, and IPv4 ones inside them bare, as java.net.InetAddress has them.
    import ipaddress  # for directories that get voters

    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    scope = "" if address.scope_id is None else f"%{address.scope_id}"
    packed = address.packed
    return ":".join(f"{int.from_bytes(packed[at : at + 2]):x}" for at in range(0, 16, 2)) + scope


def _unused_id(used: set[Uuid], randbytes: Callable[[int], bytes]) -> Uuid:
    directory_id = Uuid.random(randbytes)
    while directory_id in used:
        directory_id = Uuid.random(randbytes)
    return directory_id
