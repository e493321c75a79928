"""One grammar for durations and instants in all options and prompts."""

import time

import click
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gconsole.cli.options import DurationType
from gconsole.config.sections import SessionsConfig
from gconsole.session.format.layout import SessionError
from gconsole.session.record.selection import parse_record_request
from gconsole.text.timespec import (
    Duration,
    Offset,
    Percentage,
    TimeOfDay,
    TimeSpecError,
    Timestamp,
    duration_s,
    instant_ns,
    parse,
)

SECOND = 1_000_000_000
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND
#: 2026-11-21 13:00:00 UTC; the recordings below last two hours.
START = 1_795_266_000 * SECOND
END = START + 2 * HOUR
HERE = START + 30 * MINUTE


FORMS = [
    # text, duration in seconds (None: error), instant without a current time, instant in a replay positioned at HERE
    ("90s", 90.0, START + 90 * SECOND, START + 90 * SECOND),
    ("300ms", 0.3, START + SECOND * 3 // 10, START + SECOND * 3 // 10),
    ("1.5h", 5400.0, START + 90 * MINUTE, START + 90 * MINUTE),
    ("15m", 900.0, START + 15 * MINUTE, START + 15 * MINUTE),
    ("2d", 172_800.0, START + 2 * DAY, START + 2 * DAY),
    ("4w", 28 * 86_400.0, START + 28 * DAY, START + 28 * DAY),
    ("-5m", None, END - 5 * MINUTE, HERE - 5 * MINUTE),
    ("+10m", None, START + 10 * MINUTE, HERE + 10 * MINUTE),
    ("-0s", None, END, HERE),
    ("50%", None, START + HOUR, START + HOUR),
    ("12.5%", None, START + 15 * MINUTE, START + 15 * MINUTE),
    ("14:02:30", None, START + HOUR + 150 * SECOND, START + HOUR + 150 * SECOND),
    ("14:02", None, START + HOUR + 120 * SECOND, START + HOUR + 120 * SECOND),
    ("14:02:30.25", None, START + HOUR + 150 * SECOND + SECOND // 4, START + HOUR + 150 * SECOND + SECOND // 4),
    ("2026-11-21T13:30:00", None, HERE, HERE),
    ("2026-11-21 13:30", None, HERE, HERE),
    ("2026-11-21T13:30:00Z", None, HERE, HERE),
    ("2026-11-21T15:30:00+02:00", None, HERE, HERE),
    ("2026-11-21", None, START - 13 * HOUR, START - 13 * HOUR),
]


@pytest.mark.parametrize(("text", "seconds", "instant", "in_replay"), FORMS)
def test_each_time_form_is_parsed_alike_by_every_option_and_setting(text, seconds, instant, in_replay):
    assert instant_ns(text, START, END) == instant
    assert instant_ns(f" {text} ", START, END, now=HERE) == in_replay
    if seconds is not None:
        assert duration_s(text) == DurationType().convert(text, None, None) == seconds
        assert parse_record_request(f"x --every {text}")[1].every_s == seconds
        assert msgspec.convert({"max_age": text}, SessionsConfig).max_age == text
        return
    message = f"'{text}' is not a duration; use 90s, 15m or 2h"
    with pytest.raises(TimeSpecError) as raised:
        duration_s(text)
    assert str(raised.value) == message
    with pytest.raises(click.BadParameter) as refused:
        DurationType().convert(text, None, None)
    assert refused.value.message == message
    with pytest.raises(SessionError) as asking:
        parse_record_request(f"x --every='{text}'")
    assert str(asking.value) == f"--every: {message}"
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"max_age": text}, SessionsConfig)


@pytest.mark.parametrize(
    "text",
    ["noon", "", "90", "90x", "1h30", "٣s", "9" * 400 + "s", "1:2:3:4", "-50%", "1000%", "9999-99-99", "0001-01-01"],
)
def test_unparsable_text_is_rejected_as_a_duration_and_as_a_time(text):
    with pytest.raises(TimeSpecError, match="is not a duration; use 90s, 15m or 2h"):
        duration_s(text)
    with pytest.raises(TimeSpecError, match="is not a time; use 14:02:30, 90s, -5m, 50% or 2026-11-21T08:30:00"):
        parse(text)


