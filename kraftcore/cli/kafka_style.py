"""Errors of the commands that Kafka has, too: wrong usage is exit status 1, an error is one line without a prefix."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from kraftcore.cli.output import printable
from kraftcore.configdef.types import read_integer
from kraftcore.errors import (
    AuthenticationError,
    KraftError,
    LocalError,
    RefusedError,
    StorageError,
    UnreachableError,
    UnsupportedVersionError,
)

_SHORT = re.compile(r"[+-]?[0-9]{1,100}", re.ASCII)
_ARGUMENTS = "kraftcore.arguments"
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
    "TOPIC_AUTHORIZATION_FAILED": "TopicAuthorizationException",
    "GROUP_AUTHORIZATION_FAILED": "GroupAuthorizationException",
    "NON_EMPTY_GROUP": "GroupNotEmptyException",
    "SASL_AUTHENTICATION_FAILED": "SaslAuthenticationException",
    "DELEGATION_TOKEN_AUTH_DISABLED": "DelegationTokenDisabledException",
    "DELEGATION_TOKEN_AUTHORIZATION_FAILED": "DelegationTokenAuthorizationException",
    "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED": "UnsupportedByAuthenticationException",
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
    """An error in Kafka's words: one line on stderr without a prefix, exit status 1."""

    def format_message(self) -> str:
        """The printed text, escaped, for parts may come from another node."""
        return printable(self.message)

    def show(self, file: Any = None) -> None:
        """Print it."""
        click.echo(self.format_message(), file=file, err=file is None)


class StdoutFailure(KafkaFailure):
    """An error that is printed on stdout, as by some of Kafka's tools."""

    def show(self, file: Any = None) -> None:
        """Print it."""
        click.echo(self.format_message(), file=file)


class KafkaUsageError(click.UsageError):
    """Wrong usage, with the exit status of Kafka's tools."""

    exit_code = 1


@contextmanager
def kafka_status() -> Iterator[None]:
    """Turn errors into those of Kafka's tools."""
    try:
        yield
    except click.UsageError as error:
        raise KafkaUsageError(error.format_message(), error.ctx) from None
    except KraftError as error:
        raise KafkaFailure(words(error)) from None


class KafkaGroup(click.Group):
    """A group of commands that Kafka has, too."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        # A missing command is wrong usage, as for Kafka's tools.
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


class KafkaTool(click.Command):
    """A command of Kafka's without sub-commands: wrong usage is one line, and a hint at the help.

    Args:
        failed: makes the tool's output from an error; None: the error is printed on stderr.
    """

    def __init__(
        self, *arguments: Any, failed: Callable[[KraftError], click.ClickException] | None = None, **settings: Any
    ) -> None:
        super().__init__(*arguments, **settings)
        self._failed = failed or (lambda error: KafkaFailure(words(error)))

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Read the arguments."""
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            raise wrong_usage(_usage_words(error), error.ctx) from None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments, and keep them for ``arguments_of``."""
        ctx.meta[_ARGUMENTS] = tuple(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        try:
            _check_repeated(ctx)
            return super().invoke(ctx)
        except click.UsageError as error:
            raise wrong_usage(error.message, ctx) from None
        except KraftError as error:
            failure = self._failed(error)
            if ctx.params.get("output") == "json" and isinstance(error, UnreachableError) and error.findings:
                failure = _failure_beside_json(error, failure)
            raise failure from None


def _failure_beside_json(error: UnreachableError, failure: click.ClickException) -> click.ClickException:
    """Print who answers as JSON; returns the failure, which does not go to stdout then, too."""
    from kraftcore.admin import SurveyedError  # not for commands that ask nobody
    from kraftcore.cli.admin_tool import print_survey

    if isinstance(error, SurveyedError) and type(failure) in (KafkaFailure, StdoutFailure):
        print_survey(error)
        return KafkaFailure(failure.message)
    return failure


def arguments_of(ctx: click.Context) -> tuple[str, ...]:
    """The arguments behind a ``KafkaTool``'s name."""
    found: tuple[str, ...] = ctx.meta[_ARGUMENTS]
    return found


def options_in_order(ctx: click.Context) -> list[str]:
    """Names of a ``KafkaTool``'s options on the command line, without dashes, in order, repeated ones included."""
    return [each.opts[0].lstrip("-") for each in _in_order(ctx)]


def _in_order(ctx: click.Context) -> Sequence[click.Parameter]:
    return ctx.command.make_parser(ctx).parse_args(list(arguments_of(ctx)))[2]


def _check_repeated(ctx: click.Context) -> None:
    """Refuse an option with one value that is given twice, as Kafka's tools do; click would take the last one."""
    for option, count in Counter(_in_order(ctx)).items():
        if count > 1 and isinstance(option, click.Option) and not (option.is_flag or option.multiple):
            name = option.opts[0].lstrip("-")
            raise LocalError(f"Found multiple arguments for option {name}, but you asked for only one")


