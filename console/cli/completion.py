"""`gconsole completion SHELL`: shell completion scripts."""

from __future__ import annotations

import click

#: How each shell loads the script.
_INSTALL = {
    "bash": "gconsole completion bash > ~/.local/share/bash-completion/completions/gconsole",
    "zsh": "gconsole completion zsh > ~/.zfunc/_gconsole   # a folder of $fpath",
    "fish": "gconsole completion fish > ~/.config/fish/completions/gconsole.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(tuple(_INSTALL)))
def completion(shell: str) -> int:
    """Print the completion script for bash, zsh or fish.

    \b
    gconsole completion bash > ~/.local/share/bash-completion/completions/gconsole
    gconsole completion fish > ~/.config/fish/completions/gconsole.fish
    """
    from click.shell_completion import get_completion_class

    from .main import gconsole

    complete = get_completion_class(shell)
    assert complete is not None, "the choices are the shells that click supports"
    click.echo(f"# {_INSTALL[shell]}\n" + complete(gconsole, {}, "gconsole", "_GCONSOLE_COMPLETE").source())
    return 0
