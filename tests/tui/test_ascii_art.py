"""ASCII replacements take as many cells as what they replace."""

import pytest
from rich.cells import cell_len

from gconsole.present.spans import GLYPHS
from gconsole.tui.terminal_driver import ASCII_ART


@pytest.mark.parametrize("text", ["─│┼╰", "▁▂▃▄▅▆▇█", "⠉⡠⣀", "…·–±µ°≤≥", "中文 node", *GLYPHS.values()])
def test_replacement_is_ascii_and_as_wide(text: str):
    replaced = text.encode("ascii", ASCII_ART)
    assert len(replaced) == cell_len(text)


def test_states_stay_apart():
    glyphs = list(GLYPHS.values())
    assert len({glyph.encode("ascii", ASCII_ART) for glyph in glyphs}) == len(set(glyphs))


def test_what_the_encoding_has_is_kept():
    assert "– 5 µs ±1".encode("latin-1", ASCII_ART) == "- 5 µs ±1".encode("latin-1")


def test_lone_surrogate_is_replaced():
    assert "a\udce9b".encode("utf-8", ASCII_ART).isascii()
