"""``kraftcore acls``: Kafka's kafka-acls. Text output is that of Kafka 4.3.1's AclCommand.

Differences, all deliberate: entries are printed in order (Kafka's is that of hash tables); wrong usage is one line and
a hint; no stack traces; a question that gets no answer is a refusal (Kafka's tool fails); ``--list --output json``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from kraftcore.admin import Acl, AclFilter, AdminClient
from kraftcore.admin.tokens import principal_parts
from kraftcore.cli.admin_tool import Connection, make_connection, server_options
from kraftcore.cli.kafka_style import KafkaTool, StdoutFailure, check_not_with, given, words
from kraftcore.cli.output import output_option, print_json, printable
from kraftcore.errors import KraftError, LocalError
from kraftcore.security.acl import CLUSTER_NAME, WILDCARD, Operation, PatternType, Permission, ResourceType

# Operations that an entry may name, besides ALL, by resource type. Source: Kafka 4.3.1, AclEntry.supportedOperations.
SUPPORTED: Mapping[ResourceType, Sequence[Operation]] = {
    ResourceType.TOPIC: (
        *(Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.DESCRIBE),
        *(Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
    ),
    ResourceType.GROUP: (
        *(Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
    ),
    ResourceType.CLUSTER: (
        *(Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION),
        *(Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.IDEMPOTENT_WRITE),
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE, Operation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
OPERATIONS = {
    spelling: each
    for each in Operation
    for spelling in (each.name, "".join(word.capitalize() for word in each.name.split("_")))
    if each >= Operation.ALL
}
ACTIONS = ("add", "remove", "list")


class Resource(NamedTuple):
    """The resources that an entry applies to.

    Attributes:
        type: type of the resources.
        name: a name, or the beginning of names.
        pattern: how ``name`` is compared.
    """

    type: ResourceType
    name: str
    pattern: PatternType

    def __str__(self) -> str:
        return f"ResourcePattern(resourceType={self.type.name}, name={self.name}, patternType={self.pattern.name})"


class Entry(NamedTuple):
    """The principal, host, operation and permission of an entry.

    Attributes:
        principal: ``User:alice``.
        host: an address, or ``*``.
        operation: the operation.
        permission: whether the operation is allowed or denied.
    """

    principal: str
    host: str
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        return (
            f"(principal={self.principal}, host={self.host}, operation={self.operation.name}, "
            f"permissionType={self.permission.name})"
        )


def _failed(error: KraftError) -> click.ClickException:
    return StdoutFailure(f"Error while executing ACL command: {words(error)}")


def _complete_pattern(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    names = (each.name.lower() for each in PatternType if each is not PatternType.UNKNOWN)
    return [CompletionItem(name) for name in names if name.startswith(incomplete.lower())]


def _complete_operation(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in OPERATIONS if name.startswith(incomplete)]


@click.command(
    cls=KafkaTool,
    failed=_failed,
    epilog="""\b
Examples:
  Alice may write to a topic and create it, Bob may read it as a member of a group:
    kraftcore acls --bootstrap-server 127.0.0.1:9092 --add --allow-principal User:alice --producer --topic orders
    kraftcore acls --bootstrap-server 127.0.0.1:9092 --add --allow-principal User:bob --consumer --topic orders \\
      --group readers
  Everybody but Eve may describe topics that begin with public-, from everywhere:
    kraftcore acls --bootstrap-server 127.0.0.1:9092 --add --allow-principal 'User:*' --deny-principal User:eve \\
      --operation Describe --topic public- --resource-pattern-type prefixed
  Who may do what to a topic, by whatever pattern; what Alice may do:
    kraftcore acls --bootstrap-controller 127.0.0.1:9093 --list --topic orders --resource-pattern-type match
    kraftcore acls --bootstrap-server 127.0.0.1:9092 --list --principal User:alice
  Take all entries about a topic away without being asked:
    kraftcore acls --bootstrap-server 127.0.0.1:9092 --remove --topic orders --force

