"""``kraftcore configs``: Kafka's kafka-configs. Text output is that of Kafka 4.3.1's ConfigCommand.

Differences, all deliberate: resources, quotas and users are printed in order (Kafka's is that of hash tables); wrong
usage is one line and a hint; in place of a stack trace there is the line with the error; ``--describe --output json``.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
from click.shell_completion import CompletionItem

from kraftcore.admin import (
    AdminClient,
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigResource,
    PartlyRefusedError,
    QuotaFilter,
    QuotaMatch,
    ScramMechanism,
    ScramUpsertion,
)
from kraftcore.cli.admin_tool import Connection, make_connection, server_options
from kraftcore.cli.kafka_style import (
    KafkaFailure,
    KafkaTool,
    arguments_of,
    check_not_with,
    exception_name,
    given,
    options_in_order,
    words,
)
from kraftcore.cli.output import output_option, print_json, printable
from kraftcore.config.given_file import read_given_file
from kraftcore.configdef.keys import definitions
from kraftcore.configdef.topics import ConfigSource
from kraftcore.configdef.types import ConfigType, ConfigValueError, parse, read_integer, show_double
from kraftcore.errors import KraftError, LocalError, RefusedError, UnsupportedVersionError
from kraftcore.metadata.configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from kraftcore.metadata.quotas import QuotaEntity, quota_entity
from kraftcore.plugins.controller.topic_names import what_is_wrong
from kraftcore.storage.properties import parse_properties
from kraftcore.storage.scram import ITERATIONS_MIN

USERS, CLIENTS, IPS = "users", "clients", "ips"
# By --entity-type: the type of resource, and the source of values that --describe shows without --all.
RESOURCES = {
    "topics": (TOPIC, ConfigSource.TOPIC),
    "brokers": (BROKER, ConfigSource.DYNAMIC_BROKER),
    "broker-loggers": (BROKER_LOGGER, None),
    "client-metrics": (CLIENT_METRICS, ConfigSource.CLIENT_METRICS),
    "groups": (GROUP, ConfigSource.GROUP),
}
QUOTA_TYPES = {USERS: "user", CLIENTS: "client-id", IPS: "ip"}
QUOTA_LABELS = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
# In the order of Kafka's tool.
TYPES = ("topics", CLIENTS, USERS, "brokers", IPS, "client-metrics", "groups", "broker-loggers")
# Flags that give type and name at once, in Kafka's order.
FLAGS = {
    "topic": "topics",
    "client": CLIENTS,
    "user": USERS,
    "broker": "brokers",
    "broker-logger": "broker-loggers",
    "ip": IPS,
    "client-metrics": "client-metrics",
    "group": "groups",
}
DEFAULT_FLAGS = {"client-defaults": CLIENTS, "user-defaults": USERS, "broker-defaults": "brokers", "ip-defaults": IPS}
WITH_DEFAULTS = (USERS, CLIENTS, "brokers", IPS)
CLIENT_QUOTAS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
IP_QUOTAS = ("connection_creation_rate",)
MECHANISMS = {mechanism.label: mechanism for mechanism in ScramMechanism}
# Names of the sources in DescribeConfigs answers. Source: Kafka 4.3.1, ConfigEntry.ConfigSource.
SOURCES = {
    ConfigSource.TOPIC: "DYNAMIC_TOPIC_CONFIG",
    ConfigSource.DYNAMIC_BROKER: "DYNAMIC_BROKER_CONFIG",
    ConfigSource.DYNAMIC_DEFAULT_BROKER: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    ConfigSource.STATIC_BROKER: "STATIC_BROKER_CONFIG",
    ConfigSource.DEFAULT: "DEFAULT_CONFIG",
    ConfigSource.DYNAMIC_BROKER_LOGGER: "DYNAMIC_BROKER_LOGGER_CONFIG",
    ConfigSource.CLIENT_METRICS: "DYNAMIC_CLIENT_METRICS_CONFIG",
    ConfigSource.GROUP: "DYNAMIC_GROUP_CONFIG",
    ConfigSource.UNKNOWN: "UNKNOWN",
}
_OUTSIDE_BRACKETS = r"(?=[^\]]*(?:\[|$))"
_CREDENTIAL = re.compile(r"(?:iterations=(-?[0-9]*),)?password=(.*)")
_KEY = re.compile(r"[$a-zA-Z0-9._-]*")


def _failed(error: KraftError) -> click.ClickException:
    if isinstance(error, LocalError):
        return KafkaFailure(str(error))
    arguments = " ".join(arguments_of(click.get_current_context()))
    return KafkaFailure(f"Error while executing config command with args '{arguments}'\n{words(error)}")


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    kinds = {"topics": "topic", "brokers": "broker", "groups": "group"}
    chosen = [*(ctx.params.get("entity_type") or ()), *(FLAGS[name] for name in FLAGS if ctx.params.get(_name(name)))]
    names = [name for each in chosen for name in _known_keys(kinds.get(each), each)]
    ending = "" if param.name == "delete_config" else "="
    return [CompletionItem(name + ending) for name in names if name.startswith(incomplete)]


def _known_keys(scope: str | None, entity_type: str) -> Sequence[str]:
    if scope is not None:
        keys = definitions(scope)
        return sorted(name for name in keys if not keys[name].is_internal)
    return IP_QUOTAS if entity_type == IPS else (*CLIENT_QUOTAS, *MECHANISMS)


@click.command(
    cls=KafkaTool,
    failed=_failed,
    epilog="""\b
