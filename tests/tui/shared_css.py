"""Style sheets that are parsed once per process instead of once per app: parsing was a quarter of an app's start."""

from __future__ import annotations

from pytest import MonkeyPatch
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.css.types import CSSLocation

_parsed: dict[tuple[object, ...], list[RuleSet]] = {}
_parse = Stylesheet._parse_rules


def _parse_once(
    sheet: Stylesheet,
    css: str,
    read_from: CSSLocation,
    is_default_rules: bool = False,
    tie_breaker: int = 0,
    scope: str = "",
) -> list[RuleSet]:
    """The rules of `css` with the variables of the sheet's theme. Rules are only read once they are parsed."""
    variables = frozenset(sheet._variables.items())
    key = (css, read_from, is_default_rules, tie_breaker, scope, variables)
    if key not in _parsed:
        _parsed[key] = _parse(sheet, css, read_from, is_default_rules, tie_breaker, scope)
    return _parsed[key]


def use(monkeypatch: MonkeyPatch) -> None:
    """Let apps share parsed style sheets."""
    monkeypatch.setattr(Stylesheet, "_parse_rules", _parse_once)