def wrong_usage(message: str, ctx: click.Context | None) -> KafkaFailure:
    """The error of wrong usage: Kafka's words and a hint at the help; Kafka's tools print all of the help."""
    hint = "" if ctx is None else f"\nTry '{ctx.command_path} --help' for help."
    return KafkaFailure(message + hint)


def _usage_words(error: click.UsageError) -> str:
    """The words of Kafka's command line reader."""
    if isinstance(error, click.NoSuchOption):
        return f"{error.option_name.lstrip('-')} is not a recognized option"
    if isinstance(error, click.BadOptionUsage):
        return f"Option {error.option_name.lstrip('-')} requires an argument"
    if isinstance(error, click.BadParameter) and error.param is not None and error.ctx is not None:
        return error.message
    return error.format_message()


if TYPE_CHECKING:
    IntegerType = click.ParamType[int]
else:  # not generic before click 8.2
    IntegerType = click.ParamType


class JavaNumber(IntegerType):
    """A number as Java's ``Integer.valueOf`` or ``Long.valueOf`` reads it.

    Args:
        bits: 32 or 64.
    """

    name = "integer"

    def __init__(self, bits: int = 32) -> None:
        self._bits = bits

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read the number."""
        number = value if isinstance(value, int) else read_integer(value, self._bits)
        if number is None:
            option = "" if param is None or param.name is None else param.opts[0].lstrip("-")
            self.fail(f"Cannot parse argument '{value}' of option {option}", param, ctx)
        return number


def java_int(text: str) -> int:
    """Read a number as Java's ``Integer.parseInt`` does.

    Raises:
        LocalError: it is not a number of 32 bits, in Java's words.
    """
    number = read_integer(text)
    if number is None:
        radix = " under radix 10" if text.lstrip("+-").isdecimal() else ""
        raise LocalError(f'For input string: "{text}"{radix}')
    return number


def java_split(text: str, separator: str) -> list[str]:
    """Split a text as Java's ``String.split`` does: empty parts at its end are left out."""
    parts = text.split(separator)
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts


def given(ctx: click.Context, *, apart_from: Sequence[str] = ()) -> list[str]:
    """Names of the options that the command line has, without dashes, in the order of their declaration."""
    found = []
    for parameter in ctx.command.params:
        name = parameter.name
        if name is None or ctx.get_parameter_source(name) is not click.core.ParameterSource.COMMANDLINE:
            continue
        option = parameter.opts[0].lstrip("-")
        if option not in apart_from:
            found.append(option)
    return found


def check_not_with(present: Sequence[str], option: str, others: Sequence[str]) -> None:
    """Refuse an option beside others, in the words of Kafka's tools.

    Raises:
        UsageError: it is given beside one of them; the first is named.
    """
    if option in present:
        for other in others:
            if other in present:
                raise click.UsageError(f'Option "[{option}]" can\'t be used with option "[{other}]"')


def check_required(present: Sequence[str], *options: str) -> None:
    """Refuse a command line without one of these, in the words of Kafka's tools.

    Raises:
        UsageError: one is missing.
    """
    for option in options:
        if option not in present:
            raise click.UsageError(f'Missing required argument "[{option}]"')


def plain_words(error: KraftError) -> str:
    """The words of an error without the name of Kafka's exception; for an unreachable quorum also the cause."""
    if isinstance(error, RefusedError):
        return error.message
    if isinstance(error, UnreachableError):
        return f"{error}\n{last_failure(error)}"
    return words(error) if isinstance(error, StorageError) else str(error)


def words(error: KraftError) -> str:
    """The words of Kafka's tools for an error; for an unreachable quorum also the cause."""
    if isinstance(error, RefusedError):
        return f"{JAVA_ERRORS}{exception_name(error.error)}: {error.message}"
    if isinstance(error, UnsupportedVersionError):
        return f"{JAVA_ERRORS}UnsupportedVersionException: {error}"
    if isinstance(error, AuthenticationError):
        return f"{JAVA_ERRORS}SaslAuthenticationException: {error}"
    if isinstance(error, UnreachableError):
        return f"{JAVA_ERRORS}TimeoutException: {error}\n{last_failure(error)}"
    if isinstance(error, StorageError):
        return f"{error.filename}: {error.strerror}"
    return str(error)


def last_failure(error: UnreachableError) -> str:
    """The lines that say who answers, and why no answer was had."""
    doubt = "; whether it was carried out is unknown" if error.outcome_unknown else ""
    return "\n".join((*error.findings, f"Last failure: {error.last_failure}{doubt}"))


def short(text: str) -> int | None:
    """Read a number as Java's ``Short.parseShort`` does; None where that refuses."""
    if not _SHORT.fullmatch(text):
        return None
    number = int(text)
    return number if -0x8000 <= number <= 0x7FFF else None


def feature_level(text: str) -> tuple[str, int]:
    """Read ``feature=level``.

    Raises:
        LocalError: the text has another form.
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
