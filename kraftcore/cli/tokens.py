"""``kraftcore tokens``: Kafka's kafka-delegation-tokens. Text output is that of 4.3.1's DelegationTokenCommand.

Differences, all deliberate: tokens are printed by id (Kafka's order is that of a hash table); wrong usage is one line
and a hint, also where a period is no number (Kafka's tool fails); no stack traces; the last line ends; without
--owner-principal --describe asks for all tokens that the asker may see; ``--output json``.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import click

from kraftcore.admin import AdminClient, IssuedToken
from kraftcore.admin.tokens import principal_parts
from kraftcore.cli.admin_tool import Connection, make_connection, server_options
from kraftcore.cli.kafka_style import JavaNumber, KafkaTool, check_not_with, check_required, given
from kraftcore.cli.output import output_option, print_json, printable
from kraftcore.errors import LocalError

ACTIONS = ("create", "renew", "expire", "describe")
# By action: required options, forbidden options. Source: Kafka 4.3.1.
NEEDED: Mapping[str, Sequence[str]] = {
    "create": ("max-life-time-period",),
    "renew": ("hmac", "renew-time-period"),
    "expire": ("hmac", "expiry-time-period"),
    "describe": (),
}
BARRED: Mapping[str, Sequence[str]] = {
    "create": ("hmac", "renew-time-period", "expiry-time-period"),
    "renew": ("renewer-principal", "max-life-time-period", "expiry-time-period", "owner-principal"),
    "expire": ("max-life-time-period", "renew-time-period", "owner-principal"),
    "describe": ("renew-time-period", "max-life-time-period", "hmac", "expiry-time-period"),
}
_COLUMNS = ("TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUEDATE", "EXPIRYDATE", "MAXDATE")
_WIDTHS = (15, 30, 15, 15, 25, 15, 15, 15)


@click.command(
    cls=KafkaTool,
    epilog="""\b
Examples:
  client.properties says who asks: an encrypted connection with a certificate of the client, or SASL.
  A token of one's own for a day at most, which Bob may renew:
    kraftcore tokens --bootstrap-server 127.0.0.1:9092 --command-config client.properties --create \\
      --max-life-time-period 86400000 --renewer-principal User:bob
  It lives for another hour, and ends now:
    kraftcore tokens --bootstrap-server 127.0.0.1:9092 --command-config client.properties --renew \\
      --renew-time-period 3600000 --hmac MTIzNDU2Nzg=
    kraftcore tokens --bootstrap-server 127.0.0.1:9092 --command-config client.properties --expire \\
      --expiry-time-period -1 --hmac MTIzNDU2Nzg=
  Tokens of Alice:
    kraftcore tokens --bootstrap-server 127.0.0.1:9092 --command-config client.properties --describe \\
      --owner-principal User:alice

\b
Periods are milliseconds; -1 is what the server's file says, for --expire: now. Whoever has a token's HMAC acts as its
owner: it is a secret. Dates are those of the local time zone. With --output json an object with:
  --create, --describe  tokens: [{tokenId, hmac, owner, requester, renewers, issueTimestamp, expiryTimestamp,
                        maxTimestamp}]  times in milliseconds since 1970
  --renew, --expire     expiryTimestamp
""",
)
@output_option
@click.option("--hmac", metavar="BASE64", help="With --renew, --expire: the HMAC of the token, as --create printed it.")
@click.option(
    "--expiry-time-period",
    metavar="MS",
    type=JavaNumber(64),
    help="With --expire: milliseconds from now until the token ends. -1: it ends now.",
)
@click.option(
    "--renew-time-period",
    metavar="MS",
    type=JavaNumber(64),
    help="With --renew: milliseconds from now until the token ends, if its "
    "greatest lifetime allows. -1: the server's "
    "delegation.token.expiry.time.ms.",
)
@click.option(
    "--max-life-time-period",
    metavar="MS",
    type=JavaNumber(64),
    help="With --create: milliseconds from now after which the token ends in any "
    "case, however often it is renewed. -1: the server's "
    "delegation.token.max.lifetime.ms.",
)
@click.option(
    "--renewer-principal",
    "renewers",
    multiple=True,
    metavar="TYPE:NAME",
    help="With --create: principal that may renew the token besides its owner, as User:bob; may be repeated.",
)
@click.option(
    "--owner-principal",
    "owners",
    multiple=True,
    metavar="TYPE:NAME",
    help="With --create: owner of the token, if not the one who asks. With "
    "--describe: only tokens of this owner; may be repeated. As User:alice.",
)
@click.option("--describe", is_flag=True, help="List the tokens that the one who asks may see.")
@click.option("--expire", is_flag=True, help="Change when a token ends, or end it now.")
@click.option("--renew", is_flag=True, help="Let a token live longer.")
@click.option("--create", is_flag=True, help="Make a token, and print its id and HMAC.")
@server_options(controllers=False)
@click.pass_context
def tokens(
    ctx: click.Context, /, bootstrap_server: str | None, command_config: str | None, output: str, **options: Any
) -> None:
    """Create, renew, expire and describe delegation tokens, as kafka-delegation-tokens does.

    A token lets its holder log in as the token's owner, for a time, without the owner's password or certificate.
    """
    action = _check(given(ctx, apart_from=["output"]))
    connection = make_connection(bootstrap_server, None, command_config)
    run = {"create": _create, "renew": _renew, "expire": _expire, "describe": _describe}[action]
    run(connection, options, output == "json")


def _check(present: Sequence[str]) -> str:
    """Return the chosen action; refuses combinations of options as Kafka's tool does, in the same order."""
    actions = [action for action in ACTIONS if action in present]
    if len(actions) != 1:
        raise click.UsageError("Command must include exactly one action: --create, --renew, --expire or --describe")
    (action,) = actions
    check_required(present, "bootstrap-server", "command-config", *NEEDED[action])
    check_not_with(present, action, BARRED[action])
    return action


