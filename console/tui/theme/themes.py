"""Themes: one TOML each in `gconsole.tui.theme.builtin`, read into Textual's own.

Colours are named by meaning. Widgets take them from the variables made here (`$status-ok`, `$muted`, …), so that a new
theme is one file. `pairs` lists text colours with their backgrounds, for the check of contrast.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Annotated

import msgspec
from textual.theme import Theme

#: Name of the default theme; Textual's names get a prefix, because Textual has themes of its own.
DEFAULT = "dark"
#: Built-in themes, in the order in which they are offered.
_ORDER = (DEFAULT, "light", "high-contrast", "colour-blind-safe", "terminal")
_PREFIX = "gconsole-"
#: The least contrast of a text and its ground (WCAG 2.2, level AA).
READABLE = 4.5
#: The terminal's background, and its hues, which are readable on it. Blacks, whites and greys are not: in many palettes
#: one of them is the background.
OWN_GROUND = "ansi_default"
HUES = frozenset(
    f"ansi_{bright}{hue}" for bright in ("", "bright_") for hue in ("red", "green", "yellow", "blue", "magenta", "cyan")
)
_NAMED = "|".join([*sorted(HUES), OWN_GROUND, *(f"ansi_{bright}{grey}" for bright in ("", "bright_")
                                                for grey in ("black", "white"))])  # fmt: skip

#: "#rrggbb", or in a theme of the terminal's own colours "ansi_red", "ansi_default", …
Color = Annotated[str, msgspec.Meta(pattern=f"^(#[0-9a-fA-F]{{6}}|{_NAMED})$")]
Scale = Annotated[tuple[Color, ...], msgspec.Meta(min_length=2)]


class Colors(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Colours of the frame. `rule` is for lines, never for text."""

    background: Color
    surface: Color
    panel: Color
    foreground: Color
    muted: Color
    rule: Color
    accent: Color
    cursor: Color
    cursor_blurred: Color


class StatusColors(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One colour per status; each also has a glyph."""

    ok: Color
    warning: Color
    failed: Color
    unknown: Color
    stale: Color


class HeatColors(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Colours of a figure from its lowest to its highest value, two or more each."""

    load: Scale
    temperature: Scale


class ThemeFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One theme file. `ansi`: only the terminal's own 16 colours."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[\w-]{1,40}$")]
    dark: bool
    colors: Colors
    status: StatusColors
    heat: HeatColors
    ansi: bool = False


class ThemeError(ValueError):
    """A theme file that cannot be used; the message names the file and the key."""


def read_theme(text: str, source: str) -> ThemeFile:
    """One theme from its TOML. Raises ThemeError."""
    try:
        theme = msgspec.convert(tomllib.loads(text), ThemeFile)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ThemeError(f"{source}: {_explained(str(error))}") from error
    for key, color in colors_of(theme):
        if color.startswith("ansi_") != theme.ansi:
            raise ThemeError(f"{source}: {key} = {color!r}: {_MIXED}")
    return theme


_MIXED = "use #rrggbb, or with ansi = true only names such as ansi_red; never both"


def _explained(error: str) -> str:
    """The error message, without its regular expression."""
    place = error.partition(" - at ")[2] or "somewhere"
    if "matching regex '^(#" in error:
        return f"{place}: not a colour: write #rrggbb, or ansi_red and the like with ansi = true"
    return f"{place}: use letters, digits, - and _ only" if "matching regex" in error else error


def colors_of(theme: ThemeFile) -> Iterator[tuple[str, str]]:
    """Every colour of the theme: (its key in the file, the colour)."""
    for part in ("colors", "status", "heat"):
        for key, value in msgspec.structs.asdict(getattr(theme, part)).items():
            for color in (value,) if isinstance(value, str) else value:
                yield f"{part}.{key}", color


@cache
def theme_files() -> tuple[ThemeFile, ...]:
    """The themes that come with gconsole, the default first. Raises ThemeError."""
    files = [entry for entry in resources.files("gconsole.tui.theme.builtin").iterdir() if entry.name.endswith(".toml")]
    themes = [read_theme(entry.read_text(encoding="utf-8"), entry.name) for entry in files]
    return tuple(sorted(themes, key=lambda theme: _ORDER.index(theme.name)))


def textual_name(name: str) -> str:
    """Textual's name of the theme."""
    return _PREFIX + name


def as_textual(theme: ThemeFile) -> Theme:
    """The theme as one of Textual's, with our own variables."""
    colors, status = theme.colors, theme.status
    return Theme(
        name=textual_name(theme.name),
        dark=theme.dark,
        ansi=theme.ansi,
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
            **(_ANSI if theme.ansi else {}),
        },
    )


#: Colours of Textual's own parts, which it cannot blend; black on cyan is readable in all common palettes.
_ANSI = {
    "ansi-background": "ansi_black",
    "ansi-foreground": "ansi_white",
    "scrollbar-hover": "ansi_cyan",
    **{
        f"{part}-{which}": color
        for part in ("block-cursor", "input-cursor", "input-selection", "screen-selection")
        for which, color in (("background", "ansi_cyan"), ("foreground", "ansi_black"))
    },
}


def weaknesses(theme: ThemeFile) -> Iterator[str]:
    """Texts of the theme that may not be readable, with the reason.

    The terminal's own colours are unknown. With them every text must be a hue, or the terminal's text colour, on the
    terminal's background: the user chose that pair.
    """
    if not theme.ansi:
        for what, text, ground in pairs(theme):
            ratio = contrast(text, ground)
            if ratio < READABLE:
                yield f"{what} has a contrast of {ratio:.1f}, less than {READABLE}"
        return
    grounds = ("background", "surface", "panel", "cursor", "cursor_blurred")
    for key, color in colors_of(theme):
        name = key.removeprefix("colors.")
        if name in grounds and color != OWN_GROUND:
            yield f"{theme.name}: {name} is {color}, on which text may be unreadable; use {OWN_GROUND}"
        if name not in (*grounds, "rule") and color not in HUES | {OWN_GROUND}:
            yield f"{theme.name}: {key} is {color}, which is the background colour in many terminals"


def pairs(theme: ThemeFile) -> Iterator[tuple[str, str, str]]:
    """Every text colour beside every background it is drawn on: (what, text, background). Not for ANSI themes."""
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


def contrast(first: str, second: str) -> float:
    """The contrast of two colours #rrggbb, 1 to 21 (WCAG 2.2: relative luminance)."""

    def luminance(color: str) -> float:
        channels = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
        red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    darker, lighter = sorted((luminance(first), luminance(second)))
    return (lighter + 0.05) / (darker + 0.05)
