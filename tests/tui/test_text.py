"""Text from a node stays text, and figures say what is known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gconsole.text import format
from gconsole.text.cells import LIMIT, clean, fit, width_of


def test_escape_sequences_become_visible_and_harmless():
    assert clean("\x1b[31mred\x1b[0m\x07") == "␛[31mred␛[0m␇"


def test_line_breaks_and_tabs_become_blanks():
    assert clean("a\nb\tc\r") == "a b c "


def test_markup_is_left_as_it_is():
    assert clean("[bold]x[/bold]") == "[bold]x[/bold]"


def test_stacked_marks_and_bidi_overrides_are_dropped():
    assert clean("a" + "\u0301" * 500) == "á"
    assert clean("a\u202eb\u200d\ufeff") == "ab"


def test_c1_controls_and_separators_are_replaced():
    assert clean("\x9b31m\u2028x\x7f") == "�31m�x␡"


def test_four_kilobytes_are_enough():
    assert len(clean("é" * 100_000)) == LIMIT


@given(st.text())
def test_cleaned_text_has_nothing_a_terminal_obeys(text: str):
    cleaned = clean(text)
    assert all(ord(character) >= 0x20 and not 0x7F <= ord(character) < 0xA0 for character in cleaned)


@given(st.text(), st.integers(0, 40), st.sampled_from(["left", "right"]))
def test_fitted_text_takes_exactly_its_cells(text: str, width: int, align):
    assert width_of(fit(clean(text), width, align)) == width


def test_what_does_not_fit_ends_in_an_ellipsis():
    assert fit("node0123", 5) == "node…"
    assert fit("漢字漢字", 4) == "漢 …"
    assert fit("12", 4, "right") == "  12"


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (format.count(18_204), "18 204"),
        (format.seen(62, 64), "62/64"),
        (format.seen(62, None), "62/–"),
        (format.percent(0.42), "0.4"),
        (format.percent(0), "0"),
        (format.percent(97.4), "97"),
        (format.size(0), "0B"),
        (format.size(3 << 30), "3.0G"),
        (format.size(812 << 20), "812M"),
        (format.rate(1234), "1234"),
        (format.rate(123_456), "123k"),
        (format.age(400_000_000), "0.4 s"),
        (format.age(12_000_000_000), "12 s"),
        (format.age(600_000_000_000), "10 min"),
        (format.age(-5), "0.0 s"),
        (format.clock_time(1_700_049_600_000_000_000), "12:00:00"),
    ],
)
def test_figures_are_short_and_exact(said: str, meant: str):
    assert said == meant


@pytest.mark.parametrize("write", [format.count, format.percent, format.whole, format.size, format.rate, format.age])
def test_unknown_is_a_dash_and_never_zero(write):
    assert write(None) == "–"
