"""The filter language: terms, all of which must match.

    state:idle,missing node:node0[1-3]* util:<10 -simulated "two words"

A term is `field:value`, or a word that occurs anywhere in the row; `-` negates it. Commas separate alternatives.
`<  <=  >  >=` compare numbers, `0-7` is a range, `=` and `!=` take a whole text or number. `none` matches unknown
values, which match no comparison. Names take `*`, `?` and sets of numbers as in `node[001-064]`. Quotes, and a
backslash before one character, remove any special meaning.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final, Generic, Literal, TypeVar

import msgspec

from ...records.metrics import Metric
from .filter_patterns import BadPattern, Letters, NumberComparison, NumberRange, Pattern, parse_numbers, parse_pattern

R = TypeVar("R")
#: Value of a field: text or number, or several of which any may match; None for unknown.
Value = str | float | tuple[str, ...] | tuple[float, ...] | None
#: `word` matches as a whole, `text` also in part; `number`, and `size` in bytes, can be compared.
FilterFieldKind = Literal["word", "text", "number", "size"]
_SIGNS: Final = ("<=", ">=", "!=", "<", ">", "=")
_FIELD = re.compile(r"-?([A-Za-z_]+):")
_SAFE = re.compile(r"[\w.+/@-]+")


class FilterError(ValueError):
    """Invalid filter. `start` and `end` are the position in characters; `unfinished`: more input may make it valid."""

    def __init__(self, text: str, start: int, end: int, try_: str, *, unfinished: bool = False) -> None:
        super().__init__(text)
        self.text, self.start, self.end, self.try_, self.unfinished = text, start, end, try_, unfinished


class FilterField(msgspec.Struct, Generic[R], frozen=True):
    """A field of a row that filters can name."""

    name: str
    kind: FilterFieldKind
    read: Callable[[R], Value]
    help: str
    aliases: tuple[str, ...] = ()
    offered: bool = True  # whether completion proposes the values that occur
    offers: Callable[[R], Value] | None = None  # values that completion proposes, where `read` accepts more


def metric_filters(
    metrics: Iterable[Metric],
    read: Callable[[Metric, R], Value],
    after: Mapping[str, Sequence[FilterField[R]]] = MappingProxyType({}),
) -> Iterator[FilterField[R]]:
    """The filter fields of metrics, as the catalogue declares them; `after` as in `metric_columns`."""
    for metric in metrics:
        if traits := metric.filter:
            name = traits.name or metric.name
            yield FilterField(name, traits.kind, partial(read, metric), traits.help, traits.aliases)
        yield from after.get(metric.name, ())


class Vocabulary(msgspec.Struct, Generic[R], frozen=True):
    """The filter fields of one kind of row; words without a field are searched in `words`."""

    fields: tuple[FilterField[R], ...]
    words: Callable[[R], Iterable[str]]

    def field(self, name: str) -> FilterField[R] | None:
        """The field of that name or alias."""
        name = name.casefold()
        return next((field for field in self.fields if name == field.name or name in field.aliases), None)


class FilterTerm(msgspec.Struct, Generic[R], frozen=True):
    """One term. `tests` are alternatives; None stands for `none`."""

    text: str
    negated: bool
    field: FilterField[R] | None
    whole: bool
    tests: tuple[Pattern | NumberRange | NumberComparison | None, ...]

    def matches(self, row: R, vocabulary: Vocabulary[R]) -> bool:
        """Whether the row passes this term."""
        value = self.field.read(row) if self.field else tuple(vocabulary.words(row))
        return any(_holds(test, value, self.whole) for test in self.tests) != self.negated


def _holds(test: Pattern | NumberRange | NumberComparison | None, value: Value, whole: bool) -> bool:
    if test is None:
        return value is None or value == ()
    if value is None:
        return False
    values = value if isinstance(value, tuple) else (value,)
    if isinstance(test, Pattern):
        return any(test.matches(str(text)) if whole else test.occurs_in(str(text)) for text in values)
    return any(isinstance(figure, int | float) and test.matches(figure) for figure in values)


class Filter(msgspec.Struct, Generic[R], frozen=True):
    """A filter; without terms every row passes."""

    vocabulary: Vocabulary[R]
    terms: tuple[FilterTerm[R], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.terms)

    @property
    def text(self) -> str:
        """The filter as typed, with single blanks."""
        return " ".join(term.text for term in self.terms)

    def matches(self, row: R) -> bool:
        """Whether the row passes all terms."""
        return all(term.matches(row, self.vocabulary) for term in self.terms)


# -- parsing -----------------------------------------------------------------------------------------------------------


def parse(text: str, vocabulary: Vocabulary[R]) -> Filter[R]:
    """Parse a filter. Raises FilterError."""
    return Filter(vocabulary, tuple(_term(text, start, end, vocabulary) for start, end in _tokens(text)))


def _tokens(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of each term: they are separated by blanks outside quotes."""
    start: int | None = None
    opened: int | None = None
    index = 0
    while index < len(text):
        if text[index].isspace() and opened is None:
            if start is not None:
                yield start, index
            start = None
        else:
            start = index if start is None else start
            if text[index] == "\\":
                index += 1
                if index == len(text):
                    raise FilterError(
                        "incomplete escape", index - 1, index, "write \\\\ for a backslash", unfinished=True
                    )
            elif text[index] == '"':
                opened = index if opened is None else None
        index += 1
    if opened is not None:
        raise FilterError("unclosed quote", opened, len(text), 'close it with "', unfinished=True)
    if start is not None:
        yield start, len(text)


