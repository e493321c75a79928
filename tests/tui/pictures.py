"""What a screen looks like, as text that can be reviewed: its characters, and the style of each cell in every theme.

A picture of 200x60 as SVG is 150 kB in which a moved column is a thousand changed lines. Here a screen is the text that
a person reads, then its cells as runs of letters, one letter for each look, then what each letter is in each theme. A
moved column is a line of text that moved; a new colour is one line of the legend. Themes change no character, but for
one: the terminal's own 16 colours cannot be mixed, so there a dialog hides what it stands on; that is written apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice, takewhile

from rich.color import Color
from rich.style import Style
from textual.app import App
from waiting import painted

_FLAGS = ("bold", "dim", "italic", "underline", "reverse", "strike")


@dataclass(frozen=True)
class Picture:
    """One screen at one size in one theme. `cells` has the style of each cell, a line a row."""

    lines: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]


def picture(app: App[object]) -> Picture:
    """The screen as it is painted now."""
    lines, cells = [], []
    for strip in painted(app):
        lines.append("".join(segment.text for segment in strip))
        cells.append(tuple(style for segment in strip for style in [_named(segment.style)] * segment.cell_length))
    return Picture(tuple(lines), tuple(cells))


def assert_rectangular(app: App[object]) -> None:
    """Every line has exactly the cells of the screen, and no control character reaches the terminal."""
    strips = painted(app)
    assert [strip.cell_length for strip in strips] == [app.size.width] * app.size.height
    for strip in strips:
        for segment in strip:
            control_characters = [letter for letter in segment.text if ord(letter) < 0x20 or 0x7F <= ord(letter) < 0xA0]
            assert not control_characters, f"a terminal obeys {control_characters} of {segment.text!r}"


def format_pictures(pictures: Mapping[str, Picture]) -> str:
    """Pictures of one size as text, by theme; themes with the same text are written together."""
    alike: dict[tuple[str, ...], dict[str, Picture]] = {}
    for theme, shown in pictures.items():
        alike.setdefault(shown.lines, {})[theme] = shown
    return "\n".join(f"== {' '.join(pictures_alike)}\n{_together(pictures_alike)}" for pictures_alike in alike.values())


def read_pictures(text: str) -> dict[tuple[int, int], dict[str, Picture]]:
    """Size → theme → picture of a snapshot: `WxH` and a result of `format_pictures` per size. No trailing spaces."""
    pictures: dict[tuple[int, int], dict[str, Picture]] = {}
    rows = iter(text.split("\n"))
    size = (0, 0)
    for row in rows:
        if match := re.fullmatch(r"(\d+)x(\d+)", row):
            size = (int(match[1]), int(match[2]))
        elif row.startswith("== "):
            lines = list(islice(rows, size[1]))
            lines[0] = lines[0].ljust(len(next(rows)))  # the rule below is as long as the first line
            runs = list(takewhile(lambda run: run != "~", rows))
            legend = dict(_legend_entry(entry) for entry in takewhile(bool, rows))
            for theme in row.removeprefix("== ").split():
                cells = [tuple(legend[letter][theme] for letter in line) for run in runs for line in _unfolded(run)]
                pictures.setdefault(size, {})[theme] = Picture(tuple(lines), tuple(cells))
    return pictures


def _legend_entry(entry: str) -> tuple[str, dict[str, str]]:
    """Letter and its style in each theme."""
    styles = (style.split(": ", 1) for style in entry[3:].split("   "))
    return entry[:3].rstrip(), dict(styles)


def _unfolded(run: str) -> list[list[str]]:
    """The rows that one line of runs stands for, as letters, a letter a cell."""
    runs, _, count = run.partition(" x")
    letters = [letter for letter, cells in re.findall(r"([A-Za-z]+)(\d+)", runs) for _ in range(int(cells))]
    return [letters] * int(count or 1)


def _together(pictures: Mapping[str, Picture]) -> str:
    """Screens with the same text."""
    themes, lines = list(pictures), next(iter(pictures.values())).lines
    cells = [list(zip(*rows, strict=True)) for rows in zip(*(shown.cells for shown in pictures.values()), strict=True)]
    letters: dict[tuple[str, ...], str] = {}
    names = _letters()
    runs = []
    for row in cells:
        for styles in row:
            if styles not in letters:
                letters[styles] = next(names)
        runs.append("".join(f"{letters[styles]}{sum(1 for _ in run)}" for styles, run in groupby(row)))
    legend = [
        f"{letter:2} " + "   ".join(f"{theme}: {style}" for theme, style in zip(themes, styles, strict=True))
        for styles, letter in letters.items()
    ]
    return "\n".join([*(line.rstrip() for line in lines), "~" * len(lines[0]), *_folded(runs), "~", *legend]) + "\n"


def _named(style: Style | None) -> str:
    """`#d5dde8 on #0f141b bold`, as sent to the terminal."""
    if style is None:
        return "none"
    parts = [_colour(style.color)] + ([f"on {_colour(style.bgcolor)}"] if style.bgcolor else [])
    return " ".join([*parts, *(flag for flag in _FLAGS if getattr(style, flag))])


def _colour(color: Color | None) -> str:
    if color is None or color.is_default:
        return "default"
    return color.triplet.hex if color.triplet is not None else color.name


def _letters() -> Iterator[str]:
    alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    yield from alphabet
    yield from (first + second for first in alphabet for second in alphabet)


def _folded(runs: Sequence[str]) -> list[str]:
    """Consecutive equal rows are written once, with their count."""
    folded = []
    for run, equal_runs in groupby(runs):
        count = sum(1 for _ in equal_runs)
        folded.append(run if count == 1 else f"{run} x{count}")
    return folded