Examples:
  What is set on a topic, and everything in force for it, with where it comes from:
    kraftcore configs --bootstrap-server 127.0.0.1:9092 --describe --topic orders
    kraftcore configs --bootstrap-server 127.0.0.1:9092 --describe --topic orders --all
  Change it; square brackets hold a value with commas:
    kraftcore configs --bootstrap-server 127.0.0.1:9092 --alter --topic orders \\
      --add-config 'retention.ms=3600000,cleanup.policy=[compact,delete]' --delete-config segment.bytes
  All brokers, and one controller, which is asked itself:
    kraftcore configs --bootstrap-server 127.0.0.1:9092 --alter --broker-defaults --add-config log.cleaner.threads=2
    kraftcore configs --bootstrap-controller 127.0.0.1:9093 --describe --broker 1 --all
  A quota for a user's client, and a password:
    kraftcore configs --bootstrap-server 127.0.0.1:9092 --alter --user alice --client app \\
      --add-config producer_byte_rate=1048576
    kraftcore configs --bootstrap-server 127.0.0.1:9092 --alter --user alice \\
      --add-config 'SCRAM-SHA-512=[iterations=8192,password=secret]'

\b
Without --all only what was set while the cluster runs is shown. Synonyms are all values a key could have, the one in
force first. Quotas are bytes per second, percent of a thread, and changes per second.

\b
With --output json --describe prints an object with:
  of topics, brokers, broker-loggers, client-metrics, groups:
    configs      [{type, name, entries: [{name, value, source, sensitive, readOnly, synonyms: [{name, value,
                 source}]}]}]
  of users, clients, ips:
    quotas       [{entity: {user, client-id, ip}, values: {key: number}}]
    credentials  [{user, mechanisms: {name: iterations}}], and failed: [{user, error, message}]; of users alone
