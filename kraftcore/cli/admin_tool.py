"""Options and connections of the commands that talk to a quorum; ``kafka_style`` has their errors and exit statuses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any, TypeVar

import click
import trio

from kraftcore import admin
from kraftcore.admin import AdminClient, SurveyedError, Timing
from kraftcore.cli.output import print_json
from kraftcore.cli.waiting import telling
from kraftcore.config.addresses import split_list
from kraftcore.config.login import SaslLogin, read_client_login
from kraftcore.config.properties import Properties, load_properties
from kraftcore.config.security import SecurityProtocol
from kraftcore.core.disk.os_files import OsFiles
from kraftcore.errors import LocalError
from kraftcore.transports.tcp import TlsFiles

T = TypeVar("T")
_PROTOCOLS = tuple(each.name for each in SecurityProtocol)
_KAFKAS = Timing()


@dataclass(frozen=True, slots=True)
class Connection:
    """The addresses and settings by which a command connects.

    Attributes:
        servers: addresses of brokers, ``host:port``.
        controllers: addresses of controllers; exactly one of the two is not empty.
        config_path: file behind --command-config, or None.
        properties: content of that file; never printed, for it may have passwords.
    """

    servers: tuple[str, ...]
    controllers: tuple[str, ...]
    config_path: str | None
    properties: Mapping[str, str] = field(repr=False)

    @property
    def through_controllers(self) -> bool:
        """Whether --bootstrap-controller was given."""
        return bool(self.controllers)

    def run(
        self, work: Callable[[AdminClient], Awaitable[T]], *, is_look: bool = False, default: Timing = _KAFKAS
    ) -> T:
        """Connect, do the work, disconnect; calls that take long are named on stderr.

        Args:
            work: makes calls.
            is_look, default: see ``timing``.

        Raises:
            KraftError: raised by the work, or settings cannot be used.
        """
        return trio.run(partial(self._run, work, self.timing(is_look=is_look, default=default)))

    async def _run(self, work: Callable[[AdminClient], Awaitable[T]], timing: Timing) -> T:
        async with (
            telling() as watch,
            admin.connect(
                bootstrap_servers=self.servers,
                bootstrap_controllers=self.controllers,
                tls=self.tls(),
                sasl=self.sasl(),
                timing=timing,
                watch=watch,
            ) as client,
        ):
            return await work(client)

    def tls(self) -> TlsFiles | None:
        """The TLS files, from ``security.protocol`` and ``ssl.*``; None: no encryption.

        Raises:
            LocalError: settings that cannot be used.
        """
        find = self.properties.get
        if not self._protocol.endswith("SSL"):
            return None
        for kind in ("keystore", "truststore"):
            if find(f"ssl.{kind}.location") and find(f"ssl.{kind}.type", "JKS").upper() != "PEM":
                raise LocalError(f"{self.config_path}: ssl.{kind}.type must be PEM")
        algorithm = find("ssl.endpoint.identification.algorithm", "https").strip().lower()
        if algorithm not in ("https", ""):
            raise LocalError(f"{self.config_path}: ssl.endpoint.identification.algorithm must be https, or empty")
        return TlsFiles(
            certificate=find("ssl.keystore.location"),
            ca=find("ssl.truststore.location"),
            key_password=find("ssl.key.password"),
            check_host_name=algorithm != "",
        )

    def sasl(self) -> SaslLogin | None:
        """The login, from ``security.protocol``, ``sasl.mechanism`` and ``sasl.jaas.config``; None: no login.

        Raises:
            LocalError: settings that cannot be used.
        """
        if not self._protocol.startswith("SASL"):
            return None
        return read_client_login(Properties(self.properties, {}, self.config_path))

    @property
    def _protocol(self) -> str:
        protocol = self.properties.get("security.protocol", "PLAINTEXT").strip().upper()
        if protocol not in _PROTOCOLS:
            raise LocalError(f"{self.config_path}: security.protocol={protocol} is none of {', '.join(_PROTOCOLS)}")
        return protocol

    def timing(self, *, is_look: bool = False, default: Timing = _KAFKAS) -> Timing:
        """The timeouts, from ``default.api.timeout.ms`` and ``request.timeout.ms``.

        Args:
            is_look: the command only looks at the quorum: it ends when it is known that too few nodes answer, unless
                the file says how long to wait.
            default: has the timeouts that the file does not give.

        Raises:
            LocalError: a value is not a number.
        """
        return Timing(
            self._milliseconds("default.api.timeout.ms", default.call_timeout_ms),
            self._milliseconds("request.timeout.ms", default.request_timeout_ms),
            waits_for_nodes=not is_look or "default.api.timeout.ms" in self.properties,
        )

    def _milliseconds(self, key: str, default: int) -> int:
        text = self.properties.get(key, str(default)).strip()
        if not text.isdecimal() or not 0 < int(text) < 1 << 31:
            raise LocalError(f"{self.config_path}: {key}={text} is not a number of milliseconds above 0")
        return int(text)


def print_survey(error: SurveyedError) -> None:
    """Print who answers as an object of JSON output."""
    print_json(error=str(error), **survey_fields(error))


def survey_fields(error: SurveyedError) -> dict[str, object]:
    """Who answers, and what follows, for an object of JSON output."""
    found = error.survey
    return {
        "lastFailure": error.last_failure,
        "outcomeUnknown": error.outcome_unknown,
        "nodes": [
            {
                "nodeId": node.id,
                "endpoint": node.address,
                "answers": node.answers,
                "trouble": node.trouble or None,
                "unreachableSince": node.unreachable_since_ms,
                "leaderId": node.leader_id,
            }
            for node in found.nodes
        ],
        "voters" if found.are_voters else "controllers" if found.through_controllers else "brokers": found.members,
        "answering": found.answering,
        "majority": found.majority,
        "finding": found.finding,
        "advice": found.advice or None,
    }


def connected(*, short: bool = False) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Give a command the options that say where to connect; it gets a ``Connection`` as its first argument.

    They may stand in front of a sub-command, as in kafka-metadata-quorum, or behind it, as in kafka-cluster. When too
    few nodes answer, JSON output is an object that says who does.

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
            try:
                return function(make_connection(*given.values()), **options)
            except SurveyedError as error:
                if options.get("output") == "json":
                    print_survey(error)
                raise

        return bootstrap_options(short=short)(command)

    return decorate


def server_options(*, controllers: bool) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """--bootstrap-server and --command-config, for commands that check themselves whether they are given.

    Args:
        controllers: offer --bootstrap-controller, too.
    """

    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        for name, metavar, text in _OPTIONS if controllers else (_OPTIONS[0], _OPTIONS[2]):
            function = click.option(name, metavar=metavar, help=text)(function)
        return function

    return decorate


_OPTIONS = (
    (
        "--command-config",
        "FILE",
        (
            "Properties file that says how to connect: security.protocol, ssl.* (files in PEM), sasl.mechanism, "
            "sasl.jaas.config, request.timeout.ms, default.api.timeout.ms. Without it: unencrypted, and without a "
            "login."
        ),
    ),
    (
        "--bootstrap-controller",
        "LIST",
        "Controllers to ask, as host:port,host:port. One that answers is enough: it names the others.",
    ),
    (
        "--bootstrap-server",
        "LIST",
        (
            "Brokers to ask, as host:port,host:port. One that answers is enough: it names the others, and forwards to "
            "the controller what that has to do."
        ),
    ),
)


def bootstrap_options(*, short: bool = False) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """The bootstrap options, for groups that take them in front of their sub-commands."""

    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        for letter, (name, metavar, text) in zip(("-c", "-C", "-b"), _OPTIONS, strict=True):
            function = click.option(*((letter, name) if short else (name,)), metavar=metavar, help=text)(function)
        return function

    return decorate


def make_connection(servers: str | None, controllers: str | None, config_path: str | None) -> Connection:
    """Make the connection that the options describe.

    Raises:
        UsageError: neither or both kinds of addresses.
        LocalError, CorruptDataError, StorageError: the file cannot be used.
    """
    if servers is not None and controllers is not None:
        raise click.UsageError("argument --bootstrap-controller: not allowed with argument --bootstrap-server")
    if servers is None and controllers is None:
        raise click.UsageError("You must specify either --bootstrap-controller or --bootstrap-server.")
    properties: Mapping[str, str] = {}
    if config_path is not None:
        files = OsFiles()
        if not files.exists(config_path):
            raise LocalError(f"Properties file {config_path} does not exists!")  # sic
        properties = load_properties(config_path, {}).all
    # As in Kafka, empty entries are left out.
    brokers, voters = (tuple(filter(None, split_list(text or ""))) for text in (servers, controllers))
    return Connection(brokers, voters, config_path, properties)