\b
Deny wins over allow. Without an entry nobody but super.users is allowed anything. 'match' finds every entry that
applies to the name, 'any' those with this very name, literal or prefixed; both are for --list and --remove.
With --output json --list prints an object with acls: [{resourceType, name, patternType, principal, host, operation,
permissionType}].
""",
)
@output_option
@click.option(
    "--user-principal",
    "users",
    multiple=True,
    metavar="NAME",
    help="Resource: the delegation tokens of this user; may be repeated.",
)
@click.option("--force", is_flag=True, help="With --remove: remove without asking for a confirmation.")
@click.option(
    "--consumer",
    is_flag=True,
    help="In place of --operation: what a consumer needs, that is Read "
    "and Describe on each --topic and Read on each --group.",
)
@click.option(
    "--producer",
    is_flag=True,
    help="In place of --operation: what a producer needs, that is Write, "
    "Describe and Create on each --topic, Write and Describe on each "
    "--transactional-id.",
)
@click.option(
    "--deny-host",
    multiple=True,
    metavar="ADDRESS",
    help="IP address from which the principal asks; may be repeated.  [default: every address]",
)
@click.option(
    "--allow-host",
    multiple=True,
    metavar="ADDRESS",
    help="IP address from which the principal asks; may be repeated.  [default: every address]",
)
@click.option(
    "--principal",
    multiple=True,
    metavar="TYPE:NAME",
    help="With --list: only the entries of this principal, as User:alice; may be repeated.",
)
@click.option(
    "--deny-principal",
    multiple=True,
    metavar="TYPE:NAME",
    help="Principal to whom the operation is denied, as User:alice, or User:* for everybody; may be repeated.",
)
@click.option(
    "--allow-principal",
    multiple=True,
    metavar="TYPE:NAME",
    help="Principal to whom the operation is allowed, as User:alice, or User:* for everybody; may be repeated.",
)
@click.option(
    "--operation",
    multiple=True,
    metavar="NAME",
    shell_complete=_complete_operation,
    help="The operation that an entry is about; may be repeated: Read, Write, Create, Delete, Alter, Describe, "
    "ClusterAction, DescribeConfigs, AlterConfigs, IdempotentWrite, CreateTokens, DescribeTokens, "
    "TwoPhaseCommit, or All of them.  [default: All]",
)
@click.option("--list", is_flag=True, help="Print the entries of the resources that are named, or of all if none is.")
@click.option(
    "--remove",
    is_flag=True,
    help="Remove the entries that are named, or all of the named resources if no principal is.",
)
@click.option(
    "--add", is_flag=True, help="Add an entry for each resource, principal, host and operation that is named."
)
@click.option(
    "--resource-pattern-type",
    metavar="TYPE",
    default="literal",
    shell_complete=_complete_pattern,
    help="How names of resources are compared. literal: the name itself; prefixed: all names that begin with "
    "it; for --list and --remove also any: literal and prefixed entries of this very name; match: every "
    "entry that applies to the name.  [default: literal]",
)
@click.option(
    "--delegation-token",
    "tokens",
    multiple=True,
    metavar="ID",
    help="Resource: the delegation token of this id; may be repeated.",
)
@click.option(
    "--idempotent",
    is_flag=True,
    help="With --producer: also IdempotentWrite on the cluster, which producers of before Kafka 3.0 need.",
)
@click.option(
    "--transactional-id",
    "transactional_ids",
    multiple=True,
    metavar="ID",
    help="Resource: the transactional id of a producer; may be repeated.",
)
@click.option(
    "--group", "groups", multiple=True, metavar="ID", help="Resource: the consumer group of this id; may be repeated."
)
@click.option("--cluster", is_flag=True, help="Resource: the cluster itself.")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME",
    help="Resource: the topic of this name, or * for every one; may be repeated.",
)
@server_options(controllers=True)
@click.pass_context
def acls(
    ctx: click.Context,
    /,
    bootstrap_server: str | None,
    bootstrap_controller: str | None,
    command_config: str | None,
    output: str,
    **options: Any,
) -> None:
    """List, add and remove access control entries, as kafka-acls does.

    An entry allows or denies a principal, from a host, an operation on a resource. --add makes an entry for each
    combination of what is named; --list and --remove find entries by the same options.
    """
    action = _check(given(ctx))
    connection = make_connection(bootstrap_server, bootstrap_controller, command_config)
    if action == "list":
        _list(connection, options, as_json=output == "json")
    else:
        {"add": _add, "remove": _remove}[action](connection, options)


def _check(present: Sequence[str]) -> str:
    """Return the chosen action; refuses combinations of options as Kafka's tool does, in the same order."""
    connections = {"bootstrap-server", "bootstrap-controller"} & {*present}
    if len(connections) != 1:
        which = "Only one" if connections else "One"
        raise click.UsageError(f"{which} of --bootstrap-server or --bootstrap-controller must be specified")
    actions = [action for action in ACTIONS if action in present]
    if len(actions) != 1:
        raise click.UsageError("Command must include exactly one action: --list, --add, --remove. ")
    hosts = ("allow-host", "allow-principal", "deny-host", "deny-principal")
    check_not_with(present, "list", ("producer", "consumer", *hosts))
    check_not_with(present, "output", ("add", "remove"))
    for role in ("producer", "consumer"):
        check_not_with(present, role, ("operation", "deny-principal", "deny-host"))
    if "principal" in present and "list" not in present:
        raise click.UsageError("The --principal option is only available if --list is set")
    if "producer" in present and "topic" not in present:
        raise click.UsageError("With --producer you must specify a --topic")
    if "idempotent" in present and "producer" not in present:
        raise click.UsageError("The --idempotent option is only available if --producer is set")
    if "consumer" in present:
        others = "producer" not in present and {"cluster", "transactional-id"} & {*present}
        if others or not {"topic", "group"} <= {*present}:
            raise click.UsageError(
                "With --consumer you must specify a --topic and a --group and no --cluster or --transactional-id "
                "option should be specified."
            )
    return actions[0]