A name, user, client-id or ip that is null is the default of all.
""",
)
@output_option
@click.option("--client-metrics", metavar="NAME", help="The entity: the subscription to clients' metrics of this name.")
@click.option("--group", metavar="ID", help="The entity: the group of this id.")
@click.option("--ip-defaults", is_flag=True, help="The entity: the default of all IP addresses.")
@click.option("--ip", metavar="ADDRESS", help="The entity: this IP address, or host name.")
@click.option("--broker-logger", metavar="ID", help="The entity: the log levels of the broker of this node id.")
@click.option("--broker-defaults", is_flag=True, help="The entity: the default of all brokers.")
@click.option(
    "--broker", metavar="ID", help="The entity: the broker, or with --bootstrap-controller controller, of this id."
)
@click.option("--user-defaults", is_flag=True, help="The entity: the default of all users.")
@click.option("--user", metavar="NAME", help="The entity: the user of this name.")
@click.option(
    "--client-defaults", is_flag=True, help="The entity: the default of all clients; with --user of that user's."
)
@click.option(
    "--client",
    metavar="ID",
    help="The entity: the client of this client.id; with --user only where it runs for that user.",
)
@click.option("--topic", metavar="NAME", help="The entity: the topic of this name.")
@click.option(
    "--delete-config",
    multiple=True,
    metavar="KEYS",
    shell_complete=_complete,
    help="With --alter: the keys whose value is removed, as k1,k2, so that their default holds again; may be repeated.",
)
@click.option(
    "--add-config-file",
    metavar="FILE",
    help="With --alter: a properties file with the keys and values to set, in place of --add-config.",
)
@click.option(
    "--add-config",
    metavar="LIST",
    shell_complete=_complete,
    help="With --alter: the keys and values to set, as k1=v1,k2=[v1,v2],k3=v3; square brackets hold a value "
    "with commas.",
)
@click.option(
    "--entity-default", is_flag=True, help="In place of --entity-name: the default of all entities of --entity-type."
)
@click.option(
    "--entity-name",
    multiple=True,
    metavar="NAME",
    help="Name or id of the entity; may be repeated beside a second --entity-type, for a user's client.",
)
@click.option(
    "--entity-type",
    multiple=True,
    metavar="TYPE",
    shell_complete=lambda _ctx, _param, text: [CompletionItem(each) for each in TYPES if each.startswith(text)],
    help="Type of the entity, in place of --topic, --broker and so on: topics, brokers, broker-loggers, users, "
    "clients, ips, client-metrics or groups; twice for users with clients.",
)
@click.option(
    "--all",
    "show_all",
    is_flag=True,
    help="With --describe: every key that is in force, also those that have their default.",
)
@click.option("--describe", is_flag=True, help="Print the configuration of an entity, or of all of a type.")
@click.option("--alter", is_flag=True, help="Change the configuration of one entity.")
@server_options(controllers=True)
@click.pass_context
def configs(
    ctx: click.Context,
    /,
    bootstrap_server: str | None,
    bootstrap_controller: str | None,
    command_config: str | None,
    output: str,
    **options: Any,
) -> None:
    """Describe and change configurations, quotas and SCRAM credentials, as kafka-configs does.

    Name one action, --describe or --alter, and an entity: a topic, broker, user, client, address or group.
    """
    entities = _check(given(ctx), _entities(ctx, options), options)
    connection = make_connection(bootstrap_server, bootstrap_controller, command_config)
    if options["alter"] and len(entities.types) != len(entities.names):
        raise LocalError("An entity name must be specified for every entity type")
    if options["alter"]:
        _alter(connection, entities, _read_added(options), _read_deleted(options))
    elif entities.type in RESOURCES:
        _describe_resources(connection, entities, show_all=options["show_all"], as_json=output == "json")
    else:
        _describe_quotas(connection, entities, as_json=output == "json")


@dataclass(frozen=True, slots=True)
class Entities:
    """The entities that a command names.

    Attributes:
        types: members of ``TYPES``, as given.
        names: in the same order; an empty name: the type's default.
    """

    types: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def type(self) -> str:
        """The first type, which decides on the action."""
        return self.types[0]

    @property
    def singular(self) -> str:
        """The first type without its last letter, as Kafka's tool prints it."""
        return self.type[:-1]


def _entities(ctx: click.Context, options: Mapping[str, Any]) -> Entities:
    flags = [name for name in (*FLAGS, *DEFAULT_FLAGS) if options[_name(name)] not in (None, False)]
    names = iter(options["entity_name"])
    placed = [option for option in options_in_order(ctx) if option in ("entity-name", "entity-default")]
    return Entities(
        (*options["entity_type"], *((FLAGS | DEFAULT_FLAGS)[name] for name in flags)),
        (
            *(next(names) if option == "entity-name" else "" for option in placed),
            *(options[_name(name)] if name in FLAGS else "" for name in flags),
        ),
    )


def _name(option: str) -> str:
    return option.replace("-", "_")


