"""A real terminal: tmux on a server of the test's own, its screen read as text, its keys and mouse pressed."""

from __future__ import annotations

import itertools
import os
import subprocess
import time
from collections.abc import Mapping
from tempfile import TemporaryDirectory

DEADLINE_S = 90.0
_numbers = itertools.count(1)


class Tmux:
    """One terminal with a program in it; without a command it is a shell without settings."""

    def __init__(
        self, command: str = "", env: Mapping[str, str] | None = None, *, columns: int = 120, rows: int = 40
    ) -> None:
        self._name = f"gct{os.getpid()}-{next(_numbers)}"
        # Saved state of one test's console must not affect another test's, nor the user's own folders.
        self._own = TemporaryDirectory(prefix=f"{self._name}-", ignore_cleanup_errors=True)
        folders = {name: f"{self._own.name}/{name}" for name in ("XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")}
        settings = [
            argument for key, value in {**folders, **(env or {})}.items() for argument in ("-e", f"{key}={value}")
        ]
        # If the test run is killed, the end of this pipe closes the terminal.
        self._guard = subprocess.Popen(
            ["sh", "-c", 'read _; tmux -L "$0" kill-server 2>/dev/null; rm -rf -- "$1"', self._name, self._own.name],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        shell = "env PS1='ready> ' HISTFILE= bash --norc --noprofile -i"
        self._tmux("new-session", "-d", "-s", "it", "-x", str(columns), "-y", str(rows), *settings, command or shell)

    def _tmux(self, *args: str) -> str:
        argv = ["tmux", "-L", self._name, "-f", "/dev/null", *args]
        result = subprocess.run(argv, capture_output=True, text=True, check=False)
        return result.stdout

    @property
    def pid(self) -> int:
        """Process id of the program, or of the shell."""
        return int(self._tmux("display-message", "-p", "-t", "it", "#{pane_pid}"))

    def screen(self, *, styled: bool = False) -> str:
        """Text of the screen; `styled` with the escape sequences of its colours."""
        return self._tmux("capture-pane", "-p", "-t", "it", *(["-e"] if styled else []))

    def line_of_cursor(self) -> str:
        """The line of the screen on which the terminal's cursor is."""
        row = self._tmux("display-message", "-p", "-t", "it", "#{cursor_y}")
        return self.screen().splitlines()[int(row)]

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", "-t", "it", *keys)

    def resize(self, width: int, height: int) -> None:
        self._tmux("resize-window", "-t", "it", "-x", str(width), "-y", str(height))

    def click(self, text: str) -> None:
        """Click on this text, by the escape sequences that a terminal sends."""
        x, y = self._place(text)
        self.press("-l", f"\x1b[<0;{x};{y}M\x1b[<0;{x};{y}m")

    def wheel_down(self, text: str, *, lines_below: int = 0) -> None:
        """Turn the wheel by one notch over this text, or `lines_below` lines below it."""
        x, y = self._place(text)
        self.press("-l", f"\x1b[<65;{x};{y + lines_below}M")

    def _place(self, text: str) -> tuple[int, int]:
        """Column and line of the first occurrence of this text, from 1."""
        for y, line in enumerate(self.screen().splitlines(), 1):
            if text in line:
                return line.index(text) + 1, y
        raise AssertionError(f"{text!r} not on the screen:\n{self.screen()}")

    def until(self, *texts: str, without: str | None = None) -> float:
        """Wait until the screen has all these texts, and not `without`; the time in seconds."""
        began = time.monotonic()
        while not all(text in (screen := self.screen()) for text in texts) or (without and without in screen):
            assert time.monotonic() - began < DEADLINE_S, f"{texts}, or still {without!r}, on the screen:\n{screen}"
            time.sleep(0.05)
        return time.monotonic() - began

    def until_gone(self) -> None:
        """Wait until the program, and with it the only session, has ended."""
        began = time.monotonic()
        while "it" in self._tmux("list-sessions"):
            assert time.monotonic() - began < DEADLINE_S, self.screen()
            time.sleep(0.05)

    def close(self) -> None:
        """Close the terminal; its processes get SIGHUP."""
        self._tmux("kill-server")
        self._guard.communicate()
        self._own.cleanup()
