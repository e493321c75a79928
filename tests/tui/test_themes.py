"""Themes: readable on every background, complete, and otherwise rejected with a message."""

import math
from importlib import resources
from itertools import combinations

import msgspec
import pytest
from rich.color import ColorType
from textual.color import Color

from gconsole.present.spans import GLYPHS
from gconsole.tui.models.heat_map import LEVELS
from gconsole.tui.theme import themes
from gconsole.tui.widgets.heat_map import heat_colors, tint

THEME = (resources.files("gconsole.tui.theme.builtin") / "dark.toml").read_text(encoding="utf-8")
FILES = themes.theme_files()
RGB = [theme for theme in FILES if not theme.ansi]
READABLE = 4.5


def test_dark_is_first_of_the_five_builtin_themes():
    assert [theme.name for theme in FILES] == ["dark", "light", "high-contrast", "colour-blind-safe", "terminal"]


def test_contrast_matches_the_wcag_formula():
    assert themes.contrast("#000000", "#ffffff") == pytest.approx(21)
    assert themes.contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize(
    ("text", "ground"),
    [pytest.param(text, ground, id=what) for theme in RGB for what, text, ground in themes.pairs(theme)],
)
def test_every_text_color_is_readable_on_every_background_it_is_drawn_on(text: str, ground: str):
    assert themes.contrast(text, ground) >= READABLE


@pytest.mark.parametrize("theme", RGB, ids=lambda theme: theme.name)
@pytest.mark.parametrize("scale", ["load", "temperature"])
def test_every_level_of_the_heat_map_is_readable(theme: themes.ThemeFile, scale: str):
    colors = heat_colors(" ".join(getattr(theme.heat, scale)))
    assert len(set(colors)) == LEVELS
    for color in colors:
        assert themes.contrast(color, theme.colors.background) >= READABLE
        assert themes.contrast(theme.colors.foreground, tint(color, theme.colors.background)) >= READABLE


def test_misspelled_key_is_named_in_the_error():
    good = "name = 'x'\ndark = true\n[colors]\nbackgrund = '#000000'\n"
    with pytest.raises(themes.ThemeError, match=r"mine\.toml.*backgr"):
        themes.read_theme(good, "mine.toml")


def test_broken_toml_is_rejected_with_its_line():
    with pytest.raises(themes.ThemeError, match=r"mine\.toml.*line 1"):
        themes.read_theme("name = = 1", "mine.toml")


@pytest.mark.parametrize("theme", FILES, ids=lambda theme: theme.name)
def test_textual_theme_has_a_variable_for_every_status(theme: themes.ThemeFile):
    variables = themes.as_textual(theme).variables
    assert {f"status-{status}" for status in GLYPHS} <= set(variables)


@pytest.mark.parametrize("theme", RGB, ids=lambda theme: theme.name)
def test_every_text_variable_is_covered_by_the_contrast_check(theme: themes.ThemeFile):
    checked = {text for _, text, _ in themes.pairs(theme)}
    variables = themes.as_textual(theme).variables
    assert {variables["muted"], *(variables[f"status-{status}"] for status in GLYPHS)} <= checked


def test_high_contrast_exceeds_the_required_contrast():
    theme = next(theme for theme in FILES if theme.name == "high-contrast")
    assert min(themes.contrast(text, ground) for _, text, ground in themes.pairs(theme)) >= 7


class TestTheTerminalsOwnColours:
    def test_terminal_theme_has_no_weaknesses(self):
        terminal = next(theme for theme in FILES if theme.ansi)
        assert list(themes.weaknesses(terminal)) == []

    def test_grey_text_and_coloured_backgrounds_are_reported_as_weaknesses(self):
        terminal = next(theme for theme in FILES if theme.ansi)
        grey = msgspec.structs.replace(terminal.colors, muted="ansi_bright_black", cursor="ansi_blue")
        messages = list(themes.weaknesses(msgspec.structs.replace(terminal, colors=grey)))
        assert len(messages) == 2
        assert any("muted" in line for line in messages)
        assert any("cursor" in line for line in messages)

    def test_terminal_heat_colors_are_the_16_standard_colors_or_the_default(self):
        allowed = {ColorType.DEFAULT, ColorType.STANDARD}
        for scale in ("load", "temperature"):
            for color in heat_colors(themes.as_textual(FILES[-1]).variables[f"heat-{scale}"]):
                assert Color.parse(color).rich_color.type in allowed


#: How colours look to people who lack one kind of cone, in linear RGB (Machado, Oliveira, Fernandes 2009, severity 1).
CONES = {
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.3039)),
}


def simulate_color_blindness(color: str, cones: str) -> tuple[float, ...]:
    """The colour as seen with this colour blindness, in CIE L*a*b*."""
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    seen = (sum(k * c for k, c in zip(row, linear, strict=True)) for row in CONES[cones])
    red, green, blue = (min(1.0, max(0.0, c)) for c in seen)
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
    x, y, z = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("cones", CONES)
@pytest.mark.parametrize("pair", list(combinations(("ok", "warning", "failed", "stale"), 2)), ids="-".join)
def test_states_are_distinguishable_with_colour_blindness(cones: str, pair: tuple[str, str]):
    theme = next(theme for theme in FILES if theme.name == "colour-blind-safe")
    first, second = (simulate_color_blindness(getattr(theme.status, state), cones) for state in pair)
    assert math.dist(first, second) >= 20  # 2.3 is the just noticeable difference


def test_invalid_color_is_reported_without_a_regular_expression():
    text = THEME.replace("#0f141b", "navy")
    with pytest.raises(themes.ThemeError, match=r"^mine\.toml: `\$\.colors\.background`: not a colour: write #rrggbb"):
        themes.read_theme(text, "mine.toml")


def test_mixing_terminal_colors_with_rgb_colors_is_rejected():
    with pytest.raises(themes.ThemeError, match=r"status\.ok.*never both"):
        themes.read_theme(THEME.replace("#4fca86", "ansi_green"), "mine.toml")
