"""The thread that reads keys sleeps until there are some, also a lone Escape, and ends at once when it has to."""

from __future__ import annotations

import os
import pty
import queue
import select
import threading
import tty
from collections.abc import Iterator

import pytest
from textual.events import Key

from gconsole.tui import terminal_driver
from gconsole.tui.terminal_driver import TerminalDriver, WakingEvent

DEADLINE_S = 60.0


class Reading:
    """A driver of a pseudo-terminal that only reads; its keys."""

    def __init__(self) -> None:
        self.master, self.fileno = pty.openpty()
        tty.setraw(self.fileno)
        self.keys: queue.Queue[str] = queue.Queue()
        driver = self.driver = TerminalDriver.__new__(TerminalDriver)
        driver.fileno, driver.exit_event = self.fileno, WakingEvent()
        driver._debug = driver._mouse = False
        driver.process_message = lambda message: self.keys.put(message.key) if isinstance(message, Key) else None

    def start(self) -> None:
        self.driver._key_thread = threading.Thread(target=self.driver.run_input_thread, daemon=True)
        self.driver._key_thread.start()

    def press(self, keys: bytes) -> str:
        """The next key after these bytes."""
        os.write(self.master, keys)
        return self.keys.get(timeout=DEADLINE_S)


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reading]:
    monkeypatch.setattr(terminal_driver, "_POLL_S", 3600.0)
    monkeypatch.setattr(terminal_driver.signal, "signal", lambda *_: None)  # the handler of SIGWINCH is of the process
    reading = Reading()
    yield reading
    for fd in (reading.master, reading.fileno, reading.driver.exit_event.wakes, reading.driver.exit_event._waker):
        os.close(fd)


def test_keys_and_a_lone_escape_arrive_although_nothing_polls(reading: Reading) -> None:
    reading.start()
    assert reading.press(b"a") == "a"
    assert reading.press(b"\x1b") == "escape", "the parser was asked again, without another key"
    assert reading.press(b"\x1b[A") == "up"
    reading.driver.disable_input()
    assert not reading.driver._key_thread.is_alive()


def test_reading_ends_at_once_and_begins_again(reading: Reading) -> None:
    for key in ("a", "b"):
        reading.start()
        assert reading.press(key.encode()) == key
        thread = reading.driver._key_thread
        ending = threading.Thread(target=reading.driver.disable_input, daemon=True)
        ending.start()
        ending.join(DEADLINE_S)
        assert not ending.is_alive() and not thread.is_alive()
        reading.driver.disable_input()  # as Textual does again when it ends while another program has the terminal
        assert not select.select([reading.driver.exit_event.wakes], [], [], 0)[0], "else the next wait ends at once"