@pytest.mark.parametrize("text", ["0s", "0d", "0.0h", "00w"])
def test_maximum_age_of_zero_is_rejected(text):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"max_age": text}, SessionsConfig)
    assert msgspec.convert({"max_age": "0.5h"}, SessionsConfig).max_age == "0.5h"


def test_share_beyond_the_end_is_rejected():
    with pytest.raises(TimeSpecError, match="'150%' is beyond the end; use 0% to 100%"):
        parse("150%")


@pytest.mark.parametrize("text", ["24:00", "25:00", "12:60", "12:00:60"])
def test_time_of_day_out_of_range_is_rejected(text):
    with pytest.raises(TimeSpecError, match="is not a time of day; use 00:00:00 to 23:59:59"):
        parse(text)


def test_option_without_a_unit_is_seconds_for_one_release_with_a_warning(capsys):
    assert DurationType().convert("1.5", click.Option(["--for"]), None) == 1.5

    warning = "gconsole: --for 1.5: write 1.5s; the next release rejects a duration without a unit"
    assert capsys.readouterr().err.splitlines() == [warning]
    assert DurationType().convert(10, None, None) == 10.0  # a default value


@pytest.mark.parametrize("text", ["90", "1.5", "50 %", "90 s"])
def test_unit_follows_its_number(text):
    with pytest.raises(TimeSpecError, match="is not a time"):
        parse(text)
    with pytest.raises(TimeSpecError, match="is not a duration; use 90s, 15m or 2h"):
        duration_s(text)


@pytest.mark.parametrize(
    ("text", "earliest", "instant"),
    [
        ("23:30", None, 30 * MINUTE),  # on the first day
        ("01:00", None, 2 * HOUR),  # on the second day
        ("01:00", 3 * HOUR, 26 * HOUR),  # on the third day, since not before `earliest`
        ("23:00:00", None, 0),  # the second in which the recording begins
        ("22:00", None, 23 * HOUR),
    ],
)
def test_time_of_day_resolves_to_its_first_occurrence_within_the_recording(text, earliest, instant):
    start = START + 10 * HOUR  # 23:00 UTC

    found = instant_ns(text, start, start + 40 * HOUR, earliest=None if earliest is None else start + earliest)

    assert found == start + instant


def test_time_of_day_outside_the_recording_resolves_to_its_first_day():
    assert instant_ns("18:00", START, END) == START + 5 * HOUR


def test_a_recording_that_begins_within_a_second_includes_that_second():
    assert instant_ns("13:00:00", START + SECOND // 2, END) == START


def test_a_time_of_day_is_local(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Kolkata")  # UTC+05:30
    time.tzset()

    assert instant_ns("19:00", START, END) == HERE
    assert instant_ns("2026-11-21T19:00:00", START, END) == HERE


lengths = st.integers(0, 10**12 * 1000).map(lambda thousandths: thousandths * 1000)  # ns


@given(
    st.one_of(
        lengths.map(Duration),
        lengths.map(lambda ns: Offset(ns, False)),
        lengths.map(lambda ns: Offset(-ns, True)),
        st.integers(0, 100_000).map(lambda thousandths: Percentage(thousandths / 1000)),
        st.builds(TimeOfDay, st.integers(0, 23), st.integers(0, 59), st.integers(0, 59), st.integers(0, SECOND - 1)),
        st.integers(0, 4 * 10**15).map(lambda us: Timestamp(us * 1000)),
    )
)
def test_formatted_time_spec_parses_back_to_itself(spec):
    assert parse(str(spec)) == spec


@given(st.text(max_size=60))
def test_any_text_parses_or_raises_time_spec_error(text):
    try:
        spec = parse(text)
    except TimeSpecError:
        return
    assert parse(str(spec)) == spec


def test_a_long_text_is_cut_in_the_message():
    with pytest.raises(TimeSpecError) as raised:
        parse("x" * 1000)
    assert len(str(raised.value)) < 120