def _check(present: Sequence[str], entities: Entities, options: Mapping[str, Any]) -> Entities:
    """Refuse combinations of options as Kafka's tool does, in the same order."""
    if ("alter" in present) == ("describe" in present):
        raise click.UsageError("Command must include exactly one action: --describe, --alter")
    check_not_with(present, "describe", ("alter", "add-config", "delete-config"))
    check_not_with(present, "output", ("alter",))
    types = entities.types
    twice = dict.fromkeys(each for number, each in enumerate(types) if each in types[:number])
    if twice:
        raise LocalError(f"Duplicate entity type(s) specified: {','.join(twice)}")
    if "bootstrap-server" not in present and "bootstrap-controller" not in present:
        raise LocalError("Either --bootstrap-server or --bootstrap-controller must be specified.")
    for each in types:
        if each not in TYPES:
            raise LocalError(
                f"Invalid entity type {each}, the entity type must be one of {', '.join(TYPES)} with a "
                "--bootstrap-server or --bootstrap-controller argument"
            )
    if not types:
        raise LocalError("At least one entity type must be specified")
    if len(types) > 1 and set(types) != {USERS, CLIENTS}:
        raise LocalError("Only 'users' and 'clients' entity types may be specified together")
    flags = {*FLAGS, *DEFAULT_FLAGS}
    if {"entity-name", "entity-type", "entity-default"} & {*present} and flags & {*present}:
        raise LocalError("--entity-{type,name,default} should not be used in conjunction with specific entity flags")
    if "bootstrap-server" in present and "bootstrap-controller" in present:
        raise LocalError("Only one of --bootstrap-server or --bootstrap-controller can be specified")
    _check_names(entities)
    if "describe" in present:
        _check_describe(present, entities)
    else:
        _check_alter(present, entities)
    return entities


def _check_names(entities: Entities) -> None:
    for name in filter(None, entities.names):
        if entities.type in ("brokers", "broker-loggers") and read_integer(name) is None:
            raise LocalError(
                f"The entity name for {entities.type} must be a valid integer broker id, but it is: {name}"
            )
        if entities.type == IPS and not _is_address(name):
            raise LocalError(f"The entity name for ips must be a valid IP or resolvable host, but it is: {name}")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        try:
            socket.getaddrinfo(text, None)
        except (OSError, UnicodeError):
            return False
    return True


def _check_describe(present: Sequence[str], entities: Entities) -> None:
    if "entity-default" in present and not {*entities.types} & {*WITH_DEFAULTS}:
        raise LocalError(f"--entity-default must not be specified with --describe of {','.join(entities.types)}")
    if "broker-loggers" in entities.types and not any(entities.names):
        raise LocalError(f"An entity name must be specified with --describe of {','.join(entities.types)}")


def _check_alter(present: Sequence[str], entities: Entities) -> None:
    if {*entities.types} & {*WITH_DEFAULTS}:
        if not entities.names:
            raise LocalError(
                "An entity-name or default entity must be specified with --alter of users, clients, brokers or ips"
            )
    elif not any(entities.names):
        raise LocalError(f"An entity name must be specified with --alter of {','.join(entities.types)}")
    changes = {"add-config", "add-config-file", "delete-config"} & {*present}
    if {"add-config", "add-config-file"} <= changes:
        raise LocalError("Only one of --add-config or --add-config-file must be specified")
    if not changes:
        raise LocalError(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter"
        )


def _read_added(options: Mapping[str, Any]) -> dict[str, str]:
    added: dict[str, str] = {}
    path = options["add_config_file"]
    if path is not None:
        added = parse_properties(read_given_file(path), path=path)
    if options["add_config"] is not None:
        added = read_changes(options["add_config"])
    for key in added:
        if not _KEY.fullmatch(key):
            raise LocalError(f"Invalid character found for config key: {key}")
    return added


def read_changes(text: str) -> dict[str, str]:
    """Read ``k1=v1,k2=[v1,v2]``.

    Raises:
        LocalError: the text has another form.
    """
    parts = re.split("," + _OUTSIDE_BRACKETS, text)
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    pairs = [re.split(r"\s*=\s*" + _OUTSIDE_BRACKETS, part) for part in parts]
    if any(len(pair) != 2 for pair in pairs):
        raise LocalError(
            'requirement failed: Invalid entity config: all configs to be added must be in the format "key=val" or  '
            '"key=[val1,val2]" to '
            "group values which contain commas."
        )
    return {key.strip(): value.replace("[", "").replace("]", "").strip() for key, value in pairs}