def _create(connection: Connection, options: Mapping[str, Any], as_json: bool) -> None:
    renewers, owners = _principals(options["renewers"]), _principals(options["owners"])
    lifetime_ms = options["max_life_time_period"]

    async def work(client: AdminClient) -> IssuedToken:
        owner = owners[0] if owners else None
        return await client.create_delegation_token(renewers, owner=owner, max_lifetime_ms=lifetime_ms)

    if not as_json:
        text = f"with renewers :{_listed(renewers)} , max-life-time-period :{lifetime_ms}"
        click.echo(printable(f"Calling create token operation {text}"))
    made = connection.run(work)
    if not as_json:
        click.echo(printable(f"Created delegation token with tokenId : {made.token.id}"))
    _print([made], as_json)


def _renew(connection: Connection, options: Mapping[str, Any], as_json: bool) -> None:
    hmac, period_ms = options["hmac"], options["renew_time_period"]
    secret = _decoded(hmac)
    if not as_json:
        click.echo(printable(f"Calling renew token operation with hmac :{hmac} , renew-time-period :{period_ms}"))
    expiry_ms = connection.run(lambda client: client.renew_delegation_token(secret, period_ms=period_ms))
    _print_expiry("renew", expiry_ms, as_json)


def _expire(connection: Connection, options: Mapping[str, Any], as_json: bool) -> None:
    hmac, period_ms = options["hmac"], options["expiry_time_period"]
    secret = _decoded(hmac)
    if not as_json:
        click.echo(printable(f"Calling expire token operation with hmac :{hmac} , expire-time-period :{period_ms}"))
    expiry_ms = connection.run(lambda client: client.expire_delegation_token(secret, period_ms=period_ms))
    _print_expiry("expire", expiry_ms, as_json)


def _describe(connection: Connection, options: Mapping[str, Any], as_json: bool) -> None:
    owners = _principals(options["owners"])
    if not as_json and owners:
        click.echo(printable(f"Calling describe token operation for owners: {_listed(owners)}"))
    elif not as_json:
        click.echo("Calling describe token operation for current user.")
    found = connection.run(lambda client: client.describe_delegation_tokens(owners or None))
    if not as_json:
        click.echo(f"Total number of tokens : {len(found)}", nl=False)
    _print(found, as_json)


def _principals(texts: Iterable[str]) -> list[str]:
    return [":".join(principal_parts(text.strip())) for text in texts]


def _decoded(hmac: str) -> bytes:
    try:
        return base64.b64decode(hmac, validate=True)
    except (binascii.Error, ValueError):
        raise LocalError(f"--hmac {hmac} is no base64") from None


def _listed(names: Iterable[str]) -> str:
    return f"[{', '.join(names)}]"


def _print_expiry(what: str, expiry_ms: int, as_json: bool) -> None:
    if as_json:
        print_json(expiryTimestamp=expiry_ms)
    else:
        click.echo(f"Completed {what} operation. New expiry date : {_date(expiry_ms)}")


def _print(found: Iterable[IssuedToken], as_json: bool) -> None:
    if as_json:
        print_json(tokens=[_fields(each) for each in found])
        return
    click.echo("\n" + _row(_COLUMNS))
    for each in found:
        token = each.token
        dates = map(_date, (token.issue_timestamp_ms, token.expiration_timestamp_ms, token.max_timestamp_ms))
        hmac = base64.b64encode(each.hmac).decode()
        row = (token.id, hmac, token.owner, token.requester, _listed(token.renewers), *dates)
        click.echo("\n" + printable(_row(row)))


def _fields(issued: IssuedToken) -> dict[str, object]:
    token = issued.token
    return {
        "tokenId": token.id,
        "hmac": base64.b64encode(issued.hmac).decode(),
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issueTimestamp": token.issue_timestamp_ms,
        "expiryTimestamp": token.expiration_timestamp_ms,
        "maxTimestamp": token.max_timestamp_ms,
    }


def _row(values: Iterable[str]) -> str:
    return " ".join(value.ljust(width) for value, width in zip(values, _WIDTHS, strict=True))


def _date(time_ms: int) -> str:
    try:
        return datetime.fromtimestamp(time_ms / 1000).strftime("%Y-%m-%dT%H:%M")
    except (ValueError, OverflowError, OSError):  # beyond the year 9999
        return str(time_ms)
