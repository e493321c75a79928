"""`gconsole replay`: the console over what was recorded."""

from __future__ import annotations

from pathlib import Path

import click

from .options import sessions_folder


@click.command()
@click.argument("session")
@sessions_folder
@click.option(
    "--at",
    metavar="TIME",
    help="Start at 14:02:30, 90s (after the start), -5m (before the end), 50% or 2026-11-21T08:30:00.",
)
@click.option("--speed", type=float, default=1.0, show_default=True, help="One of 0.25, 0.5, 1, 2, 5, 10, 30, 100.")
@click.option("--paused", is_flag=True, help="Stand still until space is pressed.")
def replay(session: str, folder: Path, at: str | None, speed: float, paused: bool) -> int:
    """Watch SESSION again, with the views and keys of the console.

    Space plays, [ and ] go to the event before and after, < and > change the speed, T goes to a time; so does a click
    on the time line. Without a terminal: gconsole batch --from SESSION.
    """
    from ..session.format.layout import SessionError, find
    from ..session.replay import SPEEDS, Replay
    from ..text.sanitize import printable
    from ..text.timespec import TimeSpecError, instant_ns
    from .screen import ask_the_terminal_for_its_size, refuse_a_terminal_that_cannot_draw, terminal_is_ours

    if speed not in SPEEDS:
        raise click.BadParameter(f"one of {', '.join(f'{one:g}' for one in SPEEDS)}", param_hint="--speed")
    if terminal_is_ours():
        refuse_a_terminal_that_cannot_draw("gconsole batch --from SESSION")
        ask_the_terminal_for_its_size()
    try:
        player = Replay(find(session, folder), history_bytes=1 << 30)
    except (SessionError, OSError) as error:
        raise click.UsageError(printable(str(error))) from error
    from ..tui.keymap.file import keys_path, read_keys
    from ..tui.keymap.hints import every_action
    from ..tui.replay_app import ReplayApp
    from ..tui.theme.catalog import ThemeCatalog

    if at is not None:
        try:
            player.jump(instant_ns(at, player.begin, player.end))
        except TimeSpecError as error:
            raise click.BadParameter(str(error), param_hint="--at") from error
    player.speed, player.is_playing = speed, not paused
    keys = read_keys(keys_path(), every_action())
    app = ReplayApp(player, themes=ThemeCatalog.of_this_user(), keys=keys, clipboard="both")
    app.run()
    return app.return_code or 0