def _read_deleted(options: Mapping[str, Any]) -> list[str]:
    # Empty parts are left out, as by Kafka's command line reader; a list of only empty parts stays one empty key.
    return [
        key.strip()
        for keys in options["delete_config"]
        for key in ([part for part in keys.split(",") if part] or [keys])
    ]


def _alter(connection: Connection, entities: Entities, added: Mapping[str, str], deleted: Sequence[str]) -> None:
    if entities.type in RESOURCES:
        _alter_resource(connection, entities, added, deleted)
    elif entities.type == IPS:
        unknown = [key for key in (*added, *deleted) if key not in IP_QUOTAS]
        if unknown:
            raise LocalError(
                "Only connection quota configs can be added for 'ips' using --bootstrap-server. Unexpected config "
                f"names: {','.join(unknown)}"
            )
        _alter_quotas(connection, entities, added, deleted)
    else:
        _alter_users_and_clients(connection, entities, added, deleted)
    name = entities.names[0]
    if name:
        click.echo(printable(f"Completed updating config for {entities.singular} {name}."))
    else:
        click.echo(f"Completed updating default config for {entities.type} in the cluster.")


def _alter_resource(
    connection: Connection, entities: Entities, added: Mapping[str, str], deleted: Sequence[str]
) -> None:
    resource = ConfigResource(RESOURCES[entities.type][0], entities.names[0])
    changes = [ConfigChange(key, ConfigOperation.SET, value) for key, value in added.items()]
    changes += [ConfigChange(key, ConfigOperation.DELETE, "") for key in deleted]

    async def work(client: AdminClient) -> None:
        if resource.type == BROKER_LOGGER:
            known = {entry.name for entry in (await client.describe_configs([resource]))[resource]}
            unknown = [key for key in (*deleted, *added) if key not in known]
            if unknown:
                raise LocalError(f"Invalid broker logger(s): {','.join(unknown)}")
        await client.alter_configs({resource: changes})

    connection.run(work)


def _alter_users_and_clients(
    connection: Connection, entities: Entities, added: Mapping[str, str], deleted: Sequence[str]
) -> None:
    for verb, keys in (("added", [*added]), ("deleted", [*deleted])):
        if CLIENTS in entities.types:
            unexpected = [key for key in keys if key not in CLIENT_QUOTAS]
            allowed, kind = "quota configs", CLIENTS
        else:
            unexpected = [key for key in keys if key not in CLIENT_QUOTAS and key not in MECHANISMS]
            allowed, kind = "quota and SCRAM credential configs", USERS
        if unexpected:
            raise LocalError(
                f"Only {allowed} can be {verb} for '{kind}' using --bootstrap-server. Unexpected config names: "
                f"{','.join(unexpected)}"
            )
    keys = [*added, *deleted]
    if any(key in MECHANISMS for key in keys):
        if "" in entities.names:
            raise LocalError(
                "The use of --entity-default or --user-defaults is not allowed with User SCRAM Credentials using "
                "--bootstrap-server."
            )
        if any(key in CLIENT_QUOTAS for key in keys):
            raise LocalError(
                "Cannot alter both quota and SCRAM credential configs simultaneously for 'users' using "
                "--bootstrap-server."
            )
        _alter_credentials(connection, entities.names[0], added, deleted)
    else:
        _alter_quotas(connection, entities, added, deleted)


def _alter_credentials(connection: Connection, user: str, added: Mapping[str, str], deleted: Sequence[str]) -> None:
    upsertions = [_read_credential(user, MECHANISMS[name], text) for name, text in added.items()]
    deletions = [(user, MECHANISMS[name]) for name in deleted]
    connection.run(lambda client: client.alter_scram_credentials(upsertions, deletions))


