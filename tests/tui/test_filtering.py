"""The filter's language: what terms mean, where a mistake is shown, and what Tab offers."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

import pytest
from ClusterShell.NodeSet import NodeSet
from hypothesis import given, settings
from hypothesis import strategies as st

from gconsole.tui.models.filter_language import FilterError, FilterField, Vocabulary, complete, parse, quoted


@dataclass(frozen=True)
class FilteredItem:
    name: str = "node012"
    state: str = "moving"
    util: float | None = None
    size: int | None = None
    tags: tuple[str, ...] = ()
    note: str | None = None


VOCABULARY: Vocabulary[FilteredItem] = Vocabulary(
    (
        FilterField("node", "word", lambda item: item.name, "a node"),
        FilterField("state", "word", lambda item: item.state, "a state"),
        FilterField("util", "number", lambda item: item.util, "busy", ("gpu_util",)),
        FilterField("size", "size", lambda item: item.size, "bytes"),
        FilterField("tag", "word", lambda item: item.tags, "a tag"),
        FilterField("note", "text", lambda item: item.note, "a part of the note"),
    ),
    lambda item: (item.name, item.state, *item.tags),
)
VALUES = {"state": ("moving", "stuck", "stopped"), "node": ("node001", "node002"), "note": ('say "hi"', "two words")}


def passes(text: str, **fields: object) -> bool:
    return parse(text, VOCABULARY).matches(FilteredItem(**fields))  # type: ignore[arg-type]


def filter_error(text: str) -> FilterError:
    with pytest.raises(FilterError) as error:
        parse(text, VOCABULARY)
    return error.value


def offered(text: str, cursor: int | None = None) -> tuple[str, ...]:
    return complete(
        text, len(text) if cursor is None else cursor, VOCABULARY, lambda name: VALUES.get(name, ())
    ).options


class TestTerms:
    def test_all_terms_must_hold(self):
        assert passes("state:stuck node:node0[1-3]* util:<10", state="stuck", util=3.0)
        assert not passes("state:stuck node:node0[1-3]* util:<10", state="stuck", util=30.0)

    def test_empty_filter_matches_everything(self):
        assert passes("") and passes("   ")
        assert not parse("", VOCABULARY)

    def test_values_with_commas_are_alternatives(self):
        assert passes("state:stuck,moving")
        assert not passes("state:stuck,stopped")

    def test_minus_negates_a_term(self):
        assert not passes("-state:moving")
        assert passes("-simulated")
        assert not passes("-simulated", tags=("simulated",))
        assert passes("state:!=stuck") and not passes("-state:!=stuck")

    def test_free_word_matches_any_part_of_a_row_ignoring_case(self):
        assert passes("mov") and passes("NODE01") and passes("ack3", tags=("rack3",))
        assert not passes("rack3")

    def test_word_fields_match_whole_and_text_fields_match_in_part(self):
        assert not passes("node:node01")
        assert passes("note:ne", note="nfs, one")
        assert not passes("note:=ne", note="nfs, one")

    def test_tag_term_matches_any_one_tag(self):
        assert passes("tag:rack3", tags=("h100", "rack3"))
        assert not passes("tag:rack", tags=("h100", "rack3"))

    def test_brackets_are_number_sets_with_significant_zero_padding(self):
        assert passes("node:node[001-064]") and passes("node:node[001,010-012]")
        assert not passes("node:node[001-011]")
        assert not passes("node:node[1-64]"), "the zeros belong to the name"
        assert passes("node:node0[1-3]*") and passes("node:node0?2")

    def test_quotes_and_backslashes_disable_special_characters(self):
        assert passes('note:"two words"', note="it has two words")
        assert passes('"moving"') and not passes('"mov*"') and not passes(r"mov\*")
        assert passes('"state:x"', tags=("state:x",))

    def test_word_with_a_colon_is_a_free_word(self):
        assert passes("12:30", tags=("12:30",))

    def test_missing_value_fails_comparisons_and_matches_none(self):
        assert not passes("util:<10") and not passes("util:>=0") and passes("util:none")
        assert not passes("util:none", util=0.0) and passes("-util:none", util=0.0)
        assert passes("tag:none") and passes("note:none")

    def test_field_aliases_work_and_field_names_ignore_case(self):
        assert passes("gpu_util:<10 State:MOVING", util=1.0)


class TestFigures:
    @pytest.mark.parametrize(
        ("text", "yes", "no"),
        [("<10", 9.9, 10), ("<=10", 10, 10.1), (">10", 10.1, 10), (">=10%", 10, 9.9), ("0-7", 7, 8), ("97", 97.4, 97.6),
         ("97.4", 97.42, 97.5), ("1k", 1400, 1600), ("=5,9", 9, 7), (">-5", 0, -6), ("!=5", 6, 5)],
    )  # fmt: skip
    def test_numeric_comparisons_and_ranges_match_the_right_values(self, text: str, yes: float, no: float):
        assert passes(f"util:{text}", util=yes)
        assert not passes(f"util:{text}", util=no)

    def test_size_units_are_binary(self):
        assert passes("size:>2.5G", size=(5 << 29) + 1)
        assert not passes("size:>2.5GiB", size=5 << 29)
        assert passes("size:3G", size=int(3.2 * 2**30))


class TestMistakes:
    @pytest.mark.parametrize(
        ("text", "at", "message", "try_"),
        [
            ("x stat:stuck", (2, 6), "unknown field stat", "did you mean state?"),
            ("zzz:1", (0, 3), "unknown field zzz", "fields: node, state"),
            ("util:abc", (5, 8), "abc is not a number", "10, 2.5G or 0-7"),
            ("util:<1-3", (6, 9), "takes one number", "<1"),
            ("util:9-3", (5, 8), "invalid range", "3-9"),
            ("node:<5", (5, 7), "node is text; < compares numbers", "node:TEXT"),
            ("node:n[a-c]", (5, 11), "[a-c] is not a number set", "[1-3]"),
            ("node:n[3-1]", (5, 11), "invalid range", "[1-3]"),
            ("node:n[1-99999999]", (5, 18), "more than 10000", "*"),
            ("state:a,,b", (8, 8), "missing value for state", "a state"),
        ],
    )
    def test_filter_error_has_text_position_and_hint(self, text, at, message, try_):
        error = filter_error(text)
        assert (error.start, error.end) == at
        assert message in error.text and try_ in error.try_ and not error.unfinished

    @pytest.mark.parametrize("text", ["state:", "util:<", '"two', "node:n[1-", "-", "x\\", "util:-", "state:a,"])
    def test_incomplete_term_is_flagged_as_unfinished(self, text: str):
        assert filter_error(text).unfinished


class TestCompletion:
    def test_field_names_are_offered_as_completions(self):
        assert offered("") == ("node:", "state:", "util:", "size:", "tag:", "note:")
        assert offered("state:stuck -no") == ("node:", "note:")

    def test_existing_values_are_offered_after_a_field(self):
        assert offered("state:st") == ("stuck", "stopped")
        assert offered("-state:!=moving,stu") == ("stuck",)
        assert offered("util:") == () and offered("zzz:") == ()

    def test_values_with_special_characters_are_offered_in_quotes(self):
        assert offered("note:") == (r'"say \"hi\""', '"two words"')
        assert offered('note:"two w') == ('"two words"',)

    def test_only_text_before_the_cursor_is_completed(self):
        completion = complete("sta x", 3, VOCABULARY, lambda _: ())
        assert (completion.start, completion.end, completion.options) == (0, 3, ("state:",))


texts = st.text(max_size=30)
filters = st.text(alphabet='ab0 12[]-,*?"\\:<>=!.Gstaeundo', max_size=24)


class TestAlways:
    @given(st.one_of(texts, filters))
    def test_any_text_parses_or_fails_with_an_error_position_inside_it(self, text: str):
        try:
            parsed = parse(text, VOCABULARY)
        except FilterError as error:
            assert 0 <= error.start <= error.end <= len(text)
            assert error.text and error.try_
        else:
            assert parse(parsed.text, VOCABULARY) == parsed

    @given(st.one_of(texts, filters), st.integers(0, 30))
    def test_completion_span_stays_within_the_text(self, text: str, cursor: int):
        completion = complete(text, min(cursor, len(text)), VOCABULARY, lambda _: ("x",))
        assert 0 <= completion.start <= completion.end <= len(text)

    @given(texts.filter(bool))
    def test_quoted_value_matches_exactly_its_row(self, value: str):
        assert passes(f"node:{quoted(value)}", name=value)
        assert not passes(f"-node:{quoted(value)}", name=value)

    @given(filters, st.sampled_from(["node001", "stuck", "a", "b0"]), st.floats(0, 100) | st.none())
    def test_negated_term_never_agrees_with_the_original(self, text: str, name: str, util: float | None):
        try:
            parsed, opposite = parse(text, VOCABULARY), parse(f"-{text}", VOCABULARY)
        except FilterError:
            return
        if len(parsed.terms) == len(opposite.terms) == 1 and text[0] not in "- ":
            item = FilteredItem(name, util=util)
            assert parsed.matches(item) != opposite.matches(item)

    @given(st.text("ab*?", min_size=1, max_size=8), st.text("ab", max_size=8))
    def test_wildcards_match_as_in_a_shell(self, wild: str, name: str):
        assert passes(f"node:{wild}", name=name) == fnmatchcase(name, wild)

    @given(st.integers(0, 30), st.integers(0, 30), st.integers(1, 3))
    @settings(deadline=None)  # the first example imports ClusterShell
    def test_number_sets_match_like_clustershell_node_sets(self, first: int, more: int, digits: int):
        text = f"n[{first:0{digits}}-{first + more:0{digits}}]"
        nodes = NodeSet(text)
        for number in range(0, 64):
            for width in (1, 2, 3):
                name = f"n{number:0{width}}"
                assert passes(f"node:{text}", name=name) == (name in nodes), (text, name)

    def test_hostile_wildcard_pattern_on_a_long_name_is_evaluated_quickly(self):
        assert not passes("node:" + "*a" * 30 + "b", name="a" * 4096)
