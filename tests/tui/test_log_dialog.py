"""F12 shows the end of the console's own log, and follows it."""
# ruff: noqa: ASYNC240 - small files of the test itself

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import demo
from pictures import assert_rectangular
from running import running
from waiting import accept, screen, shows, until

from gconsole.text import logs
from gconsole.tui.dialogs.dialog import LogDialog

HOSTILE = (
    b"2026-11-22 08:00:00,000 WARNING gconsole.link 7: \x1b[2J\x1b]0;title\x07 [bold red]x[/] [@click=app.quit]y[/]\r\n"
    + "\u202eabc\u2066 e\u0301\u0301\u0336 漢字 \u2028 \x9b31m\n".encode()
    + b"\xff\xfe not UTF-8 \x00 end\n"
)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    file = tmp_path / "own.log"
    logs.configure(0, file)
    yield file
    logs.configure(0, tmp_path / "after.log")


@pytest.mark.parametrize("size", [(80, 24), (200, 60), (20, 4)])
async def test_f12_shows_the_end_of_the_log_and_follows_it(log: Path, size: tuple[int, int]):
    logger = logging.getLogger("gconsole.test")
    for number in range(300):
        logger.info("line %d", number)
    async with running(demo().app(), "f12", size=size) as pilot:
        assert isinstance(pilot.app.screen, LogDialog)
        await until(pilot, lambda: "reading" not in screen(pilot.app))
        assert_rectangular(pilot.app)
        if size == (20, 4):
            return
        await shows(pilot, "line 299")
        logger.warning("newest")
        await shows(pilot, "newest")
        assert log.name in screen(pilot.app)
        await pilot.press("escape")
        assert not isinstance(pilot.app.screen, LogDialog)


async def test_lines_stay_in_place_while_scrolled_up(log: Path):
    logger = logging.getLogger("gconsole.test")
    for number in range(300):
        logger.info("line %d.", number)
    async with running(demo().app(), "f12") as pilot:
        await shows(pilot, "line 299.")
        await pilot.press("home")
        await shows(pilot, "line 0.")
        logger.info("newest")
        await pilot.pause(1.2)  # two reads, if there were any
        assert "line 0." in screen(pilot.app)
        await pilot.press("end")
        await shows(pilot, "newest")


@pytest.mark.parametrize("size", [(80, 24), (200, 60), (60, 20)])
async def test_hostile_bytes_in_the_log_are_displayed_escaped(log: Path, size: tuple[int, int]):
    log.write_bytes(HOSTILE + b"x" * 9000 + b"\nlast")
    async with running(demo().app(), "f12", size=size) as pilot:
        await shows(pilot, "last")
        assert_rectangular(pilot.app)
        log.write_bytes(HOSTILE)
        await shows(pilot, "\\xff\\xfe not UTF-8")
        assert_rectangular(pilot.app)
        shown = screen(pilot.app)
        assert "[@click=app.quit]y[/]" in shown and "␛[2J" in shown
        assert not {"\x1b", "\x07", "\x00", "\x9b", "\u202e", "\u2066", "\u2028"} & set(shown)


async def test_a_file_that_is_removed_or_rotated_is_reported_and_followed_again(log: Path):
    logger = logging.getLogger("gconsole.test")
    logger.info("before")
    async with running(demo().app(), "f12") as pilot:
        await shows(pilot, "before")
        log.rename(log.with_suffix(".log.1"))
        await shows(pilot, "Cannot read the log: No such file or directory.")
        log.touch()
        await shows(pilot, "The log is empty.")
        logger.info("after")
        await shows(pilot, "after")


async def test_without_a_log_file_the_palette_names_the_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(logs, "_path", None)
    monkeypatch.setattr(logs, "default_path", lambda: Path("/state/gconsole.log"))
    async with running(demo().app(), "ctrl+p", *"end of the console") as pilot:
        await accept(pilot, "Show the end of the console's log")
        await shows(pilot, "No log is written: cannot write /state/gconsole.log.")
        assert "--log-file FILE" in screen(pilot.app)


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: __import__("os").mkfifo(path)])
async def test_irregular_file_is_not_read_as_a_log(make, tmp_path: Path):
    file = tmp_path / "odd"
    make(file)
    async with running(demo().app()) as pilot:
        pilot.app.push_screen(LogDialog(file))
        await shows(pilot, "Cannot read the log")


def test_the_tail_is_bounded_and_begins_with_a_whole_line(tmp_path: Path):
    file = tmp_path / "long.log"
    file.write_text("".join(f"{number:07} line\n" for number in range(50_000)))
    lines = logs.tail(file)
    assert lines[-1] == "0049999 line" and len(lines) < 11_000 and all(len(line) == 12 for line in lines)
    file.write_text("")
    assert logs.tail(file) == []