def _read_credential(user: str, mechanism: ScramMechanism, text: str) -> ScramUpsertion:
    found = _CREDENTIAL.fullmatch(text)
    if found is None:
        raise LocalError(f"Invalid credential property {mechanism.name}={text}")
    count = found[1]
    iterations = ITERATIONS_MIN if count in (None, "-1") else read_integer(count)
    if iterations is None:
        raise LocalError(f'For input string: "{count}"')
    if iterations < ITERATIONS_MIN:
        raise LocalError(
            f"Iterations {iterations} is less than the minimum {ITERATIONS_MIN} required for {mechanism.label}"
        )
    return ScramUpsertion(user, mechanism, found[2].encode(), iterations)


def _alter_quotas(connection: Connection, entities: Entities, added: Mapping[str, str], deleted: Sequence[str]) -> None:
    values: dict[str, float | None] = {}
    entity = quota_entity(
        {QUOTA_TYPES[kind]: name or None for kind, name in zip(entities.types, entities.names, strict=True)}
    )

    async def work(client: AdminClient) -> None:
        found = await client.describe_client_quotas(_filters(entities), strict=True)
        missing = [key for key in deleted if key not in found.get(entity, {})]
        if missing:
            raise LocalError(f"Invalid config(s): {','.join(missing)}")
        for key, text in added.items():
            values[key] = _read_quota(key, text)
        values.update(dict.fromkeys(deleted))
        await client.alter_client_quotas({entity: values})

    connection.run(work)


def _read_quota(key: str, text: str) -> float:
    try:
        value = parse(key, text, ConfigType.DOUBLE)
    except ConfigValueError:
        value = None
    if not isinstance(value, float):
        raise LocalError(f"Cannot parse quota configuration value for {key}: {text}")
    return value


def _filters(entities: Entities) -> list[QuotaFilter]:
    if len(entities.names) > len(entities.types):
        raise LocalError("More entity names specified than entity types")
    filters = []
    for number, kind in enumerate(entities.types):
        if number >= len(entities.names):
            filters.append(QuotaFilter(QUOTA_TYPES[kind], QuotaMatch.ANY))
        elif entities.names[number]:
            filters.append(QuotaFilter(QUOTA_TYPES[kind], QuotaMatch.EXACT, entities.names[number]))
        else:
            filters.append(QuotaFilter(QUOTA_TYPES[kind], QuotaMatch.DEFAULT))
    return filters


def _describe_resources(connection: Connection, entities: Entities, *, show_all: bool, as_json: bool) -> None:
    async def work(client: AdminClient) -> None:
        is_missing = bool(entities.names) and not show_all and not await _is_there(client, entities)
        names = [] if is_missing else entities.names[:1] or await _all_names(client, entities.type)
        if as_json:
            found = {name: await _entries(client, entities.type, name, show_all=show_all) for name in names}
            print_json(
                configs=[
                    {"type": entities.type, "name": name or None, "entries": [_entry_object(each) for each in entries]}
                    for name, entries in found.items()
                ]
            )
            return
        if is_missing:
            text = f"The {entities.singular} '{entities.names[0]}' doesn't exist and doesn't have dynamic config."
            click.echo(printable(text))
        for name in names:
            if name:
                click.echo(printable(f"{'All' if show_all else 'Dynamic'} configs for {entities.singular} {name} are:"))
            else:
                click.echo(f"Default configs for {entities.type} in the cluster are:")
            for entry in await _entries(client, entities.type, name, show_all=show_all):
                click.echo(printable(_config_line(entry)))

    connection.run(work)


async def _is_there(client: AdminClient, entities: Entities) -> bool:
    name = entities.names[0]
    if entities.type == "topics":
        wrong = what_is_wrong(name)
        if wrong is not None:
            raise LocalError(wrong)
    if not name and entities.type in ("brokers", "broker-loggers"):
        return True
    return name in await _all_names(client, entities.type)


async def _all_names(client: AdminClient, entity_type: str) -> list[str]:
    if entity_type == "topics":
        return [topic.name for topic in await client.list_topics()]
    if entity_type in ("brokers", "broker-loggers"):
        return [*(str(node.id) for node in (await client.describe_cluster()).nodes), ""]
    if entity_type == "client-metrics":
        return [each.name for each in await client.list_config_resources([CLIENT_METRICS])]
    names = {group.id for group in await client.list_groups()}
    try:
        names.update(each.name for each in await client.list_config_resources([GROUP]))
    except UnsupportedVersionError:
        pass  # brokers before Kafka 4.1 list their groups only
    except RefusedError as error:
        if error.error != "CLUSTER_AUTHORIZATION_FAILED":
            raise
    return sorted(names)


