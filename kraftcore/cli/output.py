"""Functions by which commands print."""

from __future__ import annotations

from typing import TextIO

import click

output_option = click.option(
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="text: as Kafka's tool prints it, or for people where Kafka has no such tool. json: for programs.",
)


def print_json(**fields: object) -> None:
    """Print one object on one line."""
    import json  # most output is text

    click.echo(printable(json.dumps(fields, ensure_ascii=False, separators=(",", ":"))))


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a stream is a terminal. ``sys.stdout`` and ``sys.stderr`` are None if they were closed."""
    return stream is not None and stream.isatty()


def printable(text: str) -> str:
    """Escape a text from elsewhere by ``\\u``, as in JSON, so that it cannot control the terminal."""
    if text.isprintable():
        return text
    import json

    return "".join(each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text)