def _add(connection: Connection, options: Mapping[str, Any]) -> None:
    pattern = _pattern(options)
    if pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise click.UsageError(f"A '--resource-pattern-type' value of '{pattern.name}' is not valid when adding acls.")
    wanted = _entries_by_resource(options)
    if not all(wanted.values()):
        raise click.UsageError("You must specify one of: --allow-principal, --deny-principal when trying to add ACLs.")

    async def work(client: AdminClient) -> None:
        for resource, entries in sorted(wanted.items()):
            known = set(await client.describe_acls(_filter(resource)))
            new = [entry for entry in sorted(entries) if _acl(resource, entry) not in known]
            for entry in sorted(entries - {*new}):
                click.echo(printable(f"Acl (pattern={resource}, entry={entry}) already exists."))
            if new:
                click.echo(printable(f"Adding ACLs for resource `{resource}`: "))
                click.echo(" " + _listed(new) + "\n")
                await client.create_acls([_acl(resource, entry) for entry in new])

    connection.run(work)


def _remove(connection: Connection, options: Mapping[str, Any]) -> None:
    wanted = _entries_by_resource(options)

    async def work(client: AdminClient) -> None:
        for resource, entries in sorted(wanted.items()):
            if entries:
                question = (
                    f"Are you sure you want to remove ACLs: \n {_listed(sorted(entries))}\n from resource filter "
                    f"`{printable(str(resource))}`? (y/n)"
                )
            else:
                question = (
                    f"Are you sure you want to delete all ACLs for resource filter `{printable(str(resource))}`? (y/n)"
                )
            if options["force"] or _confirmed(question):
                filters = [_filter(resource, entry) for entry in sorted(entries)] or [_filter(resource)]
                await client.delete_acls(filters)

    connection.run(work)


def _confirmed(question: str) -> bool:
    click.echo(question)
    answer = sys.stdin.readline()
    if not answer:
        raise LocalError("nobody answered: give --force to remove entries without being asked")
    return answer.strip().lower() == "y"


def _list(connection: Connection, options: Mapping[str, Any], *, as_json: bool) -> None:
    resources = _resources(options)
    principals = sorted({_principal(text) for text in options["principal"]})

    async def ask(client: AdminClient) -> set[Acl]:
        filters = [_filter(resource) for resource in sorted(resources)] or [_any()]
        return {acl for each in filters for acl in await client.describe_acls(each)}

    found = connection.run(ask)
    if as_json:
        print_json(acls=[_as_object(acl) for acl in sorted(found) if not principals or acl.principal in principals])
        return
    if not principals:
        _print(found)
    for principal in principals:
        click.echo(printable(f"ACLs for principal `{principal}`"))
        _print(acl for acl in found if acl.principal == principal)


def _named(acl: Acl) -> tuple[Resource, Entry]:
    kind, pattern = _known(ResourceType, acl.resource_type), _known(PatternType, acl.pattern_type)
    operation, permission = _known(Operation, acl.operation), _known(Permission, acl.permission_type)
    return Resource(kind, acl.resource_name, pattern), Entry(acl.principal, acl.host, operation, permission)


def _as_object(acl: Acl) -> dict[str, str]:
    resource, entry = _named(acl)
    return {
        "resourceType": resource.type.name,
        "name": resource.name,
        "patternType": resource.pattern.name,
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation.name,
        "permissionType": entry.permission.name,
    }


def _print(found: Iterable[Acl]) -> None:
    by_resource: dict[str, list[Entry]] = {}
    for acl in sorted(found):
        resource, entry = _named(acl)
        by_resource.setdefault(str(resource), []).append(entry)
    for name, entries in by_resource.items():
        click.echo(printable(f"Current ACLs for resource `{name}`:"))
        click.echo(_listed(entries) + "\n")


