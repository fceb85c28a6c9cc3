"""``mainspring completion``: what a shell needs to complete our commands."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from mainspring.cli.general import offline


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
@offline
def completion(context: click.Context, shell: str) -> None:
    """Print the script that makes a shell complete commands and options.

    \b
    eval "$(mainspring completion bash)"          # in ~/.bashrc
    eval "$(mainspring completion zsh)"           # in ~/.zshrc
    mainspring completion fish > ~/.config/fish/completions/mainspring.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click knows these three"
    click.echo(kind(context.find_root().command, {}, "mainspring", "_MAINSPRING_COMPLETE").source())
