"""Text tables are aligned by display width."""

from hypothesis import given
from hypothesis import strategies as st

from gconsole.text.cells import table, width_of
from gconsole.text.documents import pretty


def test_columns_are_as_wide_as_their_widest_cell():
    rows = [("node1", "8", "ok"), ("node12", "16", "lost")]

    assert table(rows, header=("NODE", "GPUS", "STATE"), align="<>", indent="  ", rule=True) == [
        "  NODE    GPUS  STATE",
        "  ──────  ────  ─────",
        "  node1      8  ok",
        "  node12    16  lost",
    ]


def test_wide_characters_take_two_cells():
    assert table([("漢字", "x"), ("ab", "y")]) == ["漢字  x", "ab    y"]


def test_cells_are_centred_and_rows_may_be_shorter():
    assert table([("X", "SYS", "remark"), ("NV18", "X")], align="^^") == [" X    SYS  remark", "NV18   X"]


def test_a_very_long_cell_does_not_push_the_next_column_away():
    assert table([("x" * 60, "a"), ("y", "b")], widest=4) == ["x" * 60 + "  a", "y     b"]


def test_table_without_rows_has_no_lines_except_its_header():
    assert table([]) == []
    assert table([], header=("A", "B")) == ["A  B"]


def test_control_characters_in_table_cells_are_replaced():
    assert table([("\x1b[31mred\n", "x")]) == ["·[31mred·  x"]


@given(st.lists(st.lists(st.text(max_size=12), min_size=3, max_size=3), min_size=1, max_size=8))
def test_the_last_column_of_every_line_begins_in_the_same_cell(rows):
    lines = table([[*row[:2], "|"] for row in rows])
    assert len({width_of(line) for line in lines}) == 1


def test_json_is_indented():
    assert pretty({"a": [1, "é"]}) == '{\n  "a": [\n    1,\n    "é"\n  ]\n}'
