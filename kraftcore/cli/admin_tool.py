"""What the commands that talk to a quorum share: where to connect, how errors are said, how results are printed.

They behave as Kafka's tools do: an error is Kafka's line on stderr, without its stack trace, and exit status 1, for
wrong usage as well.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial, wraps
from typing import IO, Any, TypeVar

import click
import trio

from kraftcore import admin
from kraftcore.admin import AdminClient, Timing
from kraftcore.config.addresses import split_list
from kraftcore.core.files import OsFiles
from kraftcore.errors import (
    KraftError,
    LocalError,
    RefusedError,
    StorageError,
    UnreachableError,
    UnsupportedVersionError,
)
from kraftcore.storage.properties import parse_properties
from kraftcore.transports.tcp import TlsFiles

T = TypeVar("T")
JAVA_ERRORS = "org.apache.kafka.common.errors."
# Where Kafka's exception is not named after the error. Source: Kafka 4.3.1, Errors.
ODD_EXCEPTIONS = {
    "UNKNOWN_SERVER_ERROR": "UnknownServerException",
    "CORRUPT_MESSAGE": "CorruptRecordException",
    "REQUEST_TIMED_OUT": "TimeoutException",
    "MESSAGE_TOO_LARGE": "RecordTooLargeException",
    "STALE_CONTROLLER_EPOCH": "ControllerMovedException",
    "INVALID_CONFIG": "InvalidConfigurationException",
    "KAFKA_STORAGE_ERROR": "KafkaStorageException",
    "CLUSTER_AUTHORIZATION_FAILED": "ClusterAuthorizationException",
    "SASL_AUTHENTICATION_FAILED": "SaslAuthenticationException",
    "PRINCIPAL_DESERIALIZATION_FAILURE": "PrincipalDeserializationException",
}


class ToolError(click.ClickException):
    """An error that is printed as Kafka's tools do: the bare line."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it on stderr."""
        click.echo(self.message, file=file, err=file is None)


class ToolGroup(click.Group):
    """A command with sub-commands, with the exit status and error lines of Kafka's tools."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Read the options in front of the sub-command."""
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            raise _as_in_kafka(error) from None

    def invoke(self, ctx: click.Context) -> object:
        """Run the sub-command."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise _as_in_kafka(error) from None
        except StorageError:
            raise
        except KraftError as error:
            raise ToolError(words(error)) from None


def _as_in_kafka(error: click.UsageError) -> click.UsageError:
    vars(error)["exit_code"] = 1
    return error


def words(error: KraftError) -> str:
    """What Kafka's tools print for an error, and for an unreachable quorum why it is so."""
    if isinstance(error, RefusedError):
        return f"{JAVA_ERRORS}{exception_name(error.error)}: {error.message}"
    if isinstance(error, UnsupportedVersionError):
        return f"{JAVA_ERRORS}UnsupportedVersionException: {error}"
    if isinstance(error, UnreachableError):
        doubt = "; whether it was carried out is unknown" if error.outcome_unknown else ""
        return f"{JAVA_ERRORS}TimeoutException: {error}\nLast failure: {error.last_failure}{doubt}"
    return str(error)


def exception_name(error_name: str) -> str:
    """Name of Kafka's exception for an error, ``VoterNotFoundException`` for ``VOTER_NOT_FOUND``."""
    name = ODD_EXCEPTIONS.get(error_name) or "".join(part.capitalize() for part in error_name.split("_"))
    return name if name.endswith("Exception") else name + "Exception"


