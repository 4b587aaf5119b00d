"""``kraftcore storage``: Kafka's kafka-storage. Text output, files and exit statuses are those of Kafka 4.3.1.

Differences, all deliberate: ``repair``; ``recover-quorum``; ``rewrite-endpoints``; ``--output json``; where Kafka's
tool ends in a stack trace, a line; no ``@file`` arguments.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import click

from kraftcore.cli.kafka_style import KafkaFailure, KafkaGroup, config_option, feature_level, short
from kraftcore.cli.output import output_option, print_json
from kraftcore.cli.recover_quorum import recover_quorum
from kraftcore.cli.rewrite_endpoints import rewrite_endpoints
from kraftcore.cli.storage_repair import repair
from kraftcore.config.storage_properties import ServerFile, load_server_file
from kraftcore.core.disk.os_files import OsFiles
from kraftcore.core.uuid import Uuid
from kraftcore.errors import CorruptDataError, LocalError
from kraftcore.protocol.features import FEATURES, LATEST_PRODUCTION, METADATA_VERSION, MetadataVersion, dependencies
from kraftcore.protocol.metadata import MetadataRecordType
from kraftcore.protocol.records.feature_level_record import FeatureLevelRecord
from kraftcore.protocol.records.user_scram_credential_record import UserScramCredentialRecord
from kraftcore.storage.format import FormatPlan, InitialVoter, format_directory, parse_initial_voters, plan_format
from kraftcore.storage.meta_properties import META_PROPERTIES, MetaProperties, load_folders, read_meta_properties

_MINIMUM = min(MetadataVersion).text


@click.group(
    cls=KafkaGroup,
    epilog="""\b
Examples:
  A first controller, alone; others are added later with "kraftcore quorum add-controller":
    kraftcore storage format --config server.properties --cluster-id $(kraftcore storage random-uuid) --standalone
  What is in a server's directories:
    kraftcore storage info --config server.properties
""",
)
def storage() -> None:
    """Format a server's directories and look at them, for kraftcore and for Kafka alike.

    A directory must be formatted before a node first starts: that writes who it belongs to (meta.properties), the
    feature levels a new cluster starts with (bootstrap.checkpoint) and, for a controller, the first voters (the 0-0
    checkpoint).
    """


storage.add_command(repair)
storage.add_command(recover_quorum)
storage.add_command(rewrite_endpoints)


@storage.command("random-uuid", epilog="\b\nExamples:\n  kraftcore storage random-uuid\n")
@output_option
def random_uuid(output: str) -> None:
    """Print a random id, for a cluster or a directory."""
    if output == "json":
        print_json(uuid=str(Uuid.random()))
    else:
        click.echo(str(Uuid.random()))


@storage.command(
    "version-mapping",
    short_help="Print the feature levels of a release.",
    epilog="""\b
Examples:
  kraftcore storage version-mapping
  kraftcore storage version-mapping --release-version 3.9
""",
)
@click.option(
    "--release-version",
    "-r",
    help=f"The release, as 4.0, or its metadata.version, as 4.0-IV1; at least {_MINIMUM}.  "
    f"[default: {LATEST_PRODUCTION.text}]",
)
@output_option
def version_mapping(release_version: str | None, output: str) -> None:
    """Print the feature levels that a cluster of a release starts with."""
    text = LATEST_PRODUCTION.text if release_version is None else release_version
    version = MetadataVersion.from_text(text, unstable=True)
    levels = {METADATA_VERSION: int(version), **{each.name: each.default_level(version) for each in FEATURES}}
    if output == "json":
        print_json(releaseVersion=text, metadataVersion=version.text, levels=levels)
        return
    for name, level in levels.items():
        click.echo(f"{name}={level}" + (f" ({text})" if name == METADATA_VERSION else ""))


@storage.command(
    "feature-dependencies",
    short_help="Print which other features a level needs.",
    epilog="""\b
Examples:
  kraftcore storage feature-dependencies --feature eligible.leader.replicas.version=1
  kraftcore storage feature-dependencies --feature metadata.version=30 --feature kraft.version=1
