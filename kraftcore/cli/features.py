"""``kraftcore features``: Kafka's kafka-features. Text output is that of Kafka 4.3.1's FeatureCommand.

Differences, all deliberate: the bootstrap options may also follow the sub-command; an unknown --node-id is refused at
once (Kafka waits for it to appear); ``--release-version`` leaves out features that a quorum without a metadata
controller does not have (Kafka's tool is refused); ``--output json``. The commands that need no cluster,
version-mapping and feature-dependencies, are in ``kraftcore storage``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce

import click
from click.shell_completion import CompletionItem

from kraftcore.admin import AdminClient, FeatureStatus, FeatureUpdateError, UpgradeType
from kraftcore.admin.client import check_levels
from kraftcore.cli.admin_tool import Connection, bootstrap_options, connected
from kraftcore.cli.kafka_style import KafkaFailure, KafkaGroup, feature_level, last_failure
from kraftcore.cli.output import output_option, print_json, printable
from kraftcore.errors import KraftError, LocalError, RefusedError, UnreachableError
from kraftcore.protocol.features import FEATURES, METADATA_VERSION, MetadataVersion


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    names = [METADATA_VERSION, *(each.name for each in FEATURES)]
    ending = "" if ctx.info_name == "disable" else "="
    return [CompletionItem(name + ending) for name in names if name.startswith(incomplete)]


@click.group(
    cls=KafkaGroup,
    epilog="""\b
Examples:
  What the cluster runs at, and what its nodes could do:
    kraftcore features --bootstrap-controller 127.0.0.1:9093 describe
  After the software of all nodes was upgraded; look first, then do it:
    kraftcore features --bootstrap-controller 127.0.0.1:9093 upgrade --release-version 4.3 --dry-run
    kraftcore features --bootstrap-controller 127.0.0.1:9093 upgrade --release-version 4.3
  From static to dynamic voters (there is no way back):
    kraftcore features --bootstrap-controller 127.0.0.1:9093 upgrade --feature kraft.version=1
  Switch a feature off:
    kraftcore features --bootstrap-server 127.0.0.1:9092 disable --feature share.version