@dataclass(frozen=True, slots=True)
class Connection:
    """Where and how a command connects.

    Attributes:
        servers: brokers, ``host:port``.
        controllers: controllers; exactly one of the two is not empty.
        config_path: file behind --command-config, or None.
        properties: its content.
    """

    servers: tuple[str, ...]
    controllers: tuple[str, ...]
    config_path: str | None
    properties: Mapping[str, str]

    @property
    def through_controllers(self) -> bool:
        """Whether --bootstrap-controller was given."""
        return bool(self.controllers)

    def run(self, work: Callable[[AdminClient], Awaitable[T]]) -> T:
        """Connect, do the work, disconnect.

        Raises:
            KraftError: what the work raised, or settings that cannot be used.
        """
        return trio.run(partial(self._run, work))

    async def _run(self, work: Callable[[AdminClient], Awaitable[T]]) -> T:
        async with admin.connect(
            bootstrap_servers=self.servers,
            bootstrap_controllers=self.controllers,
            tls=self._tls(),
            timing=self._timing(),
        ) as client:
            return await work(client)

    def _tls(self) -> TlsFiles | None:
        find = self.properties.get
        protocol = find("security.protocol", "PLAINTEXT").upper()
        if protocol not in ("PLAINTEXT", "SSL"):
            raise LocalError(f"{self.config_path}: security.protocol={protocol} is none of PLAINTEXT, SSL")
        if protocol == "PLAINTEXT":
            return None
        for kind in ("keystore", "truststore"):
            if find(f"ssl.{kind}.location") and find(f"ssl.{kind}.type", "JKS").upper() != "PEM":
                raise LocalError(f"{self.config_path}: ssl.{kind}.type must be PEM")
        if find("ssl.endpoint.identification.algorithm", "https").lower() != "https":
            raise LocalError(f"{self.config_path}: ssl.endpoint.identification.algorithm must be https")
        return TlsFiles(
            certificate=find("ssl.keystore.location"),
            ca=find("ssl.truststore.location"),
            key_password=find("ssl.key.password"),
        )

    def _timing(self) -> Timing:
        call_timeout_ms = self._milliseconds("default.api.timeout.ms", Timing().call_timeout_ms)
        return Timing(call_timeout_ms, self._milliseconds("request.timeout.ms", Timing().request_timeout_ms))

    def _milliseconds(self, key: str, default: int) -> int:
        text = self.properties.get(key, str(default)).strip()
        if not text.isdecimal() or not 0 < int(text) < 1 << 31:
            raise LocalError(f"{self.config_path}: {key}={text} is not a number of milliseconds above 0")
        return int(text)


def connected(*, short: bool = False) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Give a command the options that say where to connect; it gets a ``Connection`` as its first argument.

    They may stand in front of a sub-command, as in kafka-metadata-quorum, or behind it, as in kafka-cluster.

    Args:
        short: also offer -b, -C and -c, as kafka-cluster does.
    """

    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        @wraps(function)
        def command(**options: Any) -> T:
            parent = click.get_current_context().parent
            given = {name: options.pop(name) for name in ("bootstrap_server", "bootstrap_controller", "command_config")}
            for name, value in given.items():
                if value is None and parent is not None:
                    given[name] = parent.params.get(name)
            return function(_connection(*given.values()), **options)

        return bootstrap_options(short=short)(command)

    return decorate


def bootstrap_options(*, short: bool = False) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """The options themselves, for groups that take them in front of their sub-commands."""

    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        for letter, name, text in (
            ("-c", "--command-config", "Properties: security.protocol, ssl.* (PEM), default.api.timeout.ms ..."),
            ("-C", "--bootstrap-controller", "Controllers to ask, host:port,...; the others are found through them."),
            ("-b", "--bootstrap-server", "Brokers to ask, host:port,...; they pass on what controllers have to do."),
        ):
            metavar = "FILE" if letter == "-c" else "LIST"
            function = click.option(*((letter, name) if short else (name,)), metavar=metavar, help=text)(function)
        return function

    return decorate


output_option = click.option(
    "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Output form."
)


def _connection(servers: str | None, controllers: str | None, config_path: str | None) -> Connection:
    if servers is not None and controllers is not None:
        raise click.UsageError("argument --bootstrap-controller: not allowed with argument --bootstrap-server")
    if servers is None and controllers is None:
        raise click.UsageError("You must specify either --bootstrap-controller or --bootstrap-server.")
    properties: Mapping[str, str] = {}
    if config_path is not None:
        files = OsFiles()
        if not files.exists(config_path):
            raise LocalError(f"Properties file {config_path} does not exists!")  # sic
        properties = parse_properties(files.read_file(config_path), path=config_path)
    return Connection(tuple(split_list(servers or "")), tuple(split_list(controllers or "")), config_path, properties)


def print_json(**fields: object) -> None:
    """One object on one line."""
    click.echo(json.dumps(fields, ensure_ascii=False, separators=(",", ":")))