async def _entries(client: AdminClient, entity_type: str, name: str, *, show_all: bool) -> list[ConfigEntry]:
    kind, source = RESOURCES[entity_type]
    if kind == BROKER and not name:
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER
    resource = ConfigResource(kind, name)
    entries = (await client.describe_configs([resource], include_synonyms=True))[resource]
    shown = [entry for entry in entries if show_all or source is None or entry.source is source]
    return sorted(shown, key=lambda entry: entry.name)


def _entry_object(entry: ConfigEntry) -> dict[str, object]:
    return {
        "name": entry.name,
        "value": entry.value,
        "source": SOURCES[entry.source],
        "sensitive": entry.is_sensitive,
        "readOnly": entry.is_read_only,
        "synonyms": [
            {"name": each.name, "value": each.value, "source": SOURCES[each.source]} for each in entry.synonyms
        ],
    }


def _config_line(entry: ConfigEntry) -> str:
    synonyms = ", ".join(f"{SOURCES[each.source]}:{each.name}={_text(each.value)}" for each in entry.synonyms)
    sensitive = "true" if entry.is_sensitive else "false"
    return f"  {entry.name}={_text(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}"


def _text(value: str | None) -> str:
    return "null" if value is None else value


def _describe_quotas(connection: Connection, entities: Entities, *, as_json: bool) -> None:
    async def work(client: AdminClient) -> None:
        found = await client.describe_client_quotas(_filters(entities), strict=True)
        has_credentials = not {CLIENTS, IPS} & {*entities.types} and "" not in entities.names
        if not as_json:
            for entity, values in found.items():
                text = ", ".join(f"{key}={show_double(value)}" for key, value in values.items())
                click.echo(printable(f"Quota configs for {_entity_text(entity)} are {text}"))
        credentials = await _credentials(client, entities.names) if has_credentials else {}
        if as_json:
            quotas = [{"entity": dict(entity), "values": dict(values)} for entity, values in found.items()]
            print_json(quotas=quotas, **(_credential_objects(credentials) if has_credentials else {}))
        else:
            for line in _credential_lines(credentials):
                click.echo(printable(line))

    connection.run(work)


def _entity_text(entity: QuotaEntity) -> str:
    names = dict(entity)
    texts = []
    for kind, label in QUOTA_LABELS.items():
        if kind in names:
            texts.append(f"{label} '{names[kind]}'" if names[kind] else f"the default {label}")
    return ", ".join(texts)


async def _credentials(client: AdminClient, users: Sequence[str]) -> Mapping[str, object]:
    """By user: iterations by mechanism, or the error; users without credentials are left out."""
    results: Mapping[str, object]
    try:
        results = await client.describe_scram_credentials(users or None)
    except PartlyRefusedError as error:
        results = error.results
    return {
        user: found
        for user, found in results.items()
        if not (isinstance(found, RefusedError) and found.error == "RESOURCE_NOT_FOUND")
    }


def _credential_lines(credentials: Mapping[str, object]) -> Iterator[str]:
    for user, found in credentials.items():
        if isinstance(found, RefusedError):
            reason = f"{exception_name(found.error)}: {found.message}"
            yield f"Error retrieving SCRAM credential configs for user-principal '{user}': {reason}"
        elif isinstance(found, Mapping):
            text = ", ".join(f"{mechanism.label}=iterations={count}" for mechanism, count in found.items())
            yield f"SCRAM credential configs for user-principal '{user}' are {text}"


def _credential_objects(credentials: Mapping[str, object]) -> dict[str, object]:
    return {
        "credentials": [
            {"user": user, "mechanisms": {mechanism.label: count for mechanism, count in found.items()}}
            for user, found in credentials.items()
            if isinstance(found, Mapping)
        ],
        "failed": [
            {"user": user, "error": found.error, "message": found.message}
            for user, found in credentials.items()
            if isinstance(found, RefusedError)
        ],
    }