\b
Updates of one command are carried out together or not at all. Of a release, a quorum without a metadata controller
(kraftcore's own) takes what it has, kraft.version; the rest is left out, and said to be. JSON: one object a line, one
line a feature.
""",
)
@bootstrap_options()
def features(**_: object) -> None:
    """Describe and change the feature levels of a cluster, as kafka-features does."""


@features.command(
    short_help="List the levels that a node supports, and those in force.",
    epilog="""\b
Examples:
  kraftcore features --bootstrap-controller 127.0.0.1:9093 describe
  kraftcore features --bootstrap-controller 127.0.0.1:9093 describe --node-id 2 --output json
""",
)
@click.option(
    "--node-id",
    type=int,
    help="Ask the node of this id, and no other, for nodes may support different levels. Without it: any node.",
)
@output_option
@connected()
def describe(connection: Connection, node_id: int | None, output: str) -> None:
    """List features: the levels that a node supports, and the finalized level, which is in force.

    Epoch is an offset of the metadata log; '-' if the node does not say. Level 0 is off.
    """
    found = connection.run(lambda client: client.describe_features(node_id=node_id))
    for name, feature in sorted(found.features.items()):
        if output == "json":
            print_json(
                feature=name,
                supportedMinVersion=feature.min_supported,
                supportedMaxVersion=feature.max_supported,
                finalizedVersionLevel=feature.finalized,
                epoch=found.epoch,
            )
        else:
            click.echo(printable(_line(feature, "-" if found.epoch is None else str(found.epoch))))


def _line(feature: FeatureStatus, epoch: str) -> str:
    low, high, level = (
        _level_text(feature.name, number)
        for number in (feature.min_supported, feature.max_supported, feature.finalized)
    )
    return (
        f"Feature: {feature.name:<40}  SupportedMinVersion: {low:<15}  SupportedMaxVersion: {high:<15}  "
        f"FinalizedVersionLevel: {level:<15}  Epoch: {epoch}"
    )


def _level_text(name: str, level: int) -> str:
    if name != METADATA_VERSION:
        return str(level)
    try:
        return MetadataVersion.from_level(level).text
    except LocalError:
        return f"UNKNOWN {level}"


def _level_options(release: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The options of ``upgrade`` and ``downgrade`` for levels; ``release``: an example for the help."""
    options = (
        click.option(
            "--release-version",
            metavar="RELEASE",
            help=f"Set every feature to its level of this release, as {release}.",
        ),
        click.option(
            "--feature",
            "wanted",
            multiple=True,
            metavar="NAME=LEVEL",
            shell_complete=_complete,
            help="Set one feature to this level, a whole number, as kraft.version=1; may be repeated.",
        ),
        click.option(
            "--metadata",
            metavar="RELEASE",
            help="Deprecated: set metadata.version, and nothing else, "
            "to the level of this release. Use "
            "--release-version.",
        ),
    )

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        return reduce(lambda decorated, option: option(decorated), reversed(options), command)

    return decorate


@features.command(
    epilog="""\b
Examples:
  kraftcore features --bootstrap-controller 127.0.0.1:9093 upgrade --release-version 4.3 --dry-run
  kraftcore features --bootstrap-controller 127.0.0.1:9093 upgrade --feature kraft.version=1
""",
)
@_level_options("4.3")
@click.option("--dry-run", is_flag=True, help="Have the controller check whether it would do it, and change nothing.")
@output_option
@connected()
def upgrade(
    connection: Connection,
    release_version: str | None,
    wanted: tuple[str, ...],
    metadata: str | None,
    dry_run: bool,
    output: str,
) -> None:
    """Raise feature levels. Every registered node must support them."""
    kind = UpgradeType.UPGRADE
    levels = _levels(release_version, wanted, metadata, kind, as_json=output == "json")
    of_release = release_version is not None
    _update(connection, "upgrade", levels, kind, dry_run, of_release=of_release, as_json=output == "json")


@features.command(
    epilog="""\b
Examples:
  kraftcore features --bootstrap-controller 127.0.0.1:9093 downgrade --release-version 4.1 --dry-run
  kraftcore features --bootstrap-controller 127.0.0.1:9093 downgrade --feature transaction.version=1
""",
)
@_level_options("4.1")
@click.option("--unsafe", is_flag=True, help="Do it also where metadata that the lower level cannot hold is lost.")
@click.option("--dry-run", is_flag=True, help="Have the controller check whether it would do it, and change nothing.")
@output_option
@connected()
def downgrade(
    connection: Connection,
    release_version: str | None,
    wanted: tuple[str, ...],
    metadata: str | None,
    unsafe: bool,
    dry_run: bool,
    output: str,
) -> None:
    """Lower feature levels.

    Refused where the formats of stored records would change; kraft.version cannot be lowered.
    """
    kind = UpgradeType.UNSAFE_DOWNGRADE if unsafe else UpgradeType.SAFE_DOWNGRADE
    levels = _levels(release_version, wanted, metadata, kind, as_json=output == "json")
    of_release = release_version is not None
    _update(connection, "downgrade", levels, kind, dry_run, of_release=of_release, as_json=output == "json")


@features.command(
    epilog="""\b
Examples:
  kraftcore features --bootstrap-controller 127.0.0.1:9093 disable --feature share.version
""",
)
@click.option(
    "--feature",
    "wanted",
    multiple=True,
    metavar="NAME",
    shell_complete=_complete,
    help="The feature to switch off, that is to set to level 0; may be repeated.",
)
@click.option("--unsafe", is_flag=True, help="Do it also where metadata that the lower level cannot hold is lost.")
@click.option("--dry-run", is_flag=True, help="Have the controller check whether it would do it, and change nothing.")
@output_option
@connected()
def disable(connection: Connection, wanted: tuple[str, ...], unsafe: bool, dry_run: bool, output: str) -> None:
    """Switch features off: the same as a downgrade to level 0."""
    kind = UpgradeType.UNSAFE_DOWNGRADE if unsafe else UpgradeType.SAFE_DOWNGRADE
    levels: dict[str, int] = {}
    for name in wanted:
        _add(levels, name, 0, kind)
    _update(connection, "disable", levels, kind, dry_run, as_json=output == "json")


def _levels(
    release: str | None, wanted: tuple[str, ...], metadata: str | None, kind: UpgradeType, *, as_json: bool
) -> dict[str, int]:
    if release is not None:
        if metadata is not None or wanted:
            raise LocalError("Can not specify `release-version` with other feature flags.")
        version = MetadataVersion.from_text(release, unstable=True)
        defaults = {each.name: each.default_level(version) for each in FEATURES}
        # An upgrade to level 0 is no upgrade.
        kept = {name: level for name, level in defaults.items() if level > 0 or kind != UpgradeType.UPGRADE}
        return {METADATA_VERSION: int(version), **kept}
    levels: dict[str, int] = {}
    if metadata is not None:
        if not as_json:
            click.echo(" `metadata` flag is deprecated and may be removed in a future release.")
        levels[METADATA_VERSION] = int(MetadataVersion.from_text(metadata, unstable=True))
    for text in wanted:
        _add(levels, *feature_level(text), kind)
    return levels


def _add(levels: dict[str, int], name: str, level: int, kind: UpgradeType) -> None:
    check_levels({name: level}, kind)
    if name in levels:
        raise LocalError(f"Feature {name} was specified more than once.")
    levels[name] = level


def _update(
    connection: Connection,
    verb: str,
    levels: Mapping[str, int],
    kind: UpgradeType,
    dry_run: bool,
    *,
    of_release: bool = False,
    as_json: bool,
) -> None:
    if not levels:
        raise LocalError(f"You must specify at least one feature to {verb}")

    async def ask(client: AdminClient) -> Mapping[str, KraftError | None]:
        chosen = await _those_there_are(client, levels) if of_release else levels
        try:
            if chosen:
                await client.update_features(chosen, upgrade_type=kind, validate_only=dry_run)
        except FeatureUpdateError as error:
            return error.results
        return dict.fromkeys(chosen)

    results: Mapping[str, KraftError | None]
    try:
        results = connection.run(ask)
    except LocalError:
        raise
    except KraftError as error:
        results = dict.fromkeys(levels, error)
    for name in sorted(levels):
        if as_json:
            print_json(**_result(name, levels[name], dry_run, results))
        elif name not in results:
            click.echo(
                printable(f"{name} was left out: it is no feature of this quorum, which has no metadata controller.")
            )
        else:
            click.echo(printable(_result_line(verb, name, levels[name], dry_run, results[name])))
    failed = [result for result in results.values() if result is not None]
    if failed:
        why = f"\n{last_failure(failed[0])}" if isinstance(failed[0], UnreachableError) and not as_json else ""
        raise KafkaFailure(f"{len(failed)} out of {len(levels)} operation(s) failed.{why}")


async def _those_there_are(client: AdminClient, levels: Mapping[str, int]) -> Mapping[str, int]:
    """A release's features that the quorum has: all, unless it has no metadata controller (KIP-853)."""
    try:
        there_are = (await client.describe_features()).features
    except KraftError:
        return levels  # the update will raise the error
    return levels if METADATA_VERSION in there_are else {name: levels[name] for name in levels if name in there_are}


def _result(name: str, level: int, dry_run: bool, results: Mapping[str, KraftError | None]) -> dict[str, object]:
    error, fault = results.get(name), None
    if error is not None:
        kind = UnreachableError if isinstance(error, UnreachableError) else type(error)
        name_of_error = error.error if isinstance(error, RefusedError) else kind.__name__
        fault = {"error": name_of_error, "message": _message(error)}
        if isinstance(error, UnreachableError):
            fault["message"] += f". {last_failure(error)}"
    left_out = {} if name in results else {"leftOut": True}
    return {"feature": name, "level": level, "dryRun": dry_run, "ok": error is None, "error": fault, **left_out}


def _message(error: KraftError) -> str:
    return error.message if isinstance(error, RefusedError) else str(error)


def _result_line(verb: str, name: str, level: int, dry_run: bool, error: KraftError | None) -> str:
    off = verb == "disable"
    if error is not None:
        what = f"disable {name}" if off else f"{verb} {name} to {level}"
        return f"{'Can' if dry_run else 'Could'} not {what}. {_message(error)}"
    return f"{name} {'can be' if dry_run else 'was'} " + ("disabled." if off else f"{verb}d to {level}.")
