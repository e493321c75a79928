"""Recording request typed by the user: a name with the options of the command."""

import pytest

from gconsole.core.control import Selection
from gconsole.session.format.layout import SessionError
from gconsole.session.record.selection import parse_record_request, select


@pytest.mark.parametrize(
    ("text", "name", "selection"),
    [
        ("", "", None),
        ("  night ", "night", None),
        ("gpus --metrics gpu --every 10s", "gpus", select(metrics=("gpu",), every_s=10.0)),
        ("--every=500ms gpus", "gpus", Selection(every_s=0.5)),
        ("x --nodes node[1-3] --redact", "x", Selection(nodes=("node1", "node2", "node3"), anonymous=True)),
        ("x --gpus 0-3,node2:7", "x", Selection(gpus=("0-3", "node2:7"))),
        ("x --kinds node_state,log --locals", "x", select(kinds=("node_state", "log"), locals_too=True)),
    ],
)
def test_record_request_parses_into_a_name_and_a_selection(text, name, selection):
    assert parse_record_request(text) == (name, selection, None, 0.0)


@pytest.mark.parametrize("text", ["incident --last 15m", "--last=900s incident", "  --last 0.25h incident"])
def test_request_to_keep_the_last_minutes_has_no_selection(text):
    assert parse_record_request(text) == ("incident", None, 900.0, 0.0)
    assert parse_record_request(text.replace("last", "since")) == ("incident", None, None, 900.0)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("two words", "unexpected words"),
        ("x --metric gpu", "unexpected --metric"),
        ("x --metrics", "missing value"),
        ("x --metrics nonsense", "unknown metric or kind nonsense"),
        ("x --gpus 3-1", "is not a GPU or a range"),
        ("x --every soon", "not a duration; use 90s"),
        ("x --nodes node[3", r'unclosed "\['),
        ("x 'unfinished", "quotation"),
        ("x --last", "missing value"),
        ("x --last 15", "--last: .*15"),
        ("x --last ²m", "--last: "),
        ("x --last 0s", "above 0"),
        ("x --last -5m", "--last: "),
        ("x --last 5m --metrics gpu", "no other option"),
        ("x --since 5m --redact", "no other option"),
        ("x --since 5m --last 5m", "no other option"),
        ("x --since yesterday", "--since: "),
    ],
)
def test_invalid_record_request_is_an_error_that_names_the_problem(text, word):
    with pytest.raises(SessionError, match=word):
        parse_record_request(text)
