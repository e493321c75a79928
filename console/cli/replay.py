"""`gconsole replay`: the TUI on a recorded session."""

from __future__ import annotations

from pathlib import Path

import click

from .options import sessions_folder


@click.command()
@click.argument("session")
@sessions_folder
@click.option(
    "--at",
    "start",
    metavar="TIME",
    help="Start position: 14:02:30, 90s (after the start), -5m (before the end), 50% or 2026-11-21T08:30:00.",
)
@click.option(
    "--speed", type=float, default=1.0, show_default=True, help="Playback speed: 0.25, 0.5, 1, 2, 5, 10, 30 or 100."
)
@click.option("--paused", is_flag=True, help="Start paused; press space to play.")
def replay(session: str, folder: Path, start: str | None, speed: float, paused: bool) -> int:
    """Replay SESSION in the TUI.

    Keys: space play/pause, [ and ] previous/next event, < and > speed, T jump to time (or click the time line).
    Without a terminal, use gconsole batch --from SESSION.
    """
    from ..session.format.layout import SessionError, find
    from ..session.replay import SPEEDS, Replay
    from ..text.sanitize import printable
    from ..text.timespec import TimeSpecError, instant_ns
    from .terminal import clear_inherited_size, is_terminal_output, require_terminal

    if speed not in SPEEDS:
        raise click.BadParameter(f"use one of {', '.join(f'{choice:g}' for choice in SPEEDS)}", param_hint="--speed")
    if is_terminal_output():
        require_terminal("gconsole batch --from SESSION")
        clear_inherited_size()
    try:
        player = Replay(find(session, folder), history_bytes=1 << 30)
    except (SessionError, OSError) as error:
        raise click.UsageError(printable(str(error))) from error
    from ..tui.keymap.file import keys_path, read_keys
    from ..tui.keymap.hints import every_action
    from ..tui.replay_app import ReplayApp
    from ..tui.theme.catalog import ThemeCatalog

    if start is not None:
        try:
            player.jump(instant_ns(start, player.begin, player.end))
        except TimeSpecError as error:
            raise click.BadParameter(str(error), param_hint="--at") from error
    player.speed, player.is_playing = speed, not paused
    keys = read_keys(keys_path(), every_action())
    app = ReplayApp(player, themes=ThemeCatalog.of_this_user(), keys=keys, clipboard="both")
    app.run()
    return app.return_code or 0