""",
)
@click.option(
    "--feature",
    "-f",
    "features",
    multiple=True,
    required=True,
    help="Feature and level, as kraft.version=1; may be repeated.",
)
@output_option
def feature_dependencies(features: tuple[str, ...], output: str) -> None:
    """Print which other features, at which levels, a feature level needs."""
    found = []
    for text in features:
        name, level = _feature_level(text)
        needed = _dependencies(name, level)
        found.append({"feature": name, "level": level, "dependencies": dict(needed)})
        if output != "json":
            label = f"{name}={level}" + _release_of(name, level)
            click.echo(f"{label} requires:" if needed else f"{label} has no dependencies.")
            for other, least in needed.items():
                click.echo(f"    {other}={least}{_release_of(other, least)}")
    if output == "json":
        print_json(features=found)


def _feature_level(text: str) -> tuple[str, int]:
    name, equals, number = text.partition("=")
    name, number = name.strip(), number.strip()
    if not equals:
        raise KafkaFailure(
            f"Invalid feature format: {text}. Expected format: 'feature=version' (e.g. 'group.version=1')"
        )
    level = short(number)
    if level is None:
        raise KafkaFailure(f"Invalid version format: {number} for feature {name}")
    return name, level


def _dependencies(name: str, level: int) -> dict[str, int]:
    try:
        return dict(dependencies(name, level))
    except LocalError:
        if name == METADATA_VERSION:
            raise KafkaFailure(f"Unknown metadata.version {level}") from None
        raise


def _release_of(name: str, level: int) -> str:
    return f" ({MetadataVersion.from_level(level).text})" if name == METADATA_VERSION else ""


@storage.command(
    short_help="Print directories, and what is wrong with them.",
    epilog="""\b
Examples:
  kraftcore storage info --config server.properties
  kraftcore storage info --config server.properties --output json
""",
)
@config_option
@output_option
@click.pass_context
def info(ctx: click.Context, path: str, output: str) -> None:
    """Print a server's directories, what they are formatted for, and what is wrong with them.

    The exit status is 1 if something is.
    """
    directories = load_server_file(path).directories
    found, metadata, problems = _inspect(directories)
    if output == "json":
        print_json(
            directories=found, metadata=None if metadata is None else _properties_map(metadata), problems=problems
        )
        ctx.exit(1 if problems else 0)
    if found:
        click.echo("Found log directory:" if len(found) == 1 else "Found log directories:")
        click.echo("".join(f"  {each}\n" for each in found))
    if metadata is not None:
        entries = ", ".join(f"{key}={value}" for key, value in _properties_map(metadata).items())
        click.echo(f"Found metadata: {{{entries}}}\n")
    if problems:
        click.echo("Found problem:" if len(problems) == 1 else "Found problems:")
        click.echo("".join(f"  {each}\n" for each in problems))
    ctx.exit(1 if problems else 0)


def _inspect(directories: Iterable[str]) -> tuple[list[str], MetaProperties | None, list[str]]:
    files = OsFiles()
    found: list[str] = []
    problems: list[str] = []
    first: MetaProperties | None = None
    for name in directories:
        directory = os.path.normpath(name)
        if not os.path.isdir(directory):
            problems.append(f"{directory} {'is not a directory' if os.path.exists(directory) else 'does not exist'}")
            continue
        found.append(directory)
        try:
            properties = read_meta_properties(files, directory)
        except CorruptDataError as error:
            problems.append(f"Error loading {os.path.join(directory, META_PROPERTIES)}: {error.reason}")
            continue
        if properties is None:
            problems.append(f"{directory} is not formatted.")
        elif first is None:
            first = properties
        elif first.cluster_id != properties.cluster_id:
            problems.append("Mismatched cluster IDs between storage directories.")
        elif first.node_id != properties.node_id:
            problems.append("Mismatched node IDs between storage directories.")
    if first is not None and first.version == 0:
        problems.append(
            "The kafka configuration file appears to be for a cluster in KRaft mode, but the directories are formatted "
            "for legacy mode."
        )
    return found, first, problems


def _properties_map(properties: MetaProperties) -> dict[str, str]:
    values = {
        "node.id" if properties.version else "broker.id": properties.node_id,
        "cluster.id": properties.cluster_id,
        "directory.id": properties.directory_id,
        "version": properties.version,
    }
    return {key: str(values[key]) for key in sorted(values) if values[key] is not None}


@storage.command(
    "format",
    epilog="""\b
Examples:
  One controller alone, to which others are added later:
    kraftcore storage format -c c1.properties -t MkU3OEVBNTcwNTJENDM2Qk --standalone
  Three controllers at once: the same list on each, with ids drawn by "storage random-uuid":
    kraftcore storage format -c c1.properties -t MkU3OEVBNTcwNTJENDM2Qk --initial-controllers \\
      1@h1:9093:JEXY6aqzQY-32P5TStzaFg,2@h2:9093:MvDxzVmcRsaTz33bUuRU6A,3@h3:9093:07R5amHmR32VDA6jHkGbTA
  A controller that will be added to a running quorum:
    kraftcore storage format -c c4.properties -t MkU3OEVBNTcwNTJENDM2Qk --no-initial-controllers
  A broker, or controllers listed in controller.quorum.voters:
    kraftcore storage format -c broker.properties -t MkU3OEVBNTcwNTJENDM2Qk

