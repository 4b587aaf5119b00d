"""Options that the subcommands of ``kraftcore spark`` share."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from typing import Any

import click

tables_option = click.option(
    "--tables",
    required=True,
    type=click.Path(),
    metavar="DIR",
    help="Folder of the tables, or its URL where it is an object store's.",
)


class Moment(click.ParamType[datetime]):
    """A time in ISO 8601."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Read the text.

        Raises:
            UsageError: it is none.
        """
        try:
            return value if isinstance(value, datetime) else datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value}: expected ISO 8601, as 2026-11-21T14:05", param, ctx)


at_option = click.option(
    "--at", type=Moment(), metavar="TIME",
    help="Ask what the tables said at this moment in ISO 8601, as 2026-11-21T14:05; UTC, unless it ends with another "
         "zone. 'kraftcore spark clean' forgets what they said long ago.",
)  # fmt: skip


@dataclass(frozen=True)
class SparkOptions:
    """How Spark is started, and whether progress is printed.

    Attributes:
        master: where Spark runs; None: on this machine, unless Spark's own settings name another.
        memory: of its driver, with a unit.
        conf: more settings, each as KEY=VALUE.
        quiet: whether no progress is printed.
    """

    master: str | None
    memory: str
    conf: tuple[str, ...]
    quiet: bool

    @property
    def is_here(self) -> bool:
        """Whether Spark runs on this machine, so that small work can be done without Spark as well."""
        if self.master is None:
            return "SPARK_MASTER" not in os.environ and "MASTER" not in os.environ
        return self.master.startswith("local")


def spark_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of every subcommand, as its argument ``options``."""

    @wraps(command)
    def packed(master: str | None, memory: str, conf: tuple[str, ...], quiet: bool, **others: Any) -> Any:
        return command(options=SparkOptions(master, memory, conf, quiet), **others)

    for option in (
        click.option(
            "--master",
            metavar="URL",
            help="Where Spark runs, as local[4] or spark://host:7077.  [default: all processors of this machine]",
        ),
        click.option(
            "--memory", default="2g", show_default=True, help="Memory of Spark's driver, with a unit: 512m, 2g."
        ),
        click.option(
            "--conf",
            multiple=True,
            metavar="KEY=VALUE",
            help="A setting of Spark's, as spark.executor.memory=2g; may be repeated.",
        ),
        click.option("--quiet", is_flag=True, help="Print no progress on stderr."),
    ):
        packed = option(packed)
    return packed


def pairs(name: str, given: tuple[str, ...]) -> dict[str, str]:
    """Read KEY=VALUE options; ``name`` is the option's.

    Raises:
        UsageError: a text without ``=``.
    """
    found = {}
    for one in given:
        key, mark, value = one.partition("=")
        if not mark:
            raise click.UsageError(f"{name} {one}: expected KEY=VALUE")
        found[key] = value
    return found
