"""Line of a key in TOML text, in every notation of TOML."""

import re

import pytest
import tomli
from hypothesis import given
from hypothesis import strategies as st

from gconsole.config.toml_positions import places


def line(text: str, *path: str | int) -> int:
    return places(text)[path].line


def test_keys_of_the_second_and_third_entry_have_their_own_lines():
    text = '[[nodes]]\nhosts = "a"\n\n[[nodes]]\nhosts = "b"\nport = 1\n[[nodes]] # c\n# port = 7\nport = 2\n'
    assert [line(text, "nodes", index) for index in range(3)] == [1, 4, 7]
    assert line(text, "nodes", 1, "port") == 6
    assert line(text, "nodes", 2, "port") == 9


def test_entry_index_continues_after_another_section():
    text = '[[nodes]]\nhosts = "a"\n[ssh]\nuser = "x"\n[[nodes]]\nhosts = "b"\n'
    assert line(text, "ssh", "user") == 4
    assert line(text, "nodes", 1, "hosts") == 6


def test_dotted_key_gives_its_implicit_table_a_position():
    text = '# a comment with ssh.port = 1\nssh.user = "x"\nssh . "port" = 2\n'
    assert line(text, "ssh") == 2
    assert line(text, "ssh", "port") == 3


def test_keys_in_inline_tables_and_lists_have_positions():
    text = 'ssh = { user = "}#]", port = 3 }\nnodes = [\n # first\n { hosts = "a" },\n { hosts = "b",\n port = 9 }]\n'
    assert line(text, "ssh", "port") == 1
    assert line(text, "nodes", 0, "hosts") == 4
    assert line(text, "nodes", 1, "port") == 6


def test_a_subtable_belongs_to_the_last_entry_above_it():
    text = "[[nodes]]\n[[nodes]]\n[nodes.x.y]\nz = 1\n[[nodes.deep]]\n[[nodes.deep]]\nq = 1\n"
    assert line(text, "nodes", 1, "x", "y", "z") == 4
    assert line(text, "nodes", 1, "deep", 1, "q") == 7


def test_text_inside_a_string_is_not_parsed_as_a_key():
    basic, literal = 'a = """\nuser = 1\n[ssh]\n\\"""\n"""""\n', "b = '''\n[[nodes]]\n'''''\n"
    text = basic + literal + 'c = "\\"#["  # d = 1\nd = \'\\\'\n'
    assert set(places(text)) == {("a",), ("b",), ("c",), ("d",)}
    assert [line(text, name) for name in "abcd"] == [1, 6, 9, 10]


def test_quoted_keys_are_unescaped():
    text = '["a.b"]\n"\\u0078 y" = 1\n\'c"d\' = 2\n'
    assert line(text, "a.b", "x y") == 2
    assert line(text, "a.b", 'c"d') == 3


def test_windows_line_ends_and_a_missing_last_one_do_not_shift_lines():
    assert line("[ssh]\r\n\r\nuser = 1\r\nport = 2", "ssh", "port") == 4


def test_the_span_of_a_value_is_exactly_its_text():
    text = "a = 12 # x\nb = \"q\" # y\nc = [1, 2] \nd = 1979-05-27 07:32:00\n[[n]]\nh = 'z'\n"
    found = {path: text[place.value_start : place.value_end] for path, place in places(text).items()}
    assert found["a",] == "12"
    assert found["b",] == '"q"'
    assert found["c",] == "[1, 2]"
    assert found["c", 1] == "2"
    assert found["d",] == "1979-05-27 07:32:00"
    assert found["n", 0, "h"] == "'z'"


def leaves(value: object, path: tuple = ()) -> dict:
    """Every path of a parsed document with its value."""
    found = {path: value} if path else {}
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found.update(leaves(item, (*path, key)))
    return found


names = st.sampled_from(["a", "b", "key", '"q k"', "'l.k'", "é".join(['"', '"'])])
scalars = st.sampled_from(
    ["1", "-0.5", "true", '"#]"', "'}'", '"""\n[x]\n"""', "'''\ny = 1\n'''", '"\\"="', "1979-05-27 07:32:00Z", '""""""']
)
blanks = st.sampled_from(["", "\n", "# c = 1\n", "\n  # [ssh]\n", "\r\n"])
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[\n" + ",# x\n ".join(items) + "]"),
        st.lists(st.tuples(names, inner), max_size=3, unique_by=lambda pair: pair[0]).map(
            lambda pairs: "{" + ", ".join(f"{name} = {value}" for name, value in pairs) + "}"
        ),
    ),
    max_leaves=6,
)
headers = st.one_of(
    st.lists(names, min_size=1, max_size=2).map(lambda parts: f"[[ {'.'.join(parts)}]]"),
    st.lists(names, min_size=1, max_size=2).map(lambda parts: f"[{' . '.join(parts)}]"),
)
pairs = st.tuples(st.lists(names, min_size=1, max_size=2).map(".".join), values).map(" = ".join)
documents = st.lists(st.tuples(blanks, st.one_of(headers, pairs)).map("".join), max_size=12).map("\n".join)


@pytest.mark.slow
@given(documents)
def test_every_key_of_any_document_has_a_line_containing_the_key(text):
    try:
        data = tomli.loads(text)
    except tomli.TOMLDecodeError:
        return
    found = places(text)
    lines = text.split("\n")
    expected = leaves(data)
    assert set(found) == set(expected)
    for path, place in found.items():
        key = path[-1]
        if isinstance(key, str):
            assert re.search(re.escape(key), lines[place.line - 1]), (path, place)
        value = expected[path]
        if not isinstance(value, dict | list):
            assert tomli.loads("v = " + text[place.value_start : place.value_end])["v"] == value


@pytest.mark.parametrize("text", ["", "\n", "# only a comment", "  \t"])
def test_a_document_without_keys_has_no_places(text):
    assert places(text) == {}
