"""`KeyHints`: the footer, made from the bindings that work now; what does not fit is in `?` and in the palette.

m metric  ⏎ details  R reconnect  space pause  ^p commands  ? help  q quit                     2 findings
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual.binding import ActiveBinding

from ...present.spans import Span
from ...text.cells import width_of
from ..keymap.actions import Action, key_names


def hints(active: Mapping[str, ActiveBinding], actions: Sequence[Action], room: int) -> list[Span]:
    """The footer's left part: the actions in their order, each with the key that is bound to it at present.

    Of what does not fit the last ones before `?` and quit are left out: those two are never lost.
    """
    bound = {item.binding.id or "": item for item in reversed(list(active.values()))}
    shown = [action for action in actions if action.footer and action.id in bound]
    while len(shown) > 2 and _width(shown, bound) > room:
        del shown[-3 if len(shown) > 2 else -1]
    spans: list[Span] = [Span(" ")]
    for action in shown:
        item = bound[action.id]
        run = f"app.run_bound('{action.id}')"
        spans.append(Span(_key(action, item), "key" if item.enabled else "rule", run))
        spans.append(Span(f" {action.label}  ", "muted" if item.enabled else "rule", run))
    return spans


def _key(action: Action, item: ActiveBinding) -> str:
    is_usual = item.binding.key in action.keys.split(",")
    return action.shown_key if action.shown_key and is_usual else key_names(item.binding.key)


def _width(shown: Sequence[Action], bound: Mapping[str, ActiveBinding]) -> int:
    return 1 + sum(width_of(_key(action, bound[action.id])) + width_of(action.label) + 3 for action in shown)
