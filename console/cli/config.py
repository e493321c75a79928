"""Commands that set gconsole up: config, hosts, bundle, completion."""

from __future__ import annotations

from pathlib import Path

import click

from ..text.documents import pretty
from ..text.format import plural
from .completion import complete_nodes, complete_targets
from .options import json_option, load_target, target
from .terminal import print_result


@click.group()
def config() -> None:
    """Show the effective configuration, or write a starter hosts.toml."""


@config.command()
@target
@json_option
def show(target: str, overrides: tuple[str, ...], as_json: bool) -> None:
    """Print every effective config value of TARGET (file or node set) and its source."""
    from ..config.show import config_data, config_text

    loaded = load_target(target, overrides, connects=False)
    click.echo(pretty(config_data(loaded)) if as_json else config_text(loaded))


@config.command()
@json_option
def keys(as_json: bool) -> None:
    """Print all actions and key bindings as a commented keys.toml.

    \b
    gconsole config keys > ~/.config/gconsole/keys.toml
    """
    from ..tui.keymap.actions import FIXED
    from ..tui.keymap.file import keys_path, keys_text
    from ..tui.keymap.hints import every_action

    if as_json:
        from .json_documents import KeyBinding, KeyBindings

        actions = [
            KeyBinding(action.id, tuple(filter(None, action.keys.split(","))), action.help) for action in every_action()
        ]
        click.echo(pretty(KeyBindings(path=str(keys_path()), fixed=tuple(FIXED), actions=tuple(actions))))
        return
    click.echo(f"# Save as {keys_path()}")
    click.echo(keys_text(every_action()), nl=False)


@config.command()
@click.argument("path", default="hosts.toml")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@json_option
def init(path: str, force: bool, as_json: bool) -> None:
    """Write a commented hosts.toml to PATH."""
    from ..config import schema
    from .json_documents import ConfigFile

    schema.init(path, overwrite=force)
    print_result(ConfigFile(path=path), f"Wrote {path}. Edit hosts, then run: gconsole {path}", as_json=as_json)


@click.group()
def hosts() -> None:
    """List, add and remove the nodes of a hosts.toml."""


@hosts.command("list")
@click.argument("file", shell_complete=complete_targets)
@json_option
def list_entries(file: str, as_json: bool) -> None:
    """Print the entries of FILE."""
    from ..config import edit
    from ..config.show import entries_data, entries_text

    entries = edit.entries(file)
    click.echo(pretty(entries_data(entries)) if as_json else entries_text(entries))


@hosts.command()
@click.argument("file", shell_complete=complete_targets)
@click.argument("names", metavar="HOSTS")
@click.option("--address", help="Address of the host, if different from its name. Single host only.")
@click.option("--port", type=int, help="SSH port.")
@click.option("--user", help="SSH user.")
@click.option("--tag", "tags", multiple=True, help="Tag for filtering. Repeatable.")
@click.option("--python", help="Python interpreter on these nodes.")
@json_option
def add(
    file: str, names: str, address: str | None, port: int | None, user: str | None, tags: tuple[str, ...],
    python: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Add an entry for HOSTS (node[001-064], a,b, @group) to FILE."""
    from ..config import edit
    from .json_documents import ChangedHosts

    values = {"address": address, "port": port, "user": user, "tags": tags, "python": python}
    count = edit.add(file, names, values)
    document = ChangedHosts(file=file, added=count, removed=0)
    print_result(document, f"{file}: {plural(count, 'node')} added", as_json=as_json)


@hosts.command()
@click.argument("file", shell_complete=complete_targets)
@click.argument("names", metavar="HOSTS", shell_complete=complete_nodes)
@json_option
def remove(file: str, names: str, as_json: bool) -> None:
    """Remove HOSTS from all entries of FILE."""
    from ..config import edit
    from .json_documents import ChangedHosts

    count = edit.remove(file, names)
    document = ChangedHosts(file=file, added=0, removed=count)
    print_result(document, f"{file}: {plural(count, 'node')} removed", as_json=as_json)


@click.command()
@click.option(
    "--wheels",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Read wheels from this folder instead of the package index (for air-gapped sites).",
)
@click.option("--list", "only_list", is_flag=True, help="List cached wheels without fetching.")
@json_option
def bundle(wheels: Path | None, only_list: bool, as_json: bool) -> int:
    """Fetch py-spy for x86_64 and aarch64 nodes into the local cache.

    Not needed if console and nodes run Linux on the same architecture.
    """
    from ..fleet.deploy import binaries

    if not only_list:
        try:
            binaries.fill(wheels)
        except binaries.WheelhouseError as error:
            raise click.ClickException(str(error)) from error
    from .json_documents import CachedBinaries

    cached = binaries.cached()
    print_result(CachedBinaries(binaries=cached), "\n".join(binary.line for binary in cached), as_json=as_json)
    return 0


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
    gconsole completion zsh > ~/.zfunc/_gconsole
    gconsole completion fish > ~/.config/fish/completions/gconsole.fish
    """
    from click.shell_completion import get_completion_class

    from .main import gconsole

    complete = get_completion_class(shell)
    assert complete is not None, "the choices are the shells that click supports"
    script = complete(gconsole, {}, "gconsole", "_GCONSOLE_COMPLETE").source().lstrip()
    script = script.replace('(string split "," ', '(string split -m 1 "," ')  # fish: a set of nodes has commas, too
    first, _, rest = script.partition("\n") if shell == "zsh" else ("", "", script)  # compinit reads only line 1
    click.echo("\n".join([*([first] if first else []), f"# {_INSTALL[shell]}", rest]))
    return 0
