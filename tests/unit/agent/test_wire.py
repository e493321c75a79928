"""Wire format of the agent: one JSON object per line."""

from __future__ import annotations

import base64
import io
import json
import zlib

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from gconsole_remote.agent import wire

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
FRAMES = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8).filter(lambda key: key != "z"), VALUES, max_size=6
)


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None)
@given(FRAMES.filter(lambda frame: "\\ud" not in json.dumps(frame)))
def test_frame_round_trips_through_one_line(frame):
    line = wire.encode(frame)

    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert wire.decode(line.rstrip(b"\n")) == frame


@settings(max_examples=examples(150), deadline=None)
@given(st.binary(max_size=300))
def test_garbage_raises_only_bad_frame(line):
    try:
        assert isinstance(wire.decode(line), dict)
    except wire.BadFrame:
        pass


@settings(max_examples=examples(100), deadline=None)
@given(st.text(max_size=20))
def test_any_text_is_encoded_as_valid_utf8(text):
    back = wire.decode(wire.encode({"text": text}).rstrip())["text"]

    back.encode("utf-8")
    if text.isascii():
        assert back == text


def test_undecodable_bytes_are_shown_as_hex_escapes():
    name = b"caf\xe9".decode("utf-8", "surrogateescape")

    assert wire.decode(wire.encode({"path": name}).rstrip())["path"] == "caf\\xe9"


def test_emoji_is_not_escaped():
    assert wire.decode(wire.encode({"text": "\U0001f525 é"}).rstrip())["text"] == "\U0001f525 é"


def test_undecodable_bytes_in_keys_are_escaped_too():
    line = wire.encode({"a": [{"\udcff": (1, "\ud800")}]})

    assert wire.decode(line.rstrip()) == {"a": [{"\\xff": [1, "\\xed\\xa0\\x80"]}]}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_non_finite_number_is_rejected(value):
    with pytest.raises(ValueError):
        wire.encode({"a": value})


def test_large_frame_is_compressed():
    line = wire.encode({"text": "x" * 100_000})

    assert line.startswith(b'{"z":"') and len(line) < 1000
    assert wire.decode(line.rstrip()) == {"text": "x" * 100_000}


def test_frame_of_exactly_the_size_limit_is_not_compressed():
    frame = {"t": "x" * ((64 << 10) - len('{"t":""}'))}

    assert wire.encode(frame).startswith(b'{"t"')
    frame["t"] += "x"
    assert wire.encode(frame).startswith(b'{"z"')


def test_frame_over_the_line_limit_is_rejected_by_the_encoder(monkeypatch):
    monkeypatch.setattr(wire, "MAX_LINE", 100_000)

    with pytest.raises(ValueError, match="100000"):
        wire.encode({"text": "x" * 100_001})


@pytest.mark.parametrize(
    "line",
    [
        b"", b"null", b"[]", b"5", b'"text"', b"{", b'{"z":5}', b'{"z":"%%%"}', b'{"z":"AAAA"}', b'{"z":null}',
        b"\xff\xfe", b'{"z":"' + base64.b64encode(zlib.compress(b"[1]")) + b'"}',
        b'{"z":"' + base64.b64encode(zlib.compress(b'{"a":1}')[:-6]) + b'"}',
        b"[" * 100_000,
    ],
    ids=lambda line: repr(line[:12]),
)  # fmt: skip
def test_line_that_is_not_a_json_object_raises_bad_frame(line):
    with pytest.raises(wire.BadFrame):
        wire.decode(line)


def test_decompression_bomb_over_the_line_limit_is_rejected(monkeypatch):
    monkeypatch.setattr(wire, "MAX_LINE", 10_000)
    bomb = b'{"z":"' + base64.b64encode(zlib.compress(b'{"a":"' + b"x" * 5_000_000 + b'"}')) + b'"}'

    with pytest.raises(wire.BadFrame):
        wire.decode(bomb)


def test_last_line_without_a_newline_is_read():
    assert list(wire.read_lines(io.BytesIO(b"one\r\ntwo\n\nthree"))) == [b"one", b"two", b"", b"three"]


def test_line_of_exactly_the_limit_is_read_and_a_longer_one_rejected(monkeypatch):
    monkeypatch.setattr(wire, "MAX_LINE", 10)

    assert list(wire.read_lines(io.BytesIO(b"x" * 10 + b"\nnext\n"))) == [b"x" * 10, b"next"]
    with pytest.raises(wire.BadFrame, match="10 bytes"):
        list(wire.read_lines(io.BytesIO(b"x" * 11 + b"\n")))


def test_endless_line_is_rejected_at_the_limit(monkeypatch):
    monkeypatch.setattr(wire, "MAX_LINE", 1000)
    stream = io.BytesIO(b"x" * 1_000_000)

    with pytest.raises(wire.BadFrame):
        list(wire.read_lines(stream))

    assert stream.tell() <= 1001
