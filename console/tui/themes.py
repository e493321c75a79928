"""Themes: one TOML each in `gconsole.themes`, read into Textual's own.

A file names colours by what they mean. Every widget takes them from the variables made here (`$status-ok`, `$muted`,
…), so that a new theme is one file and no code. `pairs` lists what is written on what, for the check of contrast.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import resources

import msgspec
from textual.theme import Theme

#: The file stems; Textual's names carry a prefix, because it brings a "light" and a "dark" family of its own.
DEFAULT = "dark"
_PREFIX = "gconsole-"


class Colors(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Colours of the frame, as #rrggbb."""

    background: str
    surface: str
    panel: str
    foreground: str
    muted: str
    rule: str
    accent: str
    cursor: str
    cursor_blurred: str


class StatusColors(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One colour a state; the glyph beside it says the same."""

    ok: str
    warning: str
    failed: str
    unknown: str
    stale: str


class HeatColors(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Colours of a figure from its lowest to its highest value, two or more each."""

    load: tuple[str, ...]
    temperature: tuple[str, ...]


class ThemeFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One theme as its file says it."""

    name: str
    dark: bool
    colors: Colors
    status: StatusColors
    heat: HeatColors


class BadTheme(ValueError):
    """A theme file that cannot be used; the message names the file and the key."""


def read_theme(text: str, source: str) -> ThemeFile:
    """One theme from its TOML. Raises BadTheme."""
    try:
        return msgspec.convert(tomllib.loads(text), ThemeFile)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise BadTheme(f"{source}: {error}") from error


@cache
def theme_files() -> tuple[ThemeFile, ...]:
    """The themes that come with gconsole, the default first. Raises BadTheme."""
    files = [entry for entry in resources.files("gconsole.themes").iterdir() if entry.name.endswith(".toml")]
    found = [read_theme(entry.read_text(encoding="utf-8"), entry.name) for entry in files]
    return tuple(sorted(found, key=lambda theme: (theme.name != DEFAULT, theme.name)))


def textual_name(name: str) -> str:
    """What Textual calls the theme of that name."""
    return _PREFIX + name


def as_textual(theme: ThemeFile) -> Theme:
    """The theme as Textual wants it, with our own variables."""
    colors, status = theme.colors, theme.status
    return Theme(
        name=textual_name(theme.name),
        dark=theme.dark,
        primary=colors.accent,
        secondary=colors.muted,
        accent=colors.accent,
        foreground=colors.foreground,
        background=colors.background,
        surface=colors.surface,
        panel=colors.panel,
        success=status.ok,
        warning=status.warning,
        error=status.failed,
        variables={
            "muted": colors.muted,
            "rule": colors.rule,
            "cursor": colors.cursor,
            "cursor-blurred": colors.cursor_blurred,
            **{f"status-{key}": value for key, value in msgspec.structs.asdict(status).items()},
            "heat-load": " ".join(theme.heat.load),
            "heat-temperature": " ".join(theme.heat.temperature),
            "scrollbar": colors.rule,
            "scrollbar-hover": colors.muted,
            "scrollbar-active": colors.accent,
            "scrollbar-background": colors.background,
            "scrollbar-background-hover": colors.background,
            "scrollbar-background-active": colors.background,
            "scrollbar-corner-color": colors.background,
        },
    )


def pairs(theme: ThemeFile) -> Iterator[tuple[str, str, str]]:
    """Every text colour beside every background it is drawn on: (what, text, background)."""
    colors = theme.colors
    texts = {"foreground": colors.foreground, "muted": colors.muted, "accent": colors.accent}
    texts |= msgspec.structs.asdict(theme.status)
    backgrounds = ("background", "surface", "panel", "cursor", "cursor_blurred")
    for background in backgrounds:
        for name, color in texts.items():
            yield f"{theme.name}: {name} on {background}", color, getattr(colors, background)
    for name, color in texts.items():  # badges are drawn reversed
        yield f"{theme.name}: background on {name}", colors.background, color
    for scale in ("load", "temperature"):
        for i, color in enumerate(getattr(theme.heat, scale)):
            yield f"{theme.name}: heat {scale} {i}", color, colors.background


def contrast(one: str, other: str) -> float:
    """The contrast of two colours #rrggbb, 1 to 21 (WCAG 2.2: relative luminance)."""

    def luminance(color: str) -> float:
        channels = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
        red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)