\b
Which of the three a controller needs follows from its file: with controller.quorum.voters the voters are static and
none is given (kraft.version 0); without, one must be (kraft.version 1, voters can be changed later).
""",
)
@config_option
@click.option(
    "--cluster-id",
    "-t",
    required=True,
    help="Id of the cluster, as 'kraftcore storage random-uuid' prints one; the same on every server.",
)
@click.option("--standalone", "-s", is_flag=True, help="Make this controller the only voter of a new quorum.")
@click.option(
    "--no-initial-controllers",
    "-N",
    is_flag=True,
    help="Write no voters: the controller will be added to a quorum that exists.",
)
@click.option(
    "--initial-controllers",
    "-I",
    metavar="LIST",
    help="The voters of a new quorum, as id@host:port:directoryId,id@...; the same list on each of them.",
)
@click.option(
    "--release-version",
    "-r",
    help=f"Release, as 4.0, whose feature levels a new cluster starts with; at least {_MINIMUM}.  "
    f"[default: {LATEST_PRODUCTION.text}]",
)
@click.option(
    "--feature",
    "-f",
    "features",
    multiple=True,
    help="Level of one feature, as group.version=1, in place of the release's; may be repeated.",
)
@click.option(
    "--add-scram",
    "-S",
    "scram",
    multiple=True,
    metavar="CREDENTIAL",
    help="A first user, as SCRAM-SHA-256=[name=alice,password=secret], also with iterations=8192, or with salt "
    "and saltedpassword (base64) in place of password; may be repeated.",
)
@click.option(
    "--ignore-formatted",
    "-g",
    is_flag=True,
    help="Leave directories as they are that are formatted already. Without it they are an error.",
)
@output_option
def format_command(
    path: str,
    cluster_id: str,
    standalone: bool,
    no_initial_controllers: bool,
    initial_controllers: str | None,
    release_version: str | None,
    features: tuple[str, ...],
    scram: tuple[str, ...],
    ignore_formatted: bool,
    output: str,
) -> None:
    """Format the directories that a server's file names.

    A formatted directory is never touched. Killed half way, it can simply be run again.
    """
    check_exclusive(standalone, no_initial_controllers, initial_controllers)
    server = load_server_file(path)
    release = None
    if release_version is not None:
        release = MetadataVersion.from_text(release_version, unstable=server.unstable_features)
    levels = dict(map(feature_level, features))
    voters = choose_voters(server, standalone, initial_controllers)
    if not no_initial_controllers and "controller" in server.roles and not server.static_voters and voters is None:
        raise KafkaFailure(
            "Because controller.quorum.voters is not set on this controller, you must specify one of the following: "
            "--standalone, --initial-controllers, or --no-initial-controllers."
        )
    plan = plan_format(
        node_id=server.node_id,
        cluster_id=cluster_id,
        voters=voters,
        dynamic=not server.static_voters,
        listener=server.listener,
        release=release,
        features=levels,
        scram=_scram(scram),
        unstable=server.unstable_features,
    )
    _format(server, plan, ignore_formatted, as_json=output == "json")


def _scram(texts: Sequence[str]) -> list[UserScramCredentialRecord]:
    if not texts:
        return []
    from kraftcore.storage.scram import parse_scram

    return [parse_scram(text) for text in texts]


def check_exclusive(standalone: bool, none: bool, voters: str | None) -> None:
    """Refuse more than one of the options that say who votes first."""
    given = [("--standalone/-s", standalone), ("--no-initial-controllers/-N", none)]
    given.append(("--initial-controllers/-I", voters is not None))
    names = [name for name, there in given if there]
    if len(names) > 1:
        raise click.UsageError(f"argument {names[0]}: not allowed with argument {names[1]}")


def choose_voters(server: ServerFile, standalone: bool, initial: str | None) -> tuple[InitialVoter, ...] | None:
    """The first voters, by the options that say who votes first; None: none are written.

    Raises:
        KafkaFailure: the voters are static, or the server does not vote.
    """
    if server.static_voters and (standalone or initial is not None):
        raise KafkaFailure(
            "You cannot specify controller.quorum.voters and format the node with --initial-controllers or "
            "--standalone. If you want to use dynamic quorum, please remove controller.quorum.voters and specify "
            "controller.quorum.bootstrap.servers instead."
        )
    if initial is not None:
        return parse_initial_voters(initial)
    if not standalone:
        return None
    if server.endpoint is None:
        raise KafkaFailure("You can only use --standalone on a controller.")
    return (InitialVoter(server.node_id, server.endpoint.host, server.endpoint.port, Uuid.random()),)


def _format(server: ServerFile, plan: FormatPlan, ignore_formatted: bool, *, as_json: bool) -> None:
    files = OsFiles()
    folders = load_folders(files, server.directories)
    if folders.properties:
        folders.verify(cluster_id=plan.cluster_id, node_id=plan.node_id)
        if not ignore_formatted:
            raise KafkaFailure(
                f"Log directory {next(iter(folders.properties))} is already formatted. Use --ignore-formatted to "
                "ignore this directory and format the others."
            )
    for folder in folders.failed:
        click.echo(f"I/O error trying to read log directory {folder}. Ignoring...", err=as_json)
    if folders.failed and not folders.unformatted and not folders.properties:
        raise KafkaFailure("No available log directories to format.")
    done: list[dict[str, object]] = []
    if folders.unformatted and not as_json:
        click.echo(f"Bootstrap metadata: {_bootstrap_text(plan)}")
    elif not as_json:
        click.echo("All of the log directories are already formatted.")
    used = {each.directory_id for each in folders.properties.values() if each.directory_id is not None}
    for folder in _in_java_order(folders.unformatted):
        metadata = folder == server.metadata_directory
        kind = _kind(plan, metadata)
        if not as_json:
            click.echo(f"Formatting {kind} {folder} with metadata.version {plan.metadata_version.text}.")
        written = format_directory(files, folder, plan, metadata=metadata, used=used)
        if written.directory_id is not None:
            used.add(written.directory_id)
        done.append({"directory": folder, "kind": kind, "directoryId": str(written.directory_id)})
    if as_json:
        print_json(
            clusterId=plan.cluster_id,
            nodeId=plan.node_id,
            metadataVersion=plan.metadata_version.text,
            levels=dict(plan.levels),
            initialControllers=None if plan.voters is None else [str(each) for each in plan.voters],
            bootstrapRecords=[_record_object(record) for record in plan.records],
            formatted=done,
            alreadyFormatted=list(folders.properties),
            failed={folder: str(error) for folder, error in folders.failed.items()},
        )


def _kind(plan: FormatPlan, metadata: bool) -> str:
    if not metadata:
        return "data directory"
    if plan.voters is None:
        return "metadata directory"
    return "dynamic metadata directory" if plan.own_voter is None else "dynamic metadata voter directory"


def _in_java_order(names: Iterable[str]) -> list[str]:
    # The order of a java.util.HashMap, in which Kafka goes through the directories.
    chosen = list(names)
    size = 16
    while len(chosen) > size * 3 // 4:
        size *= 2
    return sorted(chosen, key=lambda name: (_java_hash(name) ^ _java_hash(name) >> 16) & (size - 1))


def _java_hash(text: str) -> int:
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2])) & 0xFFFFFFFF
    return value


def _bootstrap_text(plan: FormatPlan) -> str:
    records = ", ".join(f"ApiMessageAndVersion({_record_text(record)} at version 0)" for record in plan.records)
    return (
        f"BootstrapMetadata(records=[{records}], metadataVersionLevel={plan.metadata_version:d}, source=format command)"
    )


def _record_text(record: FeatureLevelRecord | UserScramCredentialRecord) -> str:
    if isinstance(record, FeatureLevelRecord):
        return f"FeatureLevelRecord(name='{record.name}', featureLevel={record.feature_level})"
    return (
        f"UserScramCredentialRecord(name='{record.name}', mechanism={record.mechanism}, "
        f"salt={_signed(record.salt)}, storedKey={_signed(record.stored_key)}, "
        f"serverKey={_signed(record.server_key)}, iterations={record.iterations})"
    )


def _record_object(record: FeatureLevelRecord | UserScramCredentialRecord) -> dict[str, object]:
    from kraftcore.protocol.json_form import to_json_dict

    kind = MetadataRecordType.FEATURE_LEVEL_RECORD
    if isinstance(record, UserScramCredentialRecord):
        kind = MetadataRecordType.USER_SCRAM_CREDENTIAL_RECORD
    return {"type": kind.name, "data": to_json_dict(record, 0)}


def _signed(data: bytes) -> str:
    return str([byte - 256 if byte > 127 else byte for byte in data])
