"""``kraftcore completion``: tab completion for the shells that click knows."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command(
    epilog="""\b
Examples:
  eval "$(kraftcore completion bash)"                                    in ~/.bashrc
  eval "$(kraftcore completion zsh)"                                     in ~/.zshrc
  kraftcore completion fish > ~/.config/fish/completions/kraftcore.fish
"""
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that completes commands, options and file names with the tab key."""
    from kraftcore.cli import cli

    found = get_completion_class(shell)
    if found is None:
        raise click.ClickException(f"no completion for {shell}")
    click.echo(found(cli, {}, "kraftcore", "_KRAFTCORE_COMPLETE").source())
