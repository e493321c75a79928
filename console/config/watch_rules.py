"""The [[watch.rule]] entries of a hosts.toml, checked as far as one entry and its file allow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from .model import PlacedRule
from .schema import keys, nearest, shown
from .sections import WatchRule

if TYPE_CHECKING:
    from .document import Document

#: Rules in one file.
MOST_RULES: Final = 64
#: The endpoint of PagerDuty's Events API v2.
PAGERDUTY_URL: Final = "https://events.pagerduty.com/v2/enqueue"
_ROOT: Final = ("watch", "rule")
_PLAIN_HTTP: Final = re.compile(r"http://(?!(?:localhost|127(?:\.[0-9]{1,3}){3}|\[::1\])(?::[0-9]{1,5})?(?:[/?#]|\Z))")


def is_plain_http(url: str) -> bool:
    """Whether a URL is neither encrypted nor of this machine."""
    return _PLAIN_HTTP.match(url) is not None


def rules_of(document: Document) -> Iterator[PlacedRule]:
    """The rules of a document, in its order. Raises ConfigError."""
    table = document.data.get("watch")
    entries = table.get("rule", []) if isinstance(table, dict) else []
    if isinstance(entries, dict):
        raise document.error(_ROOT, "watch.rule", "must be a list of entries; write [[watch.rule]] with two brackets")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise document.error(_ROOT, "watch.rule", f"must be [[watch.rule]] entries, is {shown(entries)}")
    if len(entries) > MOST_RULES:
        raise document.error(_ROOT, "watch.rule", f"at most {MOST_RULES} rules, this file has {len(entries)}")
    names: set[str] = set()
    for index, entry in enumerate(entries):
        placed = _rule(document, index, entry)
        if placed.rule.name in names:
            raise document.error((*_ROOT, index, "name"), "watch.rule.name", f"{shown(placed.rule.name)} occurs twice")
        names.add(placed.rule.name)
        yield placed


def _rule(document: Document, index: int, entry: dict[str, Any]) -> PlacedRule:
    path = (*_ROOT, index)
    allowed = keys("watch.rule")
    values: dict[str, Any] = {}
    for name, value in entry.items():
        if name not in allowed:
            raise document.error((*path, name), f"watch.rule.{name}", "unknown key", nearest(name, allowed))
        values[name] = document.value((*path, name), allowed[name], value)
    if "name" not in values:
        raise document.error(path, "watch.rule.name", 'is missing; add name = "page"')
    rule = WatchRule(**values)
    for name, text in _contradictions(rule):
        raise document.error((*path, name), f"watch.rule.{name}", text)
    return PlacedRule(rule, document.place(*path))


def _contradictions(rule: WatchRule) -> Iterator[tuple[str, str]]:
    """(key, what is wrong) for values that cannot work together."""
    if rule.format == "slack" and rule.post is None:
        yield "format", "slack needs post, the URL of an incoming webhook"
    posts = rule.post is not None or rule.format == "pagerduty"
    if not (posts or rule.run or rule.keep or rule.textfile):
        yield "name", "does nothing; add keep, run, post or textfile"
    if not rule.on:
        yield "on", 'is empty; add a severity or the id of a finding, e.g. on = ["error"]'
    if rule.run and not rule.run[0]:
        yield "run", "the command is empty"
    if rule.format == "pagerduty" and rule.routing_key is None:
        yield "format", "pagerduty needs routing_key"
    if rule.post is not None and is_plain_http(rule.post) and not rule.allow_http:
        yield "post", "http:// is not encrypted; use https://, or set allow_http = true"