def _known(kind: Any, number: int) -> Any:
    """The member of an enumeration with a number, or UNKNOWN for an unknown number, as in Kafka's client."""
    return kind(number) if number in kind._value2member_map_ else kind.UNKNOWN


def _listed(entries: Iterable[Entry]) -> str:
    return "\n".join(f"\t{printable(str(entry))}" for entry in entries)


def _acl(resource: Resource, entry: Entry) -> Acl:
    return Acl(
        resource.type,
        resource.name,
        resource.pattern,
        entry.principal,
        entry.host,
        entry.operation,
        entry.permission,
    )


def _filter(resource: Resource, entry: Entry | None = None) -> AclFilter:
    if entry is None:
        return AclFilter(resource.type, resource.name, resource.pattern, None, None, Operation.ANY, Permission.ANY)
    return AclFilter(*_acl(resource, entry))


def _any() -> AclFilter:
    return AclFilter(ResourceType.ANY, None, PatternType.ANY, None, None, Operation.ANY, Permission.ANY)


def _pattern(options: Mapping[str, Any]) -> PatternType:
    text = options["resource_pattern_type"]
    if text.upper() not in PatternType.__members__:
        raise LocalError(f"Cannot parse argument '{text}' of option resource-pattern-type")
    if text.upper() == PatternType.UNKNOWN.name:
        raise LocalError(f"Unknown resource-pattern-type: {text}")
    return PatternType[text.upper()]


def _resources(options: Mapping[str, Any]) -> set[Resource]:
    pattern = _pattern(options)
    found = set()
    for kind, names in (
        (ResourceType.TOPIC, options["topics"]),
        (ResourceType.GROUP, options["groups"]),
        (ResourceType.TRANSACTIONAL_ID, options["transactional_ids"]),
        (ResourceType.DELEGATION_TOKEN, options["tokens"]),
        (ResourceType.USER, options["users"]),
    ):
        for name in names:
            found.add(Resource(kind, name if kind is ResourceType.TRANSACTIONAL_ID else name.strip(), pattern))
    if pattern is PatternType.LITERAL and (options["cluster"] or options["idempotent"]):
        found.add(Resource(ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL))
    return found


def _entries_by_resource(options: Mapping[str, Any]) -> dict[Resource, set[Entry]]:
    resources = _resources(options)
    if not resources:
        raise click.UsageError(
            "You must provide at least one resource: --topic <topic> or --cluster or --group <group> or "
            "--delegation-token <Delegation Token ID>"
        )
    wanted: dict[Resource, set[Entry]] = {}

    def add(kind: ResourceType, *operations: Operation) -> None:
        for resource in resources:
            if resource.type is kind:
                wanted.setdefault(resource, set()).update(_entries(options, operations))

    if options["producer"]:
        add(ResourceType.TOPIC, Operation.WRITE, Operation.DESCRIBE, Operation.CREATE)
        add(ResourceType.TRANSACTIONAL_ID, Operation.WRITE, Operation.DESCRIBE)
        if options["idempotent"]:
            cluster = Resource(ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL)
            wanted[cluster] = _entries(options, [Operation.IDEMPOTENT_WRITE])
    if options["consumer"]:
        add(ResourceType.TOPIC, Operation.READ, Operation.DESCRIBE)
        add(ResourceType.GROUP, Operation.READ)
    if not options["producer"] and not options["consumer"]:
        operations = [_operation(text.strip()) for text in options["operation"]] or [Operation.ALL]
        wanted = {resource: _entries(options, operations) for resource in resources}
    for resource, entries in wanted.items():
        supported = (*SUPPORTED[resource.type], Operation.ALL)
        if any(entry.operation not in supported for entry in entries):
            names = ", ".join(operation.name for operation in sorted(supported))
            raise click.UsageError(f"ResourceType {resource.type.name} only supports operations [{names}]")
    return wanted


def _entries(options: Mapping[str, Any], operations: Iterable[Operation]) -> set[Entry]:
    found: set[Entry] = set()
    chosen = tuple(operations)
    for permission, word in ((Permission.ALLOW, "allow"), (Permission.DENY, "deny")):
        principals = [_principal(text) for text in options[f"{word}_principal"]]
        hosts = [host.strip() for host in options[f"{word}_host"]] or [WILDCARD]
        found.update(Entry(*each, permission) for each in product(principals, hosts, chosen))
    return found


def _principal(text: str) -> str:
    return ":".join(principal_parts(text.strip()))


def _operation(text: str) -> Operation:
    if text not in OPERATIONS:
        raise LocalError(f"No enum constant for {text}")
    return OPERATIONS[text]
