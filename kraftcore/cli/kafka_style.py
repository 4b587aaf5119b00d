"""Commands that Kafka has as well end as Kafka's do: wrong usage is exit status 1, what went wrong is one bare line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from kraftcore.cli.output import printable
from kraftcore.errors import (
    KraftError,
    LocalError,
    RefusedError,
    StorageError,
    UnreachableError,
    UnsupportedVersionError,
)

_SHORT = re.compile(r"[+-]?[0-9]{1,100}", re.ASCII)
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


config_option = click.option(
    "--config",
    "-c",
    "path",
    required=True,
    type=click.Path(),
    help="The server's .properties file: which directories, which node, which role.",
)


class KafkaFailure(click.ClickException):
    """What went wrong, in Kafka's words: one line on stderr without a prefix, exit status 1."""

    def format_message(self) -> str:
        """What is printed; some of it may come from the other side."""
        return printable(self.message)

    def show(self, file: Any = None) -> None:
        """Print it."""
        click.echo(self.format_message(), file=file, err=file is None)


class KafkaUsageError(click.UsageError):
    """Wrong usage, with the exit status that Kafka's tools have for it."""

    exit_code = 1


@contextmanager
def kafka_status() -> Iterator[None]:
    """Turn errors into what Kafka's tools end with."""
    try:
        yield
    except click.UsageError as error:
        raise KafkaUsageError(error.format_message(), error.ctx) from None
    except StorageError as error:
        raise KafkaFailure(f"{error.filename}: {error.strerror}") from None
    except KraftError as error:
        raise KafkaFailure(words(error)) from None


class KafkaGroup(click.Group):
    """A group of such commands."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        # Without a command it is wrong usage, as for Kafka's tools.
        super().__init__(*arguments, **{"no_args_is_help": False, **settings})

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Read the group's own arguments."""
        with kafka_status():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> object:
        """Run a command of the group."""
        with kafka_status():
            return super().invoke(ctx)


def words(error: KraftError) -> str:
    """What Kafka's tools print for an error, and for an unreachable quorum why it is so."""
    if isinstance(error, RefusedError):
        return f"{JAVA_ERRORS}{exception_name(error.error)}: {error.message}"
    if isinstance(error, UnsupportedVersionError):
        return f"{JAVA_ERRORS}UnsupportedVersionException: {error}"
    if isinstance(error, UnreachableError):
        return f"{JAVA_ERRORS}TimeoutException: {error}\n{last_failure(error)}"
    return str(error)


def last_failure(error: UnreachableError) -> str:
    """The line that says why nobody was reached."""
    doubt = "; whether it was carried out is unknown" if error.outcome_unknown else ""
    return f"Last failure: {error.last_failure}{doubt}"


def short(text: str) -> int | None:
    """What Java's Short.parseShort makes of a text; None where it refuses."""
    if not _SHORT.fullmatch(text):
        return None
    number = int(text)
    return number if -0x8000 <= number <= 0x7FFF else None


def feature_level(text: str) -> tuple[str, int]:
    """Read ``feature=level``.

    Raises:
        LocalError: it is not one.
    """
    name, equals, level = (part.strip() for part in text.partition("="))
    if not equals:
        raise LocalError(f"Can't parse feature=level string {text}: equals sign not found.")
    number = short(level)
    if number is None:
        raise LocalError(f"Can't parse feature=level string {text}: unable to parse {level} as a short.")
    return name, number


def exception_name(error_name: str) -> str:
    """Name of Kafka's exception for an error, ``VoterNotFoundException`` for ``VOTER_NOT_FOUND``."""
    name = ODD_EXCEPTIONS.get(error_name) or "".join(part.capitalize() for part in error_name.split("_"))
    return name if name.endswith("Exception") else name + "Exception"