def _term(text: str, start: int, end: int, vocabulary: Vocabulary[R]) -> FilterTerm[R]:
    source = text[start:end]
    last = end == len(text)
    named = _FIELD.match(source)
    if named is None:
        negated = source.startswith("-")
        letters = _letters(source[negated:])
        if not letters:
            raise FilterError("missing term after -", start, end, "write e.g. -simulated", unfinished=last)
        return FilterTerm(source, negated, None, False, (_pattern(letters, start, end),))
    field = vocabulary.field(named[1])
    if field is None:
        name_start = start + named.start(1)
        raise FilterError(f"unknown field {named[1]}", name_start, start + named.end(1), _nearest(named[1], vocabulary))
    rest = source[named.end() :]
    sign = next((sign for sign in _SIGNS if rest.startswith(sign)), "")
    value_start = start + named.end() + len(sign)
    if sign in ("<", "<=", ">", ">=") and field.kind in ("word", "text"):
        why = f"{field.name} is text; {sign} compares numbers"
        raise FilterError(
            why, value_start - len(sign), end, f"write {field.name}:TEXT, or -{field.name}:TEXT for the others"
        )
    tests = tuple(_test(field, sign, text[first:past], first, past, past == len(text)) for first, past in
                  _alternatives(text, value_start, end))  # fmt: skip
    negated = source.startswith("-") != (sign == "!=")
    return FilterTerm(source, negated, field, field.kind == "word" or sign in ("=", "!="), tests)


def _test(
    field: FilterField[R], sign: str, text: str, start: int, end: int, last: bool
) -> Pattern | NumberRange | NumberComparison | None:
    letters = _letters(text)
    if not text:
        raise FilterError(f"missing value for {field.name}", start, end, f"{field.name}: {field.help}", unfinished=last)
    if text == "none" and sign in ("", "=", "!="):
        return None
    if field.kind in ("word", "text"):
        return _pattern(letters, start, end)
    try:
        return parse_numbers("".join(letter for letter, _ in letters), sign, binary=field.kind == "size")
    except BadPattern as error:
        raise FilterError(str(error), start, end, error.try_, unfinished=last and text in "+-") from error


def _pattern(letters: Letters, start: int, end: int) -> Pattern:
    try:
        return parse_pattern(letters)
    except BadPattern as error:
        raise FilterError(str(error), start, end, error.try_, unfinished=error.unfinished) from error


def _letters(text: str) -> Letters:
    """The characters of a term without quotes and backslashes, each with whether it is literal."""
    letters: Letters = []
    quoted = escaped = False
    for character in text:
        if escaped:
            letters.append((character, True))
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == '"':
            quoted = not quoted
        else:
            letters.append((character, quoted))
    return letters


def _alternatives(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Start and end of each value: they are separated by commas outside quotes and brackets."""
    quoted = bracket = False
    index = first = start
    while index < end:
        character = text[index]
        if character == "\\":
            index += 1
        elif character == '"':
            quoted = not quoted
        elif not quoted and character in "[]":
            bracket = character == "["
        elif character == "," and not quoted and not bracket:
            yield first, index
            first = index + 1
        index += 1
    yield first, end


def _nearest(name: str, vocabulary: Vocabulary[R]) -> str:
    names = [field.name for field in vocabulary.fields]
    aliases = {alias: field.name for field in vocabulary.fields for alias in field.aliases}
    near = difflib.get_close_matches(name.casefold(), [*names, *aliases], 1)
    if near:
        return f"did you mean {aliases.get(near[0], near[0])}?"
    return f"fields: {', '.join(names)}; quote it to search for the text"


# -- completion --------------------------------------------------------------------------------------------------------


class Completion(msgspec.Struct, frozen=True):
    """Options for the text from `start` to `end`, best first."""

    start: int
    end: int
    options: tuple[str, ...] = ()


def complete(text: str, cursor: int, vocabulary: Vocabulary[R], values: Callable[[str], Sequence[str]]) -> Completion:
    """Completions at the cursor. `values` returns the values of a field that occur now."""
    start = start_of_term(text[:cursor])
    named = _FIELD.match(text[start:cursor])
    if named is None:
        start += text.startswith("-", start) and start < cursor
        typed = text[start:cursor].casefold()
        names = [field.name + ":" for field in vocabulary.fields if field.name.startswith(typed)]
        return Completion(start, cursor, tuple(names))
    field = vocabulary.field(named[1])
    start += named.end()
    start += len(next((sign for sign in _SIGNS if text[start:cursor].startswith(sign)), ""))
    if field is None:
        return Completion(cursor, cursor)
    *_, (start, _) = _alternatives(text, start, cursor)
    typed = "".join(letter for letter, _ in _letters(text[start:cursor])).casefold()
    matching = [value for value in values(field.name) if value.casefold().startswith(typed)]
    options = tuple(quoted(value) for value in matching)
    return Completion(start, cursor, options if options != (text[start:cursor],) else ())


def settled(text: str, vocabulary: Vocabulary[R]) -> str:
    """The text without a last word that may become a field name, such as `sta` of `state:`."""
    start = start_of_term(text)
    word = text[start:].removeprefix("-").casefold()
    is_beginning = word and any(field.name.startswith(word) for field in vocabulary.fields)
    return text[:start] if is_beginning else text


def start_of_term(text: str) -> int:
    """Start of the last term of the text; an open quote is part of it."""
    start, open_, index = 0, False, 0
    while index < len(text):
        if text[index] == "\\":
            index += 1
        elif text[index] == '"':
            open_ = not open_
        elif text[index].isspace() and not open_:
            start = index + 1
        index += 1
    return start


def quoted(value: str) -> str:
    """The value as to be typed, in quotes where necessary."""
    if _SAFE.fullmatch(value) and value != "none":
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
