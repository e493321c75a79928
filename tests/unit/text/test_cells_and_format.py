"""Text from nodes is rendered as plain text, and every quantity has one format."""

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


def test_cleaned_text_is_truncated_to_its_limit():
    assert len(clean("é" * 100_000)) == LIMIT


@given(st.text())
def test_cleaned_text_has_no_control_characters(text: str):
    cleaned = clean(text)
    assert all(ord(character) >= 0x20 and not 0x7F <= ord(character) < 0xA0 for character in cleaned)


@given(st.text(), st.integers(0, 40), st.sampled_from(["left", "right"]))
def test_fitted_text_takes_exactly_its_cells(text: str, width: int, align):
    assert width_of(fit(clean(text), width, align)) == width


def test_text_wider_than_its_cell_ends_in_an_ellipsis():
    assert fit("node0123", 5) == "node…"
    assert fit("漢字漢字", 4) == "漢 …"
    assert fit("12", 4, "right") == "  12"


SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (format.count(18_204), "18,204"),
        (format.number(91.0), "91"),
        (format.number(41.23), "41.2"),
        (format.number(1234.5), "1,234"),
        (format.plural(1, "sample"), "1 sample"),
        (format.plural(0, "process"), "0 processes"),
        (format.plural(18_204, "entry", "entries"), "18,204 entries"),
        (format.seen(62, 64), "62/64"),
        (format.seen(62, None), "62/–"),
        (format.percent(0.42), "0.4"),
        (format.percent(0), "0"),
        (format.percent(97.4), "97"),
        (format.size(0), "0 B"),
        (format.size(1023), "1023 B"),
        (format.size(1024), "1.0 KiB"),
        (format.size((1 << 20) - 1), "1.0 MiB"),
        (format.size(42 << 30), "42.0 GiB"),
        (format.size(3 << 60), "3072.0 PiB"),
        (format.size_compact(0), "0B"),
        (format.size_compact(42 << 30), "42.0G"),
        (format.size_compact(812 << 20), "812M"),
        (format.byte_rate(1.2 * (1 << 30)), "1.2 GiB/s"),
        (format.bandwidth(478e9), "478 GB/s"),
        (format.link_rate(24.66e9), "24.7 GB/s"),
        (format.link_rate(0), "0 GB/s"),
        (format.link_rate(1.2e7), "0.01 GB/s"),
        (format.bandwidth(26.562e9), "26.6 GB/s"),
        (format.bandwidth(3.125e9), "3.12 GB/s"),
        (format.port_speed(50e9), "400 Gb/s"),
        (format.rate(1234), "1234"),
        (format.rate(123_456), "123k"),
        (format.age(400_000_000), "0.4 s"),
        (format.age(12 * SECOND), "12 s"),
        (format.age(600 * SECOND), "10 min"),
        (format.age(-5), "0.0 s"),
        (format.duration(400_000_000), "0.4 s"),
        (format.duration(5 * SECOND), "5 s"),
        (format.duration(59_600_000_000), "1 min"),
        (format.duration(150 * SECOND), "2 min 30 s"),
        (format.duration(4320 * SECOND), "1 h 12 min"),
        (format.duration(3601 * SECOND), "1 h"),
        (format.duration(273_600 * SECOND), "3 d 4 h"),
        (format.duration_compact(761 * SECOND), "00:12:41"),
        (format.clock_time(1_700_049_600 * SECOND), "12:00:00"),
        (format.clock_time_ms(1_700_049_600_042_999_999), "12:00:00.042"),
        (format.date_time(1_700_049_600 * SECOND), "2023-11-15 12:00:00"),
        (format.date_time_ms(1_700_049_600_042_000_000), "2023-11-15 12:00:00.042"),
        (format.file_stamp(1_700_049_600 * SECOND), "20231115-120000"),
        (format.iso(1_700_049_600_042_000_000), "2023-11-15T12:00:00.042000Z"),
    ],
)
def test_values_are_formatted_with_their_unit_and_precision(written: str, expected: str):
    assert written == expected


@given(st.integers(0, 1 << 60))
def test_a_compact_size_has_five_characters_at_most(value: int):
    assert len(format.size_compact(value)) <= 5
    assert len(format.size(value)) <= 10


@pytest.mark.parametrize(
    "write",
    [format.count, format.number, format.percent, format.whole, format.size, format.size_compact, format.byte_rate,
     format.link_rate, format.rate, format.age, format.duration, format.duration_compact, format.clock_time,
     format.date_time],
)  # fmt: skip
def test_unknown_value_is_formatted_as_a_dash(write):
    assert write(None) == "–"


@pytest.mark.parametrize("write", [format.clock_time, format.clock_time_ms, format.date, format.date_time])
def test_timestamp_of_zero_is_formatted_as_unknown(write):
    assert write(0) == "–"
    assert format.iso(0) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [("40G", 40 << 30), ("40 GiB", 40 << 30), ("1.5t", 3 << 39), ("512MB", 512 << 20), ("512", 512), ("8 kib", 8192)],
)
def test_typed_size_has_binary_prefixes(text, expected):
    assert format.parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "G", "40X", "-1G", "1e9", "40iB", "²G", "4\u0660G"])
def test_typed_text_that_is_not_a_size_is_rejected(text):
    with pytest.raises(ValueError, match="is not a size; use 40G or 512MiB"):
        format.parse_size(text)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (format.seconds(40.0), "40 s"),
        (format.seconds(0.03), "30 ms"),
        (format.seconds(None), "–"),
        (format.step_time(0.03694), "36.9 ms"),
        (format.step_time(0.3694), "369 ms"),
        (format.step_time(0.99949), "999 ms"),
        (format.step_time(0.9999), "1.00 s"),
        (format.step_time(12.34), "12.3 s"),
        (format.step_time(200.0), "3 min 20 s"),
        (format.duration(0), "0 s"),
        (format.duration(99_600_000), "0.1 s"),
        (format.micro(410), "0.41"),
        (format.micro(9_996), "10.0"),
        (format.micro(-5_013_400, signed=True), "-5,013"),
        (format.micro(12_340, digits=2), "12"),
        (format.micro(9_960, digits=2), "10"),
        (format.millis(41_200_000), "41.2"),
        (format.millis(203_000, signed=True), "+0.203"),
        (format.millis(None), "–"),
    ],
)
def test_short_times_have_three_digits_and_lengths_their_largest_units(written: str, expected: str):
    assert written == expected
