"""Commands that open the TUI in this terminal: tui, link, replay, diff."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING

import click

from ..text.documents import pretty
from ..text.sanitize import printable, printable_lines
from ..text.timespec import INSTANT_FORMS
from .completion import complete_targets
from .main import EXIT_INTERRUPTED
from .options import json_option, linear_option, load_target, overrides_option, session_argument, usage_errors
from .terminal import elapsed_shown, print_text, require_consent

if TYPE_CHECKING:
    from ..analysis.comparison import Comparison
    from ..session.format.layout import Session
    from ..tui.models.destination import Destination


@click.command(epilog="Press ? in the TUI to list all keys.")
@click.argument("targets", metavar="TARGET...", nargs=-1, required=True, shell_complete=complete_targets)
@overrides_option
@linear_option
def tui(targets: tuple[str, ...], overrides: tuple[str, ...], linear: bool) -> int:
    """Open the TUI.

    `gconsole TARGET` is equivalent, unless TARGET is the name of a subcommand. Of several TARGETs one is shown at a
    time; Ctrl-N shows the next one, and a line has the worst finding of each other one.
    """
    from ..config import ConfigError, target_key
    from .live import OtherTarget, run_tui

    keys = [target_key(target) for target in targets]
    twice = next((target for number, target in enumerate(targets) if keys[number] in keys[:number]), None)
    if twice is not None:
        raise click.UsageError(f"{printable(twice)} is named twice")
    loaded: list[OtherTarget] = []
    errors: list[str] = []
    for target in targets:
        try:
            config = load_target(target, overrides)
        except (ConfigError, click.UsageError) as error:
            if len(targets) == 1:
                raise
            errors.append(error.format_message() if isinstance(error, click.UsageError) else str(error))
        else:
            loaded.append((config, partial(load_target, target, overrides, quiet=True), target))
    if errors:
        raise click.UsageError("\n".join(errors))
    (config, read, target), *others = loaded
    return run_tui(config, read, target=target, linear=linear, others=others)


@click.command()
@click.argument("url", metavar="LINK")
def link(url: str) -> int:
    """Open the screen of LINK, which `L` in the TUI copied: live, or in a recorded session.

    A hosts.toml that a link names is used after a question only, if it names programs to run or keys to use.
    """
    from pathlib import Path

    from ..tui.models.destination import LinkError, parse_link
    from ..tui.views.registry import VIEWS
    from .live import run_tui

    try:
        target, place = parse_link(url, [row.name for row in VIEWS])
    except LinkError as error:
        raise click.BadParameter(str(error), param_hint="LINK") from error
    if Path(target).is_dir():
        return _open_session(target, place)
    if Path(target).is_file():
        require_consent(Path(target), target, is_trusted=False)
    read = partial(load_target, target, (), quiet=True)
    return run_tui(load_target(target, ()), read, target=target, place=place)


def _open_session(path: str, place: Destination) -> int:
    """Replay the session in a folder, paused at the instant of the place."""
    from ..session.format.layout import find, sessions_folder

    with usage_errors():
        session = find(path, sessions_folder(None))
    return _replay(session, place.at or None, 1.0, is_playing=not place.at, place=place)


@click.command()
@session_argument("session")
@click.option(
    "--at",
    "start",
    metavar="TIME",
    help=f"Start position: {INSTANT_FORMS}.",
)
@click.option(
    "--speed", type=float, default=1.0, show_default=True, help="Playback speed: 0.25, 0.5, 1, 2, 5, 10, 30 or 100."
)
@click.option("--paused", is_flag=True, help="Start paused; press space to play.")
@linear_option
def replay(session: Session, start: str | None, speed: float, paused: bool, linear: bool) -> int:
    """Replay SESSION in the TUI.

    Keys: space play/pause, [ and ] previous/next event, < and > speed, T jump to time (or click the time line).
    Without a terminal, use gconsole batch --from SESSION.
    """
    from ..session.replay import SPEEDS

    if speed not in SPEEDS:
        raise click.BadParameter(f"use one of {', '.join(f'{choice:g}' for choice in SPEEDS)}", param_hint="--speed")
    return _replay(session, start, speed, is_playing=not paused, linear=linear)


def _replay(
    session: Session,
    start: str | int | None,
    speed: float,
    *,
    is_playing: bool,
    place: Destination | None = None,
    linear: bool = False,
) -> int:
    """Replay a session from `start`, an instant as text or in ns; it begins at `place`."""
    from ..session.replay import Replay
    from ..text.timespec import TimeSpecError, instant_ns
    from .terminal import clear_inherited_size, is_line_terminal, require_terminal

    is_linear = linear or is_line_terminal()
    if not is_linear:
        require_terminal("gconsole batch --from SESSION")
        clear_inherited_size()
    with usage_errors():
        player = Replay(session, history_bytes=1 << 30)
    from ..tui.keymap.file import keys_path, read_keys
    from ..tui.keymap.hints import every_action
    from ..tui.replay_app import ReplayApp
    from ..tui.theme.catalog import ThemeCatalog

    if isinstance(start, str):
        try:
            start = instant_ns(start, player.begin, player.end)
        except TimeSpecError as error:
            raise click.BadParameter(str(error), param_hint="--at") from error
    if is_linear:
        from .linear.replay import run_linear_replay

        player.speed, player.is_playing = speed, is_playing
        return run_linear_replay(player, start)
    if start is not None and place is not None:  # the place exists at that instant, perhaps not at the beginning
        player.jump(start)
        start = None
    player.speed, player.is_playing = speed, is_playing
    keys = read_keys(keys_path(), every_action())
    app = ReplayApp(player, themes=ThemeCatalog.of_this_user(), keys=keys, clipboard="both", place=place, start=start)
    app.run()
    return app.return_code or 0


@click.command()
@session_argument("a", "b")
@json_option
@click.option("--text", "as_text", is_flag=True, help="Print text even on a terminal, instead of opening the TUI.")
def diff(a: Session, b: Session, as_json: bool, as_text: bool) -> int:
    """Compare sessions A and B: nodes, versions, links, findings and metric distributions.

    Opens a TUI on a terminal, prints text otherwise. Exit code 1 if nodes, their facts or findings differ; metric
    differences do not count.
    """
    from ..runtime.recorded import RecordedSession

    with usage_errors():
        for session in (a, b):
            session.read()
        on_screen = not (as_json or as_text) and _is_interactive()
        if on_screen:
            comparison = _run_diff_app(a, b)
        else:
            with elapsed_shown(f"comparing {a.name} and {b.name}"):
                result = RecordedSession(a.path).diff(RecordedSession(b.path))
            comparison = result.comparison
    if comparison is None:
        return EXIT_INTERRUPTED
    if as_json:
        print_text(pretty(comparison), is_document=True)
    elif not on_screen:
        print_text(printable_lines(str(result)))
    return 1 if comparison.is_different else 0


def _is_interactive() -> bool:
    """Whether all streams are a terminal with cursor control."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return all(stream.isatty() for stream in streams) and os.environ.get("TERM") not in (None, "dumb", "unknown")


def _run_diff_app(a: Session, b: Session) -> Comparison | None:
    """Run the TUI; None if the user quits before the comparison is complete."""
    from ..session.format.layout import SessionError
    from ..tui.diff_screen import DiffApp, diff_of
    from ..tui.theme.catalog import ThemeCatalog
    from .terminal import clear_inherited_size

    clear_inherited_size()
    app = DiffApp(diff_of(a, b), ThemeCatalog.of_this_user())
    app.run()
    if app.error:
        raise SessionError(app.error)
    return app.comparison
