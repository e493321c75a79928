"""Themes: readable on every ground, complete, and refused with a word where they are not."""

import pytest

from gconsole.tui import themes
from gconsole.tui.models.heat import LEVELS
from gconsole.tui.widgets.heat_map import heat_colors, tint

FILES = themes.theme_files()
READABLE = 4.5


def test_dark_comes_first_and_light_is_there():
    assert FILES[0].name == "dark"
    assert "light" in [theme.name for theme in FILES]


def test_contrast_is_what_wcag_says():
    assert themes.contrast("#000000", "#ffffff") == pytest.approx(21)
    assert themes.contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize(
    ("text", "ground"),
    [pytest.param(text, ground, id=what) for theme in FILES for what, text, ground in themes.pairs(theme)],
)
def test_every_text_is_readable_on_every_ground_it_is_drawn_on(text: str, ground: str):
    assert themes.contrast(text, ground) >= READABLE


@pytest.mark.parametrize("theme", FILES, ids=lambda theme: theme.name)
@pytest.mark.parametrize("scale", ["load", "temperature"])
def test_every_level_of_the_heat_map_is_readable(theme: themes.ThemeFile, scale: str):
    colors = heat_colors(" ".join(getattr(theme.heat, scale)))
    assert len(set(colors)) == LEVELS
    for color in colors:
        assert themes.contrast(color, theme.colors.background) >= READABLE
        assert themes.contrast(theme.colors.foreground, tint(color, theme.colors.background)) >= READABLE


def test_a_misspelt_key_is_named():
    good = "name = 'x'\ndark = true\n[colors]\nbackgrund = '#000000'\n"
    with pytest.raises(themes.BadTheme, match=r"mine\.toml.*backgr"):
        themes.read_theme(good, "mine.toml")


def test_broken_toml_is_refused_with_its_place():
    with pytest.raises(themes.BadTheme, match=r"mine\.toml.*line 1"):
        themes.read_theme("name = = 1", "mine.toml")


def test_textual_gets_a_variable_for_every_state():
    variables = themes.as_textual(FILES[0]).variables
    assert {"status-ok", "status-warning", "status-failed", "status-unknown", "status-stale"} <= set(variables)
