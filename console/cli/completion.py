"""What the shell completes beside commands and options: targets, sessions, and nodes of the target before them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    import click

#: Most names that are offered.
_MOST: Final = 1_000


def complete_targets(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files ending in .toml here, named clusters, `local`; the shell's own files for a path."""
    if "/" in incomplete:
        return [CompletionItem(incomplete, type="file")]
    return _matching([*_toml_files(Path()), *_named_clusters(), "local"], incomplete)


def complete_sessions(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of the recorded sessions in the chosen folder; the shell's own files for a path."""
    from ..session.format.layout import all_sessions, sessions_folder

    if "/" in incomplete:
        return [CompletionItem(incomplete, type="file")]
    folder = ctx.params.get("folder")
    try:
        names = [session.name for session in all_sessions(folder or sessions_folder(None))]
    except OSError:
        names = []  # nothing to offer; the command itself reports the folder
    return _matching(names, incomplete)


def complete_sources(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Sessions and targets, for commands that take either."""
    sessions = complete_sessions(ctx, param, incomplete)
    return sessions if "/" in incomplete else [*sessions, *complete_targets(ctx, param, incomplete)]


def complete_nodes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of the nodes in the TARGET or FILE that was typed before, after the last comma."""
    from ..config import ConfigError, is_file_target, load

    # after an option whose value is being typed, click has parsed no arguments: they are the rest
    target = ctx.params.get("target") or ctx.params.get("file") or next(iter(ctx.args), None)
    if not isinstance(target, str) or not is_file_target(target):
        return []
    try:
        names = [node.name for node in load(target, environ={}).nodes]
    except ConfigError:
        return []  # the command itself reports the file
    before, comma, last = incomplete.rpartition(",")
    return [CompletionItem(f"{before}{comma}{item.value}") for item in _matching(names, last)]


def _matching(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in sorted(set(names)) if name.startswith(incomplete)][:_MOST]


def _toml_files(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in folder.iterdir() if entry.suffix == ".toml"]
    except OSError:
        return []


def _named_clusters() -> list[str]:
    import platformdirs

    folder = platformdirs.user_config_path("gconsole") / "clusters"
    return [f"@{name.removesuffix('.toml')}" for name in _toml_files(folder)]
